from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

aten = torch.ops.aten
B, H, L, S, E, EV = 2, 4, 6, 9, 8, 10
MACS = B * H * L * S * (E + EV)
GRADIENT_MACS = B * H * L * S * (3 * E + 2 * EV)


def _qkv(meta: Any) -> tuple[torch.Tensor, ...]:
    return meta(B, H, L, E), meta(B, H, S, E), meta(B, H, S, EV)


FORWARD = {
    aten.scaled_dot_product_attention.default: (),
    aten._scaled_dot_product_attention_math.default: (),
    aten._scaled_dot_product_attention_math_for_mps.default: (),
    aten._scaled_dot_product_flash_attention.default: (),
    aten._scaled_dot_product_flash_attention_for_cpu.default: (),
    aten._scaled_dot_product_efficient_attention.default: (None, False),
    aten._scaled_dot_product_cudnn_attention.default: (None, False),
    aten._scaled_dot_product_fused_attention_overrideable.default: (),
}


@pytest.mark.parametrize("operator", FORWARD, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_every_kernel_of_attention_has_the_same_macs(operator: Any, causal: bool, translated: Any, meta: Any) -> None:
    seen = translated(operator, *_qkv(meta), *FORWARD[operator], is_causal=causal, outs=((B, H, L, EV), (B, H, L)))
    assert seen.kind == "attention"
    assert seen.attrs == ({"causal": True} if causal else {})
    assert seen.ins == ((B, H, L, E), (B, H, S, E), (B, H, S, EV))
    assert seen.cost.macs == MACS


def test_a_mask_comes_after_the_values(translated: Any, meta: Any) -> None:
    operator = aten._scaled_dot_product_flash_attention_for_cpu.default
    seen = translated(operator, *_qkv(meta), attn_mask=meta(L, S), outs=((B, H, L, EV), (B, H, L)))
    assert seen.ins[3:] == ((L, S),)


def test_attention_on_the_cpu_is_one_operator_forward_and_one_backward(record: Any) -> None:
    q, k, v = (torch.randn(B, H, n, E, requires_grad=True) for n in (L, S, S))
    seen = record(lambda: F.scaled_dot_product_attention(q, k, v).sum().backward())
    forward, backward = [s for s in seen if s.kind == "attention"]
    assert forward.cost.macs == B * H * L * S * 2 * E
    assert backward.attrs == {"grad": True, "products": 5}
    assert backward.ins[:4] == ((B, H, L, E), (B, H, L, E), (B, H, S, E), (B, H, S, E))
    assert backward.cost.macs == B * H * L * S * 5 * E


def test_the_math_path_without_weights_has_the_macs_of_the_fused_one(record: Any, meta: Any) -> None:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        seen = record(lambda: F.scaled_dot_product_attention(*_qkv(meta)))
    assert sum(s.cost.macs for s in seen) == MACS


@pytest.mark.parametrize(
    "operator",
    [
        aten._scaled_dot_product_efficient_attention_backward.default,
        aten._scaled_dot_product_fused_attention_overrideable_backward.default,
        aten._scaled_dot_product_flash_attention_backward.default,
        aten._scaled_dot_product_cudnn_attention_backward.default,
    ],
    ids=str,
)
def test_gradients_of_every_kernel_have_five_products(operator: Any, translated: Any, meta: Any) -> None:
    q, k, v = _qkv(meta)
    y = meta(B, H, L, EV)
    given = {"query": q, "key": k, "value": v, "out": y, "grad_out": y, "grad_out_": y, "is_causal": True}
    empty = meta(0)
    arguments = [
        given.get(argument.name, empty if str(argument.type) == "Tensor" else 0)
        for argument in operator._schema.arguments
        if not argument.kwarg_only
    ]
    seen = translated(operator, *arguments, outs=((B, H, L, E), (B, H, S, E), (B, H, S, EV)))
    assert seen.attrs == {"grad": True, "products": 5, "causal": True}
    assert seen.ins == ((B, H, L, EV), (B, H, L, E), (B, H, S, E), (B, H, S, EV))
    assert seen.cost.macs == GRADIENT_MACS


def test_kernels_with_the_heads_after_the_length_count_the_same(translated: Any, meta: Any) -> None:
    q, k, v = meta(B, L, H, E), meta(B, S, H, E), meta(B, S, H, EV)
    flash = translated(
        aten._flash_attention_forward.default, q, k, v, None, None, L, S, 0.0, True, False, outs=((B, L, H, EV),)
    )
    assert flash.attrs == {"heads_last": True, "causal": True}
    assert flash.cost.macs == MACS
    efficient = translated(
        aten._efficient_attention_forward.default, q, k, v, None, None, None, L, S, 0.0, 0, outs=((B, L, H, EV),)
    )
    assert efficient.attrs == {"heads_last": True}
    assert efficient.cost.macs == MACS


def test_packed_sequences_are_taken_as_equally_long(translated: Any, meta: Any) -> None:
    sequences = 3
    starts = meta(sequences + 1, dtype=torch.int32)
    q, k, v = meta(sequences * L, H, E), meta(sequences * S, H, E), meta(sequences * S, H, EV)
    seen = translated(
        aten._flash_attention_forward.default, q, k, v, starts, starts, L, S, 0.0, False, False,
        outs=((sequences * L, H, EV),),
    )  # fmt: skip
    assert seen.attrs == {"heads_last": True, "sequences": sequences}
    assert seen.cost.macs == sequences * H * L * S * (E + EV)
    library = torch.library.Library("flash_attn", "FRAGMENT")
    library.define(
        "_flash_attn_varlen_forward(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, bool causal)"
        " -> Tensor"
    )
    seen = translated(
        torch.ops.flash_attn._flash_attn_varlen_forward.default, q, k, v, starts, starts, False,
        outs=((sequences * L, H, EV),),
    )  # fmt: skip
    assert seen.cost.macs == sequences * H * L * S * (E + EV)


def test_attention_over_packed_sequences_is_known_by_its_public_name(translated: Any, meta: Any) -> None:
    from torch.nn.attention import varlen

    assert varlen.varlen_attn
    sequences, operators = 3, torch.ops.torch_attn
    starts = meta(sequences + 1, dtype=torch.int32)
    q, k = meta(sequences * L, H, E), meta(sequences * S, H, E)
    forward = translated(
        operators._varlen_attn.default, q, k, k, starts, starts, L, S, True, outs=((sequences * L, H, E),)
    )
    assert forward.attrs == {"heads_last": True, "sequences": sequences, "causal": True}
    assert forward.cost.macs == sequences * H * L * S * 2 * E
    backward = translated(
        operators._varlen_attn_backward.default, q, q, k, k, q, meta(H, L), starts, starts, L, S, False, meta(2),
        outs=(tuple(q.shape), tuple(k.shape), tuple(k.shape)),
    )  # fmt: skip
    assert backward.cost.macs == sequences * H * L * S * 5 * E


def test_flex_attention_counts_the_whole_square(translated: Any, meta: Any) -> None:
    from torch._higher_order_ops import flex_attention, flex_attention_backward

    q, k, v = _qkv(meta)
    y = meta(B, H, L, EV)
    forward = translated(flex_attention, q, k, v, None, (), 1.0, {}, outs=((B, H, L, EV), (B, H, L)))
    assert forward.cost.macs == MACS
    backward = translated(
        flex_attention_backward, q, k, v, y, meta(B, H, L), y, meta(B, H, L), None, None, (), 1.0, {},
        outs=((B, H, L, E), (B, H, S, E), (B, H, S, EV)),
    )  # fmt: skip
    assert backward.ins[0] == (B, H, L, EV)
    assert backward.cost.macs == GRADIENT_MACS


def _attention_layer_macs(batch: int, length: int, features: int) -> int:
    return batch * (4 * length * features**2 + 2 * length**2 * features)


def test_the_fused_attention_layer_hides_nothing(record: Any) -> None:
    features = 16
    layer = torch.nn.MultiheadAttention(features, H, batch_first=True).eval()
    x = torch.randn(B, L, features)
    with torch.no_grad():
        seen = record(lambda: layer(x, x, x, need_weights=False))
    assert [s.name for s in seen if s.cost.macs] == ["aten::_native_multi_head_attention"]
    assert sum(s.cost.macs for s in seen) == _attention_layer_macs(B, L, features)


def test_the_fused_encoder_layer_hides_nothing(record: Any) -> None:
    features, hidden = 16, 24
    layer = torch.nn.TransformerEncoderLayer(features, H, hidden, batch_first=True).eval()
    x = torch.randn(B, L, features)
    with torch.no_grad():
        fused = record(lambda: layer(x))
    layer.train()
    apart = record(lambda: layer(x))
    assert [s.name for s in fused if s.cost.macs] == ["aten::_transformer_encoder_layer_fwd"]
    expected = _attention_layer_macs(B, L, features) + 2 * B * L * features * hidden
    assert sum(s.cost.macs for s in fused) == sum(s.cost.macs for s in apart) == expected
