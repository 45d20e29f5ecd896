"""What a command says, line by line. Names in it come from files and plug-ins, so none of them can steer the terminal."""

from __future__ import annotations

import sys

from opcost.core.harmless import printable


def say(line: str) -> None:
    """One line of the answer."""
    print(printable(line))


def warn(text: str) -> None:
    """What else there is to know, on stderr; lines of the text stay lines."""
    print(printable(f"opcost: {text}", keep="\n"), file=sys.stderr)
