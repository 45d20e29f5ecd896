"""Losses, and small operators that are two or three others."""

from __future__ import annotations

from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import Call
from opcost.frontends.aten.composite.parts import Parts, new, of
from opcost.frontends.aten.strides import row_major
from opcost.frontends.aten.tensor import Tensor, type_name


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
    """Every element so many times over is a copy of a widened view."""
    if call.overload != "self_int":
        return False
    y = call.outs[0]
    do("clone", y, self=do.view(call["self"], y.shape, row_major(y.shape)))
    return None


@of("meshgrid")
def _meshgrid(do: Parts, call: Call) -> None:
    for x, y in zip(call["tensors"], call.outs, strict=True):
        do("as_strided", y, self=x)
