"""Measure models through torch.compile on the GPU at hand: CUDA graphs, single kernels, and the groups that inductor made.

    python benchmarks/measure_compiled.py MODELS.json OUT.json SECONDS [--workers 12] [--dry]

MODELS.json is a list of rows {"name", "batch", "dtype", ...} (`built` has the keys), or a file that this script wrote. Several
processes compile side by side; only one at a time runs on the GPU. `--dry` compiles on the processor and times nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import math
import multiprocessing
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from opcost.recorders.calibration.run import capture

Row = dict[str, Any]
Call = Callable[[], Any]
REPLAYS = 9


def built(row: Row, device: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A model with random weights, and its arguments.

    `name` is timm/NAME, tv/NAME or hf/CONFIG; `settings` are of the model or configuration; `class` is the class of
    transformers, usually AutoModel; `image` or `tokens` is the size of the input; `channels_last` is a switch.
    """
    library, _, name = row["name"].partition("/")
    dtype, batch, settings = getattr(torch, row["dtype"]), row["batch"], row.get("settings", {})
    layout = torch.channels_last if row.get("channels_last") else torch.contiguous_format
    with torch.device(device):
        if library == "hf":
            import transformers

            config = getattr(transformers, name)(**settings)
            kind = getattr(transformers, row.get("class", "AutoModel"))
            model = kind.from_config(config) if "Auto" in kind.__name__ else kind(config)
        elif library == "timm":
            import timm

            model = timm.create_model(name, **settings)
        else:
            import torchvision

            model = torchvision.models.get_model(name, **settings)
        model = model.to(dtype).eval().to(memory_format=layout)
        if "tokens" in row:
            ids = torch.zeros(batch, row["tokens"], dtype=torch.int64)
            causal = "use_cache" in getattr(model.config, "__dict__", {})
            return model, (), {"input_ids": ids, **({"use_cache": False} if causal else {})}
        extent = row.get("image", 224)
        given = torch.zeros(batch, 3, extent, extent, dtype=dtype).to(memory_format=layout)
        return (model, (), {"pixel_values": given}) if library == "hf" else (model, (given,), {})


# -- what inductor makes ------------------------------------------------------------------------------------------------------


class Made:
    """The nodes of inductor's schedulers, in the order in which they run, and the code that it writes."""

    def __init__(self) -> None:
        from torch._inductor.graph import GraphLowering
        from torch._inductor.scheduler import Scheduler

        self.graphs = 0
        self.nodes: list[Row] = []
        self.code: list[str] = []
        usual = Scheduler.codegen

        def codegen(scheduler: Any) -> Any:
            self.graphs += 1
            for node in scheduler.nodes:
                try:
                    self.nodes.append(described(node))
                except Exception as exc:
                    self.nodes.append({"kind": type(node).__name__, "error": f"{type(exc).__name__}: {exc}"[:100]})
            return usual(scheduler)

        Scheduler.codegen = codegen
        GraphLowering.save_output_code = staticmethod(self.code.append)


def described(node: Any) -> Row:
    """Kind, extents, operators and buffers of a node: a kernel that inductor writes, or one of a library."""
    kind = type(node).__name__.removesuffix("SchedulerNode")
    row: Row = {"kind": kind}
    if kind == "NopKernel":
        return row
    origins: dict[str, None] = {}
    parts = list(node.get_nodes())
    for part in parts:
        for origin in getattr(part.node, "origins", ()) or ():
            origins[str(origin.target).removeprefix("aten.")] = None
    row["ops"] = sorted(origins)[:12]
    row["parts"] = len(parts)
    if kind == "ExternKernel":
        inner = node.node
        row["name"] = str(getattr(inner, "python_kernel_name", "") or getattr(inner, "op_overload", ""))
        sizes = (each.get_size() for each in inner.inputs if hasattr(each, "get_size"))
        with contextlib.suppress(NotImplementedError, TypeError, ValueError):
            row["given"] = [[int(number) for number in size] for size in sizes]
        with contextlib.suppress(NotImplementedError):  # several results
            row["shape"] = [int(size) for size in inner.get_size()]
    else:
        row["extent"] = [int(math.prod(size)) if isinstance(size, tuple) else int(size) for size in node.group[1]]
        row["reduces"] = bool(node.is_reduction())
    internal = {name for part in parts for name in part.get_buffer_names()}
    read = {name: dep for part in parts for dep in part.read_writes.reads if (name := dep.name) not in internal}
    row["reads"] = [elements(dep) for dep in read.values()]
    row["bytes"] = [int(node.get_read_buffer_sizes()), int(node.get_write_buffer_sizes())]
    return row


def elements(dep: Any) -> list[int]:
    """Elements that are read, and whether they come one after another."""
    try:
        return [int(dep.get_numel()), int(dep.is_contiguous())]
    except Exception:
        return [0, 0]


_KERNEL = re.compile(r"async_compile\.triton\('(\w+)', '''(.*?)'''", re.DOTALL)
_FACTS = {
    "heuristic": re.compile(r"@triton_heuristics\.(\w+)\("),
    "hints": re.compile(r"size_hints=(\{[^}]*\})"),
    "loads": re.compile(r"'num_load': (\d+)"),
    "stores": re.compile(r"'num_store': (\d+)"),
    "reductions": re.compile(r"'num_reduction': (\d+)"),
    "reduction_hint": re.compile(r"reduction_hint=ReductionHint\.(\w+)"),
}
_CALL = re.compile(
    r"^\s+(?:buf\d+ = )?(triton_\w+)\.run\(|(extern_kernels\.\w+)\(|(torch\.ops\.[\w.]+)\(", re.MULTILINE
)


def of_code(text: str) -> tuple[dict[str, Row], list[str]]:
    """The kernels of a wrapper by name, and the calls in their order."""
    kernels = {}
    for name, source in _KERNEL.findall(text):
        found = {key: match[1] for key, pattern in _FACTS.items() if (match := pattern.search(source))}
        kernels[name] = found
    body = _KERNEL.sub("", text)
    return kernels, [next(filter(None, found)) for found in _CALL.findall(body)]


# -- timing -------------------------------------------------------------------------------------------------------------------


def captured(call: Call) -> tuple[torch.cuda.CUDAGraph, torch.cuda.Stream]:
    """A call as a CUDA graph that ran once."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
        stream.synchronize()
        graph = capture([call], torch.device("cuda"), stream)
        graph.replay()
        stream.synchronize()
    return graph, stream


def replayed_ms(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> float:
    """The median of some replays."""
    taken = []
    with torch.cuda.stream(stream):
        for _ in range(REPLAYS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            taken.append(begin.elapsed_time(end))
    return statistics.median(taken)


def kernels(graph: torch.cuda.CUDAGraph) -> list[tuple[str, float]]:
    """The kernels of a replay in their order, with microseconds: medians of five replays."""
    runs = []
    for _ in range(5):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            graph.replay()
            torch.cuda.synchronize()
        found = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        found.sort(key=lambda event: event.time_range.start)
        runs.append([(event.name, event.time_range.elapsed_us()) for event in found])
    runs = [run for run in runs if len(run) == len(runs[-1])]
    return [(each[0][0], statistics.median(us for _, us in each)) for each in zip(*runs, strict=True)]


def timed(call: Call, *, single: bool) -> Row:
    """A CUDA graph of a call, the sum of its kernels, and on request each of them."""
    graph, stream = captured(call)
    found = {"graph_ms": round(replayed_ms(graph, stream), 4)}
    every = kernels(graph)
    found["kernel_ms"] = round(sum(us for _, us in every) / 1e3, 4)
    found["kernels"] = len(every)
    if single:
        names: dict[str, int] = {}
        found["ran"] = [[names.setdefault(name[:90], len(names)), round(us, 2)] for name, us in every]
        found["ran_names"] = list(names)
    del graph
    return found


def measured(row: Row, lock: Path, *, dry: bool) -> Row:
    """A row with the times of its model, eager and compiled. The lock is taken when the compiled model first runs."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx
    from torch.utils._pytree import tree_map

    config.compile_threads = 1
    config.fx_graph_cache = False
    made = Made()
    device = "cpu" if dry else "cuda"
    began = time.monotonic()
    model, args, kwargs = built(row, "cpu")  # on the GPU it would slow down the one that is timed
    model = model.to(device)
    args, kwargs = tree_map(
        lambda value: value.to(device) if isinstance(value, torch.Tensor) else value, (args, kwargs)
    )
    with lock.open("w") as turn, torch.no_grad():

        def backend(graph: Any, example: Any) -> Call:
            inner = compile_fx(graph, example)

            def run(*given: Any) -> Any:
                fcntl.flock(turn, fcntl.LOCK_EX)
                return inner(*given)

            return run

        compiled = torch.compile(model, backend=backend)
        compiled(*args, **kwargs)
        row = {**row, "compile_s": round(time.monotonic() - began, 1), "graphs": made.graphs, "nodes": made.nodes}
        found: dict[str, Row] = {}
        calls: list[str] = []
        for text in made.code:
            new, more = of_code(text)
            found |= new
            calls += more
        row |= {"triton": found, "calls": calls}
        if dry:
            return row
        for key, call in (("compiled", compiled), ("eager", model)):
            try:
                row[key] = timed(lambda call=call: call(*args, **kwargs), single=key == "compiled")
            except Exception as exc:
                row[key] = {"error": f"{type(exc).__name__}: {exc}"[:200]}
                torch.cuda.synchronize()
    return row


# -- many processes -------------------------------------------------------------------------------------------------------------


def worker(row: Row, folder: Path, number: int, *, dry: bool) -> None:
    """Measure one model and write it into a file of its own."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / f"inductor{number}")
    os.environ["TRITON_CACHE_DIR"] = str(folder / f"triton{number}")
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = True
    try:
        found = measured(row, folder / "lock", dry=dry)
        found["device"] = "processor" if dry else torch.cuda.get_device_name()
    except Exception as exc:
        found = {**row, "error": f"{type(exc).__name__}: {exc}"[:300]}
    done = folder / f"{number}.tmp"
    done.write_text(json.dumps(found, separators=(",", ":")))
    done.rename(folder / f"{number}.json")


def forks() -> bool:
    """Whether a forked process can use the GPU: no import has touched it so far."""
    probe = multiprocessing.get_context("fork").Process(target=torch.zeros, args=(1,), kwargs={"device": "cuda"})
    probe.start()
    probe.join(60)
    return probe.exitcode == 0


def collect(rows: list[Row], out: Path, seconds: float, workers: int, *, dry: bool) -> None:
    """Measure as many rows as the time allows, and write after each."""
    import timm  # noqa: F401 - once for all processes
    import torch._inductor.compile_fx  # noqa: F401
    import torchvision  # noqa: F401
    import transformers  # noqa: F401

    end = time.monotonic() + seconds - 8
    context = multiprocessing.get_context("fork" if dry or forks() else "spawn")
    found: dict[int, Row] = {}
    waiting = list(enumerate(rows))
    running: dict[int, Any] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        while (waiting or running) and time.monotonic() < end:
            while waiting and len(running) < workers:
                number, row = waiting.pop(0)
                process = context.Process(target=worker, args=(row, folder, number), kwargs={"dry": dry}, daemon=True)
                process.start()
                running[number] = process
            time.sleep(0.2)
            for number, process in list(running.items()):
                if process.is_alive():
                    continue
                del running[number]
                path = folder / f"{number}.json"
                failed = {**rows[number], "error": f"ended with {process.exitcode}"}
                found[number] = json.loads(path.read_text()) if path.exists() else failed
                each = found[number]
                line = each.get("error") or [each["compile_s"], each.get("compiled", {}).get("graph_ms")]
                print(f"{end - time.monotonic():.0f}", each["name"], line, flush=True)
                write(out, [found[index] for index in sorted(found)])
        for number, process in running.items():
            process.kill()
            found[number] = {**rows[number], "error": "the time was up"}
        write(out, [found[index] for index in sorted(found)])


def write(path: Path, rows: list[Row]) -> None:
    name = next((row["device"] for row in rows if "device" in row), "")
    text = f"{name}, torch {torch.__version__}, cudnn.benchmark on; medians of {REPLAYS} replays of a CUDA graph"
    lines = ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in rows)
    done = path.with_suffix(".tmp")
    done.write_text(f'{{"measured": {json.dumps(text)}, "rows": [\n  {lines}\n]}}\n')
    done.rename(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    known = json.loads(options.models.read_text())
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking for a GPU must not stop others from being started
    keys = ("name", "batch", "dtype", "settings", "class", "image", "tokens", "channels_last")
    rows = [
        {key: row[key] for key in keys if key in row} for row in (known if isinstance(known, list) else known["rows"])
    ]
    collect(rows, options.out, options.seconds, options.workers, dry=options.dry)


if __name__ == "__main__":
    main()
