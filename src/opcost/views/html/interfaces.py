"""What modules of node files take and give: such files name the module of each operator, and no call of a module."""

from collections.abc import Mapping
from typing import NamedTuple

from opcost.core.graph import TensorSpec
from opcost.core.report import Report


class Interface(NamedTuple):
    """The tensors that go into a module and out of it, each once."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()


def interfaces(report: Report) -> Mapping[str, Interface]:
    """Of each module as it was called; where no module was, from the values that its operators share with others."""
    modules = {module.path: module for module in report.modules}
    called = {path: Interface(module.inputs, module.outputs) for path, module in modules.items()}
    if any(inputs or outputs for inputs, outputs in called.values()):
        return called
    around: dict[str, frozenset[str]] = {}
    for path, module in modules.items():  # parents come before their modules
        around[path] = frozenset((path,)) | (
            frozenset() if module.parent is None else around.get(module.parent, frozenset())
        )
    nowhere: frozenset[str] = frozenset()
    given = zip(report.input_values, report.inputs, strict=False)
    made: dict[int, tuple[frozenset[str], TensorSpec]] = {value: (nowhere, spec) for value, (_, spec) in given}
    taken: dict[str, dict[int, TensorSpec]] = {path: {} for path in modules}
    left: dict[str, dict[int, TensorSpec]] = {path: {} for path in modules}

    def use(value: int, reader: frozenset[str]) -> None:
        maker, spec = made[value]
        for path in reader - maker:
            taken[path][value] = spec
        for path in maker - reader:
            left[path][value] = spec

    for row in report.rows:
        here = around.get(row.op.module, nowhere)
        for value in row.op.inputs:
            if value in made:
                use(value, here)
        made.update((value, (here, spec)) for value, spec in zip(row.op.outputs, row.outs, strict=False))
    for value in report.output_values:
        if value in made:
            use(value, nowhere)
    return {path: Interface(tuple(taken[path].values()), tuple(left[path].values())) for path in modules}
