"""How DeepSpeed and calflops price an operator: two flops for a multiply-add, one for each element of what else they know."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from opcost.compat._layers.names import Names
from opcost.compat._operators.node import Node
from opcost.compat._operators.trace import trace
from opcost.errors import InputError, UnknownName

_PER_INPUT = frozenset({
    "relu", "relu_", "prelu", "elu", "elu_", "leaky_relu", "leaky_relu_", "relu6", "hardtanh", "hardtanh_", "silu", "silu_",
    "gelu", "softmax",
    *(f"{adaptive}{kind}_pool{n}d" for adaptive in ("", "adaptive_") for kind in ("avg", "max") for n in (1, 2, 3)),
})  # fmt: skip
_PER_OUTPUT = frozenset({"add", "add_", "mul", "mul_"})
_NORM_WEIGHT = {"instance_norm": 1, "layer_norm": 2, "group_norm": 2}
"""Position of the weight among the arguments: 5 for each element with one, 4 without."""
_BIAS = {"_convolution": 2, "addmm": 0, "addmm_": 0, "baddbmm": 0}
"""Position of what is added to a product, one for each element of the result."""


class Cost(NamedTuple):
    """Multiply-accumulates and flops."""

    macs: int = 0
    flops: int = 0

    def plus(self, other: Cost) -> Cost:
        return Cost(self.macs + other.macs, self.flops + other.flops)


class Costs(NamedTuple):
    """What a model and its modules cost, each with everything below it, by name."""

    names: Names
    by_module: Mapping[str, Cost]

    def of(self, name: str) -> Cost:
        return self.by_module.get(name, Cost())


MODES = ("forward", "generate")
"""What of a model is run."""


def count(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], ignored: Collection[type], mode: str = "forward"
) -> Costs:
    """Count a model in evaluation mode; what runs in modules of ignored classes is left out."""
    stem = "" if mode == "forward" else "self"  # the model, in a count of one of its methods
    found = trace(model if mode == "forward" else model.generate, args, kwargs, mode="eval")
    return costs_of(model, found.nodes, stem, ignored)


def costs_of(model: nn.Module, nodes: Iterable[Node], stem: str, ignored: Collection[type]) -> Costs:
    """Add up operators by the modules of a model; `stem` is how the model itself is named in them."""
    names = Names(model)
    kinds = {name: type(module) for name, module in names.modules.items()}
    by_module: dict[str, Cost] = {}
    for node in nodes:
        path = node.module.removeprefix(stem).removeprefix(".")
        above = list(names.lineage(names.registered(path)))
        cost = cost_of(node)
        if any(cost) and not any(kinds[name] in ignored for name in above):
            for name in above:
                by_module[name] = by_module.get(name, Cost()).plus(cost)
    return Costs(names, by_module)


def cost_of(node: Node) -> Cost:
    """The price of one operator as it was called."""
    name, inputs, outputs = node.name, node.inputs(), node.outputs()
    if node.macs:
        added = name in _BIAS and inputs[_BIAS[name]].isCompleteTensor()
        return Cost(node.macs, 2 * node.macs + (outputs[0].numel if added else 0))
    if name in _PER_INPUT:
        return Cost(0, inputs[0].numel)
    if name in _PER_OUTPUT or name.startswith(("upsample_", "_upsample_")):
        return Cost(0, outputs[0].numel)
    if name == "batch_norm" and not inputs[5].toIValue():
        return Cost(0, inputs[0].numel * (2 if inputs[1].isCompleteTensor() else 1))
    weight = _NORM_WEIGHT.get(name, 1 if name == "batch_norm" else None)
    if weight is not None:
        return Cost(0, inputs[0].numel * (5 if inputs[weight].isCompleteTensor() else 4))
    return Cost()


def arguments(
    model: nn.Module, input_shape: tuple[int, ...] | None, args: Any, kwargs: Mapping[str, Any], mode: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the model is called with: a tensor of one shape, or what was given."""
    assert isinstance(model, nn.Module), "model must be a PyTorch module"
    if mode not in MODES:
        raise UnknownName("mode", mode, MODES)
    if mode == "generate" and not hasattr(model, "generate"):
        raise InputError(f"{type(model).__name__} has no method generate", hint='count its forward: mode="forward"')
    if input_shape is not None:
        if type(input_shape) is not tuple or not input_shape:
            raise AssertionError("input_shape must be a tuple of at least one element")
        dtype = next((p.dtype for p in model.parameters()), torch.get_default_dtype())
        return (torch.empty(input_shape, dtype=dtype, device="meta"),), {}
    if not args and not kwargs:
        raise AssertionError("args and/or kwargs must be specified if input_shape is None")
    return tuple(args), dict(kwargs)
