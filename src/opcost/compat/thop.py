"""thop's calls: `profile`, `profile_origin`, `clever_format`.

Its number of "MACs" is a convention: multiply-accumulates without bias additions, and beside them the operations that it
states for norms, softmax, average pooling, upsampling, PReLU and the gates of recurrent layers. The convention is kept for
these layers; every other operator, functional calls included, counts its true multiply-accumulates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from math import prod
from typing import Any, TypeAlias

import torch
from torch import nn

from opcost.compat._layers import LayerCall, Layers, count_layers
from opcost.compat._parameters import Parameters
from opcost.compat._recurrent import cells, gates, steps
from opcost.compat._undisturbed import undisturbed
from opcost.core.harmless import printable
from opcost.frontends.torch.tree import map_tensors

LayerInfo: TypeAlias = "dict[str, tuple[float, float, LayerInfo]]"
CustomOps: TypeAlias = Mapping[type[nn.Module], Callable[..., None]]


def profile(
    model: nn.Module,
    inputs: Sequence[Any],
    custom_ops: CustomOps | None = None,
    verbose: bool = True,
    ret_layer_info: bool = False,
    report_missing: bool = False,
) -> Any:
    """(MACs, params), or (MACs, params, what each child contributes) with `ret_layer_info`."""
    layers = count_layers(model, tuple(inputs), mode="eval")
    if verbose or report_missing:
        _announce(layers, custom_ops or {}, report_missing=report_missing)
    operations = _operations(layers, tuple(inputs), custom_ops or {})
    parameters = Parameters(layers.model, layers.report)
    total = float(sum(operations.values()))
    params = float(sum(p.numel for p in parameters.of(layers.model)))
    if not ret_layer_info:
        return total, params
    return total, params, _tree(layers.model, "", _below(operations), parameters)


def profile_origin(
    model: nn.Module,
    inputs: Sequence[Any],
    custom_ops: CustomOps | None = None,
    verbose: bool = True,
    report_missing: bool = False,
) -> tuple[float, float]:
    """(MACs, params), as `profile`."""
    total, params = profile(model, inputs, custom_ops, verbose, report_missing=report_missing)
    return total, params


def clever_format(nums: float | Iterable[float], format: str = "%.2f") -> str | tuple[str, ...]:
    """Numbers with T, G, M, K or B behind them: a string for one number, a tuple for several."""
    texts = [_with_unit(num, format) for num in (nums if isinstance(nums, Iterable) else [nums])]
    return texts[0] if len(texts) == 1 else tuple(texts)


def _with_unit(num: float, template: str) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if num > size:
            return template % (num / size) + unit
    return template % num + "B"


# -- what each layer contributes --------------------------------------------------------------------------------------


def _operations(layers: Layers, inputs: tuple[Any, ...], custom_ops: CustomOps) -> dict[str, float]:
    """The operations of each path's own forward; a layer with a rule of the caller's counts what the rule says."""
    found: dict[str, float] = {}
    for call in layers.calls:
        rule = RULES.get(type(call.module))
        extra = rule[1](call) if rule is not None and rule[1] is not None else 0
        found[call.path] = found.get(call.path, 0) + call.macs + extra
    if not any(type(module) in custom_ops for module in layers.model.modules()):
        return found
    for path, operations in _ask_custom_rules(layers.model, inputs, custom_ops).items():
        below = f"{path}." if path else ""
        found = {other: own for other, own in found.items() if other != path and not other.startswith(below)}
        found[path] = operations
    return found


def _ask_custom_rules(model: nn.Module, inputs: tuple[Any, ...], custom_ops: CustomOps) -> dict[str, float]:
    """Run the model with the caller's rules as forward hooks; they add to `total_ops` of the layer they are given."""
    ruled = {path: module for path, module in model.named_modules() if type(module) in custom_ops}
    with undisturbed(model) as run, ExitStack() as undo:
        for module in ruled.values():
            for name in ("total_ops", "total_params"):
                module.register_buffer(name, torch.zeros(1, dtype=torch.float64), persistent=False)
                undo.callback(delattr, module, name)
            undo.callback(module.register_forward_hook(custom_ops[type(module)]).remove)
        run(*map_tensors(inputs, lambda tensor: tensor.detach().clone()))
        return {path: float(module.total_ops) for path, module in _outermost(ruled)}


def _outermost(modules: Mapping[str, nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    for path, module in modules.items():
        names = path.split(".")
        if not any(".".join(names[:i]) in modules for i in range(len(names))):
            yield path, module


def _below(operations: Mapping[str, float]) -> dict[str, float]:
    """Each path's operations with those of all paths below it."""
    total: dict[str, float] = {}
    for path, own in operations.items():
        names = path.split(".") if path else []
        for i in range(len(names) + 1):
            key = ".".join(names[:i])
            total[key] = total.get(key, 0.0) + own
    return total


def _tree(module: nn.Module, path: str, operations: Mapping[str, float], parameters: Parameters) -> LayerInfo:
    found: LayerInfo = {}
    for name, child in module.named_children():
        below = f"{path}.{name}" if path else name
        params = float(sum(p.numel for p in parameters.of(child)))
        found[name] = (operations.get(below, 0.0), params, _tree(child, below, operations, parameters))
    return found


# -- the convention ---------------------------------------------------------------------------------------------------


def _norm(call: LayerCall) -> int:
    affine = getattr(call.module, "affine", False) or getattr(call.module, "elementwise_affine", False)
    return call.inputs[0].numel * (4 if affine else 2)


def _input_elements(call: LayerCall) -> int:
    return call.inputs[0].numel


def _output_elements(call: LayerCall) -> int:
    return call.outputs[0].numel


def _softmax(call: LayerCall) -> int:
    """An exponential and a division per element, and the additions of each sum."""
    elements = call.inputs[0].numel
    dims = call.inputs[0].dims
    dim: int | None = call.module.dim
    if dim is None:  # torch's own choice where no dimension is named
        dim = 0 if len(dims) in (0, 1, 3) else 1
    return 3 * elements - elements // dims[dim]


def _adaptive_average(call: LayerCall) -> int:
    window = prod(call.inputs[0].dims[2:]) / prod(call.outputs[0].dims[2:])
    return int((window + 1) * call.outputs[0].numel)


_PER_UPSAMPLED_ELEMENT = {"nearest": 1, "linear": 5, "bilinear": 11, "bicubic": 259, "trilinear": 31}


def _upsample(call: LayerCall) -> int:
    return _PER_UPSAMPLED_ELEMENT.get(call.module.mode, 0) * call.outputs[0].numel


def _gates(elementwise: int) -> Callable[[LayerCall], int]:
    """What a recurrent cell does beside its matrices: per gate and unit an addition, with bias two more."""

    def count(call: LayerCall) -> int:
        module = call.module
        per_unit = gates(module) * (3 if module.bias else 1) + elementwise
        return steps(call) * cells(module) * int(module.hidden_size) * per_unit

    return count


_Rule: TypeAlias = tuple[str, "Callable[[LayerCall], int] | None"]
_MACS_ONLY = None

RULES: dict[type[nn.Module], _Rule] = {
    nn.ZeroPad2d: ("zero_ops", _MACS_ONLY),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), ("count_convNd", _MACS_ONLY)),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), ("count_convNd", _MACS_ONLY)),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), ("count_normalization", _norm)),
    **dict.fromkeys((nn.SyncBatchNorm, nn.LayerNorm), ("count_normalization", _norm)),
    **dict.fromkeys((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), ("count_normalization", _norm)),
    nn.PReLU: ("count_prelu", _input_elements),
    nn.Softmax: ("count_softmax", _softmax),
    **dict.fromkeys((nn.ReLU, nn.ReLU6, nn.Dropout, nn.Sequential, nn.PixelShuffle), ("zero_ops", _MACS_ONLY)),
    nn.LeakyReLU: ("count_relu", _MACS_ONLY),
    **dict.fromkeys((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), ("zero_ops", _MACS_ONLY)),
    **dict.fromkeys((nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d), ("zero_ops", _MACS_ONLY)),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d), ("count_avgpool", _output_elements)),
    **dict.fromkeys(
        (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d), ("count_adap_avgpool", _adaptive_average)
    ),
    nn.Linear: ("count_linear", _MACS_ONLY),
    **dict.fromkeys((nn.Upsample, nn.UpsamplingBilinear2d, nn.UpsamplingNearest2d), ("count_upsample", _upsample)),
    nn.RNNCell: ("count_rnn_cell", _gates(0)),
    nn.GRUCell: ("count_gru_cell", _gates(4)),
    nn.LSTMCell: ("count_lstm_cell", _gates(4)),
    nn.RNN: ("count_rnn", _gates(0)),
    nn.GRU: ("count_gru", _gates(4)),
    nn.LSTM: ("count_lstm", _gates(4)),
}
"""Per type, thop's name for its rule, which it announces, and what the convention adds to the multiply-accumulates."""


# -- what is announced ------------------------------------------------------------------------------------------------


def _announce(layers: Layers, custom_ops: CustomOps, *, report_missing: bool) -> None:
    """Which rule each kind of layer got, and, where asked, which operators have none."""
    for kind in dict.fromkeys(map(type, _children_first(layers.model))):
        if kind in custom_ops:
            print(printable(f"[INFO] Customize rule {custom_ops[kind].__qualname__}() {kind}."))
        elif kind in RULES:
            print(f"[INFO] Register {RULES[kind][0]}() for {kind}.")
    if report_missing:
        for missing in layers.report.coverage.uncounted:
            print("\033[91m", end="")
            print(printable(f"[WARN] Cannot find rule for {missing.raw}: {missing.reason}. It counts as zero MACs."))
            print("\033[00m", end="")


def _children_first(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        yield from _children_first(child)
    yield module
