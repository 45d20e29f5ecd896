"""Operators that change the look of a tensor, join or split tensors, or tell their shape."""

from __future__ import annotations

from opcost.frontends.megengine.node import (
    Extent,
    Mismatch,
    Node,
    Rule,
    Shape,
    axis_of,
    broadcast,
    means,
    product,
    same,
    shape_text,
)

NO_OPTIONAL_AXIS = 7
"""`OptionalAxisV1` that names none."""


def _reshape_shapes(node: Node) -> list[Shape]:
    """The target may leave one extent open: -1, or the axis that the operator names."""
    x, target = node.dims(0), list(node.target(1))
    axis = node.whole("axis")
    if axis != NO_OPTIONAL_AXIS and node.op.param.table == "OptionalAxisV1":
        target[axis_of(axis, len(target))] = -1
    elements = product(x)
    left = [place for place, extent in enumerate(target) if extent == -1]
    if len(left) > 1:
        raise Mismatch(f"{len(left)} extents of the new shape are left open")
    fixed = product([extent for extent in target if extent != -1])
    if left:
        target[left[0]] = None
        if elements is not None and fixed is not None:
            if (elements % fixed if fixed else elements) != 0:
                raise Mismatch(f"{shape_text(x)} has {elements} elements, which do not divide into {fixed}")
            target[left[0]] = elements // fixed if fixed else 0
    elif elements is not None and fixed is not None and elements != fixed:
        raise Mismatch(
            f"{shape_text(x)} has {elements} elements, the new shape {shape_text(tuple(target))} has {fixed}"
        )
    return [tuple(target)]


def _broadcast_shapes(node: Node) -> list[Shape]:
    x, target = node.dims(0), node.target(1)
    if len(target) < len(x):
        raise Mismatch(f"{shape_text(x)} has more axes than {shape_text(target)}")
    broadcast((x, target))
    return [target]


def _dimshuffle_shapes(node: Node) -> list[Shape]:
    """The axes in a new order; -1 stands for a new axis."""
    x, pattern = node.dims(0), node.op.get("pattern")
    shape: list[Extent] = []
    for axis in pattern if isinstance(pattern, tuple) else ():
        if not isinstance(axis, int) or axis >= len(x):
            raise Mismatch(f"axis {axis} does not exist in {shape_text(x)}")
        shape.append(1 if axis < 0 else x[axis])
    return [tuple(shape)]


def _axis_shapes(node: Node) -> list[Shape]:
    """Axes of extent 1 are added and removed one after the other."""
    shape: list[Extent] = list(node.dims(0))
    changes = node.op.get("desc")
    for change in changes if isinstance(changes, tuple) else ():
        if not isinstance(change, tuple):
            continue
        method, axis = change
        place = axis if isinstance(axis, int) else 0
        if method == "add":
            shape.insert(axis_of(place, len(shape) + 1), 1)
            continue
        place = axis_of(place, len(shape))
        if shape[place] not in (1, None):
            raise Mismatch(f"axis {place} of {shape_text(tuple(shape))} cannot be removed")
        if len(shape) > 1:  # MegEngine has no tensor without axes
            shape.pop(place)
    return [tuple(shape)]


def _concat_shapes(node: Node) -> list[Shape]:
    first = list(node.dims(0))
    axis = axis_of(node.whole("axis"), len(first))
    total: Extent = 0
    for index in range(len(node.shapes)):
        dims = node.ranked(index, len(first))
        for place, extent in enumerate(dims):
            if place != axis and extent != first[place]:
                if first[place] is None:
                    first[place] = extent
                elif extent is not None:
                    raise Mismatch(f"{shape_text(dims)} does not fit {shape_text(node.dims(0))}")
        extent = dims[axis]
        total = None if total is None or extent is None else total + extent
    first[axis] = total
    return [tuple(first)]


def _split_shapes(node: Node) -> list[Shape]:
    """The extents of the parts come as inputs."""
    x = node.dims(0)
    axis = axis_of(node.whole("axis"), len(x))
    shapes: list[Shape] = []
    for index in range(1, len(node.shapes)):
        numbers = node.value(index)
        part: Extent = int(numbers[0]) if numbers else None
        shapes.append((*x[:axis], part, *x[axis + 1 :]))
    return shapes


def _padding_shapes(node: Node) -> list[Shape]:
    x = node.dims(0)
    shape: list[Extent] = []
    for axis, extent in enumerate(x):
        added = node.whole(f"front_offset_dim{axis}") + node.whole(f"back_offset_dim{axis}")
        shape.append(None if extent is None else extent + added)
    return [tuple(shape)]


def _shape_shapes(node: Node) -> list[Shape]:
    """The shape of the input, of several inputs their common one, or one extent of it."""
    if node.whole("axis") != NO_OPTIONAL_AXIS:
        return [(1,)]
    found = broadcast(node.shapes)
    return [(len(found or ()),)]


_VIEW = means("view")
"""Nothing moves; numbers that come as further inputs are only looked at."""


RULES = {
    "Reshape": Rule(_reshape_shapes, _VIEW),
    "Broadcast": Rule(_broadcast_shapes, _VIEW),
    "Dimshuffle": Rule(_dimshuffle_shapes, _VIEW),
    "AxisAddRemove": Rule(_axis_shapes, _VIEW),
    "Concat": Rule(_concat_shapes, means("copy")),
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
