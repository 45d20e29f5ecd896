"""What an option is, how declared options are read, and the options that travel together as one value."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from types import SimpleNamespace
from typing import Any, ForwardRef, Literal, NamedTuple, TypeAlias, TypeVar, get_args, get_type_hints

from opcost.errors import InputError, UnknownName

INPUTS = "Inputs"  # the group of options that name no other


class Option(NamedTuple):
    """How an option is described, and how it is typed on the command line."""

    help: str
    group: str = INPUTS
    metavar: str = ""
    default: Any = None
    flags: tuple[str, ...] = ()  # the flags where they are not `--the-name`
    typed: Any = None  # the type of what is typed, where it is not that of the keyword
    negative: str = ""  # the flag that says the opposite
    python_only: bool = False

    @property
    def shows_default(self) -> bool:
        """Whether the default is a number or a word, and not nothing or a switch."""
        return isinstance(self.default, (int, float, str)) and not isinstance(self.default, bool)


Declared: TypeAlias = "dict[str, tuple[Any, Option]]"
Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def declared(options: type) -> Declared:
    """The options of one class: the type and the description of each, by name."""
    hints = options.__annotations__
    if any(isinstance(hint, ForwardRef) for hint in hints.values()):  # of a module whose annotations are strings
        hints = get_type_hints(options, include_extras=True)
    return {name: (get_args(hint)[0], get_args(hint)[1]) for name, hint in hints.items()}


def takes(options: type, *, others: bool = False) -> Callable[[Function], Function]:
    """Give a function these keyword arguments: shown by `help`, and an unknown one is an error that names the nearest.

    With `others`, further keyword arguments are the function's own matter.
    """

    def decorate(function: Function) -> Function:
        own = [each for each in signature(function).parameters.values() if each.kind is not Parameter.VAR_KEYWORD]

        @wraps(function)
        def checked(*args: Any, **keywords: Any) -> Any:
            known = declared(options)
            for name in () if others else keywords:
                if name not in known and name not in names:
                    raise UnknownName(f"option of opcost.{function.__name__}", name, known)
            return function(*args, **keywords)

        names = {each.name for each in own}
        keywords = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=option.default, annotation=kind)
            for name, (kind, option) in declared(options).items()
        ]
        checked.__signature__ = Signature([*own, *keywords])  # type: ignore[attr-defined]
        return checked  # type: ignore[return-value]

    return decorate


def filled(options: type, given: Mapping[str, Any]) -> SimpleNamespace:
    """The options as attributes; those that were not given have their defaults."""
    return SimpleNamespace(**{name: option.default for name, (_, option) in declared(options).items()} | plain(given))


def plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options with `step` and `text` written out as the keywords that they stand for."""
    values = dict(given)
    for group in ("step", "text"):
        whole = values.pop(group, None)
        if whole is None:
            continue
        if clash := next((name for name in whole._fields if name in given), None):
            hint = f"put {clash} into {group}, or leave {group} out"
            raise InputError(f"{group} and {clash} are both given", hint=hint)
        values |= {name: value for name, value in whole._asdict().items() if value != whole._field_defaults[name]}
    return values


def changed(options: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of what was given, all that differs from its default."""

    def is_default(name: str, value: Any) -> bool:
        """Whether it is nothing or its default; an array, which compares element by element, never is."""
        usual: tuple[Any, ...] = (None, {}, declared(options)[name][1].default if name in declared(options) else None)
        return any(type(value) is type(each) and bool(value == each) for each in usual)

    return {name: value for name, value in given.items() if not is_default(name, value)}


# -- options that travel together ------------------------------------------------------------------------------------------

Mode: TypeAlias = Literal["train", "eval"]
Quantize: TypeAlias = Literal["int8", "int4", "fp8", "fp8-gather", "fp8-rows"]
TRAINED = ("fp8", "fp8-gather", "fp8-rows")
"""Schemes in which layers are trained: their weights stay as they are, and are converted for each product."""


def check_mode(mode: str | None) -> None:
    """Raise for an unknown mode."""
    if mode is not None and mode not in get_args(Mode):
        raise UnknownName("mode", mode, get_args(Mode))


def usual_mode(*, training: bool) -> Mode:
    """The mode of a model that a string names, which has none of its own: training only where that is counted."""
    return "train" if training else "eval"


def _check_counts(counts: Mapping[str, Any]) -> None:
    for name, count in counts.items():
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise InputError(f"{name} is {count!r}; it must be a whole number above zero")


class Sizes(NamedTuple):
    """Sizes of default inputs; None: the model's usual one."""

    batch: int | None = None
    tokens: int | None = None
    image: int | None = None  # height and width

    def check(self) -> None:
        """Raise for an impossible size."""
        _check_counts(self._asdict())


class Text(NamedTuple):
    """One pass of a language model: `opcost.Text(prefill=1024)`."""

    prefill: int | None = None
    """Tokens of a prompt, read at once into an empty cache."""
    decode: int | None = None
    """The next tokens, against a cache of those before."""
    cache: int | None = None
    """Tokens that are in the cache before."""
    static: int | None = None
    """The length of a static cache, which is there from the start; without it the cache grows."""
    cache_dtype: str | None = None
    """The element type of the cache where it is not the model's own, for its size in memory."""

    def check(self) -> None:
        """Raise for options that contradict each other."""
        _check_counts(dict(zip(self._fields[:4], self[:4], strict=True)))
        if any(self) and (self.prefill is None) == (self.decode is None):
            hint = "prefill=1024, or decode=1 with cache=1024"
            raise InputError("a pass of a language model is either its prefill or a decode step", hint=hint)
        if (self.decode is None) != (self.cache is None):
            hint = "give both: decode=1, cache=1024"
            raise InputError("a decode step runs against a cache of the tokens before it", hint=hint)

    @property
    def described(self) -> str:
        """The pass, in words."""
        cache = "" if self.static is None else f" of {self.static} at most"
        if self.prefill is not None:
            return f"prefill of {self.prefill}{cache and ' into a cache' + cache}"
        return f"decode of {self.decode} after {self.cache}{cache}"


class Lora(NamedTuple):
    """Low-rank adapters beside linear layers, in whose place they are trained: `lora="r=16,targets=q_proj,v_proj"`."""

    r: int
    """The rank: `B A` has the factors r x in and out x r."""
    targets: Sequence[str]
    """What the paths of the linear layers end in; a star matches a part of one name."""
    alpha: float = 8
    """The product is scaled by alpha / r."""

    @classmethod
    def of(cls, given: Any) -> "Lora | None":
        """The adapters that a text or a mapping describes."""
        if given is None:
            return None
        values = _assignments(given) if isinstance(given, str) else given
        if not isinstance(values, Mapping):
            raise InputError(f"lora is {given!r}, which describes no adapters", hint=_LORA_HINT)
        if unknown := [name for name in values if name not in cls._fields]:
            raise UnknownName("value of lora", str(unknown[0]), cls._fields)
        if missing := [name for name in ("r", "targets") if values.get(name, "") in ("", [], ())]:
            raise InputError(f"lora does not say {' and '.join(missing)}", hint=_LORA_HINT)
        targets, rank, alpha = values["targets"], values["r"], values.get("alpha", 8)
        _check_counts({"r of lora": rank})
        if not isinstance(alpha, (int, float)) or alpha <= 0:
            raise InputError(f"alpha of lora is {alpha!r}; it must be a number above zero")
        return cls(rank, (targets,) if isinstance(targets, str) else tuple(targets), alpha)

    def __str__(self) -> str:
        return f"r={self.r},targets={','.join(self.targets)}" + (f",alpha={self.alpha:g}" if self.alpha != 8 else "")


class Tuning(NamedTuple):
    """What of a model is trained, where that is not every parameter that requires a gradient."""

    freeze: tuple[str, ...] = ()
    """Patterns of the paths of modules and parameters that are not trained."""
    lora: Lora | None = None
    """Adapters, which alone are trained."""

    @property
    def described(self) -> dict[str, str]:
        """The options that were given, in words."""
        words = {"freeze": ",".join(self.freeze), "lora": "" if self.lora is None else str(self.lora)}
        return {name: text for name, text in words.items() if text}

    def check(self) -> None:
        """Raise for options that contradict each other."""
        if self.freeze and self.lora is not None:
            raise InputError("lora freezes the whole model, and freeze a part of it", hint="leave freeze out")


_LORA_HINT = 'lora="r=16,targets=q_proj,v_proj" (on the command line --lora r=16,targets=q_proj,v_proj)'


def _assignments(text: str) -> dict[str, Any]:
    """`r=16,targets=q_proj,v_proj` as a mapping; a word without a name belongs to the name before it."""
    found: dict[str, list[str]] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        name, equals, value = map(str.strip, word.rpartition("="))
        if not equals and not found:
            raise InputError(f"lora is {text!r}, which describes no adapters", hint=_LORA_HINT)
        found.setdefault(name if equals else [*found][-1], []).append(value)
    return {name: values if name == "targets" else _number(",".join(values)) for name, values in found.items()}


def _number(text: str) -> float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


class Precision(NamedTuple):
    """The element types in which a model computes; None: its own."""

    dtype: str | None = None  # the model and its floating inputs are of this element type
    autocast: str | None = None  # forward runs under autocast to this type; the weights keep theirs
    like: str | None = None  # the type of device whose rules autocast follows; None: that of the model


ZeroGrad: TypeAlias = Literal["none", "zero"]
Keep: TypeAlias = Literal["products", "alternate"]


class Step(NamedTuple):
    """How a training step is run: `opcost.Step(optimizer="adamw", accumulate=4, checkpoint="blocks.*")`."""

    checkpoint: str | Sequence[str] = ()
    """Patterns of the paths of modules whose activations are not kept but computed again."""
    accumulate: int = 1
    """Passes forward and backward before the parameters are updated."""
    zero_grad: ZeroGrad = "none"
    """Gradients after the update: freed (none), or kept as zeros."""
    optimizer: Any = None
    """As `opcost.count` takes it; a front end finds it in `CountOptions.optimizer`."""
    checkpoint_keep: Keep | None = None
    """Which results of those modules are kept all the same: attention and all products, or every second product."""

    @property
    def given(self) -> list[str]:
        """The names of what is not as usual."""
        return [name for name, value in self._asdict().items() if value != self._field_defaults[name]]

    def check(self, *, backward: bool) -> None:
        """Raise for options that contradict each other."""
        _check_counts({"accumulate": self.accumulate})
        if self.zero_grad not in get_args(ZeroGrad):
            raise UnknownName("value of zero_grad", self.zero_grad, get_args(ZeroGrad))
        if self.checkpoint_keep not in (None, *get_args(Keep)):
            raise UnknownName("value of checkpoint_keep", str(self.checkpoint_keep), get_args(Keep))
        if self.checkpoint_keep and not self.checkpoint:
            hint = "checkpoint='layers.*' (on the command line --checkpoint 'layers.*')"
            raise InputError("checkpoint_keep is about checkpointed modules, and none is named", hint=hint)
        if self.given and not backward:
            hint = "add backward=True or an optimizer (on the command line --backward, --optimizer)"
            raise InputError(f"{self.given[0]} is about a training step, and no backward pass is counted", hint=hint)
