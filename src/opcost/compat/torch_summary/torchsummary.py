"""`summary`: the arguments, the input, the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from opcost.compat._layers.calls import LayerCall, Layers, count_layers
from opcost.compat._layers.inputs import element_type, without_data
from opcost.compat.torch_summary.model_statistics import HEADER_TITLES, Format, Line, ModelStatistics
from opcost.compat.torchinfo.layer_info import LayerInfo
from opcost.compat.torchinfo.rows import called_layers, defined_layers

_BATCH = 2
"""As many samples as a BatchNorm needs to have a variance."""
_WITHOUT_INPUT = ("num_params", "kernel_size")


def summary(
    model: nn.Module,
    input_data: Any = None,
    *args: Any,
    batch_dim: int | None = 0,
    branching: bool = True,
    col_names: Iterable[str] | None = None,
    col_width: int = 25,
    depth: int = 3,
    device: torch.device | str | None = None,
    dtypes: Sequence[Any] | None = None,
    verbose: int = 1,
    **kwargs: Any,
) -> ModelStatistics:
    """The layers of a model with their shapes, parameters and mult-adds, printed unless `verbose` is 0.

    `input_data` is a tensor or several, or a shape or several without the batch; without it nothing is run, and the layers are
    listed as they are defined. Further arguments go to the model's forward. `device` is checked and otherwise of no effect.
    """
    columns = tuple(col_names or (("num_params",) if input_data is None else ("output_size", "num_params")))
    _check(columns, verbose, given=input_data is not None)
    if device is not None:
        torch.device(device)
    layout = Format(branching=branching, depth=depth, verbose=verbose, columns=columns, width=col_width)
    if input_data is None:
        found = ModelStatistics(_lines(defined_layers(model), [], None), [], layout)
    else:
        sizes, tensors = _inputs(model, input_data, batch_dim, dtypes)
        layers = _run(model, (*tensors, *args), kwargs)
        found = ModelStatistics(_lines(called_layers(layers, None), list(layers.calls), batch_dim), sizes, layout)
    if verbose:
        print(found)
    return found


def _run(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Layers:
    try:
        return count_layers(model, args, kwargs, mode="eval")
    except Exception as exc:
        raise RuntimeError(f"Failed to run torchsummary. See above stack traces for more details. {exc}") from exc


def _check(columns: tuple[str, ...], verbose: int, *, given: bool) -> None:
    if verbose not in (0, 1, 2):
        raise ValueError("Verbose must be either 0 (quiet), 1 (default), or 2 (verbose).")
    for column in columns:
        if column not in HEADER_TITLES:
            raise ValueError(f"Column {column} is not a valid column name.")
        if not given and column not in _WITHOUT_INPUT:
            raise ValueError(f"You must pass input_data in order to use column {column}")


def _inputs(
    model: nn.Module, input_data: Any, batch_dim: int | None, dtypes: Sequence[Any] | None
) -> tuple[list[tuple[int, ...]], tuple[torch.Tensor, ...]]:
    """The sizes that are shown, and the tensors."""
    if isinstance(input_data, torch.Tensor):
        input_data = [input_data]
    if not isinstance(input_data, (list, tuple)):
        raise TypeError("Input type is not recognized: give a tensor, a list of tensors, or a list of tuple sizes.")
    if input_data and all(isinstance(item, torch.Tensor) for item in input_data):
        return [tuple(item.shape) for item in input_data], tuple(input_data)
    sizes = [tuple(input_data)] if input_data and isinstance(input_data[0], int) else [tuple(s) for s in input_data]
    if not sizes or any(extent <= 0 for size in sizes for extent in size):
        raise ValueError("Input_data is invalid, or negative size found in input_data.")
    types = [element_type(dtype) for dtype in dtypes or [torch.float] * len(sizes)]
    shapes = [size if batch_dim is None else (*size[:batch_dim], _BATCH, *size[batch_dim:]) for size in sizes]
    return sizes, tuple(without_data(shape, dtype, model) for shape, dtype in zip(shapes, types, strict=False))


def _lines(infos: list[LayerInfo], calls: list[LayerCall], batch_dim: int | None) -> list[Line]:
    """All rows but the model's own, unless it is one layer."""
    by_info = dict(zip((id(info) for info in infos if info.executed), calls, strict=False))
    return [
        Line.of(info, by_info.get(id(info)), batch_dim)
        for info in infos
        if info.depth or not any(info.module.children())
    ]
