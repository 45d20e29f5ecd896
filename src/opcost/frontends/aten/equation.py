"""Einsum equations written out: explicit output, no spaces, no ellipsis."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters


def explicit(equation: str, ranks: Sequence[int]) -> str | None:
    """The equation with its output and its ellipses spelled in letters, or None if it does not fit the operands."""
    text = equation.replace(" ", "")
    left, arrow, output = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        return None
    free = [letter for letter in ascii_letters if letter not in text]
    hidden = max((rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True) if "..." in term), default=0)
    if not 0 <= hidden <= len(free):
        return None
    dots = "".join(free[:hidden])
    written = []
    for term, rank in zip(terms, ranks, strict=True):
        own = rank - len(term) + 3
        labels = term.replace("...", dots[hidden - own :]) if "..." in term else term
        if len(labels) != rank:
            return None
        written.append(labels)
    if not arrow:
        once = sorted({c for c in left if c.isalpha() and left.count(c) == 1})
        output = "..." * ("..." in left) + "".join(once)
    return f"{','.join(written)}->{output.replace('...', dots)}"
