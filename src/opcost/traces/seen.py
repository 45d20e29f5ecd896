"""What stands in the beginning of a file that nobody, or more than one, reads: for the error that must say so."""

from __future__ import annotations

import re

from opcost.errors import shortened, some

_LONGEST = 40
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"(\s*:)?|[{}\[\]]')
_CATEGORY = re.compile(rb'"cat"\s*:\s*"([^"\\]*)"')


def seen_in(head: bytes) -> str:
    """The fields of the outermost object and the categories of events; empty where there are neither."""
    categories = dict.fromkeys(_CATEGORY.findall(head))
    said = [(word, names) for word, names in (("fields", _fields(head)), ("categories", list(categories))) if names]
    return " and ".join(f"the {word} {_listed(names)}" for word, names in said)


def _fields(head: bytes) -> list[bytes]:
    """The keys of the object that the text begins with."""
    depth = 0
    found: dict[bytes, None] = {}
    for token in _TOKEN.finditer(head) if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" else ():
        if token[0] in b"{[":
            depth += 1
        elif token[0] in b"}]":
            depth -= 1
        elif depth == 1 and token[2] is not None:
            found[token[1]] = None
    return list(found)


def _listed(names: list[bytes]) -> str:
    return ", ".join(some([shortened(repr(name.decode("utf-8", "replace")), _LONGEST) for name in names]))
