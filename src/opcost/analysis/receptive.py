"""How much of the input one element of a tensor sees: the receptive field and its stride, axis by axis.

Convolutions and pooling widen the field by (kernel - 1) × dilation × the stride so far; a transposed convolution and a
resize bring positions closer together again. What mixes all positions (attention, products of activations, recurrent
layers, Fourier transforms) leaves no field to speak of, and neither does an operator whose geometry nobody knows. All
others hand on the widest field that they read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

from opcost.core.graph import Attr, TensorSpec
from opcost.core.report import Report, Row

Number = int | Fraction


class Field(NamedTuple):
    """Extent and stride in elements of the input, one for each spatial axis; empty before the first window: all ones."""

    size: tuple[Number, ...] = ()
    stride: tuple[Number, ...] = ()


_MIXING = ("attention", "recurrent", "fft", "linalg", "sort", "distance")
_PRODUCTS = ("matmul", "einsum", "bilinear")
_REACH = {"linear": 1, "bilinear": 1, "trilinear": 1, "bicubic": 3}
"""Source elements besides the first that a resized element is made from."""


def receptive_fields(report: Report) -> dict[int, Field]:
    """The fields of the convolutions and poolings of the forward pass, by position in `report.rows`."""
    fields: dict[int, Field | None] = {}
    weights = {value for parameter in report.parameters for value in parameter.values}
    found: dict[int, Field] = {}
    for index, row in enumerate(report.rows):
        op = row.op
        if op.phase != "forward":
            continue
        read = [
            (fields.get(value, Field()), spec)
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


def _after(row: Row, read: list[tuple[Field | None, TensorSpec]]) -> Field | None:
    kind = row.op.kind
    known = [(field, spec) for field, spec in read if field is not None]
    if kind in _MIXING or len(known) != len(read) or (kind in _PRODUCTS and len(read) > 1):
        return None
    if kind == "conv":
        return _convolved(row, known[0][0]) if known else None
    if kind == "pool":
        return _pooled(row, known[0][0]) if known else None
    joined = _joined(known)
    if joined is not None and kind == "reduce":
        # A reduction of the spatial axes is a pooling over all of them
        x, y = row.ins[0], row.outs[0]
        axes = len(joined.size)
        if not axes or not x.known or not y.known or len(x.dims) <= axes:
            return joined
        kept, extents = x.dims[:-axes], x.dims[-axes:]
        if y.dims in (kept, (*kept, *(1,) * axes)) and y.dims != x.dims:
            return _widened(joined, extents, extents)
        return joined
    if joined is not None and kind == "resize":
        return _resized(row, joined)
    return joined


def _convolved(row: Row, before: Field) -> Field | None:
    attrs = row.op.attrs
    kernel = _numbers(attrs.get("kernel")) or _kernel_of_weight(row)
    stride = _numbers(attrs.get("stride"))
    if not kernel or len(stride) != len(kernel):
        return None
    spans = _spans(kernel, attrs.get("dilation"))
    if attrs.get("transposed"):
        reach = [-(-span // step) for span, step in zip(spans, stride, strict=True)]
        return _widened(before, reach, [Fraction(1, step) for step in stride])
    return _widened(before, spans, stride)


def _pooled(row: Row, before: Field) -> Field | None:
    attrs = row.op.attrs
    kernel, stride = _numbers(attrs.get("kernel")), _numbers(attrs.get("stride"))
    if not kernel or len(stride) != len(kernel):
        return None
    return _widened(before, _spans(kernel, attrs.get("dilation")), stride)


def _kernel_of_weight(row: Row) -> tuple[int, ...]:
    if len(row.ins) < 2 or not row.ins[1].known:
        return ()
    return row.ins[1].dims[3 if row.op.attrs.get("grouped") else 2 :]


def _spans(kernel: tuple[int, ...], dilation: Attr) -> list[int]:
    dilations = _numbers(dilation) or (1,) * len(kernel)
    return [(size - 1) * dilate + 1 for size, dilate in zip(kernel, dilations, strict=False)]


def _widened(before: Field, spans: Iterable[int], steps: Iterable[Number]) -> Field | None:
    """The field of windows that span so many elements and lie so many elements apart."""
    spans, steps = list(spans), list(steps)
    sizes = before.size or (1,) * len(spans)
    strides = before.stride or (1,) * len(spans)
    if len(sizes) != len(spans):  # the axes are not those of the windows before
        return None
    return Field(
        tuple(_plain(size + (span - 1) * step) for size, span, step in zip(sizes, spans, strides, strict=True)),
        tuple(_plain(old * new) for old, new in zip(strides, steps, strict=True)),
    )


def _joined(read: list[tuple[Field, TensorSpec]]) -> Field | None:
    """The widest of several fields; the stride is that of the largest tensors, which the others are stretched to."""
    windowed = [(field, spec) for field, spec in read if field.size]
    if not windowed:
        return Field()
    axes = len(windowed[0][0].size)
    if any(len(field.size) != axes for field, _ in windowed):
        return None
    most = max((spec.numel for _, spec in windowed if spec.known), default=0)
    finest = [field for field, spec in windowed if spec.known and spec.numel == most] or [windowed[0][0]]
    return Field(
        tuple(max(field.size[axis] for field, _ in windowed) for axis in range(axes)),
        tuple(max(field.stride[axis] for field in finest) for axis in range(axes)),
    )


def _resized(row: Row, before: Field) -> Field | None:
    x, y = row.ins[0], row.outs[0]
    axes = len(before.size)
    if not axes:
        return before
    if not x.known or not y.known or len(x.dims) != len(y.dims) or 0 in y.dims[-axes:]:
        return None
    reach = _REACH.get(str(row.op.attrs.get("fn")), 0)
    return _widened(
        before, [1 + reach] * axes, [Fraction(n, m) for n, m in zip(x.dims[-axes:], y.dims[-axes:], strict=True)]
    )


def _numbers(attr: Attr) -> tuple[int, ...]:
    """An attribute that is a whole number for each axis; empty for anything else."""
    found = tuple(_whole(attr)) if isinstance(attr, tuple) else ()
    return found if isinstance(attr, tuple) and len(found) == len(attr) else ()


def _whole(items: Iterable[Attr]) -> Iterator[int]:
    for item in items:
        if isinstance(item, int) and item > 0:
            yield item


def _plain(number: Number) -> Number:
    return number.numerator if isinstance(number, Fraction) and number.denominator == 1 else number
