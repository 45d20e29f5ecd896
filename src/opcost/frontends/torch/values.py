"""Small tensors whose content is known: indices, masks, lengths, constants. Their operators are computed for real.

Decoders ask their masks `bool(mask.all())`, detectors loop over level sizes, packed sequences carry lengths. Such tensors are
small integers and booleans (and constants made from them), so they keep their content beside the tensor without data.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch

from opcost.frontends.torch.entry import SMALL, State
from opcost.frontends.torch.without_data import describe, device_of, substitute

if TYPE_CHECKING:
    from opcost.frontends.torch.recorder import Recorder

CPU = torch.device("cpu")
_aten = torch.ops.aten
_SIZED = frozenset({_aten.zeros.default, _aten.ones.default, _aten.full.default, _aten.empty.memory_format})
"""Factories whose first list argument is the size."""
_RANGES = frozenset(
    {
        _aten.arange.default, _aten.arange.start, _aten.arange.start_step, _aten.linspace.default, _aten.eye.default,
        _aten.eye.m, _aten.scalar_tensor.default, _aten.logspace.default, _aten.tril_indices.default, _aten.triu_indices.default,
        _aten.hann_window.default, _aten.range.step,
    }
)  # fmt: skip


def is_known_factory(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether an operator without tensor arguments makes a small tensor of known content."""
    if func in _RANGES:
        return True
    return func in _SIZED and prod(args[0]) <= SMALL


def run(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], states: list[State]) -> Any:
    """Compute the operator on known contents, and record it; NotImplemented where its result cannot be known."""
    if torch.Tag.nondeterministic_seeded in func.tags:
        return NotImplemented
    contents = [state.real for state in states]
    feed = iter(contents)
    real_args = substitute(args, feed, CPU)
    real_kwargs = substitute(kwargs, feed, CPU)
    result = func(*real_args, **real_kwargs)
    flat = [result] if isinstance(result, torch.Tensor) else list(result) if isinstance(result, (list, tuple)) else None
    if flat is None or not all(isinstance(item, torch.Tensor) for item in flat):
        return result
    entry = describe(
        recorder, func, real_args, real_kwargs, contents, states, result, device_of(recorder, kwargs, states)  # type: ignore[arg-type]
    )
    emitted = recorder.emit(entry, states, [item if item.numel() <= SMALL else None for item in flat])
    if (how := recorder.assumed(states)) is not None:
        for item in [emitted] if isinstance(emitted, torch.Tensor) else emitted:
            recorder.assume(item, how)
        if torch.Tag.dynamic_output_shape in func.tags:
            for state in states:
                recorder.decides(state)
    return emitted
