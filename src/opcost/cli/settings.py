"""Settings and arguments that are typed on the command line, as data."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from opcost.errors import InputError
from opcost.wording import shortened


def parse_settings(pairs: Iterable[str], option: str) -> dict[str, object]:
    """`name=value` pairs; a value is a Python literal where it is one, else the text itself."""
    settings: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not all(part.isidentifier() for part in name.split(".")):
            raise InputError(f"{option} {shortened(repr(pair))} is not understood", hint=f"write {option} name=value")
        if name in settings:
            raise InputError(f"{option} gives {shortened(name)} twice")
        settings[name] = _literal(value)
    return settings


def _literal(text: str) -> object:
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text
