"""The text of MegEngine's profile tool: a summary, and a table of operators, boxed or for a wiki."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from opcost.compat.megengine.profile_records import Number, Record, Shapes
from opcost.compat.megengine.profile_tables import Cell, boxed_table, ruled_table, wiki_table
from opcost.core.harmless import printable

_PREFIXES = ("", "K", "M", "G", "T", "P", "E", "Z", "Y")
_BAR = 15
_INFO_WIDTH = 30

_HEADERS = ("cumulative", "operator info", "computation", "FLOPS", "memory", "bandwidth", "in_shapes", "out_shapes")
_WIKI_FIRST = ("#", "time", "ratio", "time bar", "cum-time", "cum-time ratio")
_WIKI_LAST = (
    "computation (MFLO)", "MFLOPS", "MFLOPS-bar", "memory (MB)", "bandwidth (MiB/s)", "bandwidth bar", "in_shapes",
    "out_shapes",
)  # fmt: skip


def summary_text(rows: Sequence[tuple[str, Cell]], *, wiki: bool) -> str:
    """Totals, one below the other."""
    return wiki_table(("name", "value"), rows) if wiki else ruled_table(rows)


def names_text(records: Sequence[Record]) -> str:
    """One line for each record: what it is and nothing of how long."""
    return "\n".join(" ".join(map(str, _words(record))) for record in records)


def details_text(records: Sequence[Record], side: str, total: float | None, *, wiki: bool) -> str:
    """The table of records; shares are of the total time of this side."""
    if wiki:
        return _wiki(records, total)
    rows = []
    spent = 0.0
    for place, record in enumerate(records):
        spent += record.time
        rows.append(
            (
                f"#{place}\n{record.time:.3}\n{_percent(record.time, total)}",
                f"{spent:.3}\n{_percent(spent, total)}",
                "\n".join("\n-  ".join(textwrap.wrap(str(word), width=_INFO_WIDTH)) for word in _words(record)),
                _with_unit(record.computation, "FLO", "FLO", 1000),
                _with_unit(record.flops, "FLOPS", "FLOPS", 1000),
                _with_unit(record.memory, "byte", "iB", 1024),
                _with_unit(record.bandwidth, "byte/s", "iB/s", 1024),
                _shapes(record.in_shapes, record.in_layouts),
                _shapes(record.out_shapes),
            )
        )
    return boxed_table((f"{side} self time", *_HEADERS), rows)


def _wiki(records: Sequence[Record], total: float | None) -> str:
    longest = max((record.time for record in records), default=0.0)
    fastest = max((record.flops for record in records if record.flops is not None), default=0.0)
    widest = max((record.bandwidth for record in records if record.bandwidth is not None), default=0.0)
    rows: list[list[Cell]] = []
    spent = 0.0
    for place, record in enumerate(records):
        spent += record.time
        rows.append(
            [
                place,
                f"{record.time:.3}",
                _percent(record.time, total),
                _bar(record.time, longest),
                spent,
                spent / total if total else "N/A",
                *(word.replace("|", "\\|") if isinstance(word, str) else word for word in _words(record)),
                _scaled(record.computation, 1000**2),
                _scaled(record.flops, 1000**2),
                _bar(record.flops, fastest),
                _scaled(record.memory, 1024**2),
                _scaled(record.bandwidth, 1024**2),
                _bar(record.bandwidth, widest),
                _shapes(record.in_shapes, record.in_layouts, separator=", "),
                _shapes(record.out_shapes, separator=", "),
            ]
        )
    named = records[0].info if records else ("name", "type", "id")
    return wiki_table((*_WIKI_FIRST, *(f"opr {word}" for word in named), *_WIKI_LAST), rows)


def _words(record: Record) -> list[str | int]:
    """What the operator is, on one line each."""
    return [printable(word) if isinstance(word, str) else word for word in record.info.values()]


def _percent(time: float, total: float | None) -> str:
    return f"{time / total * 100:.1f}%" if total else "N/A"


def _bar(value: float | None, most: float) -> str:
    share = value / most if value and most else 0.0
    return "#" * int(share * _BAR) if math.isfinite(share) else ""


def _scaled(value: Number | None, unit: int) -> str:
    return "N/A" if value is None else f"{value / unit:.1f}"


def _with_unit(value: Number | None, unit: str, scaled_unit: str, base: int) -> str:
    if value is None:
        return f"N/A\n{unit}"
    prefix = 0
    if math.isfinite(value):
        while value >= base and prefix + 1 < len(_PREFIXES):
            value /= base
            prefix += 1
    return f"{value:.2f}\n{_PREFIXES[prefix]}{scaled_unit if prefix else unit}"


def _shapes(
    shapes: Shapes | str | None, layouts: Sequence[Sequence[int] | None] | None = None, *, separator: str = "\n"
) -> str:
    if shapes is None:
        return "N/A"
    if isinstance(shapes, str):
        return shapes
    found = []
    for place, shape in enumerate(shapes):
        strides = layouts[place] if layouts and place < len(layouts) else None
        text = "{" + printable(",".join(map(str, shape))) + "}"
        found.append(f"{text}\n -[{','.join(map(str, strides))}]" if strides else text)
    return separator.join(found)
