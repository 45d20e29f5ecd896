"""Pictures of a report: its modules as a treemap or a flame, its memory over the execution, its operators under a roofline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import floor, log, log10, sqrt

from opcost.core.devices import Device, device
from opcost.core.quantity import QUANTITIES
from opcost.core.report import ModuleCost, Report, Stats
from opcost.core.units import format_bytes, format_count
from opcost.errors import OpcostError, UnknownName
from opcost.views.memory_layers import layers_of
from opcost.views.report_summary import heading_of
from opcost.views.svg.areas import Box, squarified
from opcost.views.svg.drawing import COLOURS, FAINT, GREY, INK, LINE, RAISED, Drawing, colours_of
from opcost.views.svg.flame import Tree, draw_flame

TOP = 44
TITLE = 15
MOSTLY = 0.8
LEFT, RIGHT, BOTTOM = 74.0, 16.0, 54.0
PLACES = 600
"""Steps of a curve; each shows the most of its stretch."""
_SIZES: dict[str, Callable[[Stats], int]] = {
    name: (lambda stats, name=name: getattr(stats, name))
    for name in ("params", "macs", "flops", "activations", "param_bytes", "activation_bytes")
} | {"bytes": lambda stats: stats.bytes_read + stats.bytes_written}
_PART_COLOURS = dict(
    zip(
        ("weights", "inputs", "optimizer", "gradients", "saved", "outputs", "temporary", "workspace", "added"),
        (COLOURS[0], COLOURS[4], COLOURS[3], COLOURS[5], COLOURS[1], COLOURS[6], COLOURS[2], GREY, COLOURS[1]),
        strict=True,
    )
)


def _begun(report: Report, width: float, height: float, about: str) -> Drawing:
    """An empty picture with the source and what it tells."""
    heading = heading_of(report)[0]
    drawing = Drawing(width, height, f"{heading}: {about}")
    drawing.text(8, 18, heading, size=13, bold=True)
    drawing.text(8, 34, about, fill=FAINT)
    return drawing


def _summed(parts: Iterable[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for key, weight in parts:
        sums[key] = sums.get(key, 0) + weight
    return sums


# -- the treemap -------------------------------------------------------------------------------------------------------


def treemap(report: Report, width: float, height: float, quantity: str) -> Drawing:
    """Modules as areas, each as large as its share."""
    drawing, size, _ = _by_module(report, width, height, quantity)
    whole = size(report.totals)
    if not whole:
        drawing.text(8, TOP + 20, "nothing to draw")
        return drawing
    children: dict[str, list[ModuleCost]] = {}
    for module in report.modules[1:]:
        children.setdefault(module.parent or "", []).append(module)
    weights = _summed((module.type, size(module.own)) for module in report.modules)
    # Where nearly all is of one type, colours tell the parts below the root.
    by_part = max(weights.values()) >= MOSTLY * whole

    def key_of(module: ModuleCost) -> str:
        return module.path.partition(".")[0] if by_part else module.type

    colours = colours_of(_summed((key_of(module), size(module.own)) for module in report.modules))

    def lay(module: ModuleCost, box: Box) -> None:
        x, y, w, h = box
        inner = [child for child in children.get(module.path, ()) if size(child.total)]
        name = module.name or module.type
        share = f"{name}  {100 * size(module.total) / whole:.1f} %"
        if not inner or min(w, h) < 4:
            drawing.rect(x + 0.5, y + 0.5, w - 1, h - 1, fill=colours.get(key_of(module), GREY))
            if h > 13:
                drawing.label(x + 4, y + 13, share if len(share) * 6.2 < w else name, w - 6, fill="#fff")
            return
        drawing.rect(x + 0.5, y + 0.5, w - 1, h - 1, fill=RAISED, stroke=LINE)
        title = TITLE if h > 3 * TITLE and w > 40 else 0
        if title:
            drawing.label(x + 4, y + 11, share, w - 6)
        room = (x + 2, y + (title or 2), w - 4, h - (title or 2) - 2)
        if min(room[2:]) <= 1:
            return
        own = size(module.own)
        boxes = squarified([*(size(child.total) for child in inner), *([own] if own else [])], room)
        for child, place in zip(inner, boxes, strict=False):
            lay(child, place)
        if own:
            ox, oy, ow, oh = boxes[-1]
            drawing.rect(ox + 0.5, oy + 0.5, ow - 1, oh - 1, fill=colours.get(key_of(module), GREY))

    lay(report.modules[0], (8.0, float(TOP), width - 16, height - TOP - 30))
    drawing.legend({**colours, "other": GREY}, 8, height - 10)
    return drawing


def report_flame(report: Report, width: float, height: float, quantity: str) -> Drawing:
    """Modules as levels from the root upwards, each as wide as its share."""
    drawing, size, unit = _by_module(report, width, height, quantity)
    places = {module.path: place for place, module in enumerate(report.modules)}
    tree = Tree(
        parent=[places.get(module.parent or "", 0) if module.path else -1 for module in report.modules],
        name=[module.name or module.type for module in report.modules],
        type=[module.type for module in report.modules],
        own=[size(module.own) for module in report.modules],
    )
    draw_flame(drawing, tree, lambda amount: unit(round(amount)))
    return drawing


def _by_module(
    report: Report, width: float, height: float, quantity: str
) -> tuple[Drawing, Callable[[Stats], int], Callable[[int], str]]:
    """An empty picture of a quantity by module, and how that is found and told."""
    if quantity not in _SIZES:
        raise UnknownName("quantity of a picture", quantity, _SIZES)
    size = _SIZES[quantity]
    unit = format_bytes if QUANTITIES[quantity].unit == "bytes" else format_count
    least = "≥" if QUANTITIES[quantity].priced and report.totals.uncounted else ""
    about = f"{QUANTITIES[quantity].title} by module, {least}{unit(size(report.totals))} in all"
    return _begun(report, width, height, about), size, unit


# -- memory ------------------------------------------------------------------------------------------------------------


def memory_curve(report: Report, width: float, height: float) -> Drawing:
    """What is held during each operator, by what holds it, with the peak."""
    memory = report.known_memory()
    if not memory.curve:
        raise OpcostError("the report has no curve of memory", hint="count the model again; old files lack it")
    count, most = len(memory.curve), memory.peak_bytes * 1.04 or 1.0
    drawing = _begun(report, width, height, f"memory over {count:,} operators, peak {format_bytes(memory.peak_bytes)}")
    wide, high = width - LEFT - RIGHT, height - TOP - BOTTOM

    def y(size: float) -> float:
        return TOP + high - size / most * high

    for tick in _ticks(most):
        drawing.line(LEFT, y(tick), LEFT + wide, y(tick))
        drawing.text(LEFT - 6, y(tick) + 4, format_bytes(tick), fill=FAINT, anchor="end")
    places = min(count, PLACES)
    ends = [count * place // places for place in range(places + 1)]
    steps = [max(range(a, b), key=memory.curve.__getitem__) for a, b in pairwise(ends)]
    below = [0.0] * places
    standing, passing = layers_of(memory)
    layers: dict[str, Sequence[int]] = {**{part: [size] * count for part, size in standing.items()}, **passing}
    for part, curve in layers.items():
        above = [low + curve[step] for low, step in zip(below, steps, strict=True)]
        across = [LEFT + wide * place / places for place in range(places + 1)]
        upper = [(x, y(top)) for place, top in enumerate(above) for x in (across[place], across[place + 1])]
        lower = [(x, y(low)) for place, low in enumerate(below) for x in (across[place], across[place + 1])]
        drawing.area([*upper, *reversed(lower)], fill=_PART_COLOURS[part])
        below = above
    at = LEFT + wide * (memory.at + 0.5) / count
    drawing.line(at, TOP, at, TOP + high, stroke=INK, dash="4 3", wide=1.2)
    drawing.text(LEFT + wide / 2, height - 32, "operators in the order of execution", fill=FAINT, anchor="middle")
    drawing.legend({part: _PART_COLOURS[part] for part in layers}, LEFT, height - 10)
    return drawing


def _ticks(most: float) -> list[float]:
    """About six round numbers of bytes."""
    unit = 1024 ** floor(log(max(most / 6, 1), 1024))
    step = next(unit * 2**power for power in range(11) if unit * 2**power >= most / 6)
    return [step * place for place in range(int(most / step) + 1)]


# -- the roofline ------------------------------------------------------------------------------------------------------


def roofline(report: Report, width: float, height: float, name: str) -> Drawing:
    """Operators by FLOP per byte at the roof that binds them, each as large as its share of the time that the peaks allow."""
    peaks = device(name)
    points: dict[tuple[str, int, int], int] = {}
    dtypes: dict[str, int] = {}
    for row in report.rows:
        if row.cost is not None and row.cost.flops and (moved := row.cost.bytes_read + row.cost.bytes_written):
            key = (row.op.kind, row.cost.flops, moved)
            points[key] = points.get(key, 0) + row.op.repeat
            dtype = row.ins[0].dtype if row.ins else "float32"
            dtypes[dtype] = dtypes.get(dtype, 0) + row.cost.flops
    if not points:
        raise OpcostError("no operator of the report has FLOPs and bytes to draw")
    peak, dtype = _peak(peaks, max(dtypes, key=dtypes.__getitem__))
    ridge = peak / peaks.bandwidth
    about = f"roofline of {peaks.name} for {dtype}: {format_count(peak)}FLOP/s, {format_count(peaks.bandwidth)}B/s"
    drawing = _begun(report, width, height, about)

    def roof(intensity: float) -> float:
        return min(peak, peaks.bandwidth * intensity)

    intensities = [flops / moved for _, flops, moved in points]
    low_x, high_x = min(*intensities, ridge / 20) / 1.6, max(*intensities, ridge * 8) * 1.6
    low_y, high_y = roof(low_x) / 1.6, peak * 2.5
    right, bottom = width - RIGHT, height - BOTTOM

    def x(value: float) -> float:
        return LEFT + log(value / low_x) / log(high_x / low_x) * (right - LEFT)

    def y(value: float) -> float:
        return bottom - log(value / low_y) / log(high_y / low_y) * (bottom - TOP)

    for tick in _powers(low_x, high_x):
        drawing.line(x(tick), TOP, x(tick), bottom)
        drawing.text(x(tick), bottom + 14, f"{tick:g}", fill=FAINT, anchor="middle")
    for tick in _powers(low_y, high_y):
        drawing.line(LEFT, y(tick), right, y(tick))
        drawing.text(LEFT - 6, y(tick) + 4, format_count(round(tick)).replace(".00", ""), fill=FAINT, anchor="end")
    drawing.path([(x(low_x), y(roof(low_x))), (x(ridge), y(peak)), (x(high_x), y(peak))])
    times = {key: count * key[1] / roof(key[1] / key[2]) for key, count in points.items()}
    colours, total = colours_of(_summed((key[0], time) for key, time in times.items())), sum(times.values())
    for key in sorted(times, key=lambda key: -times[key]):
        kind, flops, moved = key
        where = x(flops / moved), y(roof(flops / moved))
        drawing.circle(*where, 2.5 + 13 * sqrt(times[key] / total), fill=colours.get(kind, GREY))
    drawing.text((LEFT + right) / 2, height - 26, "FLOP per byte moved", fill=FAINT, anchor="middle")
    drawing.text(4, TOP - 2, "FLOP/s", fill=FAINT)
    drawing.legend({**colours, "other": GREY}, LEFT, height - 8)
    return drawing


def _peak(peaks: Device, dtype: str) -> tuple[int, str]:
    """The peak for this type, or for the first that the maker prints."""
    found = peaks.peak_flops(dtype)
    return (found, dtype) if found else (next(iter(peaks.flops.values())), next(iter(peaks.flops)))


def _powers(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(floor(log10(low)) + 1, floor(log10(high)) + 1)]
