"""Operator schemas, as PyTorch writes them: `aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`.

Those of PyTorch's own operators are stored beside this file, because a file that names an operator leaves out the arguments that
have their default. Only the lines that are needed are parsed. Beside them are the names of those that PyTorch takes apart.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from opcost.frontends.aten.call import HANDLERS, AtenCall, Constant, Handler, Translation, flat
from opcost.frontends.aten.tensor import AtenTensor, is_expanded, layout


class Argument(NamedTuple):
    """One argument, or one result, which has neither name nor default."""

    name: str
    type: str
    default: Any = None
    alias: str = ""  # The letter of the memory that an argument and a result share
    writes: bool = False
    out: bool = False  # It is only written: `out=`
    keyword: bool = False  # It is given by its name alone

    @property
    def is_tensor(self) -> bool:
        return "Tensor" in self.type


class Schema(NamedTuple):
    """What an operator takes and returns."""

    name: str  # Library and operator: `aten::add`
    overload: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(argument.name for argument in self.arguments if argument.writes)

    @property
    def returns_tensor(self) -> bool:
        return any(returned.is_tensor for returned in self.returns)


def parse(text: str) -> Schema:
    """The schema in a line."""
    left, _, returned = text.rpartition(") -> ")
    head, _, inside = left.partition("(")
    name, _, overload = head.partition(".")
    if returned.startswith("("):
        returned = returned[1:-1]
    arguments, keywords = [], False
    for part in _split(inside):
        if part == "*":
            keywords = True
        elif part and part != "...":
            argument = _argument(part)
            arguments.append(argument._replace(out=keywords and argument.writes, keyword=keywords))
    returns = tuple(_argument(f"{part} ") for part in _split(returned) if part)
    return Schema(name, overload, tuple(arguments), returns)


@lru_cache(maxsize=4096)
def shipped(name: str, overload: str) -> Schema | None:
    """The schema of one of PyTorch's own operators."""
    start = f"{name}.{overload}(" if overload else f"{name}("
    return next((parse(line) for line in _lines("schemas.txt").get(name, ()) if line.startswith(start)), None)


@lru_cache(maxsize=4096)
def overloads(name: str) -> tuple[Schema, ...]:
    """The schemas of all overloads of one of PyTorch's own operators, or of one of a library beside it."""
    return tuple(map(parse, _lines("schemas.txt").get(name, []) or _lines("library_schemas.txt").get(name, [])))


def is_of_library(name: str) -> bool:
    """Whether only the first of its arguments are known, which all versions of its library have."""
    return name not in _lines("schemas.txt") and name in _lines("library_schemas.txt")


def is_implicit(schema: Schema) -> bool:
    """Whether PyTorch takes the operator apart before any device sees it, so that a count sees only what it consists of."""
    full = f"{schema.name}.{schema.overload}" if schema.overload else schema.name
    return full in _lines("implicit.txt").get(schema.name, ())


@cache
def _lines(file: str) -> dict[str, list[str]]:
    """The lines of a file beside this one, by operator."""
    found: dict[str, list[str]] = {}
    for line in (files("opcost.frontends.aten") / file).read_text(encoding="ascii").split("\n"):
        found.setdefault(line.partition("(")[0].partition(".")[0], []).append(line)
    return found


_MARK = re.compile(r"""[][(),]|"(?:\\.|[^"\\])*\"""")
_EXTENT = re.compile(r"\[(\d+)\]\??$")
_ALIAS = re.compile(r"\(([a-z])\b(!?)[^()]*\)")


def _argument(text: str) -> Argument:
    """One argument; words among defaults such as `contiguous_format` stay words.

    One number may mean a list of them: `int[2] x=0`.
    """
    declared, _, written = text.partition("=")
    kind, _, name = declared.rpartition(" ")
    alias = _ALIAS.search(kind) if "Tensor" in kind else None
    try:
        default = ast.literal_eval(written) if written else None
    except (ValueError, SyntaxError):
        default = written
    extent = _EXTENT.search(kind)
    if extent and isinstance(default, (int, float)):
        default = [default] * int(extent[1])
    return Argument(name, kind, default, alias[1] if alias else "", writes=bool(alias and alias[2]))


def _split(text: str) -> Iterator[str]:
    """The parts between commas outside of brackets and quotes."""
    depth, begin = 0, 0
    for found in _MARK.finditer(text):
        if found[0] == "," and not depth:
            yield text[begin : found.start()].strip()
            begin = found.end()
        depth += (found[0] in "([") - (found[0] in ")]")
    yield text[begin:].strip()


# -- from an operator to its handler, by its name and schema


class Plan(NamedTuple):
    """How calls of one overload are translated."""

    operator: str  # Library and operator, as it is written: `aten::add_`
    name: str  # As its handler is registered: `aten::add`
    overload: str
    handler: Handler
    schema: Schema | None
    defaults: dict[str, Any]
    """The arguments in order, with their defaults; empty for operators without a schema."""
    reads: tuple[str, ...] | None  # The arguments that are read, where some are only written (`out=`)
    writes: tuple[str, ...] | None  # The arguments that are written, where the operator returns no tensor
    in_place: bool = False

    def named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, with defaults for those that are not given."""
        if self.schema is None:
            return {str(place): value for place, value in enumerate(args)}
        return {**self.defaults, **dict(zip(self.defaults, args, strict=False)), **kwargs}

    def call(self, arguments: dict[str, Any], outs: tuple[AtenTensor, ...] = ()) -> AtenCall:
        """A call with all arguments by name."""
        return AtenCall(self.name, self.overload, arguments, outs, in_place=self.in_place)


UNKNOWN = Constant("unknown", (), {})
_BY_LAYOUT = frozenset({"copy", "elementwise", "norm"})
"""Kinds whose kernels read in vectors where all tensors lie alike, and element by element, or after a copy, elsewhere."""
_OWN_LIBRARIES = frozenset({"aten", "mkldnn", "prims", "profiler", "quantized"})
"""PyTorch's libraries whose questions are known to be only that; anybody else's operator might do anything."""


@lru_cache(maxsize=4096)  # a file may name any number of operators
def plan_named(name: str, overload: str = "") -> Plan:
    """The plan of an operator by its name, as `aten::add`, and overload; other libraries' have no schema here."""
    schema = shipped(name, overload)
    return plan_without_schema(name, overload) if schema is None else plan_of(schema)


def plan_of(schema: Schema) -> Plan:
    """The plan of an operator with a schema."""
    name, handler = find_handler(schema)
    written = schema.writes
    outs = {argument.name for argument in schema.arguments if argument.out}
    return Plan(
        schema.name,
        name,
        schema.overload,
        handler,
        schema,
        {argument.name: argument.default for argument in schema.arguments},
        tuple(argument.name for argument in schema.arguments if argument.name not in outs) if outs else None,
        written if written and not schema.returns_tensor else None,
        in_place=bool(written) and not outs,
    )


def plan_without_schema(name: str, overload: str = "") -> Plan:
    """The plan of an operator of which only the name is known: a higher-order one, or one of another library."""
    handler = HANDLERS.get(f"{name}.{overload}") or HANDLERS.get(name, UNKNOWN)
    return Plan(name, name, overload, handler, None, {}, None, None)


def find_handler(schema: Schema) -> tuple[str, Handler]:
    """The handler of an operator and the name it is registered under: its own entry, else what its name or schema says."""
    library, _, base = schema.name.partition("::")
    # The names under which an operator may be registered, its own first
    plain = base[:-1] if base.endswith("_") and not base.endswith("__") else base
    repeated = [
        plain.removeprefix(prefix) for prefix in ("_foreach_", "_unsafe_", "special_") if plain.startswith(prefix)
    ]
    for spelling in (base, plain, *repeated):
        for name in (f"{library}::{spelling}.{schema.overload}", f"{library}::{spelling}"):
            if name in HANDLERS:
                return f"{library}::{spelling}", HANDLERS[name]
    if library == "aten" and base.endswith("_copy"):
        return schema.name, Constant("copy", (), {})
    # Whether the operator neither returns nor writes a tensor: it reads metadata, or checks something
    if is_view(schema) or (library in _OWN_LIBRARIES and (not schema.returns_tensor and not schema.writes)):
        return schema.name, Constant("view", (), {})
    return schema.name, UNKNOWN


def is_view(schema: Schema) -> bool:
    """Whether every result is a look at an argument's memory that the operator does not write."""
    return bool(schema.returns) and all(returned.alias and not returned.writes for returned in schema.returns)


def translate(plan: Plan, call: AtenCall) -> Translation:
    """What this call computes: kind, attributes, and its tensors in the order of the kind.

    The handler says it; the schema fills in what it leaves open: inputs without `out=`, outputs of in-place lists.
    """
    found = plan.handler(call)
    if found.ins is None and plan.reads is not None:
        found = found._replace(ins=call.tensors(*plan.reads))
    if found.outs is None and plan.writes is not None and not call.outs:
        found = found._replace(outs=tuple(flat(call[name] for name in plan.writes)))
    if found.kind in _BY_LAYOUT and call.outs:
        given = [argument for argument in call.args.values() if isinstance(argument, AtenTensor)]
        if apart := layout(given, call.outs[0]):
            if found.kind == "copy" and any(is_expanded(tensor, call.outs[0]) for tensor in given):
                apart = {"expanded": True}
            found = found._replace(attrs={**found.attrs, **apart})
    return found
