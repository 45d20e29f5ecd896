"""What the recorder says of a GPU, against PyTorch's own trace of the same runs.

    PYTHONPATH=src python benchmarks/gpu_profile.py

Needs torch with CUDA, nothing else; opcost need not be installed. For each case: the time of a run without a profiler, what
recording adds to it, the sum of the profile's kernels against that of the trace that PyTorch itself exports, how much device
work found no operator, and how much of the counted cost found its row.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "examples")]

from resnet18 import ResNet18  # noqa: E402
from transformer import Decoder  # noqa: E402

import opcost.core.plugin  # noqa: E402
from opcost.core.profile import Profile  # noqa: E402
from opcost.recorders.options import ProfileOptions  # noqa: E402
from opcost.recorders.timing import percentile  # noqa: E402
from opcost.recorders.torch import record as recorder  # noqa: E402

REPEAT = 10
DEADLINE_S = 150
_GROUP = re.compile(r'^\[project\.entry-points\."([\w.]+)"\]\n((?:[^\[\n].*\n)*)', re.MULTILINE)
_ENTRY = re.compile(r'^([\w-]+)\s*=\s*"([^"]+)"', re.MULTILINE)


def plug_in() -> None:
    """Without an installed package nobody knows opcost's own parts; pyproject.toml does."""
    if opcost.core.plugin.find(opcost.core.plugin.RULES):
        return
    groups = {
        group: [EntryPoint(name, value, group) for name, value in _ENTRY.findall(body)]
        for group, body in _GROUP.findall((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    }
    opcost.core.plugin.entry_points = lambda group: groups.get(group, [])  # type: ignore[assignment]
    opcost.core.plugin.find.cache_clear()


class Kept(recorder.profile):  # type: ignore[misc]
    """PyTorch's profiler, kept so that its own trace can be asked afterwards."""

    last: Any = None

    def __enter__(self) -> Any:
        Kept.last = self
        return super().__enter__()


def trace_sum(first_ns: int) -> tuple[int, int]:
    """Nanoseconds and number of the device events in the exported trace, from a moment on."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        Kept.last.export_chrome_trace(str(path))
        trace = json.loads(path.read_text(encoding="utf-8"))
    base = trace.get("baseTimeNanoseconds", 0)
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    events = [event for event in trace["traceEvents"] if event.get("cat") in kinds]
    kept = [event for event in events if base + event["ts"] * 1000 >= first_ns - 1000]
    return round(sum(event["dur"] for event in kept) * 1000), len(kept)


def show(name: str, profile: Profile, flops: int | None) -> None:
    rows = profile.rows
    steps = int(profile.meta["steps"])
    ours = sum(row.device_ns or 0 for row in rows) + sum(kernel.duration_ns for kernel in profile.unattributed)
    kernels = sum(len(row.kernels) for row in rows) + len(profile.unattributed)
    theirs, number = trace_sum(min(row.host_start_ns for row in rows if row.host_start_ns is not None))
    stray = sum(kernel.duration_ns for kernel in profile.unattributed)
    p10, p50, p90 = (percentile(profile.timed_ns, p) / 1e6 for p in (10, 50, 90))
    print(f"\n{name}: unprofiled {p50:.3f} ms (p10 {p10:.3f}, p90 {p90:.3f})")
    print(f"  recording {profile.meta['overhead']} per run, {len(rows)} rows in {steps} runs")
    print(f"  device time per run: {ours / steps / 1e6:.3f} ms in {kernels} kernels of all runs")
    print(f"  PyTorch's own trace: {theirs / steps / 1e6:.3f} ms in {number}")
    print(f"  difference {ours / max(theirs, 1) - 1:+.4%}, unattributed {stray / max(ours, 1):.2%}")
    no_module = sum(row.device_ns or 0 for row in rows if not row.module)
    print(f"  device time in the root module {no_module / max(ours, 1):.1%}")
    if flops is not None:
        placed = sum(row.cost.flops for row in rows if row.cost is not None) / steps
        print(f"  cost placed {placed / max(flops, 1):.2%} of {flops / 1e9:.2f} GFLOPs")
    for note in profile.notes:
        print(f"  note: {note.text}")
    for row in sorted((row for row in rows if row.step == steps - 1), key=lambda row: -(row.device_ns or 0))[:5]:
        rate = f"{row.cost.flops / row.device_ns / 1e3:8.2f} TFLOP/s" if row.cost and row.device_ns else " " * 16
        what = f"{row.phase:<8} {row.name} [{row.type}] {len(row.kernels)} kernels"
        print(f"    {(row.device_ns or 0) / 1e3:9.1f} us {rate}  {what}")


def case(name: str, make: Callable[[], tuple[nn.Module, Any]], *, counted: bool = True, **options: Any) -> None:
    try:
        model, inputs = make()
        report = opcost.count(model, inputs, backward=options.get("backward", False)) if counted else None
        options = {"repeat": REPEAT, **options}
        profile = recorder.record(model, ProfileOptions(inputs=inputs, **options), report)
        show(name, profile, report.totals.flops if report is not None else None)
    except Exception:
        print(f"\n{name}: FAILED")
        traceback.print_exc(limit=-6, file=sys.stdout)
    sys.stdout.flush()
    torch.cuda.empty_cache()


class Replay(nn.Module):
    """A CUDA graph of a small network, replayed."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(8))).cuda().eval()
        self.x = torch.zeros(64, 1024, device="cuda")
        with torch.no_grad():
            for _ in range(3):
                self.net(self.x)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.y = self.net(self.x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.x.copy_(x)
        self.graph.replay()
        return self.y


def resnet() -> tuple[nn.Module, Any]:
    return ResNet18().cuda().eval(), torch.randn(32, 3, 224, 224, device="cuda")


def decoder() -> tuple[nn.Module, Any]:
    return Decoder().cuda().bfloat16().eval(), torch.zeros(8, 512, dtype=torch.int64, device="cuda")


def main() -> None:
    started = time.monotonic()
    if not torch.cuda.is_available():
        sys.exit("this torch sees no CUDA device")
    plug_in()
    recorder.profile = Kept
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}, Python {sys.version.split()[0]}"
    print(f"{torch.cuda.get_device_name()}, {versions}")
    case("resnet18 32x3x224x224 float32", resnet)
    case("resnet18, backward", resnet, backward=True)
    case("resnet18, cold L2", resnet, cold_l2=True)
    case("transformer 8x512 bfloat16", decoder)
    case("transformer, backward", decoder, backward=True)
    case("CUDA graph", lambda: (Replay(), torch.randn(64, 1024, device="cuda")), counted=False)
    model, inputs = resnet()
    with torch.no_grad():
        print("\nopcost.measure on resnet18:\n" + str(opcost.measure(model, inputs, repeat=20, items=32)))
        start = time.perf_counter_ns()
        model(inputs)
        print(f"the same without waiting for the device: {(time.perf_counter_ns() - start) / 1e6:.3f} ms")
    if time.monotonic() - started < DEADLINE_S / 2:
        case("transformer, compiled", lambda: (torch.compile(decoder()[0]), decoder()[1]))
    print(f"\n{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
