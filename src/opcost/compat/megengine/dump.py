"""A dump counted as MegEngine's `network_visualize` counts it: by the operators that the file lists, constants included.

The rules, and what is odd about them, are MegEngine's own; docs/compat.md names them. A batch of one is forced on every
input, constants are the parameters, every operator's first output is an activation, and FLOPs are multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from opcost.compat.megengine.numbers import mean_and_std
from opcost.compat.megengine.records import Activation, Operation, Param, Records, Shape, dtype_name, elements
from opcost.core.graph import TensorSpec
from opcost.errors import InputError
from opcost.frontends.flatbuffer import Pages, pages_of
from opcost.frontends.megengine.infer import Inferred, infer
from opcost.frontends.megengine.inputs import input_names
from opcost.frontends.megengine.model import HOLDERS, Model, Operator, Tensor, read_model

_PARAMETER = "ImmutableTensor"
_CONVOLUTIONS = ("Convolution", "ConvBias")
_CLASS_NAMES = {
    "BatchedMatrixMul": "BatchedMatmul",
    "ConvolutionBackwardData": "ConvTranspose",
    "NMSKeepMGB": "NMSKeep",
    "Softmax": "SoftmaxForward",
}
"""Where `network_visualize` calls an operator by another name than the file."""


class _Field(NamedTuple):
    """Receptive field and stride, height and width."""

    size: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)


Given: TypeAlias = "Mapping[str, tuple[int, ...]] | tuple[int, ...] | None"
"""Shapes of input data: by name, or the one of a model's only input."""


def count_dump(path: str | Path, given: Given = None, *, with_values: bool = True) -> Records:
    """The records of a dump, counted with the shapes of input data; `with_values` adds mean and deviation."""
    model = read_model(path)
    found = _infer(model, given)
    records = Records(ops=len(model.operators))
    fields: dict[int, _Field] = {}
    with pages_of(path) as data:
        for op in _in_order_of_use(model):
            name = op.name or model.variables[op.outputs[0]].name or f"{op.type}[{op.index}]"
            class_name = _CLASS_NAMES.get(op.type, op.type)
            shown = op.outputs[-1 if op.type == "BatchNorm" else 0]
            spec = TensorSpec(found.shapes[shown], found.dtypes[shown])
            records.activations.append(Activation(name, class_name, spec))
            field = _field(op, found, [fields[i] for i in op.inputs])
            fields |= dict.fromkeys(op.outputs, field)
            if op.type in _FLOPS:
                records.operations.append(_operation(op, name, class_name, found, field))
            if op.type == _PARAMETER:
                values = _values(op.tensors[0], data) if with_values else None
                records.params.append(Param(name, spec, *(values or ())))
    return records


def _in_order_of_use(model: Model) -> Iterator[Operator]:
    """The operators as MegEngine lists them: a tensor of the file just before the first operator that reads it."""
    holders = {v: op for op in model.operators if op.type in HOLDERS for v in op.outputs}
    listed: set[int] = set()
    for op in model.operators:
        if op.type in HOLDERS or not op.outputs:
            continue
        for held in (holders[v] for v in op.inputs if v in holders):
            if held.index not in listed:
                listed.add(held.index)
                yield held
        yield op
    yield from (op for op in model.operators if op.type in HOLDERS and op.index not in listed)


def values_of(path: str | Path) -> dict[int, tuple[float, float] | None]:
    """Mean and deviation of the tensors of a dump, by variable."""
    with pages_of(path) as data:
        return {
            variable: _values(tensor, data)
            for op in read_model(path).operators
            if op.type in HOLDERS
            for variable, tensor in zip(op.outputs, op.tensors, strict=True)
        }


def _infer(model: Model, given: Given) -> Inferred:
    names = input_names(model)
    if isinstance(given, tuple) and len(names) == 1:
        return infer(model, dict.fromkeys(names.values(), given))
    if given is not None:
        named = list(given) if isinstance(given, Mapping) else []
        if not isinstance(given, Mapping) or sorted(named) != sorted(names):
            told = ", ".join(named) or "one without a name"
            raise InputError(
                f"{model.path} takes {', '.join(names) or 'no input'}, and data was given for {told}",
                hint="give data for every input, by its name",
            )
        return infer(model, {names[name]: shape for name, shape in given.items()})
    stored = {v: tensor.shape for op in model.operators for v, tensor in zip(op.outputs, op.tensors, strict=False)}
    single = {v: (1, *stored[v][1:]) for v in names.values() if stored[v] and stored[v][0] != 1}
    try:
        return infer(model, single)
    except InputError:  # the batch is written into the dump, so that no other is possible
        return infer(model)


def _operation(op: Operator, name: str, class_name: str, found: Inferred, field: _Field) -> Operation:
    ins = [found.shapes[i] for i in op.inputs]
    outs = [found.shapes[i] for i in op.outputs]
    numel = elements(outs[0])
    factor = _FLOPS[op.type](op, ins)
    flops = None if numel is None or factor is None else numel * factor
    if op.type in _CONVOLUTIONS:
        return Operation(name, class_name, tuple(ins), tuple(outs), flops, *field)
    return Operation(name, class_name, tuple(ins), tuple(outs), flops)


def _conv(op: Operator, ins: list[Shape]) -> int | None:
    weight = ins[1] if len(ins) > 1 else None
    if weight is None or len(weight) < 4:
        return None
    channels, kh, kw = weight[2] if len(weight) == 5 else weight[1], weight[-2], weight[-1]
    if channels is None or kh is None or kw is None:
        return None
    return channels * kh * kw + (op.type == "ConvBias")


def _matmul(axis: int) -> Callable[[Operator, list[Shape]], int | None]:
    def depth(op: Operator, ins: list[Shape]) -> int | None:
        first = ins[0] if ins else None
        return first[axis] if first is not None and len(first) == axis + 1 else None

    return depth


_FLOPS: dict[str, Callable[[Operator, list[Shape]], int | None]] = {
    "Convolution": _conv,
    "ConvBias": _conv,
    "Elemwise": lambda op, ins: 1,
    "ElemwiseMultiType": lambda op, ins: 1,
    "MatrixMul": _matmul(1),
    "BatchedMatrixMul": _matmul(2),
}
"""FLOPs for each element of the first output; every other operator is free."""


def _field(op: Operator, found: Inferred, before: list[_Field]) -> _Field:
    """The largest of the inputs' fields, widened by a convolution; pooling widens nothing here."""
    size = tuple(max((field.size[axis] for field in before), default=1) for axis in (0, 1))
    stride = tuple(max((field.stride[axis] for field in before), default=1) for axis in (0, 1))
    if op.type in _CONVOLUTIONS and len(op.inputs) > 1:
        weight = found.shapes[op.inputs[1]] or ()
        kernel = weight[-2:] if len(weight) >= 4 else (1, 1)
        size = tuple(s + ((k or 1) - 1) * step for s, k, step in zip(size, kernel, stride, strict=True))
        steps = (op.get("stride_h", 1), op.get("stride_w", 1))
        stride = tuple(s * (step if isinstance(step, int) else 1) for s, step in zip(stride, steps, strict=True))
    return _Field((size[0], size[1]), (stride[0], stride[1]))


def _values(tensor: Tensor, data: Pages) -> tuple[float, float] | None:
    """Mean and deviation of a stored tensor, a quantized one as the numbers that it stands for."""
    found = mean_and_std(data.piece(tensor.offset, tensor.nbytes), dtype_name(tensor.dtype.name))
    if found is None or tensor.dtype.scale is None:
        return found
    mean, std = found
    return (mean - (tensor.dtype.zero_point or 0)) * tensor.dtype.scale, std * tensor.dtype.scale
