"""`python -m opcost.compat.megengine.profile_analyze`: MegEngine's command line and text, on any trace that opcost reads.

It answers where MegEngine's tool stops: sorting and aggregating where some operator has no computation, `--order-by FLOPS`,
`--input-dtype`, `--copy-time` without a copy, a wiki table without a row, names of aggregated operators.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Literal, NamedTuple

from opcost.analysis.query import Question
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
    operators = operators_of(profile)
    chosen = _filtered(operators, question)
    summary = _summary(operators, chosen, layout)
    if layout.print_only == "summary":
        return summary

    def details(side: str) -> str:
        return _details(chosen, side, _total(operators, side), question, layout)

    if layout.print_only is not None:
        return details(layout.print_only)
    return "\n\n".join([summary, details("device"), *([details("host")] if layout.show_host else [])])


def _filtered(operators: Sequence[Operator], question: Question) -> list[Operator]:
    name = None
    if question.name:
        try:
            name = re.compile(question.name)
        except re.error as fault:
            raise OpcostError(
                f"{question.name!r} is not a regular expression: {fault}",
                hint="put a backslash before ( [ { * + ? . \\",
            ) from None
    return [
        operator
        for operator in operators
        if (not question.type or operator.type in question.type)
        and (name is None or name.match(operator.name))
        and (not question.input_dtype or reads(operator, question.input_dtype))
    ]


def _total(operators: Sequence[Operator], side: str) -> float | None:
    times = [time for operator in operators if (time := operator.time(side, "end")) is not None]
    return pairwise_sum(times) if times else None


def _summary(operators: Sequence[Operator], chosen: Sequence[Operator], layout: Layout) -> str:
    rows: list[tuple[str, Cell]] = []
    for side in ("device", "host"):
        total = _total(operators, side)
        rows.append((f"total {side} time", "N/A" if total is None else total))
    if layout.copy_time:
        copies = [operator for operator in chosen if operator.copies]
        for label, key in (("copy time", "end"), ("copy wait time", "kern")):
            times = [time for operator in copies if (time := operator.time("device", key)) is not None]
            total = pairwise_sum(times)
            rows.append((label, f"tot={total:.4f} avg={total / len(times):.4f}" if times else "N/A"))
    return summary_text(rows, wiki=layout.confluence)


def _details(chosen: Sequence[Operator], side: str, total: float | None, question: Question, layout: Layout) -> str:
    shortest, longest = question.min_time_ns / 1e9, question.max_time_ns / 1e9

    def time_of(operator: Operator) -> float | None:
        time = operator.time(side, "kern" if question.measure == "wait" else "end")
        return None if time is None or not shortest <= time <= longest else time

    records = records_of(chosen, time_of)
    if question.aggregate or question.aggregate_by:
        by = question.aggregate_by[0] if question.aggregate_by else None
        records = aggregate(records, by, question.aggregate or "sum")
    records = sort(records, question.sort)[: question.top or None]
    if layout.dump_only_opr:
        return names_text(records)
    return details_text(records, side, total, wiki=layout.confluence)


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
        options["name"] = options.pop("opr_name")
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


if __name__ == "__main__":
    main()
