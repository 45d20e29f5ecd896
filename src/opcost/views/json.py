"""A report or an answer as JSON, every number and nothing rounded.

A report is read back with `opcost.load_report`; `opcost.core.schema` says how.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opcost.core.answer import Answer, AnswerLine
from opcost.core.harmless import json_text
from opcost.core.report import Report
from opcost.core.schema import to_dict
from opcost.views.answer_listing import NUMBERS
from opcost.views.view import ProfileView, ReportView, View

ANSWER_SCHEMA = "opcost.answer/1"


@dataclass(frozen=True, kw_only=True)
class JsonOptions:
    """How the JSON is laid out."""

    indent: int | None = None
    """Spaces for each level; None writes one line."""


@dataclass(frozen=True, kw_only=True)
class AnswerJsonOptions(JsonOptions):
    """The same, for something short enough to be read."""

    indent: int | None = 2


def _of_report(report: Report, options: JsonOptions) -> dict[str, Any]:
    return to_dict(report)


def _of_answer(answer: Answer, options: JsonOptions) -> dict[str, Any]:
    return {
        "schema": ANSWER_SCHEMA,
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
        "devices": [{**use._asdict(), "idle_ns": use.idle_ns, "overlap_ns": use.overlap_ns} for use in answer.devices],
        "peak": answer.peak,
        "notes": [{"code": note.code, "text": note.text, "where": note.where} for note in answer.notes],
        "lines": [_line(line) for line in answer.lines],
    }


def _line(line: AnswerLine) -> dict[str, Any]:
    return {
        "role": line.role,
        **line.labels,
        **{name: getattr(line, name) for name in NUMBERS},
        "percentiles_ns": list(line.percentiles),
        "above_peak": line.above_peak,
        "in_shapes": [None if spec.shape is None else list(spec.shape) for spec in line.ins],
        "in_dtypes": [spec.dtype for spec in line.ins],
        "out_shapes": [None if spec.shape is None else list(spec.shape) for spec in line.outs],
        "kernels": [use._asdict() for use in line.kernels],
    }


def _write(data: dict[str, Any], options: JsonOptions) -> str:
    separators = (",", ":") if options.indent is None else (",", ": ")
    return json_text(data, allow_nan=False, indent=options.indent, separators=separators) + "\n"


REPORT: ReportView = View(name="json", suffix=".json", options=JsonOptions, build=_of_report, write=_write)
ANSWER: ProfileView = View(name="json", suffix=".json", options=AnswerJsonOptions, build=_of_answer, write=_write)
