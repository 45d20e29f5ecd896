"""thop: `profile`, multiply-accumulates by thop's convention, and parameters; `clever_format` for both.

The convention is kept for the layers that thop knows; every other operator, functional calls included, counts its true
multiply-accumulates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

import torch
from torch import nn

from opcost.compat import add_submodules
from opcost.compat._layers import Layers, Parameters, count_layers
from opcost.compat._modules import joined, lineage, with_below
from opcost.compat._recording import real_run
from opcost.compat.thop.vision.basic_hooks import RULES
from opcost.core.escaping import printable
from opcost.frontends.torch.tree import map_tensors

__all__ = ["clever_format", "profile", "profile_origin"]
add_submodules(__name__, "profile", "utils")

LayerInfo: TypeAlias = "dict[str, tuple[float, float, LayerInfo]]"
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
