"""Pooling with a window, to a given size, and over regions."""

from __future__ import annotations

from math import prod

from opcost.core.graph import Attr
from opcost.core.shapes import Mismatch, Shape, adaptive_windows
from opcost.frontends.megengine.layouts import image
from opcost.frontends.megengine.node import Meaning, Node, Rule, alike, means

_WINDOWED = {"MAX": "max", "AVERAGE": "avg", "AVERAGE_COUNT_EXCLUDE_PADDING": "avg"}


def _shapes(node: Node) -> list[Shape]:
    x = node.ranked(0, 4, 5)
    layout = image(node.word("format") or "NCHW")
    return [layout.resized(x, node.windows(layout.plane(x), node.per_axis("window")))]


def _meaning(node: Node) -> Meaning:
    kernel = (node.whole("window_h"), node.whole("window_w"))
    attrs: dict[str, Attr] = {"fn": _WINDOWED.get(node.word("mode"), "avg"), "window": kernel[0] * kernel[1]}
    return Meaning("pool", attrs | {"kernel": kernel, "stride": (node.whole("stride_h"), node.whole("stride_w"))})


def _gradient(node: Node) -> Meaning:
    """x, y and the gradient of y come in."""
    window = node.whole("window_h") * node.whole("window_w")
    attrs: dict[str, Attr] = {"fn": _WINDOWED.get(node.word("mode"), "avg"), "window": window, "grad": True}
    return Meaning("pool", attrs, (2, 0, 1))


def _adaptive_shapes(node: Node) -> list[Shape]:
    x = node.ranked(0, 4, 5)
    layout = image(node.word("format") or "NCHW")
    target = node.target(1)
    if len(target) == 1:
        target *= 2
    if len(target) != 2:
        raise Mismatch(f"height and width are needed, not {len(target)} numbers")
    return [layout.resized(x, target)]


def _adaptive_meaning(node: Node) -> Meaning:
    fn = "adaptive_max" if node.word("mode") == "MAX" else "adaptive_avg"
    layout, y = image(node.word("format") or "NCHW"), node.out_shapes[0]
    kernel, stride = adaptive_windows(layout.plane(node.dims(0)), layout.plane(y) if y is not None else (None, None))
    if len(kernel) != 2:  # a size that depends on data makes the cost unknown, whatever the window is
        return Meaning("pool", {"fn": fn, "window": 1}, (0,))
    attrs: dict[str, Attr] = {"fn": fn, "window": kernel[0] * kernel[1]}
    return Meaning("pool", attrs | {"kernel": kernel, "stride": stride}, (0,))


def _region_shapes(node: Node) -> list[Shape]:
    x, regions, target = node.ranked(0, 4), node.dims(1), node.target(2)
    if len(target) != 2:
        raise Mismatch(f"height and width are needed, not {len(target)} numbers")
    shape = (regions[0], x[1], *target)
    return [shape, shape]


def _region_meaning(node: Node) -> Meaning:
    """Regions lie in data; a window is taken as its share of the whole image."""
    x, y = node.dims(0), node.out_shapes[0]
    window = 1 if y is None else prod(adaptive_windows(x[2:], y[2:])[0])
    fn = "adaptive_max" if node.word("mode") == "MAX" else "adaptive_avg"
    return Meaning("pool", {"fn": fn, "window": window}, (0, 1))


RULES = {
    "Pooling": Rule(_shapes, _meaning),
    "PoolingBackward": Rule(alike(0), _gradient),
    "AdaptivePooling": Rule(_adaptive_shapes, _adaptive_meaning),
    "AdaptivePoolingBackward": Rule(alike(0), means("unknown")),
    "ROIPooling": Rule(_region_shapes, _region_meaning, lambda node: [node.dtypes[0], "int32"]),
}
