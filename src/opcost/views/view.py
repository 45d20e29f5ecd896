"""What every view is: plain data built from a report, then text written from the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, ClassVar, Generic, TypeVar

from opcost.core.collector import without_collector
from opcost.core.report import Report
from opcost.errors import UnknownName

Options = TypeVar("Options")
Data = TypeVar("Data")


class View(ABC, Generic[Options, Data]):
    """One way to show a report; `options` is the frozen dataclass of what a caller may choose."""

    name: ClassVar[str]
    suffix: ClassVar[str] = ""
    """Of the files that this view writes; empty where there are none."""
    options: type[Options]

    @abstractmethod
    def build(self, report: Report, options: Options) -> Data:
        """The picture as plain data."""

    @abstractmethod
    def write(self, data: Data, options: Options) -> str:
        """The data as text."""

    def render(self, report: Report, **options: Any) -> str:
        """The report as text under these options; a misspelt option is an error."""
        chosen = self.choose(**options)
        with without_collector():
            return self.write(self.build(report, chosen), chosen)

    def choose(self, **options: Any) -> Options:
        """The options of this view with some of them set by name."""
        known = [field.name for field in fields(self.options)]  # type: ignore[arg-type]
        for name in options:
            if name not in known:
                raise UnknownName(f"option of the {self.name} view", name, known)
        return self.options(**options)
