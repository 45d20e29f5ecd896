"""Lines and messages on the terminal.

Names in them come from files and plug-ins, so all text is escaped before it is printed.
"""

import codecs
import os
import sys
from io import TextIOWrapper
from typing import Any

from opcost.core.escaping import encodable_text, printable
from opcost.errors import shortened

LONG_LINE = 2000  # characters of one line of a message; what is quoted in it may be a whole file
FOR_PROGRAMS = ("json", "csv", "columns")  # formats that programs read: their characters are never replaced


def say(line: str) -> None:
    """Print one line."""
    print(encodable_text(sys.stdout, printable(line)))


def put(text: str, view: str = "table") -> None:
    """Print a rendered view, in characters that the terminal has."""
    whole = text if text.endswith("\n") else f"{text}\n"
    sys.stdout.write(whole if view in FOR_PROGRAMS else encodable_text(sys.stdout, whole))


def warn(text: str) -> None:
    """Print a message on stderr; its lines stay lines, and none fills the terminal."""
    short = "\n".join(shortened(line, LONG_LINE) for line in text.split("\n"))
    try:
        print(encodable_text(sys.stderr, printable(f"opcost: {short}", keep="\n")), file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except OSError:  # a full disk: the exit code still says so, and Python must not fail to flush at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def use_color(stream: Any) -> bool:
    """Whether to print in colour: on a terminal unless NO_COLOR is set, and wherever FORCE_COLOR is."""
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR", "")
    return forced not in ("", "0") or bool(stream.isatty())


def escape_unknown() -> None:
    """From now on a character that the terminal does not have is written as JSON writes it, and is no error."""
    codecs.register_error("opcost", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="opcost")


def _escaped(fault: UnicodeError) -> tuple[str, int]:
    if not isinstance(fault, UnicodeEncodeError):
        raise fault
    halves = fault.object[fault.start : fault.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(halves[::2], halves[1::2], strict=True)), fault.end
