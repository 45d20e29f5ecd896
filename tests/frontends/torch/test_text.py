"""Passes of language models: the first tokens of a text, and the next one against a cache, which is an input and no work."""

from itertools import product
from typing import Any

import pytest
import torch
from helpers_live import Live, work
from sampling import chosen

import opcost
from opcost.errors import InputError
from opcost.frontends.torch.recording.run import ModelRun
from opcost.frontends.zoo import declare_torchvision_operators

declare_torchvision_operators()
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.zoo

WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, WORDS = 64, 160, 3, 8, 2, 1000
HEAD = WIDTH // HEADS


def llama(**more: Any) -> Any:
    sizes: dict[str, Any] = {
        "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "vocab_size": WORDS,
    }  # fmt: skip
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**sizes, **more})).eval()


def macs(tokens: int, keys: int, written: int) -> int:
    """Of `tokens` new tokens that each look at `keys`, with words predicted for `written` of them."""
    projections = 2 * WIDTH * WIDTH + 2 * WIDTH * KV_HEADS * HEAD + 3 * WIDTH * HIDDEN
    attention = 2 * HEADS * HEAD * keys
    return tokens * LAYERS * (projections + attention) + written * WIDTH * WORDS


@pytest.mark.parametrize("batch", [1, 3])
def test_a_step_against_a_cache_multiplies_one_token_by_all_weights_and_looks_at_all_keys(batch: int) -> None:
    report = opcost.count(llama(), decode=1, cache=100, batch=batch)
    products = sum(row.cost.macs for row in report.rows if row.cost and row.op.kind in ("matmul", "attention"))
    assert products == batch * macs(1, 101, 1)


def test_a_prefill_looks_at_the_whole_square_and_predicts_words_for_the_last_token_only() -> None:
    report = opcost.count(llama(), prefill=100)
    products = sum(row.cost.macs for row in report.rows if row.cost and row.op.kind in ("matmul", "attention"))
    assert products == macs(100, 100, 1)


SMALL = {
    "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 16,
    "num_key_value_heads": 2, "vocab_size": WORDS,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": SMALL,
    "Mistral": {**SMALL, "sliding_window": 32},
    "Gemma3Text": {**SMALL, "sliding_window": 32, "sliding_window_pattern": 2},
    "Qwen3Next": {
        **SMALL, **EXPERTS, "shared_expert_intermediate_size": 32, "linear_num_value_heads": 4, "linear_num_key_heads": 2,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    },
    "Mamba": {"hidden_size": WIDTH, "num_hidden_layers": 2, "vocab_size": WORDS},
}  # fmt: skip
"""Full caches, windows, both by turns, states of fixed size beside them, and such states alone."""


@pytest.mark.parametrize(
    ("family", "tokens", "static"),
    chosen(
        product(FAMILIES, (20, 50), (None, 64)),
        *((family, 50, None) for family in FAMILIES),
        *(("Llama", 20, 64), ("Mistral", 20, 64), ("Gemma3Text", 50, 64), ("Qwen3Next", 20, 64)),
    ),
)
def test_a_step_is_what_the_model_does_with_a_cache_that_it_filled_itself(
    family: str, tokens: int, static: int | None
) -> None:
    from transformers.cache_utils import DynamicCache, StaticCache

    config = getattr(transformers, f"{family}Config")(**FAMILIES[family])
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    ids = torch.ones(2, tokens, dtype=torch.int64)
    cache = DynamicCache(config=config) if static is None else StaticCache(config=config, max_cache_len=static)
    given = {"cache_params" if family == "Mamba" else "past_key_values": cache, "use_cache": True}
    with torch.no_grad():
        model(input_ids=ids, **given)
    by_hand = opcost.count(model, kwargs={"input_ids": ids[:, :1], **given})
    by_option = opcost.count(model, decode=1, cache=tokens, batch=2, static=static)
    assert [(row.op.raw, row.ins, row.outs, row.cost) for row in by_option.rows] == [
        (row.op.raw, row.ins, row.outs, row.cost) for row in by_hand.rows
    ]


def cache_bytes(report: opcost.Report) -> tuple[int, int]:
    return int(report.meta["cache_bytes"]), int(report.meta["cache_bytes_per_token"])


def test_a_cache_has_the_heads_that_share_it_and_the_type_of_the_model() -> None:
    each = LAYERS * 2 * KV_HEADS * HEAD * 2  # keys and values in bfloat16
    assert cache_bytes(opcost.count(llama(), decode=1, cache=100, dtype="bf16")) == (101 * each, each)
    assert cache_bytes(opcost.count(llama(), prefill=7, batch=4, dtype="bf16")) == (4 * 7 * each, 4 * each)


def test_a_cache_in_another_type_is_reported_in_it_and_the_operators_are_not() -> None:
    own, other, small = (
        opcost.count(llama(), decode=1, cache=100, cache_dtype=kept) for kept in (None, "float8_e4m3fn", "int4")
    )
    each = LAYERS * 2 * KV_HEADS * HEAD
    assert cache_bytes(own) == (4 * 101 * each, 4 * each)
    assert cache_bytes(other) == (101 * each, each)
    assert cache_bytes(small) == (101 * each // 2, each // 2)
    assert own.totals == other.totals
    assert [note.code for note in other.notes] == ["cache-type"]


@pytest.mark.parametrize("dtype", [None, "bf16"])
def test_several_steps_find_out_once_what_goes_into_the_cache(
    dtype: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = llama()
    runs = []
    run = ModelRun.__call__

    def noted(self: ModelRun, args: Any, kwargs: Any, names: Any) -> Any:
        runs.append(tuple(kwargs["input_ids"].shape))
        return run(self, args, kwargs, names)

    monkeypatch.setattr(ModelRun, "__call__", noted)
    found = [opcost.count(model, decode=1, cache=tokens, dtype=dtype).meta["cache_bytes"] for tokens in (100, 200)]
    assert runs == [(1, 2), (1, 1), (1, 1)]  # two tokens into an empty cache, then the two steps
    # In another type the cache is another, and found out anew.
    other = opcost.count(model, decode=1, cache=100, dtype="fp16" if dtype else "bf16").meta["cache_bytes"]
    assert runs[3:] == runs[:2]
    sizes = [2 * LAYERS * KV_HEADS * HEAD * tokens for tokens in (101, 201)]
    assert list(map(int, [*found, other])) == [size * (2 if dtype else 4) for size in sizes] + [2 * sizes[0]]


def test_a_static_cache_takes_its_full_length_from_the_start_and_attention_looks_at_all_of_it() -> None:
    report = opcost.count(llama(), decode=1, cache=100, static=256)
    assert cache_bytes(report) == (LAYERS * 2 * KV_HEADS * HEAD * 4 * 256, 0)
    attention = [row for row in report.rows if row.op.kind == "attention"]
    assert {row.ins[1].shape[-2] for row in attention if row.ins[1].shape} == {256}
    assert any(row.op.raw == "aten::index_copy_" for row in report.rows)


def test_a_window_holds_no_more_than_it_is_wide() -> None:
    config = transformers.MistralConfig(
        hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, vocab_size=WORDS, sliding_window=32,
    )  # fmt: skip
    model = transformers.MistralForCausalLM(config)
    each = LAYERS * 2 * KV_HEADS * HEAD * 4
    assert cache_bytes(opcost.count(model, decode=1, cache=20)) == (21 * each, each)
    assert cache_bytes(opcost.count(model, decode=1, cache=100)) == (
        31 * each,
        0,
    )  # the new token takes the place of the oldest
    report = opcost.count(model, decode=1, cache=100)
    assert {row.ins[1].shape[-2] for row in report.rows if row.op.kind == "attention" and row.ins[1].shape} == {32}


def test_latent_attention_keeps_the_compressed_form() -> None:
    config = transformers.DeepseekV3Config(
        hidden_size=WIDTH, intermediate_size=HIDDEN, moe_intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, vocab_size=WORDS, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
        kv_lora_rank=24, q_lora_rank=32, qk_rope_head_dim=8, v_head_dim=16, qk_nope_head_dim=16, first_k_dense_replace=2,
    )  # fmt: skip
    report = opcost.count(transformers.DeepseekV3ForCausalLM(config), decode=1, cache=50)
    each = 2 * (24 + 8) * 4  # in each layer the latent and the one rotated key that all heads share
    assert cache_bytes(report) == (51 * each, each)


def filled(model: Any, tokens: int) -> Any:
    """A cache as a real model leaves it, each tensor in memory of its own."""
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=torch.ones(1, tokens, dtype=torch.int64), past_key_values=cache, use_cache=True)
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys.clone(), layer.values.clone()
    return cache


def test_the_cache_of_a_layer_is_freed_when_a_longer_one_takes_its_place() -> None:
    tokens, model = 500, llama()
    each = KV_HEADS * HEAD * 4  # keys or values of one token in one layer
    cache, live, ids = filled(model, tokens), Live(), torch.ones(1, 1, dtype=torch.int64)
    for layer in cache.layers:
        live.hold(layer.keys)
        live.hold(layer.values)
    assert live.now == LAYERS * 2 * tokens * each
    before = live.now
    with torch.no_grad(), live:
        model(input_ids=ids, past_key_values=cache, use_cache=True)

    report = opcost.count(model, decode=1, cache=tokens)
    memory = report.memory
    assert [row.op.raw for row in report.rows] == [name for name, _ in live.ops]
    assert [size - memory.base_bytes for size in memory.curve] == [size - before for size in live.curve]
    grown = [at for at, row in enumerate(report.rows) if row.outs[0].shape[-2:] == (tokens + 1, HEAD)]
    assert len(grown) == 2 * LAYERS
    for keys, values in zip(grown[::2], grown[1::2], strict=True):
        assert memory.curve[values] - memory.curve[keys] == each  # the old keys are gone, the new values are there
    assert memory.peak_bytes - memory.base_bytes < 2 * tokens * each
    assert memory.parts["inputs"] == 8 + tokens * each  # a token, and what is left of the last layer


def test_the_longest_cache_is_found_by_what_one_step_adds() -> None:
    weights = sum(tensor.nbytes for tensor in (*llama().parameters(), *llama().buffers()))
    each = KV_HEADS * HEAD * 4
    cache = 8 << 20
    found = opcost.fit(llama(), memory=weights + cache, vary="cache", decode=1, advise=False)
    # All layers hold keys and values of each token, and one of them also the new keys; besides, a few kilobytes.
    most = cache // ((2 * LAYERS + 1) * each)
    assert most - 100 < found.largest <= most
    assert not found.notes


def test_a_cache_that_is_given_as_an_object_is_counted_as_the_run_leaves_it() -> None:
    tokens, model = 50, llama()
    given = {"input_ids": torch.ones(1, 1, dtype=torch.int64), "past_key_values": filled(model, tokens)}
    own, made = opcost.count(model, kwargs=given), opcost.count(model, decode=1, cache=tokens)
    assert (own.memory.peak_bytes, own.memory.base_bytes) == (made.memory.peak_bytes, made.memory.base_bytes)
    assert given["past_key_values"].get_seq_length() == tokens


def test_positions_that_a_model_does_not_have_are_refused() -> None:
    config = transformers.GPT2Config(n_positions=64, n_embd=32, n_layer=2, n_head=2, vocab_size=100)
    model = transformers.GPT2LMHeadModel(config)
    assert opcost.count(model, decode=1, cache=63).meta["cache_tokens"] == "64"
    with pytest.raises(InputError, match="positions for 64 tokens"):
        opcost.count(model, decode=1, cache=64)
    with pytest.raises(InputError, match="static cache of 32"):
        opcost.count(model, decode=1, cache=32, static=32)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"decode": 1}, "against a cache"),
        ({"prefill": 8, "cache": 8}, "against a cache"),
        ({"prefill": 8, "decode": 1, "cache": 8}, "either its prefill or a decode"),
        ({"static": 8}, "either its prefill or a decode"),
        ({"prefill": 0}, "whole number above zero"),
        ({"prefill": 8, "tokens": 8}, "leave tokens and image out"),
        ({"prefill": 8, "shapes": (1, 8)}, "shapes were given too"),
    ],
)
def test_what_is_no_pass_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        opcost.count(llama(), **options)
    assert said in str(caught.value)


def test_a_model_without_a_cache_is_refused() -> None:
    with pytest.raises(InputError, match="not a language model of transformers"):
        opcost.count(torch.nn.Linear(4, 4), prefill=8)
    t5 = transformers.T5Config(d_model=32, d_ff=64, num_layers=1, num_heads=2, d_kv=16, vocab_size=100)
    with pytest.raises(InputError, match="writes another"):
        opcost.count(transformers.T5ForConditionalGeneration(t5), prefill=8)


# -- training ---------------------------------------------------------------------------------------------------------


def test_a_language_model_is_trained_on_labels_and_its_own_loss() -> None:
    tokens, model = 24, llama().train()
    ids = torch.zeros(2, tokens, dtype=torch.int64)
    with Live() as live:
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss  # no cache, as the trainer of transformers
        loss.backward()
    model.zero_grad()

    report = opcost.count(model, backward=True, batch=2, tokens=tokens)
    assert [name for name, _ in report.inputs] == ["input_ids", "labels"]
    assert report.meta["loss"] == "its own, from labels"
    read = "aten::_local_scalar_dense"  # of a number by the model's own code, which is no operator of a count
    assert [name for name, _ in work(report)] == [name for name, _ in live.work if name != read]
    risen = report.memory.peak_bytes - report.memory.base_bytes
    assert live.peak - risen in (0, 4)  # a loss begins with one number, which a count lets go when it was read
    # The loss keeps the logarithm of a share for every word and token, beside the words themselves.
    given = opcost.count(model, kwargs={"input_ids": ids}, backward=True)
    assert "loss" not in given.meta
    assert (
        report.run_on
        == "input_ids 2x24 int64, labels 2x24 int64 (48 tokens); float32 parameters; loss: its own, from labels"
    )
    assert given.run_on.endswith("loss: none, gradients begin at every output")


def test_inference_takes_no_labels() -> None:
    report = opcost.count(llama(), tokens=8)
    assert [name for name, _ in report.inputs] == ["input_ids"]
    assert report.run_on == "input_ids 1x8 int64 (8 tokens); float32 parameters"


def test_tensors_of_a_cache_are_named_once() -> None:
    cache = f"{2 * LAYERS} × past_key_values 3x{KV_HEADS}x40x{HEAD}"
    report = opcost.count(llama(), decode=1, cache=40, batch=3)
    assert report.run_on == f"input_ids 3x1 int64, {cache} float32 (3 tokens)"
    report = opcost.count(llama(), decode=1, cache=40, batch=3, precision="bfloat16")
    assert report.run_on == f"input_ids 3x1 int64, {cache} bfloat16 (3 tokens)"


@pytest.mark.parametrize(
    ("kind", "labels"),
    [("ForSequenceClassification", (3,)), ("ForTokenClassification", (3, 8)), ("ForMaskedLM", (3, 8))],
)  # fmt: skip
def test_labels_have_the_form_of_the_models_kind(kind: str, labels: tuple[int, ...]) -> None:
    config = transformers.BertConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=100, num_labels=4
    )
    model = getattr(transformers, f"Bert{kind}")(config)
    report = opcost.count(model, optimizer="sgd", batch=3, tokens=8)
    assert dict(report.inputs)["labels"].shape == labels
    assert report.meta["loss"] == "its own, from labels"


def test_what_makes_no_loss_of_labels_is_counted_without_and_says_so() -> None:
    class Deaf(transformers.LlamaForCausalLM):  # type: ignore[misc,name-defined]
        def forward(self, input_ids: Any = None, labels: Any = None, **more: Any) -> Any:
            return super().forward(input_ids=input_ids, **more)

    model = Deaf(llama().config)
    report = opcost.count(model, backward=True, tokens=8)
    assert [name for name, _ in report.inputs] == ["input_ids"]
    assert "loss" not in report.meta
    (said,) = [note.text for note in report.notes if note.code == "no-loss"]
    assert "makes no loss of them" in said


def test_what_fits_is_found_with_the_loss() -> None:
    memory, model = 8 << 20, llama(num_hidden_layers=1)
    found = opcost.fit(model, memory=memory, optimizer="adamw", tokens=64, advise=False)

    def peak(batch: int) -> int:
        ids = torch.zeros(batch, 64, dtype=torch.int64)
        return opcost.count(model, kwargs={"input_ids": ids, "labels": ids}, optimizer="adamw").memory.peak_bytes

    assert peak(found.largest) <= memory < peak(found.largest + 1)
    n = found.largest
    said = f"input_ids {n}x64 int64, labels {n}x64 int64 ({64 * n:,} tokens); float32 parameters; loss: its own, from labels"
    assert found.inputs == said
    for view in ("table", "md", "json", "html"):
        assert said in " ".join(found.render(view).replace("\\_", "_").split())


@pytest.mark.parametrize("words", [["predict", "--backward", "--top", "1"], ["mfu", "--step-time", "1s"]])
def test_the_first_line_says_which_inputs_and_which_loss(opcost_command: Any, tmp_path: Any, words: list[str]) -> None:
    config = llama(num_hidden_layers=1).config
    config.architectures = ["LlamaForCausalLM"]
    (tmp_path / "config.json").write_text(config.to_json_string())
    command, *more = words
    done = opcost_command(command, f"hf:{tmp_path / 'config.json'}", *more, "--device", "h200", "--tokens", "8", "-q")
    said = "input input_ids 1x8 int64, labels 1x8 int64 (8 tokens); float32 parameters; loss: its own, from labels"
    assert said in " ".join(done.out.partition("\n\n")[0].split()), done.err


def test_a_measured_training_step_has_the_loss_that_is_counted() -> None:
    model = llama(num_hidden_layers=1).train()
    profile = opcost.profile(model, backward=True, tokens=8, warmup=0, repeat=1)
    counted = opcost.count(model, backward=True, tokens=8)
    assert {row.op.raw for row in counted.rows if "nll_loss" in row.op.raw} == {
        "aten::nll_loss_forward",
        "aten::nll_loss_backward",
    }
    assert sum(row.cost.flops for row in profile.rows if row.cost) == counted.totals.flops
