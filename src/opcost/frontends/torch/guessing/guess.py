"""What every family of models shares: a guess, the sizes that were asked for, and tensors that need no memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import nn

from opcost.core.option import Sizes
from opcost.errors import InputError

TOKENS = 2048
"""Of a language model, unless it reads fewer."""

Probe = Callable[..., list[tuple[int, ...]]]
"""The shapes that a method of the model hands back for these arguments, found without data."""


class Other(NamedTuple):
    """Keyword arguments for a model that fails with those that were made first."""

    kwargs: dict[str, Any]
    note: str = ""
    """What is less about them than about the first, if anything."""
    args: tuple[Any, ...] = ()
    source: str = ""
    """Where these come from, if not from where the first do."""


class Guess(NamedTuple):
    """Arguments of `forward`, and a sentence on where they come from."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    source: str
    others: tuple[Other, ...] = ()
    """What to try instead, in order."""
    hint: str = ""
    """How to give inputs of this kind, where the model fails with all of these."""
    read_by: Callable[[str], Guess | None] | None = None
    """What the module of this path reads: the one in which the model failed on its inputs as they were given."""


class Maker:
    """Makes inputs for one model: floats as its weights are, without data, and integers with their content."""

    def __init__(self, model: nn.Module, sizes: Sizes, probe: Probe, given: Iterable[str] = ()) -> None:
        self.model = model
        self.given = frozenset(given)
        """Arguments that the caller gives."""
        self.sizes = sizes
        self.probe = probe
        self.unheeded = {name for name, size in sizes._asdict().items() if size is not None}
        """Sizes that were asked for and of which nothing was made yet."""
        self.dtype = next((p.dtype for p in model.parameters() if p.dtype.is_floating_point), torch.get_default_dtype())

    @property
    def batch(self) -> int:
        """How many of everything there are."""
        self.unheeded.discard("batch")
        return self.sizes.batch or 1

    def floats(self, *shape: int) -> torch.Tensor:
        """Numbers of which nothing is known but the shape; the batch comes first."""
        return self.empty(self.batch, *shape)

    def empty(self, *shape: int) -> torch.Tensor:
        """The same without a batch."""
        return torch.empty(shape, dtype=self.dtype, device="meta")

    def integers(self, *shape: int, value: int = 0) -> torch.Tensor:
        """Tokens, masks and the like, all equal."""
        return torch.full((self.batch, *shape), value, dtype=torch.int64, device="cpu")

    def rows(self, row: list[int]) -> torch.Tensor:
        """The same integers for each of the batch."""
        return torch.tensor([row] * self.batch, dtype=torch.int64, device="cpu")

    def image(self, usual: int | tuple[int, int]) -> tuple[int, int]:
        """Height and width of an image: those asked for, or the model's usual ones."""
        self.unheeded.discard("image")
        if self.sizes.image is not None:
            return self.sizes.image, self.sizes.image
        return (usual, usual) if isinstance(usual, int) else usual

    def tokens(self, most: int | None) -> int:
        """Tokens of a sequence: those asked for, else as many as a language model is usually told, if it reads so many."""
        self.unheeded.discard("tokens")
        return self.sizes.tokens or min(TOKENS, most or TOKENS)


def comes_from(model: nn.Module, package: str) -> bool:
    """Whether a class of the model, or one above, is a module of this package."""
    bases = (cls for cls in type(model).__mro__ if issubclass(cls, nn.Module))
    return any(cls.__module__.partition(".")[0] == package for cls in bases)


def arguments(model: nn.Module) -> list[str]:
    """The names of forward's arguments, as far as it says them."""
    return [parameter.name for parameter in parameters_of(model)]


def needed(model: nn.Module) -> list[str]:
    """Those without a default."""
    return [parameter.name for parameter in parameters_of(model) if parameter.default is parameter.empty]


def takes_any(model: nn.Module) -> bool:
    """Whether forward takes keyword arguments that it does not name."""
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature(model))


def parameters_of(model: nn.Module) -> list[inspect.Parameter]:
    """The named parameters of forward."""
    return [p for p in signature(model) if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def signature(model: nn.Module) -> list[inspect.Parameter]:
    """All parameters of forward; those of a scripted or traced module, whose signature takes anything, are in its schema."""
    if (schema := getattr(model.forward, "schema", None)) is not None:
        each = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return [inspect.Parameter(argument.name, each) for argument in schema.arguments[1:]]
    try:
        return list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):  # a method of a traced module
        return []


def cannot(model: nn.Module, name: str) -> InputError:
    """What is said where an argument that the model needs is of no known kind."""
    return InputError(
        f"{type(model).__name__}.forward needs {', '.join(needed(model))}, and {name} cannot be guessed",
        hint=f"pass kwargs={{{name!r}: ...}}, or shapes (on the command line --input {name}:SHAPE)",
    )


def features_in(result: Any) -> list[torch.Tensor]:
    """The tensors that stand for features in what a method hands back: the pooled ones where there are such."""
    for name in ("pooler_output", "deepstack_features", "last_hidden_state"):
        if (found := getattr(result, name, None)) is not None:
            return features_in(found)
    if isinstance(result, torch.Tensor):
        return [result]
    if not isinstance(result, (list, tuple)):
        return []
    if result and isinstance(result[0], tuple):  # of several layers, each with its number: of the first
        return features_in(result[0][1:])
    return [tensor for part in result for tensor in features_in(part)]
