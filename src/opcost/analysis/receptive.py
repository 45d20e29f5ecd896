"""How much of the input one element of a tensor sees: the receptive field and its stride, axis by axis.

Convolutions and pooling widen the field by (kernel - 1) × dilation × the stride so far; a transposed convolution and a
resize bring positions closer together again. What mixes all positions (attention, products of activations, recurrent
layers, Fourier transforms) leaves no field to speak of, and neither does an operator of unknown geometry. All
others hand on the widest field that they read.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from opcost.core.graph import Attr, TensorSpec
from opcost.core.report import Report, Row

Number = int | Fraction


class ReceptiveField(NamedTuple):
    """Extent and stride in elements of the input, one for each spatial axis; empty before the first window: all ones."""

    size: tuple[Number, ...] = ()
    stride: tuple[Number, ...] = ()


_MIXING = ("attention", "recurrent", "fft", "linalg", "sort", "distance")
_PRODUCTS = ("matmul", "einsum", "bilinear")
_REACH = {"linear": 1, "bilinear": 1, "trilinear": 1, "bicubic": 3}
"""Source elements besides the first that a resized element is made from."""


def receptive_fields(report: Report) -> dict[int, ReceptiveField]:
    """The fields of the convolutions and poolings of the forward pass, by position in `report.rows`."""
    fields: dict[int, ReceptiveField | None] = {}
    weights = {value for parameter in report.parameters for value in parameter.values}
    found: dict[int, ReceptiveField] = {}
    for index, row in enumerate(report.rows):
        op = row.op
        if op.phase != "forward":
            continue
        read = [
            (fields.get(value, ReceptiveField()), spec)
            for value, spec in zip(op.inputs, row.ins, strict=True)
            if value not in weights
        ]
        if op.inputs and not read:  # made from parameters alone, it is one itself
            weights.update(op.outputs)
            continue
        field = _after(row, read)
        fields |= dict.fromkeys(op.outputs, field)
        if op.kind in ("conv", "pool") and field is not None:
            found[index] = field
    return found


def _after(row: Row, read: list[tuple[ReceptiveField | None, TensorSpec]]) -> ReceptiveField | None:
    kind, attrs = row.op.kind, row.op.attrs
    known = [(field, spec) for field, spec in read if field is not None]
    if kind in _MIXING or len(known) != len(read) or (kind in _PRODUCTS and len(read) > 1):
        return None
    if kind in ("conv", "pool"):
        kernel, stride = _numbers(attrs.get("kernel")), _numbers(attrs.get("stride"))
        if kind == "conv" and not kernel and len(row.ins) > 1 and row.ins[1].known:
            kernel = row.ins[1].dims[3 if attrs.get("grouped") else 2 :]
        if not known or not kernel or len(stride) != len(kernel):
            return None
        dilations = _numbers(attrs.get("dilation")) or (1,) * len(kernel)
        spans = [(size - 1) * dilate + 1 for size, dilate in zip(kernel, dilations, strict=False)]
        if kind == "conv" and attrs.get("transposed"):
            reach = [-(-span // step) for span, step in zip(spans, stride, strict=True)]
            return _widened(known[0][0], reach, [Fraction(1, step) for step in stride])
        return _widened(known[0][0], spans, stride)
    joined = _joined(known)
    axes = 0 if joined is None else len(joined.size)
    if joined is None or not axes or kind not in ("reduce", "resize"):
        return joined
    x, y = row.ins[0], row.outs[0]
    if kind == "reduce":  # of the spatial axes it is a pooling over all of them
        if not x.known or not y.known or len(x.dims) <= axes:
            return joined
        kept, extents = x.dims[:-axes], x.dims[-axes:]
        reduces = y.dims in (kept, (*kept, *(1,) * axes)) and y.dims != x.dims
        return _widened(joined, extents, extents) if reduces else joined
    if not x.known or not y.known or len(x.dims) != len(y.dims) or 0 in y.dims[-axes:]:
        return None
    steps = [Fraction(n, m) for n, m in zip(x.dims[-axes:], y.dims[-axes:], strict=True)]
    return _widened(joined, [1 + _REACH.get(str(attrs.get("fn")), 0)] * axes, steps)


def _widened(before: ReceptiveField, spans: Iterable[int], steps: Iterable[Number]) -> ReceptiveField | None:
    """The field of windows that span this many elements and begin that many elements apart."""
    spans, steps = list(spans), list(steps)
    sizes = before.size or (1,) * len(spans)
    strides = before.stride or (1,) * len(spans)
    if len(sizes) != len(spans):  # the axes are not those of the windows before
        return None
    wider = [size + (span - 1) * step for size, span, step in zip(sizes, spans, strides, strict=True)]
    apart = [old * new for old, new in zip(strides, steps, strict=True)]

    def plain(numbers: list[Number]) -> tuple[Number, ...]:
        return tuple(int(number) if number.denominator == 1 else number for number in numbers)

    return ReceptiveField(plain(wider), plain(apart))


def _joined(read: list[tuple[ReceptiveField, TensorSpec]]) -> ReceptiveField | None:
    """The widest of several fields; the stride is that of the largest tensors, which the others are stretched to."""
    windowed = [(field, spec) for field, spec in read if field.size]
    if not windowed:
        return ReceptiveField()
    axes = len(windowed[0][0].size)
    if any(len(field.size) != axes for field, _ in windowed):
        return None
    most = max((spec.numel for _, spec in windowed if spec.known), default=0)
    finest = [field for field, spec in windowed if spec.known and spec.numel == most] or [windowed[0][0]]
    return ReceptiveField(
        tuple(max(field.size[axis] for field, _ in windowed) for axis in range(axes)),
        tuple(max(field.stride[axis] for field in finest) for axis in range(axes)),
    )


def _numbers(attr: Attr) -> tuple[int, ...]:
    """An attribute that is a whole number above zero for each axis; empty for anything else."""
    found = tuple(item for item in attr if isinstance(item, int) and item > 0) if isinstance(attr, tuple) else ()
    return found if isinstance(attr, tuple) and len(found) == len(attr) else ()
