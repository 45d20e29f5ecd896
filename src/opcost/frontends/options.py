"""What `opcost.count` was told, as one value that travels to the front end, and what a front end can be told besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from opcost.errors import InputError, UnknownName

Mode: TypeAlias = Literal["train", "eval"]


def check_mode(mode: str | None) -> None:
    """Raise for a mode that no model has."""
    if mode is not None and mode not in get_args(Mode):
        raise UnknownName("mode", mode, get_args(Mode))


def usual_mode(*, training: bool) -> Mode:
    """The mode of a model that a string names, which has none of its own: as in training only where that is counted."""
    return "train" if training else "eval"


class Sizes(NamedTuple):
    """Sizes of inputs that a model is given where none were named; None: the model's usual one."""

    batch: int | None = None
    tokens: int | None = None
    image: int | None = None
    """Height and width."""

    def check(self) -> None:
        """Raise for a size that nothing has."""
        for name, size in self._asdict().items():
            if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
                raise InputError(f"{name} is {size!r}; it must be a whole number above zero")


class Option(NamedTuple):
    """An option that one front end has and others do not: in Python `options={name: value}`, as a flag `--name VALUE`."""

    name: str
    type: type[str | int | float | bool | Path]
    help: str
    """One sentence for `opcost count --help`."""
    metavar: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOptions:
    """Inputs and what to run. `inputs`: a tuple holds the positional arguments, anything else is the one argument."""

    inputs: Any = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    shapes: Any = None
    """One shape, a list of shapes, or a mapping from argument names to shapes."""
    dtypes: Any = None
    """One element type for all, a list as long as the shapes, or a mapping from argument names."""
    sizes: Sizes = field(default_factory=Sizes)
    """Of the inputs that are made up where neither inputs nor shapes are given."""
    dtype: str | None = None
    """To count the model, and inputs that are made for it, in this floating element type."""
    backward: bool = False
    optimizer: Any = None
    """True for SGD, the name of a class in `torch.optim`, or a function of the parameters that makes one."""
    real: bool | None = None
    """Run the model on its own weights instead of without data; None: where it asks for values that only they could tell."""
    remake: Callable[[], Any] | None = None
    """Makes the model again with its weights, where it was made without."""
    mode: Mode | None = None
    """To count the model in that mode; None: as it is."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Options that only this front end has, by name: those that it declares."""

    def __post_init__(self) -> None:
        check_mode(self.mode)
        self.sizes.check()
