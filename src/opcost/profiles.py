"""A profile as users get it: what was measured, with methods that query, print and save it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from os import PathLike
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.core import profile as measured
from opcost.core.files import is_stream, write_text
from opcost.core.plugin import load_view, view_for_suffix
from opcost.core.profile import Answer
from opcost.core.profile_schema import dumps
from opcost.core.sheet import Sheet
from opcost.core.showing import show_page
from opcost.rules import default_rules

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from opcost.options import Querying

ROWS = 5_000  # rows of the table on a page, below the views of all operators


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Profile(measured.Profile):
    """What was measured, in the order of execution; it answers questions."""

    def query(self, **options: Unpack[Querying]) -> Answer:
        """Ask: `profile.query(kind="conv", top=5, aggregate_by="type")`; `opcost.options.Querying` explains each option."""
        from opcost.analysis.query import query

        return query(self, **options)

    def breakdown(self) -> Sheet:
        """Where the time of each device went: computing, communication, copies, idle by cause."""
        from opcost.analysis.breakdown import breakdown

        return breakdown(self)

    def allocations(self) -> Sheet:
        """Memory as the allocators recorded it: the peak of each device, its owners, and memory over time."""
        from opcost.analysis.breakdown import memory

        return memory(self)

    def communication(self) -> Sheet:
        """Collectives by type, group and size, with their rates, and stragglers."""
        from opcost.analysis.breakdown import communication

        return communication(self)

    def critical_path(self) -> Sheet:
        """What of host, launches, kernels and collectives decides how long the run takes, and what would help."""
        from opcost.analysis.critical_path import critical_path

        return critical_path(self)

    def launches(self) -> Sheet:
        """How far the host was ahead of its devices over time, and where they waited for it."""
        from opcost.analysis.critical_path import launches

        return launches(self)

    def answer(self, **options: Unpack[Querying]) -> Answer:
        """The answer to a query; without options what `str` shows: the operators, added up where they have no names."""
        return self.query(**options) if options else self.query(aggregate_by=self.usual_keys)

    def __str__(self) -> str:
        return str(self.answer())

    def _repr_html_(self) -> str:
        return self.answer()._repr_html_()

    def page(self, device: Any = None) -> str:
        """Its page as HTML, with rates compared with the peaks of a device."""
        return self._written(load_view("html", "profile"), top=ROWS, device=device)

    def view(self, device: Any = None) -> Path | None:
        """Show its page, in a notebook below the cell, else in a browser; the file that the browser shows."""
        return show_page(self.page(device))

    def _written(self, view: Any, **query: Any) -> str:
        answer = self.query(aggregate_by=self.usual_keys, **query)
        return str(view.render(answer, **more_for(view, self)))

    def to_dict(self, **options: Unpack[Querying]) -> dict[str, list[Any]]:
        """The answer of `query` as columns, named as for `--columns`; times in nanoseconds."""
        return self.answer(**options).to_dict()

    def to_pandas(self, **options: Unpack[Querying]) -> Any:
        """The same as a `pandas.DataFrame`."""
        return self.answer(**options).to_pandas()

    def to_polars(self, **options: Unpack[Querying]) -> Any:
        """The same as a `polars.DataFrame`."""
        return self.answer(**options).to_polars()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the profile: to a `.json` all of it, for `opcost.read_profile`; to other files what `str` shows, by the suffix.

        Whatever goes wrong, the old file is as it was.
        """
        view = None if is_stream(path) else view_for_suffix(path, "profile")
        if view is None or view.suffix == ".json":
            write_text(path, dumps(self))
        else:
            write_text(path, self._written(view))


def more_for(view: Any, found: measured.Profile) -> dict[str, Any]:
    """What a view that draws more of a profile than an answer has is given: the profile with costs, and tables about it."""
    from opcost.views.view import option_names

    whole = askable(found)
    makers: dict[str, Callable[[], Any]] = {
        "profile": lambda: with_default_costs(found),
        "sheets": lambda: (whole.breakdown(), whole.communication(), whole.allocations()),
    }
    return {name: make() for name, make in makers.items() if name in option_names(view, "profile")}


def with_default_costs(found: measured.Profile) -> measured.Profile:
    """The profile with a cost on every row that can have one."""
    from opcost.analysis.join import with_costs

    return with_costs(found, default_rules())


def askable(found: measured.Profile) -> Profile:
    """What a recorder or a reader found, for users; a prediction, which is one already, stays what it is."""
    if isinstance(found, Profile):
        return found
    return Profile(**{field.name: getattr(found, field.name) for field in fields(found)})


def find_trace(path: str | PathLike[str]) -> Callable[[], measured.Profile] | None:
    """The function that reads the trace that a source is; None for any other source."""
    from opcost.traces.file import TraceFile
    from opcost.traces.registry import claimant

    if not isfile(path):  # noqa: PTH113 - it takes any name
        return None
    file = TraceFile(path)
    reader = claimant(file)
    return None if reader is None else partial(reader.read, file)
