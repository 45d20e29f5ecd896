"""Numbers that are known without data: shapes of tensors, and what a model computes from them and from small constants.

A dump reshapes and slices by tensors that it computes from other tensors' shapes. These few operators are evaluated, on
at most `SMALL` numbers; everything else stays unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product as places

from opcost.core.shapes import Shape, Unknown, axis_of, broadcast
from opcost.frontends.megengine.dtypes import FLOATING
from opcost.frontends.megengine.model import SMALL
from opcost.frontends.megengine.node import Node, Numbers
from opcost.frontends.megengine.operators.indexing import indices
from opcost.frontends.megengine.operators.move import NO_OPTIONAL_AXIS
from opcost.frontends.megengine.params import NO_AXIS

_LARGEST = 1 << 62

_ONE: dict[str, Callable[[float], float]] = {
    "ABS": abs, "NEGATE": lambda a: -a, "CEIL": math.ceil, "FLOOR": math.floor, "RELU": lambda a: max(a, 0),
    "ROUND": lambda a: math.floor(a + 0.5), "SQRT": math.sqrt, "SQUARE": lambda a: a * a, "EXP": math.exp, "LOG": math.log,
    "NOT": lambda a: int(not a), "SIGN": lambda a: (a > 0) - (a < 0),
}  # fmt: skip
_TWO: dict[str, Callable[[float, float], float]] = {
    "ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b, "MUL": lambda a, b: a * b, "TRUE_DIV": lambda a, b: a / b,
    "FLOOR_DIV": lambda a, b: a // b, "MOD": lambda a, b: a % b, "MAX": max, "MIN": min,
    "LT": lambda a, b: int(a < b), "LEQ": lambda a, b: int(a <= b), "EQ": lambda a, b: int(a == b),
    "NEQ": lambda a, b: int(a != b), "AND": lambda a, b: int(bool(a and b)), "OR": lambda a, b: int(bool(a or b)),
}  # fmt: skip


def evaluate(node: Node) -> Numbers | None:
    """The numbers of an operator's single output, or None."""
    rule = _RULES.get(node.op.type)
    if rule is None or len(node.op.outputs) != 1:
        return None
    shape = node.out_shapes[0]
    if shape is None or None in shape or math.prod(shape) > SMALL:  # type: ignore[arg-type]
        return None
    try:
        found = rule(node)
    except (Unknown, ArithmeticError, IndexError, ValueError):  # the file's numbers may be anything
        return None
    if found is None or len(found) != math.prod(shape):  # type: ignore[arg-type]
        return None
    if any(not math.isfinite(number) or abs(number) > _LARGEST for number in found):
        return None
    return found


def _same(node: Node) -> Numbers | None:
    return node.value(0)


def _shape(node: Node) -> Numbers | None:
    found = broadcast(node.every())
    axis = node.whole("axis")
    wanted = found if axis == NO_OPTIONAL_AXIS else (found[axis_of(axis, len(found))],)
    return None if None in wanted else tuple(extent for extent in wanted if extent is not None)


def _elementwise(node: Node) -> Numbers | None:
    operands = [node.value(index) for index in range(len(node.shapes))]
    if any(operand is None for operand in operands):
        return None
    mode = node.word("mode")
    shape = node.out_shapes[0]
    columns = [_spread(operand or (), node.shapes[index], shape) for index, operand in enumerate(operands)]
    if len(columns) == 1 and mode in _ONE:
        found = [_ONE[mode](a) for a in columns[0]]
    elif len(columns) == 2 and mode in _TWO:
        found = [_TWO[mode](a, b) for a, b in zip(*columns, strict=True)]
    elif len(columns) == 3 and mode == "FUSE_MUL_ADD3":
        found = [a * b + c for a, b, c in zip(*columns, strict=True)]
    else:
        return None
    if node.out_dtypes[0] not in FLOATING:
        return tuple(math.trunc(number) for number in found)
    return tuple(found)


def _spread(numbers: Numbers, shape: Shape, target: Shape) -> Numbers:
    """Numbers stretched to a larger shape."""
    if shape == target or shape is None or target is None:
        return numbers
    aligned = (1,) * (len(target) - len(shape)) + tuple(extent or 0 for extent in shape)
    strides, step = [0] * len(aligned), 1
    for axis in range(len(aligned) - 1, -1, -1):
        strides[axis] = step if aligned[axis] > 1 else 0
        step *= aligned[axis]
    spans = [range(extent or 0) for extent in target]
    return tuple(numbers[sum(i * s for i, s in zip(place, strides, strict=True))] for place in places(*spans))


def _broadcast(node: Node) -> Numbers | None:
    numbers = node.value(0)
    return None if numbers is None else _spread(numbers, node.shapes[0], node.out_shapes[0])


def _convert(node: Node) -> Numbers | None:
    numbers = node.value(0)
    if numbers is None or node.out_dtypes[0] in FLOATING:
        return numbers
    return tuple(math.trunc(number) for number in numbers)


def _concat(node: Node) -> Numbers | None:
    """Vectors one after the other; matrices are never joined to make a shape."""
    parts = [node.value(index) for index in range(len(node.shapes))]
    if any(part is None for part in parts) or len(node.dims(0)) != 1:
        return None
    return tuple(number for part in parts for number in part or ())


def _slice(node: Node) -> Numbers | None:
    """A part of a vector."""
    numbers = node.value(0)
    if numbers is None or len(node.dims(0)) != 1:
        return None
    for found in indices(node, 1, 1):
        given = [None if place is None else node.value(place) for place in (found.begin, found.end, found.step)]
        if found.picks is not None:
            picked = node.value(found.picks)
            if not picked or not -len(numbers) <= int(picked[0]) < len(numbers):
                return None
            return (numbers[int(picked[0])],)
        bounds = [int(value[0]) if value else None for value in given]
        numbers = numbers[slice(*bounds)]
    return numbers


def _reduce(node: Node) -> Numbers | None:
    """A vector to one number."""
    numbers = node.value(0)
    if not numbers or len(node.dims(0)) != 1:
        return None
    if node.whole("axis") not in (0, -1, NO_AXIS) or node.out_shapes[0] != (1,):
        return None
    match node.word("mode"):
        case "SUM":
            return (sum(numbers),)
        case "PRODUCT":
            return (math.prod(numbers),)
        case "MAX":
            return (max(numbers),)
        case "MIN":
            return (min(numbers),)
        case "MEAN":
            return (sum(numbers) / len(numbers),)
        case _:
            return None


_RULES: dict[str, Callable[[Node], Numbers | None]] = {
    "GetVarShape": _shape,
    "Elemwise": _elementwise,
    "TypeCvt": _convert,
    "Reshape": _same,
    "AxisAddRemove": _same,
    "Identity": _same,
    "Copy": _same,
    "MarkNoBroadcastElemwise": _same,
    "Broadcast": _broadcast,
    "Concat": _concat,
    "Subtensor": _slice,
    "Reduce": _reduce,
}
