"""Small PyTorch models whose counts are frozen: layers, functions, state, control flow, and steps of training."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from record import ROOT
from small_net import Net
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

sys.path += [str(ROOT / "examples"), str(ROOT / "tests" / "frontends" / "torch")]

IMAGE, ROWS, TOKENS = torch.zeros(2, 3, 16, 16), torch.ones(4, 6), torch.zeros(2, 8, dtype=torch.int64)
D, HEADS = 16, 2
SEQUENCE = torch.ones(2, 5, D)


class Attention(nn.Module):
    """Self-attention, fused or written out."""

    def __init__(self, *, fused: bool = True, causal: bool = False) -> None:
        super().__init__()
        self.qkv, self.out, self.fused, self.causal = nn.Linear(D, 3 * D), nn.Linear(D, D), fused, causal

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, D // HEADS).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            y = torch.softmax(q @ k.transpose(-2, -1) * 0.5, -1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, D))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(D), Attention(causal=True)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class Language(nn.Module):
    """A decoder with tied weights; some blocks may be computed again in the backward pass."""

    def __init__(self, *, again: bool = False) -> None:
        super().__init__()
        self.embed, self.again = nn.Embedding(50, D), again
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(D, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(x)


class Loop(nn.Module):
    """One layer called many times, with a state that grows."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.cell, self.turns = nn.GRUCell(6, 6), turns

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x)
        for _ in range(self.turns):
            state = self.cell(x, state)
        return state


class Branch(nn.Module):
    """Depends on the values of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(6, 12), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.wide(x) if x.sum() > 0 else self.narrow(x)


class Experts(nn.Module):
    """Each token through the two best of four experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(D, 4)
        self.experts = nn.ModuleList(nn.Linear(D, D) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights, best = self.gate(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            share = (weights * (best == number)).sum(-1, keepdim=True)
            out = out + share * expert(x)
        return out


class Functional(nn.Module):
    """Operators without layers."""

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, 1)
        y = torch.cat([left, F.pad(right, (0, 1, 0, 1))[:, :, 1:, 1:]], 1)
        y = F.interpolate(y, scale_factor=2.0, mode="bilinear") + torch.arange(y.shape[-1] * 2)
        y = torch.einsum("bchw,bdhw->bcd", y, y).cumsum(-1)
        return F.log_softmax(y.sort(-1).values, -1) + torch.fft.rfft(y).abs().mean()


class Windows(nn.Module):
    """Unfolding, folding, grids and embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 6)

    def forward(self, x: Tensor) -> Tensor:
        parts = F.unfold(x, 3, padding=1)
        y = F.fold(parts, x.shape[-2:], 3, padding=1)
        grid = F.affine_grid(torch.zeros(x.shape[0], 2, 3), list(x.shape), align_corners=False)
        bag = self.bag(torch.zeros(2, 4, dtype=torch.int64))
        return F.grid_sample(y, grid, align_corners=False).mean((2, 3)) @ bag[:, :3].T


class Sparse(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        places = torch.tensor([[0, 1, 2], [2, 0, 5]])
        return torch.sparse.mm(torch.sparse_coo_tensor(places, torch.ones(3), (4, 4 + 2)), x.T)


class Eight(nn.Module):
    """Products of eight-bit integers, and weights that are dequantized first."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(6, 8, dtype=torch.int8))
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(torch.int8).float() @ self.weight.float()) * self.scale


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(D, 8, 2, bidirectional=True), nn.GRU(D, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0].mean() + self.gru(x)[0].mean()


def nested(layout: torch.layout) -> Tensor:
    return torch.nested.nested_tensor([torch.ones(length, D) for length in (3, 5, 2)], layout=layout)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(D, 32), nn.ReLU(), nn.Linear(32, D))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Hardswish(),
        nn.ConvTranspose2d(8, 4, 3, 2), nn.GroupNorm(2, 4), nn.MaxPool2d(2), nn.PReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Dropout(), nn.Linear(16, 10),
    )  # fmt: skip


def resnet() -> nn.Module:
    from resnet18 import ResNet18  # type: ignore[import-not-found]

    return ResNet18()


def decoder() -> nn.Module:
    from transformer import Decoder  # type: ignore[import-not-found]

    return Decoder()


def linear_function(x: Tensor) -> Tensor:
    return torch.tanh(x @ x.T).sum()


def autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return F.softmax(x @ x.transpose(-1, -2), -1).sum()


def step(model: nn.Module, *inputs: Any, optimizer: Callable[..., Any] | None = None) -> Callable[[], Any]:
    """A whole step of training as a function."""
    chosen = optimizer and optimizer(model.parameters())

    def run() -> Any:
        loss = model(*inputs).float().mean()
        loss.backward()
        if chosen:
            chosen.step()
            chosen.zero_grad()
        return loss

    return run


def stateful() -> dict[str, Callable[[], nn.Module]]:
    """Models whose forward pass changes things."""
    import helpers_models  # type: ignore[import-not-found]

    return helpers_models.MODELS  # type: ignore[no-any-return]


Case = tuple[Callable[[], Any], Any, dict[str, Any]]

CASES: dict[str, Case] = {
    "small": (Net, IMAGE, {}),
    "small eval": (Net, IMAGE, {"mode": "eval"}),
    "small backward": (Net, IMAGE, {"backward": True}),
    "small causal half": (Language, TOKENS, {"causal": "half"}),
    "small h200": (Net, IMAGE, {"device": "h200", "backward": True}),
    "shapes only": (Net, None, {"shapes": (2, 3, 12, 12)}),
    "default inputs": (Net, None, {"batch": 3}),
    "float16": (Net, None, {"dtype": "float16", "batch": 2}),
    "resnet18 example": (resnet, None, {"shapes": (1, 3, 64, 64)}),
    "resnet18 example training": (resnet, None, {"shapes": (2, 3, 32, 32), "optimizer": "sgd"}),
    "decoder example": (decoder, None, {"shapes": (1, 32), "dtypes": "int64"}),
    "decoder example adamw": (decoder, None, {"shapes": (1, 16), "dtypes": "int64", "optimizer": "adamw"}),
    "convolutions": (convolutions, IMAGE, {}),
    "convolutions backward": (convolutions, IMAGE, {"backward": True}),
    "channels last": (convolutions, IMAGE.contiguous(memory_format=torch.channels_last), {}),
    "conv1d and 3d": (
        lambda: nn.Sequential(nn.Conv3d(3, 4, 2), nn.Flatten(2), nn.Conv1d(4, 2, 3)), torch.zeros(1, 3, 4, 5, 5), {},
    ),
    "attention fused": (Attention, SEQUENCE, {}),
    "attention fused backward": (Attention, SEQUENCE, {"backward": True}),
    "attention written out": (lambda: Attention(fused=False), SEQUENCE, {"backward": True}),
    "attention causal half": (lambda: Attention(causal=True), SEQUENCE, {"causal": "half"}),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(D, HEADS, 32, batch_first=True), SEQUENCE, {}),
    "encoder layer eval": (lambda: nn.TransformerEncoderLayer(D, HEADS, 32, batch_first=True).eval(), SEQUENCE, {"mode": "eval"}),
    "transformer": (lambda: nn.Transformer(D, HEADS, 1, 1, 32), (SEQUENCE, SEQUENCE), {}),
    "multihead": (lambda: nn.MultiheadAttention(D, HEADS), (SEQUENCE, SEQUENCE, SEQUENCE), {}),
    "language": (Language, TOKENS, {}),
    "language backward": (Language, TOKENS, {"backward": True}),
    "language checkpointed": (lambda: Language(again=True), TOKENS, {"backward": True}),
    "language checkpoint option": (Language, TOKENS, {"backward": True, "checkpoint": "blocks.*"}),
    "language adamw": (Language, TOKENS, {"optimizer": "adamw"}),
    "language adafactor": (Language, TOKENS, {"optimizer": "adafactor"}),
    "language adamw8bit": (Language, TOKENS, {"optimizer": "adamw8bit"}),
    "language accumulate": (Language, TOKENS, {"optimizer": "sgd", "accumulate": 4, "zero_grad": "zero"}),
    "language bf16 mixed": (Language, TOKENS, {"precision": "bf16-mixed", "optimizer": "adam"}),
    "language bf16": (Language, TOKENS, {"precision": "bfloat16"}),
    "language h100 memory": (Language, TOKENS, {"optimizer": "adamw", "device": "h100"}),
    "recurrent": (Recurrent, SEQUENCE, {}),
    "recurrent backward": (Recurrent, SEQUENCE, {"backward": True}),
    "loop": (lambda: Loop(12), ROWS, {}),
    "long loop": (lambda: Loop(600), ROWS, {}),
    "loop backward": (lambda: Loop(30), ROWS, {"backward": True}),
    "branch on values": (Branch, ROWS, {}),
    "branch real": (Branch, ROWS, {"real": True}),
    "experts": (Experts, SEQUENCE, {}),
    "functional": (Functional, torch.ones(2, 4, 6, 6), {}),
    "windows": (Windows, IMAGE, {}),
    "sparse": (Sparse, ROWS, {"real": True}),
    "eight bits": (Eight, ROWS, {}),
    "nested strided": (mlp, nested(torch.strided), {}),
    "nested jagged": (mlp, nested(torch.jagged), {}),
    "function": (lambda: linear_function, ROWS, {}),
    "function backward": (lambda: linear_function, ROWS.clone().requires_grad_(), {"backward": True}),
    "autocast": (lambda: autocast, SEQUENCE, {}),
    "compiled": (lambda: torch.compile(mlp()), SEQUENCE, {}),
    "vmap": (lambda: torch.vmap(linear_function), SEQUENCE, {}),
    "grad": (lambda: torch.func.grad(linear_function), ROWS, {}),
    "step sgd": (lambda: step(mlp(), SEQUENCE, optimizer=lambda given: torch.optim.SGD(given, 0.1, 0.9)), (), {}),
    "step adamw": (lambda: step(mlp(), SEQUENCE, optimizer=torch.optim.AdamW), (), {}),
    "step alone": (lambda: step(Net(), IMAGE), (), {}),
    "data parallel": (lambda: nn.DataParallel(mlp()), SEQUENCE, {}),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(D, D)), SEQUENCE, {"backward": True}),
    "no parameters": (lambda: nn.Sequential(nn.ReLU(), nn.Flatten()), IMAGE, {}),
    "frozen parameters": (lambda: mlp().requires_grad_(False), SEQUENCE, {}),
    "pixel shuffle": (lambda: nn.Sequential(nn.Conv2d(3, 12, 1), nn.PixelShuffle(2), nn.Upsample(scale_factor=2)), IMAGE, {}),
    "losses": (lambda: lambda x, y: F.cross_entropy(x, y) + F.mse_loss(x, x), (ROWS, torch.zeros(4, dtype=torch.int64)), {}),
    "linear algebra": (
        lambda: lambda x: torch.linalg.inv(x @ x.mT + torch.eye(4)).sum() + torch.linalg.svdvals(x).sum(), ROWS, {},
    ),
}  # fmt: skip
