"""Whole model families, built from their configurations with no weights: exact where a table says so, and nothing uncounted."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from sampling import chosen

import opcost
from opcost.core.report import Report
from opcost.frontends.torch import FRONTEND

TABLE = Path(__file__).parents[2] / "data" / "timm.csv"
SAMPLE = (
    "resnet18 vgg11_bn densenet121 ghostnet_100 dpn68 regnetx_002 repghostnet_058 mobilevit_xs lcnet_050 test_convnext3 "
    "res2net50_14w_8s "
    "hrnet_w18_small resnest26d eca_halonext26ts test_vit3 deit3_small_patch16_224 swin_tiny_patch4_window7_224 "
    "xcit_tiny_12_p16_224 pit_ti_distilled_224 coat_tiny levit_128s cait_xxs24_224 nest_tiny maxvit_rmlp_pico_rw_256 "
    "sequencer2d_m convmixer_768_32 visformer_small focalnet_tiny_lrf"
).split()
OFTEN = "lcnet_050 test_convnext3 repghostnet_058 res2net50_14w_8s eca_halonext26ts test_vit3 levit_128s sequencer2d_m".split()
"""With every `make test`: convolutions, branches that are joined, splits, local attention, patches, an LSTM."""


def rows() -> dict[str, dict[str, str]]:
    with TABLE.open(newline="", encoding="utf-8") as file:
        return {row["model"]: row for row in csv.DictReader(file)}


def sample() -> list[dict[str, str]]:
    known = rows()
    return [known[name] for name in chosen(SAMPLE, *OFTEN)]


@pytest.mark.parametrize("row", sample(), ids=lambda row: row["model"])
def test_timm_models_equal_the_exact_integers(row: dict[str, str]) -> None:
    import timm
    from timm.utils import reparameterize_model

    model = FRONTEND.build(lambda: reparameterize_model(timm.create_model(row["model"]).eval()), {})
    size = int(row["img_size"])
    report = opcost.count(model, shapes=(1, 3, size, size))
    assert report.coverage.complete, report.coverage.uncounted
    assert report.totals.params == int(row["exact_params"])
    assert report.totals.macs == int(row["exact_macs_matmul"])


SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 99,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
DECODERS = (
    "llama mistral mixtral qwen2 qwen3 qwen3_moe gemma gemma2 gemma3_text phi phi3 gpt_neox starcoder2 stablelm olmo2 cohere "
    "granite granitemoe gpt_oss persimmon glm recurrent_gemma lfm2"
).split()


def hugging_face(kind: str, auto: str, /, **sizes: Any) -> Any:
    import transformers

    config = transformers.CONFIG_MAPPING[kind](**sizes)
    return FRONTEND.build(lambda: getattr(transformers, auto).from_config(config), {}).eval()


@pytest.mark.parametrize("kind", DECODERS)
def test_decoders_are_counted_completely_and_block_by_block(kind: str) -> None:
    report = opcost.count(hugging_face(kind, "AutoModelForCausalLM", **SMALL), shapes={"input_ids": (2, 16)})
    assert report.coverage.complete, report.coverage.uncounted
    vocabulary = 2 * 16 * SMALL["hidden_size"] * SMALL["vocab_size"]
    assert report.module("lm_head").total.macs == vocabulary
    assert report.totals.macs > vocabulary


ENCODERS = (
    "bert roberta albert distilbert electra deberta deberta-v2 mpnet convbert squeezebert fnet modernbert".split()
)


@pytest.mark.parametrize("kind", chosen(ENCODERS, "bert", "deberta-v2", "convbert", "fnet", "modernbert"))
def test_encoders_are_counted_completely(kind: str) -> None:
    report = opcost.count(hugging_face(kind, "AutoModel"), shapes={"input_ids": (1, 32)})
    assert report.coverage.complete, report.coverage.uncounted


@pytest.mark.parametrize("kind", chosen(["t5", "bart", "pegasus", "led"], "t5"))
def test_encoder_decoders_are_counted_completely(kind: str) -> None:
    shapes = {"input_ids": (1, 32), "decoder_input_ids": (1, 16)}
    report = opcost.count(hugging_face(kind, "AutoModelForSeq2SeqLM"), shapes=shapes)
    assert report.coverage.complete, report.coverage.uncounted


@pytest.mark.parametrize(
    "kind",
    chosen(["vit", "swin", "convnext", "segformer", "dinov2", "resnet", "mobilevit"], "swin", "segformer", "mobilevit"),
)
def test_vision_models_are_counted_completely(kind: str) -> None:
    report = opcost.count(hugging_face(kind, "AutoModel"), shapes={"pixel_values": (1, 3, 224, 224)})
    assert report.coverage.complete, report.coverage.uncounted


def llama_macs(layers: int, hidden: int, inner: int, heads: int, key_heads: int, vocabulary: int, tokens: int) -> int:
    head = hidden // heads
    projections = hidden * hidden * 2 + 2 * hidden * key_heads * head
    attention = 2 * tokens * hidden
    return tokens * (layers * (projections + attention + 3 * hidden * inner) + hidden * vocabulary)


def count_llama(layers: int, hidden: int, inner: int, heads: int, key_heads: int, tokens: int) -> Report:
    model = hugging_face(
        "llama",
        "AutoModelForCausalLM",
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
    )
    return opcost.count(model, shapes={"input_ids": (1, tokens)})


@pytest.mark.parametrize(("hidden", "inner", "heads", "key_heads"), [(4096, 11008, 32, 32), (8192, 28672, 64, 8)])
def test_layers_of_llama_of_seven_and_seventy_billion_parameters_are_derived(
    hidden: int, inner: int, heads: int, key_heads: int
) -> None:
    report = count_llama(2, hidden, inner, heads, key_heads, 128)
    assert report.totals.macs == llama_macs(2, hidden, inner, heads, key_heads, 32000, 128)


def test_experts_see_the_same_tokens_in_a_loop_and_in_a_grouped_product() -> None:
    import transformers

    reports = []
    for experts in ("eager", "grouped_mm"):
        config = transformers.MixtralConfig(**SMALL)
        config._experts_implementation = experts
        model = FRONTEND.build(transformers.MixtralForCausalLM, {"config": config}).eval()
        reports.append(opcost.count(model, shapes={"input_ids": (2, 16)}))
    assert reports[0].totals.macs == reports[1].totals.macs
    assert {note.code for note in reports[0].notes} == {"balanced"}
    assert {note.code for note in reports[1].notes} == {"experts"}
