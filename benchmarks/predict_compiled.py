"""Predictions of compiled models against an H200: time, and the kernels and bytes that inductor itself counts.

    python benchmarks/predict_compiled.py [WORD] [--fitted]     WORD: only names that contain it

Each model is predicted by laws fitted without its family (left_out.py), or with `--fitted` by those that come with the package.
h200_kernels.json.gz has the models; measure_compiled.py measured them.
"""

from __future__ import annotations

import re
from typing import Any

import torch

import left_out
import opcost
from fit_laws import compiled_models, table_read
from harness import ERRORS, Table, arguments, error_row, load_torchvision
from measure_compiled import built
from opcost.analysis.prediction.predict import predict_report
from opcost.analysis.prediction.speeds import Speeds
from opcost.compiling import kernels_of
from opcost.devices.calibration import shipped


def counted(row: dict[str, Any]) -> opcost.Report:
    """A pass of the model."""
    try:
        model, args, kwargs = built(row, "meta")
    except (NotImplementedError, RuntimeError):  # its constructor reads values
        model, args, kwargs = built(row, "cpu")
    with torch.no_grad():
        return opcost.count(model, args or None, kwargs={**kwargs, **masks(row)}, device="h200")


def masks(row: dict[str, Any]) -> dict[str, Any]:
    """What transformers' models are given beside their tokens.

    While it was compiled, the version that was measured built masks that later ones leave out: of each token, which is one column
    that is repeated and no kernel of attention takes, or of those before it.
    """
    if "tokens" not in row or "T5" in row["name"]:
        return {}
    tokens = row["tokens"]
    with torch.device("meta"):
        square = torch.ones(tokens, tokens, dtype=torch.bool).expand(row["batch"], 1, tokens, tokens)
        column = square[..., :1].expand(square.shape)
        places = torch.arange(tokens)[None].expand(row["batch"], tokens)
    if "ModernBert" in row["name"]:
        return {"attention_mask": {"full_attention": column, "sliding_attention": square}}
    if re.search("Bert|Roberta|Electra", row["name"]):
        return {"attention_mask": column}
    return {"attention_mask": square, **({"position_ids": places} if "OPT" in row["name"] else {})}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("word", nargs="?", default="", help="only names that contain this")
    parser.add_argument("--fitted", action="store_true", help="the models that laws are fitted to")
    options = parser.parse_args()
    options.save = options.save and not options.word
    load_torchvision()
    columns = ("model", "batch", "type", "what", "measured", "predicted", "error", "in interval")
    machine = "NVIDIA H200, torch 2.11.0+cu130, cudnn.benchmark on (measured)"
    table = Table("compiled_fitted" if options.fitted else "compiled", ERRORS, columns, machine=machine)
    errors: dict[str, list[float]] = {}
    inside: list[bool] = []
    rows = sorted((row for row in compiled_models("h200") if options.word in row["name"]), key=left_out.group)
    for row in rows[:2] if options.quick else rows:
        report = counted(row)
        speeds = Speeds(shipped("h200")) if options.fitted else left_out.CompiledSpeeds(row)
        found = predict_report(report, speeds, {"device": "h200"}, calibrated=True, execution="compiled")
        own = [kernel for kernel in kernels_of(report) if kernel.own]
        nodes = [node for node in row["nodes"] if node["kind"] not in ("ExternKernel", "NopKernel")]
        made = row["compiled"]
        inside.append(found.band_ns[0] <= made["graph_ms"] * 1e6 <= found.band_ns[1])
        cases = {
            "CUDA graph, ms": (made["graph_ms"], round(found.latency_ns / 1e6, 3)),
            "sum of kernels, ms": (made["kernel_ms"], round(found.kernel_ns / 1e6, 3)),
            "kernels that inductor writes": (len(nodes), len(own)),
            "their bytes, MB": (
                round(sum(sum(node["bytes"]) for node in nodes if not table_read(node)) / 1e6, 1),
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
