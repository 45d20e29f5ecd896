"""Parameters by name, and as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import prod

from torch import nn
from torch.nn.parameter import is_lazy

from opcost.compat._tables import pipe_table
from opcost.core.report import Report

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
    below = children(count)
    rows = [("model", _rough_size(count[""]))]

    def fill(parent: str, level: int) -> None:
        indent = " " * level
        for name in below.get(parent, ()) if level <= max_depth else ():
            rows.append((indent + name, indent + (str(shapes[name]) if name in shapes else _rough_size(count[name]))))
            if name not in shapes:
                fill(name, level + 1)

    fill("", 1)
    return rows


def children(names: Iterable[str]) -> dict[str, list[str]]:
    """The names directly below each name, in their order."""
    found: dict[str, list[str]] = {}
    for name in names:
        if name:
            found.setdefault(name.rpartition(".")[0], []).append(name)
    return found


def _rough_size(number: int) -> str:
    """A number with a unit and always one decimal."""
    for limit, unit, letter in UNITS[2:]:
        if number > limit:
            return f"{number / unit:.1f}{letter}"
    return str(number)
