"""What operators consist of that PyTorch itself takes apart: a program may name them whole, a run never shows them.

Each function runs the operators that a count on the CPU shows in the place of one, on descriptions of tensors, so that a program
costs what the model costs. Those that are not here cost the same either way.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from opcost.core.shapes import Mismatch, broadcast, explicit
from opcost.frontends.aten.call import AtenCall, AtenTable, flat, per_axis
from opcost.frontends.aten.contraction import multiplied
from opcost.frontends.aten.results import made, outputs_of
from opcost.frontends.aten.schema import Plan, plan_named
from opcost.frontends.aten.tensor import (
    AtenTensor,
    has_channels_last,
    is_contiguous,
    look,
    row_major,
    seen_as,
    type_name,
)


class ComposedStep(NamedTuple):
    """One operator, and its call."""

    plan: Plan
    call: AtenCall


class OperatorParts:
    """Collects the operators that one consists of."""

    def __init__(self) -> None:
        self.steps: list[ComposedStep] = []

    def __call__(self, operator: str, /, *args: Any, makes: tuple[AtenTensor, ...] = (), **named: Any) -> AtenTensor:
        """Run an operator of aten after the others; its first result comes back. `makes` are results where they are known."""
        base, _, overload = operator.partition(".")
        plan = plan_named(f"aten::{base}", overload)
        call = plan.call(plan.named(args, named))
        call.outs = makes or outputs_of(plan, call)
        if plan.in_place:
            call.outs = tuple(look(x, x.shape, x.stride()) for x in call.outs)
        self.steps.append(ComposedStep(plan, call))
        return call.outs[0]

    def view(self, x: AtenTensor, shape: Sequence[int], strides: Sequence[int]) -> AtenTensor:
        return self("as_strided", x, makes=(look(x, shape, strides),))

    def reshape(self, x: AtenTensor, shape: Sequence[int]) -> AtenTensor:
        """The same elements with another shape: a view where the memory allows, else a copy."""
        strides = seen_as(x, shape)
        if strides is None:
            x, strides = self("clone", x), row_major(shape)
        return self.view(x, shape, strides)

    def moved(self, x: AtenTensor, order: Sequence[int]) -> AtenTensor:
        """The axes in another order."""
        return self.view(x, [x.shape[axis] for axis in order], [x.stride()[axis] for axis in order])

    def turned(self, x: AtenTensor) -> AtenTensor:
        """The last two axes exchanged."""
        rank = x.dim()
        return self.moved(x, [*range(rank - 2), rank - 1, rank - 2])


class Whole(Exception):
    """An operator is not taken apart."""


COMPOSITES: AtenTable[Any] = AtenTable("aten::")
"""What operators consist of; a function is also given `do`, which collects the parts. It returns the results."""


def taken_apart(call: AtenCall) -> list[ComposedStep] | None:
    """The operators that a call consists of; None if it is not taken apart."""
    take = COMPOSITES.get(call.name)
    if take is None:
        return None
    parts = OperatorParts()
    try:
        results = flat([take(call, do=parts)])
    except Whole:
        return None
    for y, result in zip(
        call.outs, results, strict=False
    ):  # from here on, each result is the tensor of the call itself
        for _, part in parts.steps:
            part.outs = tuple(y if x is result else x for x in part.outs)
            part.args = {name: y if value is result else value for name, value in part.args.items()}
    return parts.steps


# -- products: linear layers, `matmul`, `einsum` and `tensordot` as one or more matrix products


def _linear(do: OperatorParts, input: AtenTensor, weight: AtenTensor, bias: AtenTensor | None) -> AtenTensor:
    columns = do.turned(weight) if weight.dim() == 2 else weight
    if bias is not None and (input.dim() <= 2 or is_contiguous(input)):
        return do("addmm", bias, input, columns)
    y = _product(do, input, columns)
    return y if bias is None else do("add.Tensor", y, bias)


def _product(do: OperatorParts, self: AtenTensor, other: AtenTensor) -> AtenTensor:
    """A product over the last axis of one and the last but one of the other, the others broadcast."""
    a, b = self, other
    y = multiplied(a, b)
    if a.dim() == 1 and b.dim() == 1:
        return do("dot", a, b)
    if b.dim() <= 2 and (a.dim() <= 2 or _folds(a, b)):
        rows = a if a.dim() <= 2 else do.reshape(a, (prod(a.shape[:-1]), a.shape[-1]))
        return do("mm" if b.dim() == 2 else "mv", rows, b, makes=(y,))
    if a.dim() == 1 and _folds(turned := do.turned(b), a):
        return do("mv", do.reshape(turned, (prod(turned.shape[:-1]), turned.shape[-1])), a, makes=(y,))
    if a.dim() == 2 and b.dim() >= 3 and a.requires_grad:  # the result has its rows last, and is laid out anew
        turned = do.turned(b)
        columns = do("mm", do.reshape(turned, (prod(turned.shape[:-1]), turned.shape[-1])), do.turned(a))
        return do("clone", do.view(columns, y.shape, y.strides))
    a = do.view(a, (1, *a.shape), (0, *a.stride())) if a.dim() == 1 else a
    b = do.view(b, (*b.shape, 1), (*b.stride(), 0)) if b.dim() == 1 else b
    batch = broadcast([a.shape[:-2], b.shape[:-2]])
    return do("bmm", *[_stacked(do, x, batch) for x in (a, b)], makes=(y,))


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


_Labelled = tuple[AtenTensor, str]  # A tensor and the labels of its axes


def _einsum(do: OperatorParts, call: AtenCall, equation: str, tensors: Sequence[AtenTensor]) -> AtenTensor:
    """Operands are joined from the left, two by two; what only one of them has and no later one needs is summed first."""
    try:
        left, _, result = explicit(equation, [x.dim() for x in tensors]).partition("->")
    except Mismatch:
        raise Whole from None
    operands = [_diagonal(do, x, term) for x, term in zip(tensors, left.split(","), strict=True)]
    x, labels = operands[0]
    for place, other in enumerate(operands[1:], start=2):
        later = set(result).union(*(term for _, term in operands[place:]))
        x, labels = _joined(do, (x, labels), other, later)
    summed = [axis for axis, label in enumerate(labels) if label not in result]
    y = call.outs[0]
    return do("sum.dim_IntList", x, summed) if summed else do.view(x, y.shape, y.stride())


def _diagonal(do: OperatorParts, x: AtenTensor, labels: str) -> _Labelled:
    """Axes of one label are walked along together."""
    once = "".join(dict.fromkeys(labels))
    if once == labels:
        return x, labels
    axes = [[axis for axis, label in enumerate(labels) if label == wanted] for wanted in once]
    strides = [sum(x.stride()[axis] for axis in group) for group in axes]
    return do.view(x, [x.shape[group[0]] for group in axes], strides), once


def _joined(do: OperatorParts, one: _Labelled, two: _Labelled, later: set[str]) -> _Labelled:
    a, of_a = _presummed(do, *one, later | set(two[1]))
    b, of_b = _presummed(do, *two, later | set(of_a))
    size = {**dict(zip(of_a, a.shape, strict=True)), **{c: n for c, n in zip(of_b, b.shape, strict=True) if n != 1}}
    has_a = {c for c, n in zip(of_a, a.shape, strict=True) if n != 1 or c not in of_b}
    has_b = {c for c, n in zip(of_b, b.shape, strict=True) if n != 1 or c not in of_a}
    every = list(dict.fromkeys(of_a + of_b))
    gone = [c for c in every if c not in later]
    if not gone:
        return do("mul.Tensor", a, b, makes=(made([size[c] for c in every], a),)), "".join(every)
    both = [c for c in every if c in has_a & has_b and c in later]
    only_a = [c for c in every if c in has_a - has_b]
    only_b = [c for c in every if c in has_b - has_a]
    extents = [prod(size[c] for c in group) for group in (both, only_a, gone, only_b)]
    left = do.reshape(_ordered(do, a, of_a, [*both, *only_a, *gone]), (extents[0], extents[1], extents[2]))
    right = do.reshape(_ordered(do, b, of_b, [*both, *gone, *only_b]), (extents[0], extents[2], extents[3]))
    labels = [*both, *only_a, *only_b]
    shape = [size[c] for c in labels]
    return do.view(do("bmm", left, right), shape, row_major(shape)), "".join(labels)


def _presummed(do: OperatorParts, x: AtenTensor, labels: str, needed: set[str]) -> _Labelled:
    gone = [axis for axis, label in enumerate(labels) if label not in needed]
    if not gone:
        return x, labels
    return do("sum.dim_IntList", x, gone), "".join(label for label in labels if label in needed)


def _ordered(do: OperatorParts, x: AtenTensor, labels: str, order: Sequence[str]) -> AtenTensor:
    """The axes by label; one that the tensor does not have, or has only once, may be anywhere."""
    at = {label: axis for axis, label in enumerate(labels)}
    shape = [x.shape[at[c]] if c in at else 1 for c in order]
    strides = [x.stride()[at[c]] if c in at else 0 for c in order]
    return do.view(x, shape, strides)


def _tensordot(do: OperatorParts, self: AtenTensor, other: AtenTensor, dims_self: Any, dims_other: Any) -> AtenTensor:
    sides = []
    for x, dims in ((self, dims_self), (other, dims_other)):
        gone = [axis % x.dim() for axis in dims]
        sides.append(([axis for axis in range(x.dim()) if axis not in gone], gone))
    (rows, of_self), (columns, of_other) = sides
    depth = prod(self.shape[axis] for axis in of_self)
    left = do.reshape(do.moved(self, rows + of_self), (prod(self.shape[axis] for axis in rows), depth))
    right = do.reshape(do.moved(other, of_other + columns), (depth, prod(other.shape[axis] for axis in columns)))
    return do("mm", left, right)


def _bilinear(
    do: OperatorParts, input1: AtenTensor, input2: AtenTensor, weight: AtenTensor, bias: AtenTensor | None
) -> AtenTensor:
    if bias is None:
        raise Whole
    return do("add.Tensor", do("bilinear", input1, input2, weight), bias)


# -- losses, and small operators that are two or three others


def _reduced(do: OperatorParts, each: AtenTensor, reduction: int) -> AtenTensor:
    """0: each value, 1: their mean, 2: their sum."""
    return do("mean" if reduction == 1 else "sum", each) if reduction else each


def _cross_entropy(
    do: OperatorParts, call: AtenCall, self: AtenTensor, target: AtenTensor, label_smoothing: float
) -> AtenTensor:
    if type_name(target) != "int64" or label_smoothing:
        raise Whole
    logs = do("_log_softmax", self, 1 if self.dim() > 1 else 0)
    return do("nll_loss_forward", logs, target, call["weight"], call["reduction"], call["ignore_index"])


def _kl_div(do: OperatorParts, self: AtenTensor, target: AtenTensor, reduction: int, log_target: Any) -> AtenTensor:
    if log_target:
        difference = do("sub.Tensor", target, self)
        return _reduced(do, do("mul.Tensor", do("exp", target), difference), reduction)
    scaled = do("mul.Tensor", target, self)
    return _reduced(do, do("sub.Tensor", do("xlogy.Tensor", target, target), scaled), reduction)


def _cosine_similarity(do: OperatorParts, x1: AtenTensor, x2: AtenTensor, dim: int) -> AtenTensor:
    if tuple(x1.shape) != tuple(x2.shape):
        raise Whole
    norms = [do("clone", do("linalg_vector_norm", x, dim=[dim], keepdim=True)) for x in (x1, x2)]
    least = do("scalar_tensor", dtype=type_name(x1))
    norms = [do("clamp_min_.Tensor", norm, least) for norm in norms]
    scaled = [do("div.Tensor", x, norm) for x, norm in zip((x2, x1), norms, strict=True)]
    return do("sum.dim_IntList", do("mul.Tensor", *scaled), [dim])


def _one_hot(do: OperatorParts, call: AtenCall, self: AtenTensor) -> AtenTensor:
    y = call.outs[0]
    classes = do("arange", y.shape[-1], dtype=type_name(y))
    return do("_to_copy", do("eq.Tensor", do.view(self, (*self.shape, 1), (*self.stride(), 1)), classes), makes=(y,))


def _diff(do: OperatorParts, call: AtenCall, self: AtenTensor, n: int, dim: int) -> AtenTensor:
    parts = call.tensors("prepend", "self", "append")
    if n != 1:
        raise Whole
    if len(parts) > 1:
        self = do("cat", parts, dim)
    sides = [do.view(self, call.outs[0].shape, self.stride()) for _ in range(2)]
    return do("logical_xor" if type_name(self) == "bool" else "sub.Tensor", *sides)


def _where(do: OperatorParts, call: AtenCall, condition: AtenTensor, self: Any, other: Any) -> AtenTensor:
    """A number in the place of a tensor is made a tensor first."""
    if "Scalar" not in call.overload:
        raise Whole
    dtype = type_name(call.outs[0])
    sides = [x if isinstance(x, AtenTensor) else do("scalar_tensor", x, dtype=dtype) for x in (self, other)]
    return do("where.self", condition, *sides)


def _repeat_interleave(do: OperatorParts, call: AtenCall, self: AtenTensor) -> AtenTensor:
    """Every element repeated is a copy of a widened view."""
    if call.overload != "self_int":
        raise Whole
    y = call.outs[0]
    return do("clone", do.view(self, y.shape, row_major(y.shape)))


COMPOSITES.rows(
    {
        "linear": _linear,
        "matmul linalg_matmul": _product,
        "einsum": _einsum,
        "tensordot": _tensordot,
        "bilinear": _bilinear,
        "cross_entropy_loss": _cross_entropy,
        "nll_loss nll_loss_nd nll_loss2d": lambda do, self, target, weight, reduction, ignore_index:
            do("nll_loss_forward", self, target, weight, reduction, ignore_index),
        "l1_loss":
            lambda do, self, target, reduction: _reduced(do, do("abs", do("sub.Tensor", self, target)), reduction),
        "kl_div": _kl_div,
        "cosine_similarity": _cosine_similarity,
        "pairwise_distance": lambda do, x1, x2:
            do("norm.ScalarOpt_dim", do("add.Scalar", do("sub.Tensor", x1, x2), 0.0), dim=[-1]),
        "selu": lambda do, self: do("elu", self),
        "log_sigmoid": lambda do, self: do("log_sigmoid_forward", self),
        "rrelu": lambda do, self: do("rrelu_with_noise", self, do("empty_like", self)),
        "one_hot": _one_hot,
        "isfinite": lambda do, self:
            do("mul.Tensor", do("eq.Tensor", self, self), do("ne.Scalar", do("abs", self), 0.0)),
        "diff": _diff,
        "where": _where,
        "repeat_interleave": _repeat_interleave,
        "meshgrid": lambda do, call, tensors:
            [do.view(x, y.shape, y.stride()) for x, y in zip(tensors, call.outs, strict=True)],
    }
)  # fmt: skip


# -- normalisation and pooling


def _statistics(x: AtenTensor, *shape: int) -> tuple[AtenTensor, AtenTensor, AtenTensor]:
    """The result of a norm on a CPU, the means and the deviations."""
    return made(x.shape, x), made(shape, x), made(shape, x)


def _rows_of(x: AtenTensor, axes: int) -> tuple[int, ...]:
    """The shape of the statistics of a norm over the last axes."""
    return (*x.shape[: x.dim() - axes], *[1] * axes)


def _batch_norm(do: OperatorParts, call: AtenCall, input: AtenTensor, training: Any) -> AtenTensor:
    names = ("input", "weight", "bias", "running_mean", "running_var")
    kept = input.shape[1] if training else 0
    return do("native_batch_norm", *[call[name] for name in names], bool(training), makes=_statistics(input, kept))


def _layer_norm(do: OperatorParts, input: AtenTensor, normalized_shape: Any, weight: Any, bias: Any) -> AtenTensor:
    makes = _statistics(input, *_rows_of(input, len(normalized_shape)))
    return do("native_layer_norm", input, normalized_shape, weight, bias, makes=makes)


def _group_norm(do: OperatorParts, input: AtenTensor, num_groups: int, weight: Any, bias: Any) -> AtenTensor:
    x = input if is_contiguous(input) or has_channels_last(input) else do("clone", input)
    return do("native_group_norm", x, weight, bias, makes=_statistics(x, x.shape[0], num_groups))


def _instance_norm(do: OperatorParts, call: AtenCall, input: AtenTensor, running_mean: Any) -> AtenTensor:
    if running_mean is not None or input.dim() < 3:
        raise Whole
    count = input.shape[0] * input.shape[1]
    many = [None if x is None else do("repeat", x, input.shape[:1]) for x in (call["weight"], call["bias"])]
    rows = do.reshape(input, (1, count, *input.shape[2:]))
    y = do("native_batch_norm", rows, *many, training=True, makes=_statistics(rows, count))
    return do.view(y, call.outs[0].shape, call.outs[0].stride())


def _rms_norm(do: OperatorParts, input: AtenTensor, normalized_shape: Any, weight: AtenTensor | None) -> AtenTensor:
    half = type_name(input) in ("float16", "bfloat16")
    x = do("_to_copy", input, dtype="float32") if half else input
    mean = do("mean.dim", do("pow.Tensor_Scalar", x, 2), list(range(-len(normalized_shape), 0)), keepdim=True)
    y = do("mul.Tensor", x, do("rsqrt", do("add_.Scalar", mean, 0.0)))
    y = y if weight is None else do("mul.Tensor", y, weight)
    return do("_to_copy", y, dtype=type_name(input)) if half else y


def _max_pool(do: OperatorParts, call: AtenCall, self: AtenTensor) -> AtenTensor:
    settings = {name: call[name] for name in ("kernel_size", "stride", "dilation")}
    if call.base == "max_pool1d":
        settings = {name: [1, *per_axis(value, 1)] if value else [] for name, value in settings.items()}
    operator, y = call.base.replace("1", "2") + "_with_indices", call.outs[0]
    return do(operator, self, **settings, makes=(y, made(y.shape, "int64")))


def _adaptive_pool(do: OperatorParts, self: AtenTensor, output_size: Any) -> AtenTensor:
    sizes = per_axis(output_size, 1)
    if any(size != 1 for size in sizes):
        raise Whole
    return do("mean.dim", self, list(range(-len(sizes), 0)), keepdim=True)


# -- attention in one kernel, or by its products where no kernel takes it, and dropout


def _attention(
    do: OperatorParts, query: AtenTensor, key: AtenTensor, value: AtenTensor, attn_mask: Any, dropout_p: Any, is_causal: Any
) -> AtenTensor:  # fmt: skip
    q, k, v, mask = query, key, value, attn_mask
    if mask is not None and type_name(mask) == "bool":
        mask = _weights_of(do, mask, q)
    if all(x.dim() == 4 for x in (q, k, v)) and not dropout_p and q.shape[-1] == v.shape[-1]:
        return do("_scaled_dot_product_flash_attention_for_cpu", q, k, v, is_causal=bool(is_causal), attn_mask=mask)
    q = do("mul.Tensor", q, 1.0)
    if is_causal:
        mask = _weights_of(do, do("tril", do("ones", (q.shape[-2], k.shape[-2]), dtype="bool")), q)
    scores = _product(do, q, do("mul.Tensor", do.turned(k), 1.0))
    if mask is not None:
        scores = do("add.Tensor", scores, mask)
    chances = do("_safe_softmax", scores, -1)
    return _product(do, _dropped(do, chances) if dropout_p else chances, v)


def _weights_of(do: OperatorParts, mask: AtenTensor, like: AtenTensor) -> AtenTensor:
    """A mask of truths as numbers to add."""
    return do("where.self", mask, *[do("scalar_tensor", 0.0, dtype=type_name(like)) for _ in range(2)])


def _dropout(do: OperatorParts, input: AtenTensor, p: Any, train: Any) -> AtenTensor:
    if not train or not p:
        raise Whole
    return _dropped(do, input)


def _dropped(do: OperatorParts, x: AtenTensor) -> AtenTensor:
    noise = do("bernoulli_.float", do("empty_like", x))
    return do("mul.Tensor", x, do("div_.Scalar", noise, 1.0))


# -- recurrent cells as their products and gates


def _gates(do: OperatorParts, call: AtenCall, state: AtenTensor) -> Iterator[AtenTensor]:
    """What the input and then the state contribute to all gates."""
    for x, weight, bias in ((call["input"], "w_ih", "b_ih"), (state, "w_hh", "b_hh")):
        columns = do.turned(call[weight])
        yield do("mm", x, columns) if call[bias] is None else do("addmm", call[bias], x, columns)


def _split(do: OperatorParts, x: AtenTensor, count: int) -> list[AtenTensor]:
    shape = (*x.shape[:-1], x.shape[-1] // count)
    return [do.view(x, shape, x.stride()) for _ in range(count)]


def _lstm_cell(do: OperatorParts, call: AtenCall, hx: Sequence[AtenTensor]) -> tuple[AtenTensor, AtenTensor]:
    of_input, of_state = _gates(do, call, hx[0])
    parts = _split(do, do("add_.Tensor", of_input, of_state), 4)
    enter, forget, leave = (do("sigmoid_", parts[i]) for i in (0, 1, 3))
    new_cell = do("tanh_", parts[2])
    cell = do("mul.Tensor", forget, hx[1])
    added = do("add_.Tensor", cell, do("mul.Tensor", enter, new_cell))
    return do("mul.Tensor", leave, do("tanh", added)), cell


def _gru_cell(do: OperatorParts, call: AtenCall, hx: AtenTensor) -> AtenTensor:
    of_input, of_state = (_split(do, gates, 3) for gates in _gates(do, call, hx))
    reset, update = (do("sigmoid_", do("add_.Tensor", of_state[i], of_input[i])) for i in (0, 1))
    scaled = do("mul_.Tensor", of_state[2], reset)
    fresh = do("tanh_", do("add.Tensor", of_input[2], scaled))
    return do("add_.Tensor", do("mul_.Tensor", do("sub.Tensor", hx, fresh), update), fresh)


def _rnn_cell(do: OperatorParts, call: AtenCall, hx: AtenTensor) -> AtenTensor:
    of_input, of_state = _gates(do, call, hx)
    return do("tanh" if "tanh" in call.base else "relu", do("add_.Tensor", of_input, of_state))


COMPOSITES.rows(
    {
        "batch_norm": _batch_norm,
        "layer_norm": _layer_norm,
        "group_norm": _group_norm,
        "instance_norm": _instance_norm,
        "rms_norm": _rms_norm,
        "_weight_norm": lambda do, v, g: do("_weight_norm_interface", v, g),
        "max_pool1d max_pool2d max_pool3d": _max_pool,
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d": _adaptive_pool,
        "scaled_dot_product_attention": _attention,
        "dropout": _dropout,
        "lstm_cell": _lstm_cell,
        "gru_cell": _gru_cell,
        "rnn_tanh_cell rnn_relu_cell": _rnn_cell,
    }
)  # fmt: skip
