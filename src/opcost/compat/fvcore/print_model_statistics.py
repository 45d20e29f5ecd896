"""What fvcore and mmengine print of a model: parameters, flops and activations per module, as a table or in the model's repr.

Statistics are kept as {name: {column: number}}, where a name is that of a module or of a parameter.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod

from torch import nn
from torch.nn.parameter import is_lazy

from opcost.compat._modules import annotated_repr, lineage
from opcost.compat._tables import pipe_table
from opcost.compat.fvcore.activation_count import ActivationCountAnalysis
from opcost.compat.fvcore.flop_count import FlopCountAnalysis
from opcost.compat.fvcore.jit_analysis import JitModelAnalysis
from opcost.core.report import Report

_MISSING_NOTE = (
    "N/A indicates a possibly missing statistic due to how the module was called. Missing values are still included in the "
    "parent's total.\n"
)
Shape = tuple[int, ...]
HEADERS = ["name", "#elements or shape"]
UNITS = ((1e14, 1e15, "P"), (1e11, 1e12, "T"), (1e8, 1e9, "G"), (1e5, 1e6, "M"), (1e2, 1e3, "K"))
"""Above the first number, in units of the second, with the letter."""


def parameter_count(model: nn.Module) -> defaultdict[str, int]:
    """Elements of every parameter and of every module, by name; "" is the whole model."""
    return count_elements(parameter_shapes(model))


def parameter_count_table(model: nn.Module, max_depth: int = 3) -> str:
    """The parameters of a model as a Markdown table."""
    return pipe_table(HEADERS, parameter_rows(model, max_depth))


def parameter_shapes(model: nn.Module, report: Report | None = None) -> dict[str, Shape]:
    """The shape of every parameter; a report has the shapes of those that are made in the first forward."""
    specs = {name: parameter.spec for parameter in (report.parameters if report else ()) for name in parameter.names}
    return {
        name: specs[name].dims if is_lazy(parameter) and name in specs else tuple(parameter.shape)
        for name, parameter in model.named_parameters()
    }


def count_elements(shapes: Mapping[str, Shape]) -> defaultdict[str, int]:
    """Elements of every parameter and of every module that holds some; a shared parameter belongs to its first name."""
    count: defaultdict[str, int] = defaultdict(int, {"": 0})
    for name, shape in shapes.items():
        parts = name.split(".")
        for depth in range(len(parts) + 1):
            count[".".join(parts[:depth])] += prod(shape)
    return count


def parameter_rows(model: nn.Module, max_depth: int) -> list[tuple[str, str]]:
    """The parameter table: modules with their size, parameters with their shape, down to a depth."""
    shapes = parameter_shapes(model)
    count = count_elements(shapes)
    sizes = {name: str(shapes[name]) if name in shapes else _rough_size(number) for name, number in count.items()}
    below = _indented(_children(count), "", max_depth)
    return [("model", sizes[""]), *((indent + name, indent + sizes[name]) for indent, name in below)]


def _children(names: Iterable[str]) -> dict[str, list[str]]:
    """The names directly below each name, in their order."""
    found: dict[str, list[str]] = {}
    for name in filter(None, names):
        found.setdefault(name.rpartition(".")[0], []).append(name)
    return found


def _indented(
    below: Mapping[str, list[str]], parent: str, max_depth: int, shown: Callable[[str], str] = str, level: int = 1
) -> Iterator[tuple[str, str]]:
    """What is below a name down to a depth, each with its indent; `shown` is the name that is shown for another."""
    for child in below.get(parent, ()) if level <= max_depth else ():
        name = shown(child)
        yield " " * level, name
        yield from _indented(below, name, max_depth, shown, level + 1)


def _rough_size(number: int) -> str:
    """A number with a unit and always one decimal."""
    for limit, unit, letter in UNITS[2:]:
        if number > limit:
            return f"{number / unit:.1f}{letter}"
    return str(number)


def flop_count_table(
    flops: FlopCountAnalysis, max_depth: int = 3, activations: ActivationCountAnalysis | None = None,
    show_param_shapes: bool = True,
) -> str:  # fmt: skip
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


def complexity_rows(
    flops: JitModelAnalysis, activations: JitModelAnalysis | None, max_depth: int, *, show_param_shapes: bool
) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of the table; modules in which nothing ran have blanks."""
    parameters = "#parameters or shape" if show_param_shapes else "#parameters"
    analyses = _quiet({"#flops": flops, "#activations": activations})
    shapes = parameter_shapes(flops.model, flops.report)
    numbers: dict[str, dict[str, float]] = {}
    by_column = {parameters: count_elements(shapes), **{column: a.by_module() for column, a in analyses.items()}}
    for column, found in by_column.items():
        for name, number in found.items():
            numbers.setdefault(name, {})[column] = number
    # Only names with a number other than zero, or with such a name below; the root stays.
    kept = {"", *(above for name, row in numbers.items() if any(row.values()) for above in lineage(name))}
    texts = {name: {c: _format_size(x) for c, x in row.items()} for name, row in numbers.items() if name in kept}
    for column, analysis in analyses.items():
        for name in analysis.uncalled_modules() & texts.keys():
            texts[name][column] = ""
    for name in shapes.keys() & texts.keys():
        if show_param_shapes:
            texts[name][parameters] = str(shapes[name])
        else:
            del texts[name]
    columns, below = [parameters, *analyses], _children(texts)

    def joined(name: str) -> str:
        """A module, or the one below it that has the same numbers and shares one row with it."""
        while len(only := below.get(name, [])) == 1:
            row, other = texts[name], texts[only[0]]
            if row.keys() != other.keys() or any(row[c] != other[c] and row[c] and other[c] for c in row):
                break
            name = only[0]
            texts[name] = {column: row[column] or other[column] for column in row}
        return name

    root = joined("")
    stem = f"{root}." if root else ""  # what all names begin with is left out
    rows = [[root or "model", *(texts[root].get(column, "") for column in columns)]]
    for indent, name in _indented(below, root, max_depth, joined):
        cells = (indent + texts[name][column] if column in texts[name] else "" for column in columns)
        rows.append([indent + name.removeprefix(stem), *cells])
    return ["module", *columns], rows
