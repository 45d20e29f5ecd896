"""How long one count takes, against the other counters, in the same process and as ratios; and what else the issue asks.

    python benchmarks/speed.py [--models a,b] [--repeat N]

CPU seconds of the best of N counts after one that is not timed (caches of every tool are warm), one thread. Every tool gets each
model with its weights and without them (on the meta device), and the quicker one counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

from models import MODELS
from tools import TOOLS, quietly


def best(run: Callable[[], Any], repeat: int) -> float:
    """CPU seconds of the quickest of some runs."""
    found = []
    for _ in range(repeat):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def compare(name: str, repeat: int) -> dict[str, Any]:
    """One model through every tool, with its weights and, where it has some, without: the quicker one counts."""
    import torch

    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for tool, count in TOOLS.items():
        subject = MODELS[name]()
        tries = [_timed(count, subject, repeat)]
        if next(subject.model.parameters()).device.type != "meta":
            bare = MODELS[name]()
            tries.append(_timed(count, bare._replace(model=bare.model.to("meta")), repeat))
        results[tool] = min(tries, key=lambda found: found.get("seconds", float("inf")))
    return results


def _timed(count: Callable[[Any], int], subject: Any, repeat: int) -> dict[str, Any]:
    """Seconds and the tool's MACs, or why it cannot."""
    try:
        macs = quietly(count, subject)
        return {"seconds": best(partial(quietly, count, subject), repeat), "macs": macs}
    except Exception as exc:
        return {"fault": f"{type(exc).__name__}: {exc}".split("\n")[0][:120]}


def parts(name: str) -> dict[str, float]:
    """opcost alone, step by step, in a process of its own: imports, model, recording, pricing, printing, memory."""
    start = time.process_time()
    import torch

    imported = time.process_time()
    torch.set_num_threads(1)
    subject = MODELS[name]()
    built = time.process_time()
    from opcost.analysis.costing import cost_graph
    from opcost.core.interrupts import garbage_collector_paused
    from opcost.frontends.options import CountOptions
    from opcost.frontends.torch.load import load
    from opcost.rules import default_rules

    rules = default_rules()
    own_imports = time.process_time() - built
    memory = peak_kib()
    options = CountOptions(inputs=subject.args or None, kwargs=subject.kwargs)
    with garbage_collector_paused():
        before = time.process_time()
        graph = load(subject.model, options)
        recorded = time.process_time()
        report = cost_graph(graph, rules)
        priced = time.process_time()
    str(report)
    printed = time.process_time()
    return {
        "import torch": imported - start,
        "import opcost": own_imports,
        "record": recorded - before,
        "price": priced - recorded,
        "print": printed - priced,
        "rows": len(report.rows),
        "MB": (peak_kib() - memory) / 1024,
    }


def peak_kib() -> int:
    """The most memory this process has held; getrusage would also tell that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def roll_up(rows: int = 100_000) -> float:
    """CPU seconds to price and roll up a graph of so many operators."""
    from opcost.analysis.costing import cost_graph
    from opcost.core.graph import Graph, Module, Op, TensorSpec, Value
    from opcost.rules import default_rules

    spec = TensorSpec((64, 64))
    values = [Value(0, "x", spec, "input", 0)]
    modules = [Module(path="", type="Net")]
    ops = []
    attrs = {"depth": 64}
    for i in range(rows):
        values.append(Value(i + 1, "", spec, "activation", i + 1))
        path = f"layer{i // 10}"
        if i % 10 == 0:
            modules.append(Module(path=path, type="Layer"))
        ops.append(Op(i, "matmul", "aten::mm", (i, i), (i + 1,), attrs, path))
    graph = Graph(
        source="rows", framework="none", values=tuple(values), ops=tuple(ops), modules=tuple(modules), outputs=(rows,)
    )
    rules = default_rules()
    return best(lambda: cost_graph(graph, rules), 1)


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--parts", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.parts:
        print(json.dumps(parts(options.parts)))
        return 0
    names = options.models.split(",")
    print(f"CPU seconds of one count (best of {options.repeat}); in brackets: how many times opcost's time\n")
    print("| model | " + " | ".join(TOOLS) + " |")
    print("|---" * (len(TOOLS) + 1) + "|")
    slower = []
    for name in names:
        results = compare(name, options.repeat)
        ours = results["opcost"]["seconds"]
        cells = []
        for tool, result in results.items():
            if "fault" in result:
                cells.append(f"cannot ({result['fault'].split(':')[0]})")
            elif tool == "opcost":
                cells.append(f"**{ours:.3f}**")
            else:
                cells.append(f"{result['seconds']:.3f} ({result['seconds'] / ours:.1f}×)")
                if result["seconds"] < ours:
                    slower.append(f"{tool} on {name}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print("\nopcost in a fresh process, cold, CPU seconds:\n")
    print("| model | import torch | import opcost | record | price | print | rows | MB on top |")
    print("|---" * 8 + "|")
    for name in names:
        found = json.loads(
            subprocess.run(
                [sys.executable, __file__, "--parts", name], check=True, capture_output=True, text=True
            ).stdout
        )
        cells = [f"{found[key]:.3f}" for key in ("import torch", "import opcost", "record", "price", "print")]
        print(f"| {name} | " + " | ".join(cells) + f" | {found['rows']:,} | {found['MB']:.0f} |", flush=True)
    print(f"\nPricing and rolling up 100,000 operators: {roll_up():.2f} s CPU")
    if slower:
        print(f"\nSlower than: {', '.join(slower)}")
    return 1 if slower else 0


if __name__ == "__main__":
    raise SystemExit(main())
