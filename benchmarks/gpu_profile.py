"""What the recorder says of a GPU, against PyTorch's own trace of the same runs, against hooks, and against CUDA's events.

    PYTHONPATH=src python benchmarks/gpu_profile.py [--out FOLDER] [--only WORD]

Needs torch with CUDA, nothing else; opcost need not be installed. For each case: the time of a run without a profiler, what
recording adds to it, the sum of the profile's kernels against that of the trace that PyTorch itself exports, how much device
work found no operator, how much of the counted cost found its row, and whether modules are those that hooks saw. Profiles are
saved into FOLDER.
"""

# ruff: noqa: E402 - what is imported lies in folders that are named first
from __future__ import annotations

import argparse
import bisect
import json
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "examples", "benchmarks")]

from transformer import Decoder

import opcost
from module_truth import backward_truth, forward_truth, recorded_backward, recorded_forward
from networks import Autocast, Checkpointed, Replay, ResNet50
from opcost.core.profile import Profile
from opcost.core.profile_schema import dumps
from opcost.core.report import Report
from opcost.recorders.measure import percentile
from opcost.recorders.registry import ProfileOptions
from opcost.recorders.torch import record as recorder
from opcost.recorders.torch.events import ASIDE
from plugged import plug_in

REPEAT = 10
CONTRACTIONS = ("conv", "matmul", "attention")


class Kept(recorder.profile):  # type: ignore[misc]
    """PyTorch's profiler, the last one kept so that its own trace can be asked afterwards."""

    last: Any = None

    def __enter__(self) -> Any:
        Kept.last = self
        return super().__enter__()


def trace_sum() -> tuple[int, int]:
    """Nanoseconds and number of the device events in the exported trace, but for what the recorder ran between steps."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        Kept.last.export_chrome_trace(str(path))
        events = [e for e in json.loads(path.read_text(encoding="utf-8"))["traceEvents"] if e.get("ph") == "X"]
    aside = sorted(
        (e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] == ASIDE and e["cat"] != "gpu_user_annotation"
    )
    starts = [start for start, _ in aside]

    def within(moment: float) -> bool:
        at = bisect.bisect_right(starts, moment) - 1
        return at >= 0 and moment < aside[at][1]

    launched = {
        e["args"]["correlation"] for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver") and within(e["ts"])
    }
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    kept = [e for e in events if e.get("cat") in kinds and e["args"]["correlation"] not in launched]
    return round(sum(e["dur"] * 1000 for e in kept)), len(kept)


def show(name: str, profile: Profile, report: Report | None) -> None:
    rows, steps = profile.rows, int(profile.meta["steps"])
    stray = sum(kernel.duration_ns for kernel in profile.unattributed)
    ours = sum(row.device_ns or 0 for row in rows) + stray
    kernels = sum(len(row.kernels) for row in rows) + len(profile.unattributed)
    theirs, number = trace_sum()
    alone, recorded = percentile(profile.timed_ns, 50), percentile(profile.extra["recorded_ns"], 50)  # type: ignore[arg-type]
    p10, p90 = (percentile(profile.timed_ns, p) / 1e6 for p in (10, 90))
    print(f"\n{name}: unprofiled {alone / 1e6:.3f} ms (p10 {p10:.3f}, p90 {p90:.3f})", end="")
    print(
        f", recorded {recorded / 1e6:.3f} ms ({recorded / alone - 1:+.1%}), annotated {profile.meta.get('annotated')}"
    )
    print(
        f"  device {ours / steps / 1e6:.4f} ms per run in {kernels} kernels; PyTorch's trace {theirs / steps / 1e6:.4f}",
        end="",
    )
    print(f" in {number}: difference {ours / max(theirs, 1) - 1:+.5%}; unattributed {stray / max(ours, 1):.2%}")
    if report is not None:
        placed = sum(row.cost.flops for row in rows if row.cost is not None) / steps
        print(f"  cost placed {placed / max(report.totals.flops, 1):.3%} of {report.totals.flops / 1e9:.2f} GFLOPs")
        print(f"  contractions by module: {_by_module(profile, report)}")
    for note in profile.notes:
        print(f"  note: {note.text[:160]}")
    for row in sorted((row for row in rows if row.step == steps - 1), key=lambda row: -(row.device_ns or 0))[:3]:
        rate = f"{row.cost.flops / row.device_ns / 1e3:8.2f} TFLOP/s" if row.cost and row.device_ns else " " * 16
        print(
            f"    {(row.device_ns or 0) / 1e3:9.1f} us {rate}  {row.phase:<8} {row.name} [{row.type}] {len(row.kernels)} kernels"
        )


def _by_module(profile: Profile, report: Report) -> str:
    """Whether each module's convolutions, products and attentions are the counted ones, by FLOPs."""
    wanted: Counter[tuple[str, str]] = Counter()
    for row in report.rows:
        if row.op.kind in CONTRACTIONS and row.cost is not None:
            wanted[row.op.phase, row.op.module] += row.cost.flops * row.op.repeat
    found: Counter[tuple[str, str]] = Counter()
    for each in profile.rows:
        if each.step == 0 and each.kind in CONTRACTIONS and each.cost is not None:
            found[each.phase, each.module] += each.cost.flops
    wrong = {key for key in wanted.keys() | found.keys() if abs(wanted[key] - found[key]) > 0.02 * wanted[key]}
    return f"{len(wanted) - len(wrong)} of {len(wanted)} equal" + (f", not {sorted(wrong)[:4]}" if wrong else "")


class Cases:
    """Runs cases one after the other; one that fails does not stop the next."""

    def __init__(self, only: str, out: Path | None) -> None:
        self._only = only
        self._out = out

    def __call__(
        self,
        name: str,
        make: Callable[[], tuple[nn.Module, Any]],
        *,
        counted: bool = True,
        truth: bool = False,
        **options: Any,
    ) -> None:
        if self._only not in name:
            return
        started = time.monotonic()
        try:
            model, inputs = make()
            report = opcost.count(model, inputs, backward=options.get("backward", False)) if counted else None
            profile = recorder.record(model, ProfileOptions(inputs=inputs, **{"repeat": REPEAT, **options}), report)
            show(name, profile, report)
            if truth:
                _compare(model, inputs, profile, backward=options.get("backward", False))
            if self._out is not None:
                (self._out / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.json").write_text(dumps(profile))
        except Exception:
            print(f"\n{name}: FAILED")
            traceback.print_exc(limit=-6, file=sys.stdout)
        print(f"  ({time.monotonic() - started:.0f} s)")
        sys.stdout.flush()
        torch.cuda.empty_cache()


def _compare(model: nn.Module, inputs: Any, profile: Profile, *, backward: bool) -> None:
    wanted, found = forward_truth(model, (inputs,)), recorded_forward(profile)
    if not backward:
        differing = [pair for pair in zip(wanted, found, strict=False) if pair[0] != pair[1]]
        print(
            f"  modules by hooks: {len(wanted)} operators, recorded {len(found)}, equal {wanted == found} {differing[:3]}"
        )
        return
    nodes, recorded = backward_truth(model, (inputs,)), recorded_backward(profile)
    missing, extra = list((nodes - recorded).items())[:3], list((recorded - nodes).items())[:3]
    print(f"  backward nodes by hooks: {sum(nodes.values())}, equal {nodes == recorded} {missing} {extra}")


def resnet(batch: int = 32) -> tuple[nn.Module, Any]:
    return ResNet50().cuda().eval(), torch.randn(batch, 3, 224, 224, device="cuda")


def training(pair: tuple[nn.Module, Any]) -> tuple[nn.Module, Any]:
    return pair[0].train(), pair[1]


def decoder() -> tuple[nn.Module, Any]:
    return Decoder().cuda().bfloat16().eval(), torch.zeros(8, 512, dtype=torch.int64, device="cuda")


def small() -> tuple[nn.Module, Any]:
    return Decoder(vocabulary=8000, width=256, layers=4, heads=4).cuda().eval(), torch.zeros(
        2, 128, dtype=torch.int64, device="cuda"
    )


def compiled(pair: tuple[nn.Module, Any], **options: Any) -> tuple[nn.Module, Any]:
    torch.compiler.reset()
    return torch.compile(pair[0], **options), pair[1]  # type: ignore[return-value]


def measured() -> None:
    """`opcost.measure` of work that the device does behind the host's back, against CUDA's own events, in turns."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for name, function in (("product 8192 bfloat16", lambda: a @ a), ("sum of 128 MiB", a.sum)):
        ours: list[int] = []
        theirs: list[int] = []
        for _ in range(10):
            found = opcost.measure(function, repeat=10, warmup=2)
            ours.extend(found.durations_ns)
            for _ in range(10):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                torch.cuda.synchronize()
                start.record()
                function()
                end.record()
                torch.cuda.synchronize()
                theirs.append(round(start.elapsed_time(end) * 1e6))
        begin = time.perf_counter_ns()
        function()
        naive = time.perf_counter_ns() - begin
        torch.cuda.synchronize()
        medians = f"{percentile(ours, 50) / 1e6:.4f} ms; events {percentile(theirs, 50) / 1e6:.4f} ms"
        print(f"\nopcost.measure, {name}: {medians}; without waiting {naive / 1e6:.4f} ms\n{found}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    started = time.monotonic()
    if not torch.cuda.is_available():
        sys.exit("this torch sees no CUDA device")
    plug_in()
    recorder.profile = Kept
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}, Python {sys.version.split()[0]}"
    print(f"{torch.cuda.get_device_name()}, {versions}")
    case = Cases(given.only, given.out)
    case("resnet50 float32", resnet, truth=True)
    case("resnet50 autocast", lambda: (Autocast(resnet()[0], "cuda").eval(), resnet()[1]), truth=True)
    case("resnet50 backward", lambda: training(resnet()), truth=True, backward=True)
    case("resnet50 cold L2", resnet, cold_l2=True)
    case("resnet50 host only", resnet, host_only=True)
    case("transformer bfloat16", decoder, truth=True)
    case("transformer backward", lambda: training(decoder()), truth=True, backward=True)
    case("small transformer", small, truth=True)
    checkpointed = Checkpointed().cuda(), torch.randn(4096, 256, device="cuda")
    case("checkpoints backward", lambda: checkpointed, backward=True, counted=False)
    case("CUDA graph", lambda: (Replay(), torch.randn(64, 1024, device="cuda")), counted=False)
    if given.only in "measure":
        measured()
    case("transformer compiled", lambda: compiled(decoder()))
    case("transformer compiled backward", lambda: compiled(training(decoder())), backward=True)
    case("transformer reduce-overhead", lambda: compiled(decoder(), mode="reduce-overhead"))
    case("resnet50 compiled", lambda: compiled(resnet()))
    print(f"\n{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
