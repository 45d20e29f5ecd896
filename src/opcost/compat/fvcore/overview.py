"""What fvcore and mmengine print of a model: parameters, flops and activations per module, as a table or in the model's repr."""

from __future__ import annotations

from opcost.compat.fvcore.jit_analysis import JitModelAnalysis
from opcost.compat.fvcore.statistics import (
    Numbers,
    annotated_repr,
    by_name,
    format_size,
    module_rows,
    parameter_count,
    parameter_shapes,
    without_zeros,
)

_MISSING_NOTE = (
    "N/A indicates a possibly missing statistic due to how the module was called. Missing values are still included in the "
    "parent's total.\n"
)
_REPR_DECIMALS = 2


def complexity_rows(
    flops: JitModelAnalysis, activations: JitModelAnalysis | None, max_depth: int, *, show_param_shapes: bool
) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of the table; modules in which nothing ran have blanks."""
    parameters = "#parameters or shape" if show_param_shapes else "#parameters"
    analyses = {"#flops": flops} if activations is None else {"#flops": flops, "#activations": activations}
    _quiet(analyses)
    shapes = parameter_shapes(flops.model, flops.report)
    numbers = without_zeros(
        by_name({parameters: parameter_count(shapes), **{column: a.by_module() for column, a in analyses.items()}})
    )
    texts = {name: {column: format_size(x) for column, x in row.items()} for name, row in numbers.items()}
    for column, analysis in analyses.items():
        for name in analysis.uncalled_modules() & texts.keys():
            texts[name][column] = ""
    for name in shapes.keys() & texts.keys():
        if show_param_shapes:
            texts[name][parameters] = str(shapes[name])
        else:
            del texts[name]
    columns = [parameters, *analyses]
    return ["module", *columns], module_rows(texts, columns, max_depth)


def complexity_repr(flops: JitModelAnalysis, activations: JitModelAnalysis | None) -> str:
    """The model's repr with a line of numbers at every module that has some; where nothing ran it says N/A."""
    analyses = {"#flops": flops} if activations is None else {"#flops": flops, "#acts": activations}
    _quiet(analyses)
    model = flops.model
    count = parameter_count(parameter_shapes(model, flops.report))
    counted: Numbers = {name: {"#params": count.get(name, 0)} for name, _ in model.named_modules()}
    for column, analysis in analyses.items():
        found = analysis.by_module()
        for name, row in counted.items():
            row[column] = found[name]
    uncalled = {column: analysis.uncalled_modules() for column, analysis in analyses.items()}
    anywhere = set().union(*uncalled.values())
    notes = {}
    for name, row in counted.items():
        if any(row.values()) or name in (anywhere or {""}):
            texts = {
                c: "N/A" if name in uncalled.get(c, ()) else format_size(x, _REPR_DECIMALS) for c, x in row.items()
            }
            notes[name] = ", ".join(f"{column}: {x}" for column, x in texts.items())
    return (_MISSING_NOTE if anywhere else "") + annotated_repr(model, notes)


def _quiet(analyses: dict[str, JitModelAnalysis]) -> None:
    for analysis in analyses.values():
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
