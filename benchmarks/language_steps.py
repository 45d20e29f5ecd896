"""Times passes of language models on the GPU at hand: prefill, and one more token against a cache, as graphs and eagerly.

    python benchmarks/language_steps.py OUT.json             passes of transformers' models, random weights, bfloat16
    python benchmarks/language_steps.py OUT.json --compiled  whole models through torch.compile, beside the same without
    python benchmarks/language_steps.py OUT.json --operators apart,lengths   operators of these families, for a calibration

For holding predictions of prefills, of decode steps and of compiled models against.
"""

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.cache_utils import DynamicCache, StaticCache

MODELS: dict[str, Callable[[], Any]] = {
    "gpt2": transformers.GPT2Config,
    "opt-125m": transformers.OPTConfig,
    "llama-tiny": lambda: transformers.LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=8
    ),
    "qwen2-1.5b": lambda: transformers.Qwen2Config(
        hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
        vocab_size=151936, tie_word_embeddings=True,
    ),
    "mistral-window": lambda: transformers.MistralConfig(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
        sliding_window=1024,
    ),
    "phi3-mini": lambda: transformers.Phi3Config(pad_token_id=0),
    "gpt-neox-410m": lambda: transformers.GPTNeoXConfig(
        hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, vocab_size=50304
    ),
    "llama-8b": lambda: transformers.LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
        vocab_size=128256, max_position_embeddings=8192,
    ),
}  # fmt: skip
"""Configurations, each with another way to hold its keys and values or of another size."""
LONGEST = {"gpt2": 1024, "opt-125m": 2048, "gpt-neox-410m": 2048}
"""Tokens that their positions reach to."""
STEPS = [(batch, cache) for batch in (1, 8, 64) for cache in (128, 1000, 4000)]
PREFILLS = [(1, 128), (1, 1000), (8, 500), (32, 128)]
STATIC = [(1, 1000), (8, 4000)]


def made(name: str, device: str = "cuda") -> Any:
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(MODELS[name](), dtype=torch.bfloat16)
    return model.eval()


def filled(model: Any, batch: int, tokens: int, longest: int | None) -> Any:
    """A cache of so many tokens, dynamic or of a fixed length, and a copy of it for every call."""
    config = model.config
    cache = DynamicCache(config=config) if longest is None else StaticCache(config=config, max_cache_len=longest)
    ids = torch.zeros(batch, tokens, dtype=torch.int64, device=model.device)
    if longest is not None or batch * tokens <= 2**14:
        model(input_ids=ids, past_key_values=cache, logits_to_keep=1)
        return cache
    one = filled(model, 1, tokens, None)
    for layer in one.layers:
        for name in ("keys", "values"):
            setattr(layer, name, getattr(layer, name).expand(batch, -1, -1, -1).contiguous())
    return one


def again(cache: Any) -> Any:
    """The same cache as it was before the call: layers of their own with the same tensors."""
    other = copy.copy(cache)
    other.layers = [copy.copy(layer) for layer in cache.layers]
    return other


def graph_ms(call: Callable[[], Any]) -> float:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            call()
        graph.replay()
        stream.synchronize()
        taken = []
        for _ in range(9):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            taken.append(begin.elapsed_time(end))
    del graph
    return statistics.median(taken)


def eager_ms(call: Callable[[], Any]) -> float:
    taken = []
    for _ in range(9):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)


def kernels(call: Callable[[], Any]) -> dict[str, Any]:
    """The kernels of an eager run: their sum, how many, and the most expensive by name."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        call()
        torch.cuda.synchronize()
    found = [event for event in profiler.key_averages() if event.self_device_time_total > 0]
    top = sorted(found, key=lambda event: -event.self_device_time_total)[:8]
    return {
        "kernel_ms": sum(event.self_device_time_total for event in found) / 1e3,
        "kernels": sum(event.count for event in found),
        "top": [[event.key[:90], event.count, round(event.self_device_time_total)] for event in top],
    }


def timed(row: dict[str, Any], call: Callable[[], Any]) -> dict[str, Any]:
    for _ in range(2):
        call()
    for name, measure in (("eager_ms", eager_ms), ("graph_ms", graph_ms)):
        try:
            row[name] = round(measure(call), 4)
        except Exception as exc:  # what cannot be captured is told in the row, and the others are measured all the same
            row[name.replace("ms", "error")] = f"{type(exc).__name__}: {exc}"[:200]
            torch.cuda.synchronize()
    row.update(kernels(call))
    print(json.dumps({k: v for k, v in row.items() if k != "top"}), flush=True)
    return row


def passes(name: str) -> list[dict[str, Any]]:
    model = made(name)
    rows = []
    longest = LONGEST.get(name, 2**31)
    told = {"name": name, "dtype": "bfloat16"}
    for batch, tokens in PREFILLS:
        if tokens >= longest:
            continue
        ids = torch.zeros(batch, tokens, dtype=torch.int64, device="cuda")

        def prefill(ids: torch.Tensor = ids) -> Any:
            return model(input_ids=ids, past_key_values=DynamicCache(config=model.config), logits_to_keep=1)

        rows.append(timed({**told, "batch": batch, "prefill": tokens}, prefill))
    wanted = [(batch, tokens, None) for batch, tokens in STEPS]
    if name.startswith(("llama", "qwen")):
        wanted += [(batch, tokens, tokens + 64) for batch, tokens in STATIC]
    for batch, tokens, fixed in wanted:
        if tokens >= longest:
            continue
        cache = filled(model, batch, tokens, fixed)
        ids = torch.zeros(batch, 1, dtype=torch.int64, device="cuda")

        def step(cache: Any = cache, ids: torch.Tensor = ids) -> Any:
            return model(input_ids=ids, past_key_values=again(cache))

        rows.append(
            timed({**told, "batch": batch, "decode": 1, "cache": tokens, **({"static": fixed} if fixed else {})}, step)
        )
        del cache, step
        torch.cuda.empty_cache()
    if name in ("gpt2", "llama-tiny"):
        ids = torch.ones(1, 100, dtype=torch.int64, device="cuda")
        written = {"max_new_tokens": 64, "min_new_tokens": 64, "do_sample": False, "pad_token_id": 0}
        model.generate(ids, **written)
        torch.cuda.synchronize()
        began = time.perf_counter()
        model.generate(ids, **written)
        torch.cuda.synchronize()
        taken = (time.perf_counter() - began) * 1e3
        rows.append({**told, "batch": 1, "prefill": 100, "generate": 64, "eager_ms": round(taken, 3)})
    return rows


def compiled(seconds: float) -> list[dict[str, Any]]:
    """Whole models as they are, compiled, and compiled within a graph."""
    import torchvision

    def text(config: Any, batch: int, tokens: int) -> tuple[Any, dict[str, Any]]:
        with torch.device("cuda"):
            model = transformers.AutoModel.from_config(config, dtype=torch.bfloat16).eval()
            ids = torch.zeros(batch, tokens, dtype=torch.int64)
        return model, {"input_ids": ids, "use_cache": False} if config.model_type == "llama" else {"input_ids": ids}

    def image(name: str, batch: int) -> tuple[Any, torch.Tensor]:
        with torch.device("cuda"):
            model = torchvision.models.get_model(name).to(torch.bfloat16).eval()
            return model, torch.randn(batch, 3, 224, 224, dtype=torch.bfloat16)

    makers: dict[str, Callable[[], tuple[Any, Any]]] = {
        "tv/resnet50 16": lambda: image("resnet50", 16),
        "tv/resnet50 1": lambda: image("resnet50", 1),
        "tv/vit_b_32 16": lambda: image("vit_b_32", 16),
        "tv/convnext_tiny 16": lambda: image("convnext_tiny", 16),
        "tv/efficientnet_b0 16": lambda: image("efficientnet_b0", 16),
        "hf/bert 8": lambda: text(transformers.BertConfig(), 8, 256),
        "hf/llama-tiny 4": lambda: text(MODELS["llama-tiny"](), 4, 512),
    }
    rows = []
    began = time.monotonic()
    for name, make in makers.items():
        if time.monotonic() - began > seconds:
            break
        model, given = make()
        row: dict[str, Any] = {"name": name.split()[0], "batch": int(name.split()[1]), "dtype": "bfloat16"}

        def call(model: Any = model, given: Any = given) -> Any:
            return model(**given) if isinstance(given, dict) else model(given)

        timed(row, call)
        torch.compiler.reset()
        fast = torch.compile(model)

        def quick(fast: Any = fast, given: Any = given) -> Any:
            return fast(**given) if isinstance(given, dict) else fast(given)

        try:
            found = timed({}, quick)
            row["compiled"] = found
        except Exception as exc:  # a compiler that is not there is told in the row
            row["compiled"] = {"error": f"{type(exc).__name__}: {exc}"[:300]}
        rows.append(row)
    return rows


def operators(path: Path, families: list[str], seconds: float) -> None:
    """Rows of a calibration: operators of these families alone, timed for about so many seconds."""
    from opcost.devices.calibration import Calibration, Measured, dumps
    from opcost.recorders.calibration.cases import SHARES
    from opcost.recorders.calibration.run import GPU, CudaClock, describe, machine, plan

    device = torch.device("cuda")
    clock = CudaClock(device)
    rows: list[Any] = []
    end = time.monotonic() + seconds
    shares = {family: share for family, share in SHARES.items() if family.__name__ in families}
    for case in plan((torch.bfloat16, torch.float32), GPU, shares):
        found = describe(case)
        if found is not None:
            op, ins, outs = found
            rows.append(Measured(op.kind, op.raw, op.attrs, ins, outs, *clock.time(case)))
        if time.monotonic() > end:
            break
    path.write_text(dumps(Calibration(device="h200", meta=machine(device), position=0, rows=tuple(rows))))
    print(f"{len(rows)} operators")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--operators", default="", metavar="FAMILY,FAMILY")
    parser.add_argument("--seconds", type=float, default=80)
    asked = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    with torch.no_grad():
        if asked.operators:
            operators(asked.out, asked.operators.split(","), asked.seconds)
            return
        measured = (
            f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {transformers.__version__}; "
            "medians of 9 replays of a CUDA graph, of 9 eager runs; kernels by torch.profiler"
        )
        rows: list[dict[str, Any]] = []
        for name in [""] if asked.compiled else MODELS:
            try:
                rows += compiled(asked.seconds) if asked.compiled else passes(name)
            except Exception as exc:  # one model that fails leaves the others
                print(f"{name}: {type(exc).__name__}: {exc}", file=sys.stderr, flush=True)
            torch.cuda.empty_cache()
            lines = ",\n  ".join(json.dumps(row) for row in rows)
            asked.out.write_text(f'{{"measured": {json.dumps(measured)}, "rows": [\n  {lines}\n]}}\n')


if __name__ == "__main__":
    main()
