"""What PyTorch's inductor decides by: its limits, and what follows from the shapes and types of an operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod

from opcost.core.report import Row

SUMMED = frozenset({"reduce", "norm", "softmax"})
READS_AGAIN = 4  # tensors from which a result is calculated more than once; from more than these it is written
READS_ONCE = 8  # tensors from which a result is calculated at all, without one on the way being written
STEPS = 30  # steps of a calculation that are not repeated
UNROLLED = 8  # elements along an axis that are summed one by one, in the reader
WINDOW = 25  # elements of a pooling window that are read one by one
MOVING = frozenset({"aten::roll", "aten::flip", "aten::repeat"})  # they read elements in another order
HALF = ("bfloat16", "float16")
TWICE = frozenset({"gelu", "gelu_tanh", "silu", "mish", "hardswish", "softmax", "layer", "group", "instance", "rms"})
"""Functions that read what they are given more than once."""
STEPS_OF: dict[str, int] = {
    "gelu": 9, "gelu_tanh": 14, "silu": 5, "mish": 8, "hardswish": 6, "hardsigmoid": 5, "batch": 8, "tanh": 3,
}  # fmt: skip
"""Steps of a calculation that these take; others take two."""


_PROCESSORS = 132
_PER_THREAD = 32  # elements that each thread sums at least
_THREADS = 2048  # of a multiprocessor


def parts_of(count: int, depth: int, *, across: bool) -> int:
    """Into how many parts a sum is cut, so that all multiprocessors have work; the rules of inductor."""
    if count > 1 and (depth <= _PER_THREAD or count >= _PROCESSORS * 2 * _PER_THREAD):
        return 1
    if across:
        each, threads, blocks = 4, _PROCESSORS * _THREADS // 256, -(-count // 128)
    elif count >= 2 * _PROCESSORS or depth <= 8192:
        return 1
    else:
        each, threads, blocks = 256, _PROCESSORS * _THREADS // 512, count
    size = _PER_THREAD
    if count * depth > _PER_THREAD * _PROCESSORS * _THREADS:
        wanted = -(-depth // (each * -(-threads // blocks)))
        size = min(wanted, 512)
        near = min((divisor for divisor in range(1, 2 * size) if depth % divisor == 0), key=lambda n: abs(n - wanted))
        if abs(near - wanted) < 20:
            size = max(near, _PER_THREAD)
    return -(-depth // (size * each))


def precisely(row: Row) -> bool:
    """Whether an operator calculates in another precision than that of its tensors."""
    plain = ("add", "sub", "mul", "div", "relu", "neg", "max", "min", "where")
    return bool(row.ins) and row.ins[0].dtype in HALF and row.op.attrs.get("fn") not in plain


ALIGNED = 8
COMPUTE_BOUND = (
    206  # multiply-accumulates for each element that a product reads or writes, from which on memory does not decide
)


def in_halves(row: Row) -> bool:
    """Whether it is the product of two matrices of 16-bit elements."""
    return row.op.raw in ("aten::mm", "aten::addmm", "aten::bmm") and all(
        spec.known and len(spec.dims) == len(row.outs[0].dims) and spec.dtype in HALF for spec in row.ins[:2]
    )


def small_window(row: Row) -> bool:
    """Whether the elements of a pooling window are read one by one."""
    window = row.op.attrs.get("window")
    return isinstance(window, int) and window <= WINDOW


def statistics(row: Row) -> int:
    """How many sums an operator makes along its axes."""
    given = row.ins[0]
    if row.op.kind == "reduce":
        return row.outs[0].numel if row.outs[0].known else 1
    if row.op.kind == "norm" and len(row.outs) > 1 and row.outs[1].known:
        return row.outs[1].numel
    return given.numel // max(1, given.dims[-1] if given.dims else 1)


def simply_read(rows: Iterable[Row]) -> set[int]:
    """Values that only simple operators read, through views or not."""
    others: set[int] = set()
    for row in reversed(list(rows)):
        op = row.op
        if op.kind == "view":
            simple = not others.intersection(op.outputs)
        else:
            simple = op.raw == "aten::clone" or (op.kind == "elementwise" and not precisely(row))
        if not simple:
            others.update(op.inputs)
    return {value for row in rows for value in row.op.outputs} - others


def convolves(row: Row) -> bool:
    """Whether it is the convolution of an image, and not its gradient or another way round."""
    plain = not any(row.op.attrs.get(name) for name in ("grads", "transposed"))
    return plain and len(row.ins) > 1 and all(spec.known and len(spec.dims) == 4 for spec in row.ins[:2])


_FASTER = {"grouped": 1.358, "small": 0.783, "narrowing": 0.725, "": 0.823}
"""The time of convolutions with channels side by side, compared with that of one channel after another, as inductor has it."""
_SIMPLEST = {"batch": 15, "layer": 11, "group": 14, "softmax": 7, "gelu": 8, "silu": 7, "hardswish": 8}
"""Simplest operators that make one of these up."""
_FEW = 300  # simplest operators for each convolution, from which on the few convolutions are left as they are
_SMALL = 64


def channels_last(rows: Iterable[Row]) -> bool:
    """Whether a compiler puts the channels of images side by side: where that makes all convolutions together faster."""
    rows = list(rows)
    found = [row for row in rows if row.op.kind == "conv" and convolves(row)]
    given = {value for row in rows for value in row.op.inputs} - {value for row in rows for value in row.op.outputs}
    simplest = len(given) + sum(_SIMPLEST.get(str(row.op.attrs.get("fn")), 1) for row in rows)
    if not found or simplest >= _FEW * len(found):
        return False
    times: Counter[str] = Counter()
    for row in found:
        times[_shape_class(row)] += row.outs[0].numel * prod(row.ins[1].dims[1:])
    if any(row.op.phase == "backward" for row in rows):
        return "grouped" not in times and "narrowing" not in times and set(times) != {"small"}
    return sum(_FASTER[kind] * macs for kind, macs in times.items()) <= times.total()


def _shape_class(row: Row) -> str:
    image, weight = row.ins[0].dims, row.ins[1].dims
    if 1 < weight[1] < image[1]:
        return "grouped"
    if max(weight[:2]) <= _SMALL:
        return "small"
    return "narrowing" if weight[0] * 2 <= weight[1] and weight[2] > 1 else ""
