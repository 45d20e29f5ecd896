"""The cost of writing a text token by token is estimated from a few steps."""

from itertools import product
from typing import Any

import pytest
import torch
from sampling import chosen

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


@pytest.mark.parametrize(
    ("window", "attention"),
    chosen(product((None, 24), ("sdpa", "eager")), (None, "eager"), (24, "sdpa")),
)
def test_the_cost_is_that_of_a_prefill_and_of_every_single_step(window: int | None, attention: str) -> None:
    model = mistral(window)
    model.set_attn_implementation(attention)
    found = opcost.predict(model, prefill=16, generate=20, batch=2, device="h200")
    steps = [opcost.count(model, decode=1, cache=16 + i, batch=2, device="h200") for i in range(19)]
    counted = [opcost.count(model, prefill=16, batch=2, device="h200"), *steps]
    moving = [[row for row in report.rows if row.op.kind != "view"] for report in counted]
    for quantity in ("macs", "flops", "bytes_read", "bytes_written"):
        estimated = sum(getattr(row.cost, quantity) * row.count for row in found.rows if row.cost)
        assert estimated == sum(getattr(row.cost, quantity) for rows in moving for row in rows if row.cost)
    assert sum(row.count for row in found.rows) == sum(map(len, moving))


def test_times_add_up_and_are_reported_per_token() -> None:
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


def test_copies_of_a_growing_cache_are_those_of_all_keys_and_values() -> None:
    """Each of two layers reads 100 + 1 keys and values of 2 heads and 16 features in bfloat16, and writes them anew."""
    found = opcost.predict(mistral(None), decode=1, cache=100, batch=3, device="h200")
    assert found.text
    assert found.text.copies
    moved = 2 * 2 * 2 * (101 * 3 * 2 * 16 * 2)  # read and written, keys and values, layers, elements, bytes
    copies = [row for row in found.rows if row.type == "aten::cat" and row.outs[0].dims == (3, 2, 101, 16)]
    assert len(copies) == 4
    time = sum(row.device_ns or 0 for row in copies)
    assert (found.text.copies.bytes, found.text.copies.time_ns) == (moved, time)
    assert found.text.copies.time_share == pytest.approx(time / found.latency_ns)
    total = sum(row.count * (row.cost.bytes_read + row.cost.bytes_written) for row in found.rows if row.cost)
    assert found.text.copies.bytes_share == pytest.approx(moved / total)
    assert "of the time; --static 101 avoids them" in str(found)


@pytest.mark.parametrize("options", [{"decode": 1, "cache": 100, "static": 101}, {"prefill": 16}])
def test_nothing_is_copied_in_a_static_cache_or_an_empty_one(options: Any) -> None:
    found = opcost.predict(mistral(None), device="h200", **options)
    assert found.text
    assert found.text.copies is None
    assert "--static" not in str(found)


def test_copies_of_a_text_are_those_of_all_its_steps() -> None:
    found = opcost.predict(mistral(None), prefill=16, generate=20, device="h200")
    assert found.text
    assert found.text.copies
    lengths = range(17, 36)  # of the cache after each step but the first, which is the prefill
    assert found.text.copies.bytes == sum(2 * 2 * 2 * length * 2 * 16 * 2 for length in lengths)


def test_one_token_is_the_prefill_alone() -> None:
    found = opcost.predict(mistral(None), prefill=16, generate=1, device="h200")
    assert found.text
    assert found.text.token_ns is None
    assert found.latency_ns == found.text.first_token_ns


WIDTH, VOCABULARY, PROMPT, NEW = 8, 16, 3, 4


class Generates(torch.nn.Module):
    """A GPT-2 of one layer that writes greedily; the token that it writes is always `winner`."""

    def __init__(self, winner: int, end: int, device: str = "cpu") -> None:
        super().__init__()
        config = transformers.GPT2Config(
            n_embd=WIDTH, n_layer=1, n_head=2, vocab_size=VOCABULARY, n_positions=16, bos_token_id=None,
            eos_token_id=end, pad_token_id=VOCABULARY - 1,
        )  # fmt: skip
        with torch.device(device):
            self.model = transformers.GPT2LMHeadModel(config).eval()
        if device != "meta":
            with torch.no_grad():  # the last norm gives a one in the first feature, which only the winner's row has
                self.model.transformer.ln_f.weight.zero_()
                self.model.transformer.ln_f.bias.copy_(torch.eye(WIDTH)[0])
                self.model.transformer.wte.weight[:, 0] = torch.eye(VOCABULARY)[winner]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model.generate(ids, max_new_tokens=NEW, do_sample=False)


def written_macs(tokens: int) -> int:
    """MACs of reading the prompt and writing N tokens."""
    seen = [(PROMPT, PROMPT), *[(1, PROMPT + step) for step in range(1, tokens)]]
    layers = sum(read * 12 * WIDTH * WIDTH + 2 * read * cached * WIDTH for read, cached in seen)
    return layers + tokens * WIDTH * VOCABULARY


@pytest.mark.parametrize(("winner", "end", "tokens"), [(5, 5, 1), (5, 2, NEW), (5, 0, NEW), (0, 0, 1)])
def test_greedy_writing_ends_where_the_weights_end_it(winner: int, end: int, tokens: int) -> None:
    model, ids = Generates(winner, end), torch.tensor([[5, 6, 7]])
    assert model(ids).shape == (1, PROMPT + tokens)
    report = opcost.count(model, ids)
    assert report.totals.macs == written_macs(tokens)
    assert [note.code for note in report.notes] == ["real-values"]


@pytest.mark.parametrize("end", [0, 2])
def test_greedy_writing_without_weights_is_counted_at_full_length_and_not_called_complete(end: int) -> None:
    report = opcost.count(Generates(5, end, "meta"), torch.tensor([[5, 6, 7]]))
    assert report.totals.macs == written_macs(NEW)
    assert {note.code for note in report.notes} == {"assumed"}
    assert "full length" in report.notes[0].text
    assert not report.coverage.complete


@pytest.mark.parametrize("options", [{}, {"prefill": 8, "decode": 1}, {"prefill": 8, "generate": 0}])
def test_what_cannot_be_written_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(InputError, match="after a prompt"):
        opcost.predict(mistral(None), **{"generate": 5, **options})  # type: ignore[arg-type]
