"""Changes with which a model may take less memory or less time: an option and its value each, one list for both questions."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from opcost.core.devices import device as find_device
from opcost.core.report import ModuleCost, Report

IMAGES = "NCHW"
WORTH = 0.005  # a smaller share of the memory lets nothing more in


class Change(NamedTuple):
    """One option with another value than it has."""

    option: str
    value: Any
    saves_memory: bool = False
    """It is tried where more is to fit; others may save some too."""
    alters_results: bool = False
    """The model learns in another way, or computes with fewer bits, so that it is no part of a combination."""

    @property
    def text(self) -> str:
        """The value, as it is typed."""
        if isinstance(self.value, Mapping):
            return ",".join(f"{name}={value}" for name, value in self.value.items())
        return ",".join(self.value) or "none" if isinstance(self.value, tuple) else str(self.value)

    def __str__(self) -> str:
        return f"{self.option}={self.text}"


def changes(given: Any, report: Report, *, lower: str = "bfloat16") -> Iterator[Change]:
    """What may be changed of the options that were given, for the model with this report.

    `lower` is the element type of two bytes in which the device multiplies. A batch is not among them: it has many values.
    """
    if report.known_memory().how == "last reader":  # a file, which is not run
        return
    training = bool(given.backward or given.optimizer)
    if given.dtype is None and given.precision is None and not _is_halved(report):
        if training:
            yield Change("precision", f"{_SHORT[lower]}-mixed", saves_memory=True)
        yield Change("precision", lower, saves_memory=True, alters_results=training)
    if training and not given.checkpoint and (blocks := _blocks(report.modules)):
        yield Change("checkpoint", blocks, saves_memory=True)
    if given.checkpoint:
        yield Change("checkpoint", ())
    if isinstance(given.optimizer, str):
        name = given.optimizer.lower()
        for other in ("adafactor", "sgd"):
            if other != name:
                yield Change("optimizer", other, saves_memory=_saved_by_none(report) > WORTH, alters_results=True)
        if name in FUSED:
            yield Change(
                "optimizer", f"{name}_fused", saves_memory=given.device is not None and _peaks_in_update(report)
            )
    if not training and given.quantize is None and _is_linear(report):
        names = ["int8", "int4"]
        if given.device is not None and "float8" in find_device(given.device).flops:
            names.append("fp8")
        yield from (Change("quantize", name, saves_memory=True, alters_results=True) for name in names)
    if given.zero_grad == "zero":
        gradients = report.known_memory().parts.get("gradients", 0)
        yield Change("zero_grad", "none", saves_memory=gradients > WORTH * report.known_memory().peak_bytes)
    if not given.channels_last and any(_convolves_rows(row) for row in report.rows):
        yield Change("channels_last", value=True)
    if given.decode is not None and given.cache is not None and given.static is None:
        yield Change("static", given.cache + given.decode)
    if (given.set or {}).get("attn_implementation") == "eager":
        yield Change("set", {"attn_implementation": "sdpa"})


FUSED = frozenset({"adam", "adamw", "sgd", "adagrad"})
"""Optimizers that PyTorch can run in one kernel for many parameters."""
_SHORT = {"bfloat16": "bf16", "float16": "fp16"}


def _is_halved(report: Report) -> bool:
    """Whether no parameter has more than two bytes for an element."""
    specs = [each.spec for each in report.parameters if each.spec.known and not each.buffer]
    return bool(specs) and all(spec.nbytes <= 2 * spec.numel for spec in specs)


def _peaks_in_update(report: Report) -> bool:
    """Whether most memory is taken while the optimizer runs, whose temporary tensors a fused one does without."""
    at = report.known_memory().at
    return at < len(report.rows) and report.rows[at].op.phase == "update"


def _saved_by_none(report: Report) -> float:
    """The share of the peak that an optimizer could save at most: that without its state, before the update."""
    memory = report.known_memory()
    without = max(memory.curve[: first_of_update(report)], default=0) - memory.parts.get("optimizer", 0)
    return 1 - without / max(1, memory.peak_bytes)


def first_of_update(report: Report) -> int | None:
    """The place of an optimizer's first operator among the rows."""
    if "update" not in report.phases:
        return None
    return next(at for at, row in enumerate(report.rows) if row.op.phase == "update")


def _is_linear(report: Report) -> bool:
    """Whether most parameters are those of linear layers."""
    return 2 * sum(module.own.params for module in report.modules if module.type == "Linear") > report.totals.params


def _convolves_rows(row: Any) -> bool:
    """Whether it is a convolution of images whose channels are not last in memory."""
    shape = row.ins[0].shape if row.ins else None
    return row.op.kind == "conv" and len(shape or ()) == len(IMAGES) and not row.op.attrs.get("channels_last")


def _blocks(modules: Sequence[ModuleCost]) -> tuple[str, ...]:
    """Patterns of the paths of blocks that a model repeats: numbered modules of one type with others inside, near the root."""
    parents = {module.parent for module in modules}
    types: dict[str, list[str]] = {}
    for module in modules:
        before, _, name = module.path.rpartition(".")
        if before and name.isdigit() and module.path in parents:
            types.setdefault(before, []).append(module.type)
    found = [path for path, kinds in types.items() if len(kinds) > 1 and len(set(kinds)) == 1]
    nearest = min((path.count(".") for path in found), default=0)
    return tuple(dict.fromkeys(f"{re.sub('[0-9]+', '*', path)}.*" for path in found if path.count(".") == nearest))
