"""One count in the way in which the peers run a model, and the recorder that is at work meanwhile."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from opcost.api import count
from opcost.core.option import Mode
from opcost.core.report import Report
from opcost.errors import ForwardError
from opcost.frontends.torch.recording.recorder import Recorder
from opcost.wording import some


def count_a_run(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    mode: Mode | None = None,
    warn: bool = True,
) -> Report:
    """Count a model; what it raises comes through as it is, because code around a peer's call catches just that.

    Operators without a cost are warned about, unless the peer has a way of its own to name them.
    """
    if args and not kwargs and all(isinstance(arg, (int, float)) for arg in args):  # a count takes such for a shape
        model, args = partial(model, *args), ()
    try:
        report = count(model, args, kwargs=kwargs, mode=mode)
        if warn:
            warn_uncounted(report)
        return report
    except ForwardError as exc:
        raised = exc.__cause__
        if not isinstance(raised, Exception):
            raise
        told = str(exc)
    if hasattr(raised, "add_note"):  # Python 3.11
        raised.add_note(told)
    raise raised


def warn_uncounted(report: Report, covered: Collection[str] = ()) -> None:
    """Warn about operators that have no cost, because a peer's result has no place for them; `covered` are the caller's own."""
    missed = [f"{each.raw} (x{each.count})" for each in report.coverage.uncounted if each.raw not in covered]
    if missed:
        warnings.warn(
            f"no cost is known for {', '.join(some(missed))}: counted as 0. "
            "Register a formula with torch.utils.flop_counter.register_flop_formula.",
            stacklevel=_frames_of_opcost(),
        )


def _frames_of_opcost() -> int:
    """How far up the caller's own line is."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - `warnings` has no other way to find it before Python 3.12
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("opcost."):
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    return level


def current_recorder() -> Recorder | None:
    """The recorder of this thread; None where nothing is being counted."""
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, Recorder):
            return mode
    return None
