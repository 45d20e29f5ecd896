"""A report or an answer as JSON, every number and nothing rounded.

A report is read back with `opcost.load_report`; `opcost.core.schema` says how.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opcost.core.answer import Answer, AnswerLine
from opcost.core.harmless import json_text
from opcost.core.report import Report
from opcost.core.scan import By, Scan
from opcost.core.schema import to_dict
from opcost.views.answer_listing import NUMBERS, list_answer
from opcost.views.compared import data_of
from opcost.views.listing import Columns, Value
from opcost.views.view import ComparisonView, ProfileView, ReportView, ScanView, Subject, View

ANSWER_SCHEMA = "opcost.answer/1"
SCAN_SCHEMA = "opcost.scan/1"
_GROUPS: tuple[By, ...] = ("type", "module", "layer")


@dataclass(frozen=True, kw_only=True)
class JsonOptions:
    """How the JSON is laid out."""

    indent: int | None = None
    """Spaces for each level; None writes one line."""


@dataclass(frozen=True, kw_only=True)
class ShortJsonOptions(JsonOptions):
    """The same, for something short enough to be read."""

    indent: int | None = 2


def _of_report(report: Report, options: JsonOptions) -> dict[str, Any]:
    return to_dict(report)


@dataclass(frozen=True, kw_only=True)
class AnswerJsonOptions(ShortJsonOptions):
    """The same, and which columns of the lines; without a word all that is known of them."""

    columns: Columns = None


def _of_answer(answer: Answer, options: AnswerJsonOptions) -> dict[str, Any]:
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
        "runs": answer.runs,
        "is_per_run": answer.is_per_run,
        "devices": [{**use._asdict(), "idle_ns": use.idle_ns, "overlap_ns": use.overlap_ns} for use in answer.devices],
        "ranks": [each._asdict() for each in answer.waited],
        "gains": [gain._asdict() for gain in answer.gains],
        "peak": answer.peak,
        "notes": [{"code": note.code, "text": note.text, "where": note.where} for note in answer.notes],
        "lines": [_line(line) for line in answer.lines]
        if options.columns is None
        else _chosen(answer, options.columns),
    }


def _chosen(answer: Answer, columns: Columns) -> list[dict[str, Any]]:
    listing = list_answer(answer, columns)
    return [
        {"role": line.role}
        | {column.name: _plain(value) for column, value in zip(listing.columns, shown.values, strict=True)}
        for line, shown in zip(answer.lines, listing.lines, strict=True)
    ]


def _plain(value: Value) -> Any:
    return list(map(str, value)) if isinstance(value, tuple) else value


def _of_comparison(subject: Subject, options: JsonOptions) -> dict[str, Any]:
    return data_of(subject)


def _line(line: AnswerLine) -> dict[str, Any]:
    return {
        "role": line.role,
        **line.labels,
        **{name: getattr(line, name) for name in NUMBERS},
        "percentiles_ns": list(line.percentiles),
        "above_peak": line.above_peak,
        "bound": line.bound,
        "in_shapes": [None if spec.shape is None else list(spec.shape) for spec in line.ins],
        "in_dtypes": [spec.dtype for spec in line.ins],
        "out_shapes": [None if spec.shape is None else list(spec.shape) for spec in line.outs],
        "kernels": [use._asdict() for use in line.kernels],
    }


def _of_scan(scan: Scan, options: JsonOptions) -> dict[str, Any]:
    totals = scan.totals
    return {
        "schema": SCAN_SCHEMA,
        "source": scan.source,
        "format": scan.format,
        "files": list(scan.files),
        "details": dict(scan.details),
        "totals": {**totals._asdict(), "bits_per_param": totals.bits_per_param},
        "experts": None if scan.experts is None else scan.experts._asdict(),
        "notes": [{"code": note.code, "text": note.text, "where": note.where} for note in scan.notes],
        **{
            f"by_{how}": [
                {
                    "name": each.name,
                    "tensors": each.tensors,
                    "params": each.params,
                    "bytes": each.bytes,
                    "types": list(each.types),
                }
                for each in scan.by(how)
            ]
            for how in _GROUPS
        },
        "tensors": [{**each._asdict(), "shape": list(each.shape)} for each in scan.tensors],
    }


def _write(data: dict[str, Any], options: JsonOptions) -> str:
    separators = (",", ":") if options.indent is None else (",", ": ")
    return json_text(data, allow_nan=False, indent=options.indent, separators=separators) + "\n"


REPORT: ReportView = View(name="json", suffix=".json", options=JsonOptions, build=_of_report, write=_write)
ANSWER: ProfileView = View(name="json", suffix=".json", options=AnswerJsonOptions, build=_of_answer, write=_write)
COMPARISON: ComparisonView = View(
    name="json", suffix=".json", options=ShortJsonOptions, build=_of_comparison, write=_write
)
SCAN: ScanView = View(name="json", suffix=".json", options=JsonOptions, build=_of_scan, write=_write)
