"""Plain operators: arithmetic element by element, reductions, sorting, random values, solvers, optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opcost.core.parsing import packaged_table
from opcost.frontends.aten.call import AtenCall, AtenTensor, Constant, Translation, means, on, rows


def _elementwise(fn: str, elements: int | None = None) -> Translation:
    """One function of the table, for each output element, or for another number of them."""
    return means("elementwise", fn=fn, elements=elements)


def _pow(exponent: Any) -> Translation:
    known = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    return _elementwise(known.get(exponent, "pow") if isinstance(exponent, (int, float)) else "pow")


def _clamp(min: Any, max: Any) -> Translation:
    return _elementwise("min" if min is None else "max" if max is None else "clamp")


# -- sorting, selection by rank, and search in sorted values

_WHOLE = ("median", "nanmedian", "unique_consecutive", "quantile", "nanquantile")


def _sort(length: int, selected: int | None = None, ins: tuple[AtenTensor, ...] | None = None) -> Translation:
    """`length` elements compared together, all of them ordered or only some kept."""
    return means("sort", ins, length=length, selected=selected)


def _extent(call: AtenCall) -> int:
    """Elements along the axis that is compared; the whole tensor where there is no axis."""
    x: AtenTensor = call["self"]
    dim = call.get("dim")
    if dim is None:
        return x.numel() if call.base in _WHOLE else x.shape[-1] if x.dim() else 1
    return x.shape[dim] if x.dim() else 1


# -- drawn values. Dropout that does not run (evaluation) reaches the dispatcher as nothing at all


def _fill(call: AtenCall) -> Translation:
    """What is filled lends only its shape; tensors of probabilities, means and deviations are read."""
    drawn_by_self = call.base == "bernoulli" and "p" not in call.args
    return means("random", call.tensors("self") if drawn_by_self else call.tensors("p", "mean", "std", "key"))


def _dropout(call: AtenCall, p: Any) -> Translation:
    """Nothing is drawn where nothing is to be dropped."""
    return means("random", fn="dropout") if call.get("train", "training") and p else Translation("view", {})


# -- fused updates over lists of parameters. `_foreach_` operators are translated as the operator they repeat

_STATE = ("exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "momentum_buffer_list", "state_sums")


def _step(call: AtenCall, fn: str) -> Translation:
    """A step writes the parameters and its own state."""
    return means(
        "elementwise", None, call.tensors("self", *_STATE) if call.in_place else None, fn=f"{fn}_step",
        elements=_total(call["self"]),
    )  # fmt: skip


def _total(tensors: Sequence[AtenTensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _fft(call: AtenCall, dim: Sequence[int]) -> Translation:
    """The real side holds the whole length of the last axis."""
    x = call.outs[0] if call.base == "fft_c2r" else call["self"]
    return means("fft", lengths=tuple(x.shape[d] for d in dim), real=call.base != "fft_c2c" or None)


rows(
    {
        # with a factor on the second operand it is a multiplication and an addition
        "add sub rsub subtract": lambda call, alpha=None: _elementwise(
            ("add" if call.base == "add" else "sub") if alpha in (None, 1) else "fma"
        ),
        "div divide":
            lambda rounding_mode=None: _elementwise("div" if rounding_mode is None else "floor_divide"),
        "pow": _pow,
        "clamp clip quantized::clamp": _clamp,
        "gelu": lambda approximate: _elementwise("gelu_tanh" if approximate == "tanh" else "gelu"),
        "gelu_backward":
            lambda approximate: _elementwise("gelu_tanh_grad" if approximate == "tanh" else "gelu_grad"),
        # the second output is a buffer for the gradient, empty on most devices
        "log_sigmoid_forward": lambda call: _elementwise("logsigmoid", call.outs[0].numel()),
        "cosine_similarity pairwise_distance":
            lambda call: means("reduce", fn="dot" if call.base == "cosine_similarity" else "norm"),
        "segment_reduce":
            lambda call, reduce: means("reduce", call.tensors("data", "lengths", "indices", "offsets"), fn=reduce),
        "sort argsort msort":
            lambda call, self: _sort(self.shape[0] if call.base == "msort" else _extent(call)),
        "median nanmedian mode quantile nanquantile unique_dim unique_consecutive unique_dim_consecutive":
            lambda call: _sort(_extent(call)),
        "topk kthvalue": lambda call, k: _sort(_extent(call), k),
        "_unique _unique2": lambda self: _sort(self.numel()),
        # each value is found by bisection, so the sequence's length counts by its logarithm
        "searchsorted": lambda call, sorted_sequence: _sort(
            sorted_sequence.shape[-1], ins=call.tensors("self", "sorted_sequence", "sorter"),
        ),
        "bucketize": lambda boundaries: _sort(boundaries.numel()),
        # both sides are sorted together
        "isin":
            lambda call: _sort(_total(call.tensors("elements", "element", "test_elements", "test_element"))),
        "bernoulli cauchy exponential geometric log_normal normal random uniform _philox_normal _philox_uniform "
        "_fill_mem_eff_dropout_mask": _fill,
        "dropout quantized::dropout": _dropout,
        # factorisations and solvers; the rule wants the matrix first, then the right-hand side. The inverse of a
        # factorised matrix is two triangular solves with the identity: as many right-hand sides as rows, twice
        "cholesky_inverse": lambda: means("linalg", fn="inverse"),
        "cholesky_solve _cholesky_solve_helper lu_solve linalg_lu_solve linalg_ldl_solve":
            lambda call: means(
                "linalg", call.tensors("input2", "A", "LU_data", "LU", "LD", "B", "self"), fn="factored_solve",
            ),
        # a sparse tensor's indices are sorted, and values at equal places added
        "_coalesce coalesce": lambda self: _sort(max(self._nnz(), 1)),
        # one of the primitive operators into which exported programs may be taken apart; most share aten's names
        "prims::fft_c2c prims::fft_r2c prims::fft_c2r": _fft,
        "_fused_sgd": lambda call, momentum: _step(call, "momentum" if momentum else "sgd"),
        "_fused_adam": lambda call: _step(call, "adam"),
        "_fused_adamw": lambda call: _step(call, "adamw"),
        "_fused_adagrad": lambda call: _step(call, "adagrad"),
        # each gradient is checked and scaled
        "_amp_foreach_non_finite_check_and_unscale": lambda self: _elementwise("fma", _total(self)),
    }
)  # fmt: skip


# -- operators that mean the same in every call: a kind with fixed attributes
#
# `operators.json` lists them; a name without a library belongs to aten, and `reads` names the arguments that are inputs where
# they do not come in the order of the kind. Views proper are found by their schema. Under the kind `view` are those that torch
# declares as if they made something new, memory that is handed out but not written (`empty`; what fills it counts), and orders
# that leave data alone: `set_` and `resize_` change which memory a tensor looks at, not its content.

for _entry in packaged_table(__package__, "operators.json"):
    on(*_entry.pop("ops"))(Constant(_entry.pop("kind"), tuple(_entry.pop("reads", ())), _entry))
