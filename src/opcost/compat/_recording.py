"""One count in the way in which the peers run a model, and the recorder that is at work meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from opcost.api import count
from opcost.core.report import Report
from opcost.errors import ForwardError
from opcost.frontends.options import Mode
from opcost.frontends.torch.recording.recorder import Recorder


def count_a_run(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, mode: Mode | None = None
) -> Report:
    """Count a model; what it raises comes through as it is, because code around a peer's call catches just that."""
    try:
        return count(model, args, kwargs=kwargs, mode=mode)
    except ForwardError as exc:
        raised = exc.__cause__
        if not isinstance(raised, Exception):
            raise
        told = str(exc)
    if hasattr(raised, "add_note"):  # Python 3.11
        raised.add_note(told)
    raise raised


def current_recorder() -> Recorder | None:
    """The recorder of this thread; None where nothing is being counted."""
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, Recorder):
            return mode
    return None
