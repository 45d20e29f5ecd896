"""Rows and columns as text, in torchinfo's layout."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from opcost.compat.torchinfo.enums import ColumnSettings, RowSettings, Units, Verbosity
from opcost.core.harmless import printable

if TYPE_CHECKING:
    from opcost.compat.torchinfo.layer_info import LayerInfo

HEADER_TITLES = {
    ColumnSettings.KERNEL_SIZE: "Kernel Shape",
    ColumnSettings.INPUT_SIZE: "Input Shape",
    ColumnSettings.OUTPUT_SIZE: "Output Shape",
    ColumnSettings.NUM_PARAMS: "Param #",
    ColumnSettings.PARAMS_PERCENT: "Param %",
    ColumnSettings.MULT_ADDS: "Mult-Adds",
    ColumnSettings.TRAINABLE: "Trainable",
}
CONVERSION_FACTORS = {Units.TERABYTES: 1e12, Units.GIGABYTES: 1e9, Units.MEGABYTES: 1e6, Units.NONE: 1.0}

_INDENT = 5
_NARROWEST_NAME = 40


class FormattingOptions:
    """How the table is laid out: columns, widths, depth, and what a row shows."""

    def __init__(
        self,
        max_depth: int,
        verbose: int,
        col_names: tuple[ColumnSettings, ...],
        col_width: int,
        row_settings: set[RowSettings],
    ) -> None:
        self.max_depth = max_depth
        self.verbose = verbose
        self.col_names = col_names
        self.col_width = col_width
        self.row_settings = row_settings
        self.params_units = Units.NONE
        self.macs_units = Units.AUTO
        self.layer_name_width = _NARROWEST_NAME
        self.ascii_only = RowSettings.ASCII_ONLY in row_settings
        self.show_var_name = RowSettings.VAR_NAMES in row_settings
        self.show_depth = RowSettings.DEPTH in row_settings
        self.hide_recursive_layers = RowSettings.HIDE_RECURSIVE_LAYERS in row_settings

    @staticmethod
    def str_(val: Any) -> str:
        return str(val) if val else "--"

    def get_start_str(self, depth: int) -> str:
        """The guide in front of a layer of this depth."""
        if depth == 0:
            return ""
        if depth == 1:
            return "+ " if self.ascii_only else "├─"
        bar, corner = ("|    ", "+ ") if self.ascii_only else ("│    ", "└─")
        return bar * (depth - 1) + corner

    def set_layer_name_width(self, summary_list: Iterable[LayerInfo], align_val: int = _INDENT) -> None:
        """Make room for the longest name, in steps of the indent."""
        longest = max(
            (
                len(info.get_layer_name(self.show_var_name, self.show_depth)) + info.depth * align_val + 1
                for info in summary_list
            ),
            default=0,
        )
        if longest >= self.layer_name_width:
            self.layer_name_width = math.ceil(longest / align_val) * align_val

    def get_total_width(self) -> int:
        return len(self.col_names) * self.col_width + self.layer_name_width

    def format_row(self, layer_name: str, row_values: Mapping[ColumnSettings, str]) -> str:
        cells = [f"{printable(layer_name):<{self.layer_name_width}}"]
        cells += [f"{row_values.get(column, ''):<{self.col_width}}" for column in self.col_names]
        return " ".join(cells).rstrip() + "\n"

    def header_row(self) -> str:
        shown = (" (var_name)" if self.show_var_name else "") + (":depth-idx" if self.show_depth else "")
        return self.format_row(f"Layer (type{shown})", HEADER_TITLES)

    def layer_info_to_row(self, layer_info: LayerInfo, reached_max_depth: bool, total_params: int) -> str:
        """One layer as a line, and its parameters below it where they were asked for."""
        values = {
            ColumnSettings.KERNEL_SIZE: self.str_(layer_info.kernel_size),
            ColumnSettings.INPUT_SIZE: self.str_(layer_info.input_size),
            ColumnSettings.OUTPUT_SIZE: self.str_(layer_info.output_size),
            ColumnSettings.NUM_PARAMS: layer_info.num_params_to_str(reached_max_depth),
            ColumnSettings.PARAMS_PERCENT: layer_info.params_percent(total_params, reached_max_depth),
            ColumnSettings.MULT_ADDS: layer_info.macs_to_str(reached_max_depth),
            ColumnSettings.TRAINABLE: self.str_(layer_info.trainable),
        }
        name = layer_info.get_layer_name(self.show_var_name, self.show_depth)
        text = self.format_row(f"{self.get_start_str(layer_info.depth)}{name}", values)
        if self.verbose == Verbosity.VERBOSE:
            start = self.get_start_str(layer_info.depth + 1)
            for inner_name, inner in layer_info.inner_layers.items():
                text += self.format_row(f"{start}{inner_name}", inner)
        return text

    def layers_to_str(self, summary_list: Iterable[LayerInfo], total_params: int) -> str:
        """All rows down to the depth that was asked for."""
        return "".join(
            self.layer_info_to_row(info, info.depth == self.max_depth, total_params)
            for info in summary_list
            if info.depth <= self.max_depth and not (self.hide_recursive_layers and info.is_recursive)
        )
