"""From an archive to a graph."""

from __future__ import annotations

from collections.abc import Mapping
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
            role = _ROLES[kind]
            name, full = name_of(get(spec, "arg", dict)), get(spec, f"{kind}_name", str)
            meta = scope.meta(name)
            entry, file = archive.weights.get(full), f"={full}"  # one that the archive does not list is stored alone
            if entry is not None:
                file = f"{'param' if get(entry, 'is_param', bool) else 'other'}/{get(entry, 'path_name', str)}"
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


def _argument_names(module: Mapping[str, Any]) -> list[str]:
    """The names of the arguments of the model that was exported."""
    for entry in get(module, "module_call_graph", list):
        signature = instance(entry, dict).get("signature")
        if get(entry, "fqn", str) == "" and signature is not None:
            names = instance(signature, dict).get("forward_arg_names")
            return [instance(name, str) for name in instance(names, list)] if names is not None else []
    return []


_ROLES: dict[str, Role] = {"parameter": "param", "buffer": "buffer", "tensor_constant": "const"}
