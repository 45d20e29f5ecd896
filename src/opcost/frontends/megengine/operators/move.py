"""Operators that change the look of a tensor, join or split tensors, or tell their shape."""

from __future__ import annotations

from opcost.core.shapes import (
    Dims,
    Extent,
    Mismatch,
    Shape,
    axis_of,
    broadcast,
    concat,
    expanded,
    inserted,
    padded,
    replaced,
    reshaped,
    squeezed,
    text,
)
from opcost.frontends.megengine.node import Node, Rule, means, same

NO_OPTIONAL_AXIS = 7
"""`OptionalAxisV1` that names none."""


def _reshape_shapes(node: Node) -> list[Shape]:
    """The target may leave one extent open: -1, or the axis that the operator names."""
    x, target = node.dims(0), list(node.target(1))
    axis = node.whole("axis")
    if axis != NO_OPTIONAL_AXIS and node.op.param.table == "OptionalAxisV1":
        target[axis_of(axis, len(target))] = -1
    return [reshaped(x, target)]


def _dimshuffle_shapes(node: Node) -> list[Shape]:
    """The axes in a new order; -1 stands for a new axis."""
    x, pattern = node.dims(0), node.op.get("pattern")
    shape: list[Extent] = []
    for axis in pattern if isinstance(pattern, tuple) else ():
        if not isinstance(axis, int) or axis >= len(x):
            raise Mismatch(f"axis {axis} does not exist in {text(x)}")
        shape.append(1 if axis < 0 else x[axis])
    return [tuple(shape)]


def _axis_shapes(node: Node) -> list[Shape]:
    """Axes of extent 1 are added and removed one after the other."""
    shape: Dims = node.dims(0)
    changes = node.op.get("desc")
    for change in changes if isinstance(changes, tuple) else ():
        if not isinstance(change, tuple):
            continue
        method, axis = change
        place = axis if isinstance(axis, int) else 0
        # MegEngine has no tensor without axes.
        shape = inserted(shape, place) if method == "add" else squeezed(shape, [place]) or (1,)
    return [shape]


def _split_shapes(node: Node) -> list[Shape]:
    """The extents of the parts come as inputs."""
    x = node.dims(0)
    axis = axis_of(node.whole("axis"), len(x))
    shapes: list[Shape] = []
    for index in range(1, len(node.shapes)):
        numbers = node.value(index)
        shapes.append(replaced(x, axis, int(numbers[0]) if numbers else None))
    return shapes


def _padding_shapes(node: Node) -> list[Shape]:
    x = node.dims(0)
    sides = ("front_offset", "back_offset")
    widths = [[node.whole(f"{side}_dim{axis}") for side in sides] for axis in range(len(x))]
    return [padded(x, widths)]


def _shape_shapes(node: Node) -> list[Shape]:
    """The shape of the input, of several inputs their common one, or one extent of it."""
    if node.whole("axis") != NO_OPTIONAL_AXIS:
        return [(1,)]
    return [(len(broadcast(node.every())),)]


_VIEW = means("view")
"""Nothing moves; numbers that come as further inputs are only looked at."""


RULES = {
    "Reshape": Rule(_reshape_shapes, _VIEW),
    "Broadcast": Rule(lambda node: [expanded(node.dims(0), node.target(1))], _VIEW),
    "Dimshuffle": Rule(_dimshuffle_shapes, _VIEW),
    "AxisAddRemove": Rule(_axis_shapes, _VIEW),
    "Concat": Rule(lambda node: [concat(node.every(), node.whole("axis"))], means("copy")),
    "Split": Rule(_split_shapes, _VIEW),
    "Padding": Rule(_padding_shapes, means("copy")),
    "GetVarShape": Rule(_shape_shapes, _VIEW, lambda node: ["int32"]),
    "Copy": Rule(same, means("copy")),
    "Identity": Rule(same, _VIEW),
    "MarkDynamicVar": Rule(same, _VIEW),
    "MarkNoBroadcastElemwise": Rule(same, _VIEW),
    "PersistentOutputStorage": Rule(same, means("copy")),
    "VirtualDep": Rule(same, _VIEW),
    "AssertEqual": Rule(same, _VIEW),
    "Sleep": Rule(same, _VIEW),
}
