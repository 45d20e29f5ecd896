"""What to do about each of the potential savings that an answer has."""

from __future__ import annotations

from opcost.core.answer import Answer
from opcost.core.harmless import printable
from opcost.views.html.columns import Told

_ADVICE = {
    "idle: host-bound": "The host launches too slowly: capture the step in a graph of the device, compile the model, or give "
    "each kernel more to do (a larger batch).",
    "idle: after synchronisation": "The host waits for the device and then begins late: take .item(), .cpu(), printing and "
    "synchronize() out of the step.",
    "idle: waiting for input": "The next batch comes late: more workers that load it, pinned memory, and the next one prepared "
    "while this one runs.",
    "idle: launch latency": "Many short kernels: fuse them, or capture them in a graph of the device.",
    "idle: blocked after launch": "Work that is launched waits for another stream, an event or memory: see the timeline.",
    "idle: long launch calls": "The first launch loads a module or a library, or compiles: run a few steps before the profiler "
    "starts, or leave the first one out.",
    "communication that nothing hides": "Begin collectives sooner, or in smaller pieces, so that something computes beside them.",
    "copies that could run beside kernels": "Copy from pinned memory, without waiting, on a stream of its own.",
    "unbalanced ranks": "Give the rank that comes last less to do: batches, layers or experts of equal work.",
    "recomputing": "Keep more activations where the memory allows it.",
    "kernels shorter than a launch": "Fuse them: compile the module, or call operators that do several steps in one kernel.",
}
"""By how a gain begins."""
_SLOW_KERNELS = (
    "Slower than its peaks allow: larger sizes, or such as are multiples of 64, another element type, another kernel."
)


def gains_told(answer: Answer) -> list[Told]:
    """The gains, the largest first, each with what to do and the command that shows it."""
    return [
        {
            "what": printable(gain.what),
            "time": gain.time_ns,
            "share": gain.share,
            "advice": next((text for start, text in _ADVICE.items() if gain.what.startswith(start)), _SLOW_KERNELS),
            "command": printable(f"opcost analyze {answer.meta.get('source') or 'TRACE'} {gain.command}"),
        }
        for gain in answer.gains
    ]


def gains_title(answer: Answer) -> str:
    """Of what the times are."""
    whole = "per step" if any(use.steps for use in answer.devices) else "in the whole run"
    return f"What to do next: potential savings {whole}, upper bounds"
