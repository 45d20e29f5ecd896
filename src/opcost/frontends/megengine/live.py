"""A live MegEngine module: traced and dumped into memory by MegEngine itself, then read like a file.

The graph is dumped as it is, before the optimizer folds or fuses anything. The module's mode is put back as it was.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opcost.core.graph import Graph
from opcost.errors import ForwardError, InputError, OpcostError
from opcost.frontends.inputs import arguments, arrays_in, check_one, one_tensor, padded
from opcost.frontends.megengine.graph import build_graph
from opcost.frontends.megengine.model import parse_model
from opcost.frontends.options import CountOptions


def load_module(module: Any, options: CountOptions) -> Graph:
    """Run a module once under MegEngine's trace and make its graph ready to be counted."""
    from megengine.jit import trace

    named = _arguments(module, options)
    with _mode(module, training=options.mode == "train"):
        traced = trace(lambda *args: _flat(module(*args)), symbolic=True, capture_as_const=True)
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
                f"{type(module).__name__} could not be traced with {shapes or 'no inputs'}: {type(exc).__name__}: {exc}",
                hint="count needs inputs that the module can run on",
            ) from exc
    return build_graph(parse_model(file.getvalue(), type(module).__name__), CountOptions())


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
    check_one(options)
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


def _flat(result: Any) -> list[Any]:
    """The tensors in what a module returned; trace takes nothing else."""
    import megengine

    if isinstance(result, megengine.Tensor):
        return [result]
    items = result.values() if isinstance(result, Mapping) else result if isinstance(result, (list, tuple)) else ()
    return [tensor for item in items for tensor in _flat(item)]


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
