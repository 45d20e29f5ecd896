"""Calls as older versions of PyTorch wrote them, with fewer arguments than the operator has now."""

from __future__ import annotations

import json

from opcost.traces.kineto.operators import TracedOperator, traced_operator

BATCH, LENGTH, HEADS, FEATURES = 16, 559, 16, 64
SHAPE = [BATCH, LENGTH, HEADS, FEATURES]
SCALARS = [str(LENGTH), str(LENGTH), "0.", "True", "False", "0.125"]
"""Longest query and key, dropout, causal, no mask to debug, scale: as PyTorch 2.7 wrote `_flash_attention_forward`."""


def flash_attention(*, absent: int) -> TracedOperator:
    """The call with `more` arguments behind its scale, of which none is given."""
    dims = [SHAPE] * 3 + [[]] * (2 + len(SCALARS) + absent)
    types = ["c10::BFloat16"] * 3 + [""] * 2 + ["Scalar"] * len(SCALARS) + [""] * absent
    concrete = [""] * 5 + SCALARS + [""] * absent
    return traced_operator(
        "aten::_flash_attention_forward", *(json.dumps(part).encode() for part in (dims, types, concrete)), b""
    )


def test_arguments_that_came_later_have_their_defaults() -> None:
    now, before = flash_attention(absent=6), flash_attention(absent=4)
    assert before == now
    assert before.kind == "attention"
    assert before.outs[0].shape == tuple(SHAPE)
    assert before.attrs["causal"] is True


def test_arguments_without_a_default_are_not_made_up() -> None:
    dims, types = json.dumps([SHAPE]).encode(), b'["float"]'
    assert not traced_operator("aten::_flash_attention_forward", dims, types, b"", b"").outs
    assert not traced_operator("aten::mm", json.dumps([[2, 3]]).encode(), types, b"", b"").outs
