"""What a model costs as a badge: a word beside each number, for the first lines of a README."""

from __future__ import annotations

from opcost.core.report import Report
from opcost.core.units import format_count
from opcost.views.svg.drawing import Drawing

HIGH = 20
LETTER = 6.4
"""Pixels of a letter at the size of a badge."""


def badge_numbers(report: Report) -> list[tuple[str, str]]:
    """The words and numbers; a sum that misses something is a lower bound."""
    least = "≥" if report.totals.uncounted else ""
    return [
        ("params", format_count(report.totals.params)),
        ("MACs", f"{least}{format_count(report.totals.macs)}"),
        ("FLOPs", f"{least}{format_count(report.totals.flops)}"),
    ]


def badge(report: Report) -> Drawing:
    """Pairs of a word on grey and a number on blue."""
    pairs = badge_numbers(report)
    widths = [(len(word) * LETTER + 12, len(number) * LETTER + 12) for word, number in pairs]
    gap = 4.0
    whole = sum(a + b + gap for a, b in widths) - gap
    drawing = Drawing(whole, HIGH, ", ".join(f"{word} {number}" for word, number in pairs))
    x = 0.0
    for (word, number), (left, right) in zip(pairs, widths, strict=True):
        drawing.rect(x, 0, left, HIGH, fill="#4a525c")
        drawing.rect(x + left, 0, right, HIGH, fill="#0a5fa8")
        drawing.text(x + left / 2, 14, word, fill="#fff", anchor="middle")
        drawing.text(x + left + right / 2, 14, number, fill="#fff", anchor="middle")
        x += left + right + gap
    return drawing
