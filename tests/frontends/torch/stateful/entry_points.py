"""Every function of opcost that takes a live PyTorch model, each as one call."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import fields
from itertools import zip_longest
from typing import Any

import torch
from torch import nn

import opcost
from opcost.core.report import Report
from opcost.errors import OpcostError

EntryPoint = Callable[[nn.Module, tuple[Any, ...]], Any]

COUNTS: dict[str, EntryPoint] = {
    "count": opcost.count,
    "real": lambda model, args: opcost.count(model, args, real=True),
    "backward": lambda model, args: opcost.count(model, args, backward=True),
}


def _fvcore(model: nn.Module, args: tuple[Any, ...]) -> Any:
    from opcost.compat.fvcore import FlopCountAnalysis

    return FlopCountAnalysis(model, args).total()


def _mmengine(model: nn.Module, args: tuple[Any, ...]) -> Any:
    from opcost.compat.mmengine import get_model_complexity_info

    return get_model_complexity_info(model, inputs=args, show_table=False, show_arch=False)


def _torchinfo(model: nn.Module, args: tuple[Any, ...]) -> Any:
    from opcost.compat.torchinfo import summary

    return summary(model, input_data=args, verbose=0)


def _torchsummary(model: nn.Module, args: tuple[Any, ...]) -> Any:
    from opcost.compat.torchsummary import summary

    return summary(model, tuple(args[0].shape[1:]), device="cpu")


def _torchstat(model: nn.Module, args: tuple[Any, ...]) -> Any:
    from opcost.compat.torchstat import stat

    return stat(model, tuple(args[0].shape[1:]))


def _thop(model: nn.Module, args: tuple[Any, ...]) -> Any:
    from opcost.compat.thop import profile

    return profile(model, args, verbose=False)


def _thop_with_rules(model: nn.Module, args: tuple[Any, ...]) -> Any:
    """With rules of the caller's the model runs for real."""
    from opcost.compat.thop import profile

    def rule(module: Any, given: Any, result: Any) -> None:
        module.total_ops += torch.DoubleTensor([1])

    return profile(model, args, custom_ops={nn.Linear: rule}, verbose=False)


def _ptflops(model: nn.Module, args: tuple[Any, ...]) -> Any:
    from opcost.compat.ptflops import get_model_complexity_info

    shape = tuple(args[0].shape[1:])
    return get_model_complexity_info(model, shape, as_strings=False, print_per_layer_stat=False)


def _megengine(model: nn.Module, args: tuple[Any, ...]) -> Any:
    from opcost.compat.megengine import module_stats

    return module_stats(model, inputs=list(args), logging_to_stdout=False)


def _deepspeed(model: nn.Module, args: tuple[Any, ...]) -> Any:
    from opcost.compat.deepspeed import get_model_profile

    return get_model_profile(model, args=args)


def _calflops(model: nn.Module, args: tuple[Any, ...]) -> Any:
    from opcost.compat.calflops import calculate_flops

    return calculate_flops(model, args=args)


def _torchprofile(model: nn.Module, args: tuple[Any, ...]) -> Any:
    from opcost.compat.torchprofile import profile_macs

    return profile_macs(model, args)


def _tables_of_layers(model: nn.Module, args: tuple[Any, ...]) -> Any:
    from opcost.compat import pytorch_model_summary, torch_summary, torchsummaryX

    torchsummaryX.summary(model, *args)
    torch_summary.summary(model, list(args), verbose=0)
    return pytorch_model_summary.summary(model, *args)


COMPAT: dict[str, EntryPoint] = {
    "fvcore": _fvcore,
    "mmengine": _mmengine,
    "torchinfo": _torchinfo,
    "torchsummary": _torchsummary,
    "torchstat": _torchstat,
    "thop": _thop,
    "thop with rules": _thop_with_rules,
    "ptflops": _ptflops,
    "megengine": _megengine,
    "deepspeed": _deepspeed,
    "calflops": _calflops,
    "torchprofile": _torchprofile,
    "tables of layers": _tables_of_layers,
}

RUNS: dict[str, EntryPoint] = {
    "profile": lambda model, args: opcost.profile(model, args, warmup=1, repeat=1),
    "profile backward": lambda model, args: opcost.profile(model, args, warmup=0, repeat=1, backward=True),
}

ENTRY_POINTS = {**COUNTS, **RUNS, **COMPAT}


def call(entry: str, model: nn.Module, args: tuple[Any, ...]) -> Any:
    """What an entry point returns; where it refuses, the error itself."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return ENTRY_POINTS[entry](model, args)
        except OpcostError as exc:
            return exc
        except Exception as exc:  # of the model, which the replaced tools pass on, or of such a tool
            if entry not in COMPAT:
                raise
            return exc.__cause__ if isinstance(exc.__cause__, OpcostError) else exc


def difference(answer: Any, other: Any) -> str:
    """In what two answers differ, in words; nothing where they do not."""
    if isinstance(answer, Report) and isinstance(other, Report):
        parts = [field.name for field in fields(Report) if field.compare]
        unlike = [part for part in parts if getattr(answer, part) != getattr(other, part)]
        return "; ".join(f"{part}: {_first(getattr(answer, part), getattr(other, part))}" for part in unlike)
    mine, theirs = (f"{type(each).__name__}: {each}" for each in (answer, other))
    return "" if mine == theirs else f"{mine} and {theirs}"


def _first(mine: Any, theirs: Any) -> str:
    if isinstance(mine, tuple) and isinstance(theirs, tuple):
        pairs = (pair for pair in zip_longest(mine, theirs) if pair[0] != pair[1])
        mine, theirs = next(pairs)
    return f"{str(mine)[:400]} and {str(theirs)[:400]}"
