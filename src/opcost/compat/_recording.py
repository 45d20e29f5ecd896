"""The recorder that is at work while a peer's call counts."""

from __future__ import annotations

from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from opcost.frontends.torch.recording.recorder import Recorder


def current_recorder() -> Recorder | None:
    """The recorder of this thread; None where nothing is being counted."""
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, Recorder):
            return mode
    return None
