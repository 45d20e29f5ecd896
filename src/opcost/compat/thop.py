"""thop: `profile`, multiply-accumulates by thop's convention, and parameters; `clever_format` for both; its rules as hooks.

Its number of "MACs" is multiply-accumulates without bias additions, and beside them the operations that it states for norms,
softmax, average pooling, upsampling, PReLU and the gates of recurrent layers. The convention is kept for the layers that thop
knows; every other operator, functional calls included, counts its true multiply-accumulates.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from math import prod
from typing import Any, TypeAlias

import torch
from torch import nn

from opcost.compat import add_submodules
from opcost.compat._layers import LayerCall, Layers, Parameters, count_layers, gates, steps
from opcost.compat._modules import joined, lineage, with_below
from opcost.compat._recording import real_run
from opcost.core.escaping import printable
from opcost.core.graph import TensorSpec
from opcost.frontends.torch.tree import map_tensors

__all__ = ["clever_format", "profile", "profile_origin"]
add_submodules(__name__, "profile", "utils", "vision", "vision.basic_hooks")

LayerInfo: TypeAlias = "dict[str, tuple[float, float, LayerInfo]]"
Rule: TypeAlias = Callable[[LayerCall], int]
Hook: TypeAlias = Callable[[nn.Module, tuple[torch.Tensor], torch.Tensor], None]
CustomOps: TypeAlias = Mapping[type[nn.Module], Callable[..., None]]


def profile(
    model: nn.Module, inputs: Sequence[Any], custom_ops: CustomOps | None = None, verbose: bool = True,
    ret_layer_info: bool = False, report_missing: bool = False,
) -> Any:  # fmt: skip
    """(MACs, params), or (MACs, params, what each child contributes) with `ret_layer_info`."""
    layers = count_layers(model, tuple(inputs), mode="eval")
    own_rules = custom_ops or {}
    if verbose or report_missing:  # which rule each kind of layer got
        for kind in dict.fromkeys(map(type, _children_first(layers.model))):
            if kind in own_rules:
                print(printable(f"[INFO] Customize rule {own_rules[kind].__qualname__}() {kind}."))
            elif kind in RULES:
                print(f"[INFO] Register {RULES[kind][0]}() for {kind}.")
    for missing in layers.report.coverage.uncounted if report_missing else ():
        print("\033[91m", end="")
        print(printable(f"[WARN] Cannot find rule for {missing.raw}: {missing.reason}. It counts as zero MACs."))
        print("\033[00m", end="")
    operations = _operations(layers, tuple(inputs), own_rules)
    total = float(sum(operations.values()))
    params = float(sum(p.numel for p in layers.parameters.of(layers.model)))
    if not ret_layer_info:
        return total, params
    return total, params, _tree(layers.model, "", with_below(operations), layers.parameters)


def profile_origin(
    model: nn.Module, inputs: Sequence[Any], custom_ops: CustomOps | None = None, verbose: bool = True,
    report_missing: bool = False,
) -> tuple[float, float]:  # fmt: skip
    """(MACs, params), as `profile`."""
    total, params = profile(model, inputs, custom_ops, verbose, report_missing=report_missing)
    return total, params


def _operations(layers: Layers, inputs: tuple[Any, ...], custom_ops: CustomOps) -> dict[str, float]:
    """The operations of each path's own forward; a layer with a rule of the caller's counts the rule's number."""
    found: dict[str, float] = {}
    for call in layers.calls:
        rule = RULES.get(type(call.module))
        extra = rule[1](call) if rule is not None and rule[1] is not None else 0
        found[call.path] = found.get(call.path, 0) + call.macs + extra
    ruled = {path: module for path, module in layers.model.named_modules() if type(module) in custom_ops}
    if not ruled:
        return found
    # Run the model with the caller's rules as forward hooks; they add to `total_ops` of the layer they are given.
    with real_run(layers.model) as run, ExitStack() as undo:
        for module in ruled.values():
            for name in ("total_ops", "total_params"):
                module.register_buffer(name, torch.zeros(1, dtype=torch.float64), persistent=False)
                undo.callback(delattr, module, name)
            undo.callback(module.register_forward_hook(custom_ops[type(module)]).remove)
        run(*map_tensors(inputs, lambda tensor: tensor.detach().clone()))
        for path, module in ruled.items():
            if path and not any(above in ruled for above in lineage(path) if above != path):  # thop skips the model
                found = {name: own for name, own in found.items() if name != path and not name.startswith(f"{path}.")}
                found[path] = float(module.total_ops)
    return found


def _tree(module: nn.Module, path: str, operations: Mapping[str, float], parameters: Parameters) -> LayerInfo:
    found: LayerInfo = {}
    for name, child in module.named_children():
        below = joined(path, name)
        params = float(sum(p.numel for p in parameters.of(child)))
        found[name] = (float(operations.get(below, 0)), params, _tree(child, below, operations, parameters))
    return found


def clever_format(nums: float | Iterable[float], format: str = "%.2f") -> str | tuple[str, ...]:
    """Numbers with T, G, M, K or B behind them: a string for one number, a tuple for several."""
    texts = []
    for num in nums if isinstance(nums, Iterable) else [nums]:
        sizes = {1e12: "T", 1e9: "G", 1e6: "M", 1e3: "K"}
        size = next((size for size in sizes if num > size), None)
        texts.append(format % num + "B" if size is None else format % (num / size) + sizes[size])
    return texts[0] if len(texts) == 1 else tuple(texts)


def _children_first(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        yield from _children_first(child)
    yield module


# -- the rules: what the convention adds to the multiply-accumulates of a layer ---------------------------------------------
# They are also forward hooks that add to `total_ops`; `custom_ops` may name them, and rules of one's own may call them.


def _norm(call: LayerCall) -> int:
    affine = getattr(call.module, "affine", False) or getattr(call.module, "elementwise_affine", False)
    return call.inputs[0].numel * (4 if affine else 2)


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


def _upsample(call: LayerCall) -> int:
    per_element = {"nearest": 1, "linear": 5, "bilinear": 11, "bicubic": 259, "trilinear": 31}
    return per_element.get(call.module.mode, 0) * call.outputs[0].numel


def _gates(elementwise: int) -> Rule:
    """What a recurrent cell does beside its matrices: per gate and unit an addition, with bias two more."""

    def count(call: LayerCall) -> int:
        module = call.module
        per_unit = gates(module) * (3 if module.bias else 1) + elementwise
        layers = getattr(module, "num_layers", 1) * (2 if getattr(module, "bidirectional", False) else 1)
        return steps(call) * layers * int(module.hidden_size) * per_unit

    return count


_FREE = (
    "ReLU ReLU6 Dropout Sequential PixelShuffle ZeroPad2d MaxPool1d MaxPool2d MaxPool3d AdaptiveMaxPool1d "
    "AdaptiveMaxPool2d AdaptiveMaxPool3d"
)
_RULES: dict[str, tuple[Rule | None, str]] = {
    "zero_ops": (None, _FREE),
    "count_convNd": (None, "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d"),
    "count_normalization": (
        _norm, "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm LayerNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d",
    ),
    "count_prelu": (lambda call: call.inputs[0].numel, "PReLU"),
    "count_softmax": (_softmax, "Softmax"),
    "count_relu": (None, "LeakyReLU"),
    "count_avgpool": (lambda call: call.outputs[0].numel, "AvgPool1d AvgPool2d AvgPool3d"),
    "count_adap_avgpool": (_adaptive_average, "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d"),
    "count_linear": (None, "Linear"),
    "count_upsample": (_upsample, "Upsample UpsamplingBilinear2d UpsamplingNearest2d"),
    "count_rnn_cell": (_gates(0), "RNNCell"), "count_rnn": (_gates(0), "RNN"),
    "count_gru_cell": (_gates(4), "GRUCell"), "count_gru": (_gates(4), "GRU"),
    "count_lstm_cell": (_gates(4), "LSTMCell"), "count_lstm": (_gates(4), "LSTM"),
}  # fmt: skip
"""thop's name of a rule, which it prints; what it adds to the multiply-accumulates; the classes of `torch.nn`."""
RULES = {getattr(nn, kind): (name, rule) for name, (rule, kinds) in _RULES.items() for kind in kinds.split()}


def count_parameters(m: nn.Module, x: tuple[torch.Tensor], y: torch.Tensor) -> None:
    m.total_params[0] = sum(p.numel() for p in m.parameters())


def zero_ops(m: nn.Module, x: tuple[torch.Tensor], y: torch.Tensor) -> None:
    _add(m, 0)


def count_convNd(m: nn.Module, x: tuple[torch.Tensor], y: torch.Tensor) -> None:
    """Every weight of its group for each output, or, where it is transposed, for each input."""
    positions = x[0] if getattr(m, "transposed", False) else y
    _add(m, positions.numel() * prod(m.weight.shape[1:]))


count_convNd_ver2 = count_convNd


def count_linear(m: nn.Module, x: tuple[torch.Tensor], y: torch.Tensor) -> None:
    _add(m, m.in_features * y.numel())


def _hook(name: str) -> Hook:
    """A rule of the convention as a hook."""
    rule, _ = _RULES[name]
    assert rule is not None

    def count(m: nn.Module, x: tuple[torch.Tensor], y: torch.Tensor) -> None:
        _add(m, rule(LayerCall("", m, tuple(map(_spec, x)), None, result=_spec(y))))

    return count


count_normalization = _hook("count_normalization")
count_prelu = _hook("count_prelu")
count_relu = zero_ops
count_softmax = _hook("count_softmax")
count_avgpool = _hook("count_avgpool")
count_adap_avgpool = _hook("count_adap_avgpool")
count_upsample = _hook("count_upsample")


def _spec(value: Any) -> TensorSpec | None:
    if not isinstance(value, torch.Tensor):
        return None
    return TensorSpec(tuple(value.shape), str(value.dtype).removeprefix("torch."))


def _add(m: nn.Module, operations: int) -> None:
    m.total_ops += torch.DoubleTensor([operations])
