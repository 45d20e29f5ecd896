"""A live PyTorch model as MegEngine's `module_stats` lists one: a line for every call of a layer.

A function that is called outside a layer has a line too where it has multiply-adds; MegEngine does not see functions.
"""

from contextlib import ExitStack
from math import prod
from typing import Any

import torch
from torch import nn

from opcost.compat._layers import LayerCall, Layers, count_layers, meta_tensors
from opcost.compat._recording import real_run
from opcost.compat.megengine import layer_costs
from opcost.compat.megengine.layer_costs import is_registered, registered_flops
from opcost.compat.megengine.tables import Records, name_of
from opcost.core.report import Report
from opcost.frontends.torch.load import device_of
from opcost.frontends.torch.models.inputs import as_dtype
from opcost.frontends.torch.models.unwrap import unwrap

_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_ADAPTIVE = (nn.modules.pooling._AdaptiveAvgPoolNd, nn.modules.pooling._AdaptiveMaxPoolNd)
_POOLS = (
    nn.modules.pooling._MaxPoolNd, nn.modules.pooling._AvgPoolNd, nn.modules.pooling._LPPoolNd, nn.FractionalMaxPool2d,
    nn.FractionalMaxPool3d,
)  # fmt: skip

Values = dict[int, list[tuple[float, float]]]  # Mean and deviation of the first output of every call, by module


def torch_inputs(model: nn.Module, inputs: Any, input_shapes: Any) -> tuple[Any, ...]:
    """Positional arguments: tensors of the data, or zeros of the shapes in the model's own floating type."""
    model = unwrap(model)
    device = device_of(model)
    if inputs is None:
        dtype = next((p.dtype for p in model.parameters() if p.dtype.is_floating_point), torch.float32)
        return tuple(torch.zeros(shape, dtype=dtype, device=device) for shape in input_shapes)

    def tensor(item: Any) -> torch.Tensor:
        if isinstance(item, torch.Tensor):
            return item.to(device)
        if hasattr(item, "__array__"):
            dtype = as_dtype(str(item.dtype)) if hasattr(item, "dtype") else None
            return torch.as_tensor(item, dtype=dtype, device=device)
        return torch.tensor(item, dtype=torch.float32, device=device)

    return layer_costs.as_tensors(inputs, tensor)


def torch_records(model: nn.Module, args: tuple[Any, ...], *, with_values: bool) -> tuple[Records, Report]:
    """The records of a model; `with_values` runs it on its data for the mean and deviation of what its layers give."""
    layers = count_layers(model, args, mode="eval")
    place = {id(row): index for index, row in enumerate(layers.report.rows)}
    values = _run(layers, args) if with_values else {}
    lines: list[tuple[int, tuple[Any, ...]]] = []
    for call in layers.calls:
        if _is_layer(call):
            first = min((place[id(row)] for row in call.rows), default=-1)
            seen = values.get(id(call.module))
            mean_and_std = seen.pop(0) if seen else ()
            name = type(call.module).__name__
            lines.append((first, (call.path, name, call.inputs, call.outputs, _flops(call), *mean_and_std)))
            continue
        lines += [
            (place[id(row)], (name_of(row), row.op.raw, row.ins, row.outs, layer_costs.of_row(row)))
            for row in call.rows
            if row.cost and row.cost.macs
        ]
    records = Records()
    # The parameters that the run read, in that order
    report, read = layers.report, dict[int, int]()
    for row in report.rows:
        for value in row.op.inputs:
            read.setdefault(value, len(read))
    known = parameter_values(layers.model)
    found = []
    for parameter in report.parameters:
        places = [read[value] for value in parameter.values if value in read]
        if places and not parameter.buffer:
            path, _, name = parameter.name.rpartition(".")
            found.append((min(places), f"{path}-{layer_costs.SUFFIXES.get(name, name)}", parameter))
    for _, label, parameter in sorted(found, key=lambda item: item[0]):
        records.add_param(label, parameter.spec, *known.get(parameter.name, ()))
    for _, line in sorted(lines, key=lambda line: line[0]):
        records.add_call(*line)
    return records, report


def parameter_values(model: nn.Module) -> dict[str, tuple[float, float]]:
    """Mean and deviation of the parameters by name, as far as they have content."""
    return {
        name: _mean_and_std(tensor)
        for name, tensor in model.named_parameters(remove_duplicate=False)
        if tensor.device.type != "meta" and not nn.parameter.is_lazy(tensor) and tensor.numel()
    }


def _is_layer(call: LayerCall) -> bool:
    """Whether a call has a line of its own: a norm, a pooling, or one of torch's modules that multiplies and adds."""
    if is_registered(call.module):
        return bool(call.outputs)
    if isinstance(call.module, (*_NORMS, *_POOLS, *_ADAPTIVE)):
        return bool(call.rows) and bool(call.inputs) and bool(call.outputs)
    if isinstance(call.module, nn.Sequential):
        return False
    contracts = any(row.cost is not None and row.cost.macs for row in call.rows)
    known = any(base.__module__.startswith("torch.") for base in type(call.module).__mro__ if base is not nn.Module)
    return contracts and known and bool(call.outputs)


def _flops(call: LayerCall) -> int | None:
    module = call.module
    y = call.outputs[0]
    if not y.known or any(row.cost is None for row in call.rows):
        return None
    if (registered := registered_flops(module)) is not None:
        return int(registered(module, meta_tensors(call.inputs), meta_tensors(call.outputs)))
    if isinstance(module, _NORMS):
        return layer_costs.NORM * call.inputs[0].numel
    if isinstance(module, _ADAPTIVE):
        return layer_costs.adaptive_pool(call.inputs[0].dims, y.dims, _axes(module))
    if isinstance(module, _POOLS):
        size = module.kernel_size
        return y.numel * (int(prod(size)) if isinstance(size, (tuple, list)) else int(size) ** _axes(module))
    if isinstance(module, nn.Linear):
        return layer_costs.linear(y.dims, module.in_features, module.out_features, bias=module.bias is not None)
    if isinstance(module, nn.RNNCellBase):
        size, hidden = module.input_size, module.hidden_size
        steps = call.inputs[0].numel // size
        cell = "lstm" if isinstance(module, nn.LSTMCell) else "gru" if isinstance(module, nn.GRUCell) else "rnn_tanh"
        return layer_costs.recurrent(cell, steps, [(size, hidden, hidden)], bias=module.bias)
    return sum(map(layer_costs.of_row, call.rows))


def _axes(module: nn.Module) -> int:
    """The digit in the name of a pool."""
    return int(next(letter for letter in type(module).__name__ if letter.isdigit()))


def _run(layers: Layers, args: tuple[Any, ...]) -> Values:
    """Run the model on its data, and note the first output of every call of a layer."""
    values: Values = {}

    def note(module: nn.Module, _: Any, result: Any) -> None:
        first = result[0] if isinstance(result, (tuple, list)) else result
        seen = _mean_and_std(first) if isinstance(first, torch.Tensor) and first.numel() else (float("nan"),) * 2
        values.setdefault(id(module), []).append(seen)

    modules = {id(call.module): call.module for call in layers.calls if _is_layer(call)}
    if any(tensor.device.type == "meta" for tensor in layers.model.parameters()):
        return values
    with ExitStack() as undo:
        run = undo.enter_context(real_run(layers.model))
        for module in modules.values():
            undo.callback(module.register_forward_hook(note).remove)
        run(*args)
    return values


def _mean_and_std(tensor: torch.Tensor) -> tuple[float, float]:
    real = tensor.detach()
    real = real.dequantize() if real.is_quantized else real
    real = (real.abs() if real.is_complex() else real).float()
    return float(real.mean()), float(real.std(correction=0))
