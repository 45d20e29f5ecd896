"""Elements computed one by one, created, moved, and picked by index; and the numbers that are known without data."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from opcost.core import shapes as sh
from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Dims, Extent, Mismatch, Shape, Unknown
from opcost.frontends.megengine.model import SMALL
from opcost.frontends.megengine.operators.table import DATA, FUNCTIONS, MegEngineCall, Numbers
from opcost.frontends.megengine.schema import FLOATING, NO_AXIS, NO_OPTIONAL_AXIS, QUANTIZED
from opcost.frontends.nodes.meaning import Content
from opcost.frontends.rows import Means, Type, functions

# -- arithmetic, type conversion and quantization ----------------------------------------------------------------------


MODES = functions(DATA["functions"])  # MegEngine's modes and our names of functions
_BOOLEAN = ("LT", "LEQ", "EQ", "NEQ", "ISNAN", "ISINF", "NOT", "AND", "OR", "XOR")
_RESULTS = {"x32": "int32", "xI8": "int8", "x8": "int8", "xI16": "int16", "xF32": "float32"}
"""The end of a mode that names its types, and the type of its result."""


def _function(call: MegEngineCall) -> Means:
    """The quantized form of a function does what the function does; the types at the end of a mode say nothing more."""
    mode = call.attrs.text("mode")
    fn = MODES.get(mode)
    if fn is None and call.type == "ElemwiseMultiType":
        fn = MODES.get(mode[1:] if mode.startswith("Q") else mode.rpartition("_")[0])
    return ("elementwise", {"fn": fn}) if fn else ("unknown", NO_ATTRS)


def _multi_types(call: MegEngineCall) -> list[Type]:
    mode = call.attrs.text("mode")
    if mode in _BOOLEAN:
        return ["bool"]
    found = (dtype for end, dtype in _RESULTS.items() if mode.endswith(end) and not mode.startswith("Q"))
    return [next(found, call.dtype())]


FUNCTIONS.update(
    function_types=lambda call: ["bool" if call.attrs.text("mode") in ("ISNAN", "ISINF") else call.dtype()],
    # between numbers and their quantized form something is computed, between other types not
    conversion=lambda call: ("quantize" if {call.in_types[0], call.out_types[0]} & QUANTIZED else "copy", NO_ATTRS),
    where_shape=lambda call: sh.broadcast([call.dims(at) for at in range(3)]),
    checked_shapes=lambda call: [*call.ins, (1,)],
    checked_types=lambda call: [*(["float32"] * len(call.ins)), "int32"],
)

# -- tensors made of no other: constants, ranges, random numbers -------------------------------------------------------


FUNCTIONS.update(
    target_shape=lambda call: call.target(0),
    eye=lambda call: (call.target(0) * 2)[:2],
    linspace=lambda call: (call.first(2),),
    dropped_out=lambda call: [call.dims(0), (sh.product(call.dims(0)),)],  # the mask has a byte for each element
)

# -- other shapes of the same elements, joined and split tensors -------------------------------------------------------


def _reshape_shape(call: MegEngineCall) -> Shape:
    """The target may leave one extent open: -1, or the axis that the operator names."""
    x, target = call.dims(0), list(call.target(1))
    axis = call.attrs.integer("axis")
    if axis != NO_OPTIONAL_AXIS and "axis" in call.attrs:
        target[sh.axis_of(axis, len(target))] = -1
    return sh.reshaped(x, target)


def _dimshuffle_shape(call: MegEngineCall) -> Shape:
    """The axes in a new order; -1 is a new axis."""
    x = call.dims(0)
    shape: list[Extent] = []
    for axis in call.attrs.integers("pattern"):
        if not isinstance(axis, int) or axis >= len(x):
            raise Mismatch(f"axis {axis} does not exist in {sh.text(x)}")
        shape.append(1 if axis < 0 else x[axis])
    return tuple(shape)


def _axis_shape(call: MegEngineCall) -> Shape:
    """Axes of extent 1 are added and removed one after the other; MegEngine has no tensor without axes."""
    shape: Dims = call.dims(0)
    for method, axis in call.attrs.integers("desc"):
        shape = sh.inserted(shape, axis) if method == "add" else sh.squeezed(shape, [axis]) or (1,)
    return shape


def _split_shapes(call: MegEngineCall) -> list[Shape]:
    """The extents of the parts come as inputs."""
    x = call.dims(0)
    axis = sh.axis_of(call.attrs.integer("axis"), len(x))
    return [sh.replaced(x, axis, call.first(index)) for index in range(1, len(call.ins))]


def _padding_shape(call: MegEngineCall) -> Shape:
    x = call.dims(0)
    sides = ("front_offset", "back_offset")
    return sh.padded(x, [[call.attrs.integer(f"{side}_dim{axis}") for side in sides] for axis in range(len(x))])


FUNCTIONS.update(
    broadcast_to=lambda call: sh.expanded(call.dims(0), call.target(1)),
    concat=lambda call: sh.concat(call.every(), call.attrs.integer("axis")),
    # of the input's shape, of several inputs' common one, or one extent of it
    shape_length=lambda call: (
        1 if call.attrs.integer("axis") != NO_OPTIONAL_AXIS else len(sh.broadcast(call.every())),
    ),
)

# -- parts of tensors: slices, elements picked by index, and the same written to ---------------------------------------


def indices(call: MegEngineCall, rank: int) -> Iterator[tuple[int, int | None, int | None, int | None, int | None]]:
    """The axes that are indexed, in the order of the file, each with the inputs that hold begin, end, step and picks."""
    at = 1
    for axis, *present in call.attrs.integers("items"):
        places: list[int | None] = []
        for given in present[:4]:
            places.append(at if given else None)
            at += 1 if given else 0
        if at > len(call.ins):
            raise Mismatch(f"it has {len(call.ins)} inputs and needs {at}")
        begin, end, step, picks = places
        yield sh.axis_of(axis, rank), begin, end, step, picks


def _indexed(call: MegEngineCall) -> tuple[list[Extent], dict[int, int]]:
    """The extents with slices taken, and the inputs that pick elements, by axis."""
    dims: list[Extent] = list(call.dims(0))
    picked: dict[int, int] = {}
    for axis, *slices, picks in indices(call, len(dims)):
        numbers = [None if place is None else call.first(place) for place in slices]
        if picks is not None:
            picked[axis] = picks
        elif any(place is not None and number is None for place, number in zip(slices, numbers, strict=True)):
            dims[axis] = None
        else:
            dims[axis] = sh.slice_length(dims[axis], *numbers)
    return dims, picked


def _part_shape(call: MegEngineCall) -> Shape:
    """Slices shorten an axis, a number removes it; the last axis stays, since MegEngine has no tensor without axes."""
    dims, picked = _indexed(call)
    return tuple(extent for axis, extent in enumerate(dims) if axis not in picked) or (1,)


def _picked_shape(call: MegEngineCall) -> Shape:
    """Axes with an index tensor are replaced by its axes, in their place if they are neighbours, else in front."""
    dims, picked = _indexed(call)
    if not picked:
        return tuple(dims)
    shape = sh.broadcast([call.dims(place) for place in picked.values()])
    axes = sorted(picked)
    at = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    rest = [extent for axis, extent in enumerate(dims) if axis not in picked]
    return (*rest[:at], *shape, *rest[at:])


def _mesh_shape(call: MegEngineCall) -> Shape:
    """Every axis with an index keeps its place and takes the length of its own index."""
    dims, picked = _indexed(call)
    for axis, place in picked.items():
        dims[axis] = (call.dims(place) or (1,))[-1]
    return tuple(dims)


def _put(call: MegEngineCall, fn: str) -> Means:
    """Only what is put moves; the order of the inputs is x, source, indices."""
    source = call.ins[1] if len(call.ins) > 1 else None
    elements = None if source is None else sh.product(source)
    return "scatter", {"fn": fn} if elements is None else {"fn": fn, "elements": elements}


def _diagonal(call: MegEngineCall) -> Shape:
    """A vector becomes a matrix, a matrix gives its diagonal."""
    dims, offset = call.ranked(0, 1, 2), call.attrs.integer("k")
    if len(dims) == 1:
        side = sh.total((dims[0], abs(offset)))
        return (side, side)
    return (sh.diagonal(dims[0], dims[1], offset),)


FUNCTIONS.update(
    let_through=lambda call: call.every()[1:],  # behind a condition
)


def _unknown(call: MegEngineCall) -> Shape:
    raise Unknown


# -- numbers that are known without data: shapes, and what a model computes from them and from small constants ----------
#
# A dump reshapes and slices by tensors that it computes from other tensors' shapes. These few operators are evaluated, on
# at most `SMALL` numbers; everything else stays unknown.

_LARGEST = 1 << 62

_EVALUATED: dict[str, Callable[..., Any]] = {
    "ABS": abs, "NEGATE": lambda a: -a, "CEIL": math.ceil, "FLOOR": math.floor, "RELU": lambda a: max(a, 0),
    "ROUND": lambda a: math.floor(a + 0.5), "SQRT": math.sqrt, "SQUARE": lambda a: a * a, "EXP": math.exp, "LOG": math.log,
    "NOT": lambda a: int(not a), "SIGN": lambda a: (a > 0) - (a < 0),
    "ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b, "MUL": lambda a, b: a * b, "TRUE_DIV": lambda a, b: a / b,
    "FLOOR_DIV": lambda a, b: a // b, "MOD": lambda a, b: a % b, "MAX": max,
    "MIN": min, "LT": lambda a, b: int(a < b), "LEQ": lambda a, b: int(a <= b),
    "EQ": lambda a, b: int(a == b), "NEQ": lambda a, b: int(a != b), "AND": lambda a, b: int(bool(a and b)),
    "OR": lambda a, b: int(bool(a or b)), "FUSE_MUL_ADD3": lambda a, b, c: a * b + c,
}  # fmt: skip
_REDUCTIONS: dict[str, Callable[[Numbers], float]] = {
    "SUM": sum, "PRODUCT": math.prod, "MAX": max, "MIN": min, "MEAN": lambda numbers: sum(numbers) / len(numbers),
}  # fmt: skip


def content_of(call: MegEngineCall) -> Content | None:
    """The numbers of an operator's single result, or None."""
    shape = call.outs[0] if len(call.outs) == 1 and call.type in _RULES else None
    if not sh.complete(shape) or math.prod(sh.known(shape)) > SMALL:
        return None
    try:
        found = tuple(_RULES[call.type](call))
    except (Unknown, ArithmeticError, LookupError, TypeError, ValueError):  # the file's numbers may be anything
        return None
    fits = len(found) == math.prod(sh.known(shape)) and all(abs(number) <= _LARGEST for number in found)
    return Content(sh.known(shape), found) if fits else None


def _shape_content(call: MegEngineCall) -> Numbers:
    found, axis = sh.broadcast(call.every()), call.attrs.integer("axis")
    return sh.known(found if axis == NO_OPTIONAL_AXIS else (found[sh.axis_of(axis, len(found))],))


def _stretched(call: MegEngineCall) -> Iterator[Numbers]:
    """The numbers of each input, stretched to the result's shape."""
    for found in call.contents:
        if found is None:
            raise Unknown
        yield found.stretched(sh.known(call.outs[0])).items  # type: ignore[misc]


def _elementwise(call: MegEngineCall, function: Callable[..., Any]) -> Numbers:
    """The results as their element type keeps them."""
    found = map(function, *_stretched(call))
    return tuple(found if call.out_types[0] in FLOATING else map(math.trunc, found))


def _vector(call: MegEngineCall, place: int = 0) -> Numbers:
    """The numbers of an input that has one axis; matrices are never used to compute a shape."""
    numbers = call.value(place)
    if numbers is None or len(call.dims(0)) != 1:
        raise Unknown
    return numbers


def _slice_content(call: MegEngineCall) -> Numbers:
    """A part of a vector."""
    numbers = _vector(call)
    for _, *slices, picks in indices(call, 1):
        if picks is not None:
            return (numbers[call.first(picks)],)  # type: ignore[index]
        numbers = numbers[slice(*(None if place is None else call.first(place) for place in slices))]
    return numbers


def _reduced_content(call: MegEngineCall) -> Numbers:
    """A vector to one number."""
    numbers, function = _vector(call), _REDUCTIONS[call.attrs.text("mode")]
    if not numbers or call.attrs.integer("axis") not in (0, -1, NO_AXIS):
        raise Unknown
    return (function(numbers),)


_KEPT = ("Reshape", "AxisAddRemove", "Identity", "Copy", "MarkNoBroadcastElemwise")
_RULES: dict[str, Callable[[MegEngineCall], Any]] = {
    "GetVarShape": _shape_content,
    "Elemwise": lambda call: _elementwise(call, _EVALUATED[call.attrs.text("mode")]),
    "TypeCvt": lambda call: _elementwise(call, lambda number: number),
    "Broadcast": lambda call: next(_stretched(call)),
    **dict.fromkeys(_KEPT, lambda call: call.value(0)),
    "Concat": lambda call: tuple(number for place in range(len(call.ins)) for number in _vector(call, place)),
    "Subtensor": _slice_content,
    "Reduce": _reduced_content,
}
