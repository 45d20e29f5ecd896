"""Sorting and choosing the largest."""

from __future__ import annotations

from opcost.core.shapes import Mismatch, axis_of, product, replaced
from opcost.frontends.mxnet.attribute import Attributes
from opcost.frontends.mxnet.ops.elementwise import like_first
from opcost.frontends.mxnet.ops.table import Call, Translation, define, output_type


def _axis(call: Call, rank: int) -> int | None:
    """The sorted axis; None sorts all elements together."""
    if call.attrs.raw.get("axis") == "None":
        return None
    return axis_of(call.attrs.integer("axis", -1), rank)


def _length(call: Call) -> int:
    x = call.x()
    axis = _axis(call, len(x))
    return (product(x) or 0) if axis is None else x[axis]


def _returns(attrs: Attributes) -> str:
    return attrs.text("ret_typ", "indices")


def _topk(call: Call) -> None:
    x = call.dims(0)
    if _returns(call.attrs) == "mask":
        like_first(call)
        return
    axis = _axis(call, len(x))
    length = product(x) if axis is None else x[axis]
    k = call.attrs.integer("k", 1)
    kept = length if k <= 0 else k
    if length is not None and kept is not None and kept > length:
        raise Mismatch(f"the {kept} largest of {length} were asked for")
    call.put_all((kept,) if axis is None else replaced(x, axis, kept))


def _topk_types(call: Call) -> None:
    returns = _returns(call.attrs)
    indices = call.attrs.dtype("dtype", "float32")
    if returns == "indices":
        call.type_out(0, indices)
    else:
        call.type_out(0, call.in_types[0])
        call.type_out(1, indices)


def _selected(call: Call) -> Translation:
    k = call.attrs.integer("k", 1)
    length = _length(call)
    return Translation("sort", {"length": length, "selected": k if k > 0 else length})


def _sort(call: Call) -> None:
    x = call.dims(0)
    if _axis(call, len(x)) is None:
        call.put_out(0, (product(x),))
    else:
        like_first(call)


def _sorted(call: Call) -> Translation:
    return Translation("sort", {"length": _length(call)})


define("topk _npx_topk", _topk, _selected, _topk_types, lambda attrs: 2 if _returns(attrs) == "both" else 1)
define("sort _npi_sort", _sort, _sorted)
define("argsort _npi_argsort", _sort, _sorted, output_type("dtype", "float32"))
