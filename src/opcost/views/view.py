"""What every view is: for whoever asks, something that renders; of the project's own, plain data built first and then written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from opcost.core.collector import without_collector
from opcost.core.report import Report
from opcost.errors import UnknownName


class ReportView(Protocol):
    """One way to show a report as text."""

    @property
    def name(self) -> str:
        """What it is called after `--view`."""

    @property
    def suffix(self) -> str:
        """Of the files that it writes, with the dot; empty where there are none."""

    @property
    def options(self) -> type[Any]:
        """The dataclass of what a caller may choose; a flag of the command line that has the name of a field sets it."""

    def render(self, report: Report, **options: Any) -> str:
        """The report as text, under fields of `options` by their names."""


class ProfileView(Protocol):
    """One way to show, as text, what was asked of a profile."""

    @property
    def name(self) -> str:
        """What it is called in `Answer.render`."""

    @property
    def suffix(self) -> str:
        """Of the files that it writes, with the dot; empty where there are none."""

    @property
    def render(self) -> Callable[..., str]:
        """The method that makes text of an `Answer`; its keyword-only arguments are what a caller may choose."""


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
        check_options(self, options)
        return self.options(**options)


def check_options(view: ReportView, options: Mapping[str, Any]) -> None:
    """Raise for an option that the view does not have."""
    known = [field.name for field in fields(view.options)]
    for name in options:
        if name not in known:
            raise UnknownName(f"option of the {view.name} view", name, known)
