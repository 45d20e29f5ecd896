"""Decoders in plain PyTorch of the sizes whose training was published, without weights: Llama as torchtitan has it, and MPT."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LLAMA: dict[str, dict[str, int]] = {
    "llama-3-8b": {"width": 4096, "inner": 14336, "layers": 32, "heads": 32, "shared": 8, "words": 128_256},
    "llama-3-70b": {"width": 8192, "inner": 28672, "layers": 80, "heads": 64, "shared": 8, "words": 128_256},
    "llama-3-405b": {"width": 16384, "inner": 53248, "layers": 126, "heads": 128, "shared": 8, "words": 128_256},
    "llama-2-13b": {"width": 5120, "inner": 13824, "layers": 40, "heads": 40, "shared": 40, "words": 32_000},
    "llama-2-70b": {"width": 8192, "inner": 28672, "layers": 80, "heads": 64, "shared": 8, "words": 32_000},
}
MPT: dict[str, dict[str, int]] = {
    "mpt-7b": {"width": 4096, "layers": 32, "heads": 32},
    "mpt-13b": {"width": 5120, "layers": 40, "heads": 40},
    "mpt-30b": {"width": 7168, "layers": 48, "heads": 56},
    "mpt-70b": {"width": 8192, "layers": 80, "heads": 64},
}


def made(name: str, tokens: int) -> nn.Module:
    """A model on the meta device, for sequences of this length."""
    with torch.device("meta"):
        return Llama(**LLAMA[name], context=tokens) if name in LLAMA else Mpt(**MPT[name], context=tokens)


class RMSNorm(nn.Module):
    """Of float32, whatever is given."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


class Attention(nn.Module):
    """With keys and values that several heads share."""

    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.features, self.repeats = width // heads, heads // shared
        self.wq, self.wo = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.wk, self.wv = (nn.Linear(width, shared * self.features, bias=False) for _ in range(2))

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        q, k, v = (weight(x).unflatten(-1, (-1, self.features)) for weight in (self.wq, self.wk, self.wv))
        q, k = turned(q, turns), turned(k, turns)
        if self.repeats > 1:
            k, v = (each.repeat_interleave(self.repeats, dim=2) for each in (k, v))
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).contiguous().flatten(2))


def turned(x: Tensor, turns: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(3).type_as(x)


class FeedForward(nn.Module):
    """Three products, one of them behind a gate."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.w2 = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class LlamaBlock(nn.Module):
    """Attention and a feed-forward part, each behind a norm and beside a shortcut."""

    def __init__(self, width: int, inner: int, heads: int, shared: int) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = RMSNorm(width), RMSNorm(width)
        self.attention, self.feed_forward = Attention(width, heads, shared), FeedForward(width, inner)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), turns)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    """With rotary positions as complex numbers, and a loss of float32."""

    def __init__(
        self, *, width: int, inner: int, layers: int, heads: int, shared: int, words: int, context: int
    ) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(words, width)
        self.layers = nn.ModuleList(LlamaBlock(width, inner, heads, shared) for _ in range(layers))
        self.norm, self.output = RMSNorm(width), nn.Linear(width, words, bias=False)
        self.register_buffer("turns", torch.empty(context, 1, width // heads // 2, dtype=torch.complex64))

    def forward(self, tokens: Tensor, labels: Tensor) -> dict[str, Tensor]:
        x, turns = self.tok_embeddings(tokens), self.turns
        for layer in self.layers:
            x = layer(x, turns)
        return loss_of(self.output(self.norm(x)), labels)


def loss_of(logits: Tensor, labels: Tensor) -> dict[str, Any]:
    return {"loss": F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))}


class MptBlock(nn.Module):
    """As that of Llama, with one projection for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = (nn.LayerNorm(width, bias=False) for _ in range(2))
        self.wqkv, self.out_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up_proj, self.down_proj = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.wqkv(self.norm_1(x)).chunk(3, dim=2)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out_proj(y.transpose(1, 2).flatten(2))
        return x + self.down_proj(F.gelu(self.up_proj(self.norm_2(x))))


class Mpt(nn.Module):
    """With learned positions and tied embeddings."""

    def __init__(self, *, width: int, layers: int, heads: int, context: int, words: int = 50_368) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(MptBlock(width, heads) for _ in range(layers))
        self.norm_f = nn.LayerNorm(width, bias=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> dict[str, Tensor]:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return loss_of(F.linear(self.norm_f(x), self.wte.weight), labels)
