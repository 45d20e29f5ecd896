"""The critical path of traces, beside what HolisticTraceAnalysis says of them.

    python benchmarks/kineto_path.py --hta PYTHON TRACE.json.gz ...

HTA runs in a Python of its own on the whole of each file. Its definition is used here, too (`strictly`): the longest chain of
links with time. Which stream or call waited for which kernel is read there from `cuda_sync` events, and inferred here from when
kernels ended; the last figure is the path without what is inferred. The thread of the backward pass is one with that of the
forward pass there only where names tell them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from pathlib import Path

import opcost
from opcost.analysis.critical_path import BETWEEN, COMMUNICATION, COMPUTE, COPIES, HOST, LAUNCH, Dependencies

HTA = """
import json, logging, os, sys, time, warnings
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
logging.disable(logging.CRITICAL); warnings.simplefilter("ignore")
from hta.common.trace import Trace
from hta.trace_analysis import TraceAnalysis
Trace._filter_irrelevant_gpu_kernels = lambda self, last=False: None
began = time.process_time()
asked = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
graph, _ = asked.critical_path_analysis(rank=0, annotation="", instance_id=None)
told = graph.get_critical_path_breakdown()
found = {name: float(value) for name, value in told.groupby("bound_by").duration.sum().items() if name}
print(json.dumps(found | {"seconds": time.process_time() - began}))
"""
BOUNDS = {
    HOST: "cpu_bound",
    COMPUTE: "gpu_compute_bound",
    COPIES: "gpu_compute_bound",
    COMMUNICATION: "gpu_communication_bound",
    LAUNCH: "gpu_kernel_launch_overhead",
    BETWEEN: "gpu_kernel_kernel_overhead",
}


def ours(trace: str, *, inferred: bool = True) -> dict[str, float]:
    """Microseconds of the path by what it is spent on, in HTA's words, and the seconds that it took."""
    began = time.process_time()
    profile = opcost.read_profile(trace, executions=True)
    found = Dependencies(profile, profile.rows[0].rank, strictly=True, inferred=inferred)
    groups = list(found.groups)
    times = dict.fromkeys(BOUNDS.values(), 0.0)
    for link in found.longest().links:
        if link.time_ns:
            times[BOUNDS[groups[link.group].bound]] += link.time_ns / 1e3
    return times | {"seconds": time.process_time() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--hta", metavar="PYTHON", required=True)
    chosen = parser.parse_args()
    for trace in chosen.traces:
        command = [chosen.hta, "-c", HTA, trace]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        try:
            theirs = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            print(f"{Path(trace).name}: HTA does not read it: {done.stderr.splitlines()[-1:]}")
            continue
        mine, written = ours(trace), ours(trace, inferred=False)
        whole = [sum(value for name, value in each.items() if name != "seconds") for each in (theirs, mine, written)]
        off = [f"{each:.1f} ({each / whole[0] - 1:+.2%})" for each in whole]
        print(f"{Path(trace).name}: path {whole[0]:.1f} µs, here {off[1]}, without what is inferred {off[2]}")
        for name, value in mine.items():
            print(f"    {name} {theirs.get(name, 0.0):.1f}, here {value:.1f}")


if __name__ == "__main__":
    main()
