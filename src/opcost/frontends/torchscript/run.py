"""One pass over the code of an archive: every statement is looked at and none is executed; operators go into the graph."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from opcost.core.checked import Bad
from opcost.core.graph import Role
from opcost.errors import SourceError
from opcost.frontends.aten.call import Call
from opcost.frontends.aten.strides import row_major
from opcost.frontends.aten.tensor import Described
from opcost.frontends.aten.told import NotTold
from opcost.frontends.checkpoint.described import Tensor as Stored
from opcost.frontends.programs.builder import Builder, Made
from opcost.frontends.programs.modules import Entry
from opcost.frontends.programs.operators import Emitter, operator_named, tensors_of
from opcost.frontends.torchscript.archive import Constant, Object, Script
from opcost.frontends.torchscript.results import matched, results_of

MOST_STEPS = 300_000
"""Expressions that are looked at; those of the largest nets are some tens of thousands."""
LONGEST = 1 << 16
"""Parts of a list or a text."""
LARGEST = 1 << 80
DEEPEST = 100
"""Calls inside of calls."""

_FLAWS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, StopIteration)
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "neg": operator.neg, "pow": operator.pow,
    "rsub": lambda a, b, c=1: b - a * c, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge, "__and__": lambda a, b: a and b, "__or__": lambda a, b: a or b,
    "__not__": operator.not_, "__is__": operator.is_, "__isnot__": operator.is_not, "sqrt": math.sqrt, "ceil": math.ceil,
    "floor": math.floor, "len": len, "__getitem__": operator.getitem, "__contains__": lambda held, item: item in held,
    "min": min, "max": max, "abs": abs, "list": list,
    "clamp": lambda x, low=None, high=None: min(max(x, x if low is None else low), math.inf if high is None else high),
}  # fmt: skip
"""What the code does with plain numbers and lists."""
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.USub: operator.neg, ast.Not: operator.not_,
}  # fmt: skip
_CASTS: dict[str, Callable[..., Any]] = {"int": int, "float": float, "bool": bool, "str": str, "len": len}


class Number(NamedTuple):
    """A tensor of one number that is known: a size that the code computes with."""

    value: Any


class Part(NamedTuple):
    """A module, and where it stands."""

    held: Object
    path: str


class _Returned(Exception):
    """A function ends."""


class Run:
    """Follows the code from the outermost forward on."""

    def __init__(self, script: Script, builder: Builder) -> None:
        self.script, self.builder = script, builder
        self.stack: list[Entry] = []
        self._weights: dict[tuple[int, str], Made] = {}
        self._homes: dict[tuple[str, int, tuple[int, ...]], Made] = {}
        self._steps = self._calls = self._depth = 0
        self._where = ("", 0)

    # -- modules --------------------------------------------------------------------------------------------------------

    def declare(self, held: Object, path: str = "") -> None:
        """A module with all that lies in it: its weights are there whether they are read or not."""
        kind = self.script.class_of(held.kind)
        self.builder.modules.declare(path)
        for name, value in held.attributes.items():
            full = f"{path}.{name}" if path else name
            if isinstance(value, Stored) and name in (*kind.parameters, *kind.buffers):
                self._weight(held, name, value, full, parameter=name in kind.parameters)
            elif isinstance(value, Object) and value.kind.startswith("__torch__."):
                self.declare(value, full)

    def _weight(self, held: Object, name: str, stored: Stored, full: str, *, parameter: bool) -> None:
        key = (stored.storage.key if stored.storage else full, stored.offset, stored.shape)
        made = self._homes.get(key)
        if made is None:
            tensor = Described(stored.shape, row_major(stored.shape), stored.dtype)
            role: Role = "param" if parameter else "buffer"
            made = self._homes[key] = self.builder.made(full, tensor, role, trainable=parameter)
        self._weights[id(held.attributes), name] = made
        self.builder.modules.hold(full, made.value, parameter=parameter)

    def module(self, held: Object, path: str, method: str, args: Sequence[Any], named: dict[str, Any]) -> Any:
        """Call a method of a module."""
        kind = self.script.class_of(held.kind)
        found = kind.methods.get(method)
        if found is None:
            raise Bad(f"the class {held.kind[:200]!r} has no method {method[:80]!r}")
        self._calls += 1
        self.stack.append(Entry(str(self._calls), path, held.kind.rpartition(".")[2]))
        try:
            return self._function(found, kind.file, [Part(held, path), *args], named)
        finally:
            self.stack.pop()

    def _function(self, found: ast.FunctionDef, file: str, args: Sequence[Any], named: dict[str, Any]) -> Any:
        if self._depth >= DEEPEST:
            raise Bad("its functions call each other without end")
        names = [argument.arg for argument in found.args.args]
        env: dict[str, Any] = dict(zip(names, args, strict=False)) | named
        for name, default in zip(reversed(names), reversed(found.args.defaults), strict=False):
            if name not in env:
                env[name] = self.value(default, env)
        missing = [name for name in names if name not in env]
        if missing:
            raise Bad(f"{found.name}() is called without {missing[0]!r}")
        outer, self._depth = self._where, self._depth + 1
        self._where = (file, found.lineno)
        try:
            self._body(found.body, env)
        except _Returned as returned:
            return returned.args[0]
        finally:
            self._where, self._depth = outer, self._depth - 1
        return None

    # -- statements -----------------------------------------------------------------------------------------------------

    def refuse(self, what: str) -> SourceError:
        file, line = self._where
        return SourceError(
            f"{file.replace('.', '/')}.py, line {line} of the archive's code: {what}",
            hint="count the module itself: path/to/file.py:Net, or the object that torch.jit.load gives",
        )

    def _body(self, statements: Sequence[ast.stmt], env: dict[str, Any]) -> None:
        for statement in statements:
            self._where = (self._where[0], statement.lineno)
            match statement:
                case ast.Assign(targets=[target], value=value):
                    self._assign(target, self.value(value, env), env)
                case ast.AnnAssign(target=target, value=value) if value is not None:
                    self._assign(target, self.value(value, env), env)
                case ast.Expr(value=value):
                    self.value(value, env)
                case ast.Return(value=value):
                    raise _Returned(None if value is None else self.value(value, env))
                case ast.If(test=test, body=body, orelse=orelse):
                    self._body(body if self._known(self.value(test, env), "a branch") else orelse, env)
                case ast.For(target=target, iter=ast.Call(func=ast.Name(id="range"), args=args), body=body):
                    turns = self._known(self.value(args[-1], env), "a loop")
                    for turn in range(int(turns)):
                        self._assign(target, turn, env)
                        self._body(body, env)
                case ast.Pass():
                    pass
                case _:
                    raise self.refuse(f"a {type(statement).__name__} statement is not followed")

    def _known(self, value: Any, what: str) -> Any:
        plain = value.value if isinstance(value, Number) else value
        if not isinstance(plain, (bool, int, float, str, list, type(None))):
            raise self.refuse(f"{what} depends on data")
        return plain

    def _assign(self, target: ast.expr, value: Any, env: dict[str, Any]) -> None:
        match target:
            case ast.Name(id=name):
                env[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                if not isinstance(value, list) or len(value) != len(targets):
                    raise self.refuse("what is unpacked has another number of parts")
                for each, part in zip(targets, value, strict=True):
                    self._assign(each, part, env)
            case _:
                raise self.refuse(f"a value is put into a {type(target).__name__}")

    # -- expressions ----------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr, env: dict[str, Any]) -> Any:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise self.refuse(f"more than {MOST_STEPS:,} expressions were followed")
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                if name in env:
                    return env[name]
                if name in ("inf", "nan"):
                    return float(name)
                raise self.refuse(f"the name {name!r} is not known")
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self.value(each, env) for each in parts]
            case ast.Dict(keys=keys, values=values):
                return {
                    self.value(k, env): self.value(v, env) for k, v in zip(keys, values, strict=True) if k is not None
                }
            case ast.Attribute(value=inner, attr=name):
                return self._attribute(inner, name, env)
            case ast.Subscript(value=inner, slice=place):
                return self._plainly(operator.getitem, [self.value(inner, env), self.value(place, env)])
            case ast.UnaryOp(op=op, operand=inner) if type(op) in _OPERATORS:
                return self._plainly(_OPERATORS[type(op)], [self.value(inner, env)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return self._plainly(_OPERATORS[type(op)], [self.value(left, env), self.value(right, env)])
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return self._plainly(_OPERATORS[type(op)], [self.value(left, env), self.value(right, env)])
            case ast.BoolOp(op=op, values=values):
                found = [self._known(self.value(each, env), "a condition") for each in values]
                return all(found) if isinstance(op, ast.And) else any(found)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self._known(self.value(test, env), "a branch") else orelse, env)
            case ast.Call(func=function, args=args, keywords=keywords):
                return self._call(function, args, keywords, env)
        raise self.refuse(f"a {type(node).__name__} expression is not followed")

    def _attribute(self, inner: ast.expr, name: str, env: dict[str, Any]) -> Any:
        if isinstance(inner, ast.Name) and inner.id == "CONSTANTS":
            return self._constant(name)
        held = self.value(inner, env)
        if isinstance(held, Part):
            return self._member(held, name)
        raise self.refuse(f"the attribute {name!r} is not known")

    def _member(self, part: Part, name: str) -> Any:
        if name not in part.held.attributes:
            raise self.refuse(f"the module has no attribute {name!r}")
        value = part.held.attributes[name]
        full = f"{part.path}.{name}" if part.path else name
        if isinstance(value, Object):
            return Part(value, full)
        if isinstance(value, Stored):
            key = (id(part.held.attributes), name)
            if key not in self._weights:
                tensor = Described(value.shape, row_major(value.shape), value.dtype)
                self._weights[key] = self.builder.made(full, tensor, "const")
            return self._weights[key]
        return value

    def _constant(self, name: str) -> Any:
        place = int(name.removeprefix("c")) if name.removeprefix("c").isdecimal() and len(name) < 9 else -1
        if not 0 <= place < len(self.script.constants):
            raise self.refuse(f"the constant {name!r} is not there")
        found = self.script.constants[place]
        if not isinstance(found, Constant):
            return found
        if found.number is not None and found.tensor.shape == ():
            return Number(found.number)
        tensor = Described(found.tensor.shape, row_major(found.tensor.shape), found.tensor.dtype)
        return self.builder.made(name, tensor, "const")

    # -- calls ----------------------------------------------------------------------------------------------------------

    def _call(
        self, function: ast.expr, args: Sequence[ast.expr], keywords: Sequence[ast.keyword], env: dict[str, Any]
    ) -> Any:
        if isinstance(function, ast.Name) and function.id in ("annotate", "unchecked_cast", "uninitialized"):
            return self.value(args[1], env) if len(args) > 1 else None
        if isinstance(function, ast.Name) and function.id == "getattr" and len(args) == 2:
            held, name = self.value(args[0], env), self.value(args[1], env)
            if isinstance(held, Part) and isinstance(name, str):
                return self._member(held, name)
        values = [self.value(each, env) for each in args]
        named = {each.arg: self.value(each.value, env) for each in keywords if each.arg is not None}
        path = _dotted(function)
        if path[:1] == ["torch"] and len(path) == 2:
            return self._checked(f"aten::{path[1]}", values, named)
        if path[:1] == ["ops"] and len(path) == 3:
            return self._checked(f"{path[1]}::{path[2]}", values, named)
        if path[:1] == ["__torch__"]:
            file, found = self.script.function(".".join(path))
            return self._function(found, file, values, named)
        if isinstance(function, ast.Name) and function.id in _CASTS:
            return self._plainly(_CASTS[function.id], values)
        if isinstance(function, ast.Attribute):
            held = self.value(function.value, env)
            if isinstance(held, Part):
                return self.module(held.held, held.path, function.attr, values, named)
        raise self.refuse(f"a call of {'.'.join(path) or type(function).__name__} is not followed")

    def _plainly(self, function: Callable[..., Any], values: Sequence[Any]) -> Any:
        """What plain numbers and lists make together."""
        plain = [each.value if isinstance(each, Number) else each for each in values]
        if any(isinstance(each, Made) for each in plain):
            raise self.refuse("a number depends on data")
        if function in (operator.mul, operator.pow) and not all(
            isinstance(each, (int, float)) and abs(each) < 1 << 40 for each in plain
        ):
            raise self.refuse("a list or a number grows without end")
        if function is operator.pow and abs(plain[-1]) > 64:
            raise self.refuse("a number grows without end")
        try:
            found = function(*plain)
        except _FLAWS as exc:
            raise self.refuse(f"numbers and lists do not fit what is done with them ({exc})") from exc
        if (isinstance(found, int) and abs(found) > LARGEST) or (
            isinstance(found, (list, str)) and len(found) > LONGEST
        ):
            raise self.refuse("a list or a number grows without end")
        return found

    def _checked(self, name: str, values: list[Any], named: dict[str, Any]) -> Any:
        try:
            return self._operator(name, values, named)
        except _FLAWS as exc:
            raise self.refuse(f"the arguments of {name} do not fit it ({exc})") from exc

    def _operator(self, name: str, values: list[Any], named: dict[str, Any]) -> Any:
        base = name.partition("::")[2]
        if base in ("warn", "device", "format", "str", "manual_seed", "_assert"):
            return None if base != "device" else str(values[0])
        if name == "prim::NumToTensor":
            return Number(values[0].value if isinstance(values[0], Number) else values[0])
        tensor = next((each for each in values if isinstance(each, Made)), None)
        if base in _QUESTIONS and isinstance(values[0], Made):
            return _QUESTIONS[base](values[0].tensor, *values[1:])
        held = any(isinstance(each, Made) for value in values if isinstance(value, list) for each in value)
        if tensor is None and not held:
            numbers = any(isinstance(each, Number) for each in values)
            if base in ("to", "detach", "clone", "contiguous") and numbers:
                return values[0]
            if base in _ARITHMETIC:
                found = self._plainly(_ARITHMETIC[base], values)
                return Number(found) if numbers else found
        if base == "__getitem__" and isinstance(values[0], list):
            return values[0][values[1]]
        if base in ("append", "__isnot__", "__is__", "len"):
            if base == "append":
                values[0].append(values[1])
                return values[0]
            return len(values[0]) if base == "len" else (values[0] is values[1]) == (base == "__is__")
        return self._emitted(name, values, named)

    def _emitted(self, name: str, values: list[Any], named: dict[str, Any]) -> Any:
        """An operator in the graph, and its results."""
        found = None
        for spelled in (_number, self._as_tensor):  # a size stands for itself, or for a tensor that holds it
            given, kept = [spelled(each) for each in values], {key: spelled(each) for key, each in named.items()}
            found = matched(
                name, [tensors_of(each) for each in given], {key: tensors_of(each) for key, each in kept.items()}
            )
            if found is not None:
                break
        if found is None:
            raise self.refuse(f"nobody knows the operator {name} with such arguments")
        schema, bound = found
        self.builder.modules.enter(tuple(self.stack), len(self.builder.ops))
        which = operator_named(schema.name, schema.overload)
        plan = which.plan
        call = Call(plan.name, plan.overload, bound, (), in_place=plan.in_place)
        try:
            outs = results_of(which, call)
        except (NotTold, *_FLAWS) as exc:
            raise self.refuse(f"what {name} makes cannot be told from the text ({exc})") from exc
        if not outs:
            return None
        made = {argument.name: value for argument, value in zip(schema.arguments, given, strict=False)} | kept
        arguments = {key: self._again(bound[key], made.get(key)) for key in bound}
        emitter = Emitter(self.builder, self.stack[-1].path if self.stack else "")
        results = emitter.plain(which, arguments, {str(place): out for place, out in enumerate(outs)})  # type: ignore[misc]
        return results if len(schema.returns) > 1 or "[]" in schema.returns[0].type else results[0]

    def _as_tensor(self, value: Any) -> Any:
        """A number as a tensor that holds it."""
        if isinstance(value, Number):
            kind = "int64" if isinstance(value.value, int) else "float32"
            return self.builder.made("", Described((), (), kind), "const")
        return _number(value)

    def _again(self, bound: Any, given: Any) -> Any:
        """An argument with what was made in the place of the tensors."""
        if isinstance(given, Made) or (isinstance(given, list) and any(isinstance(each, Made) for each in given)):
            return given
        return bound


_QUESTIONS: dict[str, Callable[..., Any]] = {
    "size": lambda x, axis=None: list(x.shape) if axis is None else x.shape[axis], "dim": lambda x: x.dim(),
    "numel": lambda x: x.numel(), "is_floating_point": lambda x: x.dtype.startswith(("float", "bfloat")),
    "len": lambda x: x.shape[0], "stride": lambda x, axis=None: list(x.stride()) if axis is None else x.stride()[axis],
    "is_contiguous": lambda x, *_: x.stride() == row_major(x.shape),
    "_shape_as_tensor": lambda x: [Number(n) for n in x.shape], "is_complex": lambda x: x.dtype.startswith("complex"),
    "__isnot__": lambda _, other: other is None, "__is__": lambda *_: False,
}  # fmt: skip
"""What the code asks of a tensor."""


def _number(value: Any) -> Any:
    """A number as itself, also in a list of sizes."""
    if isinstance(value, list):
        return [_number(each) for each in value]
    return value.value if isinstance(value, Number) else value


def _dotted(node: ast.expr) -> list[str]:
    """The names of `torch.add`; an empty list: it is something else."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return [*inner, node.attr] if inner else []
    return []
