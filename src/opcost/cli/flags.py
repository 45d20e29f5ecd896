"""The declared options as flags of the command line, and what was typed as keyword arguments of the Python functions."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Mapping
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, get_args

import cyclopts

from opcost import options as declarations
from opcost.core.option import INPUTS, Option, declared, usual_mode
from opcost.errors import InputError, PluginWarning, shortened
from opcost.options import Advising, Checking, Comparing, Fitting, Planning, Predicting, Profiling, Showing, Sweeping

if TYPE_CHECKING:
    from opcost.frontends.options import FrontendOption as OwnOption
    from opcost.frontends.options import TakesOptions

_GROUPS = (
    "Source", declarations.LAYOUT, declarations.BUDGET, declarations.SIZE, INPUTS, declarations.PRECISION, declarations.TEXT,
    declarations.STEP, declarations.RANKS, declarations.COUNTING, declarations.RUNNING, declarations.DEVICE,
    declarations.CHOOSING, declarations.ADDING, "Reading", declarations.SHOWING, "One file format or library",
)  # fmt: skip
"""The groups of the help, in their order."""


def group(title: str) -> cyclopts.Group:
    """A section of the help."""
    return cyclopts.Group(title, sort_key=_GROUPS.index(title))


SOURCE = group("Source")
OWN = group("One file format or library")


def parameter(*, metavar: str = "", **words: Any) -> cyclopts.Parameter:
    """One flag. Version 4 of the library, the last for Python 3.10, does not know `metavar` and writes the type instead."""
    if metavar and not cyclopts.__version__.startswith("4."):
        words["metavar"] = metavar
    return cyclopts.Parameter(**words)


SourceArgument = Annotated[
    str,
    parameter(
        group=SOURCE,
        help="path/to/file.py:Net, package.module:factory, timm:NAME, torchvision:NAME, hf:path/to/config.json, a folder "
        "with a config.json, a model file, or a report saved as .json",
    ),
]


def flags(*classes: type, only: Iterable[str] | None = None, parts: Iterable[TakesOptions] = (), what: str = "") -> Any:
    """The type of a command's flags: the declared options (`only` some of `Showing`), then those of front ends or recorders."""
    found: dict[str, Any] = {}
    for each in classes:
        for name, (kind, option) in declared(each).items():
            if not option.python_only and (only is None or name in only or each is not Showing):
                found[_key(name, option)] = _flag(name, kind, option)
    known: list[OwnOption] = []
    for part in parts:
        for own in part.options:
            if own in known:
                continue
            if own.name in RESERVED or own.name in found:
                message = f"the option {own.name!r} of the {part.name} {what} is not a flag: there is one of that name"
                warnings.warn(PluginWarning(message), stacklevel=2)
                continue
            known.append(own)
            repeated: Any = GenericAlias(tuple, (own.type, ...)) if own.repeated else own.type
            found[own.name] = Annotated[repeated, parameter(group=OWN, metavar=own.metavar, help=own.help)]
    return Annotated[TypedDict("Flags", found, total=False), cyclopts.Parameter(name="*")]  # type: ignore[operator]


def _key(name: str, option: Option) -> str:
    """What a typed option is called: a limit is `max_params`, for a front end may have an option `params`."""
    return f"max_{name}" if f"--max-{name.replace('_', '-')}" in option.flags else name


def _flag(name: str, kind: Any, option: Option) -> Any:
    typed = option.typed or kind
    if type(None) in get_args(typed):
        typed = next(each for each in get_args(typed) if each is not type(None))
    words: dict[str, Any] = {"help": option.help, "group": group(option.group), "metavar": option.metavar}
    if option.flags:
        words["name"] = list(option.flags)
    if typed is bool:
        words["negative"] = option.negative
    if option.shows_default:
        words["help"] = f"{option.help.rstrip('.')} (default {option.default})."
    return Annotated[typed, parameter(**words)]


_VERBS = (Predicting, Advising, Fitting, Sweeping, Planning, Profiling, Comparing, Checking)
RESERVED = frozenset(
    flag.lstrip("-").replace("-", "_")
    for each in (*_VERBS, Showing)
    for name, (_, option) in declared(each).items()
    for flag in (() if option.python_only else (_key(name, option), *option.flags, option.negative))
) | frozenset(
    "all bar_length_max cal_activations cal_flops cal_params compiled config convention debug fail_if help layout limit "
    "load_input_data log_path logging_to_stdout port save_baseline serve version".split()
)
"""Names of flags that no option of a front end or recorder can have."""


def frontend_flags(*classes: type, only: Iterable[str] | None = None) -> Any:
    """Flags of a command that counts: with the options that only one front end has."""
    from opcost.frontends.registry import frontends

    return flags(*classes, only=only, parts=frontends(), what="front end")


def keywords(typed: Mapping[str, Any] | None, *, also: Iterable[str] = ()) -> dict[str, Any]:
    """The keyword arguments of a Python function that flags, or keys of a budget file, mean.

    How to show the result is left out, but for the options `also`, which the function has too.
    """
    given = {name: value for name, value in (typed or {}).items() if name not in declared(Showing) or name in also}
    own = {name: given.pop(name) for name in list(given) if name not in _DECLARED}
    if own:
        given["options"] = own
    for name, flag in (("kwargs", "--arg"), ("set", "--set")):
        if name in given:
            given[name] = parse_settings(given[name], flag)
    if "shapes" in given:
        given["shapes"] = list(given["shapes"])
    if "mode" in given:
        given["mode"] = usual_mode(training=given["mode"])
    return given


_DECLARED = frozenset(
    _key(name, option) for each in _VERBS for name, (_, option) in declared(each).items() if not option.python_only
)


def parse_settings(pairs: Iterable[str], option: str) -> dict[str, object]:
    """`name=value` pairs; a value is a Python literal where it is one, else the text itself."""
    settings: dict[str, object] = {}
    words = {"true": True, "false": False, "none": None, "null": None}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not all(part.isidentifier() for part in name.split(".")):
            raise InputError(f"{option} {shortened(repr(pair))} is not understood", hint=f"write {option} name=value")
        if name in settings:
            raise InputError(f"{option} gives {shortened(name)} twice")
        try:
            settings[name] = words[value.lower()] if value.lower() in words else ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            settings[name] = value
    return settings


def split(words: Iterable[str]) -> tuple[str, ...]:
    """Words given one by one or with commas."""
    return tuple(part.strip() for word in words for part in word.split(",") if part.strip())


def depth_of(text: str) -> int | None:
    """A depth as it is typed; None is all the way down."""
    if text == "all":
        return None
    if not text.isdecimal() or len(text) > 9:
        raise InputError(f"--depth {shortened(repr(text))} is neither a number nor 'all'")
    return int(text)
