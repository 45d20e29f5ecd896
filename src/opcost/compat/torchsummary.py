"""torchsummary: `summary` prints a table of layers, their output shapes and parameters.

The table is that of the released version; the arguments and results are also those of its repository.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import torch
from torch import nn

from opcost.compat import _layers, add_submodules
from opcost.compat._layers import ListedLayer, Structure
from opcost.compat._tables import TableColumn, lay_out, parameter_lines, size_lines
from opcost.core.graph import TensorSpec

__all__ = ["summary", "summary_string"]
add_submodules(__name__, "torchsummary")

Sizes: TypeAlias = "tuple[int, ...] | Sequence[tuple[int, ...]]"

_RULE = "-" * 64
_DOUBLE_RULE = "=" * 64
_BATCH_THAT_RUNS = 2  # As many samples as a BatchNorm needs to have a variance
_FLOAT_BYTES = 4
_MOST_NAMES = 8


def summary(
    model: nn.Module, input_size: Sizes, batch_size: int = -1, device: str | torch.device = "cuda",
    dtypes: Sequence[Any] | None = None,
) -> tuple[int, int]:  # fmt: skip
    """Print the layers of a model in the order in which they finish; returns the number of parameters and of trainable ones.

    `input_size` is one size or several, without the batch; `dtypes` are the element types of the inputs. Nothing runs on a
    device, so `device` is checked and otherwise has no effect.
    """
    text, params = summary_string(model, input_size, batch_size, device, dtypes)
    print(text)
    return params


def summary_string(
    model: nn.Module, input_size: Sizes, batch_size: int = -1, device: str | torch.device = "cuda",
    dtypes: Sequence[Any] | None = None,
) -> tuple[str, tuple[int, int]]:  # fmt: skip
    """The table as text, and what `summary` returns."""
    if str(device).partition(":")[0].lower() not in {"cuda", "cpu"}:
        raise AssertionError("Input device is not valid, please specify 'cuda' or 'cpu'")
    sizes = [tuple(input_size)] if isinstance(input_size, tuple) else [tuple(size) for size in input_size]
    if dtypes is not None and len(dtypes) != len(sizes):
        raise ValueError(f"{len(dtypes)} dtypes are given for {len(sizes)} inputs")
    layers = _layers.count_layers(model, _layers.inputs_of(model, sizes, dtypes, _BATCH_THAT_RUNS))
    every = layers.parameters.of(layers.model)
    total, trainable = _layers.total_and_trainable(every)
    # Plain containers are no layers, nor is the model itself, unless it is one layer.
    calls = [
        call
        for call in layers.calls[0].in_order_of_exit()
        if not isinstance(call.module, (nn.Sequential, nn.ModuleList))
        and (call.parent is not None or not any(call.module.children()))
    ]
    rows = _layers.listed_layers(layers, calls, recurse=False)

    def params(row: ListedLayer) -> str:
        """The new parameters; a layer whose parameters an earlier row shows is shared."""
        new = sum(p.numel for p in row.new)
        return "(shared)" if len(row.new) < len(row.parameters) and not new else f"{new:,}"

    columns = [
        TableColumn("Layer (type)", lambda row: f"{row.call.type_name}-{row.number}", ">", 20),
        TableColumn("Output Shape", lambda row: _shape(row.call.result, batch_size), ">", 25, gap="  "),
        TableColumn("Param #", params, ">", 15),
    ]
    header, *lines = lay_out(columns, rows)
    sample_bytes = abs(batch_size) * _FLOAT_BYTES
    input_bytes = sum(map(prod, sizes)) * sample_bytes
    elements = sum(prod(spec.dims[1:]) for call in calls for spec in call.outputs)
    output_bytes = 2 * elements * sample_bytes  # the values, and their gradients
    # The parameters that are in the total and in no row: of layers that were not called, and the model's own
    unused = {name for parameter in layers.report.unused for name in parameter.names}
    listed = {p.key for row in rows for p in row.new}
    left = []
    for title, is_unused in (("Unused params", True), ("Params of no layer above", False)):
        found = [p for p in every if p.key not in listed and (p.name in unused) is is_unused]
        if found:
            holders = list(dict.fromkeys(p.name.rpartition(".")[0] or p.name for p in found))
            more = f" and {len(holders) - _MOST_NAMES} more" if len(holders) > _MOST_NAMES else ""
            left.append(f"{title}: {sum(p.numel for p in found):,} ({', '.join(holders[:_MOST_NAMES])}{more})")
    text = [
        _RULE, header, _DOUBLE_RULE, *lines, _DOUBLE_RULE, *parameter_lines(total, trainable), *left, _RULE,
        *size_lines(input_bytes, output_bytes, total * _FLOAT_BYTES, 1024**2), _RULE,
    ]  # fmt: skip
    return "\n".join(text), (total, trainable)


def _shape(result: Structure, batch_size: int) -> Any:
    """The shape of a tensor with the batch size in front; of several tensors, the list of their shapes."""
    if isinstance(result, TensorSpec):
        return [batch_size, *result.dims[1:]] if result.dims else []
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [shape for item in result if (shape := _shape(item, batch_size)) is not None]
    return None
