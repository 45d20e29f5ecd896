"""Results of losses, distances and transforms."""

from __future__ import annotations

from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import Call
from opcost.frontends.aten.outputs.table import like, made, on, on_each, replaced
from opcost.frontends.aten.promotion import complex_of, promoted, real_of
from opcost.frontends.aten.tensor import Described, type_name


def _reduced(call: Call, each: Described) -> tuple[Described, ...]:
    """Each value, or with a reduction one number."""
    return (made((), type_name(each)) if call["reduction"] else each,)


@on(
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "soft_margin_loss",
)  # fmt: skip
def _pointwise(call: Call) -> tuple[Described, ...]:
    x, target = call["self"], call["target"]
    return _reduced(call, made(broadcast([x.shape, target.shape]), promoted(x, target)))


@on("multilabel_margin_loss_forward")
def _by_row(call: Call) -> tuple[Described, ...]:
    x = call["self"]
    return *_reduced(call, made(x.shape[:-1], type_name(x))), like(call["target"], type_name(x))


@on("nll_loss_forward", "nll_loss2d_forward")
def _nll(call: Call) -> tuple[Described, ...]:
    """The loss, and the sum of the weights, by which a mean is divided."""
    dtype = type_name(call["self"])
    return *_reduced(call, made(call["target"].shape, dtype)), made((), dtype)


@on("cdist", "_cdist_forward", "_euclidean_dist")
def _distances(call: Call) -> tuple[Described, ...]:
    a, b = call["x1"], call["x2"]
    return (made((*broadcast([a.shape[:-2], b.shape[:-2]]), a.shape[-2], b.shape[-2]), type_name(a)),)


@on("pdist", "_pdist_forward")
def _pairs(call: Call) -> tuple[Described, ...]:
    rows = call["self"].shape[0]
    return (made((rows * (rows - 1) // 2,), type_name(call["self"])),)


@on("_cdist_backward")
def _distances_backward(call: Call) -> tuple[Described, ...]:
    a, b = call["x1"], call["x2"]
    return (made((*broadcast([a.shape[:-2], b.shape[:-2]]), *a.shape[-2:]), type_name(a)),)


@on("_fft_r2c")
def _from_real(call: Call) -> tuple[Described, ...]:
    """Of a real signal half of the spectrum says all."""
    x, last = call["self"], call["dim"][-1]
    shape = replaced(x, last, x.shape[last] // 2 + 1) if call["onesided"] else tuple(x.shape)
    return (made(shape, complex_of(type_name(x))),)


@on("_fft_c2r")
def _to_real(call: Call) -> tuple[Described, ...]:
    x = call["self"]
    return (made(replaced(x, call["dim"][-1], call["last_dim_size"]), real_of(type_name(x))),)


on_each({"multi_margin_loss": lambda call: _reduced(call, made(call["target"].shape, type_name(call["self"])))})
