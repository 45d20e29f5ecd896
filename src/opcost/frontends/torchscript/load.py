"""From a TorchScript archive to a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opcost.core.checked import Bad
from opcost.core.graph import Graph
from opcost.errors import InputError, SourceError
from opcost.frontends.aten.call import Described, row_major
from opcost.frontends.inputs import requested_inputs
from opcost.frontends.options import CountOptions, refuse_running
from opcost.frontends.programs import ProgramBuilder, ProgramTensor, made_in
from opcost.frontends.torchscript.archive import Script, read_script
from opcost.frontends.torchscript.run import Run


def load(path: Path, options: CountOptions) -> Graph:
    """Read an archive and follow its code."""
    refuse_running(options, f"{path} is a TorchScript archive")
    try:
        script = read_script(path)
        return graph_of(script, options, path.name)
    except (Bad, RecursionError) as exc:
        raise SourceError(f"{path} is not a TorchScript archive that can be read: {exc}") from exc


def graph_of(script: Script, options: CountOptions, source: str) -> Graph:
    """The graph of a module's forward on the inputs that were asked for."""
    methods = script.class_of(script.root.kind).methods
    forward = methods.get("forward") or methods.get("forward__0")  # the first overload, which an LSTM has
    if forward is None:
        raise Bad("its module has no forward")
    names = [argument.arg for argument in forward.args.args[1:]]
    defaults = len(forward.args.defaults)
    asked = requested_inputs(options, names)
    builder = ProgramBuilder()
    run = Run(script, builder)
    given: list[Any] = []
    for place, name in enumerate(names):
        shape = asked.shapes.get(name)
        if shape is None:
            if place >= len(names) - defaults:
                break
            raise InputError(
                f"no shape was given for the input {name!r}: a TorchScript archive does not tell the shapes of its inputs",
                hint=f"give it: --input {name}:1x3x224x224, or shapes={{{name!r}: (1, 3, 224, 224)}}",
            )
        tensor = Described(tuple(shape), row_major(shape), asked.dtypes.get(name, "float32"))
        given.append(builder.made(name, tensor, "input"))
    run.weights.declare()
    results = run.module(script.root, "", forward.name, given, {})
    run.holds(results)
    run.weights.finish()
    builder.modules.leave(len(builder.ops))
    return builder.graph(
        source,
        "torch",
        {"mode": "eval"},
        modules=builder.modules.all(),
        calls=builder.modules.calls,
        inputs=[each.value for each in given if isinstance(each, ProgramTensor)],
        outputs=dict.fromkeys(each.value for each in made_in([results])),
    )
