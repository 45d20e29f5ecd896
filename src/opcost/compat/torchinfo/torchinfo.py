"""`summary`: the arguments, the input, the rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from opcost.compat._layers.calls import Layers, count_layers
from opcost.compat._layers.inputs import element_type, without_data
from opcost.compat.torchinfo.enums import ColumnSettings, Mode, RowSettings, Verbosity
from opcost.compat.torchinfo.formatting import FormattingOptions
from opcost.compat.torchinfo.model_statistics import ModelStatistics
from opcost.compat.torchinfo.rows import called_layers, defined_layers

DEFAULT_COLUMN_NAMES = (ColumnSettings.OUTPUT_SIZE, ColumnSettings.NUM_PARAMS)
DEFAULT_ROW_SETTINGS = (RowSettings.DEPTH,)
REQUIRES_INPUT = {ColumnSettings.INPUT_SIZE, ColumnSettings.OUTPUT_SIZE, ColumnSettings.MULT_ADDS}


def summary(
    model: nn.Module,
    input_size: Sequence[Any] | None = None,
    input_data: Any = None,
    batch_dim: int | None = None,
    cache_forward_pass: bool | None = None,
    col_names: Iterable[str] | None = None,
    col_width: int = 25,
    depth: int = 3,
    device: torch.device | str | None = None,
    dtypes: list[torch.dtype] | None = None,
    mode: str | None = None,
    row_settings: Iterable[str] | None = None,
    verbose: int | None = None,
    **kwargs: Any,
) -> ModelStatistics:
    """The layers of a model with their shapes, parameters and mult-adds, printed unless `verbose` is 0.

    Without `input_size` and `input_data` nothing is run, and the layers are listed as they are defined. `kwargs` go to the
    model's forward. The model is counted without data where it lies: `device` is checked and otherwise of no effect, and
    with nothing to run there is nothing for `cache_forward_pass` to save.
    """
    given = input_data is not None or input_size is not None
    if col_names is None:
        col_names = DEFAULT_COLUMN_NAMES if given else (ColumnSettings.NUM_PARAMS,)
    columns = tuple(ColumnSettings(name) for name in col_names)
    rows = {RowSettings(name) for name in (DEFAULT_ROW_SETTINGS if row_settings is None else row_settings)}
    model_mode = Mode.EVAL if mode is None else Mode(mode)
    if verbose is None:
        verbose = Verbosity.QUIET if getattr(sys, "ps1", None) else Verbosity.DEFAULT
    if device is not None:
        torch.device(device)
    _check(input_data, input_size, columns, col_width, verbose)

    formatting = FormattingOptions(depth, verbose, columns, col_width, rows)
    if not given:
        results = ModelStatistics(defined_layers(model), [], 0, formatting)
    else:
        sizes, args, keywords = _inputs(model, input_data, input_size, batch_dim, dtypes)
        layers = _run(model, args, {**keywords, **kwargs}, model_mode)
        size_in_bytes = _storage_bytes((args, keywords))
        results = ModelStatistics(called_layers(layers, batch_dim), sizes, size_in_bytes, formatting, layers.report)
    if verbose > Verbosity.QUIET:
        print(results)
    return results


def clear_cached_forward_pass() -> None:
    """Forget the runs that were kept for `cache_forward_pass`: none are."""


def _run(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode) -> Layers:
    try:
        return count_layers(model, args, kwargs, mode=mode.value)
    except Exception as exc:
        raise RuntimeError(f"Failed to run torchinfo. See above stack traces for more details. {exc}") from exc


# -- the input --------------------------------------------------------------------------------------------------------


def _check(
    input_data: Any,
    input_size: Any,
    columns: tuple[ColumnSettings, ...],
    col_width: int,
    verbose: int,
) -> None:
    if col_width <= 0:
        raise ValueError(f"Column width must be greater than 0: col_width={col_width}")
    if verbose not in {0, 1, 2}:
        raise ValueError("Verbose must be either 0 (quiet), 1 (default), or 2 (verbose).")
    if input_data is not None and input_size is not None:
        raise RuntimeError("Only one of (input_data, input_size) should be specified.")
    if input_data is None and input_size is None and (not_allowed := set(columns) & REQUIRES_INPUT):
        raise ValueError(f"You must pass input_data or input_size in order to use columns: {not_allowed}")


def _inputs(
    model: nn.Module, input_data: Any, input_size: Any, batch_dim: int | None, dtypes: list[torch.dtype] | None
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The sizes that are shown, the positional arguments and the keyword arguments."""
    if input_size is not None:
        sizes = _sizes(input_size)
        tensors = [
            _tensor(model, size, dtype, batch_dim)
            for size, dtype in zip(sizes, dtypes or [torch.float] * len(sizes), strict=False)
        ]
        return sizes, tuple(tensors), {}
    sizes = _traverse(input_data, lambda tensor: tensor.size())
    if isinstance(input_data, Mapping):
        return sizes, (), dict(input_data)
    if isinstance(input_data, (list, tuple)):
        return sizes, tuple(input_data), {}
    return sizes, (input_data,), {}


def _sizes(input_size: Any) -> list[Any]:
    """One size or several, as a list of sizes."""
    if not isinstance(input_size, (list, tuple)):
        raise TypeError(
            "Input_size is not a recognized type. Please ensure input_size is valid.\n"
            "For multiple inputs to the network, ensure input_size is a list of tuple sizes."
        )
    if not input_size or any(extent <= 0 for extent in _flat(input_size)):
        raise ValueError("Input_data is invalid, or negative size found in input_data.")
    if isinstance(input_size[0], int):
        return [input_size if isinstance(input_size, tuple) else tuple(input_size)]
    return list(input_size)


def _flat(sizes: Iterable[Any]) -> Iterator[int]:
    for item in sizes:
        if isinstance(item, (list, tuple)):
            yield from _flat(item)
        else:
            yield item


def _tensor(model: nn.Module, size: Sequence[int], dtype: Any, batch_dim: int | None) -> torch.Tensor:
    shape = list(size)
    if batch_dim is not None:
        shape.insert(batch_dim if batch_dim >= 0 else len(shape) + 1 + batch_dim, 1)
    return without_data(shape, element_type(dtype), model)


def _traverse(data: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same structure with every tensor changed."""
    if isinstance(data, torch.Tensor):
        return change(data)
    if isinstance(data, Mapping):
        return {key: _traverse(value, change) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(_traverse(item, change) for item in data))
    if isinstance(data, (list, tuple)):
        return type(data)([_traverse(item, change) for item in data])
    if type(data).__module__ == "numpy":
        return change(torch.as_tensor(data))
    return data


def _storage_bytes(data: Any) -> int:
    """Bytes of the memory behind every tensor."""
    found: list[int] = []
    _traverse(data, lambda tensor: found.append(tensor.untyped_storage().nbytes()))
    return sum(found)
