"""What opcost reports of Kineto traces, against what HolisticTraceAnalysis (HTA) and AMD's TraceLens report of the same files.

    python benchmarks/traces.py breakdown --hta PYTHON --tracelens PYTHON TRACE.json.gz ...   where the time of devices went
    python benchmarks/traces.py critical_path --hta PYTHON TRACE.json.gz ...                  the longest chain of dependencies
    python benchmarks/traces.py costed_time TRACE.json.gz ... TRACE.json.gz=CAPTURE.json.gz   the share of time with a known cost

Each of the two runs in a Python of its own; without one only opcost's figures are printed. `--quick` reads a trace of the tests.
breakdown: HTA reads all device work of a file, unrounded. It counts fills (`Memset`) as copies, as opcost does; TraceLens counts
them as computing, and then the two differ by at most the fills. Files with several devices are left out: neither separates them.
critical_path: HTA's definition (`strictly`) on the whole of each file. HTA takes which stream or call waited for which kernel
from `cuda_sync` events, opcost infers it from the end of kernels; the last column is the path without inferred links.
costed_time: after `=` is a trace of the capture of the graphs that are replayed. Work that no operator launched is left out.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import opcost
from harness import ROOT, Table, arguments, in_process
from opcost.analysis.breakdown import devices
from opcost.analysis.critical_path import BETWEEN, COMMUNICATION, COMPUTE, COPIES, HOST, LAUNCH, Dependencies
from opcost.core.profile import CopySummary, extra_entries
from opcost.profiles import with_default_costs

SMALL = ROOT / "tests/data/traces/kineto/cuda_fwd_stack.json.gz"
HTA = """
import json, logging, os, sys, warnings
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
logging.disable(logging.CRITICAL); warnings.simplefilter("ignore")
from hta.common.trace import Trace
from hta.trace_analysis import TraceAnalysis
Trace._filter_irrelevant_gpu_kernels = lambda self, last=False: None
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
"""
HTA_BREAKDOWN = f"""{HTA}
times = analysis.get_temporal_breakdown(visualize=False).iloc[0]
found = {{"idle": times["idle_time(us)"], "compute": times["compute_time(us)"], "span": times["kernel_time(us)"]}}
try:
    found["overlap"] = analysis.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"]
except Exception:
    pass
print(json.dumps({{"HTA " + name: float(value) for name, value in found.items()}}))
"""
HTA_PATH = f"""{HTA}
graph, _ = analysis.critical_path_analysis(rank=0, annotation="", instance_id=None)
times = graph.get_critical_path_breakdown().groupby("bound_by").duration.sum()
print(json.dumps({{name: float(value) for name, value in times.items() if name}}))
"""
TRACELENS = """
import gzip, json, sys
from TraceLens.TreePerf.gpu_event_analyser import GPUEventAnalyser
events = json.loads(gzip.open(sys.argv[1]).read().decode(errors="replace"), strict=False)["traceEvents"]
events = [event for event in events if "dur" in event and event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
first = min(event["ts"] for event in events)
for number, event in enumerate(events):
    event |= {"UID": number, "ts": event["ts"] - first}
analyser = GPUEventAnalyser(events)
found = analyser.compute_metrics_dict(analyser.get_gpu_event_lists())
print(json.dumps({"TraceLens " + name: float(value) for name, value in found.items()}))
"""
TOLERANCE = 1e-3
"""Of the span: both tools read parts of a microsecond as floats, opcost reads them exactly."""
BOUNDS = {
    HOST: "cpu_bound",
    COMPUTE: "gpu_compute_bound",
    COPIES: "gpu_compute_bound",
    COMMUNICATION: "gpu_communication_bound",
    LAUNCH: "gpu_kernel_launch_overhead",
    BETWEEN: "gpu_kernel_kernel_overhead",
}
"""HTA's names for what a link of the path is bound by."""


def reported(python: str | None, script: str, trace: str) -> dict[str, float]:
    """Microseconds by another tool, or nothing where it is not given or cannot read the trace."""
    if python is None:
        return {}
    try:
        return dict(in_process(script, trace, python=python))
    except RuntimeError as exc:
        print(f"{Path(trace).name}: {python} fails: {exc}")
        return {}


def breakdown(options: argparse.Namespace) -> None:
    columns = ("trace", "figure", "other tool, µs", "opcost, µs", "fills, µs")
    table = Table("breakdown", ("tool", "traces", "figures", "equal"), columns)
    seen: dict[str, set[str]] = {"HTA": set(), "TraceLens": set()}
    compared, equal = Counter[str](), Counter[str]()
    for trace in options.traces:
        profile = opcost.read_profile(trace)
        uses = devices(profile)
        if len(uses) != 1 or uses[0].compute_ns is None:
            continue
        (use,) = uses
        copies = extra_entries(profile.extra, "copies", CopySummary)
        fills = sum(each.time_ns for each in copies if each.name.startswith("Memset"))
        ours = {
            "HTA span": use.span_ns,
            "HTA idle": use.idle_ns,
            "HTA compute": use.compute_ns,
            "HTA overlap": use.all_communication_ns - use.communication_ns,
            "TraceLens total_time": use.span_ns,
            "TraceLens idle_time": use.idle_ns,
            "TraceLens busy_time": use.busy_ns,
            "TraceLens computation_time": use.compute_ns,
            "TraceLens exposed_comm_time": use.communication_ns,
            "TraceLens exposed_memcpy_time": use.copies_ns,
            "TraceLens total_comm_time": use.all_communication_ns,
            "TraceLens total_memcpy_time": use.all_copies_ns,
        }
        theirs = reported(options.hta, HTA_BREAKDOWN, trace) | reported(options.tracelens, TRACELENS, trace)
        if not use.all_communication_ns:
            theirs.pop("HTA overlap", None)
        if "HTA overlap" in theirs:
            theirs["HTA overlap"] *= use.all_communication_ns / 1e5  # percent to microseconds
        for name, mine in ours.items():
            if name not in theirs:
                continue
            tool = name.split()[0]
            seen[tool].add(trace)
            compared[tool] += 1
            if abs(theirs[name] - mine / 1e3) <= max(TOLERANCE * use.span_ns / 1e3, 1.0):
                equal[tool] += 1
            else:
                cells = (round(theirs[name], 1), round(mine / 1e3, 1), round(fills / 1e3, 1))
                table.detail(Path(trace).name, name, *cells)
        print(f"{Path(trace).name}: busy {use.busy_ns / 1e3:.1f} of {use.span_ns / 1e3:.1f} µs", flush=True)
    for tool, traces in seen.items():
        table.add(tool, len(traces), compared[tool], equal[tool])
    table.finish(options)


def critical_path(options: argparse.Namespace) -> None:
    table = Table(
        "critical_path", ("trace", "HTA, µs", "opcost, µs", "error", "without inferred links"), ("trace", "by")
    )
    for trace in options.traces:
        theirs = reported(options.hta, HTA_PATH, trace)
        profile = opcost.read_profile(trace, executions=True)
        found = []
        for inferred in (True, False):
            path = Dependencies(profile, profile.rows[0].rank, strictly=True, inferred=inferred)
            groups, times = list(path.groups), Counter[str]()
            for link in path.longest().links:
                times[BOUNDS[groups[link.group][0]]] += (link.time_ns or 0) / 1e3  # type: ignore[assignment]
            found.append(times)
        for name in sorted({*found[0], *theirs}):
            table.detail(Path(trace).name, f"{name}: HTA {theirs.get(name, 0):.1f}, opcost {found[0][name]:.1f}")
        whole, mine, written = (sum(each.values()) for each in (theirs, *found))
        errors = [f"{each / whole - 1:+.2%}" if whole else "" for each in (mine, written)]
        table.add(Path(trace).name, round(whole) if whole else "", round(mine), errors[0], errors[1])
    table.finish(options)


def costed_time(options: argparse.Namespace) -> None:
    table = Table("costed_time", ("trace", "time with a cost", "largest without"))
    whole = known = 0
    for given in options.traces:
        trace, _, capture = given.partition("=")
        spent, without = Counter[str](), Counter[str]()
        for row in with_default_costs(opcost.read_profile(trace, capture=capture or None)).rows:
            spent[row.type] += row.device_ns or 0
            without[row.type] += 0 if row.cost is not None else row.device_ns or 0
        own, lost = spent.total(), without.total()
        whole, known = whole + own, known + own - lost
        if own:
            named = ", ".join(f"{name} {time / own:.1%}" for name, time in without.most_common(4) if time)
            table.add(Path(trace).name, f"{1 - lost / own:.1%}", named)
    table.add("all", f"{known / whole:.1%}" if whole else "", "")
    table.finish(options)


CASES = {case.__name__: case for case in (breakdown, critical_path, costed_time)}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("traces", nargs="*")
    parser.add_argument("--hta", metavar="PYTHON", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--tracelens", metavar="PYTHON", help="a Python that has TraceLens")
    options = parser.parse_args()
    if options.quick:
        options.traces = [str(SMALL)]
    if not options.traces:
        parser.error("no trace given")
    CASES[options.case](options)


if __name__ == "__main__":
    main()
