"""The chart of a sweep as SVG: one quantity over one size on logarithmic axes, for two sizes a curve for each of the second.

Filled points were counted, hollow ones follow from polynomials; the band around a latency is its 80 % interval.
"""

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, floor, log

from opcost.core.escaping import printable
from opcost.core.limits import LATENCY, LIMITED, Quantity, find_quantity
from opcost.core.results import Point, Sweep
from opcost.core.sheet import Amount
from opcost.errors import InputError, counted
from opcost.views.view import Build, View, ViewOptions, format_amount

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 92, 24, 44, 52  # pixels around the curves
MOST_TICKS = 7
COLOURS = ("#0072b2", "#f09b00", "#2ba35f", "#cc79a7", "#56b4e9", "#da4600", "#a8b65a")  # as those of the page
_STEPS = {"bytes": (2, (1,))}  # base of the marks of an axis and their multiples; of others 1, 2, 5, 10, ...
_DECIMAL = (10, (1, 2, 5))


def sweep_chart(result: object, options: ViewOptions) -> str:
    """The chart of one quantity: by default latency where a device is given, else the peak memory."""
    if not isinstance(result, Sweep):
        raise InputError("only a sweep has a chart", hint="the page has those of other results: result.view()")
    named = options.quantity or (LATENCY.name if result.device else "peak_bytes")
    quantity = find_quantity(named, LIMITED)
    found = [(point, number) for point in result.points if (number := _number(point, quantity))]
    if not found:
        hint = "sweep with device=..." if quantity is LATENCY else ""
        raise InputError(f"the sweep has no {quantity.title} above zero to draw", hint=hint)
    curves: dict[tuple[int, ...], list[tuple[Point, int]]] = {}
    for point, number in found:
        curves.setdefault(point.sizes[1:], []).append((point, number))
    across = _Axis([point.sizes[0] for point, _ in found], LEFT, WIDTH - RIGHT)
    banded = quantity is LATENCY and all(point.band_ns for point, _ in found)
    ends = [end for point, _ in found for end in (point.band_ns or ())] if banded else []
    up = _Axis([number for _, number in found] + ends, HEIGHT - BOTTOM, TOP)
    title = f"{result.source}: {quantity.title} by {' and '.join(result.variables)}"
    title += f" on {result.device}" if result.device else ""
    shapes = [_text(LEFT, 22, title, "start", weight="bold"), *_axes(across, up, result.variables[0], quantity)]
    for place, (others, points) in enumerate(curves.items()):
        colour = COLOURS[place % len(COLOURS)]
        points.sort(key=lambda each: each[0].sizes)
        if banded:
            low = [(point.sizes[0], (point.band_ns or (number, number))[0]) for point, number in points]
            high = [(point.sizes[0], (point.band_ns or (number, number))[1]) for point, number in reversed(points)]
            corners = _path([*low, *high], across, up)
            shapes.append(f'<polygon points="{corners}" fill="{colour}" fill-opacity="0.15"/>')
        line = _path([(point.sizes[0], number) for point, number in points], across, up)
        shapes.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for point, number in points:
            fill = colour if point.counted else "#fff"
            at = f'cx="{across.at(point.sizes[0]):.1f}" cy="{up.at(number):.1f}"'
            says = ", ".join(f"{name} {size:,}" for name, size in zip(result.variables, point.sizes, strict=True))
            tip = escape(printable(f"{says}: {_amount(number, quantity)}"))
            shapes.append(f'<circle {at} r="3.5" fill="{fill}" stroke="{colour}"><title>{tip}</title></circle>')
        if others:
            last, number = points[-1]
            name = f"{result.variables[1]} {others[0]:,}"
            shapes.append(_text(across.at(last.sizes[0]) - 8, up.at(number) - 8, name, "end", fill=colour))
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    fonts = 'font-family="Helvetica, Arial, sans-serif" font-size="12" role="img"'
    label = escape(printable(f"{title}, {counted(len(found), 'point')}"), quote=True)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {fonts} aria-label="{label}">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', *shapes, "</svg>\n"])


class _Axis:
    """A logarithmic axis over these values, between two pixels."""

    def __init__(self, values: Sequence[int], start: float, end: float) -> None:
        self.low, self.high = min(values), max(values)
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        if self.low == self.high:
            return (self.start + self.end) / 2
        return self.start + (self.end - self.start) * log(value / self.low) / log(self.high / self.low)

    def ticks(self, unit: str) -> list[float]:
        """Round values between the ends; of many every second, third, ..."""
        base, multiples = _STEPS.get(unit, _DECIMAL)
        powers = range(floor(log(self.low, base)), ceil(log(self.high, base)) + 1)
        found = [many * float(base) ** power for power in powers for many in multiples]
        inside = [value for value in found if self.low <= value <= self.high] or [float(self.low)]
        return inside[:: -(-len(inside) // MOST_TICKS)]


def _axes(across: _Axis, up: _Axis, variable: str, quantity: Quantity) -> Iterator[str]:
    for value in up.ticks(quantity.unit):
        y = up.at(value)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
        yield _text(LEFT - 8, y + 4, _amount(round(value), quantity), "end")
    for value in across.ticks("bytes" if _doubles(across) else "number"):
        x = across.at(value)
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>'
        yield _text(x, HEIGHT - BOTTOM + 18, f"{value:,.0f}", "middle")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, variable, "middle", weight="bold")


def _doubles(axis: _Axis) -> bool:
    """Whether sizes are powers of two, whose marks are then those."""
    return axis.low & (axis.low - 1) == 0 and axis.high & (axis.high - 1) == 0


def _path(points: Sequence[tuple[int, int]], across: _Axis, up: _Axis) -> str:
    return " ".join(f"{across.at(size):.1f},{up.at(number):.1f}" for size, number in points)


def _text(x: float, y: float, text: str, anchor: str, *, weight: str = "normal", fill: str = "#222") -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" fill="{fill}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(printable(text))}</text>'


def _number(point: Point, quantity: Quantity) -> int | None:
    return point.latency_ns if quantity is LATENCY else point.amounts.get(quantity.name)


def _amount(number: int, quantity: Quantity) -> str:
    return format_amount(Amount(number, quantity.unit))


CHART = View(name="chart", builds={"tables": Build("quantity", sweep_chart)}, write=lambda chart, _: chart)
