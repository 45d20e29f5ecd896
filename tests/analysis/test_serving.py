"""What a serving engine makes of the operators of a language model, and of the memory of a device."""

import json
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

import opcost
from opcost.analysis.prediction.serving import BLOCK, SCORES, UTILIZATION, in_steps, limits, room, served
from opcost.core.devices import device
from opcost.core.graph import TensorSpec
from opcost.core.report import Report

pytestmark = pytest.mark.zoo

H200 = device("h200")
HIDDEN, INNER, LAYERS, HEADS, KV, WORDS = 64, 128, 2, 4, 2, 1000
DIM = HIDDEN // HEADS
BATCH, CACHED = 3, 31
BF16 = 2  # bytes

SIZES: dict[str, Any] = {
    "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": KV, "vocab_size": WORDS,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", SIZES),
    "mistral": ("MistralForCausalLM", SIZES),
    "qwen2": ("Qwen2ForCausalLM", SIZES),
    "qwen3": ("Qwen3ForCausalLM", {**SIZES, "head_dim": DIM}),
    "phi3": ("Phi3ForCausalLM", {**SIZES, "pad_token_id": 0}),
    "gemma2": ("Gemma2ForCausalLM", {**SIZES, "head_dim": DIM}),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": WORDS}),
    "opt": ("OPTForCausalLM", {**SIZES, "ffn_dim": INNER, "word_embed_proj_dim": HIDDEN}),
    "mixtral": ("MixtralForCausalLM", {**SIZES, "num_local_experts": 4, "num_experts_per_tok": 2}),
}


def source(folder: Path, name: str = "llama", **more: Any) -> str:
    kind, sizes = MODELS[name]
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": name, "architectures": [kind], **sizes, **more}))
    return f"hf:{path}"


def decoded(folder: Path, name: str = "llama", **more: Any) -> Report:
    return served(opcost.count(source(folder, name, **more), decode=1, cache=CACHED, batch=BATCH, dtype="bf16"))


def test_a_layer_of_a_llama_is_ten_kernels(tmp_path: Path) -> None:
    found = decoded(tmp_path)
    layer = ["matmul", "elementwise", "elementwise", "attention", "matmul", "elementwise", "matmul", "elementwise"]
    kinds = [
        "embedding",
        "elementwise",
        *LAYERS * [*layer, "matmul", "elementwise"],
        "matmul",
        "elementwise",
        "elementwise",
    ]
    assert [row.op.kind for row in found.rows] == kinds
    products = [row.ins[1].dims for row in found.rows if row.op.kind == "matmul"]
    joined = (HIDDEN, (HEADS + 2 * KV) * DIM), (HEADS * DIM, HIDDEN), (HIDDEN, 2 * INNER), (INNER, HIDDEN)
    assert products == [*LAYERS * joined, (HIDDEN, WORDS)]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_attention_reads_the_tokens_of_the_cache_once_and_writes_new_ones(tmp_path: Path, attention: str) -> None:
    found = decoded(tmp_path, _attn_implementation=attention)
    reading = [row for row in found.rows if row.op.kind == "attention"]
    token = 2 * KV * DIM * BF16
    assert sum(spec.nbytes for row in reading for spec in row.ins[1:]) == LAYERS * BATCH * (CACHED + 1) * token
    assert sum(row.cost.macs for row in reading if row.cost) == LAYERS * 2 * BATCH * HEADS * (CACHED + 1) * DIM
    writing = [row for row in found.rows if row.op.raw == "write to the cache"]
    assert sum(row.cost.bytes_written for row in writing if row.cost) == LAYERS * BATCH * token


def test_all_weights_but_the_table_of_words_are_read_once(tmp_path: Path) -> None:
    found = decoded(tmp_path)
    norms = (2 * LAYERS + 1) * HIDDEN
    read = sum(row.ins[1].nbytes for row in found.rows if row.op.kind == "matmul")
    assert read == found.totals.param_bytes - (WORDS * HIDDEN + norms) * BF16


@pytest.mark.parametrize("name", [*MODELS])
@pytest.mark.parametrize("text", [{"prefill": CACHED}, {"decode": 1, "cache": CACHED}])
def test_no_model_keeps_copies_masks_or_positions(tmp_path: Path, name: str, text: dict[str, int]) -> None:
    counted = opcost.count(source(tmp_path, name), batch=BATCH, dtype="bf16", **text)  # type: ignore[arg-type]
    found = served(counted)
    assert [row.op.raw for row in found.rows].count("paged attention") == LAYERS
    assert not [note for note in found.notes if note.code == "engine"]
    assert not [row for row in found.rows if row.op.kind in ("copy", "create", "softmax", "gather", "sort")]
    macs = sum(row.cost.macs for row in found.rows if row.cost)
    assert macs == counted.totals.macs  # the same products, in fewer kernels
    assert [row.op.raw for row in found.rows[-2:]] == [SCORES, "the highest score"]


def test_what_no_engine_is_known_to_run_otherwise_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    sizes = {"hidden_size": HIDDEN, "num_hidden_layers": 1, "vocab_size": WORDS, "state_size": 4}
    path.write_text(json.dumps({"model_type": "mamba", "architectures": ["MambaForCausalLM"], **sizes}))
    found = served(opcost.count(f"hf:{path}", decode=1, cache=CACHED))
    assert [note.text for note in found.notes if note.code == "engine"]


def test_what_depends_on_data_stays_as_it_is(tmp_path: Path) -> None:
    counted = opcost.count(source(tmp_path), decode=1, cache=CACHED, batch=BATCH, dtype="bf16")
    rows = list(counted.rows)
    place = max(
        place for place, row in enumerate(rows) if row.op.module.endswith("up_proj") and row.op.kind == "matmul"
    )
    rows[place] = rows[place]._replace(outs=(TensorSpec((None, INNER), "bfloat16"),))
    found = served(replace(counted, rows=tuple(rows)))
    (kept,) = (row for row in found.rows if row.op.id == rows[place].op.id)
    assert (kept.op.raw, kept.ins, kept.outs, kept.cost) == (
        "aten::mm",
        rows[place].ins,
        rows[place].outs,
        rows[place].cost,
    )
    assert room(found, H200)


@pytest.mark.parametrize("batch", [1, 2])
def test_of_experts_those_are_read_that_tokens_choose_on_average(tmp_path: Path, batch: int) -> None:
    experts, chosen = 4, 2
    counted = opcost.count(source(tmp_path, "mixtral"), decode=1, cache=CACHED, batch=batch, dtype="bf16")
    found = [row.ins[1].dims[0] for row in served(counted).rows if row.op.raw == "aten::_grouped_mm"]
    choices = [set(each) for each in combinations(range(experts), chosen)]
    expected = mean(len(set().union(*each)) for each in product(choices, repeat=batch))
    assert found == [expected] * (2 * LAYERS)


@pytest.mark.parametrize(("batch", "tokens"), [(1, 9000), (32, 1024), (33, 1000), (3, 8192), (7, 1)])
def test_prompts_are_read_in_steps_of_limited_size(batch: int, tokens: int) -> None:
    most = limits(H200).tokens
    steps = in_steps(batch, tokens, most)
    assert sum(size * times for size, times in steps) == batch
    assert all(size == 1 or size * tokens <= most for size, _ in steps)
    assert len(steps) == 1 or (steps[0][0] + 1) * tokens > most  # as many together as possible


def test_the_cache_gets_what_weights_and_the_results_of_a_step_leave(tmp_path: Path) -> None:
    found = decoded(tmp_path)
    memory = room(found, H200)
    assert memory
    assert H200.memory
    most = limits(H200)
    # Of a token: what is added to the end, gate and projection side by side, and their product
    step = most.tokens * (HIDDEN + 2 * INNER + INNER) * BF16
    assert memory.activations == max(step, most.sequences * WORDS * (BF16 + 4 + 4))
    assert (
        memory.cache
        == int(UTILIZATION * H200.memory) - found.totals.param_bytes - found.totals.buffer_bytes - memory.activations
    )
    blocks = -(-(CACHED + 1) // BLOCK)
    assert memory.per_text == blocks * BLOCK * 2 * KV * DIM * BF16 * LAYERS
    assert memory.largest_batch * memory.per_text <= memory.cache < (memory.largest_batch + 1) * memory.per_text


def test_more_texts_at_once_make_more_tokens_until_the_cache_takes_the_time(tmp_path: Path) -> None:
    large = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_key_value_heads": 16}
    model = source(tmp_path, **large)
    options: dict[str, Any] = {"engine": "vllm", "decode": 1, "cache": 4095, "dtype": "bf16"}
    batches = 1, 8, 64
    found = [opcost.predict(model, batch=batch, **options) for batch in batches]
    rates = [each.text.tokens_per_second for each in found if each.text]
    assert rates[0] < rates[1] < rates[2]
    assert rates[1] / rates[0] > 2 * rates[2] / rates[1]  # each 8 times as many texts
    for each, batch in zip(found, batches, strict=True):
        cache = batch * 4096 * 2 * 1024 * BF16 * LAYERS
        weights = LAYERS * (4 * 1024**2 + 3 * 1024 * 4096) * BF16
        assert each.latency_ns > (cache + weights) / H200.bandwidth * 1e9
        assert each.text
        assert each.text.token_ns == each.latency_ns
        assert each.text.copies is None


def test_a_text_is_read_in_steps_and_written_token_by_token(tmp_path: Path) -> None:
    options: dict[str, Any] = {"engine": "vllm", "dtype": "bf16", "batch": 20}
    model = source(tmp_path, max_position_embeddings=8192)
    found = opcost.predict(model, prefill=1024, generate=9, **options)
    read = opcost.predict(model, prefill=1024, **options)
    steps = [opcost.predict(model, decode=1, cache=1024 + step, **options).latency_ns for step in range(8)]
    assert found.text
    assert found.text.first_token_ns == read.latency_ns
    assert found.latency_ns == pytest.approx(read.latency_ns + sum(steps), rel=1e-4)
    assert found.text.token_ns == pytest.approx(mean(steps), rel=1e-3)
    assert found.text.cache_bytes == 20 * (1024 + 8) * 2 * KV * DIM * BF16 * LAYERS
    assert read.text
    assert read.text.cache_bytes == 20 * 1024 * 2 * KV * DIM * BF16 * LAYERS
    assert sum(row.count for row in found.rows if row.type == "paged attention") == (3 + 8) * LAYERS  # 8, 8, 4 texts
    assert found.memory
    assert found.memory.parts["inputs"] == 20 * 1040 * 2 * KV * DIM * BF16 * LAYERS  # in blocks of 16 tokens
    assert "vLLM" in str(found)


@pytest.mark.parametrize(
    "options",
    [
        {"prefill": 8, "device": "cpu"},
        {"prefill": 8, "execution": "eager"},
        {"prefill": 8, "backward": True},
        {"prefill": 8, "static": 64},
        {"prefill": 8, "decode": 1, "cache": 8},
        {"decode": 1, "cache": 8, "generate": 2},
        {},
    ],
)
def test_what_no_engine_does_is_an_error(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(opcost.OpcostError):
        opcost.predict(source(tmp_path), engine="vllm", **options)


def test_an_unknown_engine_is_an_error_that_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(opcost.OpcostError, match="vllm"):
        opcost.predict(source(tmp_path), engine="triton", prefill=8)  # type: ignore[arg-type]
