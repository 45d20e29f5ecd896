"""torch-summary 1.4.5, the predecessor of torchinfo, whose package is called torchsummary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import torch
from torch import nn

from opcost.compat import add_submodules
from opcost.compat._layers import count_layers, inputs_first, inputs_of
from opcost.compat._tables import parameter_lines, size_lines
from opcost.compat.torchinfo import FormattingOptions
from opcost.compat.torchinfo.layer_info import LayerInfo, called_layers, defined_layers

__all__ = ["ModelStatistics", "summary"]
add_submodules(__name__, "torchsummary", "model_statistics")

HEADER_TITLES = {
    "kernel_size": "Kernel Shape", "input_size": "Input Shape", "output_size": "Output Shape", "num_params": "Param #",
    "mult_adds": "Mult-Adds",
}  # fmt: skip
_WITHOUT_INPUT = ("num_params", "kernel_size")
_BATCH = 2  # As many samples as a BatchNorm needs to have a variance
_FLOAT_BYTES = 4


def summary(
    model: nn.Module, input_data: Any = None, *args: Any, batch_dim: int | None = 0, branching: bool = True,
    col_names: Iterable[str] | None = None, col_width: int = 25, depth: int = 3,
    device: torch.device | str | None = None, dtypes: Sequence[Any] | None = None, verbose: int = 1, **kwargs: Any,
) -> ModelStatistics:  # fmt: skip
    """The layers of a model with their shapes, parameters and mult-adds, printed unless `verbose` is 0.

    `input_data` is a tensor or several, or a shape or several without the batch; without it nothing is run, and the layers are
    listed as they are defined. Further arguments go to the model's forward. `device` is checked and has no other effect.
    """
    columns = tuple(col_names or (("num_params",) if input_data is None else ("output_size", "num_params")))
    if verbose not in (0, 1, 2):
        raise ValueError("Verbose must be either 0 (quiet), 1 (default), or 2 (verbose).")
    for column in columns:
        if column not in HEADER_TITLES:
            raise ValueError(f"Column {column} is not a valid column name.")
        if input_data is None and column not in _WITHOUT_INPUT:
            raise ValueError(f"You must pass input_data in order to use column {column}")
    if device is not None:
        torch.device(device)
    guides = ("|    ", "├─", "└─") if branching else ("", "", "")
    layout = FormattingOptions(depth, verbose, columns, col_width, (), guides=guides)
    sizes: list[tuple[int, ...]] = []
    if input_data is None:
        infos, batch_dim = defined_layers(model), None
    else:
        sizes, tensors = _inputs(model, input_data, batch_dim, dtypes)
        try:
            layers = count_layers(model, (*tensors, *args), kwargs, mode="eval")
        except Exception as exc:
            raise RuntimeError(f"Failed to run torchsummary. See above stack traces for more details. {exc}") from exc
        infos = called_layers(layers, None)
    # All rows but the model's own, unless it is one layer.
    listed = [LayerLine(info, batch_dim) for info in infos if info.depth or not any(info.module.children())]
    found = ModelStatistics(listed, sizes, layout)
    if verbose:
        print(found)
    return found


def _inputs(
    model: nn.Module, input_data: Any, batch_dim: int | None, dtypes: Sequence[Any] | None
) -> tuple[list[tuple[int, ...]], tuple[torch.Tensor, ...]]:
    """The sizes that are shown, and the tensors."""
    input_data = [input_data] if isinstance(input_data, torch.Tensor) else input_data
    if not isinstance(input_data, (list, tuple)):
        raise TypeError("Input type is not recognized: give a tensor, a list of tensors, or a list of tuple sizes.")
    if input_data and all(isinstance(item, torch.Tensor) for item in input_data):
        return [tuple(item.shape) for item in input_data], tuple(input_data)
    sizes = [tuple(input_data)] if input_data and isinstance(input_data[0], int) else [tuple(s) for s in input_data]
    if not sizes or any(extent <= 0 for size in sizes for extent in size):
        raise ValueError("Input_data is invalid, or negative size found in input_data.")
    return sizes, inputs_of(model, sizes, dtypes, _BATCH, batch_dim)


class LayerLine:
    """One call of a layer, or a container above those that it holds; the batch is shown as -1."""

    def __init__(self, info: LayerInfo, batch_dim: int | None) -> None:
        self.info, self.depth, self.is_leaf = info, info.depth, info.is_leaf_layer
        self.mult_adds = 0
        """Of its own forward, for one sample and without biases."""
        if info.call is not None and (info.call.macs or self.is_leaf):
            self.mult_adds = info.call.mult_adds_per_sample(batch_dim or 0)
        self.input_size, self.output_size = list(info.input_size), list(info.output_size)
        for size in (self.input_size, self.output_size):
            if batch_dim is not None and batch_dim < len(size):
                size[batch_dim] = -1
        self.number: int | None = None
        """Among the calls of its depth; None for a container that is not called."""

    def get_layer_name(self, *_: bool) -> str:
        return f"{self.info.class_name}: {self.depth}" + ("" if self.number is None else f"-{self.number}")


class ModelStatistics:
    """The lines of a summary and their totals; `print` shows the table."""

    def __init__(
        self, summary_list: list[LayerLine], input_size: list[tuple[int, ...]], formatting: FormattingOptions
    ) -> None:
        self.summary_list, self.input_size, self.formatting = summary_list, input_size, formatting
        self.branching = any(formatting.guides or ())
        """Without it names have no guides, and all depths are shown."""
        self.total_input = sum(map(prod, input_size))
        root = summary_list[0].info
        while root.parent_info is not None:
            root = root.parent_info
        self.total_params, self.trainable_params = root.num_params, root.trainable_params
        self.total_mult_adds = sum(line.mult_adds for line in summary_list)
        # Once for the values and once for their gradients, of the layers that have something to learn.
        self.total_output = sum(
            2 * abs(prod(line.output_size))
            for line in summary_list
            if line.is_leaf and line.info.num_params and not line.info.is_recursive
        )
        counts: dict[int, int] = {}
        for line in summary_list:
            if line.info.executed or not input_size:
                counts[line.depth] = line.number = counts.get(line.depth, 0) + 1
        formatting.set_layer_name_width(summary_list)

    def __repr__(self) -> str:
        layout = self.formatting
        rule = "=" * layout.get_total_width()
        text = [rule, layout.format_row("Layer (type:depth-idx)", HEADER_TITLES), rule]
        for line in self.summary_list:
            if line.depth <= layout.max_depth or not self.branching:
                text += self._rows(line)
        text += [rule, *parameter_lines(self.total_params, self.trainable_params)]
        if self.input_size:
            unit, size = ("G", 1e9) if self.total_mult_adds >= 1e9 else ("M", 1e6)
            text += [f"Total mult-adds ({unit}): {self.total_mult_adds / size:0.2f}", rule]
            text += size_lines(self.total_input, self.total_output, self.total_params, 1024**2 / _FLOAT_BYTES)
        return "\n".join([*text, rule])

    def _rows(self, line: LayerLine) -> Iterator[str]:
        info, layout = line.info, self.formatting
        last = self.branching and line.depth == layout.max_depth
        below = {id(child) for child in info.children} if last else set()
        mult_adds = line.mult_adds + sum(other.mult_adds for other in self.summary_list if id(other.info) in below)
        weight = next((p.shape for p in info.parameters if p.name == "weight"), ())
        params = f"{info.num_params:,}" if info.trainable == "True" else f"({info.num_params:,})"
        if info.is_recursive:
            params = "(recursive)"
        elif not info.num_params or not (last or line.is_leaf):
            params = "--"
        values = {
            "kernel_size": str(inputs_first(weight) or "--"),
            "input_size": str(line.input_size),
            "output_size": str(line.output_size),
            "num_params": params,
            "mult_adds": f"{mult_adds:,}" if info.num_params and (last or line.is_leaf) else "--",
        }
        yield layout.format_row(f"{layout.get_start_str(max(line.depth, 1))}{line.get_layer_name()}", values)
        if layout.verbose > 1:
            start = layout.get_start_str(line.depth + 1) or "  "
            for parameter in info.parameters:
                if "weight" in parameter.name and parameter.name != "weight":
                    yield layout.format_row(f"{start}{parameter.name}", {"kernel_size": str(list(parameter.shape))})
