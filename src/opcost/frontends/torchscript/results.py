"""Which operator a call of the code means, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import Call, Described, NotKnown, Tensor, type_name
from opcost.frontends.aten.outputs import outputs_of
from opcost.frontends.aten.outputs.table import axis_of, like, made
from opcost.frontends.aten.promotion import promoted
from opcost.frontends.aten.resolve import is_view
from opcost.frontends.aten.schema import Argument, Schema, overloads
from opcost.frontends.aten.views import VIEWS, views_of
from opcost.frontends.programs import ProgramOperator

SCALAR_TYPES = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32 bfloat16"
).split()
"""Element types by the numbers that the code has for them."""


def matched(name: str, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Schema, dict[str, Any]] | None:
    """The overload of an operator that takes these arguments, and the arguments by its names; None: there is none."""
    for schema in sorted(overloads(name), key=lambda each: any(argument.out for argument in each.arguments)):
        bound = _bound(schema, args, named)
        if bound is not None:
            return schema, bound
    return None


def _bound(schema: Schema, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any] | None:
    if len(args) > len(schema.arguments) or any(name not in {a.name for a in schema.arguments} for name in named):
        return None
    found: dict[str, Any] = {}
    for place, argument in enumerate(schema.arguments):
        if place < len(args):
            if argument.keyword:
                return None
            value = args[place]
        elif argument.name in named:
            value = named[argument.name]
        elif argument.out or (argument.default is None and "?" not in argument.type):
            return None
        else:
            value = argument.default
            found[argument.name] = value
            continue
        if not _fits(argument, value):
            return None
        found[argument.name] = _typed(argument, value)
    return found


def _fits(argument: Argument, value: Any) -> bool:
    kind = argument.type
    if value is None:
        return kind.endswith("?")
    if "[" in kind:
        if isinstance(value, (list, tuple)):
            tensors = "Tensor" in kind
            return all(isinstance(each, Tensor) == tensors or each is None for each in value)
        # One number may stand for all axes.
        return isinstance(value, (int, float)) and "Tensor" not in kind and kind[kind.index("[") + 1].isdigit()
    if "Tensor" in kind:
        return isinstance(value, Tensor)
    if isinstance(value, (Tensor, list, tuple, dict)):
        return False
    if kind.startswith(("str", "Device")):
        return isinstance(value, (str, int))
    if kind.startswith("int"):
        return isinstance(value, int) and not isinstance(value, bool)
    if kind.startswith("bool"):
        return isinstance(value, bool)
    return isinstance(value, (int, float, bool, complex)) or not kind.startswith(("Scalar", "float", "SymInt"))


def _typed(argument: Argument, value: Any) -> Any:
    if argument.type.startswith("ScalarType") and isinstance(value, int) and 0 <= value < len(SCALAR_TYPES):
        return SCALAR_TYPES[value]
    return list(value) if isinstance(value, tuple) else value


def results_of(operator: ProgramOperator, call: Call) -> tuple[Tensor, ...]:
    """The tensors that come out of a call; `NotTold` where the arguments do not tell it."""
    own = _OWN.get(call.base)
    if own is not None:
        return tuple(own(call))
    schema = operator.schema
    if schema is None:
        raise NotKnown(f"results of {operator.name}")
    if call.base in VIEWS and (is_view(schema) or not schema.writes):
        return views_of(call)
    found = outputs_of(schema, operator.plan, call)
    if not found and schema.returns_tensor:
        raise NotKnown(f"views of {operator.name}")
    if schema.writes:  # what was written to is the same tensor, and another value
        return tuple(Described(tuple(x.shape), x.stride(), type_name(x), x.device) for x in found)
    return found


def _cat(call: Call) -> Sequence[Tensor]:
    parts = [x for x in call["tensors"] if tuple(x.shape) != (0,)] or list(call["tensors"])
    axis = axis_of(parts[0], call["dim"])
    extent = sum(x.shape[axis] for x in parts)
    shape = [extent if at == axis else n for at, n in enumerate(parts[0].shape)]
    return (made(shape, promoted(*parts)),)


def _stack(call: Call) -> Sequence[Tensor]:
    parts = call["tensors"]
    axis = call["dim"] % (parts[0].dim() + 1)
    shape = parts[0].shape
    return (made((*shape[:axis], len(parts), *shape[axis:]), promoted(*parts)),)


def _index(call: Call) -> Sequence[Tensor]:
    """Indices broadcast; they stand where the first of them stood, or in front where others lie between."""
    x, indices = call["self"], call["indices"]
    if any(index is not None and type_name(index) in ("bool", "uint8") for index in indices):
        raise NotKnown("how much a mask picks")
    places = [at for at, index in enumerate(indices) if index is not None]
    picked = broadcast([tuple(indices[at].shape) for at in places])
    rest = [n for at, n in enumerate(x.shape) if at not in places]
    together = places == list(range(places[0], places[0] + len(places)))
    first = places[0] if together else 0
    return (made((*rest[:first], *picked, *rest[first:]), type_name(x)),)


def _pad(call: Call) -> Sequence[Tensor]:
    x, pads = call["self"], call["pad"]
    shape = list(x.shape)
    for place in range(len(pads) // 2):
        shape[-1 - place] += pads[2 * place] + pads[2 * place + 1]
    return (made(shape, type_name(x)),)


def _meshgrid(call: Call) -> Sequence[Tensor]:
    shape = [max(x.numel(), 1) for x in call["tensors"]]
    if call.get("indexing") == "xy" and len(shape) > 1:
        shape[0], shape[1] = shape[1], shape[0]
    return [made(shape, type_name(x)) for x in call["tensors"]]


def _repeat_interleave(call: Call) -> Sequence[Tensor]:
    x, times = call["self"], call["repeats"]
    if isinstance(times, Tensor):
        raise NotKnown("how often elements are repeated")
    dim = call.get("dim")
    if dim is None:
        return (made((x.numel() * times,), type_name(x)),)
    axis = axis_of(x, dim)
    return (made([n * times if at == axis else n for at, n in enumerate(x.shape)], type_name(x)),)


def _diff(call: Call) -> Sequence[Tensor]:
    x = call["self"]
    axis = axis_of(x, call["dim"])
    added = sum(each.shape[axis] for each in (call.get("prepend"), call.get("append")) if each is not None)
    extent = max(x.shape[axis] + added - call["n"], 0)
    return (made([extent if at == axis else n for at, n in enumerate(x.shape)], type_name(x)),)


def _einsum(call: Call) -> Sequence[Tensor]:
    from opcost.core.shapes import einsum, explicit

    operands = call["tensors"]
    equation = explicit(call["equation"], [x.dim() for x in operands])
    shape = einsum(equation, [tuple(x.shape) for x in operands])
    return (made([n or 0 for n in shape], promoted(*operands)),)


_OWN: dict[str, Callable[[Call], Sequence[Tensor]]] = {
    "cat": _cat, "concat": _cat, "stack": _stack, "index": _index, "pad": _pad, "meshgrid": _meshgrid, "einsum": _einsum,
    "diff": _diff,    "repeat_interleave": _repeat_interleave, "triu": lambda call: (like(call["self"]),),

       "tril": lambda call: (like(call["self"]),),
    "flip": lambda call: (like(call["self"]),), "one_hot": lambda call: (made((*call["self"].shape, call["num_classes"]),
    "int64"),),
}  # fmt: skip
"""Results that traces do not need, because a profiler shows what these consist of."""
