"""A picture as shapes, in colours that everyone can distinguish; written as SVG, or drawn as PNG by Pillow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from io import BytesIO
from typing import Any, NamedTuple

from opcost.core.escaping import printable
from opcost.errors import MissingFramework

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800")
GREY = "#8a929c"
INK, FAINT, LINE, RAISED = "#1b1f24", "#59626d", "#dcdfe4", "#f4f5f7"
LETTER = 0.56  # width of a letter as a part of its height, on average


class Shape(NamedTuple):
    """An element of SVG."""

    tag: str
    attributes: Mapping[str, float | str]  # with underscores for hyphens
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
        self, x: float, y: float, text: str, *, fill: str = INK, size: float = 11, anchor: str = "start",
        bold: bool = False,
    ) -> None:  # fmt: skip
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
    attributes = "".join(
        f' {name.replace("_", "-")}="{f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value}"'
        for name, value in shape.attributes.items()
    )
    tag = shape.tag
    return f"<{tag}{attributes}/>" if shape.text is None else f"<{tag}{attributes}>{_safe(shape.text)}</{tag}>"


def _safe(text: str) -> str:
    return escape(printable(text), quote=True)


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


# -- raster: The same picture as points, for where SVG cannot be shown; Pillow draws it.

FINE = 2  # points for each unit of the drawing, so that it is sharp on today's screens
SMOOTH = 2  # it is drawn this many times larger, and then made smaller, since Pillow draws no smooth edges


def png_of(drawing: Drawing) -> bytes:
    """A PNG file."""
    image = _pillow("Image")
    scale = FINE * SMOOTH
    size = round(drawing.width * scale), round(drawing.height * scale)
    canvas = image.new("RGB", size, "#fff")
    pen = _Pen(canvas, scale)
    for shape in drawing.shapes:
        getattr(pen, shape.tag)(shape.attributes, shape)
    file = BytesIO()
    canvas.resize((size[0] // SMOOTH, size[1] // SMOOTH), image.Resampling.LANCZOS).save(file, "PNG", optimize=True)
    return file.getvalue()


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
        text = printable(shape.text or "").translate(_LACKING)
        self._draw.text(place, text, fill=how["fill"], font=font, anchor=anchor, stroke_width=bold // 2)

    def _points(self, how: Mapping[str, Any]) -> list[tuple[float, float]]:
        pairs = (point.split(",") for point in how["points"].split())
        return [(float(x) * self._scale, float(y) * self._scale) for x, y in pairs]

    def _seen_through(self, how: Mapping[str, Any]) -> str:
        return f"{how['fill']}{round(255 * how['fill_opacity']):02x}"


def _pillow(module: str) -> Any:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ModuleNotFoundError as exc:
        hint = "pip install 'opcost[pictures]', or write an .svg file, which needs no package"
        raise MissingFramework("a PNG picture needs the package pillow, which is not installed", hint=hint) from exc
    return {"Image": Image, "ImageDraw": ImageDraw, "ImageFont": ImageFont}[module]
