"""The operators that another consists of; products, losses and small operators as one or more others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

from opcost.core.shapes import Mismatch, broadcast, explicit
from opcost.frontends.aten.call import Call, Described, Tensor, is_contiguous, look, row_major, seen_as, type_name


class ComposedStep(NamedTuple):
    """One operator: its full name with the overload, its arguments and its results."""

    operator: str
    args: dict[str, Any]
    outs: tuple[Tensor, ...]


class Parts:
    """Collects the operators that one consists of."""

    def __init__(self) -> None:
        self.steps: list[ComposedStep] = []

    def __call__(self, operator: str, /, *outs: Tensor, **args: Any) -> Tensor:
        """Put an operator of aten behind the others; its first result comes back."""
        self.steps.append(ComposedStep(operator, args, outs))
        return outs[0]

    def like(self, operator: str, x: Tensor, /, **args: Any) -> Tensor:
        """An operator on `x` that makes a tensor like it."""
        return self(operator, new(x.shape, x), self=x, **args)

    def in_place(self, operator: str, x: Tensor, /, **args: Any) -> Tensor:
        """An operator that writes to `x`."""
        return self(operator, look(x, x.shape, x.stride()), self=x, **args)

    def view(self, x: Tensor, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        return self("as_strided", look(x, shape, strides), self=x)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """The same elements with another shape: a view where the memory allows, else a copy."""
        strides = seen_as(x, shape)
        if strides is None:
            x, strides = self.like("clone", x), row_major(shape)
        return self.view(x, shape, strides)

    def moved(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """The axes in another order."""
        return self.view(x, [x.shape[axis] for axis in order], [x.stride()[axis] for axis in order])

    def turned(self, x: Tensor) -> Tensor:
        """The last two axes exchanged."""
        rank = x.dim()
        return self.moved(x, [*range(rank - 2), rank - 1, rank - 2])


def new(shape: Sequence[int], like: Tensor, dtype: str = "") -> Described:
    """A new tensor, row by row."""
    return Described(tuple(shape), row_major(shape), dtype or type_name(like), like.device)


Take: TypeAlias = Callable[[Parts, Call], "bool | None"]
COMPOSITES: dict[str, Take] = {}  # By operator; a function that returns False leaves the operator whole


def of(*names: str) -> Callable[[Take], Take]:
    """Register the parts of these operators of aten."""

    def register(take: Take) -> Take:
        COMPOSITES.update(dict.fromkeys((f"aten::{name}" for name in names), take))
        return take

    return register


def taken_apart(call: Call) -> list[ComposedStep] | None:
    """The operators that a call consists of; None if it is not taken apart."""
    take = COMPOSITES.get(call.name)
    if take is None:
        return None
    parts = Parts()
    return None if take(parts, call) is False else parts.steps


# -- products: linear layers, `matmul`, `einsum` and `tensordot` as one or more matrix products


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

    They are if they are one axis in memory; and, copied if need be, if the gradient of the other side will be needed.
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
    """Operands are joined from the left, two by two; what only one of them has and no later one needs is summed first."""
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
    """The axes by label; one that the tensor does not have, or has only once, may be anywhere."""
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


# -- losses, and small operators that are two or three others


def _reduced(do: Parts, call: Call, each: Tensor) -> None:
    """0: each value, 1: their mean, 2: their sum."""
    if call["reduction"]:
        do("mean" if call["reduction"] == 1 else "sum", call.outs[0], self=each)


def _each(call: Call, x: Tensor) -> Tensor:
    return new(x.shape, x) if call["reduction"] else call.outs[0]


@of("cross_entropy_loss")
def _cross_entropy(do: Parts, call: Call) -> bool | None:
    x = call["self"]
    if type_name(call["target"]) != "int64" or call["label_smoothing"]:
        return False
    chances = do.like("_log_softmax", x, dim=1 if x.dim() > 1 else 0)
    do("nll_loss_forward", call.outs[0], new((), x), self=chances, target=call["target"], weight=call["weight"])
    return None


@of("nll_loss", "nll_loss_nd", "nll_loss2d")
def _nll_loss(do: Parts, call: Call) -> None:
    x = call["self"]
    do("nll_loss_forward", call.outs[0], new((), x), self=x, target=call["target"], weight=call["weight"])


@of("l1_loss")
def _l1_loss(do: Parts, call: Call) -> None:
    x = do(
        "sub.Tensor",
        new(broadcast([call["self"].shape, call["target"].shape]), call["self"]),
        self=call["self"],
        other=call["target"],
    )
    _reduced(do, call, do("abs", _each(call, x), self=x))


@of("kl_div")
def _kl_div(do: Parts, call: Call) -> None:
    x, target = call["self"], call["target"]
    if call["log_target"]:
        difference = do.like("sub.Tensor", target, other=x)
        each = do("mul.Tensor", _each(call, target), self=do.like("exp", target), other=difference)
    else:
        scaled = do.like("mul.Tensor", target, other=x)
        each = do("sub.Tensor", _each(call, target), self=do.like("xlogy.Tensor", target, other=target), other=scaled)
    _reduced(do, call, each)


@of("cosine_similarity")
def _cosine_similarity(do: Parts, call: Call) -> bool | None:
    a, b, dim = call["x1"], call["x2"], call["dim"]
    if tuple(a.shape) != tuple(b.shape):
        return False
    flat = [1 if axis == dim % a.dim() else n for axis, n in enumerate(a.shape)]
    norms = [do.like("clone", do("linalg_vector_norm", new(flat, x), self=x, dim=[dim])) for x in (a, b)]
    least = do("scalar_tensor", new((), a))
    norms = [do.in_place("clamp_min_.Tensor", norm, min=least) for norm in norms]
    scaled = [do.like("div.Tensor", x, other=norm) for x, norm in zip((b, a), norms, strict=True)]
    do("sum.dim_IntList", call.outs[0], self=do.like("mul.Tensor", scaled[0], other=scaled[1]), dim=[dim])
    return None


@of("pairwise_distance")
def _pairwise_distance(do: Parts, call: Call) -> None:
    a, b = call["x1"], call["x2"]
    difference = do("sub.Tensor", new(broadcast([a.shape, b.shape]), a), self=a, other=b)
    do("norm.ScalarOpt_dim", call.outs[0], self=do.like("add.Scalar", difference, other=0.0), dim=[-1])


@of("selu")
def _selu(do: Parts, call: Call) -> None:
    do("elu", call.outs[0], self=call["self"])


@of("log_sigmoid")
def _log_sigmoid(do: Parts, call: Call) -> None:
    x = call["self"]
    do("log_sigmoid_forward", call.outs[0], new(x.shape, x), self=x)


@of("rrelu")
def _rrelu(do: Parts, call: Call) -> None:
    x = call["self"]
    do("rrelu_with_noise", call.outs[0], self=x, noise=do.like("empty_like", x))


@of("one_hot")
def _one_hot(do: Parts, call: Call) -> None:
    x, y = call["self"], call.outs[0]
    classes = do("arange", new(y.shape[-1:], y))
    one = do.view(x, (*x.shape, 1), (*x.stride(), 1))
    do("_to_copy", y, self=do("eq.Tensor", new(y.shape, y, "bool"), self=one, other=classes))


@of("isfinite")
def _isfinite(do: Parts, call: Call) -> None:
    x = call["self"]
    size, same = do.like("abs", x), new(x.shape, x, "bool")
    other = do("ne.Scalar", new(x.shape, x, "bool"), self=size, other=0.0)
    do("mul.Tensor", call.outs[0], self=do("eq.Tensor", same, self=x, other=x), other=other)


@of("diff")
def _diff(do: Parts, call: Call) -> bool | None:
    x, y, dim = call["self"], call.outs[0], call["dim"]
    parts = [part for part in (call["prepend"], x, call["append"]) if part is not None]
    if call["n"] != 1:
        return False
    if len(parts) > 1:
        shape = [sum(part.shape[i] for part in parts) if i == dim % x.dim() else n for i, n in enumerate(x.shape)]
        x = do("cat", new(shape, x), tensors=parts, dim=dim)
    sides = [do.view(x, y.shape, x.stride()) for _ in range(2)]
    do("logical_xor" if type_name(x) == "bool" else "sub.Tensor", y, self=sides[0], other=sides[1])
    return None


@of("where")
def _where(do: Parts, call: Call) -> bool | None:
    """A number in the place of a tensor is made a tensor first."""
    given = {name: call[name] for name in ("condition", "self", "other")}
    if "Scalar" not in call.overload:
        return False
    given = {
        name: x if isinstance(x, Tensor) else do("scalar_tensor", new((), call.outs[0])) for name, x in given.items()
    }
    do("where.self", call.outs[0], **given)
    return None


@of("repeat_interleave")
def _repeat_interleave(do: Parts, call: Call) -> bool | None:
    """Every element repeated is a copy of a widened view."""
    if call.overload != "self_int":
        return False
    y = call.outs[0]
    do("clone", y, self=do.view(call["self"], y.shape, row_major(y.shape)))
    return None


@of("meshgrid")
def _meshgrid(do: Parts, call: Call) -> None:
    for x, y in zip(call["tensors"], call.outs, strict=True):
        do("as_strided", y, self=x)
