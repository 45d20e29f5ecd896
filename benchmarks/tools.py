"""The counters under comparison, each as a function of a subject that returns its number of MACs (its own convention)."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from typing import Any

from models import Subject


def opcost(subject: Subject) -> int:
    """Every operator priced, rolled up, with memory and coverage."""
    import opcost

    return opcost.count(subject.model, subject.args, kwargs=subject.kwargs).totals.macs


def flop_counter_mode(subject: Subject) -> int:
    """torch's own; a model without weights is run on the meta device."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    args, kwargs = _where_the_weights_are(subject)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        subject.model(*args, **kwargs)
    return counter.get_total_flops() // 2


def fvcore(subject: Subject) -> int:
    """Traced by TorchScript, so keyword arguments become positional."""
    from fvcore.nn import FlopCountAnalysis

    args, kwargs = _where_the_weights_are(subject)
    return int(FlopCountAnalysis(_Positional(subject.model, tuple(kwargs)), (*args, *kwargs.values())).total())


def torchinfo(subject: Subject) -> int:
    import torchinfo

    args, kwargs = _where_the_weights_are(subject)
    data: Any = kwargs or args
    return int(torchinfo.summary(subject.model, input_data=data, verbose=0).total_mult_adds)


def ptflops(subject: Subject) -> int:
    from ptflops import get_model_complexity_info

    args, kwargs = _where_the_weights_are(subject)
    names = dict(zip(_argument_names(subject.model), args, strict=False)) | kwargs
    macs, _ = get_model_complexity_info(
        subject.model, (1,), input_constructor=lambda _: names, as_strings=False, print_per_layer_stat=False
    )
    if macs is None:
        raise RuntimeError("ptflops swallowed the model's error and returned None")
    return int(macs)


def thop(subject: Subject) -> int:
    import thop

    args, kwargs = _where_the_weights_are(subject)
    macs, _ = thop.profile(_Positional(subject.model, tuple(kwargs)), (*args, *kwargs.values()), verbose=False)
    return int(macs)


TOOLS: dict[str, Callable[[Subject], int]] = {
    "opcost": opcost,
    "FlopCounterMode": flop_counter_mode,
    "fvcore": fvcore,
    "torchinfo": torchinfo,
    "ptflops": ptflops,
    "thop": thop,
}


def quietly(tool: Callable[[Subject], int], subject: Subject) -> int:
    """One count without the tool's chatter."""
    logging.disable(logging.CRITICAL)
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        return tool(subject)


def _where_the_weights_are(subject: Subject) -> tuple[tuple[Any, ...], dict[str, Any]]:
    device = next(subject.model.parameters()).device
    return tuple(a.to(device) for a in subject.args), {k: v.to(device) for k, v in subject.kwargs.items()}


def _argument_names(model: Any) -> list[str]:
    import inspect

    return list(inspect.signature(model.forward).parameters)


def _Positional(model: Any, names: tuple[str, ...]) -> Any:  # noqa: N802 - stands for a class that needs torch
    """A module that takes its keyword arguments by position and returns plain tensors."""
    import torch

    class Positional(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, *args: Any) -> Any:
            if not names:
                return self.inner(*args)
            return self.inner(**dict(zip(names, args, strict=True)), use_cache=False, return_dict=False)[0]

    return Positional().eval()
