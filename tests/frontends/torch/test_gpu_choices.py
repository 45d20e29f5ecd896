"""What PyTorch decides by the device, decided as on a GPU while memory is reported for one."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import opcost

HEADS, TOKENS, FEATURES = 4, 128, 32


class Attention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.project = nn.Linear(FEATURES, FEATURES)
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.project(x)
        return F.scaled_dot_product_attention(y, x, y, **self.options)


def tokens(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(2, HEADS, TOKENS, FEATURES, dtype=dtype)


def kernels(model: nn.Module, x: torch.Tensor, **options: Any) -> set[str]:
    report = opcost.count(model.to(x.dtype), x, device="h200", **options)
    return {row.op.raw.removeprefix("aten::") for row in report.rows if row.op.kind == "attention"}


MASK = torch.ones(TOKENS, TOKENS, dtype=torch.bool)


@pytest.mark.parametrize(
    ("dtype", "options", "kernel"),
    [
        (torch.bfloat16, {}, "_scaled_dot_product_flash_attention"),
        (torch.float16, {"is_causal": True, "dropout_p": 0.1}, "_scaled_dot_product_flash_attention"),
        (torch.bfloat16, {"attn_mask": MASK}, "_scaled_dot_product_efficient_attention"),
        (torch.float32, {}, "_scaled_dot_product_efficient_attention"),
        (torch.float32, {"dropout_p": 0.1}, "_scaled_dot_product_efficient_attention"),
    ],
)
def test_attention_takes_the_kernel_of_a_gpu(dtype: torch.dtype, options: dict[str, Any], kernel: str) -> None:
    assert kernels(Attention(**options), tokens(dtype)) == {kernel}
    assert kernels(Attention(**options), tokens(dtype), backward=True) == {kernel, f"{kernel}_backward"}


def test_what_no_kernel_takes_goes_by_products() -> None:
    assert kernels(Attention(), tokens(torch.float64)) == set()
    odd = torch.zeros(1, 1, 4, 18)  # 72 bytes are no whole number of vectors
    assert kernels(of_width(18), odd) == set()
    assert kernels(of_width(18), odd.bfloat16()) == {"_scaled_dot_product_flash_attention"}


def of_width(features: int, **options: Any) -> Attention:
    model = Attention(**options)
    model.project = nn.Linear(features, features)
    return model


def test_wide_heads_take_the_kernel_that_saves_memory() -> None:
    wide = torch.zeros(1, 1, 4, 512, dtype=torch.bfloat16)
    assert kernels(of_width(512), wide) == {"_scaled_dot_product_efficient_attention"}


class Shared(nn.Module):
    """Queries of more heads, or more tokens, than there are keys."""

    def __init__(self, keys: tuple[int, int], **options: Any) -> None:
        super().__init__()
        self.keys, self.options = keys, options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads, length = self.keys
        return F.scaled_dot_product_attention(x, x[:, :heads, :length], x[:, :heads, :length], **self.options)


@pytest.mark.parametrize(
    ("dtype", "keys", "options", "kernel"),
    [
        (torch.bfloat16, (1, TOKENS), {"enable_gqa": True}, {"_scaled_dot_product_flash_attention"}),
        (torch.float32, (1, TOKENS), {"enable_gqa": True}, set()),
        (torch.bfloat16, (HEADS, 8), {"is_causal": True}, {"_scaled_dot_product_efficient_attention"}),
    ],
)
def test_fewer_keys_than_queries(dtype: torch.dtype, keys: tuple[int, int], options: Any, kernel: set[str]) -> None:
    assert kernels(Shared(keys, **options), tokens(dtype)) == kernel


def test_a_mask_that_is_not_stored_row_by_row_goes_by_products() -> None:
    # As a table of biases is looked up: head by head behind each pair of tokens, and then turned.
    bias = torch.zeros(TOKENS, TOKENS, HEADS).permute(2, 0, 1)[None]
    assert kernels(Attention(attn_mask=bias), tokens()) == set()
    assert kernels(Attention(attn_mask=bias.contiguous()), tokens()) == {"_scaled_dot_product_efficient_attention"}


def test_rows_of_a_mask_that_begin_anywhere_are_copied() -> None:
    def copied(length: int) -> list[tuple[int, ...]]:
        mask = torch.zeros(1, 1, length, length)
        report = opcost.count(Attention(attn_mask=mask), tokens()[:, :, :length], device="h200")
        return [row.outs[0].dims for row in report.rows if row.op.raw == "aten::constant_pad_nd"]

    assert copied(16) == []
    assert copied(13) == [(1, 1, 13, 16)]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": MASK}], ids=str)
def test_the_cost_of_attention_is_the_same(options: dict[str, Any]) -> None:
    model, x = Attention(**options), tokens()
    plain, on_gpu = (opcost.count(model, x, backward=True, device=device) for device in (None, "h200"))
    assert on_gpu.totals.macs == plain.totals.macs


def test_attention_with_dropout_holds_no_square_of_tokens() -> None:
    model, x = Attention(dropout_p=0.1), torch.zeros(1, 1, 1024, FEATURES)
    square = 1024 * 1024 * 4
    plain, on_gpu = (opcost.count(model, x, backward=True, device=device).memory for device in (None, "h200"))
    assert plain.peak_bytes - plain.base_bytes > 2 * square
    assert on_gpu.peak_bytes - on_gpu.base_bytes < square


def test_dropout_keeps_one_byte_for_an_element() -> None:
    model, x = nn.Sequential(nn.Linear(256, 256), nn.Dropout(0.5)), torch.zeros(1024, 256)
    report = opcost.count(model.train(), x, backward=True, device="h200")
    size = 1024 * 256
    saved = report.memory.parts["saved"]
    assert "aten::native_dropout" in {row.op.raw for row in report.rows}
    assert saved == size  # the mask; a linear layer keeps only its input, which is the user's


@pytest.mark.parametrize("training", [False, True])
def test_a_group_norm_has_the_pixels_of_a_channel_side_by_side(training: bool) -> None:
    """A GPU copies an input that is channels-last, and what comes behind is no longer: a processor normalises it as it is."""
    x = torch.zeros(2, 8, 4, 4).to(memory_format=torch.channels_last)
    model = nn.Sequential(nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3)).train(training)
    wanted = {None: (0, True), "h200": (1, False)}
    for device, (copies, channels_last) in wanted.items():
        rows = [
            row for row in opcost.count(model, x, device=device, backward=training).rows if row.op.phase == "forward"
        ]
        assert sum(row.op.kind == "copy" for row in rows) == copies
        (conv,) = (row for row in rows if row.op.kind == "conv")
        assert bool(conv.op.attrs.get("channels_last")) == channels_last
    report = opcost.count(model, x.contiguous(), device="h200")
    assert not any(row.op.kind == "copy" for row in report.rows)


def test_the_functions_are_back_afterwards_also_of_what_raises() -> None:
    before = F.scaled_dot_product_attention, F.dropout

    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert F.dropout is not before[1]
            raise ValueError("as it pleases")

    with pytest.raises(opcost.OpcostError, match="as it pleases"):
        opcost.count(Fails(), torch.zeros(2), device="h200")
    opcost.count(Attention(), tokens(), device="h200")
    assert (F.scaled_dot_product_attention, F.dropout) == before


def test_other_threads_call_what_they_always_did() -> None:
    class Calls(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            answers: list[torch.Tensor] = []

            def call() -> None:
                parts = (torch.ones(1, 1, 2, 4, dtype=torch.float64) for _ in range(3))
                answers.append(F.scaled_dot_product_attention(*parts))

            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
            return x.reshape(answers[0].shape[-1])

    # The answer of the thread is a real tensor of that shape, so that four elements can be laid out after it.
    assert opcost.count(Calls(), torch.zeros(2, 2), device="h200").outputs[0].shape == (4,)


class Itself(nn.Module):
    """Heads of a text that looks at itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.heads = nn.MultiheadAttention(FEATURES, HEADS, batch_first=True)
        self.options = {"need_weights": False, **options}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.heads(x, x, x, **self.options)[0]


def test_heads_of_a_text_with_itself_run_text_by_text_where_nothing_is_learnt() -> None:
    def ran(model: nn.Module, **options: Any) -> list[str]:
        report = opcost.count(model, torch.zeros(2, TOKENS, FEATURES), device="h200", **options)
        return [row.op.raw.removeprefix("aten::") for row in report.rows if row.op.kind != "view"]

    fast = ["addmm", "_scaled_dot_product_efficient_attention", "addmm"]
    with torch.no_grad():
        assert ran(Itself().eval()) == fast
        # Requested weights and a mask take the other path, and so does what is learnt.
        assert ran(Itself(need_weights=True).eval()) != fast
        assert ran(Itself(attn_mask=torch.zeros(TOKENS, TOKENS)).eval()) != fast
        assert ran(Itself().train()) != fast
    assert ran(Itself().eval(), backward=True)[: len(fast)] != fast
