"""Parameters by name, and as a table."""

from __future__ import annotations

from collections import defaultdict

from torch import nn

from opcost.compat._grid import pipe_table
from opcost.compat.fvcore.statistics import parameter_count as count_parameters
from opcost.compat.fvcore.statistics import parameter_rows, parameter_shapes


def parameter_count(model: nn.Module) -> defaultdict[str, int]:
    """Elements of every parameter and of every module, by name; "" is the whole model."""
    return defaultdict(int, count_parameters(parameter_shapes(model)))


def parameter_count_table(model: nn.Module, max_depth: int = 3) -> str:
    """The parameters of a model as a Markdown table."""
    return pipe_table(["name", "#elements or shape"], parameter_rows(model, max_depth))
