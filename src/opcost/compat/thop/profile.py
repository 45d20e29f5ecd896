"""`profile`: multiply-accumulates by thop's convention, and parameters.

The convention is kept for the layers that thop knows; every other operator, functional calls included, counts its true
multiply-accumulates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

import torch
from torch import nn

from opcost.compat._layers.calls import Layers, count_layers
from opcost.compat._layers.parameters import Parameters
from opcost.compat._layers.undisturbed import undisturbed
from opcost.compat.thop.rules import RULES
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
