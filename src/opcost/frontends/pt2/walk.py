"""From an archive to a graph, with the sizes of export or others where the program left dimensions open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, NamedTuple

from opcost.core.graph import Graph, Role
from opcost.core.parsing import Bad, get, instance, short
from opcost.errors import InputError
from opcost.frontends.aten.call import Described
from opcost.frontends.inputs import check_one, parse_dims, requested_inputs
from opcost.frontends.options import CountOptions
from opcost.frontends.programs import ProgramBuilder, again_removed
from opcost.frontends.pt2.build import GraphPass
from opcost.frontends.pt2.program import TYPES, Scope, name_of, one, read_archive
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


# -- the sizes that a program is counted with: those it was exported with, or others where it left dimensions open ---------


class Input(NamedTuple):
    """An argument of the program: a tensor with its description, or a constant, which has none."""

    name: str
    tensor: dict[str, Any] | None


def bind(
    inputs: Sequence[Input], names: Sequence[str], program: Mapping[str, Any], options: CountOptions
) -> dict[str, int]:
    """The value of every symbol; `names` are the arguments of the model that was exported, in order."""
    given = _given(inputs, names, options)
    ranges = instance(program.get("range_constraints", {}), dict)
    symbols: dict[str, int] = {}
    for entry in inputs:
        if entry.name in given:
            _bind_shape(entry, given[entry.name], symbols)
    # Sizes by name: a symbol of the program, a dimension as `x[2]`, or `batch` for the first; export keeps no other names.
    named: dict[str, str] = {}
    for entry in inputs:
        for axis, (expression, _) in enumerate(_dimensions(entry)):
            if expression is not None:
                named[f"{entry.name}[{axis}]"] = expression
                named.update((symbol, symbol) for symbol in symbols_in(expression))
                if axis == 0:
                    named.setdefault("batch", expression)
    for name, size in parse_dims(options.own.get("dim"), {"": tuple(named)}).items():
        _bind_size(named[name], size, f"the dimension {name}", symbols)
    for name, value in symbols.items():
        limits = instance(ranges.get(name, {}), dict)
        low, high = limits.get("min_val"), limits.get("max_val")
        if (isinstance(low, int) and value < low) or (isinstance(high, int) and value > high):
            both = {"least": low, "most": high}
            wanted = " and ".join(f"at {word} {limit}" for word, limit in both.items() if isinstance(limit, int))
            fault = f"a dimension of {value} was given where the program takes {wanted}"
            raise InputError(fault, hint="export the model with another range in dynamic_shapes")
    for entry in inputs:
        for expression, hint in _dimensions(entry):
            if expression is None:
                continue
            if type(hint) is int:
                _solve(expression, hint, symbols)
            if missing := symbols_in(expression) - symbols.keys():
                raise InputError(
                    f"the program leaves a dimension of its input {entry.name!r} open ({min(missing)}) and does not say "
                    "which size it was exported with",
                    hint=f"give it: shapes={{{entry.name!r}: (1, 3, 224, 224)}} or --input {entry.name}:1x3x224x224",
                )
    return symbols


def _dimensions(entry: Input) -> Iterator[tuple[str | None, object]]:
    """Of each dimension its expression, where it depends on symbols, and the size of export, where the file has it."""
    for size in get(entry.tensor, "sizes", list) if entry.tensor is not None else ():
        kind, value = one(size)
        if kind != "as_expr":
            yield None, value
        else:
            hint = instance(value, dict).get("hint")
            yield get(value, "expr_str", str), None if hint is None else one(hint)[1]


def _bind_shape(entry: Input, shape: tuple[int, ...], symbols: dict[str, int]) -> None:
    sizes = list(_dimensions(entry))
    if len(sizes) != len(shape):
        raise InputError(f"the input {entry.name!r} has {len(sizes)} dimensions in the program, not {len(shape)}")
    for axis, ((expression, size), extent) in enumerate(zip(sizes, shape, strict=True)):
        where = f"dimension {axis} of the input {entry.name!r}"
        if expression is not None:
            _bind_size(expression, extent, where, symbols)
        elif size != extent:
            fault = f"{where} is fixed at {short(size)} in the program, not {extent}"
            raise InputError(fault, hint="export the model with dynamic_shapes, so that this dimension stays open")


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
    tensors = {entry.name: entry for entry in inputs if entry.tensor is not None}
    if options.inputs is not None or options.kwargs:
        check_one(options)
        options = replace(options, inputs=None, kwargs=_of_tensors(inputs, names, options))
    stored: dict[str, tuple[int, ...]] = {}
    for name, entry in tensors.items() if any(options.sizes) else ():
        extents = [extent for _, extent in _dimensions(entry) if type(extent) is int]
        if len(extents) == len(get(entry.tensor, "sizes", list)):  # the shape with which the program was exported
            stored[name] = tuple(extents)
    requested = requested_inputs(options, list(tensors), stored=stored)
    for name, dtype in requested.dtypes.items():
        entry = tensors[name]
        meant = TYPES.get(get(entry.tensor, "dtype", int))
        if dtype != meant:
            fault = f"the input {entry.name!r} is {meant} in the program, not {dtype}"
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
    leaves = list(_leaves((*args, *(by_name[name] for name in ordered))))
    if len(leaves) != len(inputs):
        listed = ", ".join(entry.name for entry in inputs)
        raise InputError(f"{len(leaves)} inputs were given, and the program takes {len(inputs)}: {listed or 'none'}")
    return {entry.name: leaf for entry, leaf in zip(inputs, leaves, strict=True) if entry.tensor is not None}


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, Mapping):
        tree = tuple(tree.values())
    if isinstance(tree, (tuple, list)):
        for item in tree:
            yield from _leaves(item)
    else:
        yield tree
