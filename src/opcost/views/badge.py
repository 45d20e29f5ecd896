"""The badge of a report: parameters, MACs and FLOPs, as a line of text and as SVG for a README."""

from __future__ import annotations

from opcost.core.report import Report
from opcost.core.units import format_count
from opcost.views.view import Build, View, ViewOptions

HEIGHT, GAP = 20, 4
LETTER, PADDING = 6.4, 12  # pixels: the average width of a letter, and what is free beside a word
GREY, BLUE = "#4a525c", "#0a5fa8"


def badge_numbers(report: Report) -> list[tuple[str, str]]:
    """The words and numbers; where operators are not counted, sums are lower bounds."""
    least = "≥" if report.totals.uncounted else ""
    return [
        ("params", format_count(report.totals.params)),
        ("MACs", f"{least}{format_count(report.totals.macs)}"),
        ("FLOPs", f"{least}{format_count(report.totals.flops)}"),
    ]


def badge_svg(numbers: list[tuple[str, str]]) -> str:
    """Pairs of a word on grey and a number on blue."""
    shapes: list[str] = []
    x = 0.0
    for pair in numbers:
        for text, colour in zip(pair, (GREY, BLUE), strict=True):
            width = len(text) * LETTER + PADDING
            shapes += [
                f'<rect x="{x:g}" y="0" width="{width:g}" height="{HEIGHT}" fill="{colour}"/>',
                f'<text x="{x + width / 2:g}" y="14" fill="#fff" text-anchor="middle">{text}</text>',
            ]
            x += width
        x += GAP
    width = x - GAP
    size = f'width="{width:g}" height="{HEIGHT}" viewBox="0 0 {width:g} {HEIGHT}"'
    fonts = 'font-family="Helvetica, Arial, sans-serif" font-size="11"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {fonts} role="img">',
            f"<title>{', '.join(f'{word} {number}' for word, number in numbers)}</title>",
            f'<rect width="{width:g}" height="{HEIGHT}" fill="#fff"/>',
            *shapes,
            "</svg>\n",
        ]
    )


def _line(numbers: list[tuple[str, str]], options: object) -> str:
    return " · ".join(f"{number} {word}" for word, number in numbers) + "\n"


_BUILDS = {"report": Build(ViewOptions, lambda report, _: badge_numbers(report))}
SVG = View(name="svg", suffix=".svg", builds=_BUILDS, write=lambda numbers, _: badge_svg(numbers))
BADGE = View(name="badge", builds=_BUILDS, write=_line)
