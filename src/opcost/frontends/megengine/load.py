"""From a file or a live module to a graph."""

import inspect
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opcost.core.graph import Graph
from opcost.errors import ForwardError, InputError, OpcostError
from opcost.frontends.inputs import arguments, arrays_in, leaves, one_tensor, padded, requested_inputs
from opcost.frontends.megengine.model import INPUT, MAX_RANK, Model, input_names, parse_model, read_model
from opcost.frontends.megengine.walk import DumpWalk
from opcost.frontends.options import CountOptions, refuse_running


def load(source: Any, options: CountOptions) -> Graph:
    """Read a dump, or trace a module, and make it ready to be counted."""
    if isinstance(source, (str, Path)):
        refuse_running(options, f"{source} is a dump of the forward pass")
        return build_graph(read_model(source), options)
    if options.trains:
        fault = "MegEngine records the forward pass only; a backward pass cannot be counted from it"
        raise InputError(fault, hint="count it without that option")
    # Run a module once under MegEngine's trace and make its graph ready to be counted. The graph is
    # dumped as it is, before the optimizer folds or fuses anything. The module's mode is restored
    from megengine import Tensor
    from megengine.jit import trace

    named = _arguments(source, options)
    with _mode(source, training=options.mode == "train"):
        traced = trace(lambda *args: [*leaves(source(*args), Tensor)], symbolic=True, capture_as_const=True)
        file = io.BytesIO()
        try:
            traced(*named.values())
            traced.dump(
                file, arg_names=list(named), keep_var_name=2, no_change_graph=True, optimize_for_inference=False
            )
        except OpcostError:
            raise
        except Exception as exc:
            shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in named.items())
            raise ForwardError(
                f"{type(source).__name__} could not be traced with {shapes or 'no inputs'}: {type(exc).__name__}: {exc}",
                hint="count needs inputs that the module can run on",
            ) from exc
    return build_graph(parse_model(file.getvalue(), type(source).__name__), CountOptions())


def build_graph(model: Model, options: CountOptions) -> Graph:
    """The graph of a dump on the shapes that the options give."""
    return DumpWalk(model, requested_shapes(model, options)).run().built()


def requested_shapes(model: Model, options: CountOptions) -> dict[int, tuple[int, ...]]:
    """Shapes that replace those of the file, by variable."""
    names = input_names(model)
    stored = {variable: tensor for _, variable, tensor in model.brought_in(INPUT)}
    own = {name: stored[variable].shape for name, variable in names.items() if stored[variable].shape}
    requested = requested_inputs(options, list(names), stored=own)
    wanted = requested.shapes
    for name, dtype in requested.dtypes.items() if options.dtypes is not None else ():  # an array lends only its shape
        own_dtype = stored[names[name]].dtype.name
        if dtype != own_dtype:
            hint = "the types of a dump are fixed; leave the type out, or dump the model again"
            raise InputError(f"input {name!r} holds {own_dtype} in {model.path}, not {dtype}", hint=hint)
    for name, variable in names.items():
        if name not in wanted and not stored[variable].shape:
            hint = f"give it: shapes={{{name!r}: (1, 3, 224, 224)}} or --input {name}:1x3x224x224"
            raise InputError(f"{model.path} does not say which shape its input {name!r} has", hint=hint)
    found = {}
    for name, shape in wanted.items():
        variable = names[name]
        before = stored[variable].shape
        if len(shape) > MAX_RANK:
            most = f"MegEngine's tensors have at most {MAX_RANK}"
            raise InputError(f"input {name!r} cannot have {len(shape)} axes; {most}")
        if before and len(before) != len(shape):
            raise InputError(f"input {name!r} has {len(before)} axes in {model.path}, not {len(shape)}")
        if shape != before:
            found[variable] = shape
    return found


# -- live modules: traced and dumped into memory by MegEngine itself, then read like a file ----------------------------


def _arguments(module: Any, options: CountOptions) -> dict[str, Any]:
    """The tensors to run on, by the names of the arguments of `forward`; of zeros where only the shape is given."""
    import megengine
    import numpy as np

    names = [name for name in inspect.signature(module.forward).parameters if name not in ("args", "kwargs")]
    if options.inputs is None and options.shapes is None and not options.kwargs:
        raise InputError(
            f"{type(module).__name__}.forward needs {', '.join(names) or 'nothing'}, and nothing was given",
            hint="pass inputs=..., or shapes=(1, 3, 224, 224)",
        )
    ordered, named = arrays_in(options)
    arrays = {**dict(zip(padded(names, len(ordered)), ordered, strict=True)), **named}
    given = {
        name: array if isinstance(array, megengine.Tensor) else megengine.tensor(np.asarray(array))
        for name, array in arrays.items()
    }
    listed, by_name = arguments(options.shapes, options.dtypes, names)
    made = {**dict(zip(padded(names, len(listed)), listed, strict=True)), **by_name}
    zeros = {name: one_tensor(tree, name) for name, tree in made.items()}
    return {**{n: megengine.tensor(np.zeros(s.shape, dtype=s.dtype or "float32")) for n, s in zeros.items()}, **given}


@contextmanager
def _mode(module: Any, *, training: bool) -> Iterator[None]:
    """The module in this mode, and every part of it back in its own afterwards."""
    before = [(part, part.training) for part in module.modules()]
    module.train(training)
    try:
        yield
    finally:
        for part, mode in before:
            part.training = mode
