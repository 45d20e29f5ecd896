"""What operators consist of that PyTorch itself takes apart: a program may name them whole, a run never shows them.

Each function tells the operators that a run on the CPU shows in the place of one, with the tensors between them, so that a
program costs what the model costs. Those that are not here cost the same either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

from opcost.frontends.aten.call import Call
from opcost.frontends.aten.equation import explicit
from opcost.frontends.aten.strides import is_contiguous, row_major, seen_as
from opcost.frontends.aten.tensor import Described, Tensor, type_name


class Step(NamedTuple):
    """One operator: its full name with the overload, its arguments and its results."""

    operator: str
    args: dict[str, Any]
    outs: tuple[Tensor, ...]


class Parts:
    """Collects the operators that one consists of."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def __call__(self, operator: str, /, *outs: Tensor, **args: Any) -> Tensor:
        """Put an operator of aten behind the others; its first result comes back."""
        self.steps.append(Step(operator, args, outs))
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


def look(x: Tensor, shape: Sequence[int], strides: Sequence[int]) -> Described:
    """Another look at memory."""
    return Described(tuple(shape), tuple(strides), type_name(x), x.device, requires_grad=x.requires_grad)


Take: TypeAlias = Callable[[Parts, Call], "bool | None"]
COMPOSITES: dict[str, Take] = {}
"""By operator; a function that returns False leaves the operator whole."""


def of(*names: str) -> Callable[[Take], Take]:
    """Register the parts of these operators of aten."""

    def register(take: Take) -> Take:
        COMPOSITES.update(dict.fromkeys((f"aten::{name}" for name in names), take))
        return take

    return register


def taken_apart(call: Call) -> list[Step] | None:
    """The operators that a call consists of; None if it stands for itself."""
    take = COMPOSITES.get(call.name)
    if take is None:
        return None
    parts = Parts()
    return None if take(parts, call) is False else parts.steps


# -- products ---------------------------------------------------------------------------------------------------------


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
    elif a.dim() <= 2 and b.dim() >= 3 and _folds(turned := do.turned(b), a):
        columns = do.turned(do.reshape(turned, (prod(turned.shape[:-1]), turned.shape[-1])))
        do("mm", y, self=a, mat2=columns)
    else:
        a = do.view(a, (1, *a.shape), (0, *a.stride())) if a.dim() == 1 else a
        b = do.view(b, (*b.shape, 1), (*b.stride(), 0)) if b.dim() == 1 else b
        batch = broadcast(a.shape[:-2], b.shape[:-2])
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


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape of several."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(next((n for n in extents if n != 1), 1) for extents in zip(*padded, strict=True))


@of("einsum")
def _einsum(do: Parts, call: Call) -> bool | None:
    """Operands are joined from the left, two by two; what only one of them has and nobody needs later is summed first."""
    operands = list(call["tensors"])
    equation = explicit(call["equation"], [x.dim() for x in operands])
    if equation is None:
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


# -- attention --------------------------------------------------------------------------------------------------------


@of("scaled_dot_product_attention")
def _attention(do: Parts, call: Call) -> None:
    q, k, v, mask, y = call["query"], call["key"], call["value"], call["attn_mask"], call.outs[0]
    causal, gone = bool(call["is_causal"]), call["dropout_p"]
    whole = all(x.dim() == 4 for x in (q, k, v)) and not gone and q.shape[-1] == v.shape[-1]
    if mask is not None and type_name(mask) == "bool":
        mask = _weights_of(do, mask, q)
    if whole:
        kept = new(q.shape[:-1], q, "float64" if type_name(q) == "float64" else "float32")
        do(
            "_scaled_dot_product_flash_attention_for_cpu",
            y, kept, query=q, key=k, value=v, attn_mask=mask, is_causal=causal,
        )  # fmt: skip
        return
    q = do.like("mul.Tensor", q, other=1.0)
    if causal:
        square = new((q.shape[-2], k.shape[-2]), q, "bool")
        mask = _weights_of(do, do.like("tril", do("ones", square)), q)
    turned = do.turned(k)
    turned = do.like("mul.Tensor", turned, other=1.0)
    scores = new((*broadcast(q.shape[:-2], k.shape[:-2]), q.shape[-2], k.shape[-2]), q)
    product(do, q, turned, scores)
    if mask is not None:
        scores = do("add.Tensor", new(scores.shape, scores), self=scores, other=mask)  # type: ignore[assignment]
    chances = do.like("_safe_softmax", scores, dim=-1)
    if gone:
        chances = _dropped(do, chances, new(chances.shape, chances))
    product(do, chances, v, y)


def _weights_of(do: Parts, mask: Tensor, like: Tensor) -> Tensor:
    """A mask of truths as numbers to add."""
    zero, far = (do("scalar_tensor", new((), like)) for _ in range(2))
    return do("where.self", new(mask.shape, like), condition=mask, self=zero, other=far)


@of("dropout")
def _dropout(do: Parts, call: Call) -> bool | None:
    if not call["train"] or not call["p"]:
        return False
    _dropped(do, call["input"], call.outs[0])
    return None


def _dropped(do: Parts, x: Tensor, y: Tensor) -> Tensor:
    noise = do.in_place("bernoulli_.float", do.like("empty_like", x))
    return do("mul.Tensor", y, self=x, other=do.in_place("div_.Scalar", noise, other=1.0))


# -- normalisation, pooling -------------------------------------------------------------------------------------------


@of("batch_norm")
def _batch_norm(do: Parts, call: Call) -> None:
    x, training = call["input"], bool(call["training"])
    kept = [new((x.shape[1],) if training else (0,), x) for _ in range(2)]
    names = ("input", "weight", "bias", "running_mean", "running_var")
    do("native_batch_norm", call.outs[0], *kept, training=training, **{name: call[name] for name in names})


@of("layer_norm")
def _layer_norm(do: Parts, call: Call) -> None:
    x = call["input"]
    axes = len(call["normalized_shape"])
    kept = [new((*x.shape[: x.dim() - axes], *[1] * axes), x) for _ in range(2)]
    do("native_layer_norm", call.outs[0], *kept, input=x, weight=call["weight"], bias=call["bias"])


@of("group_norm")
def _group_norm(do: Parts, call: Call) -> None:
    x = call["input"]
    if not is_contiguous(x) and not _channels_last(x):
        x = do.like("clone", x)
    kept = [new((x.shape[0], call["num_groups"]), x) for _ in range(2)]
    do("native_group_norm", call.outs[0], *kept, input=x, weight=call["weight"], bias=call["bias"])


def _channels_last(x: Tensor) -> bool:
    order = [0, *range(2, x.dim()), 1]
    return x.dim() in (4, 5) and is_contiguous(look(x, [x.shape[i] for i in order], [x.stride()[i] for i in order]))


@of("instance_norm")
def _instance_norm(do: Parts, call: Call) -> bool | None:
    x = call["input"]
    if call["running_mean"] is not None or x.dim() < 3:
        return False
    rows = x.shape[0] * x.shape[1]
    many = {
        name: None if call[name] is None else do("repeat", new((rows,), x), self=call[name])
        for name in ("weight", "bias")
    }
    flat = do.reshape(x, (1, rows, *x.shape[2:]))
    kept = [new((rows,), x) for _ in range(2)]
    made = do("native_batch_norm", new(flat.shape, x), *kept, input=flat, **many, training=True)
    do("as_strided", call.outs[0], self=made)
    return None


@of("rms_norm")
def _rms_norm(do: Parts, call: Call) -> None:
    x, weight, y = call["input"], call["weight"], call.outs[0]
    axes = len(call["normalized_shape"])
    half = type_name(x) in ("float16", "bfloat16")
    wide = do("_to_copy", new(x.shape, x, "float32"), self=x) if half else x
    squares = do.like("pow.Tensor_Scalar", wide, exponent=2)
    mean = do("mean.dim", new((*x.shape[: x.dim() - axes], *[1] * axes), wide), self=squares, dim=list(range(-axes, 0)))
    scale = do.like("rsqrt", do.in_place("add_.Scalar", mean, other=0.0))
    done = not half and weight is None
    made = do("mul.Tensor", y if done else new(x.shape, wide), self=wide, other=scale)
    if weight is not None:
        made = do("mul.Tensor", new(x.shape, wide) if half else y, self=made, other=weight)
    if half:
        do("_to_copy", y, self=made)


@of("_weight_norm")
def _weight_norm(do: Parts, call: Call) -> None:
    do("_weight_norm_interface", call.outs[0], new(call["g"].shape, call["g"]), v=call["v"], g=call["g"])


@of("max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(do: Parts, call: Call) -> None:
    y = call.outs[0]
    operator = call.base.replace("1", "2") + "_with_indices"
    args = {name: call[name] for name in ("self", "kernel_size", "stride", "dilation")}
    if call.base == "max_pool1d":
        args |= {name: [1, *_one(args[name])] for name in ("kernel_size", "dilation")}
        args["stride"] = [1, *_one(args["stride"])] if args["stride"] else []
    do(operator, y, new(y.shape, y, "int64"), **args)


def _one(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


@of("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def _adaptive_pool(do: Parts, call: Call) -> bool | None:
    sizes = _one(call["output_size"])
    if any(size != 1 for size in sizes):
        return False
    do("mean.dim", call.outs[0], self=call["self"], dim=list(range(-len(sizes), 0)))
    return None


# -- cells ------------------------------------------------------------------------------------------------------------


def _gates(do: Parts, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y = new((*x.shape[:-1], weight.shape[0]), x)
    if bias is None:
        return do("mm", y, self=x, mat2=do.turned(weight))
    return do("addmm", y, self=bias, mat1=x, mat2=do.turned(weight))


def _quarters(do: Parts, x: Tensor, count: int) -> list[Tensor]:
    shape = (*x.shape[:-1], x.shape[-1] // count)
    return [do.view(x, shape, x.stride()) for _ in range(count)]


@of("lstm_cell")
def _lstm_cell(do: Parts, call: Call) -> None:
    state, cell = call["hx"]
    all_gates = do.in_place(
        "add_.Tensor",
        _gates(do, call["input"], call["w_ih"], call["b_ih"]),
        other=_gates(do, state, call["w_hh"], call["b_hh"]),
    )
    parts = _quarters(do, all_gates, 4)
    enter, forget, leave = (do.in_place("sigmoid_", parts[i]) for i in (0, 1, 3))
    new_cell = do.in_place("tanh_", parts[2])
    kept = do("mul.Tensor", call.outs[1], self=forget, other=cell)
    kept = do.in_place("add_.Tensor", kept, other=do.like("mul.Tensor", enter, other=new_cell))
    do("mul.Tensor", call.outs[0], self=leave, other=do.like("tanh", kept))


@of("gru_cell")
def _gru_cell(do: Parts, call: Call) -> None:
    state = call["hx"]
    of_input = _quarters(do, _gates(do, call["input"], call["w_ih"], call["b_ih"]), 3)
    of_state = _quarters(do, _gates(do, state, call["w_hh"], call["b_hh"]), 3)
    reset, update = (
        do.in_place("sigmoid_", do.in_place("add_.Tensor", of_state[i], other=of_input[i])) for i in (0, 1)
    )
    fresh = do(
        "add.Tensor",
        new(state.shape, state),
        self=of_input[2],
        other=do.in_place("mul_.Tensor", of_state[2], other=reset),
    )
    fresh = do.in_place("tanh_", fresh)
    step = do.in_place("mul_.Tensor", do.like("sub.Tensor", state, other=fresh), other=update)
    do("add_.Tensor", call.outs[0], self=step, other=fresh)


@of("rnn_tanh_cell", "rnn_relu_cell")
def _rnn_cell(do: Parts, call: Call) -> None:
    both = do.in_place(
        "add_.Tensor",
        _gates(do, call["input"], call["w_ih"], call["b_ih"]),
        other=_gates(do, call["hx"], call["w_hh"], call["b_hh"]),
    )
    do("tanh" if "tanh" in call.base else "relu", call.outs[0], self=both)


# -- losses and small ones --------------------------------------------------------------------------------------------


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
        new(broadcast(call["self"].shape, call["target"].shape), call["self"]),
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
    difference = do("sub.Tensor", new(broadcast(a.shape, b.shape), a), self=a, other=b)
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
