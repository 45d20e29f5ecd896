"""What comparisons, verdicts and answers about sizes have in common: they are printed and saved by the views of comparisons."""

from __future__ import annotations

from os import PathLike
from typing import Any


class Shown:
    """Something that a view draws: as a table, Markdown, CSV, JSON or a page."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.render("table")

    def _repr_html_(self) -> str:
        return self.render("html")

    def render(self, view: str = "table", **options: Any) -> str:
        """It as text: table, md, csv, json, html."""
        from opcost.core.plugin import COMPARISON_VIEWS, load

        return str(load(COMPARISON_VIEWS, view).render(self, **options))

    def save(self, path: str | PathLike[str], **options: Any) -> None:
        """Write it to a file; the suffix chooses the view. Whatever goes wrong, the old file is as it was."""
        from opcost.core.plugin import COMPARISON_VIEWS, view_for_suffix
        from opcost.core.writing import write_text

        write_text(path, view_for_suffix(path, COMPARISON_VIEWS).render(self, **options))
