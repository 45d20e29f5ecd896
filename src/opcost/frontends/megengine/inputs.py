"""The shapes that a model is counted with: those of the file, or others that the user asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opcost.errors import InputError, UnknownName
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
    wanted = _by_name(options, list(names))
    dtypes = _dtypes(options, list(names))
    stored = {v: t for op in model.operators if op.type == INPUT for v, t in zip(op.outputs, op.tensors, strict=True)}
    for name, dtype in dtypes.items():
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
        if before and len(before) != len(shape):
            raise InputError(f"input {name!r} has {len(before)} axes in {model.path}, not {len(shape)}")
        if shape != before:
            found[variable] = shape
    return found


def _by_name(options: CountOptions, names: list[str]) -> dict[str, tuple[int, ...]]:
    if options.inputs is not None and options.shapes is not None:
        raise InputError("both inputs and shapes were given", hint="pass one of them")
    given: Any = options.shapes
    if options.inputs is not None:
        given = options.inputs if isinstance(options.inputs, (tuple, Mapping)) else (options.inputs,)
        given = _map(given, _shape_of_data)
    elif given is not None and _is_shape(given):
        given = [given]
    if options.kwargs:
        named = {name: _shape_of_data(value) for name, value in options.kwargs.items()}
        given = {**(given if isinstance(given, Mapping) else dict(zip(names, given or (), strict=False))), **named}
    if given is None:
        return {}
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise UnknownName("input", str(name), names)
        return {str(name): _checked(shape, str(name)) for name, shape in given.items()}
    if len(given) > len(names):
        raise InputError(f"{len(given)} shapes were given for {len(names)} inputs: {', '.join(names)}")
    return {name: _checked(shape, name) for name, shape in zip(names, given, strict=False)}


def _map(given: Any, change: Any) -> Any:
    if isinstance(given, Mapping):
        return {name: change(value) for name, value in given.items()}
    return [change(value) for value in given]


def _shape_of_data(value: Any) -> tuple[int, ...]:
    shape = getattr(value, "shape", None)
    if shape is None:
        raise InputError(f"an input of type {type(value).__name__} has no shape", hint="pass arrays, or shapes=...")
    return tuple(int(extent) for extent in shape)


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and len(value) > 0
        and all(isinstance(n, int) and not isinstance(n, bool) for n in value)
    )


def _checked(shape: Any, name: str) -> tuple[int, ...]:
    if not _is_shape(shape) or any(extent < 0 for extent in shape):
        raise InputError(f"{shape!r} is not a shape for input {name!r}", hint="write a shape as (1, 3, 224, 224)")
    if len(shape) > MAX_RANK:
        raise InputError(f"input {name!r} cannot have {len(shape)} axes; MegEngine's tensors have at most {MAX_RANK}")
    return tuple(shape)


def _dtypes(options: CountOptions, names: list[str]) -> dict[str, str]:
    """The element types that were asked for, by input."""
    given = options.dtypes
    if given is None:
        return {}
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise UnknownName("input", str(name), names)
        return {str(name): str(dtype) for name, dtype in given.items() if dtype is not None}
    several = [given] * len(names) if isinstance(given, str) else list(given)
    return {name: str(dtype) for name, dtype in zip(names, several, strict=False) if dtype is not None}
