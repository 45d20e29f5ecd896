"""`python -m opcost.compat.megengine.profile_analyze`: MegEngine's command line and text, on any trace that opcost reads.

It answers where MegEngine's tool stops: sorting and aggregating where some operator has no computation, `--order-by FLOPS`,
`--input-dtype`, `--copy-time` without a copy, a wiki table without a row, names of aggregated operators. Its records have
floating-point seconds, and None where it says N/A.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec

from opcost.analysis.query import Question
from opcost.compat._tables import boxed_table, ruled_table, wiki_table
from opcost.core.escaping import printable
from opcost.core.graph import TensorSpec
from opcost.core.profile import Profile
from opcost.errors import OpcostError, SourceError, UnknownName
from opcost.traces.megengine.graph import dtype_of

Number: TypeAlias = "int | float"

# What a reader wrote may come from a saved profile, and then from anywhere.
_Believed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | Annotated[float, msgspec.Meta(ge=-1e38, le=1e38)]
_Span = tuple[_Believed, _Believed, _Believed]
_Shape = list[Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]]


class Footprint(msgspec.Struct):
    """What an operator computes and moves."""

    computation: _Believed | None = None
    memory: _Believed | None = None
    in_shapes: list[_Shape] | None = None
    in_layouts: list[list[Any] | None] | None = None
    out_shapes: list[_Shape] | None = None


class ProfiledOperator(msgspec.Struct):
    """One operator of the graph: times as (start, kern, end) on each device and each host thread."""

    id: str
    name: str
    type: str
    device: list[_Span]
    host: list[_Span]
    dtypes: list[str]
    footprint: Footprint
    copies: bool = False  # It only moves data; its time is what `--copy-time` adds up

    def time(self, side: str, key: str) -> float | None:
        """Seconds to `end` or to `kern`, the longest of all places; None where it did not run."""
        spans: list[_Span] = self.device if side == "device" else self.host
        place = 2 if key == "end" else 1
        return max((span[place] - span[0] for span in spans), default=None)


class Record(Footprint, kw_only=True):
    """A line of the table: one operator, or several added up, which have a count and no shapes."""

    time: float
    info: dict[str, str | int]

    @property
    def flops(self) -> float | None:
        return self._rate(self.computation)

    @property
    def bandwidth(self) -> float | None:
        return self._rate(self.memory)

    def _rate(self, amount: Number | None) -> float | None:
        if amount is None:
            return None
        if self.time:
            return amount / self.time
        return math.inf if amount else math.nan


def operators_of(profile: Profile) -> list[ProfiledOperator]:
    """The operators of a profile: as MegEngine wrote them, or made from any other trace."""
    raw = profile.extra.get("megengine")
    if raw is not None:
        try:
            operators = msgspec.convert(raw, list[ProfiledOperator])
        except (msgspec.ValidationError, UnicodeEncodeError) as exc:  # half a character in a text
            raise SourceError(f"the profile's MegEngine part is damaged: {exc}") from exc
        for operator in operators:
            operator.copies = operator.type == "Copy"
        return operators
    found = []
    for row in profile.rows:
        cost, wait = row.cost, row.attrs.get("wait_ns")
        footprint = Footprint(in_shapes=_dims_of(row.ins), out_shapes=_dims_of(row.outs))
        if cost:
            footprint.computation = cost.flops * row.count
            footprint.memory = (cost.bytes_read + cost.bytes_written) * row.count
        device = _span(row.device_ns, wait if isinstance(wait, int) else 0)
        host = _span(row.host_self_ns if row.host_self_ns is not None else row.host_ns)
        dtypes = [spec.dtype for spec in row.ins]
        copies = row.kind == "copy" or any(kernel.name.startswith("Memcpy") for kernel in row.kernels)
        found.append(ProfiledOperator(str(row.id), row.name, row.type, device, host, dtypes, footprint, copies))
    if profile.unattributed:  # device work that no operator launched, as one more operator
        name = "(unattributed)"
        device = _span(sum(kernel.duration_ns for kernel in profile.unattributed))
        found.append(ProfiledOperator("N/A", name, name, device, [], [], Footprint()))
    return found


def _dims_of(specs: Sequence[TensorSpec]) -> list[list[Any]]:
    return [["?"] if spec.shape is None else list(spec.shape) for spec in specs]


def _span(duration_ns: int | None, wait_ns: int = 0) -> list[_Span]:
    return [] if duration_ns is None else [(0.0, wait_ns / 1e9, duration_ns / 1e9)]


def aggregate(records: Sequence[Record], by: str | None, how: str) -> list[Record]:
    """Records of one type, or all of them, as one; time, computation and memory each on their own."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(str(record.info["type"]) if by == "type" else "all", []).append(record)
    found = []
    for name, members in groups.items():
        time = _combined(how, [record.time for record in members], pairwise_sum)
        computation, memory = (
            _combined(how, [getattr(record, amount) for record in members]) for amount in ("computation", "memory")
        )
        info: dict[str, str | int] = {"type": name, "count": len(members), "id": "N/A"}
        found.append(Record(time=time or 0.0, info=info, computation=computation or None, memory=memory))
    return found


def _combined(how: str, numbers: Sequence[Number | None], total: Callable[[Any], Number] = sum) -> Number | None:
    """Numbers as one; N/A counts as greater than any number, and a mean is of all members, also those that are N/A."""
    known = [number for number in numbers if number is not None]
    if not known or (how == "max" and len(known) < len(numbers)):
        return None
    if how in ("max", "min"):
        return max(known) if how == "max" else min(known)
    return total(known) / len(numbers) if how == "mean" else total(known)


def pairwise_sum(numbers: Sequence[float]) -> float:
    """The sum in the order in which NumPy adds, so that even its last digit is the same."""
    count = len(numbers)
    if count > 128:
        half = count // 2 - count // 2 % 8
        return pairwise_sum(numbers[:half]) + pairwise_sum(numbers[half:])
    whole = count - count % 8
    a, b, c, d, e, f, g, h = (reduce(add, numbers[place:whole:8], 0.0) for place in range(8))
    return reduce(add, numbers[whole:], ((a + b) + (c + d)) + ((e + f) + (g + h)))


_COLUMNS = (
    "time", "computation", "memory", "flops", "bandwidth", "opr_id", "in_shapes", "out_shapes", "name", "type", "count",
)  # fmt: skip
_ALIASES = {
    "self_time": "time", "device_self_time": "time", "host_self_time": "time", "cumulative": "time", "percent": "time",
    "operator_info": "name", "opr_name": "name", "opr_type": "type", "id": "opr_id", "opr_count": "count",
}  # fmt: skip
"""Printed headers, and the column that they mean: the running sum grows with the time."""


def sort(records: Sequence[Record], order_by: str) -> list[Record]:
    """By a column, falling, or rising with a `+` before it; what is missing comes last in both directions."""
    wanted = order_by.lstrip("+-").strip().lower().replace(" ", "_").replace("-", "_")
    wanted = _ALIASES.get(wanted, wanted)
    if wanted not in _COLUMNS:
        raise UnknownName("column", order_by, [*_COLUMNS, *_ALIASES])

    def column(record: Record) -> Any:
        if wanted == "opr_id":
            number = record.info["id"]
            return int(number) if isinstance(number, str) and number.isdecimal() and len(number) < 20 else None
        return record.info.get(wanted) if wanted in ("name", "type", "count") else getattr(record, wanted)

    known: list[Record] = []
    missing: list[Record] = []
    for record in records:
        value = column(record)
        (missing if value is None or (isinstance(value, float) and math.isnan(value)) else known).append(record)
    return [*sorted(known, key=column, reverse=not order_by.startswith("+")), *missing]


# -- the answer, and the command line -----------------------------------------------------------------------------------


class PrintedColumns(NamedTuple):
    """What MegEngine's tool prints of its answer, under its own names."""

    copy_time: bool = False
    show_host: bool = False
    dump_only_opr: bool = False
    confluence: bool = False
    print_only: Literal["summary", "device", "host"] | None = None


USUAL = PrintedColumns()


def analyze(profile: Profile, question: Question, layout: PrintedColumns = USUAL) -> str:
    """What MegEngine's tool prints in answer to this question; of the keys to aggregate by it knows `type` alone."""
    operators = operators_of(profile)
    name = None
    if question.name:
        try:
            name = re.compile(question.name)
        except re.error as fault:
            hint = "put a backslash before ( [ { * + ? . \\"
            raise OpcostError(f"{question.name!r} is not a regular expression: {fault}", hint=hint) from None
    # Of an element type, in MegEngine's word or ours, in any capitals
    wanted = (dtype_of(question.input_dtype or "") or question.input_dtype or "").casefold()
    chosen = [
        operator
        for operator in operators
        if (not question.type or operator.type in question.type)
        and (name is None or name.match(operator.name))
        and (not question.input_dtype or wanted in map(str.casefold, operator.dtypes))
    ]
    rows: list[tuple[str, str | float]] = []
    for side in ("device", "host"):
        total = _total(operators, side)
        rows.append((f"total {side} time", "N/A" if total is None else total))
    if layout.copy_time:
        copies = [operator for operator in chosen if operator.copies]
        for label, key in (("copy time", "end"), ("copy wait time", "kern")):
            times = [time for operator in copies if (time := operator.time("device", key)) is not None]
            total = pairwise_sum(times)
            rows.append((label, f"tot={total:.4f} avg={total / len(times):.4f}" if times else "N/A"))
    summary = wiki_table(("name", "value"), rows) if layout.confluence else ruled_table(rows)
    if layout.print_only == "summary":
        return summary

    def details(side: str) -> str:
        shortest, longest = question.min_time_ns / 1e9, question.max_time_ns / 1e9
        records = []
        for operator in chosen:
            time = operator.time(side, "kern" if question.measure == "wait" else "end")
            if time is not None and shortest <= time <= longest:
                info: dict[str, str | int] = {"name": operator.name, "type": operator.type, "id": operator.id}
                footprint = msgspec.structs.asdict(operator.footprint)
                footprint["computation"] = footprint["computation"] or None
                records.append(Record(time=time, info=info, **footprint))
        if question.aggregate or question.aggregate_by:
            by = question.aggregate_by[0] if question.aggregate_by else None
            records = aggregate(records, by, question.aggregate or "sum")
        records = sort(records, question.sort)[: question.top or None]
        if layout.dump_only_opr:
            return "\n".join(" ".join(map(str, _words(record))) for record in records)
        return details_text(records, side, _total(operators, side), wiki=layout.confluence)

    if layout.print_only is not None:
        return details(layout.print_only)
    return "\n\n".join([summary, details("device"), *([details("host")] if layout.show_host else [])])


def _total(operators: Sequence[ProfiledOperator], side: str) -> float | None:
    times = [time for operator in operators if (time := operator.time(side, "end")) is not None]
    return pairwise_sum(times) if times else None


def main(passed_args: Sequence[str] | None = None) -> None:
    """Read the command line, print, and leave with 2 where that is impossible."""
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
    options = vars(parser.parse_args(passed_args))
    path = options.pop("dump")
    layout = PrintedColumns(**{name: options.pop(name) for name in PrintedColumns._fields})
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

    def percent(time: float) -> str:
        return f"{time / total * 100:.1f}%" if total else "N/A"

    def scaled(value: Number | None, unit: int) -> str:
        return "N/A" if value is None else f"{value / unit:.1f}"

    longest, fastest, widest = (
        max((value for record in records if (value := getattr(record, name)) is not None), default=0.0)
        for name in ("time", "flops", "bandwidth")
    )
    spent, rows = 0.0, []
    for place, record in enumerate(records):
        spent += record.time
        words, share = _words(record), percent(record.time)
        row: list[Any]
        if wiki:
            row = [
                place, f"{record.time:.3}", share, _bar(record.time, longest), spent, spent / total if total else "N/A",
                *(word.replace("|", "\\|") if isinstance(word, str) else word for word in words),
                scaled(record.computation, 1000**2), scaled(record.flops, 1000**2), _bar(record.flops, fastest),
                scaled(record.memory, 1024**2), scaled(record.bandwidth, 1024**2), _bar(record.bandwidth, widest),
                *_shapes(record, ", "),
            ]  # fmt: skip
        else:
            row = [
                f"#{place}\n{record.time:.3}\n{share}", f"{spent:.3}\n{percent(spent)}",
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


def _bar(value: float | None, most: float) -> str:
    share = value / most if value and most else 0.0
    return "#" * int(share * _BAR) if math.isfinite(share) else ""


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


if __name__ == "__main__":
    main()
