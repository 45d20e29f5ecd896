"""Pooling with a window, to a given size, and over regions."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.frontends.megengine.layouts import image
from opcost.frontends.megengine.node import (
    Meaning,
    Mismatch,
    Node,
    Rule,
    Shape,
    alike,
    means,
    window_count,
)

_WINDOWED = {"MAX": "max", "AVERAGE": "avg", "AVERAGE_COUNT_EXCLUDE_PADDING": "avg"}


def _shapes(node: Node) -> list[Shape]:
    x = node.ranked(0, 4, 5)
    layout = image(node.word("format") or "NCHW")
    shape = list(x)
    for axis, place in zip("hw", layout.spatial, strict=True):
        window, stride, pad = (node.whole(f"{name}_{axis}") for name in ("window", "stride", "pad"))
        shape[place] = window_count(x[place], size=window, stride=stride, pad=pad)
    return [tuple(shape)]


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
    shape = list(x)
    for place, extent in zip(layout.spatial, target, strict=True):
        shape[place] = extent
    return [tuple(shape)]


def _adaptive_meaning(node: Node) -> Meaning:
    fn = "adaptive_max" if node.word("mode") == "MAX" else "adaptive_avg"
    x, y = node.dims(0), node.out_shapes[0]
    kernel: list[int] = []
    stride: list[int] = []
    for place in image(node.word("format") or "NCHW").spatial:
        before, after = x[place], y[place] if y is not None else None
        if before is not None and after:
            kernel.append(-(-before // after))
            stride.append(before // after)
    if len(kernel) != 2:  # a size that depends on data makes the cost unknown, whatever the window is
        return Meaning("pool", {"fn": fn, "window": 1}, (0,))
    attrs: dict[str, Attr] = {"fn": fn, "window": kernel[0] * kernel[1]}
    return Meaning("pool", attrs | {"kernel": tuple(kernel), "stride": tuple(stride)}, (0,))


def _region_shapes(node: Node) -> list[Shape]:
    x, regions, target = node.ranked(0, 4), node.dims(1), node.target(2)
    if len(target) != 2:
        raise Mismatch(f"height and width are needed, not {len(target)} numbers")
    shape = (regions[0], x[1], *target)
    return [shape, shape]


def _region_dtypes(node: Node) -> list[str]:
    return [node.dtypes[0], "int32"]


def _region_meaning(node: Node) -> Meaning:
    """Regions lie in data; a window is taken as its share of the whole image."""
    x, y = node.dims(0), node.out_shapes[0]
    window = 1
    if y is not None:
        for before, after in zip(x[2:], y[2:], strict=True):
            if before is not None and after:
                window *= -(-before // after)
    fn = "adaptive_max" if node.word("mode") == "MAX" else "adaptive_avg"
    return Meaning("pool", {"fn": fn, "window": window}, (0, 1))


RULES = {
    "Pooling": Rule(_shapes, _meaning),
    "PoolingBackward": Rule(alike(0), _gradient),
    "AdaptivePooling": Rule(_adaptive_shapes, _adaptive_meaning),
    "AdaptivePoolingBackward": Rule(alike(0), means("unknown")),
    "ROIPooling": Rule(_region_shapes, _region_meaning, _region_dtypes),
}
