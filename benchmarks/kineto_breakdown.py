"""Where devices' time went, beside what HolisticTraceAnalysis and AMD's TraceLens say of the same traces.

    python benchmarks/kineto_breakdown.py --hta PYTHON --tracelens PYTHON TRACE.json.gz ...

Both have requirements of their own, so each is asked in a Python of its own. All times are microseconds. HTA is asked about
all device work of a file, without rounding to microseconds and without leaving out what its steps do not hold. It counts fills
(`Memset`) among copies as opcost does; TraceLens among computing, and then the two differ by no more than the fills. Neither
tells devices of one file apart, so files with several are left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import opcost
from opcost.analysis.bounds import devices
from opcost.core.profile import CopySummary, extra_entries

HTA = """
import json, logging, os, sys, warnings
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
logging.disable(logging.CRITICAL); warnings.simplefilter("ignore")
from hta.common.trace import Trace
from hta.trace_analysis import TraceAnalysis
Trace._filter_irrelevant_gpu_kernels = lambda self, last=False: None
asked = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
times = asked.get_temporal_breakdown(visualize=False).iloc[0]
found = {"idle": times["idle_time(us)"], "compute": times["compute_time(us)"], "span": times["kernel_time(us)"]}
try:
    found["overlap"] = asked.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"]
except Exception:
    pass
print(json.dumps({name: float(value) for name, value in found.items()}))
"""
TRACELENS = """
import gzip, json, sys
from TraceLens.TreePerf.gpu_event_analyser import GPUEventAnalyser
events = json.loads(gzip.open(sys.argv[1]).read().decode(errors="replace"), strict=False)["traceEvents"]
events = [event for event in events if "dur" in event and event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
first = min(event["ts"] for event in events)
for number, event in enumerate(events):
    event |= {"UID": number, "ts": event["ts"] - first}
asked = GPUEventAnalyser(events)
found = asked.compute_metrics_dict(asked.get_gpu_event_lists())
print(json.dumps({name: float(value) for name, value in found.items()}))
"""
ALLOWED = 1e-3
"""Of the span: times of a microsecond's parts are read through floats there, and exactly here."""


def asked(python: str | None, script: str, trace: str) -> Mapping[str, float]:
    """What another tool says, or nothing where it does not read the trace."""
    if python is None:
        return {}
    done = subprocess.run([python, "-c", script, trace], capture_output=True, text=True, timeout=600, check=False)
    try:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        return {}


def compare(trace: str, hta: str | None, tracelens: str | None) -> int:
    """Print what differs; how many figures were compared."""
    profile = opcost.read_profile(trace)
    uses = devices(profile)
    if len(uses) != 1 or uses[0].compute_ns is None:
        return 0
    (use,) = uses
    fills = sum(
        each.time_ns for each in extra_entries(profile.extra, "copies", CopySummary) if each.name.startswith("Memset")
    )
    hidden = use.all_communication_ns - use.communication_ns
    ours = {
        "HTA span": use.span_ns,
        "HTA idle": use.idle_ns,
        "HTA compute": use.compute_ns,
        "TraceLens total_time": use.span_ns,
        "TraceLens idle_time": use.idle_ns,
        "TraceLens busy_time": use.busy_ns,
        "TraceLens computation_time": use.compute_ns,
        "TraceLens exposed_comm_time": use.communication_ns,
        "TraceLens exposed_memcpy_time": use.copies_ns,
        "TraceLens total_comm_time": use.all_communication_ns,
        "TraceLens total_memcpy_time": use.all_copies_ns,
    }
    theirs = {f"HTA {name}": value for name, value in asked(hta, HTA, trace).items()}
    theirs |= {f"TraceLens {name}": value for name, value in asked(tracelens, TRACELENS, trace).items()}
    if "HTA overlap" in theirs and use.all_communication_ns:
        theirs["HTA overlap"] *= use.all_communication_ns / 1e5  # percent to microseconds
        ours["HTA overlap"] = hidden
    compared = 0
    for name, mine in ours.items():
        if name not in theirs:
            continue
        compared += 1
        apart = abs(theirs[name] - mine / 1e3)
        if apart > max(ALLOWED * use.span_ns / 1e3, 1.0):
            why = f" (fills {fills / 1e3:.1f})" if name.startswith("TraceLens") and apart <= fills / 1e3 + 1 else ""
            print(f"{Path(trace).name}: {name} {theirs[name]:.1f}, here {mine / 1e3:.1f}{why}")
    print(f"{Path(trace).name}: {compared} figures compared", flush=True)
    return compared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--hta", metavar="PYTHON")
    parser.add_argument("--tracelens", metavar="PYTHON")
    chosen = parser.parse_args()
    print(sum(compare(trace, chosen.hta, chosen.tracelens) for trace in chosen.traces), "figures compared")


if __name__ == "__main__":
    main()
