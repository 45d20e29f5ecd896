"""Predictions of a serving engine against measured steps and against published figures of engines (h200_serving.json).

    python benchmarks/serving.py                          predict each of them
    python benchmarks/serving.py --measure OUT [SECONDS]  on a GPU: steps of Llama made of an engine's kernels

No engine is installed for it: the step below has the same kernels, with projections of one input as one product, functions
between products compiled, attention on a cache of which it reads what is used, in a CUDA graph.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from harness import HERE, Table, arguments, error_row

FILE = HERE / "h200_serving.json"
MODELS: dict[str, dict[str, int]] = {
    "llama-8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
    "llama-1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32},
}
SAME = {"num_key_value_heads": 8, "vocab_size": 128_256, "max_position_embeddings": 131_072}
STEPS = [
    *((batch, {"decode": 1, "cache": tokens}) for batch, tokens in (
        (1, 1024), (8, 1024), (32, 1024), (64, 1024), (128, 1024), (256, 256), (256, 1024), (16, 2048), (32, 4096), (1, 8192))),
    *((batch, {"prefill": tokens}) for batch, tokens in ((1, 128), (1, 1024), (8, 1024), (4, 2048), (1, 8192))),
]  # fmt: skip


# -- predictions ----------------------------------------------------------------------------------------------------------


def predictions(options: argparse.Namespace) -> None:
    import opcost

    found = json.loads(FILE.read_text())
    columns = "what", "rows", "median error", "mean error", "90 % within", "bias"
    detail_columns = "what", "device", "batch", "tokens", "known", "predicted", "error"
    table = Table("serving", columns, detail_columns, machine=f"{found['measured']} (measured)")
    errors: dict[str, list[float]] = {}

    def compare(what: str, device: str, batch: int, text: str, known: float, taken: float) -> None:
        error = taken / known - 1
        errors.setdefault(f"{what.partition(' ')[0].strip(',')}, {device}", []).append(error)
        table.detail(what, device, batch, text, known, round(taken, 2), f"{error:+.1%}")

    with TemporaryDirectory() as folder:

        def predict(model: str, **given: Any) -> Any:
            path = Path(folder, "config.json")
            kind = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": False}
            path.write_text(json.dumps({**kind, **SAME, **MODELS[model]}))
            return opcost.predict(f"hf:{path}", dtype="bf16", engine="vllm", **given)

        for model, batch, text, known in found["steps"][: 2 if options.quick else None]:
            read = f"prefill={text['prefill']}" if "prefill" in text else f"decode=1 cache={text['cache']}"
            compare(
                "measured, ms",
                "h200",
                batch,
                f"{model} {read}",
                known,
                predict(model, batch=batch, **text).latency_ns / 1e6,
            )
        for what, device, batch, (prefill, generate), unit, known in found["published"][: 1 if options.quick else None]:
            text = {"prefill": prefill, "generate": generate, "device": device}
            # All that fit, up to what the engine was built for
            batch = batch or min(2048, predict("llama-8b", batch=1, **text).text.largest_batch)  # noqa: PLW2901
            times = predict("llama-8b", batch=batch, **text).text
            taken = times.tokens_per_second if unit == "tokens/s" else times.token_ns / 1e6
            compare(f"{what}, {unit}", device, batch, f"{prefill}/{generate}", known, taken)
    for what, each in errors.items():
        table.add(*error_row(what, each))
    table.finish(options)


# -- measurements ---------------------------------------------------------------------------------------------------------


def add_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    residual = residual + x
    r = residual.float()
    r = r * torch.rsqrt(r.pow(2).mean(-1, keepdim=True) + 1e-5)
    return r.to(x.dtype) * weight, residual


def gated(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def rotary(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
    first, second = qkv[:, :, :heads].chunk(2, -1)
    return qkv[:, :, :heads] * cos[:, None] + torch.cat((-second, first), -1) * sin[:, None]


def put(cache: Tensor, new: Tensor, at: int) -> None:
    cache[:, :, at : at + new.shape[2]] = new


class Engine:
    """A Llama of random weights."""

    def __init__(self, name: str) -> None:
        sizes = MODELS[name]
        hidden, inner, self.heads = (sizes[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads"))
        self.kv, self.dim, words = SAME["num_key_value_heads"], hidden // self.heads, SAME["vocab_size"]
        qkv = (self.heads + 2 * self.kv) * self.dim
        shapes = (hidden,), (qkv, hidden), (hidden, hidden), (hidden,), (2 * inner, hidden), (hidden, inner)
        self.layers = [[made(*shape) for shape in shapes] for _ in range(sizes["num_hidden_layers"])]
        self.table, self.head, self.last = made(words, hidden), made(words, hidden), made(hidden)
        self.add_norm, self.gated, self.rotary, self.put = map(torch.compile, (add_norm, gated, rotary, put))
        self.sample = torch.compile(lambda scores: scores.float().argmax(-1))

    def step(self, ids: Tensor, caches: list[list[Tensor]], used: int, cos: Tensor, sin: Tensor) -> Tensor:
        batch, new = ids.shape
        x = F.embedding(ids, self.table)
        residual = torch.zeros_like(x)
        for (before, qkv, out, after, up, down), (keys, values) in zip(self.layers, caches, strict=True):
            y, residual = self.add_norm(x, residual, before)
            z = F.linear(y, qkv).view(batch, new, -1, self.dim)
            turned = self.rotary(z, cos, sin, self.heads + self.kv).transpose(1, 2)
            self.put(keys, turned[:, self.heads :], used)
            self.put(values, z[:, :, self.heads + self.kv :].transpose(1, 2), used)
            seen = keys[:, :, : used + new], values[:, :, : used + new]
            y = F.scaled_dot_product_attention(turned[:, : self.heads], *seen, is_causal=new > 1, enable_gqa=True)
            x = F.linear(y.transpose(1, 2).reshape(batch, new, -1), out)
            y, residual = self.add_norm(x, residual, after)
            x = F.linear(self.gated(F.linear(y, up)), down)
        y, _ = self.add_norm(x[:, -1:], residual[:, -1:], self.last)
        return self.sample(F.linear(y[:, -1], self.head))

    def measured_ms(self, batch: int, text: dict[str, int]) -> float:
        used, new = text.get("cache", 0), text.get("prefill", 1)
        shape = batch, self.kv, used + new, self.dim
        caches = [[torch.zeros(shape, dtype=torch.bfloat16, device="cuda") for _ in "kv"] for _ in self.layers]
        ids = torch.randint(0, SAME["vocab_size"], (batch, new), device="cuda")
        cos, sin = made(new, self.dim), made(new, self.dim)
        return replayed_ms(lambda: self.step(ids, caches, used, cos, sin))


def made(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda") * 0.02


def replayed_ms(run: Callable[[], Any]) -> float:
    """The median of replays of a CUDA graph."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times[5:])


def measure(path: Path, seconds: float) -> None:
    began = time.monotonic()
    torch._dynamo.config.cache_size_limit = 256  # noqa: SLF001 - it has no public name; lengths are compiled one by one
    rows: list[list[Any]] = []
    device = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    for model in MODELS:
        engine = Engine(model)
        for batch, text in STEPS:
            if time.monotonic() - began > seconds:
                return
            with torch.no_grad():
                rows.append([model, batch, text, round(engine.measured_ms(batch, text), 3)])
            torch.cuda.empty_cache()
            path.write_text(json.dumps({"measured": device, "steps": rows}))
        del engine
        torch.cuda.empty_cache()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--measure", type=Path, metavar="OUT", help="measure on the GPU at hand")
    parser.add_argument("seconds", nargs="?", type=float, default=600)
    options = parser.parse_args()
    if options.measure is None:
        torch.set_num_threads(1)
        predictions(options)
    else:
        measure(options.measure, options.seconds)


if __name__ == "__main__":
    main()
