"""torchprofile: the multiply-accumulates of a model, and one for each element that is scaled, averaged or multiplied."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from opcost.compat import add_submodules
from opcost.compat._operators import ElementCosts, OperatorCall, OperatorValue, trace

__all__ = ["Node", "profile_macs"]
add_submodules(__name__, "profile")

_POOLINGS = "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"
_ELEMENT_COSTS = ElementCosts(
    read={}, made={1: f"mul mul_ mean leaky_relu {_POOLINGS}", 4: "upsample_bilinear2d"}, norm=(1, 0)
)
_PER_SAMPLE = {0: 4, 1: 0, 2: 16}  # Of `grid_sample`, by its mode: bilinear, nearest, bicubic


@dataclass(frozen=True, eq=False)
class Node:
    """One operator of the model, its module, and the shapes of its arguments and results; None for what is no tensor."""

    operator: str
    scope: str
    inputs: tuple[list[int] | None, ...]
    outputs: tuple[list[int] | None, ...]


def profile_macs(
    model: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None,
    reduction: Callable[[Any], Any] | None = sum,
) -> Any:  # fmt: skip
    """The multiply-accumulates of a model; with `reduction=None` those of every operator that has any, by its node."""
    found = trace(model, args if isinstance(args, tuple) else (args,), kwargs, warn=False)
    for missing in found.report.coverage.uncounted:
        warnings.warn(f'No handlers found: "{missing.raw}". Skipped.', stacklevel=2)
    results = {
        Node(call.kind(), call.module, _shapes(call.inputs()), _shapes(call.outputs())): macs
        for call in found.calls
        if (macs := _macs(call))
    }
    return results if reduction is None else reduction(results.values())


def _macs(call: OperatorCall) -> int:
    if call.name == "grid_sampler":
        mode = call.inputs()[2].toIValue()
        return _PER_SAMPLE[mode if isinstance(mode, int) else 0] * call.outputs()[0].numel
    cost = _ELEMENT_COSTS.of(call)
    return call.macs if cost is None else cost


def _shapes(values: list[OperatorValue]) -> tuple[list[int] | None, ...]:
    return tuple(value.type().sizes() if value.isCompleteTensor() else None for value in values)
