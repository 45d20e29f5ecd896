"""The order in which cases are timed: an endless plan, the same on every machine.

Each family hands out its next cases in turn, so that a plan cut short is still a whole one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch

from opcost.recorders.calibration import convolutions, language, norms, products, simple
from opcost.recorders.calibration.cases import Case, Family

SHARES: dict[Family, int] = {
    **products.SHARES, **convolutions.SHARES, **norms.SHARES, **simple.SHARES, **language.SHARES,
}  # fmt: skip


class Largest(NamedTuple):
    """Larger cases take long and are at the peak of the device anyhow."""

    nbytes: int
    flops: int
    flops32: int
    """Of products in float32, which are slower."""


GPU = Largest(2**31, 10**12, 2 * 10**11)
PROCESSOR = Largest(2**24, 4 * 10**8, 4 * 10**8)


def plan(
    dtypes: tuple[torch.dtype, ...], largest: Largest, shares: Mapping[Family, int] = MappingProxyType(SHARES)
) -> Iterator[Case]:
    """All cases in the order in which they are timed, without an end."""
    rng = random.Random(0)  # noqa: S311 - the plan must be the same everywhere
    seen: set[str] = set()
    while True:
        for family, share in shares.items():
            for dtype in dtypes:
                most = largest.flops32 if dtype is torch.float32 else largest.flops
                for _ in range(share):
                    case = family(rng, dtype)
                    size = sum(tensor.nbytes for tensor in case.tensors)
                    if size <= largest.nbytes and case.flops <= most and case.name not in seen:
                        seen.add(case.name)
                        yield case
