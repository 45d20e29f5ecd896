"""What fvcore and mmengine print of a model: parameters, flops and activations per module, as a table or in the model's repr.

Statistics are kept as {name: {column: number}}, where a name is that of a module or of a parameter.
"""

from __future__ import annotations

from collections.abc import Mapping

from opcost.compat._modules import annotated_repr, lineage
from opcost.compat._tables import pipe_table
from opcost.compat.fvcore.activation_count import ActivationCountAnalysis
from opcost.compat.fvcore.flop_count import FlopCountAnalysis
from opcost.compat.fvcore.jit_analysis import JitModelAnalysis
from opcost.compat.fvcore.parameter_count import UNITS, children, count_elements, parameter_shapes

Numbers = dict[str, dict[str, float]]
Texts = dict[str, dict[str, str]]

_MISSING_NOTE = (
    "N/A indicates a possibly missing statistic due to how the module was called. Missing values are still included in the "
    "parent's total.\n"
)


def flop_count_table(
    flops: FlopCountAnalysis,
    max_depth: int = 3,
    activations: ActivationCountAnalysis | None = None,
    show_param_shapes: bool = True,
) -> str:
    """Parameters, flops and, if given, activations per module as a Markdown table."""
    return pipe_table(*complexity_rows(flops, activations, max_depth, show_param_shapes=show_param_shapes))


def flop_count_str(flops: FlopCountAnalysis, activations: ActivationCountAnalysis | None = None) -> str:
    """The repr of the model with parameters, flops and, if given, activations at every module that has some.

    Where nothing ran it shows N/A.
    """
    analyses = _quiet({"#flops": flops, "#acts": activations})
    model = flops.model
    count = count_elements(parameter_shapes(model, flops.report))
    totals = {column: analysis.by_module() for column, analysis in analyses.items()}
    uncalled = {column: analysis.uncalled_modules() for column, analysis in analyses.items()}
    anywhere = set().union(*uncalled.values())
    notes = {}
    for name, _ in model.named_modules():
        row = {"#params": count.get(name, 0), **{column: numbers[name] for column, numbers in totals.items()}}
        if any(row.values()) or name in (anywhere or {""}):
            texts = {c: "N/A" if name in uncalled.get(c, ()) else _format_size(x, 2) for c, x in row.items()}
            notes[name] = ", ".join(f"{column}: {x}" for column, x in texts.items())
    lines = annotated_repr(model, lambda name, _: notes.get(name, ""))
    return (_MISSING_NOTE if anywhere else "") + "\n".join(lines)


def _format_size(x: float, sig_figs: int = 3, hide_zero: bool = False) -> str:
    """A number with a unit: 440 is 0.44K, 100 is 100. Public code imports it by this name."""
    if hide_zero and not x:
        return ""
    for limit, unit, letter in UNITS:
        if abs(x) > limit:
            return f"{x / unit:.{sig_figs}f}".rstrip("0").rstrip(".") + letter
    return str(x)


def _quiet(analyses: Mapping[str, JitModelAnalysis | None]) -> dict[str, JitModelAnalysis]:
    """The analyses that were given, without their warnings."""
    given = {column: analysis for column, analysis in analyses.items() if analysis is not None}
    for analysis in given.values():
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
    return given


# -- the table --------------------------------------------------------------------------------------------------------


def complexity_rows(
    flops: JitModelAnalysis, activations: JitModelAnalysis | None, max_depth: int, *, show_param_shapes: bool
) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of the table; modules in which nothing ran have blanks."""
    parameters = "#parameters or shape" if show_param_shapes else "#parameters"
    analyses = _quiet({"#flops": flops, "#activations": activations})
    shapes = parameter_shapes(flops.model, flops.report)
    numbers: Numbers = {}
    by_column = {parameters: count_elements(shapes), **{column: a.by_module() for column, a in analyses.items()}}
    for column, found in by_column.items():
        for name, number in found.items():
            numbers.setdefault(name, {})[column] = number
    texts = {name: {c: _format_size(x) for c, x in row.items()} for name, row in _without_zeros(numbers).items()}
    for column, analysis in analyses.items():
        for name in analysis.uncalled_modules() & texts.keys():
            texts[name][column] = ""
    for name in shapes.keys() & texts.keys():
        if show_param_shapes:
            texts[name][parameters] = str(shapes[name])
        else:
            del texts[name]
    columns = [parameters, *analyses]
    return ["module", *columns], _module_rows(texts, columns, max_depth)


def _without_zeros(numbers: Numbers) -> Numbers:
    """Only names with a number other than zero, or with such a name below; the root stays."""
    kept = {"", *(above for name, row in numbers.items() if any(row.values()) for above in lineage(name))}
    return {name: row for name, row in numbers.items() if name in kept}


def _module_rows(statistics: Texts, columns: list[str], max_depth: int) -> list[list[str]]:
    """Indented rows; a module with one child that has the same numbers shares one row with it."""
    below = children(statistics)
    name, row = _joined("", statistics, below)
    stem = f"{name}." if name else ""  # what all names begin with is left out
    rows = [[name or "model", *(row.get(column, "") for column in columns)]]

    def fill(parent: str, level: int) -> None:
        indent = " " * level
        for child in below.get(parent, ()) if level <= max_depth else ():
            name, row = _joined(child, statistics, below)
            rows.append([indent + name.removeprefix(stem), *(indent + row[c] if c in row else "" for c in columns)])
            fill(name, level + 1)

    fill(name, 1)
    return rows


def _joined(name: str, statistics: Texts, below: Mapping[str, list[str]]) -> tuple[str, dict[str, str]]:
    row = statistics[name]
    while len(only := below.get(name, [])) == 1:
        other = statistics[only[0]]
        if row.keys() != other.keys() or any(row[c] != other[c] and row[c] and other[c] for c in row):
            break
        row = {column: row[column] or other[column] for column in row}
        name = only[0]
    return name, row
