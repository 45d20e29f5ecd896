"""What recording a profile costs, and whether what it reports of a GPU is what PyTorch's own trace, hooks and CUDA events report.

    python benchmarks/profiling.py recording [--rounds N] [--only WORD]        on the processor: recorded against unprofiled runs
    python benchmarks/profiling.py gpu_recording [--only WORD] [--out FOLDER]  on a GPU; profiles are saved into FOLDER

recording: every model runs with one thread and with all. Blocks of unprofiled and of recorded runs alternate, so that other
work on the machine affects both; the fastest run of each counts, and the median is beside it. The comparison is repeated in CPU
time.
gpu_recording: for each case the time of an unprofiled run, what recording adds, the sum of the profile's kernels against that
of the trace that PyTorch exports, the device time without an operator, the share of the counted cost that has a row, and
whether modules are those that hooks see. Forward: every module opens an annotation in a hook before its forward and closes it
in one after; the innermost annotation around an operator is its module. Backward: when a module ends, the autograd nodes
between its outputs and its inputs that no module inside it made are its own. Needs torch with CUDA and torchvision; opcost need
not be installed.
"""

# ruff: noqa: E402 - what is imported is in folders that are named first
from __future__ import annotations

import argparse
import bisect
import json
import os
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would announce every start and stop

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

from harness import ROOT, Table, arguments, load_torchvision

sys.path[:0] = [str(ROOT / "src"), str(ROOT / "examples")]

import opcost
from opcost.core.profile import Profile
from opcost.core.profile_schema import dumps
from opcost.core.report import Report
from opcost.recorders.measure import percentile
from opcost.recorders.registry import ProfileOptions
from opcost.recorders.torch import record as recorder
from opcost.recorders.torch.events import ASIDE

Subject = tuple[nn.Module, Any]


# -- models ---------------------------------------------------------------------------------------------------------------


def resnet50(batch: int = 1) -> Subject:
    load_torchvision()
    import torchvision

    return torchvision.models.resnet50().eval(), torch.randn(batch, 3, 224, 224)


def resnet18() -> Subject:
    from resnet18 import ResNet18

    return ResNet18().eval(), torch.randn(1, 3, 224, 224)


def decoder(batch: int, tokens: int, **sizes: int) -> Subject:
    from transformer import Decoder

    return Decoder(**sizes).eval(), torch.zeros(batch, tokens, dtype=torch.int64)


def small_decoder() -> Subject:
    return decoder(2, 128, vocabulary=8000, width=256, layers=4, heads=4)


def encoder() -> Subject:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    return nn.TransformerEncoder(layer, 4).train(), torch.randn(2, 64, 256)


class Autocast(nn.Module):
    """A network whose products run in bfloat16 while its weights are float32."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return self.net(x)


class Checkpointed(nn.Module):
    """Blocks whose activations are computed again in the backward pass."""

    def __init__(self, blocks: int = 4, width: int = 256) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x


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

    def forward(self, x: Tensor) -> Tensor:
        self.x.copy_(x)
        self.graph.replay()
        return self.y


# -- on the processor -----------------------------------------------------------------------------------------------------

RECORDED: dict[str, tuple[Callable[[], Subject], int]] = {
    "resnet50": (resnet50, 5),
    "resnet18": (resnet18, 8),
    "decoder": (small_decoder, 10),
    "encoder": (encoder, 10),
}
"""Models, and the runs of a block."""


def runs(subject: Subject, block: int, rounds: int) -> tuple[list[int], list[int], list[int]]:
    """Nanoseconds of every run, unprofiled and recorded, and the sum of the rows of each recorded one."""
    alone: list[int] = []
    recorded: list[int] = []
    rows: list[int] = []
    for _ in range(rounds):
        found = opcost.profile(*subject, repeat=block, warmup=1)
        alone.extend(found.timed_ns)
        recorded.extend(found.extra["recorded_ns"])  # type: ignore[arg-type]
        sums = [0] * block
        for row in found.rows:
            sums[row.step or 0] += row.host_self_ns or 0
        rows.extend(sums)
    return alone, recorded, rows


def recording(options: argparse.Namespace) -> None:
    table = Table("recording", ("model", "threads", "unprofiled ms", "recorded", "median", "CPU time", "sum of rows"))
    most, rounds = torch.get_num_threads(), 1 if options.quick else options.rounds
    for name, (make, block) in RECORDED.items():
        if (options.only or "encoder" * options.quick) not in name:
            continue
        subject = make()
        for threads in sorted({1, most}):
            torch.set_num_threads(threads)
            alone, recorded, rows = runs(subject, block, rounds)
            with mock.patch("time.perf_counter_ns", time.process_time_ns):
                cpu_alone, cpu_recorded, _ = runs(subject, block, max(1, rounds // 2))
            ratios = (
                min(recorded) / min(alone),
                percentile(recorded, 50) / percentile(alone, 50),
                min(cpu_recorded) / min(cpu_alone),
                min(rows) / min(alone),
            )
            table.add(name, threads, f"{min(alone) / 1e6:.2f}", *(f"{ratio - 1:+.2%}" for ratio in ratios))
    table.finish(options)


# -- on a GPU: modules by hooks -------------------------------------------------------------------------------------------

MARK = "module of "
_NODE = re.compile(r"\w+Backward\d*$")


def forward_by_hooks(model: nn.Module, args: tuple[Any, ...]) -> Iterator[tuple[str, str]]:
    """Module and name of every operator that the model's code calls, in order."""
    open_: list[Any] = []
    handles = []

    def enter(path: str) -> Any:
        def hook(*_: Any) -> None:
            open_.append(record_function(MARK + path))
            open_[-1].__enter__()

        return hook

    def leave(*_: Any) -> None:
        open_.pop().__exit__(None, None, None)

    for path, module in model.named_modules():
        handles += [module.register_forward_pre_hook(enter(path)), module.register_forward_hook(leave)]
    try:
        with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as profiler:
            model(*args)
    finally:
        for handle in handles:
            handle.remove()
    events = [event for event in profiler.events() if event.time_range.elapsed_us() >= 0]
    events.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
    marks: list[tuple[float, str]] = []
    busy_until = float("-inf")
    for event in events:
        start, end = event.time_range.start, event.time_range.end
        while marks and marks[-1][0] <= start:
            marks.pop()
        if event.name.startswith(MARK):
            marks.append((end, event.name.removeprefix(MARK)))
        elif event.name.startswith("aten::") and start >= busy_until:
            busy_until = end
            yield marks[-1][1] if marks else "", event.name


def backward_by_hooks(model: nn.Module, args: tuple[Any, ...]) -> Counter[tuple[str, str]]:
    """How many autograd nodes of each kind each module makes."""
    made: dict[Any, str] = {}
    given: list[set[Any]] = []
    """The nodes of the inputs of the running modules, taken before an operator in place changes them."""

    def enter(_: nn.Module, args: tuple[Any, ...]) -> None:
        given.append({tensor.grad_fn for tensor in args if isinstance(tensor, Tensor)})

    def leave(path: str) -> Any:
        def hook(_module: nn.Module, _args: Any, result: Any) -> None:
            before, seen = given.pop(), set()
            results = result if isinstance(result, (tuple, list)) else (result,)
            waiting = [tensor.grad_fn for tensor in results if isinstance(tensor, Tensor)]
            while waiting:
                node = waiting.pop()
                if node is not None and node not in before and node not in seen:
                    seen.add(node)
                    made.setdefault(node, path)
                    waiting += [following for following, _ in node.next_functions]

        return hook

    handles = []
    for path, module in model.named_modules():
        handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave(path))]
    try:
        with torch.enable_grad():
            model(*args)
    finally:
        for handle in handles:
            handle.remove()
    return Counter((path, node.name()) for node, path in made.items() if _NODE.match(node.name()))


def modules_by_hooks(model: nn.Module, inputs: Any, found: Profile, *, backward: bool) -> str:
    """Operators, or autograd nodes, whose module is that of the hooks, and the first differences."""
    first = [row for row in found.rows if row.step == 0]
    if backward:
        nodes = backward_by_hooks(model, (inputs,))
        recorded = Counter((row.module, row.type) for row in first if _NODE.match(row.type))
        print(f"  nodes that differ: {list(((nodes - recorded) + (recorded - nodes)).items())[:4]}")
        return f"{(nodes & recorded).total()} of {nodes.total()}"
    wanted = list(forward_by_hooks(model, (inputs,)))
    ours = [(row.module, row.type) for row in first if row.phase == "forward" and row.type.startswith("aten::")]
    equal = sum(pair[0] == pair[1] for pair in zip(wanted, ours, strict=False))
    print(f"  operators by hooks {len(wanted)}, recorded {len(ours)}")
    return f"{equal} of {len(wanted)}"


def contractions_by_module(found: Profile, report: Report) -> str:
    """Modules whose convolutions, products and attentions have the counted FLOPs, within 2 %."""
    kinds = ("conv", "matmul", "attention")
    wanted, ours = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in report.rows:
        if row.op.kind in kinds and row.cost is not None:
            wanted[row.op.phase, row.op.module] += row.cost.flops * row.op.repeat
    for each in found.rows:
        if each.step == 0 and each.kind in kinds and each.cost is not None:
            ours[each.phase, each.module] += each.cost.flops
    wrong = {key for key in wanted.keys() | ours.keys() if abs(wanted[key] - ours[key]) > 0.02 * wanted[key]}
    return f"{len(wanted) - len(wrong)} of {len(wanted)}"


# -- on a GPU: the trace of PyTorch ---------------------------------------------------------------------------------------


class Kept(recorder.profile):  # type: ignore[misc]
    """PyTorch's profiler; the last one is kept, so that its own trace can be exported afterwards."""

    last: Any = None

    def __enter__(self) -> Any:
        Kept.last = self
        return super().__enter__()


def exported_ns() -> int:
    """The sum of the device events in the exported trace, without what the recorder ran between steps."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        Kept.last.export_chrome_trace(str(path))
        events = [e for e in json.loads(path.read_text(encoding="utf-8"))["traceEvents"] if e.get("ph") == "X"]
    own = [e for e in events if e["name"] == ASIDE and e["cat"] != "gpu_user_annotation"]
    aside = sorted((e["ts"], e["ts"] + e["dur"]) for e in own)
    starts = [start for start, _ in aside]

    def within(moment: float) -> bool:
        at = bisect.bisect_right(starts, moment) - 1
        return at >= 0 and moment < aside[at][1]

    calls = (e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver"))
    launched = {e["args"]["correlation"] for e in calls if within(e["ts"])}
    device = (e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"))
    return round(sum(e["dur"] * 1000 for e in device if e["args"]["correlation"] not in launched))


def training(subject: Subject) -> Subject:
    return subject[0].train(), subject[1]


def compiled(subject: Subject, **settings: Any) -> Subject:
    torch.compiler.reset()
    return torch.compile(subject[0], **settings), subject[1]  # type: ignore[return-value]


def on_gpu(subject: Subject, dtype: torch.dtype = torch.float32) -> Subject:
    return subject[0].cuda().to(dtype), subject[1].cuda()


def resnet() -> Subject:
    return on_gpu(resnet50(32))


def language() -> Subject:
    return on_gpu(decoder(8, 512), torch.bfloat16)


HOOKS, BACKWARD = {"hooks": True}, {"backward": True}
GPU_CASES: dict[str, tuple[Callable[[], Subject], dict[str, Any]]] = {
    "resnet50 float32": (resnet, HOOKS),
    "resnet50 autocast": (lambda: (Autocast(resnet()[0]).eval(), resnet()[1]), HOOKS),
    "resnet50 backward": (lambda: training(resnet()), HOOKS | BACKWARD),
    "resnet50 cold L2": (resnet, {"cold_l2": True}),
    "resnet50 host only": (resnet, {"host_only": True}),
    "decoder bfloat16": (language, HOOKS),
    "decoder backward": (lambda: training(language()), HOOKS | BACKWARD),
    "small decoder": (lambda: on_gpu(small_decoder()), HOOKS),
    "checkpoints backward": (
        lambda: (Checkpointed().cuda(), torch.randn(4096, 256, device="cuda")), BACKWARD | {"counted": False}
    ),
    "CUDA graph": (lambda: (Replay(), torch.randn(64, 1024, device="cuda")), {"counted": False}),
    "decoder compiled": (lambda: compiled(language()), {}),
    "decoder compiled backward": (lambda: compiled(training(language())), BACKWARD),
    "decoder reduce-overhead": (lambda: compiled(language(), mode="reduce-overhead"), {}),
    "resnet50 compiled": (lambda: compiled(resnet()), {}),
}  # fmt: skip
"""Cases, and what is done with them: compared with hooks, counted (unless said otherwise), and options of a profile."""


def gpu_recording(options: argparse.Namespace) -> None:
    """One case that fails does not stop the next."""
    recorder.profile = Kept
    heads = ("unprofiled ms", "recorded", "device ms", "against the trace", "unattributed", "FLOPs placed", "modules")
    table = Table("gpu_recording", ("case", *heads))
    for name, (make, settings) in GPU_CASES.items():
        if (options.only or "small" * options.quick) not in name:
            continue
        given = {key: value for key, value in settings.items() if key not in ("hooks", "counted")}
        try:
            model, inputs = make()
            backward = given.get("backward", False)
            report = opcost.count(model, inputs, backward=backward) if settings.get("counted", True) else None
            found = recorder.record(model, ProfileOptions(inputs=inputs, repeat=10, **given), report)
            table.add(name, *described(found, report))
            if settings.get("hooks"):
                table.rows[-1][-1] = modules_by_hooks(model, inputs, found, backward=backward)
            if options.out is not None:
                (options.out / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.json").write_text(dumps(found))
        except Exception:
            print(f"{name}: FAILED")
            traceback.print_exc(limit=-6, file=sys.stdout)
        torch.cuda.empty_cache()
    if not options.only:
        against_events()
    table.finish(options)


def described(found: Profile, report: Report | None) -> list[str]:
    """The cells of a profile."""
    steps = int(found.meta["steps"])
    stray = sum(kernel.duration_ns for kernel in found.unattributed)
    ours, theirs = sum(row.device_ns or 0 for row in found.rows) + stray, exported_ns()
    alone, recorded = percentile(found.timed_ns, 50), percentile(found.extra["recorded_ns"], 50)  # type: ignore[arg-type]
    placed = modules = ""
    if report is not None:
        flops = sum(row.cost.flops for row in found.rows if row.cost is not None) / steps
        placed, modules = f"{flops / max(report.totals.flops, 1):.2%}", contractions_by_module(found, report)
    return [
        f"{alone / 1e6:.3f}",
        f"{recorded / alone - 1:+.1%}",
        f"{ours / steps / 1e6:.3f}",
        f"{ours / max(theirs, 1) - 1:+.5%}",
        f"{stray / max(ours, 1):.2%}",
        placed,
        modules,
    ]


def against_events() -> None:
    """`opcost.measure` of work that the device does after the call returns, against CUDA's own events, in turns."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for name, function in (("product 8192 bfloat16", lambda: a @ a), ("sum of 128 MiB", a.sum)):
        ours: list[int] = []
        theirs: list[int] = []
        for _ in range(10):
            ours.extend(opcost.measure(function, repeat=10, warmup=2).durations_ns)
            for _ in range(10):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                torch.cuda.synchronize()
                start.record()
                function()
                end.record()
                torch.cuda.synchronize()
                theirs.append(round(start.elapsed_time(end) * 1e6))
        medians = [f"{percentile(each, 50) / 1e6:.4f} ms" for each in (ours, theirs)]
        print(f"{name}: opcost.measure {medians[0]}, CUDA events {medians[1]}")


CASES = {case.__name__: case for case in (recording, gpu_recording)}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default="", help="models or cases whose name contains this")
    parser.add_argument("--out", type=Path, help="gpu_recording: a folder for the profiles")
    options = parser.parse_args()
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
    if options.case == "gpu_recording" and not torch.cuda.is_available():
        sys.exit("this torch has no CUDA device")
    CASES[options.case](options)


if __name__ == "__main__":
    main()
