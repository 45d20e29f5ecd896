"""What a prediction knows beyond a measured profile, as views read it."""

from collections.abc import Mapping
from typing import Protocol

from opcost.core.graph import Memory
from opcost.core.sheet import Total


class TextSpeed(Protocol):
    """What a language model takes to read and to generate tokens."""

    @property
    def tokens_per_second(self) -> float: ...
    @property
    def totals(self) -> tuple[Total, ...]: ...


class RankSpeed(Protocol):
    """How fast one rank of many is."""

    @property
    def tokens_per_second(self) -> float | None: ...
    @property
    def totals(self) -> tuple[Total, ...]: ...


class Forecast(Protocol):
    """What a prediction adds to a profile."""

    @property
    def latency_ns(self) -> int: ...
    @property
    def band_ns(self) -> tuple[int, int]:
        """The 80 % interval."""

    @property
    def kernel_ns(self) -> int: ...
    @property
    def ideal_ns(self) -> int: ...
    @property
    def bounds(self) -> Mapping[str, int]:
        """The time of operators by what bounds them."""

    @property
    def likened_ns(self) -> int:
        """The time of operators like which nothing was timed."""

    @property
    def memory(self) -> Memory | None: ...
    @property
    def fits(self) -> bool | None: ...
    @property
    def text(self) -> TextSpeed | None: ...
    @property
    def step(self) -> RankSpeed | None:
        """Of one rank of many."""
