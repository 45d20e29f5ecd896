"""Options that several commands share, each described once."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, field, make_dataclass
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Literal

import cyclopts
from cyclopts import Group

from opcost.frontends.registry import frontends

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opcost.frontends.options import Option, Told

MODEL = Group("The model", sort_key=1)
COUNTING = Group("What is counted", sort_key=2)
SHOWING = Group("How it is shown", sort_key=3)


def parameter(*, metavar: str = "", **words: Any) -> cyclopts.Parameter:
    """One option. Version 4 of the library, the last for Python 3.10, does not know `metavar` and writes the type instead."""
    if metavar and not cyclopts.__version__.startswith("4."):
        words["metavar"] = metavar
    return cyclopts.Parameter(**words)


SourceArgument = Annotated[
    str,
    parameter(
        group=MODEL,
        help="path/to/file.py:Net, package.module:factory, timm:NAME, torchvision:NAME, hf:path/to/config.json, a folder "
        "with a config.json, a model file, or a report saved as .json",
    ),
]
Settings = Annotated[
    tuple[str, ...],
    parameter(
        name="--set",
        group=MODEL,
        metavar="NAME=VALUE",
        help="An argument of the class or function that makes the model, as name=value; for hf: an entry of the "
        "configuration, nested ones with dots. May be repeated.",
    ),
]
Inputs = Annotated[
    tuple[str, ...],
    parameter(
        name=["--input", "-i"],
        group=MODEL,
        metavar="SHAPE",
        help="An input as [name:]1x3x224x224[:type], several for several arguments. Without any, the model is asked "
        "what it takes.",
    ),
]
Batch = Annotated[
    int | None, parameter(group=MODEL, metavar="N", help="Of inputs that the model itself names: how many at once.")
]
Tokens = Annotated[
    int | None, parameter(group=MODEL, metavar="N", help="Of inputs that the model itself names: how many tokens.")
]
Image = Annotated[
    int | None,
    parameter(group=MODEL, metavar="N", help="Of inputs that the model itself names: height and width of images."),
]
TEXT = Group("Passes of a language model", sort_key=2)
Prefill = Annotated[
    int | None,
    parameter(group=TEXT, metavar="N", help="The first N tokens of a text, read at once into an empty cache."),
]
Decode = Annotated[
    int | None,
    parameter(group=TEXT, metavar="N", help="The next N tokens at once, against a cache: --decode 1 --cache 4096."),
]
CacheTokens = Annotated[
    int | None, parameter(group=TEXT, metavar="N", help="Tokens that are in the cache before --decode.")
]
StaticCache = Annotated[
    int | None, parameter(group=TEXT, metavar="N", help="A static cache of N tokens in place of one that grows.")
]
CacheType = Annotated[
    str | None,
    parameter(
        group=TEXT,
        metavar="TYPE",
        help="The type that the cache is kept in, such as int8: what it takes is told in it.",
    ),
]
Arguments = Annotated[
    tuple[str, ...],
    parameter(
        name="--arg",
        group=MODEL,
        metavar="NAME=VALUE",
        help="An argument of the model's forward that is not a tensor, as name=value. May be repeated.",
    ),
]
Sort = Annotated[
    str | None,
    parameter(metavar="COLUMN", help="Sort by this column, the largest first; +COLUMN for the smallest first."),
]
Columns = Annotated[str | None, parameter(metavar="A,B,...", help="The columns to show, in this order.")]
Exact = Annotated[bool, parameter(help="Numbers with all their digits instead of K, M, G.")]
Width = Annotated[int | None, parameter(metavar="N", help="Width in characters. Without it, the terminal's.")]
Outputs = Annotated[
    tuple[Path, ...],
    parameter(
        name=["--output", "-o"],
        metavar="FILE",
        help="Also write it to this file; the suffix chooses the view. May be repeated.",
    ),
]
Quiet = Annotated[
    bool,
    parameter(name=["--quiet", "-q"], group=SHOWING, help="No progress; with -o, nothing on stdout either."),
]


RESERVED = frozenset(
    "accumulate advise all allow_uncounted arg backward bar_length_max baseline batch by cache cache_dtype "
    "cal_activations cal_flops cal_params calibration causal checkpoint cold_l2 columns config convention debug "
    "decode depth device dtype eval exact execution fail_if format help host_only image input layout limit "
    "load_input_data log_path logging_to_stdout max_activation_bytes max_activations max_bytes max_flops "
    "max_latency max_macs max_param_bytes max_params max_peak_bytes memory merge no_merge no_real optimizer output "
    "picture port precision prefill profile_host quantity quiet real repeat save_baseline seconds serve set sort "
    "static style tokens top train vary version view warmup width zero_grad".split()
)
"""Flags of the commands that count or run; no option of a front end or recorder can be called so."""


def flags_of(parts: Iterable[Told], what: str) -> Any:
    """A class with a flag for each option that not all of these have; `what` they are: front ends or recorders."""
    from opcost.errors import PluginWarning

    flags: dict[str, tuple[str, Any, Any]] = {}
    known: list[Option] = []
    for part in parts:
        for option in part.options:
            if option in known:
                continue
            if option.name in RESERVED or option.name in flags:
                told = f"the option {option.name!r} of the {part.name} {what} is not a flag: there is one of that name"
                warnings.warn(PluginWarning(told), stacklevel=2)
                continue
            words = parameter(group=MODEL, metavar=option.metavar, help=option.help)
            known.append(option)
            kind: Any = GenericAlias(tuple, (option.type, ...)) if option.repeated else option.type | None
            flags[option.name] = (option.name, Annotated[kind, words], () if option.repeated else None)
    made = make_dataclass(
        "OwnChoice", list(flags.values()), namespace={"__module__": __name__}, frozen=True, kw_only=True
    )
    return cyclopts.Parameter(name="*")(made)


def given_of(choice: Any) -> dict[str, Any]:
    """Of such options those that were given."""
    return {name: value for name, value in asdict(choice).items() if value not in (None, ())}


FrontEndChoice: Any = flags_of(frontends(), "front end")
"""The options that only one front end has."""


@cyclopts.Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class InputChoice:
    """Which model, and on which inputs: for every command that counts or runs one."""

    settings: Settings = ()
    inputs: Inputs = ()
    batch: Batch = None
    tokens: Tokens = None
    image: Image = None
    dtype: Annotated[
        str | None,
        parameter(group=MODEL, metavar="TYPE", help="The model, and inputs made for it, in this type, such as bf16."),
    ] = None
    arguments: Arguments = ()


@cyclopts.Parameter(name="*", group=COUNTING)
@dataclass(frozen=True, slots=True, kw_only=True)
class CountChoice:
    """Which model, on which inputs, and what of it is counted."""

    model: InputChoice = field(default_factory=InputChoice)
    frontend: FrontEndChoice = field(default_factory=FrontEndChoice)
    prefill: Prefill = None
    decode: Decode = None
    cache: CacheTokens = None
    static: StaticCache = None
    cache_dtype: CacheType = None
    train: Annotated[
        bool | None,
        parameter(
            negative="--eval",
            help="Count as in training or as in inference. Without either: as in training where the backward pass is "
            "counted, else as in inference.",
        ),
    ] = None
    backward: Annotated[bool, parameter(help="Add the backward pass.")] = False
    optimizer: Annotated[
        str | None,
        parameter(
            metavar="[NAME]",
            help="Add the backward pass and one step of an optimizer of torch.optim, of sgd if none is named; adamw8bit and "
            "its like keep their state in eight bits.",
        ),
    ] = None
    precision: Annotated[
        str | None,
        parameter(
            metavar="NAME",
            help="The model and its inputs in float32, bfloat16 or float16, or forward under autocast: bf16-mixed, fp16-mixed.",
        ),
    ] = None
    checkpoint: Annotated[
        tuple[str, ...],
        parameter(
            metavar="PATTERN",
            help="Keep no activations of modules whose path ends so, as 'blocks.*', and compute them again. May be repeated.",
        ),
    ] = ()
    accumulate: Annotated[
        int,
        parameter(metavar="N", show_default=True, help="Count a step of N passes forward and backward and one update."),
    ] = 1
    zero_grad: Annotated[
        Literal["none", "zero"],
        parameter(show_default=True, help="What becomes of gradients after the update: none, or zeros that stay."),
    ] = "none"
    real: Annotated[
        bool | None,
        parameter(
            negative="--no-real",
            help="Run on real weights and tensors, or never. Without either: where the model's control flow depends on float "
            "values.",
        ),
    ] = None
    causal: Annotated[
        Literal["full", "half"],
        parameter(show_default=True, help="Count the full square of causal attention, or only the unmasked half."),
    ] = "full"


@cyclopts.Parameter(name="*", group=SHOWING)
@dataclass(frozen=True, slots=True, kw_only=True)
class ShowChoice:
    """Which picture of the report, and where it goes."""

    view: Annotated[
        str,
        parameter(
            name=["--view", "--style"],
            metavar="NAME",
            show_default=True,
            help="table, text, arch, memory, json, csv, md, or a plug-in's view.",
        ),
    ] = "table"
    picture: Annotated[
        Literal["treemap", "flame", "memory", "roofline"] | None,
        parameter(
            help="What an .svg or .png file shows: modules by MACs (treemap, usual, or flame), memory over the execution, "
            "or a roofline."
        ),
    ] = None
    memory: Annotated[
        bool, parameter(negative="", help="What the peak of memory is made of, and who holds it: --view memory.")
    ] = False
    by: Annotated[
        Literal["module", "op", "kind", "type"] | None,
        parameter(help="One row per module, operator, kind of operator, or type of module."),
    ] = None
    depth: Annotated[
        str | None,
        parameter(
            metavar="N|all",
            help="Show modules down to this depth; deeper ones are added up. Without it, as many as are readable.",
        ),
    ] = None
    merge: Annotated[
        bool | None,
        parameter(
            negative="--no-merge",
            help="Draw runs of identical blocks once, or never. Without either: where the tree would be long.",
        ),
    ] = None
    sort: Sort = None
    top: Annotated[
        int | None,
        parameter(metavar="N", help="Show the N costliest rows, and what the rest adds up to."),
    ] = None
    columns: Columns = None
    exact: Exact = False
    width: Width = None
    output: Outputs = ()
    quiet: Quiet = False
