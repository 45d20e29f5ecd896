"""A view: a report in one sentence. `--view brief` prints it, and `-o net.brief` writes it."""

from dataclasses import dataclass
from typing import Any

from opcost.plugins import Report, View


@dataclass(frozen=True)
class BriefOptions:
    """What a caller may choose; of the options of the command line, those with the same name arrive here."""

    exact: bool = False


class BriefView:
    """What it has to have is written in `opcost.plugins.View`."""

    name = "brief"
    suffix = ".brief"
    results = {"report": BriefOptions}  # noqa: RUF012 - as the protocol has it

    def render(self, report: Report, **options: Any) -> str:
        chosen = BriefOptions(**options)
        flops = report.totals.flops
        return f"{report.meta['source']}: {f'{flops:,}' if chosen.exact else f'{flops:.1e}'} FLOPs\n"


VIEW: View = BriefView()
