"""Tensors joined to one or cut into several, elements looked up or put by index, and sequences of different lengths."""

from opcost.core import shapes as sh
from opcost.core.shapes import Dims, Extent, Mismatch, Shape
from opcost.frontends.mxnet.ops.table import FUNCTIONS, SymbolCall, parts_of
from opcost.frontends.mxnet.symbol import Attributes
from opcost.frontends.rows import like_first, same_types

# -- joined and cut ----------------------------------------------------------------------------------------------------


def _join(call: SymbolCall, dim: int) -> None:
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


def _concatenate(call: SymbolCall) -> Shape:
    if call.attrs.raw.get("axis") == "None":  # of all elements in one row
        return (sh.total(None if shape is None else sh.product(shape) for shape in call.ins),)
    _join(call, call.attrs.integer("axis", 0))
    return None


def _pack(call: SymbolCall) -> None:
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


def _stack(call: SymbolCall) -> Shape:
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


def _numpy_stack(call: SymbolCall, least: int, axis: int) -> Shape:
    """`vstack`, `hstack`, `dstack`: tensors get a few more axes and are joined along one."""
    parts = [at_least(least, shape) for shape in call.every()]
    return sh.concat(parts, min(axis, len(parts[0]) - 1))


def _column_stack(call: SymbolCall) -> Shape:
    return sh.concat([(*shape, 1) if len(shape) == 1 else shape for shape in call.every()], 1)


def _split_channels(call: SymbolCall) -> None:
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


def _sections(attrs: Attributes) -> int:
    sections = attrs.integer("sections", 0)
    return parts_of(sections if sections > 0 else attrs.count("indices"))


FUNCTIONS.update(
    concat=lambda call: _join(call, call.attrs.integer("dim", 1)),
    arguments=lambda attrs: attrs.integer("num_args", 1),
)


def _split(call: SymbolCall, axis: int | None = None) -> list[Shape]:
    """Parts of almost equal length, or cut at given places; the axis is an attribute unless the operator fixes it."""
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


# -- looked up and put -------------------------------------------------------------------------------------------------


def _embedding_types(call: SymbolCall) -> None:
    dtype = call.in_types[1] or call.out_types[0] or call.attrs.dtype("dtype")
    call.type_in(1, dtype)
    call.type_out(0, dtype)


def _pick(call: SymbolCall) -> None:
    x = call.dims(0)
    axes = (call.attrs.integer("axis", -1),)
    kept, left = sh.reduced(x, axes, keepdims=True), sh.reduced(x, axes) or call.scalar
    call.put_out(0, kept if call.attrs.flag("keepdims") else left)
    index = call.ins[1]
    call.put_in(1, kept if index is not None and len(index) == len(x) and len(x) > 1 else left)


def _gather_nd(call: SymbolCall) -> Shape:
    x, indices = call.every()
    if not indices or indices[0] is None:
        return None
    axes = indices[0]
    if len(indices) < 2 or axes > len(x):
        raise Mismatch(f"indices of {sh.text(indices)} do not fit {sh.text(x)}")
    return (*indices[1:], *x[axes:])


def _boolean_mask(call: SymbolCall) -> Shape:
    """How many elements the mask lets through depends on the data."""
    x, mask = call.ins
    if not x:
        return None
    axis = sh.axis_of(call.attrs.integer("axis", 0), len(x))
    call.put_in(1, (x[axis],) if mask is None else mask)
    return sh.replaced(x, axis, None)


def _index_type(call: SymbolCall) -> None:
    call.type_in(1, "int32")
    same_types(call, [0])


FUNCTIONS.update(
    take=lambda call: sh.gathered(call.dims(0), call.dims(1), call.attrs.integer("axis", 0)),
    scatter_nd=lambda call: call.given(call.attrs.integers("shape")),
    nonzero=lambda call: (None, len(call.dims(0))),
    unravel_index=lambda call: (len(call.attrs.integers("shape")), *call.dims(0)),
    shape_array=lambda call: (len(call.dims(0)),),
    index_array=lambda call: (*call.x(), call.attrs.count("axes") if "axes" in call.attrs else len(call.x())),
)

# -- batches of sequences of different lengths -------------------------------------------------------------------------


def _batch(call: SymbolCall) -> Extent:
    """The batch, which has a length for each sequence; steps are along axis 0 and the batch along 1, or the reverse."""
    batch = call.dims(0)[0 if call.attrs.integer("axis", 0) else 1]
    call.put_in(1, (batch,))
    return batch


def _masked(call: SymbolCall) -> None:
    like_first(call)
    _batch(call)


FUNCTIONS.update(
    last_step=lambda call: (_batch(call), *call.dims(0)[2:]),
    mask_kind=lambda call: ("elementwise", {"fn": "masked_fill"}) if len(call.ins) > 1 else ("view", {}),
    reverse_kind=lambda call: ("gather" if len(call.ins) > 1 else "copy", {}),
)
