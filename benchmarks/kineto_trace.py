"""A large Kineto trace, made from a small real one, read and tabulated: CPU seconds and peak memory, plain and gzipped.

    python benchmarks/kineto_trace.py [--gigabytes 1] [--trace TRACE.json.gz] [--keep DIRECTORY] [--peers] [--hta PYTHON]

Every copy of the small trace is moved in time, and its correlation and External ids with it, so that each copy's kernels
belong to its own operators. Each reader runs in a process of its own. `--peers` also reads the file with plain `json`,
`--hta` with HolisticTraceAnalysis, which has requirements of its own and so a Python of its own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "tests" / "data" / "traces" / "kineto" / "cuda_fwd_stack.json.gz"
NUMBERED = ("correlation", "External id", "Ev Idx", "Python id", "Python parent id")


def copies(trace: dict[str, Any]) -> Iterator[bytes]:
    """The events of one copy after another, without end, in the text layout of the profiler itself."""
    events = trace["traceEvents"]
    timed = [event for event in events if event.get("ph") == "X"]
    span = int(max(event["ts"] + event["dur"] for event in timed) - min(event["ts"] for event in timed)) + 1000
    ids = 1 + max(
        (event["args"][key] for event in events for key in NUMBERED if isinstance(event.get("args", {}).get(key), int)),
        default=0,
    )
    number = 0
    while True:
        for event in events:
            if not number or event.get("ph") != "M":
                yield _write(event, number, span, ids).encode()
        number += 1


def _write(event: dict[str, Any], number: int, span: int, ids: int) -> str:
    fields = []
    for key in ("ph", "id", "cat", "s", "name", "pid", "tid", "ts", "dur", "bp"):
        if key not in event:
            continue
        value = event[key]
        if key in {"ts", "dur"}:
            text = f"{value + number * span if key == 'ts' else value:.3f}"
        elif key == "id":
            text = str(value + number * ids)
        else:
            text = json.dumps(value)
        fields.append(f'    "{key}": {text}')
    text = "  {\n" + ",\n".join(fields)
    if args := event.get("args"):
        moved = {
            key: value + number * ids if key in NUMBERED and isinstance(value, int) else value
            for key, value in args.items()
        }
        text += '\n    ,\n    "args": {\n      ' + json.dumps(moved)[1:-1] + "\n    }"
    return text + "\n  }"


def make(golden: Path, target: Path, size: int) -> int:
    """Write a trace of at least so many bytes; the number of its events."""
    trace = json.loads(gzip.decompress(golden.read_bytes()))
    head = {key: value for key, value in trace.items() if key != "traceEvents"}
    events = 0
    with target.open("wb") as file:
        written = file.write(
            b"{\n" + "".join(f"  {json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items()).encode()
        )
        written += file.write(b'  "traceEvents": [\n')
        for event in copies(trace):
            written += file.write(b",\n" * bool(events) + event)
            events += 1
            if written >= size:
                break
        file.write(b"\n  ]\n}\n")
    return events


def read(how: str, path: str) -> None:
    """Read in this process and print what was read, seconds of CPU (with processes that it started) and memory, as JSON."""
    before = spent(), time.perf_counter()
    what = {"opcost": read_opcost, "json": read_json, "hta": read_hta}[how](path)
    cpu, wall = spent() - before[0], time.perf_counter() - before[1]
    print(json.dumps({"cpu": cpu, "wall": wall, "peak": peak_bytes(), "what": what}))


def read_opcost(path: str) -> str:
    from opcost.traces.kineto.reader import read_table

    table = read_table(path)
    return f"{len(table.groups)} groups of {sum(group.host.count for group in table.groups)} executions"


def read_json(path: str) -> str:
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rb") as file:
        return f"{len(json.load(file)['traceEvents'])} events, not tabulated"


def read_hta(path: str) -> str:
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_files={0: path}, trace_dir=str(Path(path).parent))
    return f"{len(analysis.t.get_trace(0))} rows of a data frame"


def spent() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def peak_bytes() -> int:
    """The most memory that this process held; what `getrusage` says may be that of the process that started it."""
    try:
        status = Path("/proc/self/status").read_text("utf-8")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def compare(path: Path, pythons: dict[str, str]) -> None:
    """Read one file with each reader, in a process of its own, and print each beside opcost."""
    first: dict[str, float] = {}
    for how, python in pythons.items():
        done = subprocess.run([python, __file__, "--read", how, str(path)], check=False, capture_output=True, text=True)
        if done.returncode:
            print(f"{how:8} {path.name:18} failed: {(done.stderr.strip() or 'killed').splitlines()[-1]}", flush=True)
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        first = first or found
        print(
            f"{how:8} {path.name:18} {found['cpu']:6.1f} s of CPU ({found['cpu'] / first['cpu']:4.1f} x)  "
            f"{found['wall']:6.1f} s  "
            f"{found['peak'] / 1e6:6.0f} MB ({found['peak'] / first['peak']:4.1f} x)  {found['what']}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--trace", type=Path, default=GOLDEN)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--hta", metavar="PYTHON")
    parser.add_argument("--read", nargs=2, metavar=("HOW", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(*options.read)
        return
    pythons = {"opcost": sys.executable}
    if options.peers:
        pythons["json"] = sys.executable
    if options.hta:
        pythons["hta"] = options.hta
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        plain, packed = folder / "large.json", folder / "large.json.gz"
        events = make(options.trace, plain, int(options.gigabytes * 1e9))
        with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
            while block := source.read(1 << 22):
                target.write(block)
        print(
            f"{events} events, {plain.stat().st_size / 1e9:.2f} GB, gzipped {packed.stat().st_size / 1e9:.2f} GB",
            flush=True,
        )
        for path in (plain, packed):
            compare(path, pythons)


if __name__ == "__main__":
    main()
