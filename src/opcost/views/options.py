"""What callers of several views may choose."""

from __future__ import annotations

from dataclasses import dataclass

from opcost.errors import OpcostError
from opcost.views.listing import Columns

_LEAST = {"top": 1, "depth": 0, "width": 1}
_WORDS = {"depth": "auto"}


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """What a caller chose; whole numbers are checked, whatever the view has of them."""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name, None)
            if value is None or value == _WORDS.get(name):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise OpcostError(f"{name}={value!r} is not a whole number of at least {least}")


@dataclass(frozen=True, kw_only=True)
class NumberOptions(ViewOptions):
    """How numbers are written."""

    exact: bool = False
    """Numbers with all their digits in place of units."""


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(NumberOptions):
    """Which columns of an answer to show, and how."""

    columns: Columns = None


@dataclass(frozen=True, kw_only=True)
class PageOptions(NumberOptions):
    """How a page of text is drawn."""

    width: int | None = None
    """Columns; None is as many as the terminal has."""
    ascii: bool = False
    """Use no character outside ASCII."""
