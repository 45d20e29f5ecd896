"""`summary` and `summary_string`: the layers of a model with their output shapes and parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import torch
from torch import nn

from opcost.compat._layers.calls import LayerCall, Layers, Structure, count_layers
from opcost.compat._layers.inputs import element_type, without_data
from opcost.compat._layers.parameters import ModuleParameter, Parameters
from opcost.core.graph import TensorSpec
from opcost.core.harmless import printable

Sizes: TypeAlias = "tuple[int, ...] | Sequence[tuple[int, ...]]"

_RULE = "-" * 64
_DOUBLE_RULE = "=" * 64
_MEBIBYTE = 1024**2
_BATCH_THAT_RUNS = 2
"""As many samples as a BatchNorm needs to have a variance."""
_FLOAT_BYTES = 4
_MOST_NAMES = 8


def summary(
    model: nn.Module,
    input_size: Sizes,
    batch_size: int = -1,
    device: str | torch.device = "cuda",
    dtypes: Sequence[Any] | None = None,
) -> tuple[int, int]:
    """Print the layers of a model in the order in which they finish; all its parameters, and those that are trained.

    `input_size` is without the batch, one or several; `dtypes` are the element types of the inputs. The model is counted where
    it lies and nothing runs on a device, so `device` is checked and otherwise of no effect.
    """
    text, params = summary_string(model, input_size, batch_size, device, dtypes)
    print(text)
    return params


def summary_string(
    model: nn.Module,
    input_size: Sizes,
    batch_size: int = -1,
    device: str | torch.device = "cuda",
    dtypes: Sequence[Any] | None = None,
) -> tuple[str, tuple[int, int]]:
    """The table as text, and what `summary` returns."""
    if str(device).partition(":")[0].lower() not in {"cuda", "cpu"}:
        raise AssertionError("Input device is not valid, please specify 'cuda' or 'cpu'")
    sizes = [tuple(input_size)] if isinstance(input_size, tuple) else [tuple(size) for size in input_size]
    types = [torch.float32] * len(sizes) if dtypes is None else [element_type(dtype) for dtype in dtypes]
    inputs = [without_data((_BATCH_THAT_RUNS, *size), dtype, model) for size, dtype in zip(sizes, types, strict=True)]
    layers = count_layers(model, tuple(inputs))
    parameters = Parameters(layers.model, layers.report)
    every = parameters.of(layers.model)
    params = sum(p.numel for p in every), sum(p.numel for p in every if p.trainable)
    return "\n".join(_lines(layers, parameters, every, sizes, batch_size)), params


@dataclass(frozen=True, slots=True)
class _Line:
    """One layer in the table: its new parameters, and whether it has some that an earlier line showed."""

    name: str
    shape: Any
    elements: int
    """Of the output, for one sample."""
    new: tuple[ModuleParameter, ...]
    shared: bool

    def __str__(self) -> str:
        params = sum(p.numel for p in self.new)
        shown = "(shared)" if self.shared and not params else f"{params:,}"
        return _row(self.name, str(self.shape), shown)


def _row(name: str, shape: str, params: str) -> str:
    return f"{printable(name):>20}  {shape:>25} {params:>15}"


def _layer_lines(layers: Layers, parameters: Parameters, batch_size: int) -> Iterator[_Line]:
    shown: set[int] = set()
    calls = [call for call in layers.calls[0].in_order_of_exit() if _is_listed(call)]
    for index, call in enumerate(calls, 1):
        own = parameters.of(call.module, recurse=False)
        new = tuple(p for p in own if p.key not in shown)
        shown.update(p.key for p in own)
        yield _Line(
            f"{call.type_name}-{index}",
            _shape(call.result, batch_size),
            sum(prod(spec.dims[1:]) for spec in call.outputs),
            new,
            len(new) < len(own),
        )


def _is_listed(call: LayerCall) -> bool:
    """The model itself, unless it is one layer, and the plain containers are no layers."""
    if isinstance(call.module, (nn.Sequential, nn.ModuleList)):
        return False
    return call.parent is not None or not any(call.module.children())


def _shape(result: Structure, batch_size: int) -> Any:
    """The shape of a tensor with the batch size in front; of several tensors, the list of their shapes."""
    if isinstance(result, TensorSpec):
        return [batch_size, *result.dims[1:]] if result.dims else []
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [shape for item in result if (shape := _shape(item, batch_size)) is not None]
    return None


def _lines(
    layers: Layers,
    parameters: Parameters,
    every: list[ModuleParameter],
    sizes: list[tuple[int, ...]],
    batch_size: int,
) -> Iterator[str]:
    listed = list(_layer_lines(layers, parameters, batch_size))
    total = sum(p.numel for p in every)
    trainable = sum(p.numel for p in every if p.trainable)
    yield _RULE
    yield _row("Layer (type)", "Output Shape", "Param #")
    yield _DOUBLE_RULE
    yield from map(str, listed)
    yield _DOUBLE_RULE
    yield f"Total params: {total:,}"
    yield f"Trainable params: {trainable:,}"
    yield f"Non-trainable params: {total - trainable:,}"
    yield from _not_in_a_line(layers, listed, every)
    samples = abs(batch_size)
    input_size = sum(map(prod, sizes)) * samples * _FLOAT_BYTES / _MEBIBYTE
    # Twice: the values, and the gradients of a backward pass.
    output_size = 2 * sum(line.elements for line in listed) * samples * _FLOAT_BYTES / _MEBIBYTE
    params_size = total * _FLOAT_BYTES / _MEBIBYTE
    yield _RULE
    yield f"Input size (MB): {input_size:0.2f}"
    yield f"Forward/backward pass size (MB): {output_size:0.2f}"
    yield f"Params size (MB): {params_size:0.2f}"
    yield f"Estimated Total Size (MB): {input_size + output_size + params_size:0.2f}"
    yield _RULE


def _not_in_a_line(layers: Layers, listed: list[_Line], every: list[ModuleParameter]) -> Iterator[str]:
    """The parameters that the total has and no line shows: of layers that were not called, and the model's own."""
    unused = {name for parameter in layers.report.unused for name in parameter.names}
    in_lines = {p.key for line in listed for p in line.new}
    missing = [p for p in every if p.key not in in_lines]
    for title, found in (
        ("Unused params", [p for p in missing if p.name in unused]),
        ("Params of no layer above", [p for p in missing if p.name not in unused]),
    ):
        if found:
            yield f"{title}: {sum(p.numel for p in found):,} ({_holders(found)})"


def _holders(parameters: list[ModuleParameter]) -> str:
    """The modules that hold some parameters, or, of the model's own, the parameters themselves."""
    names = list(dict.fromkeys(p.name.rpartition(".")[0] or p.name for p in parameters))
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
