"""An operator's attributes: text in the file, numbers, tuples and words for whoever asks.

Every version of MXNet writes them a little differently: `(3, 3)`, `(3L, 3L)`, `[3,3]`, `3` for a tuple of one, `True`, `1`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from math import isfinite

from opcost.errors import SourceError

_INTEGER = re.compile(r"[+-]?\d{1,19}[lL]?")
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?f?|[+-]?(?:inf|nan)")
_TRUE = frozenset(("True", "true", "1"))
_FALSE = frozenset(("False", "false", "0"))
_LARGEST = 1 << 63
_MOST_ITEMS = 4096
"""No operator has a longer list (anchors, split points); a file that does is broken."""

DTYPES = {
    0: "float32", 1: "float64", 2: "float16", 3: "uint8", 4: "int32", 5: "int8", 6: "int64", 7: "bool", 8: "int16",
    9: "uint16", 10: "uint32", 11: "uint64", 12: "bfloat16",
}  # fmt: skip
"""Element types by the code that files hold."""


class AttributeFault(SourceError):
    """An attribute's text is not what its operator can read."""


class Attributes:
    """The attributes of one node, read by name and type; what is absent is the default, as in MXNet."""

    __slots__ = ("raw",)

    def __init__(self, raw: Mapping[str, str]) -> None:
        self.raw = raw

    def __contains__(self, name: str) -> bool:
        return self.raw.get(name, "None") != "None"

    def text(self, name: str, default: str | None = None) -> str:
        value = self.raw.get(name)
        if value is None or value == "None":
            if default is None:
                raise AttributeFault(f"the attribute {name!r} is missing")
            return default
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        text = self.raw.get(name)
        if text is None or text == "None":
            if default is None:
                raise AttributeFault(f"the attribute {name!r} is missing")
            return default
        return _integer(name, text)

    def maybe_integer(self, name: str) -> int | None:
        """A whole number, or None where it is absent or `None`."""
        return self.integer(name) if name in self else None

    def number(self, name: str, default: float | None = None) -> float:
        text = self.raw.get(name)
        if text is None or text == "None":
            if default is None:
                raise AttributeFault(f"the attribute {name!r} is missing")
            return default
        return _number(name, text)

    def flag(self, name: str, *, default: bool = False) -> bool:
        text = self.raw.get(name)
        if text is None or text == "None":
            return default
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        raise AttributeFault(f"the attribute {name!r} is {_shown(text)}, neither true nor false")

    def items(self, name: str, default: tuple[int | None, ...] | None = None) -> tuple[int | None, ...]:
        """A tuple whose members may be None, as the begin and end of a slice."""
        text = self.raw.get(name)
        if text is None or text == "None":
            if default is None:
                raise AttributeFault(f"the attribute {name!r} is missing")
            return default
        return _items(name, text)

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A tuple of whole numbers; a bare number is a tuple of one."""
        found = self.items(name, default)
        if None in found:
            raise AttributeFault(f"the attribute {name!r} is {_shown(self.raw[name])}, not a tuple of whole numbers")
        return found  # type: ignore[return-value]

    def maybe_integers(self, name: str) -> tuple[int, ...] | None:
        return self.integers(name) if name in self else None

    def count(self, name: str, default: int = 0) -> int:
        """How many members a tuple of any numbers has."""
        return len(_split(self.raw[name])) if name in self else default

    def dtype(self, name: str = "dtype", default: str = "float32") -> str:
        """An element type by name; where it is a number, by its code."""
        text = self.raw.get(name)
        if text is None or text == "None":
            return default
        if text.lstrip("-").isdecimal():
            return DTYPES.get(int(text[:4]), default)
        if text not in DTYPES.values():
            raise AttributeFault(f"the attribute {name!r} is {_shown(text)}, which is not an element type of MXNet")
        return text


@lru_cache(maxsize=4096)
def _integer(name: str, text: str) -> int:
    word = text.strip()
    if _INTEGER.fullmatch(word):
        return int(word.rstrip("lL"))
    if word in ("True", "False"):  # written so where a Python caller gave a truth value for a number
        return int(word == "True")
    number = _number(name, text)
    if not isfinite(number) or abs(number) >= _LARGEST or number != int(number):
        raise AttributeFault(f"the attribute {name!r} is {_shown(text)}, not a whole number")
    return int(number)


@lru_cache(maxsize=4096)
def _number(name: str, text: str) -> float:
    word = text.strip()
    if word in ("True", "False"):
        return float(word == "True")
    if not _FLOAT.fullmatch(word):
        raise AttributeFault(f"the attribute {name!r} is {_shown(text)}, not a number")
    return float(word.removesuffix("f") if not word.endswith("inf") else word)


@lru_cache(maxsize=4096)
def _items(name: str, text: str) -> tuple[int | None, ...]:
    words = _split(text)
    if len(words) > _MOST_ITEMS:
        raise AttributeFault(f"the attribute {name!r} has {len(words)} members, more than any operator takes")
    return tuple(None if word == "None" else _integer(name, word) for word in words)


def _split(text: str) -> list[str]:
    inner = text.strip()
    if inner[:1] in ("(", "[") and inner[-1:] in (")", "]"):
        inner = inner[1:-1]
    return [word for part in inner.split(",") if (word := part.strip())]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
