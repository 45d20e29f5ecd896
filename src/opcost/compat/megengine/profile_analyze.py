"""`python -m opcost.compat.megengine.profile_analyze`: MegEngine's command line and text, on any trace that opcost reads.

It answers where MegEngine's tool stops: sorting and aggregating where some operator has no computation, `--order-by FLOPS`,
`--input-dtype`, `--copy-time` without a copy, a wiki table without a row, names of aggregated operators.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from opcost.compat.megengine.profile_records import (
    Operator,
    aggregate,
    operators_of,
    pairwise_sum,
    reads,
    records_of,
    sort,
)
from opcost.compat.megengine.profile_tables import Cell
from opcost.compat.megengine.profile_text import details_text, names_text, summary_text
from opcost.core.harmless import printable
from opcost.core.profile import Profile
from opcost.errors import OpcostError


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """MegEngine's options, under its own names."""

    top: int = 3
    type: tuple[str, ...] = ()
    aggregate_by: str | None = None
    aggregate: str | None = None
    opr_name: str | None = None
    input_dtype: str | None = None
    top_end_key: Literal["end", "kern"] = "end"
    order_by: str = "time"
    copy_time: bool = False
    min_time: float = float("-inf")
    max_time: float = float("inf")
    """Bounds in seconds."""
    show_host: bool = False
    dump_only_opr: bool = False
    confluence: bool = False
    print_only: Literal["summary", "device", "host"] | None = None


def analyze(profile: Profile, wish: Wish) -> str:
    """What MegEngine's tool prints for these options."""
    operators = operators_of(profile)
    chosen = _filtered(operators, wish)
    if wish.print_only == "summary":
        return _summary(operators, chosen, wish)
    if wish.print_only is not None:
        return _details(chosen, wish.print_only, _total(operators, wish.print_only), wish)
    parts = [_summary(operators, chosen, wish), _details(chosen, "device", _total(operators, "device"), wish)]
    if wish.show_host:
        parts.append(_details(chosen, "host", _total(operators, "host"), wish))
    return "\n\n".join(parts)


def _filtered(operators: Sequence[Operator], wish: Wish) -> list[Operator]:
    name = None
    if wish.opr_name:
        try:
            name = re.compile(wish.opr_name)
        except re.error as fault:
            raise OpcostError(
                f"{wish.opr_name!r} is not a regular expression: {fault}",
                hint="put a backslash before ( [ { * + ? . \\",
            ) from None
    return [
        operator
        for operator in operators
        if (not wish.type or operator.type in wish.type)
        and (name is None or name.match(operator.name))
        and (not wish.input_dtype or reads(operator, wish.input_dtype))
    ]


def _total(operators: Sequence[Operator], side: str) -> float | None:
    times = [time for operator in operators if (time := operator.time(side, "end")) is not None]
    return pairwise_sum(times) if times else None


def _summary(operators: Sequence[Operator], chosen: Sequence[Operator], wish: Wish) -> str:
    rows: list[tuple[str, Cell]] = []
    for side in ("device", "host"):
        total = _total(operators, side)
        rows.append((f"total {side} time", "N/A" if total is None else total))
    if wish.copy_time:
        copies = [operator for operator in chosen if operator.copies]
        for label, key in (("copy time", "end"), ("copy wait time", "kern")):
            times = [time for operator in copies if (time := operator.time("device", key)) is not None]
            total = pairwise_sum(times)
            rows.append((label, f"tot={total:.4f} avg={total / len(times):.4f}" if times else "N/A"))
    return summary_text(rows, wiki=wish.confluence)


def _details(chosen: Sequence[Operator], side: str, total: float | None, wish: Wish) -> str:
    def time_of(operator: Operator) -> float | None:
        time = operator.time(side, wish.top_end_key)
        return None if time is None or not wish.min_time <= time <= wish.max_time else time

    records = records_of(chosen, time_of)
    if wish.aggregate or wish.aggregate_by:
        records = aggregate(records, wish.aggregate_by, wish.aggregate or "sum")
    records = sort(records, wish.order_by)[: wish.top or None]
    if wish.dump_only_opr:
        return names_text(records)
    return details_text(records, side, total, wiki=wish.confluence)


def main(passed_args: Sequence[str] | None = None) -> None:
    """Read the command line, print, and leave with 2 where that is impossible."""
    options = vars(_parser().parse_args(passed_args))
    path = options.pop("dump")
    options["type"] = tuple(options["type"] or ())
    try:
        from opcost.analysis.join import with_costs
        from opcost.rules import default_rules
        from opcost.traces.registry import read

        profile = read(path)
        if "megengine" not in profile.extra:
            profile = with_costs(profile, default_rules())
        print(analyze(profile, Wish(**options)))
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
    add("--aggregate-by", default=None, choices=["type"], help="one line for all operators of a type")
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


if __name__ == "__main__":
    main()
