"""`python -m opcost.compat.megengine.profile_analyze`: MegEngine's command line and text, on any trace that opcost reads.

It answers where MegEngine's tool stops: sorting and aggregating where some operator has no computation, `--order-by FLOPS`,
`--input-dtype`, `--copy-time` without a copy, a wiki table without a row, names of aggregated operators.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Literal, NamedTuple, TypeAlias

from opcost.analysis.query import Question
from opcost.compat.megengine import profile_records
from opcost.compat.megengine.profile_records import Number, Operator, Record
from opcost.core.escaping import printable
from opcost.core.profile import Profile
from opcost.errors import OpcostError
from opcost.views.view import pad, width_of


class Layout(NamedTuple):
    """What MegEngine's tool prints of its answer, under its own names."""

    copy_time: bool = False
    show_host: bool = False
    dump_only_opr: bool = False
    confluence: bool = False
    print_only: Literal["summary", "device", "host"] | None = None


USUAL = Layout()


def analyze(profile: Profile, question: Question, layout: Layout = USUAL) -> str:
    """What MegEngine's tool prints in answer to this question; of the keys to aggregate by it knows `type` alone."""
    operators = profile_records.operators_of(profile)
    name = None
    if question.name:
        try:
            name = re.compile(question.name)
        except re.error as fault:
            hint = "put a backslash before ( [ { * + ? . \\"
            raise OpcostError(f"{question.name!r} is not a regular expression: {fault}", hint=hint) from None
    chosen = [
        operator
        for operator in operators
        if (not question.type or operator.type in question.type)
        and (name is None or name.match(operator.name))
        and (not question.input_dtype or profile_records.reads(operator, question.input_dtype))
    ]
    rows: list[tuple[str, Cell]] = []
    for side in ("device", "host"):
        total = _total(operators, side)
        rows.append((f"total {side} time", "N/A" if total is None else total))
    if layout.copy_time:
        copies = [operator for operator in chosen if operator.copies]
        for label, key in (("copy time", "end"), ("copy wait time", "kern")):
            times = [time for operator in copies if (time := operator.time("device", key)) is not None]
            total = profile_records.pairwise_sum(times)
            rows.append((label, f"tot={total:.4f} avg={total / len(times):.4f}" if times else "N/A"))
    summary = wiki_table(("name", "value"), rows) if layout.confluence else ruled_table(rows)
    if layout.print_only == "summary":
        return summary

    def details(side: str) -> str:
        shortest, longest = question.min_time_ns / 1e9, question.max_time_ns / 1e9

        def time_of(operator: Operator) -> float | None:
            time = operator.time(side, "kern" if question.measure == "wait" else "end")
            return None if time is None or not shortest <= time <= longest else time

        records = profile_records.records_of(chosen, time_of)
        if question.aggregate or question.aggregate_by:
            by = question.aggregate_by[0] if question.aggregate_by else None
            records = profile_records.aggregate(records, by, question.aggregate or "sum")
        records = profile_records.sort(records, question.sort)[: question.top or None]
        if layout.dump_only_opr:
            return "\n".join(" ".join(map(str, _words(record))) for record in records)
        return details_text(records, side, _total(operators, side), wiki=layout.confluence)

    if layout.print_only is not None:
        return details(layout.print_only)
    return "\n\n".join([summary, details("device"), *([details("host")] if layout.show_host else [])])


def _total(operators: Sequence[Operator], side: str) -> float | None:
    times = [time for operator in operators if (time := operator.time(side, "end")) is not None]
    return profile_records.pairwise_sum(times) if times else None


def main(passed_args: Sequence[str] | None = None) -> None:
    """Read the command line, print, and leave with 2 where that is impossible."""
    options = vars(_parser().parse_args(passed_args))
    path = options.pop("dump")
    layout = Layout(**{name: options.pop(name) for name in Layout._fields})
    try:
        from opcost.analysis.join import with_costs
        from opcost.rules import default_rules
        from opcost.traces.registry import read

        for name in ("min_time", "max_time"):
            options[f"{name}_ns"] = options.pop(name) * 1e9
        options |= {name: tuple(options[name] or ()) for name in ("type", "aggregate_by")}
        options["name"], options["sort"] = options.pop("opr_name"), options.pop("order_by")
        options["measure"] = "wait" if options.pop("top_end_key") == "kern" else "time"
        question = Question(**options)
        profile = read(path)
        if "megengine" not in profile.extra:
            profile = with_costs(profile, default_rules())
        print(analyze(profile, question, layout))
    except OpcostError as fault:
        print(printable(f"profile_analyze: {fault}", keep="\n"), file=sys.stderr)
        sys.exit(fault.exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="profile_analyze",
        description="where the time of a profile goes",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("dump", help="a profile of load_and_run or of any other runtime that opcost reads")
    add("-t", "--top", type=int, default=3, help="number of operators to print, 0 for all")
    add("--type", action="append", help="only operators of this type; may be repeated")
    add("--aggregate-by", action="append", choices=["type"], help="one line for all operators of a type")
    add("--opr-name", help="only operators whose name begins with a match of this regular expression")
    add("--input-dtype", help="only operators with an input of this element type")
    add(
        "--top-end-key",
        default="end",
        choices=["end", "kern"],
        help="end is the whole time of an operator, kern its waiting time before the kernel",
    )
    add("--aggregate", default=None, choices=["max", "min", "sum", "mean"], help="how operators are combined")
    add("--order-by", default="time", help="the column to sort by, largest first; with + before it, smallest first")
    add("--copy-time", action="store_true", help="add the time of copies to the summary")
    add("--min-time", type=float, default=float("-inf"), help="shortest time in seconds of an operator to be shown")
    add("--max-time", type=float, default=float("inf"), help="longest time in seconds of an operator to be shown")
    add("--show-host", action="store_true", help="add the table of times on the host")
    add("--dump-only-opr", action="store_true", help="print only which operators they are, good for comparing two runs")
    add("--confluence", "--wiki", action="store_true", help="tables for a wiki")
    add("--print-only", choices=["summary", "device", "host"], help="print only this part")
    return parser


# -- text: a summary, and a table of operators, boxed or for a wiki -----------------------------------------------------

_PREFIXES = ("", "K", "M", "G", "T", "P", "E", "Z", "Y")
_BAR = 15
_INFO_WIDTH = 30
_BOXED = ["cumulative", "operator info", "computation", "FLOPS", "memory", "bandwidth", "in_shapes", "out_shapes"]
_WIKI_FIRST = ("#", "time", "ratio", "time bar", "cum-time", "cum-time ratio")
_WIKI_LAST = (
    "computation (MFLO)", "MFLOPS", "MFLOPS-bar", "memory (MB)", "bandwidth (MiB/s)", "bandwidth bar", "in_shapes", "out_shapes",
)  # fmt: skip


def details_text(records: Sequence[Record], side: str, total: float | None, *, wiki: bool) -> str:
    """The table of records; shares are of the total time of this side."""
    longest, fastest, widest = (
        max((value for record in records if (value := getattr(record, name)) is not None), default=0.0)
        for name in ("time", "flops", "bandwidth")
    )
    spent, rows = 0.0, []
    for place, record in enumerate(records):
        spent += record.time
        words, share = _words(record), _percent(record.time, total)
        row: list[Any]
        if wiki:
            row = [
                place, f"{record.time:.3}", share, _bar(record.time, longest), spent, spent / total if total else "N/A",
                *(word.replace("|", "\\|") if isinstance(word, str) else word for word in words),
                _scaled(record.computation, 1000**2), _scaled(record.flops, 1000**2), _bar(record.flops, fastest),
                _scaled(record.memory, 1024**2), _scaled(record.bandwidth, 1024**2), _bar(record.bandwidth, widest),
                *_shapes(record, ", "),
            ]  # fmt: skip
        else:
            row = [
                f"#{place}\n{record.time:.3}\n{share}", f"{spent:.3}\n{_percent(spent, total)}",
                "\n".join("\n-  ".join(textwrap.wrap(str(word), width=_INFO_WIDTH)) for word in words),
                _with_unit(record.computation, "FLO", "FLO", 1000), _with_unit(record.flops, "FLOPS", "FLOPS", 1000),
                _with_unit(record.memory, "byte", "iB", 1024), _with_unit(record.bandwidth, "byte/s", "iB/s", 1024),
                *_shapes(record, "\n"),
            ]  # fmt: skip
        rows.append(row)
    if not wiki:
        return boxed_table([f"{side} self time", *_BOXED], rows)
    named = records[0].info if records else ("name", "type", "id")
    return wiki_table([*_WIKI_FIRST, *(f"opr {word}" for word in named), *_WIKI_LAST], rows)


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


def _shapes(record: Record, separator: str) -> list[str]:
    """The shapes of the inputs, with their strides, and of the outputs; of several operators together there are none."""
    if "count" in record.info:
        return ["None", "None"]
    found = []
    for shapes, layouts in ((record.in_shapes, record.in_layouts or []), (record.out_shapes, [])):
        texts = ["{" + printable(",".join(map(str, shape))) + "}" for shape in shapes or ()]
        for place, strides in enumerate(layouts[: len(texts)]):
            if strides:
                texts[place] += f"\n -[{','.join(map(str, strides))}]"
        found.append("N/A" if shapes is None else separator.join(texts))
    return found


# -- tables: ruled, boxed with tall cells, and wiki --------------------------------------------------------------------
#
# A column of numbers has its decimal points below each other, any other column is aligned at the left.

Cell: TypeAlias = "str | int | float"

_HEADER_ROOM = 2  # A column is at least this much wider than its header


def ruled_table(rows: Sequence[Sequence[Cell]]) -> str:
    """Columns between two rules, without a header."""
    columns = [_column_texts(column) for column in zip(*rows, strict=True)]
    rule = "  ".join("-" * width_of(column[0]) for column in columns)
    return "\n".join([rule, *("  ".join(cells).rstrip() for cells in zip(*columns, strict=True)), rule])


def boxed_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A frame around every cell; a cell may have several lines, and every column is aligned at the left."""
    tall = [[[line.strip() for line in cell.split("\n")] for cell in row] for row in rows]
    widths = [
        max(width_of(header) + _HEADER_ROOM, *(width_of(line) for row in tall for line in row[place]), 0)
        for place, header in enumerate(headers)
    ]

    def line(cells: Sequence[str]) -> str:
        placed = (pad(cell, width, left=True) for cell, width in zip(cells, widths, strict=True))
        return "│ " + " │ ".join(placed) + " │"

    def rule(left: str, fill: str, cross: str, right: str) -> str:
        return left + cross.join(fill * (width + 2) for width in widths) + right

    lines = [rule("╒", "═", "╤", "╕"), line(headers), rule("╞", "═", "╪", "╡")]
    for number, row in enumerate(tall):
        if number:
            lines.append(rule("├", "─", "┼", "┤"))
        lines += map(line, zip_longest(*row, fillvalue=""))
    return "\n".join([*lines, rule("╘", "═", "╧", "╛")])


def wiki_table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Columns between vertical bars, as a wiki takes them."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(headers)
    numeric = [bool(column) and all(map(_is_number, column)) for column in columns]
    texts = [
        _column_texts(column, least=width_of(header) + _HEADER_ROOM)
        for header, column in zip(headers, columns, strict=True)
    ]
    widths = [
        width_of(column[0].partition("\n")[0]) if column else width_of(header) + _HEADER_ROOM
        for header, column in zip(headers, texts, strict=True)
    ]
    head = [pad(header, width, left=not right) for header, width, right in zip(headers, widths, numeric, strict=True)]
    rule = "|".join("-" * (width + 2) for width in widths)
    lines = [f"| {' | '.join(head)} |", f"|{rule}|"]
    for cells in zip(*texts, strict=True):
        tall = [cell.split("\n") for cell in cells]
        for number in range(max(map(len, tall))):
            placed = (
                parts[number] if number < len(parts) else " " * width for parts, width in zip(tall, widths, strict=True)
            )
            lines.append(f"| {' | '.join(placed)} |")
    return "\n".join(lines)


def _column_texts(column: Sequence[Cell], *, least: int = 0) -> list[str]:
    """The cells of a column, each of their lines at one width."""
    if not all(map(_is_number, column)):
        tall = [str(cell).strip().split("\n") for cell in column]
        room = max([least, *(width_of(line) for lines in tall for line in lines)])
        return ["\n".join(pad(line, room, left=True) for line in lines) for lines in tall]
    whole = all(_is_whole(cell) for cell in column)
    texts = [str(cell) if whole else format(float(cell), "g") for cell in column]
    if not whole:
        decimals = [_decimals(text) for text in texts]
        most = max(decimals, default=0)
        texts = [text + " " * (most - own) for text, own in zip(texts, decimals, strict=True)]
    room = max([least, *map(len, texts)])
    return [text.rjust(room) for text in texts]


def _decimals(text: str) -> int:
    """Characters after the decimal point, else after the exponent's letter, else one less than none."""
    place = text.rfind(".")
    if place < 0:
        place = text.rfind("e")
    return len(text) - place - 1 if place >= 0 else -1


def _is_number(cell: Cell) -> bool:
    if not isinstance(cell, str):
        return True
    try:
        number = float(cell)
    except ValueError:
        return False
    return math.isfinite(number) or cell.lower() in ("inf", "-inf", "nan")


def _is_whole(cell: Cell) -> bool:
    if not isinstance(cell, str):
        return isinstance(cell, int)
    try:
        int(cell)
    except ValueError:
        return False
    return True


if __name__ == "__main__":
    main()
