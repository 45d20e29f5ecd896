"""Events out of text, by msgspec: quickly where all categories are known, exactly where a float would lose nanoseconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from opcost.errors import MissingFramework
from opcost.traces.kineto.categories import IGNORED

if TYPE_CHECKING:
    from opcost.traces.kineto.event import Event

EXACT_BELOW = 2.0**43
UNSURE = (2.0**42 - 1e11, 2.0**52 / 1000 + 1e11)
"""Microseconds as a float, times 1000 and rounded, are the right nanoseconds below 2**43: what the float is off is less than
half a nanosecond. Only from 2**42 to 2**52 nanoseconds does the product add half a step of its own. A day more on either
side, because only some events are looked at."""

SAMPLES = 8
STRANGE = 4
"""The quick decoder is no longer tried if it failed in more than one of so many blocks, and more often than this."""

_NOT_FINITE = re.compile(rb"([:\[,]\s*)(-?(?:nan|inf|infinity))(?=\s*[,}\]])", re.IGNORECASE)


_QUOTED_TIME = re.compile(r"got `str` - at `\$\[\d+\]\.(?:ts|dur)`")
"""What msgspec says of a time between quotes, as torch_npu writes them; decimals are read out of texts too."""


class Decoders(NamedTuple):
    """msgspec's decoders of a list of events: the quick ones know all categories, the exact ones keep decimals."""

    quick: Any
    quick_exact: Any
    plain: Any
    plain_exact: Any
    faults: tuple[type[Exception], ...]
    """All that decoding may raise; of these, a text that is no JSON, and JSON that is no event."""
    malformed: type[Exception]
    invalid: type[Exception]


def decoders(*, memory: bool) -> Decoders:
    """The decoders, if msgspec is there; with changes of memory, or without."""
    try:
        import msgspec  # noqa: F401
    except ModuleNotFoundError as exc:
        raise MissingFramework("reading a Kineto trace needs msgspec", hint="pip install msgspec") from exc
    return _made(memory)


@cache
def _made(memory: bool) -> Decoders:  # noqa: FBT001 - of the line above
    """Their types are put together once: that takes as long as a small trace."""
    import msgspec

    from opcost.traces.kineto import event

    def decoder(of: Any) -> Any:
        return msgspec.json.Decoder(list[of])

    return Decoders(
        quick=decoder(event.quick(int | float, memory=memory)),
        quick_exact=decoder(event.quick(Decimal, memory=memory)),
        plain=decoder(event.Event),
        plain_exact=decoder(event.DecimalEvent),
        faults=(msgspec.DecodeError, UnicodeDecodeError, RecursionError),
        malformed=msgspec.DecodeError,
        invalid=msgspec.ValidationError,
    )


@dataclass(slots=True)
class EventDecoder:
    """Decodes the blocks of one file, and remembers which way its events need."""

    by: Decoders
    exact: bool = False
    blocks: int = 0
    strange: int = 0

    def decode(self, text: bytes | memoryview) -> list[Event]:
        """The events of a list; a number that is none, which some writers put into arguments, counts as missing."""
        return self._finite(text, self._typed)

    def decode_any(self, text: bytes) -> list[Event]:
        """The same without the quick decoders: bad events say nothing about the categories of a file."""
        return self._finite(text, self._plain)

    def _finite(self, text: bytes | memoryview, decode: Callable[[bytes | memoryview], list[Event]]) -> list[Event]:
        try:
            return decode(text)
        except self.by.malformed as exc:
            finite = _NOT_FINITE.sub(_blank, bytes(text))
            if isinstance(exc, self.by.invalid) or finite == text:
                raise
        return decode(finite)

    def _typed(self, text: bytes | memoryview) -> list[Event]:
        if self.strange <= STRANGE or self.strange * STRANGE < self.blocks:
            self.blocks += 1
            try:
                return self._timed(text, self.by.quick, self.by.quick_exact)
            except self.by.invalid:
                self.strange += 1  # an event of a phase or a category that nobody knows
        return self._plain(text)

    def _plain(self, text: bytes | memoryview) -> list[Event]:
        return self._timed(text, self.by.plain, self.by.plain_exact)

    def _timed(self, text: bytes | memoryview, decoder: Any, exact: Any) -> list[Event]:
        if self.exact:
            found: list[Event] = exact.decode(text)
            return found
        try:
            events: list[Event] = decoder.decode(text)
        except self.by.invalid as exc:
            if _QUOTED_TIME.search(str(exc)) is None:
                raise
            found = exact.decode(text)
            self.exact = True
            return found
        sample = events[:: len(events) // SAMPLES + 1]  # one clock times all events of a file
        if not any(event.sort != IGNORED and _needs_decimals(event.ts) for event in sample):
            return events
        self.exact = True
        return self._timed(text, decoder, exact)


def _blank(found: re.Match[bytes]) -> bytes:
    """An empty text as long as what it stands for, so that everything behind stays where it is."""
    return found[1] + b'""'.ljust(len(found[2]))


def _needs_decimals(time: float | None) -> bool:
    """Whether a float may be the wrong nanosecond, as on a clock that counts from 1970."""
    return type(time) is float and (time >= EXACT_BELOW or UNSURE[0] <= time < UNSURE[1])
