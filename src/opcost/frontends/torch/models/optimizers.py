"""Optimizers by name: those of `torch.optim`, and those that keep their state in eight bits as bitsandbytes does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from inspect import signature
from typing import Any

import torch

from opcost.errors import InputError, UnknownName
from opcost.frontends.torch import private

Make = Callable[[list[torch.Tensor]], Any]  # Makes an optimizer of some parameters


EIGHT_BIT = {
    "Adam8bit": ("adam", 2, 0.0), "AdamW8bit": ("adam", 2, 0.01), "Lion8bit": ("lion", 1, 0.0),
    "SGD8bit": ("momentum", 1, 0.0), "RMSprop8bit": ("rmsprop", 1, 0.0), "Adagrad8bit": ("adagrad", 1, 0.0),
}  # fmt: skip
"""The rule as bitsandbytes calls it, the numbers that are remembered for each parameter, and the weight decay."""
BLOCK = 256  # Elements that share a scale
FEWEST = 4096  # Parameters of fewer elements are remembered in float32
LEVELS = 256  # The values of eight bits, in float32: one table for the first number and one for the second


@cache
def _kernels() -> tuple[Any, ...]:
    """The two operators of an update, and their library."""
    both = "str optimizer_name, Tensor g, Tensor(a!) p, Tensor(b!) state1, Tensor(c!)? state2"
    scales = "Tensor qmap1, Tensor? qmap2, Tensor(d!) absmax1, Tensor(e!)? absmax2"
    return private.own_operators(
        optimizer_update_32bit=f"{both}, float weight_decay",
        optimizer_update_8bit_blockwise=f"{both}, {scales}, float weight_decay",
    )


class EightBit(torch.optim.Optimizer):
    """The state and the operators of bitsandbytes, without it: one operator for each parameter, and no temporary memory."""

    def __init__(self, params: list[torch.Tensor], kept: tuple[str, int, float]) -> None:
        super().__init__(params, {})
        self._kept = kept

    def step(self) -> None:  # type: ignore[override]
        """Update every parameter once; what is remembered is made in this first step."""
        in_float32, in_eight_bits, _ = _kernels()
        rule, states, decay = self._kept
        levels: list[torch.Tensor] = []
        for parameter in self.param_groups[0]["params"]:
            small = parameter.numel() < FEWEST
            dtype = torch.float32 if small else torch.uint8
            numbers = [torch.zeros_like(parameter, dtype=dtype) for _ in range(states)]
            both = (rule, parameter.grad, parameter, *_pair(numbers))
            if small:
                in_float32(*both, decay)
                self.state[parameter] = {"states": numbers}
                continue
            blocks = -(-parameter.numel() // BLOCK)
            scales = [torch.zeros(blocks, device=parameter.device) for _ in range(states)]
            levels = levels or [torch.zeros(LEVELS, device=parameter.device) for _ in range(states)]
            in_eight_bits(*both, *_pair(levels), *_pair(scales), decay)
            self.state[parameter] = {"states": numbers, "levels": levels, "scales": scales}


def _pair(tensors: list[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
    return (tensors[0], tensors[1] if len(tensors) > 1 else None)


def optimizer_of(wanted: Any, *, together: bool) -> Make | None:
    """What makes the requested optimizer; `together` all its parameters are updated at once, where it can do that."""
    if wanted is None or wanted is False:
        return None
    if callable(wanted):
        return wanted  # type: ignore[no-any-return]
    name = "SGD" if wanted is True else str(wanted)
    known = {cls.lower(): cls for cls in torch.optim.__dict__ if isinstance(torch.optim.__dict__[cls], type)}
    known.pop("optimizer", None)
    known |= {cls.lower(): cls for cls in EIGHT_BIT}
    if (found := known.get(name.lower())) is None:
        raise UnknownName("optimizer", name, known.values())
    if found == "LBFGS":
        fault = "LBFGS runs the model again and again in one step, as often as the loss demands"
        raise InputError(fault, hint="record a step of your own: with opcost.recording() as r: optimizer.step(closure)")
    if found in EIGHT_BIT:
        return partial(EightBit, kept=EIGHT_BIT[found])
    made: Callable[..., Any] = getattr(torch.optim, found)
    if together and "foreach" in signature(made).parameters:
        return partial(made, foreach=True)
    return made
