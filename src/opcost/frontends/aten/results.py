"""The tensors that an operator makes, worked out from its arguments: for calls of which only these are known.

The file of each family has a function for every operator that makes something else than its name's default. An operator without
one, or whose results depend on data, has unknown results. Where not even the arguments are known, the name says something still.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from opcost.core.parsing import packaged_table
from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import UNKNOWN_VALUE, AtenCall, AtenTable, Constant, flat
from opcost.frontends.aten.schema import Argument, Plan, Schema, is_view, overloads, plan_of, translate
from opcost.frontends.aten.tensor import (
    AtenTensor,
    Described,
    NotKnown,
    Unplaced,
    floating,
    is_integer,
    promoted,
    real_of,
    row_major,
    type_name,
)

Results: TypeAlias = "AtenTensor | Iterable[AtenTensor]"
OUTPUTS: AtenTable[Results] = AtenTable()  # By the name of an operator of aten, as its handler is registered
WHOLE_OUTPUTS: AtenTable[Results] = AtenTable()
"""Results of operators that only programs name whole: a profiler shows what they consist of."""


def outputs_of(plan: Plan, call: AtenCall) -> tuple[AtenTensor, ...]:
    """What a call returns; of views nothing, because they make nothing. `NotKnown` where the arguments do not say it."""
    if (schema := plan.schema) is None:
        raise NotKnown(f"results of {plan.name}")
    if schema.returns and all(returned.writes for returned in schema.returns):
        written = {argument.alias: argument.name for argument in schema.arguments if argument.writes}
        return tuple(flat(call[written[returned.alias]] for returned in schema.returns))
    if is_view(schema) or not schema.returns_tensor:
        return ()
    if (found := made_by(OUTPUTS, call)) is not None:
        return found
    if isinstance(plan.handler, Constant):
        if plan.handler.kind == "view":
            return ()
        if plan.handler.kind == "elementwise":
            return (of_elements(call, str(plan.handler.attrs["fn"])),)
    raise NotKnown(f"results of {plan.name}")


def made_by(table: Mapping[str, Callable[[AtenCall], Results]], call: AtenCall) -> tuple[AtenTensor, ...] | None:
    """The results of a call; None where its operator is not in the table."""
    function = table.get(call.base)
    if function is None:
        return None
    found = function(call)
    return (found,) if isinstance(found, AtenTensor) else tuple(found)


def made(shape: Iterable[Any], dtype: str | AtenTensor) -> Described:
    """A new tensor, row by row, of a type or of that of another tensor."""
    extents = tuple(shape)
    if any(extent < 0 for extent in extents):
        raise ValueError(f"no tensor has the shape {extents}")
    return Described(extents, row_major(extents), dtype if isinstance(dtype, str) else type_name(dtype))


def like(x: AtenTensor, dtype: str = "") -> Described:
    """A new tensor of the shape of another, and of its type if none is given."""
    return made(x.shape, dtype or x)


RESERVED = ((0,), "uint8")
"""The shape and type of what a library reserves for its gradient: only it knows how much, and it is not counted."""


def with_last(x: AtenTensor, *extents: int) -> Described:
    """A new tensor of the shape of another, but for the last axis."""
    return made((*x.shape[:-1], *extents), x)


def axis_of(x: AtenTensor, dim: int) -> int:
    """An axis counted from the front; a tensor without axes takes 0 and -1 all the same."""
    rank = max(x.dim(), 1)
    if not -rank <= dim < rank:
        raise ValueError(f"{dim} is not an axis of {x.dim()}")
    return dim % rank


def replaced(x: AtenTensor, dim: int, extent: int) -> tuple[int, ...]:
    """The shape with another extent along one axis."""
    axis = axis_of(x, dim)
    return tuple(extent if i == axis else n for i, n in enumerate(x.shape))


def only(values: Sequence[Any], mask: Sequence[Any]) -> tuple[Any, ...]:
    """The values that a mask requests."""
    return tuple(value for value, wanted in zip(values, mask, strict=True) if wanted)


# -- results like arguments: `results.json` names these for each list of operators, as `self self:int64` or `self:dtype@size`

_WORD = re.compile(r"([^:@]+):?([^@]*)@?(.*)")


def _like(words: str) -> Callable[[AtenCall], Results]:
    """Results like these arguments, or of the type behind the colon, or of the shape in the argument behind the `@`.

    The type may be in an argument too, and is that of the tensor where it is None there.
    """
    wanted = [_WORD.findall(word)[0] for word in words.split()]

    def results(call: AtenCall) -> Iterator[AtenTensor]:
        for name, dtype, shape in wanted:
            x = _first(call) if name == "(first)" else call[name]
            yield made(call[shape] if shape else x.shape, (call[dtype] if dtype in call.args else dtype) or x)

    return results


def _first(call: AtenCall) -> AtenTensor:
    """The first argument, which is a tensor."""
    value = call[next(iter(call.args))]
    if not isinstance(value, AtenTensor):
        raise NotKnown("a tensor")
    return value


for _words, _names in packaged_table(__package__, "results.json").items():
    OUTPUTS.on(*_names)(_like(_words))


# -- results of arithmetic element by element: the common shape, and a type that depends on the function

_TRUTHS = frozenset({"compare", "logical", "nan_check"})
_REAL = frozenset({"abs", "angle"})  # Of complex numbers they make real ones
_FLOATING = frozenset(
    """
    div sqrt rsqrt exp exp2 expm1 log log2 log10 log1p reciprocal sin cos tan asin acos atan atan2 sinh cosh asinh acosh
    atanh sinc deg2rad rad2deg angle erf erfc erfcx erfinv lgamma digamma polygamma gammainc gammaincc zeta ndtri log_ndtr
    bessel polynomial xlogy entropy logit sigmoid tanh copysign ldexp hypot
    """.split()
)
"""Of integers they make real numbers."""
_NUMBERS = ("self", "other", "exponent", "x", "n", "end", "min", "max", "value")
"""The numbers that take part in the arithmetic; other plain arguments only say how it is done."""


def of_elements(call: AtenCall, fn: str = "") -> Described:
    """One result, as large as the operands together."""
    operands = [value for value in call.args.values() if isinstance(value, AtenTensor)]
    numbers = [call.args[name] for name in _NUMBERS if name in call.args]
    dtype = promoted(*operands, *(number for number in numbers if isinstance(number, (int, float, complex))))
    if fn in _TRUTHS:
        dtype = "bool"
    elif fn in _FLOATING:
        dtype = floating(dtype)
    elif is_integer(dtype) and any(number is UNKNOWN_VALUE for number in numbers):
        raise NotKnown("whether the number that an integer meets is a whole one")
    return together(*operands, dtype=real_of(dtype) if fn in _REAL else dtype)


def together(*operands: Any, dtype: str | AtenTensor) -> Described:
    """A result of the common shape of the tensors among these."""
    return made(broadcast([operand.shape for operand in operands if isinstance(operand, AtenTensor)]), dtype)


# -- what a name says before any call is seen, found out by translating calls that are generated from the schemas

_RANKS = (4, 3, 2, 1, 5, 0)
_EXTENT = 2
FLAWS = (NotKnown, ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError)
"""What a translation may fail with where the call is not one that PyTorch would take, or not all of it is known."""


class NameFacts(NamedTuple):
    """What a name says."""

    kind: str  # Empty where it depends on the call, or where the operator is unknown
    asks_values: bool  # Whether the values of plain arguments decide what a call means or makes
    asks_strides: bool


@lru_cache(maxsize=4096)
def known(name: str) -> NameFacts:
    """What the name of one of PyTorch's own operators tells."""
    schemas = [(schema, plan_of(schema)) for schema in overloads(name)]
    kinds = {kind for schema, plan in schemas for kind in _kinds(schema, plan)}
    kind = kinds.pop() if len(kinds) == 1 else ""
    asks_values = asks_strides = False
    for schema, plan in schemas:
        plain = {argument.name for argument in schema.arguments if not argument.is_tensor}
        for rank in _RANKS:
            unplaced = Unplaced((_EXTENT,) * rank, "float32")
            asks_values = asks_values or bool(plain & _missing(schema, plan, _tensor(rank), plain))
            asks_strides = asks_strides or "strides" in _missing(schema, plan, unplaced, set())
    return NameFacts("" if kind == "unknown" else kind, asks_values, asks_strides)


def _kinds(schema: Schema, plan: Plan) -> Iterator[str]:
    """The kinds of calls whose results lie as the arguments do, and otherwise."""
    for turned in (False, True):
        for rank in _RANKS:
            x, y = _tensor(rank, turned=turned), _tensor(rank)
            y = Described((x.numel(),), (1,), "float64") if turned else y
            arguments = {argument.name: _argument(argument, x) for argument in schema.arguments}
            with suppress(*FLAWS):
                yield translate(plan, plan.call(arguments, (y,) * len(schema.returns))).kind
                break


def _missing(schema: Schema, plan: Plan, x: AtenTensor, unknown: set[str]) -> set[str]:
    """What a generated call reads although it is unknown."""
    arguments = {each.name: UNKNOWN_VALUE if each.name in unknown else _argument(each, x) for each in schema.arguments}
    call = plan.call(arguments)
    found = set()
    for generated in (False, True):
        try:
            call.outs = (x,) * len(schema.returns) if generated else outputs_of(plan, call)
            translate(plan, call)
        except NotKnown as exc:
            found.add(str(exc))
        except FLAWS:
            continue
    return found


def _tensor(rank: int, *, turned: bool = False) -> Described:
    shape = (_EXTENT,) * rank
    strides = row_major(shape)
    return Described(shape, strides[::-1] if turned else strides, "float32")


def _argument(argument: Argument, x: AtenTensor) -> Any:
    """Something of the argument's type."""
    if argument.is_tensor:
        return [x, x] if "[" in argument.type else x
    if "[" in argument.type:
        return [1] * max(x.dim(), 1)
    return argument.default if argument.default is not None else 1
