"""What reports, answers, scans, comparisons and verdicts have in common: they are printed, saved and handed on as tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from os import PathLike
from typing import Any, ClassVar

from opcost.core.spelling import shows_unicode


class Shown:
    """Something that views draw: as a table, Markdown, CSV, JSON or a page, and as columns for data frames."""

    __slots__ = ()

    views: ClassVar[str]
    """The group of views that draw it."""

    def __str__(self) -> str:
        return self.render("table", ascii=not shows_unicode(sys.stdout))

    def _repr_html_(self) -> str:
        return self.render("notebook")

    def render(self, view: str = "table", **options: Any) -> str:
        """It as text in a named view: table, md, csv, json, ... (`opcost doctor` lists them)."""
        from opcost.core.plugin import load

        return str(load(self.views, view).render(self, **options))

    def save(self, path: str | PathLike[str], **options: Any) -> None:
        """Write it to a file; the suffix chooses the view. Whatever goes wrong, the old file is as it was."""
        from opcost.core.plugin import view_for_suffix

        write_view(path, view_for_suffix(path, self.views), self, options)

    def to_dict(self, **options: Any) -> dict[str, list[Any]]:
        """Its lines as columns, called as after `--columns`: nothing rounded, times in nanoseconds, the unknown None.

        The options are those of the `columns` view: of a report `by="op"`, "module", "kind" or "type"; of what was asked of a
        profile and of a scan `columns`.
        """
        from opcost.core.plugin import load

        columns: dict[str, list[Any]] = load(self.views, "columns").data(self, **options)
        return columns

    def to_pandas(self, **options: Any) -> Any:
        """The same as a `pandas.DataFrame`."""
        from opcost.core.frames import pandas_frame

        return pandas_frame(self.to_dict(**options))

    def to_polars(self, **options: Any) -> Any:
        """The same as a `polars.DataFrame`."""
        from opcost.core.frames import polars_frame

        return polars_frame(self.to_dict(**options))


def write_view(path: str | PathLike[str], view: Any, subject: object, options: Mapping[str, Any]) -> None:
    """Write something to a file as a view shows it: as text, or as what else the view makes."""
    from opcost.core.writing import write_bytes, write_text

    if hasattr(view, "packed"):
        write_bytes(path, view.packed(subject, **options))
    else:
        write_text(path, str(view.render(subject, **options)))
