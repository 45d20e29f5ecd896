"""The tree of modules of a page in a browser, as its tests read it."""

from __future__ import annotations

import re
from typing import Any

ROWS = ".tree tbody tr[data-place]"


def names_of(page: Any) -> list[str]:
    """The names in the tree from top to bottom."""
    return [str(text) for text in page.locator(f"{ROWS} .name").all_inner_texts()]


def line_of(page: Any, name: str) -> Any:
    """The first line of the tree with this name."""
    return page.locator(ROWS, has=page.locator(".name", has_text=re.compile(f"^{re.escape(name)}$"))).first


def titles_of(page: Any) -> list[str]:
    """The titles of the columns that the tree shows."""
    return [str(text) for text in page.locator(".tree th").all_inner_texts()]


def cell_of(page: Any, row: int, title: str) -> str:
    """The text in a column of a line of the tree."""
    return str(page.locator(ROWS).nth(row).locator("td").nth(titles_of(page).index(title)).inner_text())


def cut_numbers(page: Any, within: str) -> list[str]:
    """Numbers in the tables there that are wider than their cells."""
    is_cut = "(cell) => cell.clientWidth && cell.scrollWidth > cell.clientWidth"
    return list(
        page.locator(f"{within} td.number").evaluate_all(
            f"(all) => all.filter({is_cut}).map((cell) => cell.textContent)"
        )
    )
