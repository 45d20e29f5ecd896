"""Decoders to spread over ranks, and what ranks send each other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opcost.core.report import Report

FLOAT, BF16 = 4, 2
B, S, D, HEADS, KV, HIDDEN, VOCABULARY = 2, 16, 64, 8, 4, 96, 256
HD = D // HEADS
BLOCK = 2 * D * D + 2 * D * KV * HD + 3 * D * HIDDEN  # weights of the linear layers of a block


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wo = nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False)
        self.wk, self.wv = (nn.Linear(D, KV * HD, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (w(x).unflatten(-1, (-1, HD)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(out.transpose(1, 2).flatten(-2))


class Feed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(D, HIDDEN, bias=False) for _ in range(2))
        self.w2 = nn.Linear(HIDDEN, D, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ParameterList([torch.ones(D), torch.ones(D)])
        self.attention, self.feed = Attention(), Feed()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(nn.functional.rms_norm(x, (D,), self.norms[0]))
        return x + self.feed(nn.functional.rms_norm(x, (D,), self.norms[1]))


class Decoder(nn.Module):
    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, D)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.output = nn.Linear(D, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


TOKENS = torch.zeros(B, S, dtype=torch.long)


def collectives(report: Report) -> dict[tuple[str, str, str], tuple[int, int]]:
    """How many, and their bytes on the wire, by phase, axis and type."""
    calls: Counter[tuple[str, str, str]] = Counter()
    wire: Counter[tuple[str, str, str]] = Counter()
    for row in report.rows:
        if row.op.kind == "collective" and row.cost is not None and row.cost.bytes_read:
            key = (row.op.phase, str(row.op.attrs.get("axis")), str(row.op.attrs["fn"]))
            calls[key] += row.op.repeat
            wire[key] += row.cost.bytes_read * row.op.repeat
    return {key: (calls[key], wire[key]) for key in calls}


LLAMA_70B: dict[str, Any] = {
    "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256,
    "tie_word_embeddings": False, "max_position_embeddings": 8192, "attn_implementation": "sdpa",
}  # fmt: skip


def llama(layers: int, **changes: Any) -> nn.Module:
    """A Llama of transformers without data: of the sizes of Llama 3 70B, or of others."""
    return causal_lm("llama", **{**LLAMA_70B, "num_hidden_layers": layers, **changes})


def causal_lm(name: str, **sizes: Any) -> nn.Module:
    """A language model of transformers without data."""
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        made: nn.Module = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(name, **sizes)
        )
    return made
