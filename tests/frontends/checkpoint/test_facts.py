"""What the configuration beside a checkpoint says: experts that a token uses, a head that is the embedding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checkpoint_making import write_safetensors

import opcost
from opcost.core.scan import Scan

WIDTH, INNER = 16, 32
EXPERT = 3 * WIDTH * INNER


def mixture(
    folder: Path, config: dict[str, Any], experts: int = 8, name: str = "mlp.experts.{}.{}_proj.weight"
) -> Scan:
    tensors: dict[str, Any] = {
        "model.embed_tokens.weight": ("BF16", (100, WIDTH)),
        "model.layers.0.mlp.gate.weight": ("BF16", (experts, WIDTH)),
    }
    for number in range(experts):
        for part, shape in (("gate", (INNER, WIDTH)), ("up", (INNER, WIDTH)), ("down", (WIDTH, INNER))):
            tensors[f"model.layers.0.{name.format(number, part)}"] = ("BF16", shape)
    for part in ("gate", "up", "down"):
        tensors[f"model.layers.0.mlp.shared_experts.{part}_proj.weight"] = ("BF16", (INNER, WIDTH))
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config))
    return opcost.scan(folder)


@pytest.mark.parametrize("config", [
    {"num_local_experts": 8, "num_experts_per_tok": 2}, {"n_routed_experts": 8, "num_experts_per_tok": 2},
    {"num_experts": 8, "num_experts_per_tok": 2}, {"text_config": {"moe_num_experts": 8, "moe_topk": 2}},
])  # fmt: skip
def test_a_token_uses_some_of_the_experts_and_all_that_is_shared(tmp_path: Path, config: dict[str, Any]) -> None:
    found = mixture(tmp_path, config)
    always = 100 * WIDTH + 8 * WIDTH + EXPERT
    assert found.totals.params == always + 8 * EXPERT
    assert found.totals.active_params == always + 2 * EXPERT
    assert "2 of 8 experts" in str(found)


def test_without_a_configuration_the_number_of_used_experts_is_unknown(tmp_path: Path) -> None:
    assert mixture(tmp_path, {}).totals.active_params is None
    assert mixture(tmp_path, {"num_experts": 8, "num_experts_per_tok": 9}).totals.active_params is None


def test_a_head_that_is_tied_and_stored_holds_no_parameters_of_its_own(tmp_path: Path) -> None:
    tensors = {"model.embed_tokens.weight": ("F32", (100, 4)), "lm_head.weight": ("F32", (100, 4))}
    write_safetensors(tmp_path / "model.safetensors", tensors)
    for tied, params in ((False, 800), (True, 400)):
        (tmp_path / "config.json").write_text(json.dumps({"tie_word_embeddings": tied}))
        found = opcost.scan(tmp_path)
        assert (found.totals.params, found.totals.bytes) == (params, 2 * 100 * 4 * 4)
    assert found.tensors[1].tied_to == "model.embed_tokens.weight"
    assert "its bytes count, its parameters do not" in found.notes[0].text


def test_a_head_that_is_not_stored_is_noted(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"model.embed_tokens.weight": ("F32", (100, 4))})
    (tmp_path / "config.json").write_text(json.dumps({"tie_word_embeddings": True}))
    assert "used twice, counted once" in opcost.scan(tmp_path).notes[0].text


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1, "a": 2}', "9" * 5000, "[" * 100_000])
def test_a_damaged_configuration_is_noted_and_not_used(tmp_path: Path, content: str) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"w": ("F32", (4,))})
    (tmp_path / "config.json").write_text(content)
    found = opcost.scan(tmp_path)
    assert found.totals.params == 4
    assert "is not used" in found.notes[0].text
