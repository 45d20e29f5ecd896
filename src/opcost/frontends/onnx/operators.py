"""ONNX's own operators that compute, move or make elements one by one."""

import math
from math import prod
from typing import Any

from opcost.core import shapes
from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Dims, Mismatch, Unknown, known
from opcost.frontends.nodes import results
from opcost.frontends.nodes.meaning import Handler, NodeCall, Number, Operand, OperatorMeaning, Out, StoredValue
from opcost.frontends.nodes.results import common, element_type, fitting, like, numel, one
from opcost.frontends.onnx.model import DTYPES


def stated(call: NodeCall, name: str, default: str) -> str:
    """The element type whose number is an attribute."""
    return DTYPES.get(call.whole(name), default) if call.whole(name) else default


EXPRESSIONS: dict[str, Handler] = {
    "shrink": lambda call: like(call[0], "elementwise", {"fn": "softshrink" if call.attrs.get("bias") else "hardshrink"}),
    "cast": lambda call: results.converted(
        call["x"], stated(call, "to", "float32") if call.at("like") is None else call["like"].dtype
    ),
    "dynamic_quantize": lambda call: OperatorMeaning(
        "quantize", NO_ATTRS, [Out(call["x"].shape, "uint8"), Out((), "float32"), Out((), "uint8")]
    ),
    "texts": lambda call: one("copy", NO_ATTRS, common(call.given), element_type(call, call[0])),
    "tensor_scatter": lambda call: like(
        call["x"], "scatter", NO_ATTRS, [call["x"], call.at("indices"), call["updates"]]
    ),
    "size": lambda call: results.created(
        (), "int64", [numel(call["x"].shape)] if shapes.complete(call["x"].shape) else None
    ),
    "window_function": lambda call: one("elementwise", {"fn": "cos"}, (call["length"].integers[0],), "float32", []),
    "created": lambda call: like(call["x"], call.text("kind"), NO_ATTRS, [], stated(call, "dtype", "")),
    "bernoulli": lambda call: like(call["x"], "random", NO_ATTRS, [call["x"]], stated(call, "dtype", "")),
    "random_numbers": lambda call: one("random", NO_ATTRS, call.integers("shape"), stated(call, "dtype", "float32"), []),
    "multinomial": lambda call: one(
        "random", NO_ATTRS, (call["x"].dims[0], call.whole("sample_size", 1)), stated(call, "dtype", "int32")
    ),
}  # fmt: skip
"""Handlers of one expression each, by their names."""


# -- functions of each element -------------------------------------------------------------------------------------------


def _clip(call: NodeCall) -> OperatorMeaning:
    """Exporters use it so that paddings that are computed are never negative."""
    x, ends = call[0], [call.attrs.get(name) for name in ("min", "max")]
    for place, given in ((0, call.at(1)), (1, call.at(2))):
        if given is not None:
            ends[place] = math.nan if given.first is None else given.first
    lowest, highest = (far if end is None else end for end, far in zip(ends, (-math.inf, math.inf), strict=True))
    items: list[Number] | None = None
    if x.content is not None and not math.isnan(lowest) and not math.isnan(highest):
        items = [None if item is None else min(max(item, lowest), highest) for item in x.content.items]
    return OperatorMeaning("elementwise", {"fn": "clamp"}, [Out(x.shape, x.dtype, fitting(x.shape, items))], [x])


def _variadic(call: NodeCall) -> OperatorMeaning:
    ins = call.given
    if len(ins) == 1:
        return results.viewed(ins[0], ins[0].shape)
    more = int(call.node.op == "Mean")  # it is divided, too
    shape = common(ins)
    found = fitting(shape, results.computed(call.node.op.lower(), ins, shape))
    return OperatorMeaning(
        "elementwise", results.added(ins, call.text("fn"), more), [Out(shape, ins[0].dtype, found)], ins
    )


def _swiglu(call: NodeCall) -> OperatorMeaning:
    """The first half through swish, times the second; a factor inside the sigmoid is one product more."""
    fn = "silu" if float(call.attrs.get("alpha", 1.0)) == 1.0 else "quick_gelu"
    return results.pointwise("mul", [call.elementwise(fn, call[0]), call[1]])


def _quantize(call: NodeCall) -> OperatorMeaning:
    zero = call.at("zero")
    return like(call["x"], "quantize", dtype=stated(call, "output_dtype", "uint8" if zero is None else zero.dtype))


# -- the same memory, and copies -----------------------------------------------------------------------------------------


def _identity(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    outs = [Out(x.shape, x.dtype, x.content, x, x.items), Out(x.shape, "bool")]
    return OperatorMeaning("view", NO_ATTRS, outs, [x])


def _reshape(call: NodeCall) -> OperatorMeaning:
    x, wanted = call["x"], call.extents("shape")
    if wanted is None:
        raise IndexError("the input 1 is missing")
    copies = not call.flag("allowzero")
    if x.shape is None:  # what is written out is known all the same
        return results.viewed(x, tuple([None if n is None or n < 0 or (n == 0 and copies) else n for n in wanted]))
    blocks = len(x.shape) == 4 and wanted[:4] == (0, -1, 0, 0) and len(wanted) == 5
    if blocks and (x.shape[1] or 0) % (wanted[4] or 1):
        return results.viewed(
            x, x.shape
        )  # ONNX Runtime has filled up channels to whole blocks, which are left out here
    return results.viewed(x, shapes.reshaped(x.shape, wanted, zero_copies=copies))


def _slice(call: NodeCall) -> OperatorMeaning:
    x, begins, ends = call["x"], call.integers("starts"), call.integers("ends")
    if begins is None or ends is None:
        raise Mismatch("its starts or ends are missing")
    axes = shapes.axes_of(call.integers("axes") or tuple(range(len(begins))), len(x.dims))
    steps = call.integers("steps") or (1,) * len(begins)
    # Backwards, ONNX ends before the first element where Python would count from behind.
    lasts = [
        None if step < 0 and (extent := x.dims[axis]) is not None and last < -extent else last
        for axis, last, step in zip(axes, ends, steps, strict=True)
    ]
    return results.sliced(x, axes, begins, lasts, steps)


def _pad(call: NodeCall) -> OperatorMeaning:
    """All widths before, then all behind."""
    x, pads = call["x"], call.integers("pads") or call.integers("paddings") or ()
    axes = shapes.axes_of(call.integers("axes"), len(x.dims))
    widths = [(0, 0)] * len(x.dims)
    for place, axis in enumerate(axes):
        widths[axis] = (pads[place], pads[place + len(axes)])
    return results.copied(x, shapes.padded(x.dims, widths))


def _center_crop_pad(call: NodeCall) -> OperatorMeaning:
    shape = list(call[0].dims)
    for axis, extent in zip(shapes.axes_of(call.integers("axes"), len(shape)), call[1].integers, strict=True):
        shape[axis] = extent
    return results.copied(call[0], tuple(shape))


def _col2im(call: NodeCall) -> OperatorMeaning:
    batch, channels, _ = call[0].dims
    image, block = call[1].integers, call[2].integers
    deep = None if channels is None else channels // prod(block)
    attrs: dict[str, Any] = {"fn": "add", "elements": numel(call[0].shape)}
    return one("scatter", attrs, (batch, deep, *image), call[0].dtype, [call[0]])


# -- by index ------------------------------------------------------------------------------------------------------------


def _gather_quantized(call: NodeCall) -> OperatorMeaning:
    shape = shapes.gathered(call[0].dims, call[1].dims, shapes.axis_of(call.whole("gather_axis"), len(call[0].dims)))
    return one("embedding", NO_ATTRS, shape, call[2].dtype, call.given)


def _compress(call: NodeCall) -> OperatorMeaning:
    x, shape = call[0], (None,)
    if "axis" in call.attrs:
        shape = shapes.replaced(x.dims, shapes.axis_of(call.whole("axis"), len(x.dims)), None)  # type: ignore[assignment]
    return one("gather", NO_ATTRS, shape, x.dtype)


def _non_zero(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    hits = None
    if x.content is not None and None not in x.numbers:
        hits = [at for at, number in enumerate(x.numbers) if number]
    shape: Dims = (len(x.dims), None if hits is None else len(hits))
    found = fitting(shape, hits) if len(x.dims) == 1 else None
    return OperatorMeaning("gather", NO_ATTRS, [Out(shape, "int64", found)])


# -- sequences -----------------------------------------------------------------------------------------------------------


def _items(sequence: Operand) -> list[Operand]:
    if sequence.items is None:
        raise Unknown
    return [*sequence.items]


def _sequence(items: list[Operand] | None) -> OperatorMeaning:
    return OperatorMeaning("view", NO_ATTRS, [Out(None, items[0].dtype if items else "float32", items=items)], [])


def _make_sequence(call: NodeCall) -> OperatorMeaning:
    match call.node.op:
        case "SequenceInsert":
            items, place = _items(call[0]), call.at(2)
            items.insert(len(items) if place is None else place.integers[0], call[1])
            return _sequence(items)
        case "SequenceErase":
            items = _items(call[0])
            items.pop(call[1].integers[0] if call.at(1) else -1)
            return _sequence(items)
        case "SplitToSequence":
            x, given = call[0], call.at(1)
            axis = shapes.axis_of(call.whole("axis"), len(x.dims))
            extent = known(x.dims[axis : axis + 1])[0]
            if given is None:
                lengths = [1] * min(extent, _MOST_PIECES + 1)
            elif given.dims:
                lengths = list(given.integers)
            else:
                size = given.integers[0]
                lengths = [min(size, extent - begin) for begin in range(0, extent, size)[: _MOST_PIECES + 1]]
            if len(lengths) > _MOST_PIECES:
                raise Unknown
            dims_of_all = [shapes.replaced(x.dims, axis, length) for length in lengths]
            if given is None and not call.flag("keepdims", default=True):
                dims_of_all = [shapes.replaced(x.dims, axis) for _ in lengths]
            return _sequence(call.step("copy", NO_ATTRS, [x], [Out(shape, x.dtype) for shape in dims_of_all]))
        case "Optional":
            return results.viewed(call[0], call[0].shape) if call.given else _sequence(None)
    return _sequence(call.given)


_MOST_PIECES = 4096


def _from_sequence(call: NodeCall) -> OperatorMeaning:
    match call.node.op:
        case "SequenceAt":
            x = _items(call[0])[call[1].integers[0]]
            return results.viewed(x, x.shape)
        case "OptionalGetElement":
            return results.viewed(call[0], call[0].shape)
        case "OptionalHasElement":
            return results.created((), "bool")
        case "SequenceLength":
            items = call[0].items
            return results.created((), "int64", [len(items)] if items is not None else None)
    parts, axis = _items(call[0]), call.whole("axis")
    dims_of_all = [each.dims for each in parts]
    if call.flag("new_axis"):
        dims_of_all = [shapes.inserted(shape, axis) for shape in dims_of_all]
    return one("copy", NO_ATTRS, shapes.concat(dims_of_all, axis), parts[0].dtype, parts)


# -- from nothing --------------------------------------------------------------------------------------------------------


def _constant_of_shape(call: NodeCall) -> OperatorMeaning:
    wanted, value = call[0].numbers, call.attrs.get("value")
    if any(n is not None and n < 0 for n in wanted):
        raise Mismatch(f"its shape would be {wanted}")
    if not isinstance(value, StoredValue):
        return results.filled_with(0, wanted, "float32")
    items = value.content.items if value.content else ()
    return results.filled_with(items[0] if items else 0, wanted, value.dtype)


def _mel_weights(call: NodeCall) -> OperatorMeaning:
    """Bands of frequencies against those of a Fourier transform; made once, of a handful of numbers."""
    bands, length = (call[place].numbers[0] for place in (0, 1))
    shape: Dims = (None if length is None else int(length) // 2 + 1, None if bands is None else int(bands))
    return results.created(shape, DTYPES.get(call.whole("output_datatype", 1), "float32"))
