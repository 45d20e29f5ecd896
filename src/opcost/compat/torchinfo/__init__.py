"""torchinfo: `summary` lists the layers of a model with shapes, parameters and mult-adds."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

import torch
from torch import nn

from opcost.compat import add_submodules
from opcost.compat._layers import count_layers, inputs_of
from opcost.compat._tables import size_lines
from opcost.compat.torchinfo.layer_info import ColumnSettings, LayerInfo, called_layers, defined_layers, flat
from opcost.core.escaping import printable
from opcost.core.report import Report

__all__ = [
    "ColumnSettings", "Mode", "ModelStatistics", "RowSettings", "Units", "Verbosity", "clear_cached_forward_pass", "summary",
]  # fmt: skip
add_submodules(__name__, "enums", "formatting", "model_statistics", "torchinfo")

# -- the words that `summary` takes; plain strings of the same value do as well ---------------------------------------


Mode = Enum("Mode", {"TRAIN": "train", "EVAL": "eval"}, type=str)
"""Whether the model is summarised as in training or as in inference."""
RowSettings = Enum(
    "RowSettings",
    {
        "DEPTH": "depth", "VAR_NAMES": "var_names", "ASCII_ONLY": "ascii_only",
        "HIDE_RECURSIVE_LAYERS": "hide_recursive_layers",
    },
    type=str,
)  # fmt: skip
"""What a row shows beside the layer's type, and which rows are left out."""
Units = Enum("Units", {"AUTO": "auto", "MEGABYTES": "M", "GIGABYTES": "G", "TERABYTES": "T", "NONE": ""}, type=str)
"""The unit of a total; AUTO takes the largest that leaves at least one, but no smaller than a million."""
Verbosity = IntEnum("Verbosity", {"QUIET": 0, "DEFAULT": 1, "VERBOSE": 2})
"""Print nothing, the table, or the table with the parameters of every layer."""

_TITLES = ("Kernel Shape", "Input Shape", "Output Shape", "Param #", "Param %", "Mult-Adds", "Trainable")
HEADER_TITLES = dict(zip(ColumnSettings, _TITLES, strict=True))
CONVERSION_FACTORS = {Units.TERABYTES: 1e12, Units.GIGABYTES: 1e9, Units.MEGABYTES: 1e6, Units.NONE: 1.0}
DEFAULT_COLUMN_NAMES = (ColumnSettings.OUTPUT_SIZE, ColumnSettings.NUM_PARAMS)
DEFAULT_ROW_SETTINGS = (RowSettings.DEPTH,)
REQUIRES_INPUT = {ColumnSettings.INPUT_SIZE, ColumnSettings.OUTPUT_SIZE, ColumnSettings.MULT_ADDS}


def summary(
    model: nn.Module, input_size: Sequence[Any] | None = None, input_data: Any = None, batch_dim: int | None = None,
    cache_forward_pass: bool | None = None, col_names: Iterable[str] | None = None, col_width: int = 25,
    depth: int = 3, device: torch.device | str | None = None, dtypes: list[torch.dtype] | None = None,
    mode: str | None = None, row_settings: Iterable[str] | None = None, verbose: int | None = None, **kwargs: Any,
) -> ModelStatistics:  # fmt: skip
    """The layers of a model with their shapes, parameters and mult-adds, printed unless `verbose` is 0.

    Without `input_size` and `input_data` nothing is run, and the layers are listed as they are defined. `kwargs` go to the
    model's forward. The model is counted without data: `device` is checked and has no other effect, and there is no run that
    `cache_forward_pass` could save.
    """
    given = input_data is not None or input_size is not None
    usual = DEFAULT_COLUMN_NAMES if given else (ColumnSettings.NUM_PARAMS,)
    columns = tuple(ColumnSettings(name) for name in (usual if col_names is None else col_names))
    rows = {RowSettings(name) for name in (DEFAULT_ROW_SETTINGS if row_settings is None else row_settings)}
    model_mode = Mode.EVAL if mode is None else Mode(mode)
    if verbose is None:
        verbose = Verbosity.QUIET if getattr(sys, "ps1", None) else Verbosity.DEFAULT
    if device is not None:
        torch.device(device)
    if col_width <= 0:
        raise ValueError(f"Column width must be greater than 0: col_width={col_width}")
    if verbose not in {0, 1, 2}:
        raise ValueError("Verbose must be either 0 (quiet), 1 (default), or 2 (verbose).")
    if input_data is not None and input_size is not None:
        raise RuntimeError("Only one of (input_data, input_size) should be specified.")
    if not given and (not_allowed := set(columns) & REQUIRES_INPUT):
        raise ValueError(f"You must pass input_data or input_size in order to use columns: {not_allowed}")

    formatting = FormattingOptions(depth, verbose, columns, col_width, rows)
    if not given:
        results = ModelStatistics(defined_layers(model), [], 0, formatting)
    else:
        sizes, args, keywords = _inputs(model, input_data, input_size, batch_dim, dtypes)
        try:
            layers = count_layers(model, args, {**keywords, **kwargs}, mode=model_mode.value)
        except Exception as exc:
            raise RuntimeError(f"Failed to run torchinfo. See above stack traces for more details. {exc}") from exc
        storages: list[int] = []
        _traverse((args, keywords), lambda tensor: storages.append(tensor.untyped_storage().nbytes()))
        results = ModelStatistics(called_layers(layers, batch_dim), sizes, sum(storages), formatting, layers.report)
    if verbose > Verbosity.QUIET:
        print(results)
    return results


def clear_cached_forward_pass() -> None:
    """No effect: no runs are kept for `cache_forward_pass`."""


def _inputs(
    model: nn.Module, input_data: Any, input_size: Any, batch_dim: int | None, dtypes: list[torch.dtype] | None
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The sizes that are shown, the positional arguments and the keyword arguments."""
    if input_size is not None:
        # One size or several, as a list of sizes
        if not isinstance(input_size, (list, tuple)):
            hint = "For multiple inputs to the network, ensure input_size is a list of tuple sizes."
            raise TypeError(f"Input_size is not a recognized type. Please ensure input_size is valid.\n{hint}")
        if not input_size or any(extent <= 0 for extent in flat(input_size)):
            raise ValueError("Input_data is invalid, or negative size found in input_data.")
        sizes = [tuple(input_size)] if isinstance(input_size[0], int) else list(input_size)
        tensors = inputs_of(model, sizes, dtypes)
        return sizes, tensors if batch_dim is None else tuple(x.unsqueeze(batch_dim) for x in tensors), {}
    sizes = _traverse(input_data, lambda tensor: tensor.size())
    if isinstance(input_data, Mapping):
        return sizes, (), dict(input_data)
    return sizes, tuple(input_data) if isinstance(input_data, (list, tuple)) else (input_data,), {}


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


_INDENT = 5
_NARROWEST_NAME = 40


@dataclass
class FormattingOptions:
    """How the table is laid out: columns, widths, depth, and what a row shows."""

    max_depth: int
    verbose: int
    col_names: tuple[Any, ...]
    col_width: int
    row_settings: Collection[RowSettings]
    params_units: Units = Units.NONE
    macs_units: Units = Units.AUTO
    layer_name_width: int = _NARROWEST_NAME
    guides: tuple[str, str, str] | None = None
    """What is in front of a layer: a bar for every depth but the last, the corner of the first depth and of others."""

    def __post_init__(self) -> None:
        self.ascii_only = RowSettings.ASCII_ONLY in self.row_settings
        self.show_var_name = RowSettings.VAR_NAMES in self.row_settings
        self.show_depth = RowSettings.DEPTH in self.row_settings
        self.hide_recursive_layers = RowSettings.HIDE_RECURSIVE_LAYERS in self.row_settings

    def get_start_str(self, depth: int) -> str:
        """The guide in front of a layer of this depth."""
        usual = ("|    ", "+ ", "+ ") if self.ascii_only else ("│    ", "├─", "└─")
        bar, first, corner = self.guides or usual
        return bar * (depth - 1) + corner if depth > 1 else first * depth

    def set_layer_name_width(self, summary_list: Iterable[Any]) -> None:
        """Make room for the longest name, in steps of the indent."""
        names = [(row.get_layer_name(self.show_var_name, self.show_depth), row.depth) for row in summary_list]
        longest = max((len(name) + depth * _INDENT + 1 for name, depth in names), default=0)
        if longest >= self.layer_name_width:
            self.layer_name_width = math.ceil(longest / _INDENT) * _INDENT

    def get_total_width(self) -> int:
        return len(self.col_names) * self.col_width + self.layer_name_width

    def format_row(self, layer_name: str, row_values: Mapping[Any, str]) -> str:
        cells = [f"{row_values.get(column, ''):<{self.col_width}}" for column in self.col_names]
        return " ".join([f"{printable(layer_name):<{self.layer_name_width}}", *cells]).rstrip()

    def layer_rows(self, info: LayerInfo, total_params: int) -> Iterator[str]:
        """One layer as a line, and its parameters below it where they are shown."""
        is_last = info.depth == self.max_depth
        values = {
            ColumnSettings.KERNEL_SIZE: str(info.kernel_size or "--"),
            ColumnSettings.INPUT_SIZE: str(info.input_size or "--"),
            ColumnSettings.OUTPUT_SIZE: str(info.output_size or "--"),
            ColumnSettings.NUM_PARAMS: info.num_params_to_str(is_last),
            ColumnSettings.PARAMS_PERCENT: info.params_percent(total_params, is_last),
            ColumnSettings.MULT_ADDS: info.macs_to_str(is_last),
            ColumnSettings.TRAINABLE: info.trainable,
        }
        name = info.get_layer_name(self.show_var_name, self.show_depth)
        yield self.format_row(f"{self.get_start_str(info.depth)}{name}", values)
        if self.verbose == Verbosity.VERBOSE:
            start = self.get_start_str(info.depth + 1)
            for inner_name, inner in info.inner_layers.items():
                yield self.format_row(f"{start}{inner_name}", inner)


class ModelStatistics:
    """The rows of a summary and their totals; `print` shows the table."""

    def __init__(
        self, rows: list[LayerInfo], sizes: Any, total_input: int, layout: FormattingOptions,
        report: Report | None = None,
    ) -> None:  # fmt: skip
        self.summary_list, self.input_size, self.total_input, self.formatting = rows, sizes, total_input, layout
        self.report = report
        """The count that the table was made from; None where no input was given and nothing ran."""
        root = rows[0]
        self.total_params = root.num_params
        self.trainable_params = root.trainable_params
        self.total_param_bytes = root.param_bytes
        self.total_mult_adds = sum(info.own_macs for info in rows)
        # Once for the forward pass and once for the gradient, of the layers that have something to learn.
        self.total_output_bytes = sum(2 * info.output_bytes for info in rows if info.is_leaf_layer and info.num_params)
        layout.set_layer_name_width(rows)

    @property
    def unused_layers(self) -> tuple[str, ...]:
        """The layers that hold parameters which no executed operator read."""
        unused: Iterable[str] = () if self.report is None else (p.name for p in self.report.unused)
        return tuple(dict.fromkeys(name.rpartition(".")[0] for name in unused))

    def __repr__(self) -> str:
        formatting = self.formatting
        divider = "=" * formatting.get_total_width()
        shown = (" (var_name)" if formatting.show_var_name else "") + (":depth-idx" if formatting.show_depth else "")
        lines = [divider, formatting.format_row(f"Layer (type{shown})", HEADER_TITLES), divider]
        for info in self.summary_list:
            if info.depth <= formatting.max_depth and not (formatting.hide_recursive_layers and info.is_recursive):
                lines += formatting.layer_rows(info, self.total_params)
        total, trainable = self.total_params, self.trainable_params
        counts = {"Total": total, "Trainable": trainable, "Non-trainable": total - trainable}
        units = formatting.params_units
        lines += [divider, *(f"{name} params{self.format_output_num(n, units)}" for name, n in counts.items())]
        if self.input_size:
            lines += [
                f"Total mult-adds{self.format_output_num(self.total_mult_adds, formatting.macs_units)}",
                divider,
                *size_lines(self.total_input, self.total_output_bytes, self.total_param_bytes, 1e6),
            ]
        return "\n".join([*lines, divider])

    @staticmethod
    def float_to_megabytes(num: int) -> float:
        """Megabytes of `num` float32 numbers."""
        return num * 4 / 1e6

    @staticmethod
    def to_megabytes(num: int) -> float:
        return num / 1e6

    @staticmethod
    def to_readable(num: int, units: Units = Units.AUTO) -> tuple[Units, float]:
        """A number in a unit, and which unit that is."""
        if units == Units.AUTO:
            units = Units.TERABYTES if num >= 1e12 else Units.GIGABYTES if num >= 1e9 else Units.MEGABYTES
        return units, num / CONVERSION_FACTORS[units]

    @staticmethod
    def format_output_num(num: int, units: Units) -> str:
        used, value = ModelStatistics.to_readable(num, units)
        unit = f" ({used.value})" if used != Units.NONE else ""
        return f"{unit}: {value:,.0f}" if value.is_integer() else f"{unit}: {value:,.2f}"
