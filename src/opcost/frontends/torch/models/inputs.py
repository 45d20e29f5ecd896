"""Inputs for a model: the user's own, made from shapes, or the defaults of the model or its library."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import nn

from opcost.core.graph import Graph, Note
from opcost.errors import InputError, UnknownName
from opcost.frontends.inputs import Tree, arguments, nested, parse_dtype
from opcost.frontends.options import InputOptions
from opcost.frontends.torch.default_inputs import engine
from opcost.frontends.torch.default_inputs.engine import InputMaker, Inputs, Probe, needed, signature
from opcost.frontends.torch.default_inputs.layers import example
from opcost.frontends.torch.default_inputs.libraries import default_inputs
from opcost.frontends.torch.models.unwrap import FunctionModel, type_name
from opcost.frontends.torch.tree import map_tensors, tensors_in


def attempts_of(model: nn.Module, inputs: Inputs, *, training: bool) -> list[Inputs]:
    """All that may be tried in turn until the model takes it; in training with labels before those without."""
    plain = (inputs, *inputs.others)
    return [each for one in plain for each in (*(_with_labels(model, one) if training else ()), one)]


def _with_labels(model: nn.Module, inputs: Inputs) -> list[Inputs]:
    """Default inputs with labels, in the shapes in which a model may take them, the likeliest first."""
    given = inputs.kwargs
    if not inputs.source or "labels" in given or "labels" not in argument_names(model):
        return []
    if "use_cache" in argument_names(model):
        given = {"use_cache": False, **given}  # as the trainer of transformers does
    name = type(model).__name__
    tokens = given.get("decoder_input_ids", given.get("input_ids"))
    batch = next((tensor.shape[:1] for tensor in tensors_in((inputs.args, given)) if tensor.dim()), None)
    image = given.get("pixel_values")
    shapes = [None if tokens is None else tokens.shape, batch]
    if ("Classification" in name and "Token" not in name) or "Choice" in name:
        shapes.reverse()
    if "Segmentation" in name and image is not None:
        shapes.insert(0, torch.Size((*image.shape[:1], *image.shape[-2:])))
    labels = [torch.zeros(shape, dtype=torch.int64) for shape in dict.fromkeys(shapes) if shape is not None]
    return [inputs._replace(kwargs={**given, "labels": each}, others=(), on_trial=True) for each in labels]


def make_inputs(model: nn.Module, options: InputOptions, probe: Probe) -> Inputs:
    """The inputs that were given, or made from shapes, or else the model's defaults."""
    kwargs = dict(options.kwargs)
    args: tuple[Any, ...] = ()
    if options.inputs is not None:
        # A tuple holds positional arguments, but for one with named fields, as a packed sequence, which is one argument;
        # a mapping of argument names holds keyword arguments, and any other is one argument.
        given = options.inputs
        if isinstance(given, Mapping) and given and set(given) <= set(argument_names(model)):
            kwargs = {**given, **kwargs}
        else:
            args = given if isinstance(given, tuple) and not hasattr(given, "_fields") else (given,)
    elif options.shapes is not None:
        ordered, named = arguments(options.shapes, options.dtypes, argument_names(model))
        args = tuple(_made(model, tree) for tree in ordered)
        kwargs = {**{name: _made(model, tree) for name, tree in nested(named).items()}, **kwargs}
    elif not tensors_in(kwargs):
        return from_defaults(model, _defaults(model, options, probe), kwargs)
    if any(options.sizes):
        fault = "a batch, tokens or image size was requested, and inputs were given too"
        raise InputError(fault, hint="give one of them")
    _check_fit(model, args, kwargs)
    return Inputs(args, kwargs)


def from_defaults(model: nn.Module, found: Inputs, given: Mapping[str, Any]) -> Inputs:
    """Default inputs, with the arguments that were given."""
    first, *others = (each._replace(kwargs={**each.kwargs, **given}) for each in (found, *found.others))
    _check_fit(model, first.args, first.kwargs)
    return first._replace(others=tuple(others))


def in_type(inputs: Inputs, wanted: Any) -> Inputs:
    """The same inputs with their floats in this type, or as they are."""
    if (dtype := as_dtype(wanted)) is None:
        return inputs
    return each_float(inputs, lambda tensor: tensor.detach().to(dtype))


def each_float(inputs: Inputs, changed: Callable[[torch.Tensor], torch.Tensor]) -> Inputs:
    """The same inputs with each tensor of floats changed."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        return changed(tensor).requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor

    args, kwargs = map_tensors((inputs.args, inputs.kwargs), change)
    return inputs._replace(args=args, kwargs=kwargs, others=tuple(each_float(each, changed) for each in inputs.others))


def _check_fit(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise if forward cannot be called so; a misspelt name is reported here, where the right ones are known."""
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


def _made(model: nn.Module, tree: Tree) -> Any:
    """Tensors in the place of shapes: floats take no memory; integers are zeros and masks ones, because models read them."""
    if isinstance(tree, dict):
        return {name: _made(model, inner) for name, inner in tree.items()}
    if isinstance(tree, list):
        return [_made(model, inner) for inner in tree]
    name, dtype = tree.name.rpartition(".")[2], as_dtype(tree.dtype or None)
    if dtype is None:
        dtype = torch.int64 if name in _TOKENS or name in _MASKS else engine.float_type(model)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.empty(tuple(tree.shape), dtype=dtype, device="meta")
    value = int(dtype is torch.bool or name in _MASKS)
    return torch.full(tuple(tree.shape), value, dtype=dtype, device="cpu")


_MASKS = ("attention_mask", "decoder_attention_mask")
_TOKENS = "input_ids token tokens idx ids decoder_input_ids token_ids token_type_ids position_ids".split()


def as_dtype(wanted: Any) -> Any:
    """A torch element type from itself or from its name; None stays None."""
    if wanted is None or isinstance(wanted, torch.dtype):
        return wanted
    found = getattr(torch, parse_dtype(wanted), None)
    if not isinstance(found, torch.dtype):
        known = [name for name, value in vars(torch).items() if isinstance(value, torch.dtype)]
        raise UnknownName("element type of PyTorch", str(wanted), known)
    return found


def argument_names(model: nn.Module) -> list[str]:
    """The names of forward's arguments, as far as it names them."""
    exported = vars(model).get("graph_signature")
    return engine.arguments(model) if exported is None else [str(name) for name in exported.user_inputs]


def _defaults(model: nn.Module, options: InputOptions, probe: Probe) -> Inputs:
    """The defaults of the model or its library, in the requested sizes."""
    maker = InputMaker(model, options.sizes, probe, options.kwargs)
    found = default_inputs(model, maker)
    if found is not None and maker.unused:
        raise InputError(
            f"{' and '.join(sorted(maker.unused))} cannot be changed: nothing that {type_name(model)} is given, from "
            f"{found.source}, has such a size",
            hint="leave it out, or give the inputs: shapes=..., on the command line --input name:SHAPE",
        )
    if found is not None:
        return found
    if any(options.sizes):
        fault = f"what {type_name(model)} takes is not known, so no size of it can be changed"
        raise InputError(fault, hint="pass shapes=(1, 3, 224, 224) or, on the command line, --input 1x3x224x224")
    missing = [name for name in needed(model) if name not in options.kwargs]
    all_have_values = all(p.default is not None and p.default is not p.empty for p in signature(model))
    if missing or not (options.kwargs or all_have_values):
        function = type_name(model) if isinstance(model, FunctionModel) else f"{type_name(model)}.forward"
        named = f"{function}({', '.join(map(str, signature(model)))})"
        raise InputError(f"{named} needs inputs, and none were given", hint=example(model, None, (missing or ["x"])[0]))
    return Inputs((), {}, "the defaults of its forward" if signature(model) and not options.kwargs else "")


def input_names(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, str]:
    """A readable name for each input tensor, after its argument."""
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


def resized(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor like this one in another shape: floats take no memory; integers are repeated, because models read them."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        made = torch.empty(tuple(shape), dtype=tensor.dtype, device="meta")
        return made.requires_grad_(tensor.requires_grad)
    for dim, (wanted, extent) in enumerate(zip(shape, tensor.shape, strict=True)):
        if wanted != extent:
            places = torch.arange(wanted, device=tensor.device) % max(1, extent)
            tensor = tensor.index_select(dim, places)
    return tensor


# -- whether default inputs reach the model ---------------------------------------------------------------------------

CHANGE = "--batch, --tokens, --image or --input (in Python shapes=) change them"


def note_of_defaults(graph: Graph, source: str, label: str, *, takes_more: bool) -> Note:
    """The report's note on default inputs; where they leave most parameters unread and forward takes more, an error."""
    inputs = [graph.values[value] for value in graph.inputs]
    made = ", ".join(f"{value.name} {value.spec} {value.spec.dtype}" for value in inputs) or "nothing"
    # Elements of parameters that no operator reads, by the part of the model that owns them, and of all
    read = {graph.values[value].storage for op in graph.ops for value in op.inputs}
    seen: set[int] = set()
    unread: dict[str, int] = {}
    total = 0
    for module in graph.modules:
        for _, place in module.parameters:
            value = graph.values[place]
            if value.storage in seen or not value.spec.known:
                continue
            seen.add(value.storage)
            elements = prod(value.spec.dims)
            total += elements
            if value.storage not in read:
                part = module.path.partition(".")[0]
                unread[part] = unread.get(part, 0) + elements
    if takes_more and 2 * sum(unread.values()) > total:
        worst = max(unread, key=lambda name: unread[name])
        raise InputError(
            f"no inputs were given, and what could be made from {source} ({made}) leaves {sum(unread.values()) / total:.0%} of "
            f"the parameters of {label} unread, most of them in {worst or 'the model itself'}",
            hint="pass inputs=..., shapes=... or, on the command line, --input name:SHAPE for what the model takes besides",
        )
    large = {name: count for name, count in unread.items() if 20 * count > total}
    rest = "".join(f"; {count:,} parameters of {name} are not read" for name, count in large.items())
    return Note("guessed-inputs", f"no inputs were given: {made}, from {source}{rest}; {CHANGE}")
