"""Elements in other shapes, orders and places; with what is known of their content, because shapes are computed this way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import (
    Dims,
    Extent,
    Mismatch,
    Shape,
    Unknown,
    axes_of,
    axis_of,
    broadcast,
    complete,
    concat,
    flattened,
    gathered,
    inserted,
    known,
    padded,
    replaced,
    reshaped,
    squeezed,
    tiled,
    times,
)
from opcost.frontends.nodes.call import Call, Made, Meaning, Out, alias, fitting, numel, result
from opcost.frontends.nodes.meanings import (
    common,
    copied,
    counted,
    created,
    divided,
    filled_with,
    joined,
    picked,
    shape_of,
    sliced,
    stretched,
    turned,
)
from opcost.frontends.nodes.model import Content, Stored
from opcost.frontends.onnx.model import DTYPES
from opcost.frontends.onnx.table import MICROSOFT, handles

# -- the same memory ---------------------------------------------------------------------------------------------------


@handles("Identity", "Dropout")
@handles("Identity", "MemcpyFromHost", "MemcpyToHost", domains=(MICROSOFT,))
def _identity(call: Call) -> Meaning:
    x = call[0]
    found = alias(call, x.shape, x.content)
    outs = [found.outs[0]._replace(items=x.items), Out(x.shape, "bool")]
    return found._replace(outs=outs)


@handles("Reshape")
def _reshape(call: Call) -> Meaning:
    x, target = call[0], call.integers("shape") if "shape" in call.attrs else call[1].numbers
    copies = not call.flag("allowzero")
    wanted: list[Extent] = [None if n is None else int(n) for n in target or ()]
    if x.shape is None:  # what is written out is known all the same
        shape: Shape = tuple([None if n is None or n < 0 or (n == 0 and copies) else n for n in wanted])
    elif (
        len(x.shape) == 4 and wanted[:4] == [0, -1, 0, 0] and len(wanted) == 5 and (x.shape[1] or 0) % (wanted[4] or 1)
    ):
        shape = x.shape  # channels that ONNX Runtime has filled up to whole blocks, which are left out here
    else:
        shape = reshaped(x.shape, wanted, zero_copies=copies)
    return alias(call, shape, fitting(shape, x.content.items if x.content else None))


@handles("Flatten", "Squeeze", "Unsqueeze")
@handles("ExpandDims", domains=(MICROSOFT,))
def _axes(call: Call) -> Meaning:
    x, name = call[0], call.node.op
    if name == "Flatten":
        rank = len(x.dims)
        axis = call.whole("axis", 1)
        shape: Dims = flattened(x.dims, axis + rank if axis < 0 else axis)
    elif name == "Squeeze":
        axes = call.integers("axes", 1)
        if axes is None and None in x.dims:
            raise Unknown
        shape = squeezed(x.dims, [at for at, n in enumerate(x.dims) if n == 1] if axes is None else axes)
    else:
        added = call.integers("axes", 1) or ()
        shape = x.dims
        for axis in sorted(axis_of(at, len(x.dims) + len(added)) for at in added):
            shape = inserted(shape, axis)
    return alias(call, shape, fitting(shape, x.content.items if x.content else None))


# -- copies ------------------------------------------------------------------------------------------------------------


@handles("Transpose")
def _transpose(call: Call) -> Meaning:
    x = call[0]
    order = axes_of(call.integers("perm") or None, len(x.dims))
    if "perm" not in call.attrs:
        order = order[::-1]
    return turned(x, order)


@handles("Concat")
@handles("QLinearConcat", domains=(MICROSOFT,))
def _concat(call: Call) -> Meaning:
    parts = call.given if call.node.op == "Concat" else call.given[2::3]
    return joined(parts, call.whole("axis"))


@handles("Split")
def _split(call: Call) -> Meaning:
    x, count = call[0], len(call.node.outputs)
    axis = axis_of(call.whole("axis"), len(x.dims))
    lengths: Sequence[Extent] | None = call.integers("split", 1)
    if lengths is None:
        count = call.whole("num_outputs", count)
        extent = x.dims[axis]
        size = None if extent is None else -(-extent // count)
        pieces = range(len(call.node.outputs))
        lengths = [None for _ in pieces] if size is None else [min(size, extent - at * size) for at in pieces]  # type: ignore[operator]
    return divided(x, axis, lengths)


@handles("Slice")
def _slice(call: Call) -> Meaning:
    x = call[0]
    begins, ends = call.integers("starts", 1), call.integers("ends", 2)
    if begins is None or ends is None:
        raise Mismatch("its starts or ends are missing")
    axes = axes_of(call.integers("axes", 3) or tuple(range(len(begins))), len(x.dims))
    steps = call.integers("steps", 4) or (1,) * len(begins)
    # Backwards, ONNX ends before the first element where Python would count from behind.
    lasts = [
        None if step < 0 and (extent := x.dims[axis]) is not None and last < -extent else last
        for axis, last, step in zip(axes, ends, steps, strict=True)
    ]
    return sliced(x, axes, begins, lasts, steps)


@handles("Expand")
def _expand(call: Call) -> Meaning:
    x, target = call[0], call[1].numbers
    shape = broadcast([x.dims, tuple([None if n is None else int(n) for n in target])])
    return stretched(x, shape)


@handles("Tile")
def _tile(call: Call) -> Meaning:
    return copied(call[0], tiled(call[0].dims, call.integers("repeats", 1) or ()))


@handles("Pad", domains=("", MICROSOFT))
def _pad(call: Call) -> Meaning:
    x = call[0]
    pads = call.integers("pads", 1) or call.integers("paddings") or ()
    axes = axes_of(call.integers("axes", 3), len(x.dims))
    widths = [(0, 0)] * len(x.dims)
    for place, axis in enumerate(axes):
        widths[axis] = (pads[place], pads[place + len(axes)])
    return copied(call[0], padded(x.dims, widths))


@handles("CenterCropPad")
def _center(call: Call) -> Meaning:
    shape = list(call[0].dims)
    for axis, extent in zip(axes_of(call.integers("axes"), len(shape)), call[1].integers, strict=True):
        shape[axis] = extent
    return copied(call[0], tuple(shape))


@handles("DepthToSpace", "SpaceToDepth")
def _blocks(call: Call) -> Meaning:
    batch, channels, *space = call[0].dims
    size = call.whole("blocksize")
    if call.node.op == "DepthToSpace":
        deep = None if channels is None else channels // (size * size)
        return copied(call[0], (batch, deep, *[times(n, size) for n in space]))
    return copied(call[0], (batch, times(channels, size * size), *[None if n is None else n // size for n in space]))


@handles("ReverseSequence", "Trilu")
@handles("Trilu", domains=(MICROSOFT,))
def _same(call: Call) -> Meaning:
    return copied(call[0], call[0].shape)


@handles("Col2Im")
def _col2im(call: Call) -> Meaning:
    batch, channels, _ = call[0].dims
    image, block = call[1].integers, call[2].integers
    deep = None if channels is None else channels // prod(block)
    attrs: dict[str, Any] = {"fn": "add", "elements": numel(call[0].shape)}
    return Meaning("scatter", attrs, [Out((batch, deep, *image), call[0].dtype)], [call[0]])


# -- by index ----------------------------------------------------------------------------------------------------------


@handles("Gather")
def _gather(call: Call) -> Meaning:
    x, indices = call[0], call[1]
    axis = axis_of(call.whole("axis"), len(x.dims))
    return picked(x, indices, axis)


@handles("GatherBlockQuantized", domains=(MICROSOFT,))
def _gather_quantized(call: Call) -> Meaning:
    shape = gathered(call[0].dims, call[1].dims, axis_of(call.whole("gather_axis"), len(call[0].dims)))
    return Meaning("embedding", NO_ATTRS, [Out(shape, call[2].dtype)], call.given)


@handles("GatherElements")
def _gather_elements(call: Call) -> Meaning:
    return Meaning("gather", NO_ATTRS, [Out(call[1].shape, call[0].dtype)])


@handles("GatherND")
@handles("GatherND", domains=(MICROSOFT,))
def _gather_nd(call: Call) -> Meaning:
    x, indices = call[0].dims, call[1].dims
    depth = known(indices[-1:])[0]
    return result(call, "gather", NO_ATTRS, (*indices[:-1], *x[call.whole("batch_dims") + depth :]))


@handles("Scatter", "ScatterElements", "ScatterND", "TensorScatter")
def _scatter(call: Call) -> Meaning:
    name = call.text("reduction", "none")
    x, indices, updates = (
        (call[0], call.at(2), call[1]) if call.node.op == "TensorScatter" else (call[0], call[1], call[2])
    )
    attrs = {} if name in ("none", "linear", "circular") else {"fn": name}
    return Meaning("scatter", attrs, [Out(x.shape, x.dtype)], [x, indices, updates])


@handles("Compress")
def _compress(call: Call) -> Meaning:
    if "axis" not in call.attrs:
        return result(call, "gather", NO_ATTRS, (None,))
    return result(
        call, "gather", NO_ATTRS, replaced(call[0].dims, axis_of(call.whole("axis"), len(call[0].dims)), None)
    )


@handles("NonZero")
def _nonzero(call: Call) -> Meaning:
    x = call[0]
    shape: Dims = (len(x.dims), None)
    if x.content is not None and None not in x.numbers:
        hits = [at for at, number in enumerate(x.numbers) if number]
        shape = (len(x.dims), len(hits))
        if len(x.dims) == 1:
            return Meaning("gather", NO_ATTRS, [Out(shape, "int64", fitting(shape, hits))])
    return Meaning("gather", NO_ATTRS, [Out(shape, "int64")])


# -- sequences ---------------------------------------------------------------------------------------------------------


def _list(made: Made) -> list[Made]:
    if made.items is None:
        raise Unknown
    return made.items


def _sequence(call: Call, items: list[Made] | None) -> Meaning:
    return Meaning("view", NO_ATTRS, [Out(None, items[0].dtype if items else "float32", items=items)], [])


@handles("SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SplitToSequence", "Optional")
def _make_sequence(call: Call) -> Meaning:
    match call.node.op:
        case "SequenceInsert":
            items = list(_list(call[0]))
            place = call.at(2)
            items.insert(len(items) if place is None else place.integers[0], call[1])
            return _sequence(call, items)
        case "SequenceErase":
            items = list(_list(call[0]))
            items.pop(call[1].integers[0] if call.at(1) else -1)
            return _sequence(call, items)
        case "SplitToSequence":
            return _sequence(call, _pieces(call))
        case "Optional":
            return alias(call, call[0].shape) if call.given else _sequence(call, None)
    return _sequence(call, call.given)


_MOST_PIECES = 4096


def _pieces(call: Call) -> list[Made]:
    x = call[0]
    axis = axis_of(call.whole("axis"), len(x.dims))
    extent = known(x.dims[axis : axis + 1])[0]
    given = call.at(1)
    if given is None:
        lengths = [1] * min(extent, _MOST_PIECES + 1)
    elif given.dims:
        lengths = list(given.integers)
    else:
        size = given.integers[0]
        lengths = [min(size, extent - begin) for begin in range(0, extent, size)[: _MOST_PIECES + 1]]
    if len(lengths) > _MOST_PIECES:
        raise Unknown
    shapes = [replaced(x.dims, axis, length) for length in lengths]
    if given is None and not call.flag("keepdims", default=True):
        shapes = [replaced(x.dims, axis) for _ in lengths]
    return call.step("copy", NO_ATTRS, [x], [Out(shape, x.dtype) for shape in shapes])


@handles("SequenceAt", "OptionalGetElement", "SequenceLength", "OptionalHasElement", "ConcatFromSequence")
def _from_sequence(call: Call) -> Meaning:
    match call.node.op:
        case "SequenceAt":
            found = _list(call[0])[call[1].integers[0]]
            return Meaning("view", NO_ATTRS, [Out(found.shape, found.dtype, found.content, found)], [found])
        case "OptionalGetElement":
            return alias(call, call[0].shape, call[0].content)
        case "OptionalHasElement":
            return Meaning("create", NO_ATTRS, [Out((), "bool")], [])
        case "SequenceLength":
            items = call[0].items
            return created((), "int64", [len(items)] if items is not None else None)
    parts = _list(call[0])
    axis = call.whole("axis")
    shapes = [made.dims for made in parts]
    if call.flag("new_axis"):
        shapes = [inserted(shape, axis) for shape in shapes]
    return Meaning("copy", NO_ATTRS, [Out(concat(shapes, axis), parts[0].dtype)], parts)


# -- from nothing ------------------------------------------------------------------------------------------------------


@handles("Shape", "Size")
def _shape(call: Call) -> Meaning:
    x = call[0]
    if call.node.op == "Size":
        return created((), "int64", [numel(x.shape)] if complete(x.shape) else None)
    dims = x.dims
    chosen = dims[slice(call.whole("start"), call.whole("end", len(dims)))]
    return shape_of(chosen)


@handles("ConstantOfShape")
def _constant_of_shape(call: Call) -> Meaning:
    wanted = call[0].numbers
    if any(n is not None and n < 0 for n in wanted):
        raise Mismatch(f"its shape would be {wanted}")
    value = call.attrs.get("value")
    dtype = value.dtype if isinstance(value, Stored) else "float32"
    number: Any = value.content.items[0] if isinstance(value, Stored) and value.content and value.content.items else 0
    return filled_with(number, wanted, dtype)


@handles("Range", domains=("", MICROSOFT))
def _range(call: Call) -> Meaning:
    ends: list[Made] = call.given
    if len(ends) == 2:  # ONNX Runtime's own may leave out the step
        ends = [*ends, replace(ends[0], content=Content((), (1,)))]
    return counted(ends, call[0].dtype)


@handles("MelWeightMatrix")
def _mel(call: Call) -> Meaning:
    """Bands of frequencies against those of a Fourier transform; made once, of a handful of numbers."""
    bands, length = (call[place].numbers[0] for place in (0, 1))
    shape: Dims = (None if length is None else int(length) // 2 + 1, None if bands is None else int(bands))
    dtype = DTYPES.get(call.whole("output_datatype", 1), "float32")
    return Meaning("create", NO_ATTRS, [Out(shape, dtype)], [])


# -- texts -------------------------------------------------------------------------------------------------------------


@handles("StringConcat", "RegexFullMatch")
def _texts(call: Call) -> Meaning:
    x = call[0]
    dtype = "bool" if call.node.op == "RegexFullMatch" else x.dtype
    return Meaning("copy", NO_ATTRS, [Out(common(call.given), dtype)])


@handles(
    "EyeLike",
    "RandomNormalLike",
    "RandomUniformLike",
    "Bernoulli",
    "RandomNormal",
    "RandomUniform",
    "Multinomial",
    "OneHot",
)
def _created(call: Call) -> Meaning:
    dtype = DTYPES.get(call.whole("dtype"), "") if call.whole("dtype") else ""
    match call.node.op:
        case "RandomNormal" | "RandomUniform":
            return Meaning("random", NO_ATTRS, [Out(call.integers("shape"), dtype or "float32")], [])
        case "Multinomial":
            shape: Shape = (call[0].dims[0], call.whole("sample_size", 1))
            return Meaning("random", NO_ATTRS, [Out(shape, dtype or "int32")])
        case "OneHot":
            depth = call[1].content.items[0] if call[1].content else None
            axis = axis_of(call.whole("axis", -1), len(call[0].dims) + 1)
            shape = inserted(call[0].dims, axis, None if depth is None else int(depth))
            return Meaning("create", NO_ATTRS, [Out(shape, call[2].dtype)], [])
        case "EyeLike":
            return Meaning("create", NO_ATTRS, [Out(call[0].shape, dtype or call[0].dtype)], [])
    reads = call.given if call.node.op == "Bernoulli" else []  # others take only the shape
    return Meaning("random", NO_ATTRS, [Out(call[0].shape, dtype or call[0].dtype)], reads)
