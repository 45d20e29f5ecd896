"""A small decoder with the usual names of layers, which any form of parallelism can spread."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH, HEADS, KV, HIDDEN, VOCABULARY, TOKENS = 64, 8, 4, 96, 256, 16
HEAD = WIDTH // HEADS


class Block(nn.Module):
    """Attention with fewer heads for keys and values, and a gated layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ParameterList([torch.ones(WIDTH), torch.ones(WIDTH)])
        self.wq, self.wo = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.wk, self.wv = (nn.Linear(WIDTH, KV * HEAD, bias=False) for _ in range(2))
        self.w1, self.w3 = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.w2 = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.rms_norm(x, (WIDTH,), self.norms[0])
        q, k, v = (w(y).unflatten(-1, (-1, HEAD)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.wo(y.transpose(1, 2).flatten(-2))
        y = nn.functional.rms_norm(x, (WIDTH,), self.norms[1])
        return x + self.w2(nn.functional.silu(self.w1(y)) * self.w3(y))


class Decoder(nn.Module):
    """Embeddings, equal blocks, and logits."""

    def __init__(self, layers: int = 3, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocabulary, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.output = nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


def tokens(batch: int) -> Tensor:
    return torch.zeros(batch, TOKENS, dtype=torch.long)
