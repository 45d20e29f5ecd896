"""Sorting, selection by rank, and search in sorted values."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Translation, on
from opcost.frontends.aten.tensor import Tensor


def sort(length: int, selected: int | None = None, ins: tuple[Tensor, ...] | None = None) -> Translation:
    """So many elements compared together, all of them ordered or only some kept."""
    attrs: dict[str, Attr] = {"length": length}
    if selected is not None:
        attrs["selected"] = selected
    return Translation("sort", attrs, ins)


def _extent(call: Call) -> int:
    """Elements along the axis that is compared; the whole tensor where there is no axis."""
    x: Tensor = call["self"]
    dim = call.get("dim")
    if dim is None:
        return x.numel() if call.base in _WHOLE else x.shape[-1] if x.dim() else 1
    return x.shape[dim] if x.dim() else 1


_WHOLE = ("median", "nanmedian", "unique_consecutive", "quantile", "nanquantile")


@on("sort", "argsort", "msort")
def _sort(call: Call) -> Translation:
    return sort(call["self"].shape[0] if call.base == "msort" else _extent(call))


@on(
    "median",
    "nanmedian",
    "mode",
    "quantile",
    "nanquantile",
    "unique_dim",
    "unique_consecutive",
    "unique_dim_consecutive",
)
def _by_axis(call: Call) -> Translation:
    return sort(_extent(call))


@on("topk", "kthvalue")
def _select(call: Call) -> Translation:
    return sort(_extent(call), call["k"])


@on("_unique", "_unique2")
def _unique(call: Call) -> Translation:
    return sort(call["self"].numel())


@on("searchsorted")
def _searchsorted(call: Call) -> Translation:
    """Each value is found by bisection, so the sequence's length counts by its logarithm."""
    ins = call.tensors("self", "sorted_sequence", "sorter")
    return sort(call["sorted_sequence"].shape[-1], ins=ins)


@on("bucketize")
def _bucketize(call: Call) -> Translation:
    return sort(call["boundaries"].numel())


@on("isin")
def _isin(call: Call) -> Translation:
    """Both sides are sorted together."""
    return sort(sum(tensor.numel() for tensor in call.tensors("elements", "element", "test_elements", "test_element")))
