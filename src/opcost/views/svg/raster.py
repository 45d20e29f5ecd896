"""The same picture as points, for where SVG cannot be shown; Pillow draws it."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

from opcost.core.harmless import printable
from opcost.errors import MissingFramework
from opcost.views.svg.drawing import Drawing, Shape

FINE = 2
"""Points for each unit of the drawing, so that it is sharp on today's screens."""
SMOOTH = 2
"""It is drawn so many times larger, and then made smaller, since Pillow draws no smooth edges."""


def png_of(drawing: Drawing) -> bytes:
    """A PNG file."""
    image = _pillow("Image")
    scale = FINE * SMOOTH
    size = round(drawing.width * scale), round(drawing.height * scale)
    canvas = image.new("RGB", size, "#fff")
    pen = _Pen(canvas, scale)
    for shape in drawing.shapes:
        getattr(pen, shape.tag)(shape.attributes, shape)
    held = BytesIO()
    canvas.resize((size[0] // SMOOTH, size[1] // SMOOTH), image.Resampling.LANCZOS).save(held, "PNG", optimize=True)
    return held.getvalue()


_LACKING = str.maketrans({"…": "...", "µ": "u", "≥": ">=", "×": "x", "–": "-", "²": "2"})
"""Letters of ours that Pillow's own font does not have."""


class _Pen:
    """Draws each shape that drawings have, by its name."""

    def __init__(self, canvas: Any, scale: int) -> None:
        self._draw = _pillow("ImageDraw").Draw(canvas, "RGBA")
        self._fonts = _pillow("ImageFont")
        self._scale = scale

    def rect(self, how: Mapping[str, Any], _: Shape) -> None:
        x, y, w, h = (how[name] * self._scale for name in ("x", "y", "width", "height"))
        edge = None if how["stroke"] == "none" else how["stroke"]
        self._draw.rectangle((x, y, x + w, y + h), fill=how["fill"], outline=edge, width=self._scale)

    def line(self, how: Mapping[str, Any], _: Shape) -> None:
        x1, y1, x2, y2 = (how[name] * self._scale for name in ("x1", "y1", "x2", "y2"))
        wide = round(how["stroke_width"] * self._scale)
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        drawn, gap = (float(part) * self._scale for part in how.get("stroke_dasharray", f"{length + 1:.0f} 0").split())
        at = 0.0
        while at < length:
            end = min(at + drawn, length)
            ends = [(x1 + (x2 - x1) * part / length, y1 + (y2 - y1) * part / length) for part in (at, end)]
            self._draw.line(ends, fill=how["stroke"], width=wide)
            at = end + gap
            if not gap:
                break

    def polygon(self, how: Mapping[str, Any], _: Shape) -> None:
        self._draw.polygon(self._points(how), fill=self._seen_through(how))

    def polyline(self, how: Mapping[str, Any], _: Shape) -> None:
        self._draw.line(self._points(how), fill=how["stroke"], width=round(how["stroke_width"] * self._scale))

    def circle(self, how: Mapping[str, Any], _: Shape) -> None:
        x, y, r = (how[name] * self._scale for name in ("cx", "cy", "r"))
        wide = round(how["stroke_width"] * self._scale)
        self._draw.ellipse(
            (x - r, y - r, x + r, y + r), fill=self._seen_through(how), outline=how["stroke"], width=wide
        )

    def text(self, how: Mapping[str, Any], shape: Shape) -> None:
        font = self._fonts.load_default(how["font_size"] * self._scale)
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[how["text_anchor"]]
        bold = self._scale // 2 if how.get("font_weight") == "bold" else 0
        place = how["x"] * self._scale, how["y"] * self._scale
        said = printable(shape.text or "").translate(_LACKING)
        self._draw.text(place, said, fill=how["fill"], font=font, anchor=anchor, stroke_width=bold // 2)

    def _points(self, how: Mapping[str, Any]) -> list[tuple[float, float]]:
        pairs = (point.split(",") for point in how["points"].split())
        return [(float(x) * self._scale, float(y) * self._scale) for x, y in pairs]

    def _seen_through(self, how: Mapping[str, Any]) -> str:
        return f"{how['fill']}{round(255 * how['fill_opacity']):02x}"


def _pillow(module: str) -> Any:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ModuleNotFoundError as exc:
        raise MissingFramework(
            "a PNG picture needs the package pillow, which is not installed",
            hint="pip install 'opcost[pictures]', or write an .svg file, which needs no package",
        ) from exc
    return {"Image": Image, "ImageDraw": ImageDraw, "ImageFont": ImageFont}[module]
