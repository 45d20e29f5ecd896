"""Elements moved to other places: joined, cut, tiled, turned round, padded, converted."""

from __future__ import annotations

from opcost.frontends.mxnet.attribute import AttributeFault, Attributes
from opcost.frontends.mxnet.ops.elementwise import like_first, same_shapes
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
    Shape,
    axis_of,
    broadcast,
    merge,
    product,
    replaced,
    show,
    total,
    without,
)

_FIRST_ONLY = Translation("copy", {}, (0,))
"""The other inputs lend only their shape."""
_MOST_PARTS = 4096


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


def _concat(call: Call) -> None:
    """One axis adds up, the others are the same; an unknown part is what the whole leaves over."""
    _join(call, call.attrs.integer("dim", 1))


def _concatenate(call: Call) -> None:
    if "axis" in call.attrs or call.attrs.raw.get("axis") is None:
        _join(call, call.attrs.integer("axis", 0))
    else:
        call.put_out(0, (total(None if shape is None else product(shape) for shape in call.ins),))


def _join(call: Call, dim: int) -> None:
    ranked = next((shape for shape in (*call.ins, *call.outs) if shape is not None), None)
    if ranked is None:
        return
    axis = axis_of(dim, len(ranked), "dim")
    common: Shape = None
    for shape in (*call.ins, *call.outs):
        if shape is not None:
            if len(shape) != len(ranked):
                raise Mismatch(f"{show(ranked)} and {show(shape)} cannot be joined")
            common = merge(common, replaced(shape, axis, None))
    assert common is not None
    for index in range(len(call.ins)):
        call.put_in(index, common)
    lengths = [shape[axis] for shape in call.ins if shape is not None]
    call.put_out(0, replaced(common, axis, total(lengths)))
    whole = call.outs[0][axis] if call.outs[0] is not None else None
    unknown = [index for index, length in enumerate(lengths) if length is None]
    if whole is not None and len(unknown) == 1:
        left = whole - sum(length for length in lengths if length is not None)
        call.put_in(unknown[0], replaced(common, axis, left))


def _pack(call: Call) -> None:
    """Weights of recurrent layers joined to one vector; up to two of one size may be worked out from the whole."""
    dim = call.attrs.integer("dim", 1)
    lengths = [None if shape is None else shape[axis_of(dim, len(shape), "dim")] for shape in call.ins]
    unknown = [index for index, length in enumerate(lengths) if length is None]
    y = call.outs[0]
    if len(unknown) == 2 and y is not None and y[axis_of(dim, len(y))] is not None:
        axis = axis_of(dim, len(y))
        left = (y[axis] or 0) - sum(length for length in lengths if length is not None)
        for index in unknown:
            call.put_in(index, replaced((None,) * len(y), axis, left // 2))
    _join(call, dim)


def _stack(call: Call) -> None:
    for index in range(len(call.ins)):
        call.put_in(index, call.ins[0])
        call.put_in(0, call.ins[index])
    x, y = call.ins[0], call.outs[0]
    rank = len(x) + 1 if x is not None else len(y) if y is not None else 0
    if not rank:
        return
    axis = axis_of(call.attrs.integer("axis", 0), rank)
    if x is not None:
        call.put_out(0, (*x[:axis], len(call.ins), *x[axis:]))
    y = call.outs[0]
    if y is not None:
        for index in range(len(call.ins)):
            call.put_in(index, without(y, axis))


def _numpy_stack(least: int, axis: int) -> Operator:
    """`vstack`, `hstack`, `dstack`: tensors get a few more axes and are joined along one."""

    def infer(call: Call) -> None:
        shapes: list[tuple[Extent, ...]] = []
        for shape in call.ins:
            if shape is None:
                return
            if least == 3 and len(shape) == 1:
                shapes.append((1, *shape, 1))
            elif least == 3 and len(shape) == 2:
                shapes.append((*shape, 1))
            else:
                shapes.append((*(1,) * (least - len(shape)), *shape))
        along = min(axis, len(shapes[0]) - 1)
        call.put_out(0, replaced(shapes[0], along, total(shape[along] for shape in shapes)))

    return Operator(infer, always(COPY))


def _column_stack(call: Call) -> None:
    columns: list[Extent] = []
    rows: Extent = None
    for shape in call.ins:
        if shape is None:
            return
        rows = shape[0]
        columns.append(1 if len(shape) == 1 else shape[1])
    call.put_out(0, (rows, total(columns)))


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
        first, last = begin + extent if begin < 0 else begin, extent if end is None else end + extent if end < 0 else end
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


def _split_channels(call: Call) -> None:
    parts = len(call.outs)
    x = call.ins[0]
    squeeze = call.attrs.flag("squeeze_axis")
    known = next((y for y in call.outs if y is not None), None)
    rank = len(x) if x is not None else len(known) + squeeze if known is not None else None
    if rank is None:
        return
    axis = axis_of(call.attrs.integer("axis", 1), rank)
    if x is not None:
        whole = x[axis]
        if whole is not None and whole % parts:
            raise Mismatch(f"{whole} cannot be split into {parts} equal parts")
        part = without(x, axis) if squeeze else replaced(x, axis, None if whole is None else whole // parts)
        for index in range(parts):
            call.put_out(index, part)
    y: Shape = None
    for held in call.outs:
        y = merge(y, held)
    if y is not None:
        for index in range(parts):
            call.put_out(index, y)
        if squeeze:
            call.put_in(0, (*y[:axis], parts, *y[axis:]))
        else:
            piece = y[axis]
            call.put_in(0, replaced(y, axis, None if piece is None else piece * parts))


def _split_outputs(attrs: Attributes) -> int:
    return _parts(attrs.integer("num_outputs", 1))


def _parts(count: int) -> int:
    if not 1 <= count <= _MOST_PARTS:
        raise AttributeFault(f"a tensor is split into {count} parts")
    return count


def _sections(attrs: Attributes) -> int:
    sections = attrs.integer("sections", 0)
    return _parts(sections if sections > 0 else attrs.count("indices"))


def _split(axis: int | None) -> Operator:
    """Parts of almost equal length, or cut at given places; the axis is an attribute unless the operator fixes it."""

    def infer(call: Call) -> None:
        x = call.ins[0]
        if x is None:
            return
        along = axis_of(call.attrs.integer("axis", 0) if axis is None else min(axis, len(x) - 1), len(x))
        for index, length in enumerate(_lengths(call, x[along])):
            squeezed = call.attrs.flag("squeeze_axis")
            call.put_out(index, without(x, along) if squeezed else replaced(x, along, length))

    return Operator(infer, always(COPY), outputs=_sections)


def _lengths(call: Call, extent: Extent) -> list[Extent]:
    count = len(call.outs)
    if call.attrs.integer("sections", 0) > 0:
        if extent is None:
            return [None] * count
        short, longer = divmod(extent, count)
        return [short + (index < longer) for index in range(count)]
    begins = call.attrs.integers("indices", ())
    ends: list[Extent] = [*begins[1:], extent]
    return [
        None if extent is None or end is None else max(min(end, extent) - min(begin, extent), 0)
        for begin, end in zip(begins, ends, strict=True)
    ]


def _tile(call: Call) -> None:
    x = call.ins[0]
    if x is None:
        return
    reps = call.attrs.integers("reps")
    rank = max(len(x), len(reps))
    source, times = (*(1,) * (rank - len(x)), *x), (*(1,) * (rank - len(reps)), *reps)
    call.put_out(0, tuple(None if n is None else n * r for n, r in zip(source, times, strict=True)))


def _repeat(call: Call) -> None:
    x = call.ins[0]
    if x is None:
        return
    times = call.attrs.integer("repeats")
    axis = call.attrs.maybe_integer("axis")
    if axis is None:
        elements = product(x)
        call.put_out(0, (None if elements is None else elements * times,))
    else:
        along = axis_of(axis, len(x))
        extent = x[along]
        call.put_out(0, replaced(x, along, None if extent is None else extent * times))


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
        raise Mismatch(f"{extent} is no multiple of {parts}")
    return None if extent is None else extent // parts


def _broadcast_to(call: Call) -> None:
    """0 in the target keeps an extent, but in NumPy's dialect, which aligns the last axes."""
    x = call.ins[0]
    if x is None:
        return
    target = call.attrs.integers("shape", ())
    if len(target) == len(x):
        shape = tuple(mine if to == 0 else to for mine, to in zip(x, target, strict=True))
        call.put_out(0, broadcast([x, shape]))
    elif len(target) > len(x):
        call.put_out(0, broadcast([x, target]))
    else:
        raise Mismatch(f"{show(x)} cannot be stretched to {show(target)}")


def _broadcast_axis(call: Call) -> None:
    x = call.ins[0]
    if x is None:
        return
    y = list(x)
    for axis, size in zip(call.attrs.integers("axis", ()), call.attrs.integers("size", ()), strict=True):
        along = axis_of(axis, len(x))
        if y[along] not in (1, None):
            raise Mismatch(f"axis {axis} of {show(x)} is not of extent 1")
        y[along] = size
    call.put_out(0, tuple(y))


def _broadcast_like(call: Call) -> None:
    x, like = call.ins
    if x is None or like is None:
        return
    mine, other = call.attrs.maybe_integers("lhs_axes"), call.attrs.maybe_integers("rhs_axes")
    if mine is None or other is None:
        call.put_out(0, like)
        return
    y = list(x)
    for axis, source in zip(mine, other, strict=True):
        y[axis_of(axis, len(x))] = like[axis_of(source, len(like))]
    call.put_out(0, tuple(y))


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
register(("Concat", "concat", "_sparse_concat", "_npx_concat"), Operator(_concat, always(COPY)))
register(("_npi_concatenate",), Operator(_concatenate, always(COPY)))
register(("_rnn_param_concat", "_npi_rnn_param_concat"), Operator(_pack, always(COPY)))
register(("stack", "_npi_stack"), Operator(_stack, always(COPY)))
register(("_npi_vstack",), _numpy_stack(2, 0))
register(("_npi_hstack",), _numpy_stack(1, 1))
register(("_npi_dstack",), _numpy_stack(3, 2))
register(("_npi_column_stack",), Operator(_column_stack, always(COPY)))
register(("slice", "crop", "_sparse_slice", "_npi_slice", "_npx_slice"), Operator(_slice, always(COPY)))
register(("slice_axis",), Operator(_slice_axis, always(COPY)))
register(
    ("slice_like", "_npx_slice_like"), Operator(_slice_like, always(_FIRST_ONLY), types_of(0), slots=("data", "shape_like"))
)
register(
    ("SliceChannel", "split", "_npx_slice_channel"), Operator(_split_channels, always(COPY), outputs=_split_outputs)
)
register(("_split_v2", "_npi_split", "_npi_array_split"), _split(None))
register(("_npi_hsplit",), _split(1))
register(("_npi_dsplit",), _split(2))
register(("_npi_vsplit",), _split(0))
register(("tile", "_npi_tile"), Operator(_tile, always(COPY)))
register(("repeat", "_np_repeat", "_npi_repeats"), Operator(_repeat, always(COPY)))
register(("Pad", "pad"), Operator(_pad, always(COPY)))
register(("_npi_pad",), Operator(_numpy_pad, always(COPY)))
register(("Crop",), Operator(_crop, always(_FIRST_ONLY), types_of(0), slots=("data", "crop_like")))
register(("depth_to_space", "_npx_depth_to_space"), Operator(_depth_to_space, always(COPY)))
register(("space_to_depth", "_npx_space_to_depth"), Operator(_space_to_depth, always(COPY)))
register(("broadcast_to", "_npi_broadcast_to"), Operator(_broadcast_to, always(COPY)))
register(("broadcast_axis", "broadcast_axes"), Operator(_broadcast_axis, always(COPY)))
register(
    ("broadcast_like", "_npx_broadcast_like"), Operator(_broadcast_like, always(_FIRST_ONLY), types_of(0), slots=("lhs", "like"))
)
register(
    (
        "reverse", "flip", "_npi_flip", "_np_roll", "_npi_roll", "_image_flip_left_right", "_npx__image_flip_left_right",
        "_image_flip_top_bottom", "_npx__image_flip_top_bottom",
    ),
    Operator(same_shapes, always(COPY)),
)  # fmt: skip
register(("_npi_rot90",), Operator(_rot90, always(COPY)))
register(
    ("Cast", "cast", "_npi_cast", "_npx_cast", "amp_cast", "_npx_amp_cast"),
    Operator(like_first, lambda call: VIEW if call.in_types[0] == call.out_types[0] else COPY, output_type("dtype")),
)
register(
    ("amp_multicast",),
    Operator(_multicast, always(COPY), _multicast_types, lambda attrs: _parts(attrs.integer("num_outputs", 1))),
)
register(("_sparse_retain",), Operator(like_first, always(COPY), same_types, slots=("data", "indices")))
