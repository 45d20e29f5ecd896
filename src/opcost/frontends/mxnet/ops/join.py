"""Tensors joined to one, and one cut into several."""

from __future__ import annotations

from opcost.core.shapes import (
    Dims,
    Extent,
    Mismatch,
    Shape,
    axis_of,
    concat,
    divided,
    even_parts,
    inserted,
    merge,
    product,
    replaced,
    slice_length,
    stack,
    text,
    times,
    total,
)
from opcost.frontends.mxnet.attribute import AttributeFault, Attributes
from opcost.frontends.mxnet.ops.table import COPY, Call, Operator, define, register

_MOST_PARTS = 4096


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
                raise Mismatch(f"{text(ranked)} and {text(shape)} cannot be joined")
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
    axis, y = call.attrs.integer("axis", 0), call.outs[0]
    common: Shape = None if y is None else replaced(y, axis_of(axis, len(y)))
    for shape in call.ins:
        common = merge(common, shape)
    for index in range(len(call.ins)):
        call.put_in(index, common)
    call.put_out(0, stack(call.every(), axis))


def _numpy_stack(least: int, axis: int) -> Operator:
    """`vstack`, `hstack`, `dstack`: tensors get a few more axes and are joined along one."""

    def infer(call: Call) -> None:
        shapes = [at_least(least, shape) for shape in call.every()]
        call.put_out(0, concat(shapes, min(axis, len(shapes[0]) - 1)))

    return Operator(infer, COPY)


def _column_stack(call: Call) -> None:
    call.put_out(0, concat([(*shape, 1) if len(shape) == 1 else shape for shape in call.every()], 1))


def at_least(rank: int, shape: Dims) -> Dims:
    """A shape with so many axes or more, as NumPy adds them: in front, but of three the last behind."""
    if rank == 3 and len(shape) in (1, 2):
        return (*(1,) * (2 - len(shape)), *shape, 1)
    return (*(1,) * (rank - len(shape)), *shape)


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
        length = divided(x[axis], parts)
        call.put_all(replaced(x, axis) if squeeze else replaced(x, axis, length))
    y: Shape = None
    for held in call.outs:
        y = merge(y, held)
    if y is not None:
        call.put_all(y)
        call.put_in(0, inserted(y, axis, parts) if squeeze else replaced(y, axis, times(y[axis], parts)))


def _split_outputs(attrs: Attributes) -> int:
    return parts_of(attrs.integer("num_outputs", 1))


def parts_of(count: int) -> int:
    """A number of outputs that an operator may have."""
    if not 1 <= count <= _MOST_PARTS:
        raise AttributeFault(f"a tensor is split into {count} parts")
    return count


def _sections(attrs: Attributes) -> int:
    sections = attrs.integer("sections", 0)
    return parts_of(sections if sections > 0 else attrs.count("indices"))


def _split(axis: int | None) -> Operator:
    """Parts of almost equal length, or cut at given places; the axis is an attribute unless the operator fixes it."""

    def infer(call: Call) -> None:
        x = call.dims(0)
        along = axis_of(call.attrs.integer("axis", 0) if axis is None else min(axis, len(x) - 1), len(x))
        for index, length in enumerate(_lengths(call, x[along])):
            squeezed = call.attrs.flag("squeeze_axis")
            call.put_out(index, replaced(x, along) if squeezed else replaced(x, along, length))

    return Operator(infer, COPY, outputs=_sections)


def _lengths(call: Call, extent: Extent) -> list[Extent]:
    count = len(call.outs)
    if call.attrs.integer("sections", 0) > 0:
        return even_parts(extent, count)
    begins = call.attrs.integers("indices", ())
    return [slice_length(extent, begin, end) for begin, end in zip(begins, (*begins[1:], None), strict=True)]


define("Concat concat _sparse_concat _npx_concat", _concat, COPY)
define("_npi_concatenate", _concatenate, COPY)
define("_rnn_param_concat _npi_rnn_param_concat", _pack, COPY)
define("stack _npi_stack", _stack, COPY)
register(("_npi_vstack",), _numpy_stack(2, 0))
register(("_npi_hstack",), _numpy_stack(1, 1))
register(("_npi_dstack",), _numpy_stack(3, 2))
define("_npi_column_stack", _column_stack, COPY)
define("SliceChannel split _npx_slice_channel", _split_channels, COPY, outputs=_split_outputs)
register(("_split_v2", "_npi_split", "_npi_array_split"), _split(None))
register(("_npi_hsplit",), _split(1))
register(("_npi_dsplit",), _split(2))
register(("_npi_vsplit",), _split(0))
