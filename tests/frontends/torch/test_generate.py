"""A text that is written token by token is told from a few steps."""

from typing import Any

import pytest
import torch

import opcost
from opcost.errors import InputError
from opcost.frontends.zoo import declare_torchvision_operators

declare_torchvision_operators()
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.zoo


def mistral(window: int | None) -> Any:
    config = transformers.MistralConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=1000, sliding_window=window,
    )  # fmt: skip
    with torch.device("meta"):
        return transformers.MistralForCausalLM(config).to(torch.bfloat16).eval()


@pytest.mark.parametrize("window", [None, 24])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_cost_is_that_of_a_prefill_and_of_every_single_step(window: int | None, attention: str) -> None:
    model = mistral(window)
    model.set_attn_implementation(attention)
    found = opcost.predict(model, prefill=16, generate=20, batch=2, device="h200")
    steps = [opcost.count(model, decode=1, cache=16 + i, batch=2, device="h200") for i in range(19)]
    counted = [opcost.count(model, prefill=16, batch=2, device="h200"), *steps]
    moving = [[row for row in report.rows if row.op.kind != "view"] for report in counted]
    for quantity in ("macs", "flops", "bytes_read", "bytes_written"):
        told = sum(getattr(row.cost, quantity) * row.count for row in found.rows if row.cost)
        assert told == sum(getattr(row.cost, quantity) for rows in moving for row in rows if row.cost)
    assert sum(row.count for row in found.rows) == sum(map(len, moving))


def test_times_add_up_and_are_told_by_token() -> None:
    model = mistral(None)
    found = opcost.predict(model, prefill=16, generate=20, batch=2, device="h200")
    first = opcost.predict(model, prefill=16, batch=2, device="h200")
    steps = [opcost.predict(model, decode=1, cache=16 + i, batch=2, device="h200") for i in range(19)]
    assert found.latency_ns == pytest.approx(first.latency_ns + sum(step.latency_ns for step in steps), rel=0.002)
    assert sum(row.device_ns or 0 for row in found.rows) == pytest.approx(found.latency_ns, rel=0.001)
    assert found.text
    assert first.text
    assert found.text.first_token_ns == first.latency_ns == first.text.first_token_ns
    assert found.text.tokens_per_second == pytest.approx(2 * 20 / found.latency_ns * 1e9)
    assert found.text.token_ns == pytest.approx((found.latency_ns - first.latency_ns) / 19, rel=0.001)
    assert steps[0].text
    assert steps[0].text.tokens_per_second == pytest.approx(2 / steps[0].latency_ns * 1e9)
    per_token = 2 * 2 * 2 * 16 * 2 * 2  # keys and values, layers, heads, features, bytes, texts
    assert (found.text.cache_tokens, found.text.cache_bytes) == (35, 35 * per_token)
    assert found.text.cache_bytes_per_token == per_token


def test_one_token_is_the_prefill_alone() -> None:
    found = opcost.predict(mistral(None), prefill=16, generate=1, device="h200")
    assert found.text
    assert found.text.token_ns is None
    assert found.latency_ns == found.text.first_token_ns


@pytest.mark.parametrize("asked", [{}, {"prefill": 8, "decode": 1}, {"prefill": 8, "generate": 0}])
def test_what_cannot_be_written_is_refused(asked: dict[str, int]) -> None:
    with pytest.raises(InputError, match="after a text that was read"):
        opcost.predict(mistral(None), **{"generate": 5, **asked})  # type: ignore[arg-type]
