"""Predictions of compiled models against an H200: time, and the kernels and bytes that inductor itself counts.

    python benchmarks/predict_compiled.py [WORD] [--fitted]     WORD: only names that contain it

The models of h200_compiled.json.gz were measured once, after the laws were fitted; none of their families is in
h200_kernels.json.gz (`--fitted`), to which laws are fitted. measure_compiled.py measured both.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import torch

import opcost
from harness import ERRORS, HERE, Table, arguments, error_row, load_torchvision
from measure_compiled import built
from opcost.compiling import kernels_of


def counted(row: dict[str, Any]) -> opcost.Report:
    """A pass of the model."""
    try:
        model, args, kwargs = built(row, "meta")
    except (NotImplementedError, RuntimeError):  # its constructor reads values
        model, args, kwargs = built(row, "cpu")
    with torch.no_grad():
        return opcost.count(model, args or None, kwargs=kwargs, device="h200")


def looked_up(node: dict[str, Any]) -> bool:
    """Whether inductor counts all of a table of which a few rows are read."""
    return any(name.startswith("embedding") for name in node.get("ops", ()))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("word", nargs="?", default="", help="only names that contain this")
    parser.add_argument("--fitted", action="store_true", help="the models that laws are fitted to")
    options = parser.parse_args()
    options.save = options.save and not options.word
    load_torchvision()
    name = "h200_kernels.json.gz" if options.fitted else "h200_compiled.json.gz"
    file = json.loads(gzip.decompress((HERE / name).read_bytes()))
    columns = ("model", "batch", "type", "what", "measured", "predicted", "error", "in interval")
    machine = f"{file['measured'].partition(';')[0]} (measured)"
    table = Table("compiled_fitted" if options.fitted else "compiled", ERRORS, columns, machine=machine)
    errors: dict[str, list[float]] = {}
    inside: list[bool] = []
    rows = [row for row in file["rows"] if "graph_ms" in row.get("compiled", {}) and options.word in row["name"]]
    for row in rows[:2] if options.quick else rows:
        report = counted(row)
        found = opcost.predict(report, device="h200", execution="compiled")
        own = [kernel for kernel in kernels_of(report) if kernel.own]
        nodes = [node for node in row["nodes"] if node["kind"] not in ("ExternKernel", "NopKernel")]
        nodes = nodes[len(nodes) // row.get("graphs", 1) * (row.get("graphs", 1) - 1) :]
        made = row["compiled"]
        inside.append(found.band_ns[0] <= made["graph_ms"] * 1e6 <= found.band_ns[1])
        cases = {
            "CUDA graph, ms": (made["graph_ms"], round(found.latency_ns / 1e6, 3)),
            "sum of kernels, ms": (made["kernel_ms"], round(found.kernel_ns / 1e6, 3)),
            "kernels that inductor writes": (len(nodes), len(own)),
            "their bytes, MB": (
                round(sum(sum(node["bytes"]) for node in nodes if not looked_up(node)) / 1e6, 1),
                round(sum(kernel.after for kernel in own if "embedding" not in kernel.operators) / 1e6, 1),
            ),
        }
        for what, (true, mine) in cases.items():
            errors.setdefault(what, []).append(mine / true - 1)
            word = ("yes" if inside[-1] else "no") if what.startswith("CUDA") else ""
            table.detail(row["name"], row["batch"], row["dtype"], what, true, mine, f"{mine / true - 1:+.1%}", word)
    for what, those in errors.items():
        table.add(*error_row(what, those))
    table.add("80 % interval, CUDA graph", len(inside), f"{sum(inside) / len(inside):.0%} inside", "", "", "")
    table.finish(options)


if __name__ == "__main__":
    main()
