"""Pictures for papers and READMEs: treemap, flame, curve of memory, roofline and badge; as SVG or PNG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, log, log10, sqrt
from typing import Literal, TypeAlias, get_args

from opcost.core.answer import Answer
from opcost.core.devices import device
from opcost.core.profile import Profile
from opcost.core.quantity import QUANTITIES
from opcost.core.report import ModuleCost, Report, Stats
from opcost.core.units import format_bytes, format_count, format_time
from opcost.errors import InputError, OpcostError, UnknownName
from opcost.views.drawing import COLOURS, FAINT, GREY, INK, LINE, RAISED, Drawing, colours_of, png_of
from opcost.views.html.profiles import profile_tree
from opcost.views.html.reports import SIZES
from opcost.views.summary import heading_of, layers_of
from opcost.views.view import Build, PackedView, View, ViewOptions

TOP = 44.0
TITLE = 15
MOSTLY = 0.8
LEFT, RIGHT, BOTTOM = 74.0, 16.0, 54.0
PLACES = 600  # steps of a curve; each shows the most of its stretch
_BLUE, _ORANGE, _GREEN, _PINK, _SKY, _RED, _OLIVE = COLOURS
_PART_COLOURS = {
    "weights": _BLUE, "inputs": _SKY, "optimizer": _PINK, "gradients": _RED, "saved": _ORANGE, "outputs": _OLIVE,
    "temporary": _GREEN, "workspace": GREY, "added": _ORANGE,
}  # fmt: skip


def _titled(source: str, about: str, width: float, height: float) -> Drawing:
    """An empty picture with the source and what it shows."""
    drawing = Drawing(width, height, f"{source}: {about}")
    drawing.text(8, 18, source, size=13, bold=True)
    drawing.text(8, 34, about, fill=FAINT)
    return drawing


def _summed(parts: Iterable[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for key, weight in parts:
        sums[key] = sums.get(key, 0) + weight
    return sums


# -- the treemap --------------------------------------------------------------------------------------------------------

Box = tuple[float, float, float, float]


def squarified(sizes: Sequence[float], box: Box) -> list[Box]:
    """A box for each size, in their order, that together fill the box; sizes are above zero."""
    x, y, width, height = box
    scale = width * height / sum(sizes) if sizes else 0.0
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    boxes: dict[int, Box] = {}
    while order:
        side = min(width, height)
        count, area, worst = 0, 0.0, float("inf")
        largest = sizes[order[0]] * scale
        for place in order:
            grown = area + sizes[place] * scale
            ratio = (
                max(side * side * largest / grown**2, grown**2 / (side * side * sizes[place] * scale)) if side else 0.0
            )
            if ratio > worst:
                break
            count, area, worst = count + 1, grown, ratio
        row, order = order[:count], order[count:]
        thick = area / side if side else 0.0
        along = 0.0
        for place in row:
            length = sizes[place] * scale / thick if thick else 0.0
            boxes[place] = (x, y + along, thick, length) if width >= height else (x + along, y, length, thick)
            along += length
        if width >= height:
            x, width = x + thick, width - thick
        else:
            y, height = y + thick, height - thick
    return [boxes[place] for place in range(len(sizes))]


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
    # Where nearly all is of one type, colours are those of the parts below the root.
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

    lay(report.modules[0], (8.0, TOP, width - 16, height - TOP - 30))
    drawing.legend({**colours, "other": GREY}, 8, height - 10)
    return drawing


# -- flames -------------------------------------------------------------------------------------------------------------

FOOT = 30.0
LOWEST, HIGHEST = 12.0, 26.0
NARROWEST = 0.6


def draw_flame(
    drawing: Drawing, parents: Sequence[int], names: Sequence[str], types: Sequence[str], own: Sequence[float],
    text_of: Callable[[float], str],
) -> Drawing:  # fmt: skip
    """Nodes after their parents, the root first, as levels; each has the colour of its type, if that is a common one."""
    total = list(own)
    for node in range(len(total) - 1, 0, -1):
        total[parents[node]] += total[node]
    if not total or not total[0]:
        drawing.text(8, TOP + 20, "nothing to draw")
        return drawing
    children: dict[int, list[int]] = {}
    depth = [0] * len(total)
    for node in range(1, len(total)):
        children.setdefault(parents[node], []).append(node)
        depth[node] = depth[parents[node]] + 1
    colours = colours_of(_summed(zip(types, own, strict=True)))
    whole, room = drawing.width - 16, drawing.height - TOP - FOOT
    levels = 1 + max(depth[node] for node in range(len(total)) if total[node] / total[0] * whole >= NARROWEST)
    high = max(LOWEST, min(HIGHEST, room / levels))
    drawing.height = min(drawing.height, TOP + levels * high + FOOT)
    walk = [(0, 8.0)]
    while walk:
        node, x = walk.pop()
        wide = total[node] / total[0] * whole
        y = drawing.height - FOOT - (depth[node] + 1) * high
        if wide < NARROWEST or y < TOP - high:
            continue
        shade = colours.get(types[node], GREY if node not in children else RAISED)
        edge = LINE if shade == RAISED else "none"
        drawing.rect(x + 0.3, y + 0.5, wide - 0.6, high - 1, fill=shade, stroke=edge)
        whole_text = f"{names[node]}  {text_of(total[node])}"
        text = whole_text if 6.2 * len(whole_text) < wide else names[node]
        drawing.label(x + 4, y + high / 2 + 4, text, wide - 6, fill=INK if shade == RAISED else "#fff")
        for child in children.get(node, ()):
            walk.append((child, x))
            x += total[child] / total[0] * whole
    drawing.legend({**colours, "other": GREY}, 8, drawing.height - 10)
    return drawing


def _by_module(
    report: Report, width: float, height: float, quantity: str
) -> tuple[Drawing, Callable[[Stats], int], Callable[[int], str]]:
    """An empty picture of a quantity by module, and how that is read and written."""
    if quantity not in SIZES:
        raise UnknownName("quantity of a picture", quantity, SIZES)
    size = SIZES[quantity]
    unit = format_bytes if QUANTITIES[quantity].unit == "bytes" else format_count
    least = "≥" if QUANTITIES[quantity].needs_costs and report.totals.uncounted else ""
    about = f"{QUANTITIES[quantity].title} by module, {least}{unit(size(report.totals))} in all"
    return _titled(heading_of(report)[0], about, width, height), size, unit


# -- memory ------------------------------------------------------------------------------------------------------------


def memory_curve(report: Report, width: float, height: float) -> Drawing:
    """What is in memory during each operator, by its part, with the peak."""
    memory = report.known_memory()
    if not memory.curve:
        raise OpcostError("the report has no curve of memory", hint="count the model again; old files lack it")
    count, most = len(memory.curve), memory.peak_bytes * 1.04 or 1.0
    about = f"memory over {count:,} operators, peak {format_bytes(memory.peak_bytes)}"
    drawing = _titled(heading_of(report)[0], about, width, height)
    wide, high = width - LEFT - RIGHT, height - TOP - BOTTOM

    def y(size: float) -> float:
        return TOP + high - size / most * high

    # About six round numbers of bytes
    unit = 1024 ** floor(log(max(most / 6, 1), 1024))
    step = next(unit * 2**power for power in range(11) if unit * 2**power >= most / 6)
    for tick in [step * place for place in range(int(most / step) + 1)]:
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
    dtype = max(dtypes, key=dtypes.__getitem__)
    peak = peaks.peak_flops(dtype)
    if not peak:  # then for the first type that the maker prints
        dtype, peak = next(iter(peaks.flops.items()))
    ridge = peak / peaks.bandwidth
    about = f"roofline of {peaks.name} for {dtype}: {format_count(peak)}FLOP/s, {format_count(peaks.bandwidth)}B/s"
    drawing = _titled(heading_of(report)[0], about, width, height)

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


def _powers(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(floor(log10(low)) + 1, floor(log10(high)) + 1)]


# -- badges -------------------------------------------------------------------------------------------------------------

HIGH = 20
BADGE_LETTER = 6.4  # pixels of a letter at the size of a badge


def badge_numbers(report: Report) -> list[tuple[str, str]]:
    """The words and numbers; where operators are not counted, sums are lower bounds."""
    least = "≥" if report.totals.uncounted else ""
    return [
        ("params", format_count(report.totals.params)),
        ("MACs", f"{least}{format_count(report.totals.macs)}"),
        ("FLOPs", f"{least}{format_count(report.totals.flops)}"),
    ]


def badge(report: Report) -> Drawing:
    """Pairs of a word on grey and a number on blue."""
    pairs = badge_numbers(report)
    widths = [(len(word) * BADGE_LETTER + 12, len(number) * BADGE_LETTER + 12) for word, number in pairs]
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


# -- the views ----------------------------------------------------------------------------------------------------------

Picture: TypeAlias = Literal["treemap", "flame", "memory", "roofline", "badge"]


@dataclass(frozen=True, kw_only=True)
class SvgOptions(ViewOptions):
    """Which picture, of what, and how large."""

    picture: Picture = "treemap"
    quantity: str = ""
    """What areas of a treemap or a flame are: params, macs, flops, activations, bytes, ...; empty: MACs, else parameters."""
    on: str = ""  # the device of a roofline; empty: that of the memory, else h200
    size: tuple[int, int] = (960, 560)


@dataclass(frozen=True, kw_only=True)
class FlameOptions(ViewOptions):
    """How large is the flame view of times by module, operator and kernel."""

    profile: Profile | None = None  # the profile with costs
    size: tuple[int, int] = (960, 460)


def _build(report: Report, options: SvgOptions) -> Drawing:
    width, height = map(float, options.size)
    quantity = options.quantity or ("macs" if report.totals.macs else "params")
    match options.picture:
        case "treemap":
            return treemap(report, width, height, quantity)
        case "flame":
            # Modules as levels from the root upwards, each as wide as its share
            drawing, size, unit = _by_module(report, width, height, quantity)
            places = {module.path: place for place, module in enumerate(report.modules)}
            parents = [places.get(module.parent or "", 0) if module.path else -1 for module in report.modules]
            names = [module.name or module.type for module in report.modules]
            types, own = [each.type for each in report.modules], [size(each.own) for each in report.modules]
            return draw_flame(drawing, parents, names, types, own, lambda amount: unit(round(amount)))
        case "memory":
            return memory_curve(report, width, height)
        case "badge":
            return badge(report)
        case "roofline":
            device_name = options.on or (report.memory.device if report.memory else "") or "h200"
            return roofline(report, width, height, device_name)
    raise UnknownName("picture", str(options.picture), get_args(Picture))


def _flame(answer: Answer, options: FlameOptions) -> Drawing:
    """The times on the side of the answer; a kernel has the colour of its operator."""
    if options.profile is None:
        raise InputError("a flame view is drawn of a whole profile, not of lines", hint="profile.save, or profile=")
    tree, _ = profile_tree(options.profile, answer.runs if answer.is_per_run else 1)
    own = tree.own[answer.side]
    source = options.profile.meta.get("source", "") or "profile"
    about = f"{answer.side} time by module, operator and kernel, {format_time(round(sum(own)))} in all"
    drawing = _titled(source, about, *map(float, options.size))
    types = [tree.types[p] if kind == "kernel" else kind for p, kind in zip(tree.parent, tree.types, strict=True)]
    names = [source, *tree.names[1:]]
    return draw_flame(drawing, tree.parent, names, types, own, lambda time: format_time(round(time)))


def _badge_line(numbers: list[tuple[str, str]], options: object) -> str:
    return " · ".join(f"{number} {word}" for word, number in numbers) + "\n"


_BUILDS = {"report": Build(SvgOptions, _build), "profile": Build(FlameOptions, _flame)}
SVG = View(name="svg", suffix=".svg", builds=_BUILDS, write=lambda drawing, _: str(drawing))
PNG = PackedView(name="png", suffix=".png", builds=_BUILDS, write=SVG.write, pack=lambda drawing, _: png_of(drawing))
_NUMBERS = Build(ViewOptions, lambda report, _: badge_numbers(report))
BADGE = View(name="badge", builds={"report": _NUMBERS}, write=_badge_line)
