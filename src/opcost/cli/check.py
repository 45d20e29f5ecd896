"""`opcost check SOURCE --max-macs 4.2G`."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from cyclopts import Group

from opcost.cli.counting import report_of
from opcost.cli.options import CountChoice, Quiet, SourceArgument, parameter
from opcost.cli.saying import say
from opcost.core.report import Report
from opcost.core.units import format_bytes, format_count, parse_bytes, parse_count
from opcost.errors import OpcostError

BUDGET = Group("The budget", sort_key=0)

COUNT = parameter(group=BUDGET, metavar="COUNT")
SIZE = parameter(group=BUDGET, metavar="SIZE")


class Limit(NamedTuple):
    """One line of the budget: what was counted, and what is allowed."""

    quantity: str
    counted: int
    allowed: int

    def __str__(self) -> str:
        shown = format_bytes if self.quantity.endswith("bytes") else format_count
        verdict = "ok" if self.counted <= self.allowed else "EXCEEDED"
        return f"{verdict:<9} {self.quantity:<17} {shown(self.counted):>11} of {shown(self.allowed):>11}  ({self.counted:,})"


def check(
    source: SourceArgument,
    /,
    *,
    max_params: Annotated[str | None, COUNT, parameter(help="Parameters, as 25.6M or 25,557,032.")] = None,
    max_macs: Annotated[str | None, COUNT, parameter(help="Multiply-accumulates, as 4.2G.")] = None,
    max_flops: Annotated[str | None, COUNT, parameter(help="Floating-point operations.")] = None,
    max_activations: Annotated[str | None, COUNT, parameter(help="Elements that the forward pass writes.")] = None,
    max_param_bytes: Annotated[str | None, SIZE, parameter(help="Bytes of the parameters, as 512MiB or 1.5GB.")] = None,
    max_activation_bytes: Annotated[str | None, SIZE, parameter(help="Bytes that the forward pass writes.")] = None,
    max_peak_bytes: Annotated[str | None, SIZE, parameter(help="Highest memory in use at once.")] = None,
    allow_uncounted: Annotated[
        bool,
        parameter(
            group=BUDGET, help="Pass although some operators have no price, so that the counts are lower bounds."
        ),
    ] = False,
    choice: CountChoice | None = None,
    quiet: Quiet = False,
) -> int:
    """Compare a model's cost with a budget. The exit code is 1 if the budget is exceeded."""
    budget = {
        "params": max_params,
        "macs": max_macs,
        "flops": max_flops,
        "activations": max_activations,
        "param_bytes": max_param_bytes,
        "activation_bytes": max_activation_bytes,
        "peak_bytes": max_peak_bytes,
    }
    allowed = {
        name: (parse_bytes if name.endswith("bytes") else parse_count)(text)
        for name, text in budget.items()
        if text is not None
    }
    if not allowed:
        raise OpcostError("no budget was given", hint="write, for example, --max-macs 4.2G")
    report = report_of(source, choice or CountChoice(), quiet=quiet)
    limits = [Limit(name, counted(report, name), most) for name, most in allowed.items()]
    missed = () if allow_uncounted else report.coverage.uncounted
    for limit in limits:
        say(str(limit))
    for operator in missed:
        say(f"UNKNOWN   {operator.raw} has no price ({operator.reason}), so what was counted is a lower bound")
    return 1 if missed or any(limit.counted > limit.allowed for limit in limits) else 0


def counted(report: Report, quantity: str) -> int:
    """A quantity of the whole model by its name."""
    return report.peak_bytes if quantity == "peak_bytes" else int(getattr(report.totals, quantity))
