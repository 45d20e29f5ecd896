"""Numbers for people, and back: counts (K, M, G, ...), bytes (KiB or kB), and time (ns to h)."""

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from math import floor

from opcost.errors import OpcostError, UnknownName

COUNT: dict[str, int] = {"": 1} | {name: 1000**power for power, name in enumerate("KMGTPEZYRQ", 1)}
BINARY: dict[str, int] = {"B": 1} | {f"{name}iB": 1024**power for power, name in enumerate("KMGTPEZY", 1)}
DECIMAL: dict[str, int] = {"B": 1} | {f"{name}B": 1000**power for power, name in enumerate("kMGTPEZY", 1)}
TIME: dict[str, int] = {"ns": 1, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}

_COUNT_WORDS = re.compile(r"(?:MACs?|FLOPs?|params?|ops?)$", re.IGNORECASE)
_NUMBER = re.compile(
    r"\s*([+-]?(?:\d{1,3}(?:[,_]\d{3}){1,30}|\d{1,99})(?:\.\d{0,99})?(?:[eE][+-]?\d{1,3})?)\s*([^\d\s]*)\s*"
)


def format_count(number: float) -> str:
    """`999`, `1.00 K`, `4.09 G`: exact below a thousand, then two decimals of a thousandfold unit."""
    return _format(number, COUNT, 1000)


def format_bytes(number: float, *, binary: bool = True) -> str:
    """`512 B`, `44.59 MiB`; with `binary=False` in decimal units, `46.76 MB`."""
    return _format(number, BINARY, 1024) if binary else _format(number, DECIMAL, 1000)


def format_time(ns: float) -> str:
    """`250 ns`, `1.23 ms`, `16.67 min`, from nanoseconds."""
    return _format(ns, TIME, 1000)


FORMATS: dict[str, Callable[[float], str]] = {
    "count": format_count,
    "bytes": format_bytes,
    "time": lambda ns: format_time(int(ns) if float(ns).is_integer() else ns),
    "flop/s": lambda rate: f"{format_count(rate)}FLOP/s" if rate >= 1000 else f"{format_count(rate)} FLOP/s",
    "bytes/s": lambda rate: f"{format_bytes(rate)}/s",
    "ratio": lambda ratio: f"{ratio:.2f}",
}
"""Numbers as texts, by the unit of their column."""


def short_count(number: float) -> str:
    """`25.6 M`: at most three digits, for a sentence."""
    return _short(number, COUNT, 1000)


def short_bytes(number: float) -> str:
    """`108 MiB`, the same of bytes."""
    return _short(number, BINARY, 1024)


def short_time(ns: float) -> str:
    """`953 µs`, the same of time."""
    return _short(ns, TIME, 1000)


def short_range(low_ns: float, high_ns: float) -> str:
    """`843–1,060 µs`: two times in the unit of the lower one."""
    low = short_time(low_ns)
    digits, _, unit = low.partition(" ")
    high = high_ns / TIME[unit]
    if high >= 10_000:
        return f"{low}–{short_time(high_ns)}"
    places = 2 if high < 10 else 1 if high < 100 else 0
    return f"{digits}–{round(high, places if high < 1000 else -1):,.{places}f} {unit}"


def parse_count(text: str) -> int:
    """`4.2G`, `11.69 M`, `25,557,032`, `7B` (billion), `4.1 GMACs`: the nearest integer."""
    bare = _COUNT_WORDS.sub("", text.strip())
    return _parse(bare, text, COUNT | {"k": COUNT["K"], "B": COUNT["G"]}, "count")


def parse_bytes(text: str) -> int:
    """`512 B`, `4 KiB`, `1.5GB`; a bare `G` is refused, for it may be either, and so is a number without a unit except zero."""
    size = _parse(text, text, {"": 1} | BINARY | DECIMAL, "size in bytes")
    number = text.strip()
    if size and not number[-1].isalpha():
        hint = f"write {number}GiB, {number}GB or {number}B"
        raise OpcostError(f"{text!r} is a size without a unit: {number} GiB or {number} bytes?", hint=hint)
    return size


def parse_time(text: str) -> int:
    """`250ns`, `1.5 ms`, `2 s` in nanoseconds; a number without a unit is refused."""
    return _parse(text, text, TIME | {"us": TIME["µs"]}, "time")


def _format(number: float, units: dict[str, int], limit: int) -> str:
    """The number in the first unit in which it stays below the limit after rounding to hundredths."""
    if number < 0:
        return "-" + _format(-number, units, limit)
    exact = isinstance(number, int)
    name = ""
    for name, size in units.items():
        if exact and size == 1:
            if number < limit:
                return f"{number} {name}" if name else str(number)
            continue
        hundredths = int((200 * number + size) // (2 * size))
        if hundredths < 100 * limit:
            return f"{hundredths // 100}.{hundredths % 100:02} {name}".rstrip()
    return f"{Decimal(number) / size:.2e} {name}"


def _short(number: float, units: dict[str, int], limit: int) -> str:
    """The number with at most three digits, in the first unit in which it stays below the limit after rounding."""
    if number < 0:
        return "-" + _short(-number, units, limit)
    for name, size in units.items():
        if size == 1 and number < limit and number == int(number):
            return f"{int(number):,} {name}".rstrip()
        for places in (2, 1, 0):
            digits = int((2 * 10**places * number + size) // (2 * size))
            if digits < 1000 or (places == 0 and digits < limit):
                whole, part = divmod(digits, 10**places)
                return f"{whole:,}{f'.{part:0{places}}' if places else ''} {name}".rstrip()
    return _format(number, units, limit)


def _parse(bare: str, text: str, units: dict[str, int], what: str) -> int:
    found = _NUMBER.fullmatch(bare)
    if found is None:
        example = {"count": "4.2G", "time": "1.5 ms"}.get(what, "512 MiB")
        raise OpcostError(f"{text!r} is not a {what}", hint=f"write a number and a unit, such as {example}")
    number, unit = found.groups()
    if unit not in units:
        raise UnknownName(f"unit of a {what}", unit, filter(None, units))
    value = Fraction(number.replace(",", "").replace("_", "")) * units[unit]
    return floor(value + Fraction(1, 2))
