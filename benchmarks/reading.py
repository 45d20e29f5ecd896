"""How fast files are read, each beside the reader that its users have otherwise: CPU seconds and peak memory.

    python benchmarks/reading.py kineto [--megabytes 1000] [--trace TRACE.json.gz] [--hta PYTHON]
                                                               a trace, plain and gzipped, beside json and HolisticTraceAnalysis
    python benchmarks/reading.py checkpoints                   shards of 812 GB and a GGUF, beside safetensors and gguf
    python benchmarks/reading.py onnx_speed [--folder FOLDER]  ONNX files (`exact.py files`, `exact.py exported`), beside shape
                                                               inference by onnx and onnx-tool
    python benchmarks/reading.py ranks [--ranks 50] [--megabytes 100] [--workers N]
                                                               traces of many ranks by a pool of processes, beside single reads

The files of all but onnx_speed are written by made_files.py, and deleted unless `--keep FOLDER` is given. Each reader runs in a
process of its own, in which imports are start-up; the best of some calls counts. A reader that is not installed is left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from harness import HERE, Table, arguments, cpu_seconds, in_process
from made_files import (
    SMALL_TRACE,
    llama_405b,
    mixture,
    write_ranks,
    write_shards,
    write_trace,
    write_vocabulary,
)

TIMED = """
import json, resource, sys
path, given, rounds = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
def spent():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
{imports}
times = []
for turn in range(rounds):
    start = spent()
    answer = {call}
    times.append(spent() - start)
    if not turn:
        whole, status = spent(), open("/proc/self/status").read()
peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
print()
print(json.dumps({{"seconds": min(times), "process": whole, "peak": peak, "answer": answer}}))
"""
SAFETENSORS = """
from math import prod
from pathlib import Path
from safetensors import safe_open
def scanned(folder):
    index = json.loads(next(Path(folder).glob("*.index.json")).read_text())
    params = 0
    for name in sorted(set(index["weight_map"].values())):
        with safe_open(Path(folder, name), framework="numpy") as file:
            for key in file.keys():
                piece = file.get_slice(key)
                params += prod(piece.get_shape()) if not key.endswith("_inv") and piece.get_dtype() else 0
    return params
"""
ONNX_TOOL = """
import numpy, onnx_tool
def profiled(path):
    graph = onnx_tool.Model(path).graph
    graph.graph_reorder_nodes()
    graph.shape_infer({name: numpy.zeros(shape, "f") for name, shape in given.items()} or None)
    graph.profile()
"""
READERS = {
    "opcost.count": (
        "import opcost",
        "opcost.count(path, shapes={name: tuple(shape) for name, shape in given.items()} or None).totals.macs",
    ),
    "opcost.scan": ("import opcost", "opcost.scan(path).totals.params"),
    "opcost scan": (
        "import subprocess; command = [sys.executable, '-m', 'opcost', 'scan', path, '-q']",
        "subprocess.run(command, check=True, capture_output=True) and None",
    ),
    "opcost": ("from opcost.traces.kineto.reader import read_table", "len(read_table(path).groups)"),
    "json": (
        "import gzip; opened = gzip.open if path.endswith('.gz') else open",
        "len(json.load(opened(path, 'rb'))['traceEvents'])",
    ),
    "HTA": (
        "from hta.trace_analysis import TraceAnalysis",
        "len(TraceAnalysis(trace_files={0: path}, trace_dir='').t.get_trace(0))",
    ),
    "safetensors": (SAFETENSORS, "scanned(path)"),
    "gguf": ("from gguf import GGUFReader", "sum(int(each.n_elements) for each in GGUFReader(path).tensors)"),
    "onnx": (
        "import onnx; from onnx import shape_inference",
        "len(shape_inference.infer_shapes(onnx.load(path)).graph.node)",
    ),
    "onnx-tool": (ONNX_TOOL, "profiled(path)"),
}
"""What each reader imports, and the call that is timed; the first reader of a file is opcost."""

File = tuple[str, Path, tuple[str, ...], dict[str, Any]]
"""What it is, where it is, its readers, and shapes of its inputs."""


def traces(folder: Path, options: argparse.Namespace) -> Iterator[File]:
    plain, packed = folder / "large.json", folder / "large.json.gz"
    events = write_trace(options.trace, plain, int((options.megabytes or 1000) * 1e6))
    with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
        shutil.copyfileobj(source, target, 1 << 22)
    for label, path in (("trace", plain), ("trace, gzipped", packed)):
        yield f"{label}, {events:,} events", path, ("opcost", "json", "HTA"), {}


def checkpoints(folder: Path, _: argparse.Namespace) -> Iterator[File]:
    for name, tensors, shards, fp8 in (
        ("Llama 405B", llama_405b(), 190, False),
        ("mixture in fp8", mixture(), 160, True),
    ):
        path = write_shards(folder / name.split()[0], tensors, shards, fp8=fp8)
        yield f"{name}, {shards} shards", path, ("opcost.scan", "opcost scan", "safetensors"), {}
    path = write_vocabulary(folder / "vocabulary.gguf")
    yield "GGUF, 128,256 tokens", path, ("opcost.scan", "opcost scan", "gguf"), {}


def onnx_files(_: Path, options: argparse.Namespace) -> Iterator[File]:
    listed = json.loads((HERE / "onnx_files.json").read_text(encoding="utf-8"))
    inputs = {Path(row["path"]).name: row["inputs"] for row in listed}
    for path in sorted(options.folder.rglob("*.onnx")):
        yield path.name, path, ("opcost.count", "onnx", "onnx-tool"), inputs.get(path.name, {})


class Case(NamedTuple):
    """Files, calls in each process, processes, and whether all readers give the same number."""

    files: Callable[[Path, argparse.Namespace], Iterator[File]]
    rounds: int
    processes: int = 1
    same: bool = False


CASES = {
    "kineto": Case(traces, rounds=1),
    "checkpoints": Case(checkpoints, rounds=3, same=True),
    "onnx_speed": Case(onnx_files, rounds=5, processes=3),
}


def measured(file: File, case: Case, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The best figures of each reader of a file, in turn; without those that fail or are not installed."""
    _, path, readers, given = file
    found: dict[str, dict[str, Any]] = {}
    failed: set[str] = set()
    for _ in range(1 if options.quick else case.processes):
        for reader in readers:
            if reader in failed or (reader == "HTA" and options.hta is None):
                continue
            imports, call = READERS[reader]
            python = options.hta if reader == "HTA" else sys.executable
            words = (str(path), json.dumps(given), "1" if options.quick else str(case.rounds))
            try:
                now = in_process(TIMED.format(imports=imports, call=call), *words, python=python)
            except RuntimeError as exc:
                print(f"{reader} fails on {path.name}: {exc}", flush=True)
                failed.add(reader)
                continue
            before = found.setdefault(reader, now)
            found[reader] = {**now, **{key: min(before[key], now[key]) for key in ("seconds", "process")}}
    answers = {each["answer"] for each in found.values() if each["answer"] is not None}
    if case.same and len(answers) > 1:
        raise SystemExit(f"readers of {path.name} disagree: {answers}")
    return found


def race(name: str, options: argparse.Namespace, folder: Path) -> None:
    """Every file by every reader, one line each; of ONNX files only the ratios, since they are many."""
    case = CASES[name]
    columns = ("file", "reader", "seconds", "of opcost", "peak MB", "of opcost")
    table = Table(name, columns) if name != "onnx_speed" else Table(name, SHARES, columns)
    ratios: dict[tuple[str, str], list[float]] = {}
    for file in case.files(folder, options):
        found = measured(file, case, options)
        ours = next(iter(found.values()))
        for reader, each in found.items():
            times = [f"{each[key] / ours[key]:.2f}×" if each is not ours else "" for key in ("seconds", "peak")]
            cells = (file[0], reader, f"{each['seconds']:.3f}", times[0], round(each["peak"] / 1e6), times[1])
            (table.add if name != "onnx_speed" else table.detail)(*cells)
            for what in ("process", "seconds") if each is not ours else ():
                ratios.setdefault((what, reader), []).append(ours[what] / each[what])
    for (what, reader), those in sorted(ratios.items()) if name == "onnx_speed" else ():
        slower = f"{sum(ratio > 1 for ratio in those)} of {len(those)}"
        label = "whole process" if what == "process" else "call"
        table.add(f"{label}: {reader}", f"{statistics.median(those):.2f}", f"{max(those):.2f}", slower)
    table.finish(options)


SHARES = ("opcost against", "median", "worst", "slower")


def ranks(options: argparse.Namespace, folder: Path) -> None:
    """All ranks by a pool of processes, against the mean of three single reads in this process."""
    from opcost.traces.ranks import reduce_rank, reduce_ranks

    number, size = (3, 2.0) if options.quick else (options.ranks, options.megabytes or 100)
    files = write_ranks(folder, number, int(size * 1e6))

    def timed(call: Callable[[], object]) -> tuple[float, float]:
        before = time.perf_counter(), cpu_seconds()
        call()
        return time.perf_counter() - before[0], cpu_seconds() - before[1]

    singles = [timed(lambda file=file: reduce_rank(str(file))) for file in files[:4]][1:]
    with tempfile.TemporaryDirectory() as cache:
        together, cached = (
            timed(lambda: reduce_ranks([folder], workers=options.workers, cache=cache)) for _ in range(2)
        )
        stored = sum(file.stat().st_size for file in Path(cache).iterdir())
        found = reduce_ranks([folder], workers=options.workers, cache=cache)
    table = Table("ranks", ["ranks", "time", "all", "single reads", "overhead", "from caches"])
    for label, column, divisor in (("wall", 0, options.workers), ("CPU", 1, 1)):
        shared = statistics.mean(each[column] for each in singles) * number / divisor
        over = f"{together[column] / shared - 1:+.1%}"
        cells = (f"{together[column]:.1f} s", f"{shared:.1f} s", over, f"{cached[column]:.1f} s")
        table.add(f"{number} of {size:g} MB, {options.workers} processes", label, *cells)
    worker, here = (resource.getrusage(who).ru_maxrss / 1e3 for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    print(f"{worker:.0f} MB in the largest worker, {here:.0f} MB here, caches {stored / 1e6:.1f} MB, ", end="")
    print(f"Parquet {len(found.parquet()) / 1e6:.2f} MB with {len(found.frame):,} rows")
    table.finish(options)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("case", choices=(*CASES, "ranks"))
    parser.add_argument("--megabytes", type=float, help="kineto, ranks: size of a trace")
    parser.add_argument("--trace", type=Path, default=SMALL_TRACE, help="kineto: the small trace that is copied")
    parser.add_argument("--hta", metavar="PYTHON", help="kineto: a Python that has HolisticTraceAnalysis")
    parser.add_argument("--folder", type=Path, default=Path("build/model_files"), help="onnx_speed: ONNX files")
    parser.add_argument("--ranks", type=int, default=50)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, help="leave the written files in this folder")
    options = parser.parse_args()
    options.megabytes = options.megabytes or (20 if options.quick else None)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if options.case == "ranks":
            ranks(options, folder)
        else:
            race(options.case, options, folder)


if __name__ == "__main__":
    main()
