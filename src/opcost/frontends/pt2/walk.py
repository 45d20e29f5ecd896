"""From an archive to a graph, with the sizes of export or others where the program left dimensions open."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, NamedTuple

from opcost.core.graph import Graph, Role
from opcost.core.parsing import LARGEST, Bad, get, instance, objects, short
from opcost.errors import InputError
from opcost.frontends.aten.schema import Plan, plan_named
from opcost.frontends.aten.tensor import Described, row_major
from opcost.frontends.inputs import is_shape, leaves, parse_dims, requested_inputs
from opcost.frontends.options import CountOptions
from opcost.frontends.programs import ProgramBuilder, again_removed, stack_of
from opcost.frontends.pt2.program import TYPES, Scope, Subgraph, name_of, one, read_archive
from opcost.frontends.pt2.sizes import UnknownSymbol, evaluate, symbols_in

SCHEMA = 8  # The major version of the format that is read


def load(path: Path, options: CountOptions) -> Graph:
    """Read an exported program and make it ready to be counted."""
    program, weights = read_archive(path)
    version = get(get(program, "schema_version", dict), "major", int)
    torch = instance(program.get("torch_version", "<=2.4"), str)
    if version != SCHEMA:
        fault = f"it has format {version}, of torch {short(torch)}, and format {SCHEMA} is read: export the model anew"
        raise Bad(fault)
    module = get(program, "graph_module", dict)
    graph = get(module, "graph", dict)
    signature = [one(spec) for spec in get(get(module, "signature", dict), "input_specs", list)]
    tensors = get(graph, "tensor_values", dict)
    inputs: list[Input] = []  # the arguments of the program
    for kind, spec in signature:
        if kind == "constant_input":
            inputs.append(Input(get(spec, "name", str), None))
        elif kind == "user_input":
            form, argument = one(get(spec, "arg", dict))
            name = name_of(argument) if form == "as_tensor" else ""
            inputs.append(Input(name, instance(tensors.get(name), dict) if form == "as_tensor" else None))
    builder = ProgramBuilder(bind(inputs, _argument_names(module), program, options))
    scope = Scope(graph, builder.symbols)
    for entry in get(module, "module_call_graph", list):
        builder.modules.declare(again_removed(get(entry, "fqn", str)))
    # A value for every weight, buffer, constant and input; weights that are one tensor are one value
    made: dict[str, Described] = {}
    known: dict[tuple[object, ...], Described] = {}
    homes: dict[str, int] = {}
    for kind, spec in signature:
        if kind == "user_input":
            form, argument = one(get(spec, "arg", dict))
            if form == "as_tensor":
                name = name_of(argument)
                made[name] = builder.made(name, scope.described(name), "input")
        elif kind in _ROLES:
            role = _ROLES[kind]
            name, full = name_of(get(spec, "arg", dict)), get(spec, f"{kind}_name", str)
            tensor = scope.described(name)
            entry, file = weights.get(full), f"={full}"  # one that the archive does not list is stored alone
            if entry is not None:
                file = f"{'param' if get(entry, 'is_param', bool) else 'other'}/{get(entry, 'path_name', str)}"
            key = (file, *astuple(tensor))
            if key not in known:
                trainable = role == "param" and tensor.requires_grad
                known[key] = builder.made(full, tensor, role, home=homes.get(file), trainable=trainable)
                homes.setdefault(file, tensor.value)
            made[name] = known[key]
            if role != "const":
                builder.modules.hold(full, made[name].value, parameter=role == "param")
    outputs = GraphPass(builder, graph, made)()
    builder.modules.leave(len(builder.ops))
    return builder.graph(
        path.name, "torch", {"version": torch}, modules=builder.modules.all(), calls=builder.modules.calls,
        inputs=(made[entry.name].value for entry in inputs if entry.tensor is not None),
        outputs=dict.fromkeys(output.value for output in outputs),
    )  # fmt: skip


def _argument_names(module: Mapping[str, Any]) -> list[str]:
    """The names of the arguments of the model that was exported."""
    for entry in get(module, "module_call_graph", list):
        signature = instance(entry, dict).get("signature")
        if get(entry, "fqn", str) == "" and signature is not None:
            names = instance(signature, dict).get("forward_arg_names")
            return [instance(name, str) for name in instance(names, list)] if names is not None else []
    return []


_ROLES: dict[str, Role] = {"parameter": "param", "buffer": "buffer", "tensor_constant": "const"}


# -- the operators, each translated by the table of `frontends.aten`, and those that are given graphs ---------------------

_ARITHMETIC = ("_operator.", "math.", "torch.sym_", "torch._sym_")
"""What a program may call besides operators: arithmetic on sizes, whose results are in the file."""
DEEPEST = 16


def operator_of(target: str) -> Plan | None:
    """The operator of a target such as `torch.ops.aten.add.Tensor`; None for arithmetic on sizes."""
    if target.startswith("torch.ops."):
        library, _, rest = target.removeprefix("torch.ops.").partition(".")
        base, _, overload = rest.partition(".")
        return plan_named(f"{library}::{base}", "" if overload == "default" else overload)
    if target.startswith(_ARITHMETIC):
        return None
    raise Bad(f"it calls {short(target)}, which is not an operator")


class GraphPass:
    """One pass over a graph whose inputs are made; a graph inside another is a pass of its own."""

    def __init__(
        self, builder: ProgramBuilder, graph: Mapping[str, Any], made: dict[str, Described],
        *, module: str = "", repeat: int = 1, depth: int = 0,
    ) -> None:  # fmt: skip
        if depth > DEEPEST or repeat > LARGEST:
            raise Bad(f"its graphs are nested more than {DEEPEST} deep, or run too often")
        self.builder, self.graph, self.made = builder, graph, made
        self.scope = Scope(graph, builder.symbols)
        self.module, self.repeat, self.depth = module, repeat, depth

    def __call__(self) -> list[Described]:
        """Make the operators; what comes back are the tensors that the graph returns."""
        around = self.module
        for node in objects(self.graph, "nodes"):  # type: ignore[arg-type]
            operator = operator_of(get(node, "target", str))
            if operator is not None:
                stack = stack_of(instance(instance(node.get("metadata", {}), dict).get("nn_module_stack", ""), str))
                self.module = self.builder.modules.enter(stack, len(self.builder.ops)) if stack else around
                self.node(operator, node)
        return [self.tensor(name) for name in self.names(get(self.graph, "outputs", list)) if name in self.made]

    def tensor(self, name: str) -> Described:
        if name not in self.made:
            raise Bad(f"the tensor {short(name)} is read before it is made")
        return self.made[name]

    def names(self, arguments: list[Any]) -> Iterator[str]:
        """The names of the tensors in a list of arguments or results."""
        for argument in arguments:
            found: list[str] = []
            self.scope.argument(argument, found.append)
            yield from found

    def inside(self, graph: Subgraph, operands: list[Any], *, turns: int = 1) -> list[Described]:
        """The operators of a graph that an operator is given, and what it returns; its inputs are the operands in order."""
        inner = GraphPass(
            self.builder, graph.content, {}, module=self.module, repeat=self.repeat * turns, depth=self.depth + 1
        )
        inputs = get(graph.content, "inputs", list)
        if len(inputs) != len(operands):
            raise Bad(f"a graph takes {len(inputs)} inputs and is given {len(operands)}")
        for given, operand in zip(inputs, operands, strict=True):
            inner.made.update((name, operand) for name in inner.names([given]) if isinstance(operand, Described))
        return inner()

    def node(self, plan: Plan, node: Mapping[str, Any]) -> None:
        named = {}
        for place, argument in enumerate(objects(node, "inputs")):  # type: ignore[arg-type]
            name = get(argument, "name", str) or str(place)
            named[name] = self.scope.argument(argument.get("arg"), self.tensor)
        results = list(self.names(get(node, "outputs", list)))
        if plan.operator.startswith("higher_order::"):
            base = plan.operator.partition("::")[2]
            if base in _HANDLERS:
                returned = _HANDLERS[base](self, plan.operator, list(named.values()))
                if len(returned) < len(results):
                    raise Bad(f"a graph returns {len(returned)} tensors where {len(results)} are expected")
                self.made.update(zip(results, returned, strict=False))
                return
            unknown = f"{plan.operator} is not counted: what it runs is not known"
            self.builder.note(*_NOTES.get(base, ("control", unknown)))
        # The results are those that the file describes.
        outs = {name: self.scope.described(name) for name in results}
        self.builder.emit(plan, named, outs, self.module, self.repeat)
        self.made.update(outs)


# -- operators that are given graphs: branches, loops, and wrappers that only say how their graph is to run


def _expect(operator: str, arguments: list[Any], *kinds: type) -> list[Any]:
    """The arguments, each of its type; lists at the end may be left away."""
    given = [*arguments, *([] for kind in kinds[len(arguments) :] if kind is list)]
    if len(given) < len(kinds) or not all(map(isinstance, given, kinds)):
        raise Bad(f"{operator} is not given what it needs")
    return given[: len(kinds)]


def _wrap(outer: GraphPass, operator: str, arguments: list[Any]) -> list[Described]:
    """One graph, run once on all that follows it."""
    at = next((place for place, argument in enumerate(arguments) if isinstance(argument, Subgraph)), None)
    if at is None:
        raise Bad(f"{operator} has no graph")
    rest = arguments[at + 1 :]
    return outer.inside(arguments[at], [item for each in rest for item in (each if isinstance(each, list) else [each])])


def _cond(outer: GraphPass, operator: str, arguments: list[Any]) -> list[Described]:
    chosen, true, false, operands = _expect(operator, arguments, object, Subgraph, Subgraph, list)
    if not isinstance(chosen, bool):
        outer.builder.note("branch", "torch.cond depends on data: the true branch is counted")
    return outer.inside(false if chosen is False else true, operands)


def _scan(outer: GraphPass, operator: str, arguments: list[Any]) -> list[Described]:
    """A graph that is run for each step of some tensors, with what the step before carries; `map` carries nothing."""
    if operator.endswith("scan"):
        body, start, xs, rest = _expect(operator, arguments, Subgraph, list, list, list)
    else:
        body, xs, rest = _expect(operator, arguments, Subgraph, list, list)
        start = []
    if not xs or not all(isinstance(x, Described) and x.shape and x.shape[0] is not None for x in xs):
        raise Bad(f"{operator} has nothing to walk along")
    turns = xs[0].shape[0]
    steps = []
    for x in xs:
        tensor = Described(x.shape[1:], x.strides[1:], x.dtype, x.device)
        steps.append(outer.builder.made("", tensor, home=x.value))
        outer.builder.op("view", {}, operator, [x.value], [steps[-1].value], outer.module, outer.repeat * turns)
    made = outer.inside(body, [*start, *steps, *rest], turns=turns)
    found = made[: len(start)]
    for part in made[len(start) :]:  # the results of all turns, each copied to its place
        shape = (turns, *part.shape)
        found.append(outer.builder.made("", Described(shape, row_major(shape), part.dtype, part.device)))
        outer.builder.op("copy", {}, operator, [part.value], [found[-1].value], outer.module, outer.repeat)
    return found


_WRAPPERS = (
    "wrap_with_set_grad_enabled", "wrap_with_autocast", "wrap", "tag_activation_checkpoint", "wrap_activation_checkpoint",
    "strict_mode", "hints_wrapper", "invoke_subgraph", "inductor_compiled_code",
)  # fmt: skip
_HANDLERS: dict[str, Callable[[GraphPass, str, list[Any]], list[Described]]] = {
    "cond": _cond, "map": _scan, "map_impl": _scan, "scan": _scan, **dict.fromkeys(_WRAPPERS, _wrap),
}  # fmt: skip
_NOTES = {
    "while_loop": ("control", "higher_order::while_loop is not counted: how often it runs depends on data"),
    "flex_attention": (
        "flex", "flex_attention is counted over the full square of queries and keys; its score function is not counted",
    ),
}  # fmt: skip
"""What a report says of operators that are taken as they are."""


# -- the sizes that a program is counted with: those it was exported with, or others where it left dimensions open ---------


class Input(NamedTuple):
    """An argument of the program: a tensor with its description, or a constant, which has none."""

    name: str
    tensor: dict[str, Any] | None

    @property
    def dimensions(self) -> list[tuple[str | None, object]]:
        """Of each its expression, where it depends on symbols, and the size of export, where the file has it."""
        found: list[tuple[str | None, object]] = []
        for size in get(self.tensor, "sizes", list) if self.tensor is not None else ():
            kind, value = one(size)
            if kind == "as_expr":
                hint = instance(value, dict).get("hint")
                found.append((get(value, "expr_str", str), None if hint is None else one(hint)[1]))
            else:
                found.append((None, value))
        return found


def bind(
    inputs: Sequence[Input], names: Sequence[str], program: Mapping[str, Any], options: CountOptions
) -> dict[str, int]:
    """The value of every symbol; `names` are the arguments of the model that was exported, in order."""
    given = _given(inputs, names, options)
    symbols: dict[str, int] = {}
    # Sizes by name: a symbol of the program, a dimension as `x[2]`, or `batch` for the first; export keeps no other names.
    named: dict[str, str] = {}
    for entry in inputs:
        dimensions = entry.dimensions
        shape = given.get(entry.name)
        if shape is not None and len(shape) != len(dimensions):
            fault = f"the input {entry.name!r} has {len(dimensions)} dimensions in the program, not {len(shape)}"
            raise InputError(fault)
        for axis, (expression, size) in enumerate(dimensions):
            where = f"dimension {axis} of the input {entry.name!r}"
            if expression is not None:
                if shape is not None:
                    _bind_size(expression, shape[axis], where, symbols)
                named[f"{entry.name}[{axis}]"] = expression
                named.update((symbol, symbol) for symbol in symbols_in(expression))
                if axis == 0:
                    named.setdefault("batch", expression)
            elif shape is not None and size != shape[axis]:
                fault = f"{where} is fixed at {short(size)} in the program, not {shape[axis]}"
                raise InputError(fault, hint="export the model with dynamic_shapes, so that this dimension stays open")
    for name, size in parse_dims(options.own.get("dim"), {"": tuple(named)}).items():
        _bind_size(named[name], size, f"the dimension {name}", symbols)
    ranges = instance(program.get("range_constraints", {}), dict)
    for name, value in symbols.items():
        limits = instance(ranges.get(name, {}), dict)
        low, high = limits.get("min_val"), limits.get("max_val")
        if (isinstance(low, int) and value < low) or (isinstance(high, int) and value > high):
            both = {"least": low, "most": high}
            wanted = " and ".join(f"at {word} {limit}" for word, limit in both.items() if isinstance(limit, int))
            fault = f"a dimension of {value} was given where the program takes {wanted}"
            raise InputError(fault, hint="export the model with another range in dynamic_shapes")
    for entry in inputs:
        for expression, exported in entry.dimensions:
            if expression is None:
                continue
            if type(exported) is int:
                _solve(expression, exported, symbols)
            if missing := symbols_in(expression) - symbols.keys():
                raise InputError(
                    f"the program leaves a dimension of its input {entry.name!r} open ({min(missing)}) and does not say "
                    "which size it was exported with",
                    hint=f"give it: shapes={{{entry.name!r}: (1, 3, 224, 224)}} or --input {entry.name}:1x3x224x224",
                )
    return symbols


def _bind_size(text: str, extent: int, where: str, symbols: dict[str, int]) -> None:
    _solve(text, extent, symbols)
    try:
        meant = evaluate(text, symbols)
    except UnknownSymbol as exc:
        raise InputError(f"{where} cannot be {extent}: it depends on {exc}, which this does not determine") from exc
    if meant != extent:
        raise InputError(f"{where} cannot be {extent}: other dimensions make it {meant}")


def _solve(text: str, extent: int, symbols: dict[str, int]) -> None:
    """Find the one symbol of an expression that has no value yet; sizes are sums and multiples of symbols."""
    unknown = symbols_in(text) - symbols.keys()
    if len(unknown) != 1:
        return
    (name,) = unknown
    try:
        at_two, at_three = (evaluate(text, {**symbols, name: n}) for n in (2, 3))
        slope = at_three - at_two
        value = 2 + int((extent - at_two) // slope) if slope else 0
        if evaluate(text, {**symbols, name: value}) == extent:
            symbols[name] = value
    except (Bad, OverflowError, ValueError):
        return


# -- what the user gave -------------------------------------------------------------------------------------------------


def _given(inputs: Sequence[Input], names: Sequence[str], options: CountOptions) -> dict[str, tuple[int, ...]]:
    """Shapes by the name of the input. Element types are the program's own; another one is refused."""
    tensors = {entry.name: entry.tensor for entry in inputs if entry.tensor is not None}
    if options.inputs is not None or options.kwargs:
        options = replace(options, inputs=None, kwargs=_of_tensors(inputs, names, options))
    # The shapes with which the program was exported
    exported = {entry.name: tuple(size for _, size in entry.dimensions) for entry in inputs if any(options.sizes)}
    stored: Any = {name: shape for name, shape in exported.items() if name in tensors and is_shape(shape)}
    requested = requested_inputs(options, list(tensors), stored=stored)
    for name, dtype in requested.dtypes.items():
        meant = TYPES.get(get(tensors[name], "dtype", int))
        if dtype != meant:
            fault = f"the input {name!r} is {meant} in the program, not {dtype}"
            raise InputError(fault, hint="leave the type out, or export the model with inputs of that type")
    return requested.shapes


def _of_tensors(inputs: Sequence[Input], names: Sequence[str], options: CountOptions) -> dict[str, Any]:
    """Arrays of whatever framework by input, nested as the model takes them."""
    by_name: dict[str, Any] = dict(options.kwargs)
    args: Any = () if options.inputs is None else options.inputs
    if isinstance(args, Mapping) and (set(args) <= set(names) or set(args) <= {entry.name for entry in inputs}):
        args, by_name = (), {**args, **by_name}
    args = args if isinstance(args, tuple) else (args,)
    ordered = sorted(by_name, key=lambda name: names.index(name) if name in names else len(names))
    given = list(leaves((*args, *(by_name[name] for name in ordered))))
    if len(given) != len(inputs):
        listed = ", ".join(entry.name for entry in inputs)
        raise InputError(f"{len(given)} inputs were given, and the program takes {len(inputs)}: {listed or 'none'}")
    return {entry.name: leaf for entry, leaf in zip(inputs, given, strict=True) if entry.tensor is not None}
