"""Moved and looked up elements, and views, as PyTorch's traces name them."""

from __future__ import annotations

from opcost.core.graph import TensorSpec
from opcost.traces.aten_call import Argument, Meaning, Told, of, tensor


def _copy(arguments: list[Argument], values: list[str]) -> Meaning:
    target, source = tensor(arguments, 0), tensor(arguments, 1)
    return Meaning("copy", (target, source), (target,), {"overwrites": True})


def _fill(arguments: list[Argument], values: list[str]) -> Meaning:
    return Meaning("create", (), (tensor(arguments, 0),))


def _view(arguments: list[Argument], values: list[str]) -> Meaning:
    return Meaning("view", (tensor(arguments, 0),))


def _gather(arguments: list[Argument], values: list[str]) -> Meaning:
    x, indices = tensor(arguments, 0), tensor(arguments, 2)
    return Meaning("gather", (x, indices), (TensorSpec(indices.shape, x.dtype),))


def _index_select(arguments: list[Argument], values: list[str]) -> Meaning:
    x, indices = tensor(arguments, 0), tensor(arguments, 2)
    axis = int(values[1]) % max(len(x.dims), 1)
    picked = indices.dims[0] if indices.dims else 1
    y = TensorSpec((*x.dims[:axis], picked, *x.dims[axis + 1 :]), x.dtype)
    return Meaning("gather", (x, indices), (y,))


def _embedding(arguments: list[Argument], values: list[str]) -> Meaning:
    table, indices = tensor(arguments, 0), tensor(arguments, 1)
    return Meaning("embedding", (table, indices), (TensorSpec((*indices.dims, *table.dims[1:]), table.dtype),))


def _embedding_backward(arguments: list[Argument], values: list[str]) -> Meaning:
    grad_y, indices = tensor(arguments, 0), tensor(arguments, 1)
    table = TensorSpec((int(values[2]), grad_y.dims[-1]), grad_y.dtype)
    return Meaning("embedding", (grad_y, indices), (table,), {"grad": True})


_VIEWS = (
    "view _unsafe_view transpose t permute select slice narrow unsqueeze squeeze expand as_strided as_strided_ detach alias "
    "unflatten unfold diagonal split chunk unbind movedim swapaxes resolve_conj resolve_neg "
    "empty_like new_empty new_empty_strided resize_"
).split()
"""Among them those that only reserve memory, as in a count."""

VALUED: dict[str, Told] = {
    **of("gather", {"index_select": _index_select}),
    **of("embedding", {"embedding_dense_backward": _embedding_backward}),
}

PLAIN: dict[str, Told] = {
    **of("copy", {"copy_": _copy}),
    **of("create", {"fill_": _fill, "zero_": _fill}),
    **of("gather", {"gather": _gather}),
    **of("embedding", {"embedding": _embedding}),
    **of("view", dict.fromkeys(_VIEWS, _view)),
}
