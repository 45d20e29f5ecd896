"""What a command says, line by line. Names in it come from files and plug-ins, so none of them can steer the terminal."""

from __future__ import annotations

import codecs
import os
import sys
from io import TextIOWrapper
from typing import Any

from opcost.core.harmless import printable
from opcost.core.spelling import spelled_for
from opcost.wording import shortened

LONG_LINE = 2000
"""Characters of one line of a message; what is quoted in it may be a whole file."""
FOR_PROGRAMS = ("json", "csv", "columns")
"""Views that programs read: what stands in them is not spelled otherwise."""


def say(line: str) -> None:
    """One line of the answer."""
    print(spelled_for(sys.stdout, printable(line)))


def put(text: str, view: str = "table") -> None:
    """A whole picture as a view drew it, in characters that the terminal has."""
    whole = text if text.endswith("\n") else f"{text}\n"
    sys.stdout.write(whole if view in FOR_PROGRAMS else spelled_for(sys.stdout, whole))


def warn(text: str) -> None:
    """What else there is to know, on stderr; lines of the text stay lines, and none fills the terminal."""
    short = "\n".join(shortened(line, LONG_LINE) for line in text.split("\n"))
    try:
        print(spelled_for(sys.stderr, printable(f"opcost: {short}", keep="\n")), file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except OSError:  # a full disk; the exit code still says what happened, and Python must not fail to flush at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def wants_color(stream: Any) -> bool:
    """Whether to write in colour: on a terminal, if NO_COLOR does not forbid it, and wherever FORCE_COLOR asks for it."""
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR", "")
    return forced not in ("", "0") or bool(stream.isatty())


def escape_unknown() -> None:
    """From here on a letter that the terminal does not have is no error: it is written as JSON writes it."""
    codecs.register_error("opcost", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="opcost")


def _escaped(fault: UnicodeError) -> tuple[str, int]:
    if not isinstance(fault, UnicodeEncodeError):
        raise fault
    halves = fault.object[fault.start : fault.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(halves[::2], halves[1::2], strict=True)), fault.end
