"""`profile_macs`: multiply-accumulates, and one for each element that is scaled, averaged or multiplied."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from opcost.compat._operators import node as called
from opcost.compat._operators.trace import trace

_PER_OUTPUT = {
    "mul": 1, "mul_": 1, "mean": 1, "leaky_relu": 1, "upsample_bilinear2d": 4,
    **{f"{adaptive}avg_pool{n}d": 1 for adaptive in ("", "adaptive_") for n in (1, 2, 3)},
}  # fmt: skip
_AFFINE_WEIGHT = {"batch_norm": 1, "instance_norm": 1, "layer_norm": 2, "group_norm": 2}
"""Position of the weight among the arguments; a norm costs one for each element where it has one."""
_PER_SAMPLE = {0: 4, 1: 0, 2: 16}
"""Of `grid_sample`, by its mode: bilinear, nearest, bicubic."""


@dataclass(frozen=True, eq=False)
class Node:
    """One operator of the model, where it stands and what it is given and gives: shapes, or None for what is no tensor."""

    operator: str
    scope: str
    inputs: tuple[list[int] | None, ...]
    outputs: tuple[list[int] | None, ...]


def profile_macs(
    model: nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    reduction: Callable[[Any], Any] | None = sum,
) -> Any:
    """The multiply-accumulates of a model; with `reduction=None` those of every operator that has any, by its node."""
    found = trace(model, args if isinstance(args, tuple) else (args,), kwargs, warn=False)
    for missing in found.report.coverage.uncounted:
        warnings.warn(f'No handlers found: "{missing.raw}". Skipped.', stacklevel=2)
    results = {_shown(node): macs for node in found.nodes if (macs := _macs(node))}
    return results if reduction is None else reduction(results.values())


def _macs(node: called.Node) -> int:
    name = node.name
    if name in _PER_OUTPUT:
        return _PER_OUTPUT[name] * node.outputs()[0].numel
    if name in _AFFINE_WEIGHT:
        affine = node.inputs()[_AFFINE_WEIGHT[name]].isCompleteTensor()
        return node.outputs()[0].numel if affine else 0
    if name == "grid_sampler":
        mode = node.inputs()[2].toIValue()
        return _PER_SAMPLE[mode if isinstance(mode, int) else 0] * node.outputs()[0].numel
    return node.macs


def _shown(node: called.Node) -> Node:
    return Node(node.kind(), node.module, _shapes(node.inputs()), _shapes(node.outputs()))


def _shapes(values: list[called.Value]) -> tuple[list[int] | None, ...]:
    return tuple(value.type().sizes() if value.isCompleteTensor() else None for value in values)
