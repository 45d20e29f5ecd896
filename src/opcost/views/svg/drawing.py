"""A picture as shapes, in colours that everybody can tell apart, and the same as one SVG file with escaped texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import NamedTuple

from opcost.core.harmless import printable

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800")
GREY = "#8a929c"
INK, FAINT, LINE, RAISED = "#1b1f24", "#59626d", "#dcdfe4", "#f4f5f7"
LETTER = 0.56
"""Width of a letter as a part of its height, on average."""


class Shape(NamedTuple):
    """An element of SVG."""

    tag: str
    attributes: Mapping[str, float | str]
    """With underscores for hyphens."""
    text: str | None = None


class Drawing:
    """Shapes one after another, on white."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height = width, height
        self.title = title
        self.shapes: list[Shape] = []

    def rect(self, x: float, y: float, w: float, h: float, *, fill: str, stroke: str = "none") -> None:
        self._add("rect", x=x, y=y, width=max(0.0, w), height=max(0.0, h), fill=fill, stroke=stroke)

    def line(
        self, x1: float, y1: float, x2: float, y2: float, *, stroke: str = LINE, dash: str = "", wide: float = 1
    ) -> None:
        self._add("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, stroke_width=wide, stroke_dasharray=dash)

    def area(self, points: Iterable[tuple[float, float]], *, fill: str) -> None:
        self._add("polygon", points=_points(points), fill=fill, fill_opacity=0.85)

    def path(self, points: Iterable[tuple[float, float]], *, stroke: str = INK) -> None:
        self._add("polyline", points=_points(points), fill="none", stroke=stroke, stroke_width=1.6)

    def circle(self, x: float, y: float, r: float, *, fill: str) -> None:
        self._add("circle", cx=x, cy=y, r=r, fill=fill, fill_opacity=0.7, stroke="#fff", stroke_width=0.8)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        fill: str = INK,
        size: float = 11,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        self._add(
            "text", text, x=x, y=y, fill=fill, font_size=size, text_anchor=anchor, font_weight="bold" if bold else ""
        )

    def label(self, x: float, y: float, text: str, room: float, **how: str) -> None:
        """A text cut to its room; nothing where there is none."""
        letters = int(room / (11 * LETTER))
        if letters >= 3:
            self.text(x, y, text if len(text) <= letters else f"{text[: letters - 1]}…", **how)  # type: ignore[arg-type]

    def legend(self, keys: Mapping[str, str], x: float, y: float) -> None:
        for name, colour in keys.items():
            wide = 26 + len(name) * 11 * LETTER
            if x + wide > self.width:
                return
            self.rect(x, y - 9, 10, 10, fill=colour)
            self.text(x + 15, y, name)
            x += wide

    def _add(self, tag: str, text: str | None = None, /, **attributes: float | str) -> None:
        self.shapes.append(Shape(tag, {name: value for name, value in attributes.items() if value != ""}, text))

    def __str__(self) -> str:
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        fonts = 'font-family="Helvetica, Arial, sans-serif" font-size="11"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} {fonts} role="img">',
                f"<title>{_safe(self.title)}</title>",
                f'<rect width="{self.width:g}" height="{self.height:g}" fill="#fff"/>',
                *map(_written, self.shapes),
                "</svg>\n",
            ]
        )


def colours_of(weights: Mapping[str, float]) -> dict[str, str]:
    """A colour for each of the seven heaviest; the others are grey."""
    ranked = sorted((key for key, weight in weights.items() if key and weight > 0), key=lambda key: -weights[key])
    return dict(zip(ranked, COLOURS, strict=False))


def _written(shape: Shape) -> str:
    told = "".join(
        f' {name.replace("_", "-")}="{f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value}"'
        for name, value in shape.attributes.items()
    )
    tag = shape.tag
    return f"<{tag}{told}/>" if shape.text is None else f"<{tag}{told}>{_safe(shape.text)}</{tag}>"


def _safe(text: str) -> str:
    return escape(printable(text), quote=True)


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
