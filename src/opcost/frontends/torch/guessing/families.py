"""All families of models, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from torch.nn.parameter import is_lazy

from opcost.frontends.torch.guessing import others
from opcost.frontends.torch.guessing.diffusion import diffusers
from opcost.frontends.torch.guessing.graphs import torch_geometric
from opcost.frontends.torch.guessing.guess import Guess, Maker, Other, arguments, needed, signature, takes_any
from opcost.frontends.torch.guessing.images import timm, torchvision
from opcost.frontends.torch.guessing.layers import example, from_layers
from opcost.frontends.torch.guessing.transformers import transformers

FAMILIES: tuple[Callable[[nn.Module, Maker], Guess | None], ...] = (
    others.lightning,
    others.sentence_transformers,
    diffusers,
    others.open_clip,
    transformers,
    timm,
    torchvision,
    torch_geometric,
)


def guess(model: nn.Module, maker: Maker) -> Guess | None:
    """What the first family says that knows the model or its largest part, or else what its first layers read."""
    if _hands_on(model) and (found := _of_only_part(model, maker)) is not None:
        return found
    return _known(model, maker) or _of_only_part(model, maker) or from_layers(model, maker)


def _known(model: nn.Module, maker: Maker) -> Guess | None:
    return next((found for family in FAMILIES if (found := family(model, maker)) is not None), None)


def _of_only_part(model: nn.Module, maker: Maker) -> Guess | None:
    """The inputs of the part that has nearly all parameters, where the model takes arguments of the same names or just one.

    A model whose forward names no argument hands all of them on.
    """
    sizes = {part: _parameters(part) for part in model.children()}
    part = max(sizes, key=lambda part: sizes[part], default=None)
    contained = isinstance(part, (nn.ModuleList, nn.ModuleDict))
    if part is None or contained or 10 * sizes[part] < 9 * _parameters(model):
        return None
    if _hands_on(model):
        found = guess(part, maker)
        if found is not None and not takes_any(model):  # it has only places for them
            others = tuple(o._replace(args=(*o.args, *o.kwargs.values()), kwargs={}) for o in found.others)
            found = found._replace(args=(*found.args, *found.kwargs.values()), kwargs={}, others=others)
        return found and found._replace(hint=found.hint or example(model, None, "x"))
    found = _known(part, maker) or _of_only_part(part, maker)
    if found is None:
        return None
    named = {**dict(zip(arguments(part), found.args, strict=False)), **found.kwargs}
    source = f"{found.source}, as its {type(part).__name__} takes it"
    wanted, names = needed(model), arguments(model)
    if set(wanted) <= named.keys():
        fits = [
            {name: each[name] for name in names if name in each} for each in (named, *(o.kwargs for o in found.others))
        ]
        return Guess((), fits[0], source, tuple(map(Other, fits[1:])))
    return Guess((*named.values(),), {}, source) if len(wanted) == len(named) == 1 else None


def _hands_on(model: nn.Module) -> bool:
    """Whether forward takes arguments and names none of them."""
    return bool(signature(model)) and not arguments(model)


def _parameters(model: nn.Module) -> int:
    """Elements of all parameters that have a shape already."""
    return sum(parameter.numel() for parameter in model.parameters() if not is_lazy(parameter))
