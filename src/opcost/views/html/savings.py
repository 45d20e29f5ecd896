"""What could be saved, what to do about it, and where the page shows it."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from opcost.core.escaping import printable
from opcost.core.profile import Answer
from opcost.views.html.reports import PageData


class _Remedy(NamedTuple):
    """What to do about a loss, and where the page shows it: the timeline, the operators or a table, and what to find there."""

    text: str
    view: str
    find: str = ""


_VIEWS = {"timeline": "timeline", "operators": "ops"}
"""Views, and the data of the page that they need; all others are tables by their titles, or the first one."""
_LINES = "lines"
_IDLE_PARTS, _COPIES = "breakdown: time of each device", "breakdown: copies"
_COLLECTIVES, _RANKS = "communication: collectives", "communication: ranks"
_ADVICE = {
    "idle: host-bound": _Remedy(
        "The host launches too slowly: capture the step in a graph of the device, compile the model, or give each kernel more to "
        "do (a larger batch).", "timeline",
    ),
    "idle: after synchronisation": _Remedy(
        "The host waits for the device and then begins late: take .item(), .cpu(), printing and synchronize() out of the step.",
        "timeline",
    ),
    "idle: waiting for input": _Remedy(
        "The next batch comes late: more workers that load it, pinned memory, and the next one prepared while this one runs.",
        "timeline",
    ),
    "idle: launch latency": _Remedy(
        "Many short kernels: fuse them, or capture them in a graph of the device.", "timeline"
    ),
    "idle: blocked after launch": _Remedy(
        "Work that is launched waits for another stream, an event or memory: see the timeline.", "timeline"
    ),
    "idle: long launch calls": _Remedy(
        "The first launch loads a module or a library, or compiles: run a few steps before the profiler starts, or leave the "
        "first one out.", "operators",
    ),
    "communication that nothing hides": _Remedy(
        "Begin collectives sooner, or in smaller pieces, so that something computes beside them.", _COLLECTIVES
    ),
    "copies that could run beside kernels": _Remedy(
        "Copy from pinned memory, without waiting, on a stream of its own.", _COPIES
    ),
    "unbalanced ranks": _Remedy(
        "Give the rank that comes last less to do: batches, layers or experts of equal work.", _RANKS
    ),
    "recomputing": _Remedy("Keep more activations where the memory allows it.", "operators", "recompute"),
    "kernels shorter than a launch": _Remedy(
        "Fuse them: compile the module, or call operators that do several steps in one kernel.", _LINES, "launch"
    ),
}  # fmt: skip
"""By how a gain begins."""
_SLOW_KERNELS = _Remedy(
    "Slower than its peaks allow: larger sizes, or such as are multiples of 64, another element type, another kernel.",
    "operators",
)
_CHOSEN_TYPE = re.compile(r"--type (\S+)")


def savings_of(answer: Answer, tables: Sequence[PageData], whole: PageData) -> PageData:
    """Potential savings, the largest first, each with what to do, where the page shows it, and the command that does."""
    places = {table["title"]: place for place, table in enumerate(tables)} | {_LINES: 0}

    def shown(view: str, find: str) -> PageData | None:
        if view in _VIEWS and whole.get(_VIEWS[view]):
            return {"view": view, "find": find}
        view = _IDLE_PARTS if view == "timeline" else view  # which also a profile of many ranks has
        return {"view": "table", "place": places[view], "find": find} if view in places else None

    found = []
    source = "TRACES" if "ranks" in answer.meta else answer.meta.get("source") or "TRACE"
    for gain in answer.gains:
        advice = next((each for start, each in _ADVICE.items() if gain.what.startswith(start)), _SLOW_KERNELS)
        named = _CHOSEN_TYPE.search(gain.command)
        idle = gain.what if advice.view == "timeline" else ""
        found.append(
            {
                "what": printable(gain.what),
                "time": gain.time_ns,
                "share": gain.share,
                "advice": advice.text,
                "show": shown(advice.view, printable(named[1]) if named else advice.find or idle),
                "command": printable(f"opcost analyze {source} {gain.command}"),
            }
        )
    per = "per step" if any(use.steps for use in answer.devices) else "in the whole run"
    return {"title": f"What to do next: potential savings {per}, upper bounds", "found": found}
