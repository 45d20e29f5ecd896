"""What an operator costs: a value with addition and repetition."""

from __future__ import annotations

from dataclasses import dataclass

FLOPS_PER_MAC = 2
"""One multiply-accumulate is two FLOPs everywhere; reports carry `macs` beside `flops`."""

FLOPS_PER_COMPLEX_MAC = 8
"""Four real multiplications and four real additions; it is still one MAC."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Multiply-accumulates, floating-point operations, and the bytes that must move without fusion."""

    macs: int = 0
    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.macs + other.macs,
            self.flops + other.flops,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
        )

    def __mul__(self, times: int) -> Cost:
        return Cost(self.macs * times, self.flops * times, self.bytes_read * times, self.bytes_written * times)


ZERO = Cost()
