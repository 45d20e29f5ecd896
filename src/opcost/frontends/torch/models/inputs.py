"""Inputs for a model: the user's own, made from shapes, or what the model itself says it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from opcost.errors import InputError, UnknownName
from opcost.frontends.inputs import InputRequest, Tree, arguments, check_one, nested, parse_dtype
from opcost.frontends.torch.guessing.families import guess
from opcost.frontends.torch.guessing.guess import Guess, Maker, Other, Probe, needed, signature
from opcost.frontends.torch.guessing.layers import example
from opcost.frontends.torch.models.unwrap import Function, type_name
from opcost.frontends.torch.tree import map_tensors, tensors_in


class Inputs(NamedTuple):
    """What a model is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: dict[int, str]
    """A name for every tensor among them, by its id."""
    guessed: str = ""
    """Where they come from, if nobody gave them."""
    others: tuple[Inputs, ...] = ()
    """What was guessed too, to be tried in this order where the model fails with the first."""
    note: str = ""
    """What is less about them than about the first, if anything."""
    on_trial: bool = False
    """With labels of which the model may make no loss: then others follow without them."""
    hint: str = ""
    """How to give inputs, where the model fails with all that were generated."""
    read_by: Callable[[str], Guess | None] | None = None
    """As in `Guess`."""


def attempts_of(model: nn.Module, inputs: Inputs, *, training: bool) -> list[Inputs]:
    """All that may be tried in turn until the model takes it; in training with labels before those without."""
    plain = (inputs, *inputs.others)
    return [each for one in plain for each in (*(_with_labels(model, one) if training else ()), one)]


def _with_labels(model: nn.Module, inputs: Inputs) -> list[Inputs]:
    """Guessed inputs with labels, in the forms in which a model may take them, the likeliest first."""
    given = inputs.kwargs
    if not inputs.guessed or "labels" in given or "labels" not in argument_names(model):
        return []
    name = type(model).__name__
    tokens = given.get("decoder_input_ids", given.get("input_ids"))
    batch = next((tensor.shape[:1] for tensor in tensors_in((inputs.args, given)) if tensor.dim()), None)
    image = given.get("pixel_values")
    shapes = [None if tokens is None else tokens.shape, batch]
    if ("Classification" in name and "Token" not in name) or "Choice" in name:
        shapes.reverse()
    if "Segmentation" in name and image is not None:
        shapes.insert(0, torch.Size((*image.shape[:1], *image.shape[-2:])))
    made = []
    for shape in dict.fromkeys(shape for shape in shapes if shape is not None):
        kwargs = {**given, "labels": torch.zeros(shape, dtype=torch.int64)}
        made.append(
            inputs._replace(kwargs=kwargs, names=input_names(model, inputs.args, kwargs), others=(), on_trial=True)
        )
    return made


def make_inputs(model: nn.Module, options: InputRequest, device: torch.device, probe: Probe) -> Inputs:
    """The inputs that were given, or made from shapes, or else what the model itself says it takes."""
    kwargs = dict(options.kwargs)
    check_one(options)
    if options.inputs is not None:
        args, given = _given(model, options.inputs)
        kwargs = {**given, **kwargs}
    elif options.shapes is not None:
        args, made = _from_shapes(model, options.shapes, options.dtypes, device)
        kwargs = {**made, **kwargs}
    elif tensors_in(kwargs):
        args = ()
    else:
        found = _from_model(model, options, probe)
        return from_guess(model, found, kwargs)
    if any(options.sizes):
        raise InputError(
            "a batch, tokens or image size was asked for, and inputs were given too", hint="give one of them"
        )
    _check_fit(model, args, kwargs)
    return Inputs(args, kwargs, input_names(model, args, kwargs))


def from_guess(model: nn.Module, found: Guess, given: Mapping[str, Any]) -> Inputs:
    """What was guessed, with the arguments that were given; those that may be tried instead are among its others."""
    others = tuple(_other(model, other, {**other.kwargs, **given}, found.source) for other in found.others)
    kwargs = {**found.kwargs, **given}
    _check_fit(model, found.args, kwargs)
    return Inputs(
        found.args,
        kwargs,
        input_names(model, found.args, kwargs),
        found.source,
        others,
        hint=found.hint,
        read_by=found.read_by,
    )


def in_type(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """The same inputs with their floats in this type."""
    names: dict[int, str] = {}

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        made = tensor.detach().to(dtype).requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor
        if id(tensor) in inputs.names:
            names[id(made)] = inputs.names[id(tensor)]
        return made

    args, kwargs = map_tensors((inputs.args, inputs.kwargs), cast)
    return inputs._replace(
        args=args, kwargs=kwargs, names=names, others=tuple(in_type(other, dtype) for other in inputs.others)
    )


def _other(model: nn.Module, other: Other, kwargs: dict[str, Any], guessed: str) -> Inputs:
    return Inputs(other.args, kwargs, input_names(model, other.args, kwargs), other.source or guessed, note=other.note)


def _given(model: nn.Module, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments: a tuple holds the first, a mapping of argument names is the second.

    A tuple with named fields, as a packed sequence, is one argument, and so is any other mapping.
    """
    if isinstance(inputs, tuple) and not hasattr(inputs, "_fields"):
        return inputs, {}
    if isinstance(inputs, Mapping) and inputs and set(inputs) <= set(argument_names(model)):
        return (), dict(inputs)
    return (inputs,), {}


def _check_fit(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Whether forward can be called so; a misspelt name is told here, where the right ones are known."""
    if model._forward_pre_hooks:  # they may change the arguments
        return
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as exc:
        what = type_name(model)
        known = argument_names(model)
        for name in kwargs:
            if name not in known:
                raise UnknownName(f"argument of {what}.forward", name, known) from exc
        raise InputError(f"the inputs do not fit {what}.forward{signature}: {exc}") from exc


def _from_shapes(
    model: nn.Module, shapes: Any, dtypes: Any, device: torch.device
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    ordered, named = arguments(shapes, dtypes, argument_names(model))
    return (
        tuple(_made(model, tree, device) for tree in ordered),
        {name: _made(model, tree, device) for name, tree in nested(named).items()},
    )


def _made(model: nn.Module, tree: Tree, device: torch.device) -> Any:
    """Tensors in the place of shapes."""
    if isinstance(tree, dict):
        return {name: _made(model, inner, device) for name, inner in tree.items()}
    if isinstance(tree, list):
        return [_made(model, inner, device) for inner in tree]
    return _tensor(model, tree.name.rpartition(".")[2], tree.shape, as_dtype(tree.dtype or None), device)


def as_dtype(wanted: Any) -> Any:
    """A torch element type from itself or from its name; None stays None."""
    if wanted is None or isinstance(wanted, torch.dtype):
        return wanted
    found = getattr(torch, parse_dtype(wanted), None)
    if not isinstance(found, torch.dtype):
        known = [name for name, value in vars(torch).items() if isinstance(value, torch.dtype)]
        raise UnknownName("element type of PyTorch", str(wanted), known)
    return found


_TOKEN_NAMES = (
    "input_ids",
    "token",
    "tokens",
    "idx",
    "ids",
    "decoder_input_ids",
    "token_ids",
    "token_type_ids",
    "position_ids",
)
_MASK_NAMES = ("attention_mask", "decoder_attention_mask")


def _tensor(model: nn.Module, name: str, shape: Any, dtype: torch.dtype | None, device: torch.device) -> torch.Tensor:
    """An input of this shape. Floats take no memory; integers are zeros and masks ones, because models look at them."""
    if dtype is None:
        if name in _TOKEN_NAMES or name in _MASK_NAMES:
            dtype = torch.int64
        else:
            dtype = next((p.dtype for p in model.parameters() if p.dtype.is_floating_point), torch.get_default_dtype())
    if dtype.is_floating_point or dtype.is_complex:
        return torch.empty(tuple(shape), dtype=dtype, device="meta")
    if dtype is torch.bool or name in _MASK_NAMES:
        return torch.ones(tuple(shape), dtype=dtype, device="cpu")
    return torch.zeros(tuple(shape), dtype=dtype, device="cpu")


def argument_names(model: nn.Module) -> list[str]:
    """The names of forward's arguments, as far as it says them."""
    if (exported := vars(model).get("graph_signature")) is not None:
        return [str(name) for name in exported.user_inputs]
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    schema = getattr(model.forward, "schema", None)
    if schema is not None:  # of a scripted or traced module, whose signature, if it has one, takes anything
        return [argument.name for argument in schema.arguments][1:]
    try:
        return [p.name for p in inspect.signature(model.forward).parameters.values() if p.kind in named]
    except (TypeError, ValueError):
        return []


def _from_model(model: nn.Module, options: InputRequest, probe: Probe) -> Guess:
    """What the model itself, or its library, says it takes, and who says so."""
    maker = Maker(model, options.sizes, probe, options.kwargs)
    found = guess(model, maker)
    if found is not None:
        if maker.unheeded:
            raise InputError(
                f"{' and '.join(sorted(maker.unheeded))} cannot be changed: nothing that {type_name(model)} is given, from "
                f"{found.source}, has such a size",
                hint="leave it out, or give the inputs: shapes=..., on the command line --input name:SHAPE",
            )
        return found
    if any(options.sizes):
        raise InputError(
            f"what {type_name(model)} takes is not known, so no size of it can be changed",
            hint="pass shapes=(1, 3, 224, 224) or, on the command line, --input 1x3x224x224",
        )
    missing = [name for name in needed(model) if name not in options.kwargs]
    if missing or not (options.kwargs or _runs_alone(model)):
        function = type_name(model) if isinstance(model, Function) else f"{type_name(model)}.forward"
        named = f"{function}({', '.join(map(str, signature(model)))})"
        raise InputError(f"{named} needs inputs, and none were given", hint=example(model, None, (missing or ["x"])[0]))
    return Guess((), {}, "the defaults of its forward" if signature(model) and not options.kwargs else "")


def _runs_alone(model: nn.Module) -> bool:
    """Whether forward has no parameters, or only those with a default that is a value."""
    return all(p.default is not None and p.default is not p.empty for p in signature(model))


def input_names(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, str]:
    """A readable name for each input tensor, after the argument in which it comes."""
    known = argument_names(model)
    names: dict[int, str] = {}
    pairs = [(known[i] if i < len(known) else f"input{i}", arg) for i, arg in enumerate(args)]
    for name, value in (*pairs, *kwargs.items()):
        alone = len(tensors_in(value)) == 1
        for key, part in value.items() if isinstance(value, Mapping) and not alone else ((None, value),):
            whole = name if key is None else f"{name}.{key}"
            found = tensors_in(part)
            for index, tensor in enumerate(found):
                names.setdefault(id(tensor), whole if len(found) == 1 else f"{whole}.{index}")
    return names
