"""Untrusted names and texts, escaped for the place where they are displayed.

They come from files and third-party code. A terminal must not obey them, a table must keep its columns, a spreadsheet must not
run them, and a page must not take them for markup. JSON alone keeps them as they are, behind its own escapes.
"""

import codecs
import re
from typing import Any

_REPLACED = "\ufffd"
_FORMULA = frozenset("=+-@＝＋－＠")
"""What makes a formula of a cell, in ASCII and at the width of an ideograph, which Excel takes too."""
_SKIPPED = " '\"`"  # what may precede it
_MARKUP = re.compile(r"[\\`*_\[\]<>&|~#]")
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
        ">": r"\textgreater{}", "|": r"\textbar{}", "[": "{[}", "*": "{*}", "≥": r"$\ge$", "≤": r"$\le$",
        "→": r"$\to$", "×": r"$\times$", "·": r"$\cdot$", "µ": r"$\mu$", "–": r"\textendash{}", "…": r"\dots{}", "\u00a0": "~",
    } | {letter: f"\\{letter}" for letter in "{}$&#%_"}
)  # fmt: skip
_HALVES = re.compile("[\ud800-\udfff]")
_UNSEEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""What JSON lets through although a terminal may obey it or a reader be misled: controls, directions, halves of characters."""


def printable(text: str, *, keep: str = "") -> str:
    """The text on one line without control characters or changes of direction; letters in `keep` stay."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep else " " if letter.isspace() else _REPLACED for letter in text
    )


def csv_cell(text: str) -> str:
    """The text for a cell of a spreadsheet: one that would be a formula begins with an apostrophe, which marks it as text."""
    text = printable(text)
    return f"'{text}" if text.lstrip(_SKIPPED)[:1] in _FORMULA else text


def markdown_text(text: str) -> str:
    """The text escaped for Markdown: no markup, link, picture, page element or cell of a table."""
    return _MARKUP.sub(lambda found: "&lt;" if found[0] == "<" else f"\\{found[0]}", printable(text))


def latex_text(text: str) -> str:
    """The text escaped for LaTeX: no command, comment, formula, cell or option, in characters that every engine has."""
    return printable(text, keep="\u00a0").translate(_LATEX).replace("--", "-{}-")  # two hyphens would be a dash


def json_text(data: Any, *, halves: bool = True, **layout: Any) -> str:
    """The data as JSON of readable letters, whatever else they hold escaped, so that the text can be written anywhere.

    Half of a surrogate pair is escaped too, and comes back. Not every reader takes that; without `halves` it is replaced.
    """
    import json

    text = json.dumps(data, ensure_ascii=False, **layout)
    if text.isascii() and "\x7f" not in text:
        return text
    if not halves:
        text = _HALVES.sub(_REPLACED, text)
    return _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


# -- our own characters on terminals that do not have them -------------------------------------------------------------

ASCII: dict[int, str] = str.maketrans(
    {
        "│": "|", "├": "|", "└": "`", "─": "-", "…": "~", "·": "-", "×": "x", "≥": ">", "≤": "<", "–": "-", "µ": "u", "→": ">",
        "\u00a0": " ", "▁": "_", "▂": "_", "▃": ".", "▄": "-", "▅": "-", "▆": "=", "▇": "+", "█": "#",
        "²": "^2", "³": "^3", "⁵": "^5", "Σ": "sum ", "\u0302": "^",
    }
)  # fmt: skip
"""One for one, so that columns stay where they are; more than one only in formulas, which are in no table."""


def shows_unicode(stream: Any) -> bool:
    """Whether any character can be written there; a stream without an encoding is text in memory."""
    encoding = getattr(stream, "encoding", None)
    if not encoding:
        return True
    try:
        return codecs.lookup(encoding).name.startswith("utf")
    except LookupError:
        return False


def encodable_text(stream: Any, text: str) -> str:
    """The text with our own characters in ASCII, where the stream cannot encode all of them."""
    return text if text.isascii() or shows_unicode(stream) else text.translate(ASCII)
