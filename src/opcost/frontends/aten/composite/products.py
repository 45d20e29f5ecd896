"""Products: linear layers, `matmul`, `einsum` and `tensordot` as one or more matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opcost.core.shapes import Mismatch, broadcast, explicit
from opcost.frontends.aten.call import Call
from opcost.frontends.aten.composite.parts import Parts, new, of
from opcost.frontends.aten.strides import is_contiguous, row_major
from opcost.frontends.aten.tensor import Tensor


@of("linear")
def _linear(do: Parts, call: Call) -> None:
    x, weight, bias, y = call["input"], call["weight"], call["bias"], call.outs[0]
    columns = do.turned(weight) if weight.dim() == 2 else weight
    if bias is not None and (x.dim() <= 2 or is_contiguous(x)):
        do("addmm", y, self=bias, mat1=x, mat2=columns)
        return
    product(do, x, columns, y if bias is None else (made := new(y.shape, y)))
    if bias is not None:
        do("add.Tensor", y, self=made, other=bias)


@of("matmul", "linalg_matmul")
def _matmul(do: Parts, call: Call) -> None:
    product(do, call["self"], call["other"], call.outs[0])


def product(do: Parts, a: Tensor, b: Tensor, y: Tensor) -> None:
    """A product over the last axis of one and the last but one of the other, the others broadcast."""
    if a.dim() == 1 and b.dim() == 1:
        do("dot", y, self=a, tensor=b)
    elif b.dim() <= 2 and (a.dim() <= 2 or _folds(a, b)):
        rows = a if a.dim() <= 2 else do.reshape(a, (prod(a.shape[:-1]), a.shape[-1]))
        do("mm", y, self=rows, mat2=b) if b.dim() == 2 else do("mv", y, self=rows, vec=b)
    elif a.dim() == 1 and _folds(turned := do.turned(b), a):
        do("mv", y, self=do.reshape(turned, (prod(turned.shape[:-1]), turned.shape[-1])), vec=a)
    elif a.dim() == 2 and b.dim() >= 3 and a.requires_grad:  # the result has its rows last, and is laid out anew
        turned = do.turned(b)
        rows = do.reshape(turned, (prod(turned.shape[:-1]), turned.shape[-1]))
        made = do("mm", new((rows.shape[0], a.shape[0]), a), self=rows, mat2=do.turned(a))
        do("clone", y, self=do.view(made, y.shape, row_major(y.shape)))
    else:
        a = do.view(a, (1, *a.shape), (0, *a.stride())) if a.dim() == 1 else a
        b = do.view(b, (*b.shape, 1), (*b.stride(), 0)) if b.dim() == 1 else b
        batch = broadcast([a.shape[:-2], b.shape[:-2]])
        left, right = (_stacked(do, x, batch) for x in (a, b))
        do("bmm", y, self=left, mat2=right)


def _folds(large: Tensor, small: Tensor) -> bool:
    """Whether the axes before the last are taken as one, so that the other side need not be repeated.

    They are if they are one axis in memory; and, copied if need be, if the gradient of the other side will be asked for.
    """
    shape, strides = large.shape, large.stride()
    one_axis = all(strides[i] == strides[i + 1] * shape[i + 1] for i in range(large.dim() - 2))
    return one_axis or small.requires_grad or not large.numel()


def _stacked(do: Parts, x: Tensor, batch: Sequence[int]) -> Tensor:
    """A stack of matrices, repeated as the batch demands."""
    missing = len(batch) - (x.dim() - 2)
    own = zip((1,) * missing + tuple(x.shape[:-2]), (0,) * missing + tuple(x.stride()[:-2]), batch, strict=True)
    strides = [stride if extent == wanted else 0 for extent, stride, wanted in own]
    wide = do.view(x, (*batch, *x.shape[-2:]), (*strides, *x.stride()[-2:]))
    return do.reshape(wide, (prod(batch), *x.shape[-2:]))


@of("einsum")
def _einsum(do: Parts, call: Call) -> bool | None:
    """Operands are joined from the left, two by two; what only one of them has and nobody needs later is summed first."""
    operands = list(call["tensors"])
    try:
        equation = explicit(call["equation"], [x.dim() for x in operands])
    except Mismatch:
        return False
    left, _, result = equation.partition("->")
    terms = left.split(",")
    for place, term in enumerate(terms):
        operands[place], terms[place] = _diagonal(do, operands[place], term)
    x, labels = operands[0], terms[0]
    for place in range(1, len(operands)):
        later = set(result).union(*terms[place + 1 :])
        x, labels = _joined(do, x, labels, operands[place], terms[place], later)
    summed = [axis for axis, label in enumerate(labels) if label not in result]
    y = call.outs[0]
    if summed:
        do("sum.dim_IntList", y, self=x, dim=summed)
    else:
        do("as_strided", y, self=x)
    return None


def _diagonal(do: Parts, x: Tensor, labels: str) -> tuple[Tensor, str]:
    """Axes of one label are walked along together."""
    once = "".join(dict.fromkeys(labels))
    if once == labels:
        return x, labels
    axes = [[axis for axis, label in enumerate(labels) if label == wanted] for wanted in once]
    strides = [sum(x.stride()[axis] for axis in group) for group in axes]
    return do.view(x, [x.shape[group[0]] for group in axes], strides), once


def _joined(do: Parts, a: Tensor, of_a: str, b: Tensor, of_b: str, later: set[str]) -> tuple[Tensor, str]:
    a, of_a = _presummed(do, a, of_a, later | set(of_b))
    b, of_b = _presummed(do, b, of_b, later | set(of_a))
    size = {**dict(zip(of_a, a.shape, strict=True)), **{c: n for c, n in zip(of_b, b.shape, strict=True) if n != 1}}
    has_a = {c for c, n in zip(of_a, a.shape, strict=True) if n != 1 or c not in of_b}
    has_b = {c for c, n in zip(of_b, b.shape, strict=True) if n != 1 or c not in of_a}
    every = list(dict.fromkeys(of_a + of_b))
    gone = [c for c in every if c not in later]
    if not gone:
        return do("mul.Tensor", new([size[c] for c in every], a), self=a, other=b), "".join(every)
    both = [c for c in every if c in has_a & has_b and c in later]
    only_a = [c for c in every if c in has_a - has_b]
    only_b = [c for c in every if c in has_b - has_a]
    extents = [prod(size[c] for c in group) for group in (both, only_a, gone, only_b)]
    left = do.reshape(_ordered(do, a, of_a, [*both, *only_a, *gone]), (extents[0], extents[1], extents[2]))
    right = do.reshape(_ordered(do, b, of_b, [*both, *gone, *only_b]), (extents[0], extents[2], extents[3]))
    made = do("bmm", new((extents[0], extents[1], extents[3]), a), self=left, mat2=right)
    labels = [*both, *only_a, *only_b]
    shape = [size[c] for c in labels]
    return do.view(made, shape, row_major(shape)), "".join(labels)


def _presummed(do: Parts, x: Tensor, labels: str, needed: set[str]) -> tuple[Tensor, str]:
    gone = [axis for axis, label in enumerate(labels) if label not in needed]
    if not gone:
        return x, labels
    kept = [axis for axis in range(x.dim()) if axis not in gone]
    return do("sum.dim_IntList", new([x.shape[i] for i in kept], x), self=x, dim=gone), "".join(labels[i] for i in kept)


def _ordered(do: Parts, x: Tensor, labels: str, order: Sequence[str]) -> Tensor:
    """The axes by label; one that the tensor does not have, or has only once, lies anywhere."""
    at = {label: axis for axis, label in enumerate(labels)}
    shape = [x.shape[at[c]] if c in at else 1 for c in order]
    strides = [x.stride()[at[c]] if c in at else 0 for c in order]
    return do.view(x, shape, strides)


@of("tensordot")
def _tensordot(do: Parts, call: Call) -> None:
    a, b, y = call["self"], call["other"], call.outs[0]
    of_a, of_b = ([axis % x.dim() for axis in axes] for x, axes in ((a, call["dims_self"]), (b, call["dims_other"])))
    depth = prod(a.shape[axis] for axis in of_a)
    kept_a, kept_b = ([axis for axis in range(x.dim()) if axis not in gone] for x, gone in ((a, of_a), (b, of_b)))
    left = do.reshape(do.moved(a, [*kept_a, *of_a]), (prod(a.shape[axis] for axis in kept_a), depth))
    right = do.reshape(do.moved(b, [*of_b, *kept_b]), (depth, prod(b.shape[axis] for axis in kept_b)))
    do("mm", y, self=left, mat2=right)


@of("bilinear")
def _bilinear(do: Parts, call: Call) -> bool | None:
    bias, y = call["bias"], call.outs[0]
    if bias is None:
        return False
    made = do(
        "bilinear", new(y.shape, y), input1=call["input1"], input2=call["input2"], weight=call["weight"], bias=None
    )
    do("add.Tensor", y, self=made, other=bias)
    return None
