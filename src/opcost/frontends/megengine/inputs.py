"""The shapes that a model is counted with: those of the file, or others that the user asks for."""

from __future__ import annotations

from opcost.errors import InputError
from opcost.frontends.inputs import requested_inputs
from opcost.frontends.megengine.model import INPUT, MAX_RANK, Model
from opcost.frontends.options import CountOptions


def input_names(model: Model) -> dict[str, int]:
    """The model's inputs by name, in the order of the file; one without a name is called after its place."""
    names: dict[str, int] = {}
    for op in model.operators:
        if op.type != INPUT:
            continue
        for variable, tensor in zip(op.outputs, op.tensors, strict=True):
            name = tensor.name or op.name or model.variables[variable].name or f"input{len(names)}"
            names[name if name not in names else f"{name}#{len(names)}"] = variable
    return names


def asked_shapes(model: Model, options: CountOptions) -> dict[int, tuple[int, ...]]:
    """Shapes that replace those of the file, by variable."""
    names = input_names(model)
    stored = {v: t for op in model.operators if op.type == INPUT for v, t in zip(op.outputs, op.tensors, strict=True)}
    own = {name: stored[variable].shape for name, variable in names.items() if stored[variable].shape}
    asked = requested_inputs(options, list(names), stored=own)
    wanted = asked.shapes
    for name, dtype in asked.dtypes.items() if options.dtypes is not None else ():  # an array lends only its shape
        held = stored[names[name]].dtype.name
        if dtype != held:
            raise InputError(
                f"input {name!r} holds {held} in {model.path}, not {dtype}",
                hint="the types of a dump are fixed; leave the type out, or dump the model again",
            )
    for name, variable in names.items():
        if name not in wanted and not stored[variable].shape:
            raise InputError(
                f"{model.path} does not say which shape its input {name!r} has",
                hint=f"give it: shapes={{{name!r}: (1, 3, 224, 224)}} or --input {name}:1x3x224x224",
            )
    found = {}
    for name, shape in wanted.items():
        variable = names[name]
        before = stored[variable].shape
        if len(shape) > MAX_RANK:
            told = f"input {name!r} cannot have {len(shape)} axes; MegEngine's tensors have at most {MAX_RANK}"
            raise InputError(told)
        if before and len(before) != len(shape):
            raise InputError(f"input {name!r} has {len(before)} axes in {model.path}, not {len(shape)}")
        if shape != before:
            found[variable] = shape
    return found
