"""Elements looked up or put by index."""

from __future__ import annotations

from opcost.core.shapes import Mismatch, axis_of, complete, gathered, reduced, replaced, text
from opcost.frontends.mxnet.ops.elementwise import like_first
from opcost.frontends.mxnet.ops.table import (
    Call,
    Infer,
    Translation,
    always_type,
    define,
    output_type,
    types_of,
)

_GATHER = Translation("gather")


def _embedding(call: Call) -> None:
    rows, width = call.attrs.integer("input_dim"), call.attrs.integer("output_dim")
    call.put_in(1, (rows, width))
    x, y = call.ins[0], call.outs[0]
    if x is not None:
        call.put_out(0, (*x, width))
    elif y is not None:
        call.put_in(0, y[:-1])


def _embedding_types(call: Call) -> None:
    dtype = call.in_types[1] or call.out_types[0] or call.attrs.dtype("dtype")
    call.type_in(1, dtype)
    call.type_out(0, dtype)


def _take(call: Call) -> None:
    x, indices = call.every()
    call.put_out(0, gathered(x, indices, call.attrs.integer("axis", 0)))


def _batch_take(call: Call) -> None:
    call.put_out(0, call.ins[1])
    call.put_in(1, call.outs[0])


def _pick(call: Call) -> None:
    x = call.dims(0)
    axes = (call.attrs.integer("axis", -1),)
    kept, left = reduced(x, axes, keepdims=True), reduced(x, axes) or call.scalar
    call.put_out(0, kept if call.attrs.flag("keepdims") else left)
    index = call.ins[1]
    call.put_in(1, kept if index is not None and len(index) == len(x) and len(x) > 1 else left)


def _one_hot(call: Call) -> None:
    call.put_out(0, (*call.dims(0), call.attrs.integer("depth")))


def _gather_nd(call: Call) -> None:
    x, indices = call.every()
    if not indices or indices[0] is None:
        return
    axes = indices[0]
    if len(indices) < 2 or axes > len(x):
        raise Mismatch(f"indices of {text(indices)} do not fit {text(x)}")
    call.put_out(0, (*indices[1:], *x[axes:]))


def _scatter_nd(call: Call) -> None:
    call.put_out(0, call.given(call.attrs.integers("shape")))


def _boolean_mask(call: Call) -> None:
    """How many elements the mask lets through depends on the data."""
    x, mask = call.ins
    if x is not None and x:
        axis = axis_of(call.attrs.integer("axis", 0), len(x))
        call.put_in(1, (x[axis],) if mask is None else mask)
        call.put_out(0, replaced(x, axis, None))


def _nonzero(call: Call) -> None:
    call.put_out(0, (None, len(call.dims(0))))


def _ravel(call: Call) -> None:
    x = call.dims(0)
    if x:
        call.put_out(0, x[1:])


def _unravel(call: Call) -> None:
    call.put_out(0, (len(call.attrs.integers("shape")), *call.dims(0)))


def _shape_array(call: Call) -> None:
    call.put_out(0, (len(call.dims(0)),))


def _size_array(call: Call) -> None:
    call.put_out(0, (1,))


def _index_array(call: Call) -> None:
    x = call.dims(0)
    if complete(x):
        axes = call.attrs.maybe_integers("axes")
        call.put_out(0, (*x, len(x) if axes is None else len(axes)))


def _index_type(call: Call) -> None:
    """`batch_take` has whole numbers as indices."""
    call.type_in(1, "int32")
    types_of(0)(call)


_FIRST: Infer = types_of(0)

define(
    "Embedding _npx_embedding _sparse_Embedding _contrib_SparseEmbedding",
    _embedding,
    Translation("embedding", {}, (1, 0)),
    _embedding_types,
    slots="data weight",
)
define("take _npi_take", _take, _GATHER, _FIRST, slots="a indices")
define("batch_take", _batch_take, _GATHER, _index_type, slots="a indices")
define("pick _npx_pick choose_element_0index", _pick, _GATHER, _FIRST, slots="x index")
define("one_hot _npx_one_hot", _one_hot, Translation("create"), output_type("dtype", "float32"), slots="indices")
define("gather_nd _npi_gather_nd _npx_gather_nd", _gather_nd, _GATHER, _FIRST, slots="x indices")
define("scatter_nd _npx_scatter_nd", _scatter_nd, Translation("scatter", {}, (0, 1)), _FIRST, slots="x indices")
define(
    "_scatter_set_nd _npi_scatter_set_nd",
    like_first,
    Translation("scatter", {}, (0, 2, 1)),
    types_of(0, 1),
    slots="lhs rhs indices",
)
define(
    "_contrib_index_copy _npx_index_copy",
    like_first,
    Translation("scatter"),
    types_of(0, 2),
    slots="old_tensor index new_tensor",
)
for name, found in (("add", Translation("scatter", {"fn": "add"})), ("update", Translation("scatter"))):
    define(f"_npx_index_{name}", like_first, found, types_of(0, 2), slots="a index val")
define(
    (
        "_slice_assign _crop_assign _npi_slice_assign _slice_assign_scalar _crop_assign_scalar _npi_slice_assign_scalar "
        "fill_element_0index _npi_boolean_mask_assign_scalar _npi_boolean_mask_assign_tensor"
    ),
    like_first,
    Translation("copy"),
    _FIRST,
)
define("_contrib_boolean_mask _npi_boolean_mask", _boolean_mask, _GATHER, _FIRST, slots="x index")
define("_npx_nonzero _npi_nonzero", _nonzero, Translation("gather"), always_type("int64"))
define("_ravel_multi_index ravel_multi_index", _ravel, Translation("copy"))
define("_unravel_index unravel_index", _unravel, Translation("copy"))
define("shape_array _npx_shape_array", _shape_array, Translation("create"), always_type("int64"))
define("size_array _npx_size_array", _size_array, Translation("create"), always_type("int64"))
define("_contrib_index_array _npx_index_array", _index_array, Translation("create"), always_type("int64"))
