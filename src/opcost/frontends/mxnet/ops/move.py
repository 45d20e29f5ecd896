"""Elements moved to other places: joined, cut, tiled, turned round, padded, converted."""

from __future__ import annotations

from opcost.frontends.mxnet.attribute import AttributeFault, Attributes
from opcost.frontends.mxnet.ops.elementwise import like_first, same_shapes
from opcost.frontends.mxnet.ops.join import parts_of
from opcost.frontends.mxnet.ops.table import (
    COPY,
    VIEW,
    Call,
    Operator,
    Translation,
    always,
    output_type,
    register,
    same_types,
    types_of,
)
from opcost.frontends.mxnet.shape import (
    Extent,
    Mismatch,
    axis_of,
    replaced,
    show,
)

_FIRST_ONLY = Translation("copy", {}, (0,))
"""The other inputs lend only their shape."""


def _transpose(call: Call) -> None:
    axes = call.attrs.integers("axes", ())
    x, y = call.ins[0], call.outs[0]
    rank = len(x) if x is not None else len(y) if y is not None else None
    if rank is None:
        return
    order = [axis_of(axis, rank) for axis in axes] or list(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise Mismatch(f"the axes {axes} do not fit {rank} axes")
    if x is not None:
        call.put_out(0, tuple(x[axis] for axis in order))
    y = call.outs[0]
    if y is not None:
        source: list[Extent] = [None] * rank
        for place, axis in enumerate(order):
            source[axis] = y[place]
        call.put_in(0, tuple(source))


def _swap_axes(call: Call) -> None:
    for mine, other, put in ((call.ins[0], call.outs[0], call.put_out), (call.outs[0], call.ins[0], call.put_in)):
        shape = mine if mine is not None else other
        if shape is None:
            return
        first = axis_of(call.attrs.integer("dim1", 0), len(shape))
        second = axis_of(call.attrs.integer("dim2", 0), len(shape))
        if mine is not None:
            swapped = list(mine)
            swapped[first], swapped[second] = swapped[second], swapped[first]
            put(0, tuple(swapped))


def _move_axis(call: Call) -> None:
    x = call.ins[0]
    if x is None:
        return
    source = [axis_of(axis, len(x)) for axis in call.attrs.integers("source")]
    target = [axis_of(axis, len(x)) for axis in call.attrs.integers("destination")]
    order = [axis for axis in range(len(x)) if axis not in source]
    for place, axis in sorted(zip(target, source, strict=True)):
        order.insert(place, axis)
    call.put_out(0, tuple(x[axis] for axis in order))


def _slice(call: Call) -> None:
    x = call.ins[0]
    if x is None:
        return
    begin, end = call.attrs.items("begin"), call.attrs.items("end")
    step = call.attrs.items("step", ()) or (None,) * len(begin)
    if len(begin) != len(end) or len(begin) != len(step) or len(begin) > len(x):
        raise Mismatch(f"begin, end and step do not fit {show(x)}")
    cut = [sliced(n, b, e, s) for n, b, e, s in zip(x, begin, end, step, strict=False)]
    call.put_out(0, (*cut, *x[len(begin) :]))


def sliced(extent: Extent, begin: int | None, end: int | None, step: int | None) -> Extent:
    """How many elements a slice takes, by Python's rules, which are MXNet's."""
    if step == 0:
        raise AttributeFault("a slice has the step 0")
    return None if extent is None else len(range(*slice(begin, end, step).indices(extent)))


def _slice_axis(call: Call) -> None:
    x = call.ins[0]
    if x is None:
        return
    axis = axis_of(call.attrs.integer("axis"), len(x))
    begin, end = call.attrs.integer("begin"), call.attrs.maybe_integer("end")
    extent = x[axis]
    if extent is None:
        length = end - begin if end is not None and (begin < 0) == (end < 0) else None
    else:
        first, last = (
            begin + extent if begin < 0 else begin,
            extent if end is None else end + extent if end < 0 else end,
        )
        if not 0 <= first <= last <= extent:
            raise Mismatch(f"the slice from {begin} to {end} does not lie in {extent}")
        length = last - first
    call.put_out(0, replaced(x, axis, length))
    if call.outs[0] is not None:
        call.put_in(0, replaced(call.outs[0], axis, None))


def _slice_like(call: Call) -> None:
    x, like = call.ins
    if x is None or like is None:
        return
    named = call.attrs.integers("axes", ())
    axes = {axis_of(axis, len(x)) for axis in named} if named else set(range(len(x)))
    if any(axis >= len(like) for axis in axes):
        raise Mismatch(f"{show(x)} cannot be cut like {show(like)}")
    for axis in axes:
        mine, other = x[axis], like[axis]
        if mine is not None and other is not None and other > mine:
            raise Mismatch(f"{show(x)} cannot be cut like {show(like)}, which is larger")
    call.put_out(0, tuple(like[axis] if axis in axes else extent for axis, extent in enumerate(x)))


def _pad(call: Call) -> None:
    _padded(call, call.attrs.integers("pad_width"))


def _numpy_pad(call: Call) -> None:
    widths = call.attrs.raw.get("pad_width", "").replace("(", "").replace(")", "").replace("[", "").replace("]", "")
    _padded(call, Attributes({"pad_width": widths}).integers("pad_width"))


def _padded(call: Call, width: tuple[int, ...]) -> None:
    x = call.ins[0]
    if x is None:
        return
    if len(width) != 2 * len(x):
        raise Mismatch(f"pad_width has {len(width)} numbers, and {show(x)} needs {2 * len(x)}")
    call.put_out(0, tuple(None if n is None else n + width[2 * i] + width[2 * i + 1] for i, n in enumerate(x)))


def _crop(call: Call) -> None:
    x = call.ins[0]
    if x is None or len(x) != 4:
        return
    if len(call.ins) > 1:
        like = call.ins[1]
        if like is not None and len(like) == 4:
            call.put_out(0, (x[0], x[1], like[2], like[3]))
    else:
        height, width = call.attrs.integers("h_w", (0, 0))
        call.put_out(0, (x[0], x[1], height, width))


def _depth_to_space(call: Call) -> None:
    x, block = call.ins[0], call.attrs.integer("block_size")
    if x is not None and len(x) == 4 and block > 0:
        n, c, h, w = x
        call.put_out(0, (n, _part(c, block * block), _times(h, block), _times(w, block)))


def _space_to_depth(call: Call) -> None:
    x, block = call.ins[0], call.attrs.integer("block_size")
    if x is not None and len(x) == 4 and block > 0:
        n, c, h, w = x
        call.put_out(0, (n, _times(c, block * block), _part(h, block), _part(w, block)))


def _times(extent: Extent, factor: int) -> Extent:
    return None if extent is None else extent * factor


def _part(extent: Extent, parts: int) -> Extent:
    if extent is not None and extent % parts:
        raise Mismatch(f"{extent} is not a multiple of {parts}")
    return None if extent is None else extent // parts


def _rot90(call: Call) -> None:
    x = call.ins[0]
    if x is None:
        return
    axes = [axis_of(axis, len(x)) for axis in call.attrs.integers("axes", (0, 1))]
    y = list(x)
    if call.attrs.integer("k", 1) % 2 and len(axes) == 2:
        y[axes[0]], y[axes[1]] = y[axes[1]], y[axes[0]]
    call.put_out(0, tuple(y))


def _multicast(call: Call) -> None:
    for index in range(len(call.ins)):
        call.put_out(index, call.ins[index])
        call.put_in(index, call.outs[index])


def _multicast_types(call: Call) -> None:
    """All become the widest of the floating types that come in, or the narrowest."""
    ranks = ("float16", "bfloat16", "float32", "float64")
    found = [dtype for dtype in call.in_types if dtype in ranks]
    if len(found) == len(call.in_types):
        pick = min if call.attrs.flag("cast_narrow") else max
        wanted = pick(found, key=ranks.index)
        call.out_types[:] = [dtype or wanted for dtype in call.out_types]


register(("transpose", "_np_transpose", "_npi_transpose", "_npx_transpose"), Operator(_transpose, always(COPY)))
register(("SwapAxis", "swapaxes", "_npi_swapaxes"), Operator(_swap_axes, always(COPY)))
register(("_np_moveaxis", "_npi_moveaxis"), Operator(_move_axis, always(COPY)))
register(("slice", "crop", "_sparse_slice", "_npi_slice", "_npx_slice"), Operator(_slice, always(COPY)))
register(("slice_axis",), Operator(_slice_axis, always(COPY)))
register(
    ("slice_like", "_npx_slice_like"),
    Operator(_slice_like, always(_FIRST_ONLY), types_of(0), slots=("x", "shape_like")),
)
register(("Pad", "pad", "_npx_pad"), Operator(_pad, always(COPY)))
register(("_npi_pad",), Operator(_numpy_pad, always(COPY)))
register(("Crop",), Operator(_crop, always(_FIRST_ONLY), types_of(0), slots=("x", "crop_like")))
register(("depth_to_space", "_npx_depth_to_space"), Operator(_depth_to_space, always(COPY)))
register(("space_to_depth", "_npx_space_to_depth"), Operator(_space_to_depth, always(COPY)))
register(
    (
        "reverse", "flip", "_npi_flip", "_np_roll", "_npi_roll", "_image_flip_left_right", "_npx__image_flip_left_right",
        "_image_flip_top_bottom", "_npx__image_flip_top_bottom",
    ),
    Operator(same_shapes, always(COPY)),
)  # fmt: skip
register(("_npi_rot90",), Operator(_rot90, always(COPY)))
register(
    ("Cast", "cast", "_npi_cast", "_npx_cast", "amp_cast", "_npx_amp_cast", "_npi_amp_cast"),
    Operator(like_first, lambda call: VIEW if call.in_types[0] == call.out_types[0] else COPY, output_type("dtype")),
)
register(
    ("amp_multicast", "_npi_amp_multicast"),
    Operator(_multicast, always(COPY), _multicast_types, lambda attrs: parts_of(attrs.integer("num_outputs", 1))),
)
register(("_sparse_retain",), Operator(like_first, always(COPY), same_types, slots=("x", "indices")))
