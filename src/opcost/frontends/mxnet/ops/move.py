"""Elements moved to other places: joined, cut, tiled, turned round, padded, converted."""

from __future__ import annotations

from opcost.core.shapes import (
    Mismatch,
    axes_of,
    axis_of,
    divided,
    padded,
    permuted,
    replaced,
    slice_length,
    swapped,
    text,
    times,
)
from opcost.frontends.mxnet.attribute import AttributeFault, Attributes
from opcost.frontends.mxnet.ops.convolution import image
from opcost.frontends.mxnet.ops.elementwise import like_first, same_shapes
from opcost.frontends.mxnet.ops.join import parts_of
from opcost.frontends.mxnet.ops.table import (
    COPY,
    VIEW,
    Call,
    Translation,
    define,
    output_type,
    same_types,
    types_of,
)

_FIRST_ONLY = Translation("copy", {}, (0,))
"""The other inputs lend only their shape."""


def _transpose(call: Call) -> None:
    axes = call.attrs.integers("axes", ())
    if call.ins[0] is not None:
        call.put_out(0, permuted(call.ins[0], axes))
    y = call.outs[0]
    if y is not None:
        order = axes_of(axes, len(y))
        call.put_in(0, permuted(y, sorted(range(len(order)), key=order.__getitem__)))


def _swap_axes(call: Call) -> None:
    axes = call.attrs.integer("dim1", 0), call.attrs.integer("dim2", 0)
    if call.ins[0] is not None:
        call.put_out(0, swapped(call.ins[0], *axes))
    if call.outs[0] is not None:
        call.put_in(0, swapped(call.outs[0], *axes))


def _move_axis(call: Call) -> None:
    x = call.dims(0)
    source, target = (axes_of(call.attrs.integers(name), len(x)) for name in ("source", "destination"))
    order = [axis for axis in range(len(x)) if axis not in source]
    for place, axis in sorted(zip(target, source, strict=True)):
        order.insert(place, axis)
    call.put_out(0, permuted(x, order))


def _slice(call: Call) -> None:
    x = call.dims(0)
    begin, end = call.attrs.items("begin"), call.attrs.items("end")
    step = call.attrs.items("step", ()) or (None,) * len(begin)
    if len(begin) != len(end) or len(begin) != len(step) or len(begin) > len(x):
        raise Mismatch(f"begin, end and step do not fit {text(x)}")
    if 0 in step:
        raise AttributeFault("a slice has the step 0")
    cut = [slice_length(n, b, e, s) for n, b, e, s in zip(x, begin, end, step, strict=False)]
    call.put_out(0, (*cut, *x[len(begin) :]))


def _slice_axis(call: Call) -> None:
    x = call.dims(0)
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
    x, like = call.every()
    named = call.attrs.integers("axes", ())
    axes = axes_of(named or None, len(x))
    if any(axis >= len(like) for axis in axes):
        raise Mismatch(f"{text(x)} cannot be cut like {text(like)}")
    for axis in axes:
        mine, other = x[axis], like[axis]
        if mine is not None and other is not None and other > mine:
            raise Mismatch(f"{text(x)} cannot be cut like {text(like)}, which is larger")
    call.put_out(0, tuple(like[axis] if axis in axes else extent for axis, extent in enumerate(x)))


def _pad(call: Call) -> None:
    _padded(call, call.attrs.integers("pad_width"))


def _numpy_pad(call: Call) -> None:
    widths = call.attrs.raw.get("pad_width", "").replace("(", "").replace(")", "").replace("[", "").replace("]", "")
    _padded(call, Attributes({"pad_width": widths}).integers("pad_width"))


def _padded(call: Call, width: tuple[int, ...]) -> None:
    x = call.dims(0)
    if len(width) != 2 * len(x):
        raise Mismatch(f"pad_width has {len(width)} numbers, and {text(x)} needs {2 * len(x)}")
    call.put_out(0, padded(x, list(zip(width[::2], width[1::2], strict=True))))


def _crop(call: Call) -> None:
    x = image(call.dims(0))
    size = image(call.dims(1))[2:] if len(call.ins) > 1 else call.attrs.integers("h_w", (0, 0))
    call.put_out(0, (*x[:2], *size))


def _depth_to_space(call: Call) -> None:
    n, c, h, w = image(call.dims(0))
    block = _block(call)
    call.put_out(0, (n, divided(c, block * block), times(h, block), times(w, block)))


def _space_to_depth(call: Call) -> None:
    n, c, h, w = image(call.dims(0))
    block = _block(call)
    call.put_out(0, (n, times(c, block * block), divided(h, block), divided(w, block)))


def _block(call: Call) -> int:
    size = call.attrs.integer("block_size")
    if size < 1:
        raise AttributeFault(f"the block_size is {size}")
    return size


def _rot90(call: Call) -> None:
    x = call.dims(0)
    first, second = call.attrs.integers("axes", (0, 1))
    call.put_out(0, swapped(x, first, second) if call.attrs.integer("k", 1) % 2 else x)


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


define("transpose _np_transpose _npi_transpose _npx_transpose", _transpose, COPY)
define("SwapAxis swapaxes _npi_swapaxes", _swap_axes, COPY)
define("_np_moveaxis _npi_moveaxis", _move_axis, COPY)
define("slice crop _sparse_slice _npi_slice _npx_slice", _slice, COPY)
define("slice_axis", _slice_axis, COPY)
define("slice_like _npx_slice_like", _slice_like, _FIRST_ONLY, types_of(0), slots="x shape_like")
define("Pad pad _npx_pad", _pad, COPY)
define("_npi_pad", _numpy_pad, COPY)
define("Crop", _crop, _FIRST_ONLY, types_of(0), slots="x crop_like")
define("depth_to_space _npx_depth_to_space", _depth_to_space, COPY)
define("space_to_depth _npx_space_to_depth", _space_to_depth, COPY)
define(
    (
        "reverse flip _npi_flip _np_roll _npi_roll _image_flip_left_right _npx__image_flip_left_right "
        "_image_flip_top_bottom _npx__image_flip_top_bottom"
    ),
    same_shapes,
    COPY,
)
define("_npi_rot90", _rot90, COPY)
define(
    "Cast cast _npi_cast _npx_cast amp_cast _npx_amp_cast _npi_amp_cast",
    like_first,
    lambda call: VIEW if call.in_types[0] == call.out_types[0] else COPY,
    output_type("dtype"),
)
define(
    "amp_multicast _npi_amp_multicast",
    _multicast,
    COPY,
    _multicast_types,
    lambda attrs: parts_of(attrs.integer("num_outputs", 1)),
)
define("_sparse_retain", like_first, COPY, same_types, slots="x indices")
