"""From an archive to a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opcost.core.checked import Bad, get, instance, short
from opcost.core.graph import Graph, Role
from opcost.errors import SourceError
from opcost.frontends.options import CountOptions, refuse_running
from opcost.frontends.programs import ProgramBuilder, ProgramTensor, again_removed
from opcost.frontends.pt2.build import Run, described
from opcost.frontends.pt2.inputs import Input, bind
from opcost.frontends.pt2.program import Archive, Meta, Scope, name_of, one, read_archive

SCHEMA = 8
"""The major version of the format that is read."""


def load(source: Path, options: CountOptions) -> Graph:
    """Read an exported program and make it ready to be counted."""
    path = Path(source)
    refuse_running(options, f"{path} is an exported program")
    archive = read_archive(path)
    try:
        return _graph(archive, options, path.name)
    except Bad as exc:
        raise SourceError(f"{path} is not an exported program that can be read: {exc}") from exc


def _graph(archive: Archive, options: CountOptions, source: str) -> Graph:
    program = archive.program
    version = get(get(program, "schema_version", dict), "major", int)
    torch = instance(program.get("torch_version", "<=2.4"), str)
    if version != SCHEMA:
        raise Bad(
            f"it has format {version}, of torch {short(torch)}, and format {SCHEMA} is read: export the model anew"
        )
    module = get(program, "graph_module", dict)
    graph = get(module, "graph", dict)
    signature = [one(spec) for spec in get(get(module, "signature", dict), "input_specs", list)]
    tensors = get(graph, "tensor_values", dict)
    inputs = [entry for kind, spec in signature for entry in _inputs(kind, spec, tensors)]
    builder = ProgramBuilder(bind(inputs, _argument_names(module), program, options))
    scope = Scope(graph, builder.symbols)
    for entry in get(module, "module_call_graph", list):
        builder.modules.declare(again_removed(get(entry, "fqn", str)))
    # A value for every weight, buffer, constant and input; weights that are one tensor are one value
    weights = archive.weights
    made: dict[str, ProgramTensor] = {}
    known: dict[tuple[str, Meta], ProgramTensor] = {}
    homes: dict[str, int] = {}
    for kind, spec in signature:
        if kind == "user_input":
            form, argument = one(get(spec, "arg", dict))
            if form == "as_tensor":
                name = name_of(argument)
                made[name] = builder.made(name, described(scope.meta(name)), "input")
        elif kind in _ROLES:
            role, field = _ROLES[kind]
            name, full = name_of(get(spec, "arg", dict)), get(spec, field, str)
            meta = scope.meta(name)
            file = _file_of(weights.get(full), full)
            if (file, meta) not in known:
                trainable = role == "param" and meta.requires_grad
                known[file, meta] = builder.made(full, described(meta), role, home=homes.get(file), trainable=trainable)
                homes.setdefault(file, known[file, meta].value)
            made[name] = known[file, meta]
            if role != "const":
                builder.modules.hold(full, made[name].value, parameter=role == "param")
    outputs = Run(builder, graph, made)()
    builder.modules.leave(len(builder.ops))
    return builder.graph(
        source,
        "torch",
        {"version": torch},
        modules=builder.modules.all(),
        calls=builder.modules.calls,
        inputs=(made[entry.name].value for entry in inputs if entry.tensor is not None),
        outputs=dict.fromkeys(output.value for output in outputs),
    )


def _inputs(kind: str, spec: object, tensors: Mapping[str, Any]) -> Iterator[Input]:
    """The argument of the program that an entry of the signature stands for."""
    if kind == "constant_input":
        yield Input(get(spec, "name", str), None)
    elif kind == "user_input":
        form, argument = one(get(spec, "arg", dict))
        if form == "as_tensor":
            name = name_of(argument)
            yield Input(name, instance(tensors.get(name), dict))
        else:
            yield Input("", None)


def _argument_names(module: Mapping[str, Any]) -> list[str]:
    """The names of the arguments of the model that was exported."""
    for entry in get(module, "module_call_graph", list):
        signature = instance(entry, dict).get("signature")
        if get(entry, "fqn", str) == "" and signature is not None:
            names = instance(signature, dict).get("forward_arg_names")
            return [instance(name, str) for name in instance(names, list)] if names is not None else []
    return []


_ROLES: dict[str, tuple[Role, str]] = {
    "parameter": ("param", "parameter_name"),
    "buffer": ("buffer", "buffer_name"),
    "tensor_constant": ("const", "tensor_constant_name"),
}


def _file_of(entry: object, name: str) -> str:
    """Where a weight lies; one that the archive does not list lies alone."""
    if entry is None:
        return f"={name}"
    kind = "param" if get(entry, "is_param", bool) else "other"
    return f"{kind}/{get(entry, 'path_name', str)}"
