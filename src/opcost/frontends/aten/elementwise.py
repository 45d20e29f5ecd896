"""Plain operators: arithmetic element by element, reductions, sorting, random values, solvers, optimizers."""

from __future__ import annotations

from functools import partial

from opcost.core.parsing import packaged_table
from opcost.frontends.aten.call import Call, Constant, Tensor, Translation, means, on


def elementwise(fn: str) -> Translation:
    """One function of the table, for each output element."""
    return Translation("elementwise", {"fn": fn})


@on("add", "sub", "rsub", "subtract")
def _add(call: Call) -> Translation:
    """With a factor on the second operand it is a multiplication and an addition."""
    if call.get("alpha") not in (None, 1):
        return elementwise("fma")
    return elementwise("add" if call.base == "add" else "sub")


on("div", "divide")(lambda call: elementwise("div" if call.get("rounding_mode") is None else "floor_divide"))


@on("pow")
def _pow(call: Call) -> Translation:
    exponent = call["exponent"]
    if isinstance(exponent, (int, float)):
        return elementwise({2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(exponent, "pow"))
    return elementwise("pow")


@on("clamp", "clip", "quantized::clamp")
def _clamp(call: Call) -> Translation:
    if call["min"] is None:
        return elementwise("min")
    return elementwise("max" if call["max"] is None else "clamp")


on("gelu")(lambda call: elementwise("gelu_tanh" if call["approximate"] == "tanh" else "gelu"))
on("gelu_backward")(lambda call: elementwise("gelu_tanh_grad" if call["approximate"] == "tanh" else "gelu_grad"))


@on("log_sigmoid_forward")
def _log_sigmoid_forward(call: Call) -> Translation:
    """The second output is a buffer for the gradient, empty on most devices."""
    return Translation("elementwise", {"fn": "logsigmoid", "elements": call.outs[0].numel()})


@on("cosine_similarity", "pairwise_distance")
def _pairs(call: Call) -> Translation:
    return Translation("reduce", {"fn": "dot" if call.base == "cosine_similarity" else "norm"})


# -- reductions and running sums


@on("segment_reduce")
def _segment_reduce(call: Call) -> Translation:
    return Translation("reduce", {"fn": call["reduce"]}, call.tensors("data", "lengths", "indices", "offsets"))


# -- sorting, selection by rank, and search in sorted values


def sort(length: int, selected: int | None = None, ins: tuple[Tensor, ...] | None = None) -> Translation:
    """`length` elements compared together, all of them ordered or only some kept."""
    return means("sort", ins, length=length, selected=selected)


def _extent(call: Call) -> int:
    """Elements along the axis that is compared; the whole tensor where there is no axis."""
    x: Tensor = call["self"]
    dim = call.get("dim")
    if dim is None:
        return x.numel() if call.base in _WHOLE else x.shape[-1] if x.dim() else 1
    return x.shape[dim] if x.dim() else 1


_WHOLE = ("median", "nanmedian", "unique_consecutive", "quantile", "nanquantile")


on("sort", "argsort", "msort")(lambda call: sort(call["self"].shape[0] if call.base == "msort" else _extent(call)))


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


on("topk", "kthvalue")(lambda call: sort(_extent(call), call["k"]))


@on("_unique", "_unique2")
def _unique(call: Call) -> Translation:
    return sort(call["self"].numel())


@on("searchsorted")
def _searchsorted(call: Call) -> Translation:
    """Each value is found by bisection, so the sequence's length counts by its logarithm."""
    ins = call.tensors("self", "sorted_sequence", "sorter")
    return sort(call["sorted_sequence"].shape[-1], ins=ins)


on("bucketize")(lambda call: sort(call["boundaries"].numel()))


@on("isin")
def _isin(call: Call) -> Translation:
    """Both sides are sorted together."""
    return sort(sum(tensor.numel() for tensor in call.tensors("elements", "element", "test_elements", "test_element")))


# -- drawn values. Dropout that does not run (evaluation) reaches the dispatcher as nothing at all


@on(
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "normal", "random", "uniform",
    "_philox_normal", "_philox_uniform", "_fill_mem_eff_dropout_mask",
)  # fmt: skip
def _fill(call: Call) -> Translation:
    """What is filled lends only its shape; tensors of probabilities, means and deviations are read."""
    reads = call.tensors("p", "mean", "std", "key")
    if call.base == "bernoulli" and "p" not in call.args:
        reads = call.tensors("self")
    return Translation("random", {}, reads)


@on("dropout", "quantized::dropout")
def _dropout(call: Call) -> Translation:
    """Nothing is drawn where nothing is to be dropped."""
    drops = call.get("train", "training") and call["p"]
    return Translation("random", {"fn": "dropout"}) if drops else Translation("view", {})


# -- factorisations and solvers; the rule wants the matrix first, then the right-hand side


# Two triangular solves with the identity: as many right-hand sides as rows, twice
on("cholesky_inverse")(lambda call: Translation("linalg", {"fn": "inverse"}))


@on("cholesky_solve", "_cholesky_solve_helper", "lu_solve", "linalg_lu_solve", "linalg_ldl_solve")
def _two_triangles(call: Call) -> Translation:
    """A factorised matrix is solved by two triangular systems."""
    factor = call.tensors("input2", "A", "LU_data", "LU", "LD")
    right = call.tensors("B", "self")
    return Translation("linalg", {"fn": "factored_solve"}, (*factor, *right))


# -- sparse and nested layouts: conversions and bookkeeping. Their arithmetic is with the dense operators


@on("_coalesce", "coalesce")
def _coalesce(call: Call) -> Translation:
    """The indices are sorted, and values at equal places added."""
    return Translation("sort", {"length": max(call["self"]._nnz(), 1)})


# -- operators that mean the same in every call: a kind with fixed attributes
#
# `operators.json` lists them; a name without a library belongs to aten, and `reads` names the arguments that are inputs where
# they do not come in the order of the kind. Views proper are found by their schema. Under the kind `view` are those that torch
# declares as if they made something new, memory that is handed out but not written (`empty`; what fills it counts), and orders
# that leave data alone: `set_` and `resize_` change which memory a tensor looks at, not its content.

for _entry in packaged_table(__package__, "operators.json"):
    on(*_entry.pop("ops"))(Constant(_entry.pop("kind"), tuple(_entry.pop("reads", ())), _entry))


# -- the primitive operators into which exported programs may have been taken apart; most share aten's names


@on("prims::fft_c2c", "prims::fft_r2c", "prims::fft_c2r")
def _fft(call: Call) -> Translation:
    """The real side holds the whole length of the last axis."""
    x = call.outs[0] if call.base == "fft_c2r" else call["self"]
    return means("fft", lengths=tuple(x.shape[d] for d in call["dim"]), real=call.base != "fft_c2c" or None)


# -- fused updates over lists of parameters. `_foreach_` operators are translated as the operator they repeat

_STATE = {
    "_fused_adam": ("self", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"),
    "_fused_adamw": ("self", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"),
    "_fused_sgd": ("self", "momentum_buffer_list"),
    "_fused_adagrad": ("self", "state_sums"),
}
"""What each step writes: the parameters and its own state."""


def _step(call: Call, fn: str) -> Translation:
    elements = sum(parameter.numel() for parameter in call["self"])
    outs = call.tensors(*_STATE[call.base]) if call.in_place else None
    return Translation("elementwise", {"fn": fn, "elements": elements}, outs=outs)


on("_fused_sgd")(lambda call: _step(call, "momentum_step" if call["momentum"] else "sgd_step"))


for _step_name in ("adam", "adamw", "adagrad"):
    on(f"_fused_{_step_name}")(partial(_step, fn=f"{_step_name}_step"))


@on("_amp_foreach_non_finite_check_and_unscale")
def _unscale(call: Call) -> Translation:
    """Each gradient is checked and scaled."""
    elements = sum(gradient.numel() for gradient in call["self"])
    return Translation("elementwise", {"fn": "fma", "elements": elements})
