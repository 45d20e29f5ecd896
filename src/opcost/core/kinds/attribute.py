"""What an attribute may hold: its type, the words for it, and its meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

FEW = 16
"""More names than these are not told in one breath; the page of rules has them in a table of their own."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One thing that a rule may read of an operator: what it holds, in words and as a test, and what it means."""

    holds: str
    fits: Callable[[object], bool]
    meaning: str
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        listed = f": {', '.join(self.choices)}" if len(self.choices) <= FEW else ""
        return f"{self.holds}{listed if self.choices else ''}"


def whole(meaning: str) -> Attribute:
    """A number of things."""
    return Attribute("a whole number", _is_count, meaning)


def number_of(one: int, other: int, meaning: str) -> Attribute:
    """One number or the other."""
    return Attribute(f"{one} or {other}", lambda value: type(value) is int and value in (one, other), meaning)


def wholes(meaning: str) -> Attribute:
    """Several numbers of things."""
    return Attribute("whole numbers", lambda value: type(value) is tuple and all(map(_is_count, value)), meaning)


def flag(meaning: str) -> Attribute:
    """True or false."""
    return Attribute("true or false", lambda value: type(value) is bool, meaning)


def word(meaning: str) -> Attribute:
    """Any text."""
    return Attribute("a text", lambda value: type(value) is str, meaning)


def one_of(choices: tuple[str, ...], meaning: str) -> Attribute:
    """One of these names."""
    known = frozenset(choices)
    return Attribute("one name", lambda value: type(value) is str and value in known, meaning, choices)


def some_of(choices: tuple[str, ...], meaning: str) -> Attribute:
    """A tuple of these names."""
    return Attribute(
        "names", lambda value: type(value) is tuple and all(item in choices for item in value), meaning, choices
    )


def triples(meaning: str) -> Attribute:
    """A tuple of three numbers for each of several things."""
    return Attribute("triples of whole numbers", _are_triples, meaning)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _are_triples(value: object) -> bool:
    return (
        type(value) is tuple
        and bool(value)
        and all(type(item) is tuple and len(item) == 3 and all(map(_is_count, item)) for item in value)
    )


HOLDS: dict[str, Callable[[str], Attribute]] = {
    "whole": whole,
    "wholes": wholes,
    "flag": flag,
    "word": word,
    "triples": triples,
}
"""What an attribute that is not one of several names or numbers may hold, by its word in the table of kinds."""
