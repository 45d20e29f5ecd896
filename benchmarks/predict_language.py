"""Predicted against measured passes of language models on an H200: prefills, one more token against a cache, compiled models.

    python benchmarks/predict_language.py             every row of h200_language.json and h200_compiled.json
    python benchmarks/predict_language.py llama       only models whose name has this in it

language_steps.py measured them, with random weights. Held against each other are the kernels of an eager run: while they are
captured, transformers' models of that version build masks that they leave out elsewhere, and a graph runs other operators.
Where a cache has a fixed length the masks are there in any case, and the graph's latency is compared too.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

import opcost
from language_steps import MODELS, made
from predict import made as model_of
from predict import summary

HERE = Path(__file__).parent


def rows_of(file: str, wanted: str) -> list[dict[str, Any]]:
    return [row for row in json.loads((HERE / file).read_text())["rows"] if wanted in row["name"]]


def passes(wanted: str) -> None:
    misses: dict[str, list[float]] = {}
    inside: list[bool] = []
    models: dict[str, Any] = {}
    print(f"{'model':16} {'batch':>5} {'pass':26} {'measured':>10} {'told':>10} {'error':>7}   in the band")
    for row in rows_of("h200_language.json", wanted):
        if "generate" in row:
            continue
        if row["name"] not in models:
            models = {row["name"]: made(row["name"], "meta")}
        asked = {name: row[name] for name in ("prefill", "decode", "cache", "static") if name in row}
        found = opcost.predict(models[row["name"]], batch=row["batch"], device="h200", **asked)
        what = "prefill" if "prefill" in row else "decode"
        error = found.kernel_ns / 1e6 / row["kernel_ms"] - 1
        misses.setdefault(what, []).append(error)
        # The band is that of the latency; the kernels lie in it as far below as they are told below the latency.
        low, high = (edge * found.kernel_ns / found.latency_ns / 1e6 for edge in found.band_ns)
        inside.append(low <= row["kernel_ms"] <= high)
        if "static" in row and "graph_ms" in row:
            misses.setdefault("graph", []).append(found.latency_ns / 1e6 / row["graph_ms"] - 1)
        words = " ".join(f"{name}={size}" for name, size in asked.items())
        print(
            f"{row['name']:16} {row['batch']:5} {words:26} {row['kernel_ms']:7.3f} ms {found.kernel_ns / 1e6:7.3f} ms "
            f"{error:+7.1%}   {'yes' if inside[-1] else 'no'}",
            flush=True,
        )
    names = {"prefill": "kernels of a prefill", "decode": "kernels of a decode step", "graph": "latency, static caches"}
    print()
    for what, errors in misses.items():
        summary(names[what], errors)
    if inside:
        print(f"inside the band that shall hold four of five: {sum(inside) / len(inside):.0%}\n")


def counted(row: dict[str, Any]) -> opcost.Report:
    library, _, name = row["name"].partition("/")
    with torch.device("meta"):
        if library == "tv":
            model = model_of(row["name"]).to(torch.bfloat16).eval()
            given: Any = torch.empty(row["batch"], 3, 224, 224, dtype=torch.bfloat16)
            kwargs: dict[str, Any] = {}
        else:
            config, tokens = (transformers.BertConfig(), 256) if name == "bert" else (MODELS[name](), 512)
            model = transformers.AutoModel.from_config(config, dtype=torch.bfloat16).eval()
            given, kwargs = None, {"input_ids": torch.zeros(row["batch"], tokens, dtype=torch.int64)}
            if name != "bert":
                kwargs["use_cache"] = False
    with torch.no_grad():
        return opcost.count(model, given, kwargs=kwargs, device="h200")


def compiled(wanted: str) -> None:
    errors = []
    for row in rows_of("h200_compiled.json", wanted):
        report = counted(row)
        told = opcost.predict(report, device="h200", execution="compiled").latency_ns / 1e6
        errors.append(told / row["compiled"]["graph_ms"] - 1)
        print(
            f"{row['name']:22} {row['batch']:5} {'compiled, within a graph':26} {row['compiled']['graph_ms']:7.3f} ms "
            f"{told:7.3f} ms {errors[-1]:+7.1%}",
            flush=True,
        )
    if errors:
        print()
        summary("latency of a compiled model", errors)


if __name__ == "__main__":
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    passes(only)
    compiled(only)
