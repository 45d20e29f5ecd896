"""What a command says, line by line. Names in it come from files and plug-ins, so none of them can steer the terminal."""

from __future__ import annotations

import sys

from opcost.core.harmless import printable
from opcost.wording import shortened

LONG_LINE = 2000
"""Characters of one line of a message; what is quoted in it may be a whole file."""


def say(line: str) -> None:
    """One line of the answer."""
    print(printable(line))


def warn(text: str) -> None:
    """What else there is to know, on stderr; lines of the text stay lines, and none fills the terminal."""
    short = "\n".join(shortened(line, LONG_LINE) for line in text.split("\n"))
    print(printable(f"opcost: {short}", keep="\n"), file=sys.stderr)
