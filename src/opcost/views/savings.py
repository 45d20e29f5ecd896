"""What to do about time that could be saved, and where that is shown."""

import re

from opcost.core.profile import Gain
from opcost.core.sheet import Remedy

LINES = "lines"
"""The table of the answer itself; other tables are named by their titles, and "timeline" and "operators" are views."""
_COPIES = "breakdown: copies"
_COLLECTIVES, _GROUPS, _RANKS = (f"communication: {table}" for table in ("collectives", "groups", "ranks"))
_ADVICE = {
    "idle: host-bound": Remedy(
        "The host launches too slowly: capture the step in a graph of the device, compile the model, or give each kernel more to "
        "do (a larger batch).", "timeline",
    ),
    "idle: after synchronisation": Remedy(
        "The host waits for the device and then begins late: take .item(), .cpu(), printing and synchronize() out of the step.",
        "timeline",
    ),
    "idle: waiting for input": Remedy(
        "The next batch comes late: more workers that load it, pinned memory, and the next one prepared while this one runs.",
        "timeline",
    ),
    "idle: launch latency": Remedy(
        "Many short kernels: fuse them, or capture them in a graph of the device.", "timeline"
    ),
    "idle: blocked after launch": Remedy(
        "Work that is launched waits for another stream, an event or memory: see the timeline.", "timeline"
    ),
    "idle: long launch calls": Remedy(
        "The first launch loads a module or a library, or compiles: run a few steps before the profiler starts, or leave the "
        "first one out.", "operators",
    ),
    "communication that nothing hides": Remedy(
        "Begin collectives sooner, or in smaller pieces, so that something computes beside them.", _COLLECTIVES
    ),
    "pipeline bubble": Remedy(
        "Stages wait for each other: more microbatches, an interleaved or zero-bubble schedule, stages of equal work.",
        _GROUPS,
    ),
    "copies that could run beside kernels": Remedy(
        "Copy from pinned memory, without waiting, on a stream of its own.", _COPIES
    ),
    "unbalanced ranks": Remedy(
        "Give the rank that comes last less to do: batches, layers or experts of equal work.", _RANKS
    ),
    "recomputing": Remedy("Keep more activations where the memory allows it.", "operators", "recompute"),
    "kernels shorter than a launch": Remedy(
        "Fuse them: compile the module, or call operators that do several steps in one kernel.", LINES, "launch"
    ),
}  # fmt: skip
"""By how a gain begins."""
_SLOW_KERNELS = Remedy(
    "Slower than its peaks allow: larger sizes, or such as are multiples of 64, another element type, another kernel.",
    "operators",
)
_CHOSEN_TYPE = re.compile(r"--type (\S+)")


def advice_on(gain: Gain) -> Remedy:
    """What to do, and where the loss is found: by its cause, or the type of its operators."""
    found = next((each for start, each in _ADVICE.items() if gain.what.startswith(start)), _SLOW_KERNELS)
    named = _CHOSEN_TYPE.search(gain.command)
    idle = gain.what if found.view == "timeline" else ""
    return found._replace(find=named[1] if named else found.find or idle)
