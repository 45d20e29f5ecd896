"""accelerate's table and its sizes."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.core.harmless import printable


def convert_bytes(size: float) -> str:
    """A size in the largest unit of which it has at least one."""
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if size < 1024:
            return f"{round(size, 2)} {unit}"
        size /= 1024
    return f"{round(size, 2)} PB"


def create_ascii_table(headers: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> str:
    """A framed table with a title; a long title makes the last column wider."""
    rows = [[printable(cell) for cell in row] for row in rows]
    title = printable(title)
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    inside = sum(widths) + len(widths) - 1
    if len(title) > sum(widths):
        widths[-1] += max(len(title) - inside, 0)
        inside = sum(widths) + len(widths) - 1

    def line(cells: Sequence[str]) -> str:
        return "│" + "│".join(cell.center(width) for cell, width in zip(cells, widths, strict=True)) + "│"

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * width for width in widths) + right

    head = [rule("┌", "─", "┐"), f"│{title.center(inside)}│", rule("├", "┬", "┤"), line(headers), rule("├", "┼", "┤")]
    return "\n".join([*head, *map(line, rows), rule("└", "┴", "┘")])
