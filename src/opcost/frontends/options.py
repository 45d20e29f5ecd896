"""The options of a count as one value, and those that only one front end has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_args

from opcost.core.option import TRAINED, Mode, Precision, Quantize, Sizes, Step, Text, Tuning, check_mode
from opcost.distributed.sharding import Sharding
from opcost.errors import InputError, UnknownName


def refuse_running(options: CountOptions, what: str) -> None:
    """Raise for options that need a run of the model; `what` says that it is a file, and which."""
    for requested, wanted in (
        (options.backward or options.optimizer, "a backward pass"),
        (options.mode == "train", "a training mode"),
        (options.real, "a run on real weights"),
    ):
        if requested:
            hint = "count it without that option, or count the code that makes the model: path/to/file.py:Net"
            raise InputError(f"{what}, which is read and not run; {wanted} cannot be counted from it", hint=hint)


class FrontendOption(NamedTuple):
    """An option that one front end has and others do not: in Python `options={name: value}`, as a flag `--name VALUE`."""

    name: str
    type: type[str | int | float | bool | Path]
    help: str
    """One sentence for `opcost count --help`."""
    metavar: str = ""
    repeated: bool = False
    """It may be given several times, in Python as a list."""


class TakesOptions(Protocol):
    """A front end or a recorder, as far as options go."""

    name: str
    options: tuple[FrontendOption, ...]
    """Options that only it has; on the command line these are flags."""
    understands: frozenset[str]
    """Which of `sizes` and `dtype` it takes."""


def check_understood(part: TakesOptions, what: str, options: InputOptions) -> None:
    """Raise for what a front end or recorder does not understand; `what` says which of the two it is."""
    known = {option.name: option for option in part.options}
    for name, value in options.own.items():
        if name not in known:
            raise UnknownName(f"option of the {part.name} {what}", name, known)
        kind = known[name].type
        several = known[name].repeated and isinstance(value, (tuple, list))
        for one in value if several else () if value is None else (value,):
            if not isinstance(one, (str, Path) if kind is Path else kind):
                raise InputError(f"the option {name!r} of the {part.name} {what} is {one!r}, not a {kind.__name__}")
    for name, given in (("sizes", any(options.sizes)), ("dtype", options.dtype is not None)):
        if given and name not in part.understands:
            changed = "batch, tokens or image size" if name == "sizes" else "element type of the whole model"
            hint = "give its inputs: shapes={name: shape} (on the command line --input name:1x3x224x224)"
            raise InputError(f"the {changed} of what the {part.name} {what} reads cannot be changed", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions:
    """The inputs of a count or of a measured run, and how the model is run."""

    inputs: Any = None
    """A tuple holds the positional arguments, anything else is the one argument."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    shapes: Any = None
    """One shape, a list of shapes, or a mapping from argument names to shapes."""
    dtypes: Any = None
    """One element type for all, a list as long as the shapes, or a mapping from argument names."""
    sizes: Sizes = field(default_factory=Sizes)
    """Of the default inputs, where neither inputs nor shapes are given."""
    dtype: str | None = None
    """To run the model, and inputs that are made for it, in this floating element type."""
    backward: bool = False
    mode: Mode | None = None
    """To run the model in that mode; None: as it is."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Options that only this front end or recorder has, by name: those that it declares."""

    def __post_init__(self) -> None:
        check_mode(self.mode)
        self.sizes.check()
        if self.inputs is not None and self.shapes is not None:
            hint = "pass one of them; further tensors go into kwargs"
            raise InputError("both inputs and shapes were given", hint=hint)
        if any(self.sizes) and (self.inputs is not None or self.shapes is not None):
            raise InputError("a batch, tokens or image size was given, and inputs too", hint="give one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOptions(InputOptions):
    """What to count."""

    text: Text = field(default_factory=Text)
    """A pass of a language model that makes its own inputs."""
    precision: Precision = field(default_factory=Precision)
    """Whether inputs that were given are of that type too, or autocast is at work."""
    optimizer: Any = None
    """True for SGD, the name of a class in `torch.optim` (or `AdamW8bit`), or a function of the parameters that makes one."""
    step: Step = field(default_factory=Step)
    tuning: Tuning = field(default_factory=Tuning)
    channels_last: bool = False
    """Images and weights of convolutions are stored with their channels last."""
    quantize: Quantize | None = None
    """Weights of linear layers are stored in few bits."""
    real: bool | None = None
    """Run the model on its own weights instead of without data; None: where it needs values that only they have."""
    remake: Callable[[], Any] | None = None
    """Makes the model again with its weights, where it was made without."""
    as_on_gpu: bool = False
    """What PyTorch decides by the device is decided as on a GPU: attention, dropout, how parameters are updated."""

    sharding: Sharding | None = None
    """One rank of a mesh over which the model is spread."""

    def __post_init__(self) -> None:
        InputOptions.__post_init__(self)
        self.text.check()
        self.step.check(backward=self.trains)
        self.tuning.check()
        if self.quantize is not None and self.quantize not in get_args(Quantize):
            raise UnknownName("value of quantize", str(self.quantize), get_args(Quantize))
        if self.quantize and self.trains and self.tuning.lora is None and not self.in_float8:
            hint = "train adapters beside them: lora=..., quantize='fp8', or leave quantize out"
            raise InputError("weights of few bits are not trained", hint=hint)
        if self.quantize in TRAINED[1:] and not self.in_float8:
            raise InputError(f"{self.quantize} is how layers are trained", hint="add an optimizer, or say fp8")
        if self.sharding is not None:
            self.sharding.check(trains=self.trains, caches=any(self.text))
            if self.real:
                raise InputError("one rank of a mesh has no data to run on", hint="leave out real=True, or mesh")
            if self.quantize and not self.in_float8:
                raise InputError("weights of few bits are not spread over ranks", hint="leave out quantize, or mesh")
            if self.quantize == "fp8-rows" and self.sharding.mesh.tp > 1:
                raise InputError("a scale for each row is not counted with tensor parallelism", hint="quantize='fp8'")

    @property
    def in_float8(self) -> bool:
        """Whether layers are trained in float8."""
        return self.trains and self.tuning.lora is None and self.quantize in TRAINED

    @property
    def trains(self) -> bool:
        """Whether there is a backward pass."""
        return self.backward or bool(self.optimizer)

    @property
    def needs_a_run(self) -> str:
        """An option with which no file can be counted; empty where there is none."""
        precision, rest = self.precision, (*self.step.given, *self.tuning.described)
        given = {"mixed precision": precision.autocast, "channels_last": self.channels_last, "quantize": self.quantize}
        given["a mesh"] = self.sharding is not None
        return next((name for name in (*given, *rest) if given.get(name, True)), "")


def check_runs(frontend: TakesOptions, options: CountOptions) -> None:
    """Raise for options that need a run of the model, where nothing is run."""
    in_pytorch = f"a model in PyTorch, and this is read by the {frontend.name} front end"
    if any(options.text) and "text" not in frontend.understands:
        hint = "give its inputs: shapes={name: shape} (on the command line --input name:1x1:int64)"
        raise InputError(f"prefill and decode are passes of {in_pytorch}", hint=hint)
    if options.needs_a_run and "running" not in frontend.understands:
        hint = "count the code that makes the model: path/to/file.py:Net"
        raise InputError(f"{options.needs_a_run} needs {in_pytorch}", hint=hint)
