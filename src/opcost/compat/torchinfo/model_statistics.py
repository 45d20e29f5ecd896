"""The result of `summary`: the rows, the totals, and the table as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opcost.compat.torchinfo.enums import Units
from opcost.compat.torchinfo.formatting import CONVERSION_FACTORS, FormattingOptions
from opcost.compat.torchinfo.layer_info import LayerInfo
from opcost.core.report import Report


class ModelStatistics:
    """The rows of a summary and their totals; `print` shows the table."""

    def __init__(
        self,
        summary_list: list[LayerInfo],
        input_size: Any,
        total_input_size: int,
        formatting: FormattingOptions,
        report: Report | None = None,
    ) -> None:
        self.summary_list = summary_list
        self.input_size = input_size
        self.formatting = formatting
        self.total_input = total_input_size
        self.report = report
        """The count that the table was made from; None where no input was given and nothing ran."""
        root = summary_list[0]
        self.total_params = root.num_params
        self.trainable_params = root.trainable_params
        self.total_param_bytes = root.param_bytes
        self.total_mult_adds = sum(info.own_macs for info in summary_list)
        # Once for the forward pass and once for the gradient, of the layers that have something to learn.
        self.total_output_bytes = sum(
            2 * info.output_bytes for info in summary_list if info.is_leaf_layer and info.num_params
        )
        formatting.set_layer_name_width(summary_list)

    @property
    def unused_layers(self) -> tuple[str, ...]:
        """The layers that hold parameters which no executed operator read."""
        unused: Iterable[str] = () if self.report is None else (p.name for p in self.report.unused)
        return tuple(dict.fromkeys(name.rpartition(".")[0] for name in unused))

    def __repr__(self) -> str:
        formatting = self.formatting
        divider = "=" * formatting.get_total_width()
        frozen = self.total_params - self.trainable_params
        lines = [
            divider,
            formatting.header_row() + divider,
            formatting.layers_to_str(self.summary_list, self.total_params) + divider,
            f"Total params{self.format_output_num(self.total_params, formatting.params_units)}",
            f"Trainable params{self.format_output_num(self.trainable_params, formatting.params_units)}",
            f"Non-trainable params{self.format_output_num(frozen, formatting.params_units)}",
        ]
        if self.input_size:
            whole = self.total_input + self.total_output_bytes + self.total_param_bytes
            lines += [
                f"Total mult-adds{self.format_output_num(self.total_mult_adds, formatting.macs_units)}",
                divider,
                f"Input size (MB): {self.to_megabytes(self.total_input):0.2f}",
                f"Forward/backward pass size (MB): {self.to_megabytes(self.total_output_bytes):0.2f}",
                f"Params size (MB): {self.to_megabytes(self.total_param_bytes):0.2f}",
                f"Estimated Total Size (MB): {self.to_megabytes(whole):0.2f}",
            ]
        return "\n".join([*lines, divider])

    @staticmethod
    def float_to_megabytes(num: int) -> float:
        """Megabytes of so many float32 numbers."""
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
