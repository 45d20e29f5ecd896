"""An answer about a profile as text: a table for the terminal, JSON, CSV, or a GitHub table."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from opcost.core.answer import Answer, AnswerLine
from opcost.core.harmless import csv_cell, json_text, markdown_text, printable
from opcost.views.cell import listing_texts, wrap
from opcost.views.layout import Drawing, draw_listing
from opcost.views.page import NARROWEST, plain
from opcost.views.profile_listing import list_answer, summary_lines
from opcost.views.table import terminal_width
from opcost.views.view import ProfileView

SCHEMA = "opcost.answer/1"

_NUMBERS = (
    "id", "count", "time_ns", "host_ns", "device_ns", "wait_ns", "share", "cumulative_ns", "computation", "flops", "memory",
    "bandwidth", "intensity", "of_peak_flops", "of_peak_bandwidth", "unpriced", "launches",
    "delay_ns", "delay_p90_ns",
)  # fmt: skip


class TableView:
    """What `opcost analyze` prints: the lines, and below them what they must be seen against."""

    name = "table"
    suffix = ".txt"

    def render(
        self,
        answer: Answer,
        *,
        width: int | None = None,
        columns: str | Sequence[str] | None = None,
        exact: bool = False,
    ) -> str:
        """The table, as wide as the terminal unless told."""
        room = max(terminal_width() if width is None else width, NARROWEST)
        heading = f"{answer.meta.get('source', 'profile')} ({answer.meta.get('format', 'opcost')})"
        drawn = draw_listing(list_answer(answer, columns), Drawing(width=room, exact=exact))
        said = [line for text in summary_lines(answer) for line in wrap(text, room, indent=2)]
        return "\n".join([printable(heading), "", plain(drawn).rstrip("\n"), "", *said]).rstrip("\n") + "\n"


class MarkdownView:
    """For issues and pull requests."""

    name = "md"
    suffix = ".md"

    def render(self, answer: Answer, *, columns: str | Sequence[str] | None = None, exact: bool = False) -> str:
        """A GitHub table with everything else as a list below it."""
        listing = list_answer(answer, columns)
        places = [place for place in range(len(listing.columns)) if not listing.is_dull(place)]
        shown = [listing.columns[place] for place in places]
        heads = [column.title for column in shown]
        rules = [":---" if column.unit in ("name", "text", "shapes") else "---:" for column in shown]
        texts = [[markdown_text(text) for text in listing_texts(listing, place, exact=exact)] for place in places]
        rows = ["| " + " | ".join(row) + " |" for row in (heads, rules, *zip(*texts, strict=True))]
        said = [f"- {markdown_text(text)}" for text in summary_lines(answer)]
        return "\n".join([*rows, "", *said]).rstrip("\n") + "\n"


class JsonView:
    """For programs: every number, nothing rounded."""

    name = "json"
    suffix = ".json"

    def render(self, answer: Answer, *, indent: int | None = 2) -> str:
        """One object with the lines under `lines`."""
        data = {
            "schema": SCHEMA,
            "meta": dict(answer.meta),
            "side": answer.side,
            "keys": list(answer.keys),
            "aggregate": answer.how,
            "percentiles": list(answer.percentiles),
            "total_ns": answer.total_ns,
            "host_ns": answer.host_ns,
            "device_ns": answer.device_ns,
            "unattributed_ns": answer.unattributed_ns,
            "wall_ns": answer.wall_ns,
            "devices": [
                {**use._asdict(), "idle_ns": use.idle_ns, "overlap_ns": use.overlap_ns} for use in answer.devices
            ],
            "peak": answer.peak,
            "notes": [{"code": note.code, "text": note.text, "where": note.where} for note in answer.notes],
            "lines": [_line(line) for line in answer.lines],
        }
        return json_text(data, allow_nan=False, indent=indent) + "\n"


class CsvView:
    """For spreadsheets: one record per line, times in nanoseconds."""

    name = "csv"
    suffix = ".csv"

    def render(self, answer: Answer) -> str:
        """A header and the lines, `role` telling rows from sums."""
        labels = list(dict.fromkeys(key for line in answer.lines for key in line.labels))
        percentiles = [f"p{percent:g}_ns" for percent in answer.percentiles]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["role", *labels, *_NUMBERS, *percentiles, "in_shapes", "out_shapes", "kernel"])
        for line in answer.lines:
            numbers = [_plain(getattr(line, name)) for name in _NUMBERS]
            found = [_plain(value) for value in line.percentiles] or [""] * len(percentiles)
            writer.writerow(
                [
                    line.role,
                    *(csv_cell(line.labels.get(key, "")) for key in labels),
                    *numbers,
                    *found,
                    ", ".join(map(str, line.ins)),
                    ", ".join(map(str, line.outs)),
                    csv_cell(line.kernels[0].name) if line.kernels else "",
                ]
            )
        return out.getvalue()


def _line(line: AnswerLine) -> dict[str, Any]:
    return {
        "role": line.role,
        **line.labels,
        **{name: getattr(line, name) for name in _NUMBERS},
        "percentiles_ns": list(line.percentiles),
        "above_peak": line.above_peak,
        "in_shapes": [None if spec.shape is None else list(spec.shape) for spec in line.ins],
        "in_dtypes": [spec.dtype for spec in line.ins],
        "out_shapes": [None if spec.shape is None else list(spec.shape) for spec in line.outs],
        "kernels": [use._asdict() for use in line.kernels],
    }


def _plain(value: Any) -> Any:
    return "" if value is None else int(value) if isinstance(value, float) and value.is_integer() else value


TABLE: ProfileView = TableView()
MARKDOWN: ProfileView = MarkdownView()
JSON: ProfileView = JsonView()
CSV: ProfileView = CsvView()
