"""Outputs in the documents of files that readers do not have: they are made here, byte by byte."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from checkpoint_making import write_sharded

ROOT = Path(__file__).resolve().parents[2]
Command = Callable[..., Any]
WIDTH, INNER, LAYERS, VOCABULARY, KEYS, GROUP = 8192, 28672, 80, 128256, 1024, 128
"""Of Llama-3 70B; weights of four bits have a scale and a zero point for each group."""
PACKED = 8
"""Weights of four bits in an int32."""
MATRICES = {
    "mlp.gate_proj": (WIDTH, INNER),
    "mlp.up_proj": (WIDTH, INNER),
    "mlp.down_proj": (INNER, WIDTH),
    "self_attn.q_proj": (WIDTH, WIDTH),
    "self_attn.k_proj": (WIDTH, KEYS),
    "self_attn.v_proj": (WIDTH, KEYS),
    "self_attn.o_proj": (WIDTH, WIDTH),
}


def layer(number: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """One layer as AWQ stores it."""
    before = f"model.layers.{number}"
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        f"{before}.{norm}.weight": ("F16", (WIDTH,)) for norm in ("input_layernorm", "post_attention_layernorm")
    }
    for name, (inputs, outputs) in MATRICES.items():
        tensors[f"{before}.{name}.qweight"] = ("I32", (inputs, outputs // PACKED))
        tensors[f"{before}.{name}.qzeros"] = ("I32", (inputs // GROUP, outputs // PACKED))
        tensors[f"{before}.{name}.scales"] = ("F16", (inputs // GROUP, outputs))
    return tensors


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder with a short name: a long one would be cut in what is printed."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


def test_the_scan_of_a_large_checkpoint(opcost_command: Command, short_path: Path) -> None:
    folder = short_path / "llama-awq"
    folder.mkdir()
    ends: dict[str, tuple[str, tuple[int, ...]]] = {
        "lm_head.weight": ("F16", (VOCABULARY, WIDTH)),
        "model.embed_tokens.weight": ("F16", (VOCABULARY, WIDTH)),
        "model.norm.weight": ("F16", (WIDTH,)),
    }
    tens = [[layer(number) for number in range(first, first + 10)] for first in range(0, LAYERS, 10)]
    write_sharded(folder, [ends, *({name: each[name] for each in ten for name in each} for ten in tens)])
    done = opcost_command("scan", str(folder), "--width", "80")
    assert done.code == 0, done.err
    params = 2 * VOCABULARY * WIDTH + WIDTH + LAYERS * (2 * WIDTH + sum(map(prod, MATRICES.values())))
    assert f"{params:,}" in done.out
    page = (ROOT / "docs/formats.md").read_text(encoding="utf-8")
    shown = re.search(r"```text\n(llama-awq: .*?)```", page, re.DOTALL)
    assert shown is not None
    assert done.out.replace(str(folder), folder.name).startswith(shown[1])
