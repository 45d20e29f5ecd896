"""The report as JSON, to be read back with `opcost.load_report`; `opcost.core.schema` says how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from opcost.core.harmless import json_text
from opcost.core.report import Report
from opcost.core.schema import to_dict
from opcost.views.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOptions:
    """How the JSON is laid out."""

    indent: int | None = None
    """Spaces for each level; None writes one line."""


class JsonView(View[JsonOptions, dict[str, Any]]):
    """Everything the report holds."""

    name: ClassVar[str] = "json"
    suffix: ClassVar[str] = ".json"
    options = JsonOptions

    def build(self, report: Report, options: JsonOptions) -> dict[str, Any]:
        return to_dict(report)

    def write(self, data: dict[str, Any], options: JsonOptions) -> str:
        separators = (",", ":") if options.indent is None else (",", ": ")
        return json_text(data, allow_nan=False, indent=options.indent, separators=separators) + "\n"


VIEW = JsonView()
