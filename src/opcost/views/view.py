"""What every view is: for whoever asks, something that renders; of the project's own, plain data built first and then written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from opcost.core.answer import Answer
from opcost.core.budget import Verdict
from opcost.core.collector import without_collector
from opcost.core.comparison import Comparison
from opcost.core.fit import Fit
from opcost.core.report import Report
from opcost.core.scan import Scan
from opcost.core.sheet import Sheet
from opcost.core.sweep import Sweep
from opcost.errors import UnknownName

Subject_contra = TypeVar("Subject_contra", contravariant=True)
Options = TypeVar("Options")
Data = TypeVar("Data")


class Renders(Protocol[Subject_contra]):
    """One way to show something as text."""

    @property
    def name(self) -> str:
        """What it is called after `--view`, or in `render`."""

    @property
    def suffix(self) -> str:
        """Of the files that it writes, with the dot; empty where there are none."""

    @property
    def options(self) -> type[Any]:
        """The dataclass of what a caller may choose; a flag of the command line that has the name of a field sets it."""

    def render(self, subject: Subject_contra, /, **options: Any) -> str:
        """It as text, under fields of `options` by their names."""


ReportView: TypeAlias = Renders[Report]
ProfileView: TypeAlias = Renders[Answer]
"""Shows what was asked of a profile."""
Subject: TypeAlias = "Comparison | Verdict | Fit | Sweep | Sheet"
ComparisonView: TypeAlias = Renders[Subject]
"""Shows several models side by side, what differs between two, whether models keep to their budgets, what sizes do to one, or
tables about a profile."""
ScanView: TypeAlias = Renders[Scan]
"""Shows what a checkpoint holds."""


@dataclass(frozen=True, kw_only=True)
class View(Generic[Subject_contra, Options, Data]):
    """One way to show a report or an answer; `options` is the frozen dataclass of what a caller may choose."""

    name: str
    suffix: str = ""
    options: type[Options]
    build: Callable[[Subject_contra, Options], Data]
    """The picture as plain data."""
    write: Callable[[Data, Options], str]
    """The data as text."""

    def render(self, subject: Subject_contra, /, **options: Any) -> str:
        """It as text under these options; a misspelt option is an error."""
        chosen = self.choose(**options)
        with without_collector():
            return self.write(self.build(subject, chosen), chosen)

    def data(self, subject: Subject_contra, /, **options: Any) -> Data:
        """It as the plain data that is written."""
        return self.build(subject, self.choose(**options))

    def choose(self, **options: Any) -> Options:
        """The options of this view with some of them set by name."""
        check_options(self, options)
        return self.options(**options)


@dataclass(frozen=True, kw_only=True)
class PackedView(View[Subject_contra, Options, Data]):
    """A view whose files are not text, such as pictures of points; the text of it says the same."""

    pack: Callable[[Data, Options], bytes]
    """The data as the content of a file."""

    def packed(self, subject: Subject_contra, /, **options: Any) -> bytes:
        """It as the content of a file under these options."""
        chosen = self.choose(**options)
        return self.pack(self.build(subject, chosen), chosen)


def check_options(view: Renders[Any], options: Mapping[str, Any]) -> None:
    """Raise for an option that the view does not have."""
    known = option_names(view)
    for name in options:
        if name not in known:
            raise UnknownName(f"option of the {view.name} view", name, known)


def option_names(view: Renders[Any]) -> list[str]:
    """What a caller may choose."""
    return [field.name for field in fields(view.options)]
