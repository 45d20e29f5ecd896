"""Numbers per module as fvcore and mmengine write them: rows of an indented table, or lines inside the model's repr.

Statistics are kept as {name: {column: number}}, where a name is that of a module or of a parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from torch import nn
from torch.nn.parameter import is_lazy

from opcost.core.harmless import printable
from opcost.core.report import Report

Numbers = dict[str, dict[str, float]]
Texts = dict[str, dict[str, str]]

_UNITS = ((1e14, 1e15, "P"), (1e11, 1e12, "T"), (1e8, 1e9, "G"), (1e5, 1e6, "M"), (1e2, 1e3, "K"))
"""Above the first number, in units of the second, with the letter."""


def format_size(number: float, decimals: int = 3) -> str:
    """A number with a unit: 440 is 0.44K, 100 is 100."""
    for limit, unit, letter in _UNITS:
        if abs(number) > limit:
            return f"{number / unit:.{decimals}f}".rstrip("0").rstrip(".") + letter
    return str(number)


def format_rough_size(number: int) -> str:
    """A number with a unit and always one decimal, as the parameter tables have it."""
    for limit, unit, letter in _UNITS[2:]:
        if number > limit:
            return f"{number / unit:.1f}{letter}"
    return str(number)


Shape = tuple[int, ...]


def parameter_shapes(model: nn.Module, report: Report | None = None) -> dict[str, Shape]:
    """The shape of every parameter; a report tells the shapes of those that are made in the first forward."""
    made = (
        {} if report is None else {name: parameter.spec for parameter in report.parameters for name in parameter.names}
    )
    return {
        name: made[name].dims if is_lazy(parameter) and name in made else tuple(parameter.shape)
        for name, parameter in model.named_parameters()
    }


def parameter_count(shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Elements of every parameter and of every module that holds some; a shared parameter belongs to its first name."""
    count: dict[str, int] = {"": 0}
    for name, shape in shapes.items():
        parts = name.split(".")
        for depth in range(len(parts) + 1):
            prefix = ".".join(parts[:depth])
            count[prefix] = count.get(prefix, 0) + prod(shape)
    return count


def by_name(columns: Mapping[str, Mapping[str, float]]) -> Numbers:
    """From {column: {name: number}} to {name: {column: number}}."""
    found: Numbers = {}
    for column, numbers in columns.items():
        for name, number in numbers.items():
            found.setdefault(name, {})[column] = number
    return found


def children(names: Iterable[str]) -> dict[str, list[str]]:
    """The names directly below each name, in their order."""
    found: dict[str, list[str]] = {}
    for name in names:
        if name:
            found.setdefault(name.rpartition(".")[0], []).append(name)
    return found


def parameter_rows(model: nn.Module, max_depth: int) -> list[tuple[str, str]]:
    """The parameter table: modules with their size, parameters with their shape, down to a depth."""
    shapes = parameter_shapes(model)
    count = parameter_count(shapes)
    below = children(count)
    rows = [("model", format_rough_size(count[""]))]

    def fill(parent: str, level: int) -> None:
        if level > max_depth:
            return
        indent = " " * level
        for name in below.get(parent, ()):
            if name in shapes:
                rows.append((indent + name, indent + str(shapes[name])))
            else:
                rows.append((indent + name, indent + format_rough_size(count[name])))
                fill(name, level + 1)

    fill("", 1)
    return rows


# -- the table of modules ---------------------------------------------------------------------------------------


def without_zeros(numbers: Numbers) -> Numbers:
    """Only what has a number other than zero, or has such a thing below it; the root stays."""
    below = children(numbers)
    kept: set[str] = set()

    def keep(name: str) -> bool:
        children_kept = [keep(child) for child in below.get(name, ())]
        if any(children_kept) or not name or any(numbers[name].values()):
            kept.add(name)
        return name in kept

    keep("")
    return {name: row for name, row in numbers.items() if name in kept}


def module_rows(statistics: Texts, columns: list[str], max_depth: int) -> list[list[str]]:
    """Indented rows; a module with one child that has the same numbers stands in one row with it."""
    below = children(statistics)
    name, row = _joined("", statistics, below)
    stem = f"{name}." if name else ""
    rows = [[name or "model", *(row.get(column, "") for column in columns)]]

    def fill(parent: str, level: int) -> None:
        if level > max_depth:
            return
        indent = " " * level
        for child in below.get(parent, ()):
            name, row = _joined(child, statistics, below)
            # What all names begin with says nothing.
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


# -- the repr of the model --------------------------------------------------------------------------------------


def annotated_repr(model: nn.Module, notes: Mapping[str, str]) -> str:
    """The repr of a model with a note in each module, on a line of its own unless it is all there is to say."""
    return "\n".join(_lines(model, "", notes))


def _lines(module: nn.Module | None, name: str, notes: Mapping[str, str]) -> list[str]:
    if module is None:
        return ["None"]
    own = [printable(line) for text in (module.extra_repr(), notes.get(name, "")) if text for line in text.split("\n")]
    nested: list[str] = []
    for key, child in module._modules.items():  # noqa: SLF001 - named_children leaves out shared and absent ones
        first, *rest = _lines(child, f"{name}.{key}" if name else key, notes)
        nested += [f"({printable(key)}): {first}", *rest]
    title = printable(module._get_name())  # noqa: SLF001 - the name that repr says
    if not nested and len(own) <= 1:
        return [f"{title}({''.join(own)})"]
    return [f"{title}(", *(f"  {line}" for line in (*own, *nested)), ")"]
