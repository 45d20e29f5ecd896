"""One pass over the code of an archive: every statement is looked at and none is executed; operators go into the graph."""

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opcost.core.graph import Graph
from opcost.core.parsing import Bad
from opcost.errors import InputError, SourceError, shortened
from opcost.frontends.aten.call import flat
from opcost.frontends.aten.schema import plan_named
from opcost.frontends.aten.tensor import Described, NotKnown, row_major
from opcost.frontends.building import check_extents
from opcost.frontends.inputs import requested_inputs
from opcost.frontends.options import CountOptions
from opcost.frontends.programs import MOST_AXES, ModuleEntry, ProgramBuilder
from opcost.frontends.torchscript import results
from opcost.frontends.torchscript.archive import Class, Object, Script, ScriptWeights, read_script
from opcost.frontends.torchscript.results import Number, fused, matched, results_of

MOST_STEPS = 200_000  # Expressions that are followed; those of the largest nets are some tens of thousands
OPERATOR_STEPS = 8  # What an operator counts as, which takes longer than an expression
LARGEST = 1 << 63  # Numbers of the code have 64 bits
DEEPEST = 100  # Calls inside of calls

_FLAWS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, StopIteration)
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "remainder",
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne", ast.Is: "__is__",
    ast.IsNot: "__isnot__", ast.USub: "neg", ast.Not: "__not__",
}  # fmt: skip
_CASTS = {"int": "Int", "float": "Float", "bool": "Bool", "str": "str", "len": "len"}
_UNWRAPS = frozenset("Int Float Bool IntImplicit FloatImplicit ScalarImplicit item len".split())


class ModulePart(NamedTuple):
    """A module and its path; an object that is no module has no path."""

    object: Object
    path: str | None


class ScriptReference(NamedTuple):
    """A function or a class of the archive, by its whole name."""

    name: str


class _Returned(Exception):
    """A function ends."""


class ScriptRun:
    """Follows the code from the outermost forward on."""

    def __init__(self, script: Script, builder: ProgramBuilder) -> None:
        self.script, self.builder = script, builder
        self.stack: list[ModuleEntry] = []
        self.weights = ScriptWeights(script, builder)
        self._names = {
            "inf": float("inf"), "nan": float("nan"), "CONSTANTS": ModulePart(script.constants, "CONSTANTS"),
            "__torch__": ScriptReference("__torch__"),
        }  # fmt: skip
        self._steps = self._calls = self._depth = 0
        self._where = ("", 0)

    # -- modules --------------------------------------------------------------------------------------------------------

    def module(self, owner: Object, path: str | None, method: str, args: Sequence[Any], named: dict[str, Any]) -> Any:
        """Call a method of a module or of another object."""
        found = self.script.class_of(owner.kind).methods.get(method)
        if found is None:
            raise Bad(f"the class {owner.kind[:200]!r} has no method {method[:80]!r}")
        file, _, kind = owner.kind.rpartition(".")
        given = [ModulePart(owner, path), *args]
        if path is None:
            return self._function(found, file, given, named)
        self._calls += 1
        self.stack.append(ModuleEntry(str(self._calls), path, kind))
        try:
            return self._function(found, file, given, named)
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
        return SourceError(
            f"{self._line()}: {what}",
            hint="count the module itself: path/to/file.py:Net, or the object that torch.jit.load gives",
        )

    def _line(self) -> str:
        file, line = self._where
        return f"{file.replace('.', '/')}.py, line {line} of the archive's code" if line else "the archive's code"

    def _step(self, number: int = 1) -> None:
        self._steps += number
        if self._steps > MOST_STEPS:
            raise self.refuse(f"more than {MOST_STEPS:,} expressions were followed")

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
                        self._step()
                        self._assign(target, turn, env)
                        self._body(body, env)
                case ast.While(test=test, body=body):
                    while self._known(self.value(test, env), "a loop"):
                        self._body(body, env)
                case ast.With(items=items, body=body):
                    for item in items:
                        self.value(item.context_expr, env)
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
            case ast.Attribute(value=inner, attr=name) if isinstance(part := self.value(inner, env), ModulePart):
                part.object.attributes[name] = value
            case _:
                raise self.refuse(f"a value is put into a {type(target).__name__}")

    # -- expressions ----------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr, env: dict[str, Any]) -> Any:
        self._step()
        match node:
            case ast.Constant(value=value):
                return self._checked(value)
            case ast.Name(id=name):
                if name in env or name in self._names:
                    return env[name] if name in env else self._names[name]
                raise self.refuse(f"the name {name!r} is not known")
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self.value(each, env) for each in parts]
            case ast.Dict(keys=keys, values=values):
                pairs = [(self.value(k, env), self.value(v, env)) for k, v in zip(keys, values, strict=True) if k]
                return self._plainly("dict", [pairs])
            case ast.Attribute(value=inner, attr=name):
                part = self.value(inner, env)
                if isinstance(part, ScriptReference):
                    return ScriptReference(f"{part.name}.{name}")
                if isinstance(part, ModulePart):
                    return self._member(part, name)
                raise self.refuse(f"the attribute {name!r} is not known")
            case ast.Subscript(value=inner, slice=place):
                return self._operator("aten::__getitem__", [self.value(inner, env), self.value(place, env)], {})
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
            case ast.Call():
                return self._call(node, env)
        raise self.refuse(f"a {type(node).__name__} expression is not followed")

    def _member(self, part: ModulePart, name: str) -> Any:
        if name not in part.object.attributes:
            raise self.refuse(f"the module has no attribute {name!r}")
        full = f"{part.path}.{name}" if part.path else name
        value = part.object.attributes[name]
        if isinstance(value, Object):
            return ModulePart(value, full)
        self.holds(value)
        found = self.weights.loaded(value, full)
        if isinstance(found, (list, dict)):  # the code may change it, and then sees the change
            part.object.attributes[name] = found
        return found

    # -- calls ----------------------------------------------------------------------------------------------------------

    def _call(self, call: ast.Call, env: dict[str, Any]) -> Any:
        function, args, keywords = call.func, call.args, call.keywords
        if isinstance(function, ast.Name) and function.id in ("annotate", "unchecked_cast", "uninitialized"):
            return self.value(args[1], env) if len(args) > 1 else None
        if isinstance(function, ast.Name) and function.id == "getattr" and len(args) == 2:
            part, name = self.value(args[0], env), self.value(args[1], env)
            if isinstance(part, ModulePart) and isinstance(name, str):
                return self._member(part, name)
        values = [self.value(each, env) for each in args]
        named = {each.arg: self.value(each.value, env) for each in keywords if each.arg is not None}
        path = _dotted(function)
        if path[:1] == ["torch"] and len(path) == 2:
            return self._operator(f"aten::{path[1]}", values, named)
        if path[:1] == ["ops"] and len(path) == 3:
            return self._operator(f"{path[1]}::{path[2]}", values, named)
        if isinstance(function, ast.Name) and function.id in _CASTS and function.id not in env:
            return self._plainly(_CASTS[function.id], values)
        found = ScriptReference(".".join(path)) if path[:1] == ["__torch__"] else env.get(".".join(path))
        if isinstance(found, ScriptReference):
            name = found.name
            if name == "__torch__.torch.backends.mha.get_fastpath_enabled":
                return False  # as the count of a module itself does: the fused kernels compute the same
            owner, _, own = name.rpartition(".")
            if own == "__new__":
                return ModulePart(Object(owner, {}), None)
            called = self.script.find(name)
            if isinstance(called, Class) and called.fields is not None:
                return [*values, *(named[field] for field in called.fields[len(values) :] if field in named)]
            if not isinstance(called, ast.FunctionDef):
                raise Bad(f"the code of the function {name[:200]!r} is missing")
            return self._function(called, owner, values, named)
        if isinstance(function, ast.Attribute):
            part = self.value(function.value, env)
            if isinstance(part, ModulePart):
                return self.module(part.object, part.path, function.attr, values, named)
        raise self.refuse(f"a call of {'.'.join(path) or type(function).__name__} is not followed")

    def holds(self, value: Any, *kinds: type) -> bool:
        """Whether there is something of a kind in a value, which must not be too large, counting what it shares each time."""
        waiting, seen, found = [value], 0, False
        while waiting:
            each = waiting.pop()
            seen += 1 + (len(each) if isinstance(each, str) else 0)
            if isinstance(each, kinds):
                found = True
            elif isinstance(each, (list, dict)):
                seen += len(each)
                if seen + len(waiting) <= results.LONGEST:
                    waiting.extend(each if isinstance(each, list) else [*each.keys(), *each.values()])
            if seen + len(waiting) > results.LONGEST:
                raise self.refuse(f"a value has more than {results.LONGEST:,} parts")
        self._step(seen >> 4)
        return found

    def _plainly(self, name: str, values: Sequence[Any]) -> Any:
        """What plain numbers, texts, lists and dicts make together."""
        plain = [each.value if isinstance(each, Number) else each for each in values]
        if name not in results.HOLDS and self.holds(plain, Described):
            raise self.refuse("a number depends on data")
        try:
            found = results.PLAIN[name](*plain)
        except _FLAWS as exc:
            raise self.refuse(f"numbers and lists do not fit what is done with them ({shortened(str(exc))})") from exc
        return self._checked(found)

    def _checked(self, found: Any) -> Any:
        if isinstance(found, int) and not -LARGEST <= found < 2 * LARGEST:
            raise self.refuse("a number has more than 64 bits")
        if isinstance(found, (list, dict, str)):
            if len(found) > results.LONGEST:
                raise self.refuse(f"a value has more than {results.LONGEST:,} parts")
            self._step(len(found) >> 4)
        return found

    def _operator(self, name: str, values: list[Any], named: dict[str, Any]) -> Any:
        base = name.partition("::")[2]
        first = values[0] if values else None
        if base == "RaiseException":
            fault = f"{self._line()}: the module refuses these inputs: {shortened(str(first))}"
            raise InputError(fault, hint="give the inputs that the module expects: --input NAME:SHAPE:DTYPE")
        if "mkldnn" in base.lower():
            raise SourceError(
                f"{self._line()}: the module was optimized for oneDNN, whose weights PyTorch does not write into an archive, "
                "so that PyTorch cannot load it either",
                hint="count the archive that was saved before torch.jit.optimize_for_inference; torch.jit.freeze is fine",
            )
        if base in results.ANSWERS:
            return results.ANSWERS[base]
        if base in ("__is__", "__isnot__") and len(values) == 2:
            return (_identity(values[0]) is _identity(values[1])) == (base == "__is__")
        tensors = self.holds([*values, *named.values()], Described)
        try:
            if base in results.QUESTIONS and isinstance(first, Described):
                return results.QUESTIONS[base](first, *values[1:])
            if base == "device" and isinstance(first, str):
                return first
            if base in results.HOLDS and isinstance(first, (list, dict)):
                places = values[1:] if base in ("__getitem__", "slice", "pop") else values[1:2]
                at = [
                    each.value if isinstance(each, Number) and base not in ("append", "__contains__") else each
                    for each in places
                ]
                return self._checked(results.PLAIN[base](first, *at, *values[1 + len(at) :]))
            if base == "NumToTensor":
                return Number(first.value if isinstance(first, Number) else first)
            if not tensors:
                made = self._plain_operator(base, values, named)
                if made is not NotImplemented:
                    return made
            return self._emitted(name, values, named)
        except _FLAWS as exc:
            raise self.refuse(f"the arguments of {name} do not fit it ({shortened(str(exc))})") from exc

    def _plain_operator(self, base: str, values: list[Any], named: dict[str, Any]) -> Any:
        """An operator on plain values and numbers; NotImplemented where it makes a tensor."""
        numbers = any(isinstance(each, Number) for each in values)
        if base in ("to", "detach", "clone", "contiguous") and numbers:
            return values[0]
        if base in ("tensor", "as_tensor", "scalar_tensor") and values:
            if not isinstance(values[0], (list, dict)):
                return Number(_number(values[0]))
            shape: list[int] = []
            part: Any = values[0]
            while isinstance(part, list):
                shape.append(len(part))
                part = part[0] if part else 0.0
            kind = {bool: "bool", int: "int64"}.get(type(_number(part)), "float32")
            dtype = named.get("dtype")
            tensor = Described(tuple(shape), row_major(shape), kind if dtype is None else results.SCALAR_TYPES[dtype])
            return self.builder.made("", tensor, "const")
        if base not in results.PLAIN or (named and base != "div"):
            return NotImplemented
        found = self._plainly(base, [*values, *named.values()])
        return Number(found) if numbers and base not in _UNWRAPS else found

    def _emitted(self, name: str, values: list[Any], named: dict[str, Any]) -> Any:
        """An operator in the graph, and its results."""
        parts = fused().get(name)
        if parts is not None:
            return self._function(parts, "opcost", values, named)
        tries = (  # a size as itself, or as a tensor of it
            matched(name, [spelled(each) for each in values], {key: spelled(each) for key, each in named.items()})
            for spelled in (_number, self._as_tensor)
        )
        if (found := next(filter(None, tries), None)) is None:
            raise self.refuse(f"the operator {name} is not known with such arguments")
        schema, bound = found
        self._step(OPERATOR_STEPS)
        self.builder.modules.enter(tuple(self.stack), len(self.builder.ops))
        which = plan_named(schema.name, schema.overload)
        call = which.call(bound)
        try:
            outs = results_of(which, call)
        except (NotKnown, *_FLAWS) as exc:
            raise self.refuse(f"what {name} makes does not follow from the text ({exc})") from exc
        for out in outs:
            check_extents(tuple(out.shape), f"{self._line()}, {name}", MOST_AXES)
        if not outs:
            return None
        self.weights.read(call, which, bound)
        path = self.stack[-1].path if self.stack else ""
        returned = self.builder.emit(which, bound, {str(place): out for place, out in enumerate(outs)}, path)
        return returned if len(schema.returns) > 1 or "[]" in schema.returns[0].type else returned[0]

    def _as_tensor(self, value: Any) -> Any:
        """A number as a tensor that holds it."""
        if isinstance(value, Number):
            kind = "int64" if isinstance(value.value, int) else "float32"
            return self.builder.made("", Described((), (), kind), "const")
        return _number(value)


def _identity(value: Any) -> Any:
    """What `is` compares."""
    return value.object.attributes if isinstance(value, ModulePart) else value


def _number(value: Any) -> Any:
    """A number as itself, also in a list of sizes."""
    if isinstance(value, list):
        return [_number(each) for each in value]
    return value.value if isinstance(value, Number) else value


def _dotted(node: ast.expr) -> list[str]:
    """The names of `torch.add`; an empty list: it is something else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


# -- from an archive to a graph ----------------------------------------------------------------------------------------


def load(path: Path, options: CountOptions) -> Graph:
    """Read an archive and follow its forward on the requested inputs."""
    script = read_script(path)
    methods = script.class_of(script.root.kind).methods
    forward = methods.get("forward") or methods.get("forward__0")  # the first overload, which an LSTM has
    if forward is None:
        raise Bad("its module has no forward")
    names = [argument.arg for argument in forward.args.args[1:]]
    requested = requested_inputs(options, names)
    run = ScriptRun(script, ProgramBuilder())
    builder = run.builder
    given: list[Described] = []
    for place, name in enumerate(names):
        shape = requested.shapes.get(name)
        if shape is None:
            if place >= len(names) - len(forward.args.defaults):
                break
            raise InputError(
                f"no shape was given for the input {name!r}: a TorchScript archive does not tell the shapes of its inputs",
                hint=f"give it: --input {name}:1x3x224x224, or shapes={{{name!r}: (1, 3, 224, 224)}}",
            )
        tensor = Described(tuple(shape), row_major(shape), requested.dtypes.get(name, "float32"))
        given.append(builder.made(name, tensor, "input"))
    run.weights.declare()
    returned = run.module(script.root, "", forward.name, given, {})
    run.holds(returned)
    run.weights.finish()
    builder.modules.leave(len(builder.ops))
    return builder.graph(
        path.name, "torch", {"mode": "eval"}, modules=builder.modules.all(), calls=builder.modules.calls,
        inputs=[each.value for each in given],
        outputs=dict.fromkeys(each.value for each in flat([returned])),  # type: ignore[attr-defined]
    )  # fmt: skip
