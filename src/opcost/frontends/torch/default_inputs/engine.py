"""The engine of default inputs: candidates, words for shapes, and tensors that need no memory.

A library has a section of `arguments.txt`, with a shape in words for each argument, such as `B T hidden_size` (see
`ShapeWords.make`), and a subclass of `ShapeWords` that knows the library's own words.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from itertools import chain
from math import prod
from typing import Any, ClassVar, NamedTuple, TypeGuard

import torch
from torch import nn

from opcost.core.option import Sizes
from opcost.errors import InputError

TOKENS = 2048  # Of a language model, unless it reads fewer

Probe = Callable[..., list[tuple[int, ...]]]
"""The shapes that a method of the model returns for these arguments, found without data."""


class Inputs(NamedTuple):
    """What a model is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    source: str = ""  # Where default inputs come from; empty for those that the user gave
    others: tuple[Inputs, ...] = ()  # Other defaults, to be tried in this order where the model fails with the first
    hint: str = ""  # How to give inputs of this kind, where the model fails with all of these
    read_by: Callable[[str], Inputs | None] | None = None
    """What the module of this path reads: the one in which the model failed on its inputs as they were given."""
    note: str = ""  # What these lack in comparison with the first, if anything
    on_trial: bool = False  # With labels of which the model may make no loss: then others follow without them


def candidates(made: Iterable[dict[str, Any]], source: str) -> Inputs:
    """Keyword arguments, and those to try instead."""
    first, *others = (Inputs((), kwargs, source) for kwargs in made)
    return first._replace(others=tuple(others))


class InputMaker:
    """Makes inputs for one model: floats as its weights are, without data, and integers with their content."""

    def __init__(self, model: nn.Module, sizes: Sizes, probe: Probe, given: Iterable[str] = ()) -> None:
        self.given = frozenset(given)
        """Arguments that the caller gives."""
        self.sizes, self.probe, self.dtype = sizes, probe, float_type(model)
        self.unused = {name for name, size in sizes._asdict().items() if size is not None}
        """Requested sizes that no input has so far."""

    @property
    def batch(self) -> int:
        """The batch size."""
        self.unused.discard("batch")
        return self.sizes.batch or 1

    def floats(self, *shape: int) -> torch.Tensor:
        """Numbers of which only the shape is known: the batch, then these extents."""
        return self.empty(self.batch, *shape)

    def empty(self, *shape: int) -> torch.Tensor:
        """The same without a batch."""
        return torch.empty(shape, dtype=self.dtype, device="meta")

    def integers(self, *shape: int, value: int = 0) -> torch.Tensor:
        """Tokens, masks and the like, all equal."""
        return torch.full((self.batch, *shape), value, dtype=torch.int64, device="cpu")

    def rows(self, row: list[int]) -> torch.Tensor:
        """The same integers for each sample of the batch."""
        return torch.tensor([row] * self.batch, dtype=torch.int64, device="cpu")

    def image(self, usual: int | tuple[int, int]) -> tuple[int, int]:
        """Height and width of an image: the requested ones, or the model's usual ones."""
        self.unused.discard("image")
        usual = self.sizes.image or usual
        return (usual, usual) if isinstance(usual, int) else usual

    def tokens(self, most: int | None) -> int:
        """Tokens of a sequence: those requested, else the usual number, if the model reads that many."""
        self.unused.discard("tokens")
        return self.sizes.tokens or min(TOKENS, most or TOKENS)


def float_type(model: nn.Module) -> torch.dtype:
    """The element type of a model's floating parameters."""
    return next((p.dtype for p in model.parameters() if p.dtype.is_floating_point), torch.get_default_dtype())


# -- words -------------------------------------------------------------------------------------------------------------

_SPEC = re.compile(r"(int|bool)?(?:=(\S+))? ?(.*)")


class ShapeWords:
    """What words in shapes mean for one model: a method, one of `words`, else an entry of the model's configuration."""

    words: ClassVar[Mapping[str, str | Callable[[Any], Any]]] = {}
    """The library's own words, by other words or a function; upper-case where the user can request the size."""

    def __init__(self, model: nn.Module, maker: InputMaker) -> None:
        self.model, self.maker = model, maker
        self.names, self.needed = arguments(model), needed(model)

    def entry(self, name: str) -> int | None:
        """A number of the model's configuration."""
        raise NotImplementedError

    def make(self, spec: str | Callable[[Any], Any]) -> Any:
        """What is specified in words or by a function, or None where a word has no value for this model.

        `B T width` is a tensor of floats, `int=1 B T` one of ones, `int=H,W B` one of such rows, `bool B` one of False, and `=T`
        the number itself. A word may join others: `a|b` is the first that has a value, `a*b` the product, `a+b` the sum. A tuple
        adds several axes. `@name` adds none, and has a value where forward has this argument.
        """
        if not isinstance(spec, str):
            return spec(self)
        kind, value, shape = _SPEC.fullmatch(spec).groups()  # type: ignore[union-attr]
        words, values = shape.split(), value.split(",") if value else []
        found: dict[str, Any] = {}
        # Sizes that can be requested are read last, so that they count as used only where all else is known.
        for word in sorted([*words, *values], key=str.isupper):
            if (extent := self.value(word)) is None:
                return None
            found[word] = extent
        if kind is None and value:
            return found[value]
        extents = (found[word] for word in words)
        size = tuple(chain.from_iterable(each if isinstance(each, tuple) else (each,) for each in extents))
        if kind is None:
            return self.maker.empty(*size)
        row = [found[each] for each in values] or [0]
        rows = torch.tensor(row, dtype=torch.bool if kind == "bool" else torch.int64, device="cpu").repeat(*size, 1)
        return rows if len(row) > 1 else rows[..., 0]

    def value(self, word: str) -> Any:
        """The number, or the tuple of numbers, that a word means; None where it has none for this model."""
        if "|" in word:
            return next((value for part in word.split("|") if (value := self.value(part)) is not None), None)
        for sign, join in (("+", sum), ("*", prod)):
            if sign in word:
                parts = [self.value(part) for part in word.split(sign)]
                return None if None in parts else join(parts)
        if word.isdigit():
            return int(word)
        if word == "B":
            return self.maker.batch
        if word.startswith("@"):
            return () if word[1:] in self.names else None
        meaning = self.words.get(word) or getattr(type(self), word, None)
        if meaning is None:
            return self.entry(word)
        return self.value(meaning) if isinstance(meaning, str) else meaning(self)

    def give(self, names: Iterable[str], table: Mapping[str, str | Callable[[Any], Any]], made: dict[str, Any]) -> None:
        """Make the arguments of these names as a table has it; a needed one of no known kind is an error."""
        for name in names:
            if name in made:
                continue
            value = self.make(table[name]) if name in table else None
            if value is not None:
                made[name] = value
            elif name in self.needed:
                raise InputError(
                    f"{type(self.model).__name__}.forward needs {', '.join(self.needed)}, and {name} cannot be guessed",
                    hint=f"pass kwargs={{{name!r}: ...}}, or shapes (on the command line --input {name}:SHAPE)",
                )


def is_size(value: Any) -> TypeGuard[int]:
    """Whether an attribute or entry is a number above zero."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


_TABLES = (files(__package__) / "arguments.txt").read_text(encoding="ascii")


@cache
def rows(section: str) -> list[tuple[str, list[str]]]:
    """The lines of a section of `arguments.txt`: a shape, and the names that have it."""
    _, found, rest = _TABLES.partition(f"[{section}]\n")
    if not found:
        raise KeyError(section)
    split = (line.partition(": ") for line in rest.partition("\n\n")[0].splitlines() if not line.startswith("#"))
    return [(shape, names.split()) for shape, _, names in split]


@cache
def table(section: str) -> dict[str, str]:
    """The shapes of a section by the names that have them."""
    return {name: shape for shape, names in rows(section) for name in names}


def named(section: str, what: str) -> list[str]:
    """The names in the lines of a section that begin so."""
    return [name for first, names in rows(section) for name in names if first == what]


# -- the signature of a model ------------------------------------------------------------------------------------------


def comes_from(model: nn.Module, package: str) -> bool:
    """Whether a class of the model, or one above, is a module of this package."""
    bases = (cls for cls in type(model).__mro__ if issubclass(cls, nn.Module))
    return any(cls.__module__.partition(".")[0] == package for cls in bases)


def arguments(model: nn.Module) -> list[str]:
    """The names of forward's arguments, as far as it names them."""
    return [p.name for p in signature(model) if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def needed(model: nn.Module) -> list[str]:
    """Those without a default."""
    known = arguments(model)
    return [p.name for p in signature(model) if p.name in known and p.default is p.empty]


def takes_any(model: nn.Module) -> bool:
    """Whether forward takes keyword arguments that it does not name."""
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature(model))


def signature(model: nn.Module) -> list[inspect.Parameter]:
    """All parameters of forward; those of a scripted or traced module, whose signature takes anything, are in its schema."""
    if (schema := getattr(model.forward, "schema", None)) is not None:
        each = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return [inspect.Parameter(argument.name, each) for argument in schema.arguments[1:]]
    try:
        return list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):  # a method of a traced module
        return []


def features_in(result: Any) -> list[torch.Tensor]:
    """The tensors of features in what a method returns: the pooled ones where there are such."""
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
