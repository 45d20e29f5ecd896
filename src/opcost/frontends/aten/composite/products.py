"""The operators that another consists of; products, losses and small operators as one or more others."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from opcost.core.shapes import Mismatch, broadcast, concat, explicit
from opcost.frontends.aten.call import (
    AtenCall,
    AtenTable,
    AtenTensor,
    Described,
    is_contiguous,
    look,
    row_major,
    seen_as,
    type_name,
)


class ComposedStep(NamedTuple):
    """One operator: its full name with the overload, its arguments and its results."""

    operator: str
    args: dict[str, Any]
    outs: tuple[AtenTensor, ...]


class OperatorParts:
    """Collects the operators that one consists of."""

    def __init__(self) -> None:
        self.steps: list[ComposedStep] = []

    def __call__(self, operator: str, /, *outs: AtenTensor, **args: Any) -> AtenTensor:
        """Put an operator of aten behind the others; its first result comes back."""
        self.steps.append(ComposedStep(operator, args, outs))
        return outs[0]

    def like(self, operator: str, x: AtenTensor, /, **args: Any) -> AtenTensor:
        """An operator on `x` that makes a tensor like it."""
        return self(operator, new(x.shape, x), self=x, **args)

    def in_place(self, operator: str, x: AtenTensor, /, **args: Any) -> AtenTensor:
        """An operator that writes to `x`."""
        return self(operator, look(x, x.shape, x.stride()), self=x, **args)

    def view(self, x: AtenTensor, shape: Sequence[int], strides: Sequence[int]) -> AtenTensor:
        return self("as_strided", look(x, shape, strides), self=x)

    def reshape(self, x: AtenTensor, shape: Sequence[int]) -> AtenTensor:
        """The same elements with another shape: a view where the memory allows, else a copy."""
        strides = seen_as(x, shape)
        if strides is None:
            x, strides = self.like("clone", x), row_major(shape)
        return self.view(x, shape, strides)

    def moved(self, x: AtenTensor, order: Sequence[int]) -> AtenTensor:
        """The axes in another order."""
        return self.view(x, [x.shape[axis] for axis in order], [x.stride()[axis] for axis in order])

    def turned(self, x: AtenTensor) -> AtenTensor:
        """The last two axes exchanged."""
        rank = x.dim()
        return self.moved(x, [*range(rank - 2), rank - 1, rank - 2])


def new(shape: Sequence[Any], like: AtenTensor, dtype: str = "") -> Described:
    """A new tensor, row by row."""
    return Described(tuple(shape), row_major(shape), dtype or type_name(like), like.device)


class Whole(Exception):
    """An operator is not taken apart."""


COMPOSITES: AtenTable[None] = AtenTable("aten::")
"""What operators consist of; a function is also given `do`, which collects the parts, and the first result as `y`."""


def taken_apart(call: AtenCall) -> list[ComposedStep] | None:
    """The operators that a call consists of; None if it is not taken apart."""
    take = COMPOSITES.get(call.name)
    if take is None:
        return None
    parts = OperatorParts()
    try:
        take(call, do=parts, y=call.outs[0])
    except Whole:
        return None
    return parts.steps


# -- products: linear layers, `matmul`, `einsum` and `tensordot` as one or more matrix products


def _linear(do: OperatorParts, y: AtenTensor, input: AtenTensor, weight: AtenTensor, bias: AtenTensor | None) -> None:
    columns = do.turned(weight) if weight.dim() == 2 else weight
    if bias is not None and (input.dim() <= 2 or is_contiguous(input)):
        do("addmm", y, self=bias, mat1=input, mat2=columns)
        return
    product(do, input, columns, y if bias is None else (made := new(y.shape, y)))
    if bias is not None:
        do("add.Tensor", y, self=made, other=bias)


def product(do: OperatorParts, a: AtenTensor, b: AtenTensor, y: AtenTensor) -> None:
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


def _folds(large: AtenTensor, small: AtenTensor) -> bool:
    """Whether the axes before the last are taken as one, so that the other side need not be repeated.

    They are if they are one axis in memory; and, copied if need be, if the gradient of the other side will be needed.
    """
    shape, strides = large.shape, large.stride()
    one_axis = all(strides[i] == strides[i + 1] * shape[i + 1] for i in range(large.dim() - 2))
    return one_axis or small.requires_grad or not large.numel()


def _stacked(do: OperatorParts, x: AtenTensor, batch: Sequence[int]) -> AtenTensor:
    """A stack of matrices, repeated as the batch demands."""
    missing = len(batch) - (x.dim() - 2)
    own = zip((1,) * missing + tuple(x.shape[:-2]), (0,) * missing + tuple(x.stride()[:-2]), batch, strict=True)
    strides = [stride if extent == wanted else 0 for extent, stride, wanted in own]
    wide = do.view(x, (*batch, *x.shape[-2:]), (*strides, *x.stride()[-2:]))
    return do.reshape(wide, (prod(batch), *x.shape[-2:]))


def _einsum(do: OperatorParts, y: AtenTensor, equation: str, tensors: Sequence[AtenTensor]) -> None:
    """Operands are joined from the left, two by two; what only one of them has and no later one needs is summed first."""
    try:
        left, _, result = explicit(equation, [x.dim() for x in tensors]).partition("->")
    except Mismatch:
        raise Whole from None
    operands = [_diagonal(do, x, term) for x, term in zip(tensors, left.split(","), strict=True)]
    x, labels = operands[0]
    for place, (other, others) in enumerate(operands[1:], start=2):
        later = set(result).union(*(term for _, term in operands[place:]))
        x, labels = _joined(do, x, labels, other, others, later)
    summed = [axis for axis, label in enumerate(labels) if label not in result]
    if summed:
        do("sum.dim_IntList", y, self=x, dim=summed)
    else:
        do("as_strided", y, self=x)


def _diagonal(do: OperatorParts, x: AtenTensor, labels: str) -> tuple[AtenTensor, str]:
    """Axes of one label are walked along together."""
    once = "".join(dict.fromkeys(labels))
    if once == labels:
        return x, labels
    axes = [[axis for axis, label in enumerate(labels) if label == wanted] for wanted in once]
    strides = [sum(x.stride()[axis] for axis in group) for group in axes]
    return do.view(x, [x.shape[group[0]] for group in axes], strides), once


def _joined(
    do: OperatorParts, a: AtenTensor, of_a: str, b: AtenTensor, of_b: str, later: set[str]
) -> tuple[AtenTensor, str]:
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


def _presummed(do: OperatorParts, x: AtenTensor, labels: str, needed: set[str]) -> tuple[AtenTensor, str]:
    gone = [axis for axis, label in enumerate(labels) if label not in needed]
    if not gone:
        return x, labels
    kept = [axis for axis in range(x.dim()) if axis not in gone]
    return do("sum.dim_IntList", new([x.shape[i] for i in kept], x), self=x, dim=gone), "".join(labels[i] for i in kept)


def _ordered(do: OperatorParts, x: AtenTensor, labels: str, order: Sequence[str]) -> AtenTensor:
    """The axes by label; one that the tensor does not have, or has only once, may be anywhere."""
    at = {label: axis for axis, label in enumerate(labels)}
    shape = [x.shape[at[c]] if c in at else 1 for c in order]
    strides = [x.stride()[at[c]] if c in at else 0 for c in order]
    return do.view(x, shape, strides)


def _tensordot(
    do: OperatorParts, y: AtenTensor, self: AtenTensor, other: AtenTensor, dims_self: Any, dims_other: Any
) -> None:
    sides = []
    for x, dims in ((self, dims_self), (other, dims_other)):
        gone = [axis % x.dim() for axis in dims]
        sides.append(([axis for axis in range(x.dim()) if axis not in gone], gone))
    (rows, of_self), (columns, of_other) = sides
    depth = prod(self.shape[axis] for axis in of_self)
    left = do.reshape(do.moved(self, rows + of_self), (prod(self.shape[axis] for axis in rows), depth))
    right = do.reshape(do.moved(other, of_other + columns), (depth, prod(other.shape[axis] for axis in columns)))
    do("mm", y, self=left, mat2=right)


def _bilinear(
    do: OperatorParts,
    y: AtenTensor,
    input1: AtenTensor,
    input2: AtenTensor,
    weight: AtenTensor,
    bias: AtenTensor | None,
) -> None:
    if bias is None:
        raise Whole
    made = do("bilinear", new(y.shape, y), input1=input1, input2=input2, weight=weight, bias=None)
    do("add.Tensor", y, self=made, other=bias)


# -- losses, and small operators that are two or three others


def _reduced(do: OperatorParts, y: AtenTensor, operator: str, x: AtenTensor, reduction: int, **args: Any) -> None:
    """0: each value, 1: their mean, 2: their sum."""
    each = do(operator, new(x.shape, x) if reduction else y, self=x, **args)
    if reduction:
        do("mean" if reduction == 1 else "sum", y, self=each)


def _nll_loss(
    do: OperatorParts, y: AtenTensor, self: AtenTensor, target: AtenTensor, weight: AtenTensor | None
) -> None:
    do("nll_loss_forward", y, new((), self), self=self, target=target, weight=weight)


def _cross_entropy(
    do: OperatorParts, y: AtenTensor, self: AtenTensor, target: AtenTensor, weight: Any, label_smoothing: float
) -> None:
    if type_name(target) != "int64" or label_smoothing:
        raise Whole
    _nll_loss(do, y, do.like("_log_softmax", self, dim=1 if self.dim() > 1 else 0), target, weight)


def _difference(do: OperatorParts, a: AtenTensor, b: AtenTensor) -> AtenTensor:
    return do("sub.Tensor", new(broadcast([a.shape, b.shape]), a), self=a, other=b)


def _kl_div(
    do: OperatorParts, y: AtenTensor, self: AtenTensor, target: AtenTensor, reduction: int, log_target: Any
) -> None:
    if log_target:
        difference = do.like("sub.Tensor", target, other=self)
        _reduced(do, y, "mul.Tensor", do.like("exp", target), reduction, other=difference)
    else:
        scaled = do.like("mul.Tensor", target, other=self)
        _reduced(do, y, "sub.Tensor", do.like("xlogy.Tensor", target, other=target), reduction, other=scaled)


def _cosine_similarity(do: OperatorParts, y: AtenTensor, x1: AtenTensor, x2: AtenTensor, dim: int) -> None:
    if tuple(x1.shape) != tuple(x2.shape):
        raise Whole
    flat = [1 if axis == dim % x1.dim() else n for axis, n in enumerate(x1.shape)]
    norms = [do.like("clone", do("linalg_vector_norm", new(flat, x), self=x, dim=[dim])) for x in (x1, x2)]
    least = do("scalar_tensor", new((), x1))
    norms = [do.in_place("clamp_min_.Tensor", norm, min=least) for norm in norms]
    scaled = [do.like("div.Tensor", x, other=norm) for x, norm in zip((x2, x1), norms, strict=True)]
    do("sum.dim_IntList", y, self=do.like("mul.Tensor", scaled[0], other=scaled[1]), dim=[dim])


def _pairwise_distance(do: OperatorParts, y: AtenTensor, x1: AtenTensor, x2: AtenTensor) -> None:
    do("norm.ScalarOpt_dim", y, self=do.like("add.Scalar", _difference(do, x1, x2), other=0.0), dim=[-1])


def _one_hot(do: OperatorParts, y: AtenTensor, self: AtenTensor) -> None:
    classes = do("arange", new(y.shape[-1:], y))
    one = do.view(self, (*self.shape, 1), (*self.stride(), 1))
    do("_to_copy", y, self=do("eq.Tensor", new(y.shape, y, "bool"), self=one, other=classes))


def _isfinite(do: OperatorParts, y: AtenTensor, self: AtenTensor) -> None:
    size = do.like("abs", self)
    other = do("ne.Scalar", new(self.shape, self, "bool"), self=size, other=0.0)
    same = do("eq.Tensor", new(self.shape, self, "bool"), self=self, other=self)
    do("mul.Tensor", y, self=same, other=other)


def _diff(do: OperatorParts, y: AtenTensor, self: AtenTensor, n: int, dim: int, prepend: Any, append: Any) -> None:
    parts = [part for part in (prepend, self, append) if part is not None]
    if n != 1:
        raise Whole
    if len(parts) > 1:
        self = do("cat", new(concat([part.shape for part in parts], dim), self), tensors=parts, dim=dim)
    sides = [do.view(self, y.shape, self.stride()) for _ in range(2)]
    do("logical_xor" if type_name(self) == "bool" else "sub.Tensor", y, self=sides[0], other=sides[1])


def _where(do: OperatorParts, call: AtenCall, y: AtenTensor) -> None:
    """A number in the place of a tensor is made a tensor first."""
    if "Scalar" not in call.overload:
        raise Whole
    given = {name: call[name] for name in ("condition", "self", "other")}
    tensors = {name: x if isinstance(x, AtenTensor) else do("scalar_tensor", new((), y)) for name, x in given.items()}
    do("where.self", y, **tensors)


def _repeat_interleave(do: OperatorParts, call: AtenCall, y: AtenTensor) -> None:
    """Every element repeated is a copy of a widened view."""
    if call.overload != "self_int":
        raise Whole
    do("clone", y, self=do.view(call["self"], y.shape, row_major(y.shape)))


def _meshgrid(do: OperatorParts, call: AtenCall, tensors: Sequence[AtenTensor]) -> None:
    for x, y in zip(tensors, call.outs, strict=True):
        do("as_strided", y, self=x)


COMPOSITES.rows(
    {
        "linear": _linear,
        "matmul linalg_matmul": lambda do, y, self, other: product(do, self, other, y),
        "einsum": _einsum,
        "tensordot": _tensordot,
        "bilinear": _bilinear,
        "cross_entropy_loss": _cross_entropy,
        "nll_loss nll_loss_nd nll_loss2d": _nll_loss,
        "l1_loss": lambda do, y, self, target, reduction: _reduced(do, y, "abs", _difference(do, self, target), reduction),
        "kl_div": _kl_div,
        "cosine_similarity": _cosine_similarity,
        "pairwise_distance": _pairwise_distance,
        "selu": lambda do, y, self: do("elu", y, self=self),
        "log_sigmoid": lambda do, y, self: do("log_sigmoid_forward", y, new(self.shape, self), self=self),
        "rrelu": lambda do, y, self: do("rrelu_with_noise", y, self=self, noise=do.like("empty_like", self)),
        "one_hot": _one_hot,
        "isfinite": _isfinite,
        "diff": _diff,
        "where": _where,
        "repeat_interleave": _repeat_interleave,
        "meshgrid": _meshgrid,
    }
)  # fmt: skip
