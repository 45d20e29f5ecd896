"""What an operator of a trace is, from the arguments that the profiler writes, as `frontends.aten` translates a call in a count.

The profiler writes shapes, types and, of numbers and short lists of numbers, the values. Texts, lists of tensors that may be
absent and long lists are not written; nor are the element types in a list of tensors. What is not written is unknown, and is
not guessed. Three steps: `_entries` reads the arguments, `_named` fits them to a schema, `_translated` uses the table.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import compress
from typing import Any, NamedTuple, TypeAlias

from opcost.core.graph import NO_ATTRS, Attrs, TensorSpec
from opcost.core.kinds import CONTRACTIONS
from opcost.core.names import is_copy
from opcost.core.parsing import parse
from opcost.frontends.aten.call import UNKNOWN_VALUE, flat
from opcost.frontends.aten.results import FLAWS, known, like, outputs_of
from opcost.frontends.aten.schema import Argument, Schema, is_implicit, is_of_library, overloads, plan_of, translate
from opcost.frontends.aten.tensor import AtenTensor, Described, NotKnown, Unplaced, type_name
from opcost.traces.file import is_shape

DTYPES: dict[str, str] = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "bool": "bool",
    "int": "int32", "long int": "int64", "long": "int64", "long long": "int64", "short": "int16", "short int": "int16",
    "signed char": "int8", "char": "int8", "unsigned char": "uint8", "unsigned short": "uint16", "unsigned int": "uint32",
    "unsigned long": "uint64", "__int64": "int64",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2", "c10::Float8_e4m3fnuz": "float8_e4m3fnuz",
    "c10::Float8_e5m2fnuz": "float8_e5m2fnuz", "c10::Float8_e8m0fnu": "float8_e8m0fnu",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::complex<c10::Half>": "complex32",
    "c10::qint8": "qint8", "c10::quint8": "quint8", "c10::qint32": "qint32",
}  # fmt: skip
"""The C++ names of element types, as the profiler writes them."""

SCALAR_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 8: "complex32",
    9: "complex64", 10: "complex128", 11: "bool", 12: "qint8", 13: "quint8", 14: "qint32", 15: "bfloat16",
    23: "float8_e5m2", 24: "float8_e4m3fn", 25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz", 27: "uint16", 28: "uint32",
    29: "uint64", 44: "float8_e8m0fnu",
}  # fmt: skip
"""Element types by the number under which PyTorch passes them."""

_UNWRITTEN = frozenset({"str", "Device", "Generator", "Stream", "Storage"})
_MODES = {"rounding_mode": "floor"}
"""Texts that are not written and still taken for known: all that round cost the same, and a caller who writes `rounding_mode`
needs one of them, though it may be None."""
_TAKES_NUMBERS = frozenset(
    f"aten::{name}" for name in "add sub subtract mul multiply div divide true_divide floor_divide".split()
)
"""Operators to which a program may give a number in the place of the second tensor."""
_NUMBERS = {"int64": 0, "float64": 0.0, "complex128": 0j}
"""As what such a number reaches the profiler: a tensor without axes of the widest type of its category."""
_ONE_TYPE = frozenset(
    f"aten::{name}"
    for name in "lstm gru rnn_tanh rnn_relu lstm_cell _cudnn_rnn _cudnn_rnn_backward miopen_rnn miopen_rnn_backward".split()
)
"""Operators whose tensors are all of one type, those in lists too."""


class TracedOperator(NamedTuple):
    """An operator in our words; without results, only its kind and its tensors are known, or the latter alone."""

    kind: str
    ins: tuple[TensorSpec, ...]
    outs: tuple[TensorSpec, ...] = ()
    attrs: Attrs = NO_ATTRS
    is_whole: bool = False
    """It has a cost, and a count shows it whole, whatever it calls on the way: PyTorch does not decompose it."""


def traced_operator(
    name: str, dims: bytes, types: bytes, concrete: bytes, strides: bytes, hint: Hint | None = None
) -> TracedOperator:
    """What an operator did, as far as the trace has it; the arguments are given as the trace spells them."""
    entries = _entries(dims, types, concrete, strides)
    if hint is not None and hint.dtype:
        entries = [entry._replace(tensors=tuple(_of_type(x, hint.dtype) for x in entry.tensors)) for entry in entries]
    unknown = TracedOperator(known(name).kind, tuple(_spec(tensor) for entry in entries for tensor in entry.tensors))
    found = []
    # The overloads that take such arguments; where none does, those that took them before they got more
    schemas = overloads(name) if entries else ()
    if schemas and is_of_library(name):
        entries = entries[: len(schemas[0].arguments)]
    for schema, arguments, places in [*_fitting(schemas, entries)] or [*_older(schemas, entries)]:
        if hint is not None and hint.approximate is not None:
            arguments["approximate"] = hint.approximate
        try:
            found.append(_translated(schema, arguments, places))
        except FLAWS:  # not enough is written, or it is an operator of another version
            return unknown
    if not found or any(reading[:-1] != found[0][:-1] for reading in found):
        return unknown
    return found[0]._replace(is_whole=any(reading.is_whole for reading in found))


_Reading: TypeAlias = tuple[Schema, dict[str, Any], tuple[AtenTensor, ...]]
"""An overload, the arguments by name, and the tensors that results are written into, where they are given."""


def _fitting(schemas: Iterable[Schema], entries: list[_TracedArgument]) -> Iterator[_Reading]:
    """An `out=` overload takes what the one that returns its results takes, and then a tensor for each of them."""
    for schema in schemas:
        taken = len(schema.arguments)
        places = entries[taken:]
        fits = len(entries) == taken or (
            len(places) == len(schema.returns) and not schema.writes and all(each.holds == TENSOR for each in places)
        )
        arguments = _named(schema, entries[:taken]) if fits else None
        if arguments is not None:
            yield schema, arguments, tuple(tensor for each in places for tensor in each.tensors)


def _older(schemas: Iterable[Schema], entries: list[_TracedArgument]) -> Iterator[_Reading]:
    """A version of PyTorch that wrote the trace knew fewer arguments: those added later, at the end, have their defaults."""
    for schema in schemas:
        added = schema.arguments[len(entries) :]
        if added and all(each.default is not None or "?" in each.type for each in added):
            before = schema._replace(arguments=schema.arguments[: len(entries)])
            if (arguments := _named(before, entries)) is not None:
                yield schema, arguments | {each.name: each.default for each in added}, ()


def _translated(schema: Schema, arguments: dict[str, Any], places: tuple[AtenTensor, ...]) -> TracedOperator:
    plan = plan_of(schema)
    call = plan.call(arguments)
    call.outs = outputs_of(plan, call)
    if places:  # these may get their shape only while the operator runs, but have their type before
        call.outs = tuple(like(y, type_name(place)) for y, place in zip(call.outs, places, strict=True))
    found = translate(plan, call)
    if found.kind == "unknown":
        raise NotKnown("what it does")
    if found.ins is None and any(arguments[each.name] is UNKNOWN_VALUE for each in schema.arguments if each.is_tensor):
        raise NotKnown("all that is read")
    ins = flat(arguments.values()) if found.ins is None else found.ins
    outs = call.outs if found.outs is None else found.outs
    is_whole = (bool(outs) or found.kind == "view") and not is_implicit(schema)
    return TracedOperator(found.kind, tuple(map(_spec, ins)), tuple(map(_spec, outs)), found.attrs, is_whole)


def _of_type(tensor: AtenTensor, dtype: str) -> AtenTensor:
    """The same, where its type is unknown."""
    if type_name(tensor):
        return tensor
    shape = tuple(tensor.shape)
    return Unplaced(shape, dtype) if isinstance(tensor, Unplaced) else Described(shape, tensor.stride(), dtype)


def _spec(tensor: AtenTensor) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), type_name(tensor))


# -- the arguments as the trace writes them

TENSOR, TENSORS, NUMBER, NUMBERS, NOTHING, UNSURE = range(6)
"""What is in the place of an argument; NOTHING is None, or what the profiler does not write. Where it writes no values at all,
it is not sure either (UNSURE) that there was no list."""
_WRITTEN = {"TensorList": TENSORS, "Scalar": NUMBER, "ScalarList": NUMBERS, "": NOTHING}


class _TracedArgument(NamedTuple):
    """What the trace has about one argument."""

    holds: int
    tensors: tuple[AtenTensor, ...] = ()
    text: str = ""


def _entries(dims: bytes, types: bytes, concrete: bytes, strides: bytes) -> list[_TracedArgument]:
    """The arguments in order; nothing where the trace has no shapes, or they are damaged."""
    try:
        columns = [parse(part.decode("utf-8")) if part else [] for part in (dims, types, concrete, strides)]
    except ValueError:
        return []
    if not all(isinstance(column, list) for column in columns):
        return []
    shapes, *others = columns
    found = []
    for place, shape in enumerate(shapes):
        entry = _entry(shape, *(column[place] if place < len(column) else "" for column in others))
        found.append(_TracedArgument(UNSURE) if entry.holds == NOTHING and not columns[2] else entry)
    return found


def _entry(shape: Any, name: Any, value: Any, steps: Any) -> _TracedArgument:
    if not isinstance(shape, list):
        return _TracedArgument(NOTHING)
    word = name if isinstance(name, str) else str(name)
    if shape and isinstance(shape[0], list):
        listed = steps if isinstance(steps, list) and len(steps) == len(shape) else [None] * len(shape)
        found = (_tensor(each, "", by) for each, by in zip(shape, listed, strict=True))
        return _TracedArgument(TENSORS, tuple(each for each in found if each is not None))
    if word in DTYPES or (shape and word not in _WRITTEN):
        tensor = _tensor(shape, DTYPES.get(word, ""), steps)
        return _TracedArgument(NOTHING) if tensor is None else _TracedArgument(TENSOR, (tensor,))
    return _TracedArgument(_WRITTEN.get(word, NUMBER), text=value if isinstance(value, str) else "")


def _tensor(shape: Any, dtype: str, strides: Any) -> AtenTensor | None:
    if not is_shape(shape) or min(shape, default=0) < 0:
        return None
    extents = tuple(shape)
    placed = isinstance(strides, list) and len(strides) == len(extents) and all(type(step) is int for step in strides)
    return Described(extents, tuple(strides), dtype) if placed else Unplaced(extents, dtype)


# -- the arguments as a schema names them

_TYPE = re.compile(r"([\w.]+)(?:\([^()]*\))?(\?)?(\[\d*\])?(\?)?$")
_INTEGER = re.compile(r"-?\d{1,19}$")
_TRUTHS = ("True", "False")


class _Wanted(NamedTuple):
    """What a schema has in one place."""

    base: str
    several: bool
    optional: bool
    has_gaps: bool  # it is a list of tensors that may be absent


@cache
def _wanted(type_text: str) -> _Wanted:
    """A type such as `SymInt[2]?` or `Tensor(a!)[]`, taken apart."""
    found = _TYPE.match(type_text)
    if found is None:
        raise NotKnown(type_text)
    base, first, several, last = found.groups()
    return _Wanted(base, bool(several), bool(last or (first and not several)), bool(first and several))


def _named(schema: Schema, entries: list[_TracedArgument]) -> dict[str, Any] | None:
    """The arguments by name; None where these are not the arguments of this overload."""
    found: dict[str, Any] = {}
    for argument, entry in zip(schema.arguments, entries, strict=True):
        want = _wanted(argument.type)
        if not _fits(want, entry):
            return None
        found[argument.name] = _value(schema, argument, want, entry)
    if schema.name in _ONE_TYPE:
        # Give the tensors in lists the type of the first argument
        first = next(iter(found.values()))
        if not isinstance(first, AtenTensor):
            raise NotKnown("the type of tensors in lists")
        for value in found.values():
            for tensor in value if isinstance(value, list) else ():
                if isinstance(tensor, AtenTensor):
                    tensor.dtype = first.dtype
    return found


def _fits(want: _Wanted, entry: _TracedArgument) -> bool:
    """Whether what was written may be an argument of this type."""
    if entry.holds in (NOTHING, UNSURE):
        nothing = (
            want.optional or want.has_gaps or want.base in _UNWRITTEN or (want.base == "Tensor" and not want.several)
        )
        return nothing or (want.several and entry.holds == UNSURE)
    if want.base == "Tensor":
        return entry.holds == (TENSORS if want.several else TENSOR) and not want.has_gaps
    if want.base in _UNWRITTEN or entry.holds != (NUMBERS if want.several else NUMBER):
        return False
    if want.several or not entry.text:
        return True
    if entry.text in _TRUTHS:  # a truth is a number only by name
        return want.base in ("bool", "Scalar")
    return want.base != "bool" and (want.base in ("Scalar", "float") or _INTEGER.match(entry.text) is not None)


def _value(schema: Schema, argument: Argument, want: _Wanted, entry: _TracedArgument) -> Any:
    if entry.holds == TENSOR:
        tensor = entry.tensors[0]
        takes_numbers = schema.name.removesuffix("_") in _TAKES_NUMBERS and argument.name == "other"
        return _NUMBERS.get(tensor.dtype, tensor) if takes_numbers and not tensor.dim() else tensor
    if entry.holds == TENSORS:
        return list(entry.tensors)
    if entry.holds in (NOTHING, UNSURE):
        # Whether nothing was given, or it is only something that the profiler does not write
        is_absent = want.base == "Tensor" or (want.optional and want.base != "str")
        if want.several:
            is_absent = want.optional and entry.holds == NOTHING
        return _MODES.get(argument.name, None if is_absent else UNKNOWN_VALUE)
    if not entry.text:
        return UNKNOWN_VALUE
    if entry.holds == NUMBERS:
        return [_number(text) for text in entry.text.strip("[]").split(", ") if text]
    number = _number(entry.text)
    return SCALAR_TYPES.get(number, UNKNOWN_VALUE) if want.base == "ScalarType" else number


def _number(text: str) -> Any:
    if text in _TRUTHS:
        return text == "True"
    try:
        return int(text) if _INTEGER.match(text) else float(text)
    except ValueError:
        return UNKNOWN_VALUE


# -- what the names of kernels have of arguments that the profiler does not write: types in lists, and texts
#
# `cat` copies elements as numbers of their size (`OpaqueType<2u>`), so only that is known: `bits16`. Of `gelu` the two
# approximations are two functions within a function of PyTorch, the first of them with tanh.

_CAT = re.compile(r"CatArrayBatchedCopy\w*<(?:[\w: ()]*OpaqueType<(\d+)u?>|([\w:]+(?: \w+)?)),")
_GELU = re.compile(r"Gelu(Backward)?CUDAKernelImpl\([^{]*\{lambda\(\)#([12])\}")
_KERNELS = {"aten::cat": _CAT, "aten::gelu": _GELU, "aten::gelu_backward": _GELU}


class Hint(NamedTuple):
    """What is not written among the arguments."""

    dtype: str = ""  # of tensors in lists
    approximate: str | None = None


def hint_of(operator: str, kernels: Iterable[str]) -> Hint | None:
    """What the kernels of an operator have; None where that is nothing, or not the same."""
    pattern = _KERNELS.get(operator)
    if pattern is None:
        return None
    found: set[Hint | None] = set()
    for match in [pattern.search(name) for name in kernels if not is_copy(name)]:
        hint = None
        if match is not None and pattern is _GELU:
            hint = Hint(approximate="tanh" if match[2] == "1" else "none")
        elif match is not None:
            dtype = f"bits{8 * int(match[1])}" if match[1] else DTYPES.get(match[2], "")
            hint = Hint(dtype=dtype) if dtype else None
        found.add(hint)
    return found.pop() if len(found) == 1 else None


# -- which of nested operators have a cost, so that nothing is counted twice
#
# An operator that PyTorch decomposes gives way to what it consists of. One that a count shows whole keeps its cost, and what it
# calls on the way has none: the mean squared error around its sum. It gives way only to one inside that is the same work under
# another name: a convolution to that of a library. To a copy of its arguments, an empty result or a view nothing gives way but
# another such.

MOVES = ("copy", "create", "view")  # kinds that prepare the arguments or the results of others
PICKS = ("gather", "scatter")  # Kinds of which PyTorch does one through another with the same work, as it does products

_Word: TypeAlias = tuple[str, str]  # A kind and its function
SAME_WORDS: tuple[tuple[_Word, _Word], ...] = (
    (("elementwise", "relu"), ("elementwise", "max")),
    (("embedding", ""), ("gather", "")),
)
"""What PyTorch does through another operator of the same cost: `relu_` as `clamp_min_`. On a device its kernel is there; a count
sees the outer one, and so does a trace of the host, where both take time."""


class NestedCosts(NamedTuple):
    """Which operators have no cost of their own."""

    wrappers: frozenset[int]  # signatures whose work is done, and counted, by an operator inside
    covered: bytes
    """Of each row, the number in `kinds` of the operator around it that has the cost of all that is inside; 0 without such."""
    kinds: tuple[str, ...] = ("",)


def nested_costs(
    names: Sequence[str],
    operators: Sequence[TracedOperator],
    signatures: array[int],
    parents: array[int],
    joined: Iterable[int],
    *,
    on_device: bool,
) -> NestedCosts:
    """Decide it by which signatures occur in each other, and for the rows of those inside.

    Names and operators are of signatures, the two columns of rows; `joined` rows are the same execution as the row around them.
    """
    signature_of = array("i", signatures)
    signature_of.append(nothing := len(names))  # rows without a parent pick this one
    around = [signature_of[parent] for parent in parents]
    for row in joined:
        signature_of[row] = nothing
    outers: dict[int, set[int]] = {}
    for inner, outer in set(zip(signature_of, around, strict=False)):
        if nothing not in (inner, outer):
            outers.setdefault(inner, set()).add(outer)
    same_words = SAME_WORDS if on_device else ()
    wrappers: set[int] = set()
    doubled: set[int] = set()  # one inside is the same work
    hosts: set[int] = set()  # one inside is only a part of the work
    for inner, operator in enumerate(operators):
        for outer in _reached(outers, inner) if operator.kind else ():
            host = operators[outer]
            is_decomposed = bool(host.outs) and not host.is_whole
            if operator.kind in MOVES:
                if host.kind == operator.kind or (is_decomposed and host.kind not in CONTRACTIONS):
                    wrappers.add(outer)
            elif host.is_whole:
                is_double = names[outer] != names[inner] and _is_same_work(host, operator, same_words)
                (doubled if is_double else hosts).add(outer)
            elif is_decomposed or operator.kind in CONTRACTIONS or host.kind not in CONTRACTIONS:
                wrappers.add(outer)  # where that is not known, a product may need a sum
    # What a product needs beside itself, the addition of a bias, is counted beside it; nothing else is done twice.
    hosts = {host for host in hosts if host not in doubled or operators[host].kind not in CONTRACTIONS}
    given_way = frozenset(wrappers | (doubled - hosts))
    if not hosts:
        return NestedCosts(given_way, bytes(len(parents)))
    kinds = ("", *sorted({operators[host].kind for host in hosts}))
    numbers = [kinds.index(operator.kind) if host in hosts else 0 for host, operator in enumerate(operators)]
    # Of each row, the number of the outermost signature around it that has one: what is in a row comes behind it, up to the
    # first row whose parent comes before it; runtime calls come last, and have no cost anyway.
    numbers.append(0)
    covered = bytearray(len(parents))
    for first in sorted(set(compress(parents, map(numbers.__getitem__, around)))):
        number, row = numbers[signatures[first]], first + 1
        while not covered[first] and row < len(parents) and parents[row] >= first:
            covered[row] = number
            row += 1
    return NestedCosts(given_way, bytes(covered), kinds)


def _is_same_work(outer: TracedOperator, inner: TracedOperator, words: Sequence[tuple[_Word, _Word]]) -> bool:
    """Whether one inside works on the same tensors and makes as much; a bias may be added later, and shapes have more axes."""
    is_alike = outer.kind == inner.kind and (
        outer.kind in CONTRACTIONS or (outer.kind in PICKS and outer.attrs == inner.attrs)
    )
    own = tuple((each.kind, str(each.attrs.get("fn", ""))) for each in (outer, inner))
    if not inner.is_whole or not (is_alike or own in words):
        return False
    outer_ins, outer_outs, inner_ins, inner_outs = (
        Counter(tensor.numel for tensor in tensors) for tensors in (outer.ins, outer.outs, inner.ins, inner.outs)
    )
    return outer_outs == inner_outs and inner_ins <= outer_ins


def _reached(outers: dict[int, set[int]], inner: int) -> set[int]:
    """All signatures around this one, at any distance."""
    found: set[int] = set()
    waiting = list(outers.get(inner, ()))
    while waiting:
        outer = waiting.pop()
        if outer not in found and outer != inner:
            found.add(outer)
            waiting.extend(outers.get(outer, ()))
    return found
