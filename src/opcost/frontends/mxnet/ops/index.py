"""Tensors joined to one or cut into several, elements looked up or put by index, and sequences of different lengths."""

from __future__ import annotations

from collections.abc import Callable

from opcost.core import shapes as sh
from opcost.core.shapes import Dims, Extent, Mismatch, Shape
from opcost.frontends.mxnet.ops.table import FIRST, FLOAT, Call, Means, always_type, like_first, pattern, row, types_of
from opcost.frontends.mxnet.symbol import AttributeFault, Attributes

# -- joined and cut ----------------------------------------------------------------------------------------------------

_MOST_PARTS = 4096


def _join(call: Call, dim: int) -> None:
    """One axis adds up, the others are the same; an unknown part is what the whole leaves over."""
    ranked = next((shape for shape in (*call.ins, *call.outs) if shape is not None), None)
    if ranked is None:
        return
    axis = sh.axis_of(dim, len(ranked), "dim")
    common: Shape = None
    for shape in (*call.ins, *call.outs):
        if shape is not None:
            if len(shape) != len(ranked):
                raise Mismatch(f"{sh.text(ranked)} and {sh.text(shape)} cannot be joined")
            common = sh.merge(common, sh.replaced(shape, axis, None))
    assert common is not None
    for index in range(len(call.ins)):
        call.put_in(index, common)
    lengths = [shape[axis] for shape in call.ins if shape is not None]
    call.put_out(0, sh.replaced(common, axis, sh.total(lengths)))
    whole = call.outs[0][axis] if call.outs[0] is not None else None
    unknown = [index for index, length in enumerate(lengths) if length is None]
    if whole is not None and len(unknown) == 1:
        left = whole - sum(length for length in lengths if length is not None)
        call.put_in(unknown[0], sh.replaced(common, axis, left))


def _concatenate(call: Call) -> Shape:
    if call.attrs.raw.get("axis") == "None":  # of all elements in one row
        return (sh.total(None if shape is None else sh.product(shape) for shape in call.ins),)
    _join(call, call.attrs.integer("axis", 0))
    return None


def _pack(call: Call) -> None:
    """Weights of recurrent layers joined to one vector; up to two of one size may be worked out from the whole."""
    dim = call.attrs.integer("dim", 1)
    lengths = [None if shape is None else shape[sh.axis_of(dim, len(shape), "dim")] for shape in call.ins]
    unknown = [index for index, length in enumerate(lengths) if length is None]
    y = call.outs[0]
    if len(unknown) == 2 and y is not None and y[sh.axis_of(dim, len(y))] is not None:
        axis = sh.axis_of(dim, len(y))
        left = (y[axis] or 0) - sum(length for length in lengths if length is not None)
        for index in unknown:
            call.put_in(index, sh.replaced((None,) * len(y), axis, left // 2))
    _join(call, dim)


def _stack(call: Call) -> Shape:
    axis, y = call.attrs.integer("axis", 0), call.outs[0]
    common: Shape = None if y is None else sh.replaced(y, sh.axis_of(axis, len(y)))
    for shape in call.ins:
        common = sh.merge(common, shape)
    for index in range(len(call.ins)):
        call.put_in(index, common)
    return sh.stack(call.every(), axis)


def at_least(rank: int, shape: Dims) -> Dims:
    """A shape of at least this rank, as NumPy adds axes: in front, but of three the last behind."""
    if rank == 3 and len(shape) in (1, 2):
        return (*(1,) * (2 - len(shape)), *shape, 1)
    return (*(1,) * (rank - len(shape)), *shape)


def _numpy_stack(least: int, axis: int) -> Callable[[Call], Shape]:
    """`vstack`, `hstack`, `dstack`: tensors get a few more axes and are joined along one."""

    def shapes(call: Call) -> Shape:
        parts = [at_least(least, shape) for shape in call.every()]
        return sh.concat(parts, min(axis, len(parts[0]) - 1))

    return shapes


def _split_channels(call: Call) -> None:
    parts, squeeze = len(call.outs), call.attrs.flag("squeeze_axis")
    x, y = call.ins[0], None
    for shape in call.outs:
        y = sh.merge(y, shape)
    if x is None and y is None:
        return
    rank = len(x) if x is not None else len(y or ()) + squeeze
    axis = sh.axis_of(call.attrs.integer("axis", 1), rank)
    if x is not None:
        y = sh.merge(y, sh.replaced(x, axis) if squeeze else sh.replaced(x, axis, sh.divided(x[axis], parts)))
    assert y is not None
    call.put_all(y)
    call.put_in(0, sh.inserted(y, axis, parts) if squeeze else sh.replaced(y, axis, sh.times(y[axis], parts)))


def parts_of(count: int) -> int:
    """A number of outputs that an operator may have."""
    if not 1 <= count <= _MOST_PARTS:
        raise AttributeFault(f"a tensor is split into {count} parts")
    return count


def _sections(attrs: Attributes) -> int:
    sections = attrs.integer("sections", 0)
    return parts_of(sections if sections > 0 else attrs.count("indices"))


def _split(axis: int | None) -> Callable[[Call], list[Shape]]:
    """Parts of almost equal length, or cut at given places; the axis is an attribute unless the operator fixes it."""

    def shapes(call: Call) -> list[Shape]:
        x = call.dims(0)
        along = sh.axis_of(call.attrs.integer("axis", 0) if axis is None else min(axis, len(x) - 1), len(x))
        begins = call.attrs.integers("indices", ())
        if call.attrs.integer("sections", 0) > 0:
            lengths = sh.even_parts(x[along], len(call.outs))
        else:
            cuts = zip(begins, (*begins[1:], None), strict=True)
            lengths = [sh.slice_length(x[along], begin, end) for begin, end in cuts]
        squeeze = call.attrs.flag("squeeze_axis")
        return [sh.replaced(x, along) if squeeze else sh.replaced(x, along, length) for length in lengths]

    return shapes


_JOINED = [
    row("Concat concat _sparse_concat _npx_concat", lambda c: _join(c, c.attrs.integer("dim", 1)), "copy"),
    row("_npi_concatenate", _concatenate, "copy"),
    row("_rnn_param_concat _npi_rnn_param_concat", _pack, "copy"),
    row("stack _npi_stack", _stack, "copy"),
    row("_npi_vstack", _numpy_stack(2, 0), "copy"),
    row("_npi_hstack", _numpy_stack(1, 1), "copy"),
    row("_npi_dstack", _numpy_stack(3, 2), "copy"),
    row("_npi_column_stack", lambda c: sh.concat([(*s, 1) if len(s) == 1 else s for s in c.every()], 1), "copy"),
    row("SliceChannel split _npx_slice_channel", _split_channels, "copy",
        outputs=lambda attrs: parts_of(attrs.integer("num_outputs", 1))),
    row("_split_v2 _npi_split _npi_array_split", _split(None), "copy", outputs=_sections),
    row("_npi_hsplit", _split(1), "copy", outputs=_sections),
    row("_npi_dsplit", _split(2), "copy", outputs=_sections),
    row("_npi_vsplit", _split(0), "copy", outputs=_sections),
]  # fmt: skip

# -- looked up and put -------------------------------------------------------------------------------------------------


def _embedding_types(call: Call) -> None:
    dtype = call.in_types[1] or call.out_types[0] or call.attrs.dtype("dtype")
    call.type_in(1, dtype)
    call.type_out(0, dtype)


def _pick(call: Call) -> None:
    x = call.dims(0)
    axes = (call.attrs.integer("axis", -1),)
    kept, left = sh.reduced(x, axes, keepdims=True), sh.reduced(x, axes) or call.scalar
    call.put_out(0, kept if call.attrs.flag("keepdims") else left)
    index = call.ins[1]
    call.put_in(1, kept if index is not None and len(index) == len(x) and len(x) > 1 else left)


def _gather_nd(call: Call) -> Shape:
    x, indices = call.every()
    if not indices or indices[0] is None:
        return None
    axes = indices[0]
    if len(indices) < 2 or axes > len(x):
        raise Mismatch(f"indices of {sh.text(indices)} do not fit {sh.text(x)}")
    return (*indices[1:], *x[axes:])


def _boolean_mask(call: Call) -> Shape:
    """How many elements the mask lets through depends on the data."""
    x, mask = call.ins
    if not x:
        return None
    axis = sh.axis_of(call.attrs.integer("axis", 0), len(x))
    call.put_in(1, (x[axis],) if mask is None else mask)
    return sh.replaced(x, axis, None)


def _index_type(call: Call) -> None:
    call.type_in(1, "int32")
    FIRST(call)


_INT64 = always_type("int64")

_INDEXED = [
    row("Embedding _npx_embedding _sparse_Embedding _contrib_SparseEmbedding",
        pattern("..., {input_dim} {output_dim} -> ... {output_dim}"), "embedding", _embedding_types,
        slots="data weight", reads=(1, 0)),
    row("take _npi_take", lambda c: sh.gathered(c.dims(0), c.dims(1), c.attrs.integer("axis", 0)), "gather", FIRST,
        slots="a indices"),
    row("batch_take", lambda c: c.both(1), "gather", _index_type, slots="a indices"),
    row("pick _npx_pick choose_element_0index", _pick, "gather", FIRST, slots="x index"),
    row("one_hot _npx_one_hot", pattern("... -> ... {depth}"), "create", FLOAT, slots="indices"),
    row("gather_nd _npi_gather_nd _npx_gather_nd", _gather_nd, "gather", FIRST, slots="x indices"),
    row("scatter_nd _npx_scatter_nd", lambda c: c.given(c.attrs.integers("shape")), "scatter", FIRST, slots="x indices",
        reads=(0, 1)),
    row("_scatter_set_nd _npi_scatter_set_nd", like_first, "scatter", types_of(0, 1), slots="lhs rhs indices",
        reads=(0, 2, 1)),
    row("_contrib_index_copy _npx_index_copy", like_first, "scatter", types_of(0, 2), slots="old_tensor index new_tensor"),
    row("_npx_index_add", like_first, "scatter add", types_of(0, 2), slots="a index val"),
    row("_npx_index_update", like_first, "scatter", types_of(0, 2), slots="a index val"),
    row("_slice_assign _crop_assign _npi_slice_assign _slice_assign_scalar _crop_assign_scalar _npi_slice_assign_scalar "
        "fill_element_0index _npi_boolean_mask_assign_scalar _npi_boolean_mask_assign_tensor", like_first, "copy", FIRST),
    row("_contrib_boolean_mask _npi_boolean_mask", _boolean_mask, "gather", FIRST, slots="x index"),
    row("_npx_nonzero _npi_nonzero", lambda c: (None, len(c.dims(0))), "gather", _INT64),
    row("_ravel_multi_index ravel_multi_index", pattern("_ ... -> ..."), "copy"),
    row("_unravel_index unravel_index", lambda c: (len(c.attrs.integers("shape")), *c.dims(0)), "copy"),
    row("shape_array _npx_shape_array", lambda c: (len(c.dims(0)),), "create", _INT64),
    row("size_array _npx_size_array", lambda c: (1,), "create", _INT64),
    row("_contrib_index_array _npx_index_array",
        lambda c: (*c.x(), len(c.x()) if "axes" not in c.attrs else c.attrs.count("axes")), "create", _INT64),
]  # fmt: skip

# -- batches of sequences of different lengths -------------------------------------------------------------------------


def _batch(call: Call) -> Extent:
    """The batch, which has a length for each sequence; steps are along axis 0 and the batch along 1, or the reverse."""
    batch = call.dims(0)[0 if call.attrs.integer("axis", 0) else 1]
    call.put_in(1, (batch,))
    return batch


def _masked(call: Call) -> None:
    like_first(call)
    _batch(call)


def _reverse(call: Call) -> Means:
    return "gather" if len(call.ins) > 1 else "copy", {}


_SEQUENCES = [
    row("SequenceMask _npx_sequence_mask", _masked,
        lambda c: ("elementwise", {"fn": "masked_fill"}) if len(c.ins) > 1 else ("view", {}), FIRST,
        slots="data sequence_length"),
    row("SequenceReverse _npx_sequence_reverse", _masked, _reverse, FIRST, slots="data sequence_length"),
    row("SequenceLast _npx_sequence_last", lambda c: (_batch(c), *c.dims(0)[2:]), _reverse, FIRST,
        slots="data sequence_length"),
]  # fmt: skip

ROWS = [*_JOINED, *_INDEXED, *_SEQUENCES]
