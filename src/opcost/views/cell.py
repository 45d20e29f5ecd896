"""One value as text, and text cut or padded to a width."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from itertools import groupby

from opcost.core.escaping import printable
from opcost.core.names import short_kernel_name
from opcost.core.sheet import Amount, Cell, Field, Table, Unit
from opcost.core.units import format_bytes, format_count, format_time
from opcost.errors import some

MANY_SHAPES = 24  # shapes of one cell; a module that gets a pyramid of features has about ten
NOTHING = "–"  # a zero in a column of quantities: it is counted, and it is nothing


def format_cell(value: Cell, field: Field, *, exact: bool = False) -> str:
    """A value as text; the unknown is a question mark, never a zero."""
    if value is None:
        return "?"
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, tuple):
        # `1x3x224x224, 2 × 1000`: a run of equal shapes is written once
        return ", ".join(some(in_runs(map(str, value)), MANY_SHAPES))
    if isinstance(value, Amount):
        return format_amount(value, exact=exact)
    if value == 0 and field.adds and not exact:
        return NOTHING
    if field.name in ("calls", "repeat") and value <= 1:
        return ""
    if field.unit == "share":
        # `25.5`, `<0.1`, `0`: percent with one decimal, where something never looks like nothing
        return f"{100 * value:.1f}" if value >= 0.0005 else "<0.1" if value else "0"
    return f"{value:,}" if exact or field.unit == "number" else _FORMATS.get(field.unit, format_count)(value)


def format_amount(amount: Amount, *, exact: bool = False) -> str:
    """An amount in its own unit: a zero difference is none, and a lower bound of zero is unknown."""
    if not amount.number and not exact:
        return "?" if amount.partial else NOTHING
    plain = exact or amount.unit == "number"
    text = f"{amount.number:,}" if plain else _FORMATS.get(amount.unit, format_count)(amount.number)
    sign = "+" if amount.signed and amount.number > 0 else ""
    return f"{'≥' if amount.partial else ''}{sign}{text}"


_FORMATS: dict[str, Callable[[float], str]] = {
    "bytes": format_bytes,
    "time": lambda ns: format_time(int(ns) if float(ns).is_integer() else ns),
    "flop/s": lambda rate: f"{format_count(rate)}FLOP/s" if rate >= 1000 else f"{format_count(rate)} FLOP/s",
    "bytes/s": lambda rate: f"{format_bytes(rate)}/s",
    "ratio": lambda ratio: f"{ratio:.2f}",
}


def column_texts(table: Table, place: int, *, exact: bool = False) -> list[str]:
    """The texts of one column; equal values are formatted once."""
    field = table.fields[place]
    own = field.name.startswith("own_")
    shown = cache(lambda value: format_cell(value, field, exact=exact))
    texts = []
    for line in table.lines:
        value = line.values[place]
        text = shown(value)
        partial = line.own_partial if own else line.partial
        if partial and not value and (field.has_cost or field.unit == "share"):
            text = "?"
        elif partial and field.has_cost:
            text = f"≥{text}"
        elif line.shares and field.name == "params" and value == 0:
            text = "(shared)"
        texts.append(text)
    return texts


def in_runs(words: Iterable[str]) -> list[str]:
    """The words, where a run of equal ones is written `3 × word`."""
    counted = ((word, sum(1 for _ in run)) for word, run in groupby(words))
    return [f"{count} × {word}" if count > 1 else word for word, count in counted]


def cut(text: str, room: int, unit: Unit) -> str:
    """The text within the room: a path keeps its end, a kernel its distinctive words, and a number is never cut."""
    if width_of(text) <= room:
        return text
    if unit == "shapes":
        return cut_shapes(text, room)
    if unit not in ("name", "text"):
        return text
    text = short_kernel_name(text)
    if width_of(text) <= room:
        return text
    keeps_end = unit == "name" and "." in text
    left, kept = room - 1, 0
    for letter in reversed(text) if keeps_end else text:
        left -= width_of(letter)
        if left < 0:
            break
        kept += 1
    return "…" + text[len(text) - kept :] if keeps_end else text[:kept] + "…"


def cut_shapes(text: str, room: int) -> str:
    """As many whole shapes as fit, at least the first."""
    first, *others = text.split(", ")
    kept = first
    for shape in others:
        if len(kept) + len(shape) + len(", , …") > room:
            return f"{kept}, …"
        kept += f", {shape}"
    return kept


def pad(text: str, room: int, *, left: bool) -> str:
    """The text at the left or at the right of this number of columns."""
    blank = " " * (room - width_of(text))
    return text + blank if left else blank + text


def width_of(text: str) -> int:
    """Columns of a terminal that the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def wrap(text: str, width: int, indent: int = 0) -> list[str]:
    """The text in lines that break between words only; a non-breaking space keeps a number and its unit together."""
    text = printable(text, keep="\u00a0")
    lines = textwrap.wrap(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]
