"""Parameters stored in few bits, with scales beside: as many parameters as the layer has, in the bytes that are stored.

torchao wraps the stored values and their scales in a tensor of the layer's shape; bitsandbytes stores packed values and keeps
the shape and the scales beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import torch

from opcost.core.graph import Role, TensorSpec
from opcost.frontends.torch.ledger.subclass import parts

_WIDTHS = (1, 2, 4, 8)


class Held(NamedTuple):
    """A plain tensor that a parameter consists of."""

    name: str
    tensor: torch.Tensor
    role: Role
    spec: TensorSpec | None = None
    """What it stands for, where that is not what it looks like."""


def held(name: str, parameter: torch.Tensor) -> Iterator[Held]:
    """The plain tensors that a parameter consists of: itself, its parts, or few-bit values and their scales."""
    inside = list(parts(name, parameter))
    if len(inside) == 1:
        yield from _packed(*inside[0])
        return
    values_name, values = max(inside, key=lambda part: part[1].nbytes)
    spec = _few_bits(values, tuple(parameter.shape)) if parameter.dtype.is_floating_point else None
    for part_name, part in inside:
        if spec is None:
            yield Held(part_name, part, "param")
        elif part_name == values_name:
            yield Held(name, part, "param", spec)
        else:
            yield Held(part_name, part, "buffer")


def _packed(name: str, tensor: Any) -> Iterator[Held]:
    """A parameter as it is; one of bitsandbytes' of four bits has its shape, and its scales, in its state."""
    state = getattr(tensor, "quant_state", None)
    shape = getattr(state, "shape", None)
    if shape is None or (spec := _few_bits(tensor, tuple(shape))) is None:
        yield Held(name, tensor, "param")
        return
    yield Held(name, tensor, "param", spec)
    for stem, scales in ((name, state), (f"{name}_nested", getattr(state, "state2", None))):
        for attribute in ("absmax", "code", "offset"):
            if isinstance(part := getattr(scales, attribute, None), torch.Tensor):
                yield Held(f"{stem}_{attribute}", part, "buffer")


def _few_bits(values: torch.Tensor, shape: tuple[int, ...]) -> TensorSpec | None:
    """What stored values are in a shape of their own: each of the bits that they have; None where these do not fit in."""
    numel = prod(shape)
    width, odd = divmod(8 * values.nbytes, numel) if numel else (0, 0)
    whole = values.dtype.itemsize == 1 or not values.dtype.is_floating_point
    if numel % 2 and width == 4 and odd == 4:
        odd = 0  # the last byte holds one value of four bits
    if odd or width not in _WIDTHS or not (whole or width < 8):
        return None
    stored = str(values.dtype).removeprefix("torch.")
    return TensorSpec(
        shape, stored if width == 8 * values.dtype.itemsize else f"{'' if stored.startswith('int') else 'u'}int{width}"
    )
