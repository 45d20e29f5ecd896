"""Operations that the hardware's own counters read off an H200, and what we count of the same operators."""

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import opcost  # noqa: E402

MEASURED = json.loads((Path(__file__).parents[1] / "data/h200_counters.json").read_text())["rows"]


def product(m: int, n: int, k: int) -> tuple[Any, ...]:
    return torch.mm, torch.empty(m, k, device="meta"), torch.empty(k, n, device="meta")


def convolution(image: tuple[int, ...], weight: tuple[int, ...]) -> tuple[Any, ...]:
    def run(x: Any, w: Any) -> Any:
        return F.conv2d(x, w, padding=weight[-1] // 2)

    return run, torch.empty(image, device="meta"), torch.empty(weight, device="meta")


def attention(*shape: int) -> tuple[Any, ...]:
    return F.scaled_dot_product_attention, *(torch.empty(shape, device="meta") for _ in range(3))


TILED = {
    "product 4096x4096x4096 bf16": product(4096, 4096, 4096),
    "product 4096x4096x4096 fp16": product(4096, 4096, 4096),
    "product 8192x1024x512 bf16": product(8192, 1024, 512),
    "product 1024x8192x2048 bf16": product(1024, 8192, 2048),
    "product 8x4096x4096 bf16": product(8, 4096, 4096),
    "conv 3x3 64 to 64 bf16": convolution((32, 64, 56, 56), (64, 64, 3, 3)),
    "conv 3x3 256 to 256 bf16": convolution((32, 256, 14, 14), (256, 256, 3, 3)),
    "conv 1x1 64 to 256 bf16": convolution((32, 64, 56, 56), (256, 64, 1, 1)),
    "attention 8x16x1024x64 bf16": attention(8, 16, 1024, 64),
    "attention 4x16x2048x128 bf16": attention(4, 16, 2048, 128),
}
"""Sizes that are multiples of the tiles that the kernels work on: nothing is padded and nothing left out."""


@pytest.mark.parametrize("name", TILED)
def test_tensor_cores_calculate_what_is_counted(name: str) -> None:
    call, *given = TILED[name]
    assert 2 * opcost.count(call, tuple(given)).totals.macs == sum(MEASURED[name]["tensor"].values())


def test_a_causal_mask_skips_blocks_that_it_hides_whole() -> None:
    call, *given = attention(8, 16, 1024, 64)
    counted = 2 * opcost.count(call, tuple(given)).totals.macs
    blocks = 1024 // 128
    left = blocks * (blocks + 1) // 2 / blocks**2
    assert sum(MEASURED["attention 8x16x1024x64 bf16 causal"]["tensor"].values()) == counted * left
