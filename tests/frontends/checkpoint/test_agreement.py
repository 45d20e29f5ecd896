"""`opcost count FOLDER`: the model that config.json names, and where the weights beside it differ from its code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_making import write_safetensors

import opcost

pytestmark = pytest.mark.zoo
pytest.importorskip("transformers")

WIDTH, INNER, WORDS, LAYERS = 16, 32, 40, 2
CONFIG: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": WIDTH, "intermediate_size": INNER,
    "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": LAYERS, "vocab_size": WORDS,
    "tie_word_embeddings": False,
}  # fmt: skip
LINEAR = {
    **{f"self_attn.{name}_proj": (WIDTH, WIDTH) for name in "qkvo"},
    **{f"mlp.{name}_proj": (INNER, WIDTH) for name in ("gate", "up")},
    "mlp.down_proj": (WIDTH, INNER),
}


def llama(*, packed: bool = False) -> dict[str, Any]:
    """The tensors of a small Llama, as its published checkpoints name them."""
    tensors: dict[str, Any] = {"model.norm.weight": ("BF16", (WIDTH,))}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = ("BF16", (WORDS, WIDTH))
    for layer in range(LAYERS):
        stem = f"model.layers.{layer}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{stem}.{name}.weight"] = ("BF16", (WIDTH,))
        for name, (outputs, inputs) in LINEAR.items():
            if packed:
                tensors[f"{stem}.{name}.qweight"] = ("I32", (inputs, outputs // 8))
                tensors[f"{stem}.{name}.qzeros"] = ("I32", (1, outputs // 8))
                tensors[f"{stem}.{name}.scales"] = ("F16", (1, outputs))
            else:
                tensors[f"{stem}.{name}.weight"] = ("BF16", (outputs, inputs))
    return tensors


PARAMS = 2 * WORDS * WIDTH + LAYERS * (4 * WIDTH**2 + 3 * WIDTH * INNER + 2 * WIDTH) + WIDTH


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    def made(tensors: dict[str, Any] | None, **config: Any) -> Path:
        (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **config}))
        if tensors is not None:
            write_safetensors(tmp_path / "model.safetensors", tensors)
        return tmp_path

    return made


def said(report: opcost.Report) -> list[str]:
    return [note.text for note in report.notes if note.code.startswith("checkpoint")]


@pytest.mark.parametrize("packed", [False, True])
def test_a_checkpoint_that_fits_its_code_is_noted(folder: Callable[..., Path], packed: bool) -> None:
    path = folder(llama(packed=packed))
    report = opcost.count(path, tokens=4)
    assert report.totals.params == opcost.scan(path).totals.params == PARAMS
    (text,) = said(report)
    assert text.startswith("the checkpoint beside it fits the code")


def test_what_is_missing_extra_or_of_another_shape_is_named(folder: Callable[..., Path]) -> None:
    tensors = llama()
    del tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.layers.0.self_attn.q_proj.bias"] = ("BF16", (WIDTH,))
    tensors["lm_head.weight"] = ("BF16", (WORDS + 8, WIDTH))
    assert said(opcost.count(folder(tensors), tokens=4)) == [
        "1 tensors of the code are not in the checkpoint: model.layers.1.mlp.up_proj.weight",
        "1 tensors of the checkpoint are not in the code: model.layers.0.self_attn.q_proj.bias",
        "1 tensors have another shape in the checkpoint: lm_head.weight 48x16, in the code 40x16",
    ]


def test_a_head_that_is_tied_may_be_missing(folder: Callable[..., Path]) -> None:
    tensors = llama()
    del tensors["lm_head.weight"]
    (text,) = said(opcost.count(folder(tensors, tie_word_embeddings=True), tokens=4))
    assert "fits the code" in text
    (text,) = said(opcost.count(folder(tensors), tokens=4))
    assert "not in the checkpoint: lm_head.weight" in text


def test_the_base_of_a_model_may_be_stored_without_its_prefix(folder: Callable[..., Path]) -> None:
    tensors = {name.removeprefix("model."): kind for name, kind in llama().items() if name != "lm_head.weight"}
    report = opcost.count(folder(tensors, architectures=["LlamaModel"]), tokens=4)
    assert "fits the code" in said(report)[0]
    tensors = {f"model.{name}": kind for name, kind in tensors.items()}
    report = opcost.count(folder(tensors, architectures=["LlamaModel"]), tokens=4)
    assert "fits the code" in said(report)[0]


def test_experts_that_the_code_holds_as_one_tensor_may_be_stored_one_by_one(folder: Callable[..., Path]) -> None:
    experts = 4
    tensors = {name: kind for name, kind in llama().items() if ".mlp." not in name}
    for layer in range(LAYERS):
        stem = f"model.layers.{layer}.block_sparse_moe"
        tensors[f"{stem}.gate.weight"] = ("BF16", (experts, WIDTH))
        for expert in range(experts):
            for name, shape in (("w1", (INNER, WIDTH)), ("w3", (INNER, WIDTH)), ("w2", (WIDTH, INNER))):
                tensors[f"{stem}.experts.{expert}.{name}.weight"] = ("BF16", shape)
    mixtral = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": experts}
    path = folder(tensors, **mixtral, num_experts_per_tok=2)
    report = opcost.count(path, tokens=4)
    assert "fits the code" in said(report)[0]
    always = PARAMS - LAYERS * 3 * WIDTH * INNER + LAYERS * experts * WIDTH
    scan = opcost.scan(path)
    assert scan.totals.params == report.totals.params == always + LAYERS * experts * 3 * WIDTH * INNER
    assert scan.totals.active_params == always + LAYERS * 2 * 3 * WIDTH * INNER


def test_a_folder_with_nothing_but_a_configuration_is_counted(folder: Callable[..., Path], opcost_command: Any) -> None:
    path = folder(None)
    assert said(opcost.count(path, tokens=4)) == []
    assert opcost_command("count", path, "--tokens", "4", "--set", "num_hidden_layers=1").code == 0


def test_a_folder_without_a_configuration_is_no_model(tmp_path: Path, opcost_command: Any) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"w": ("F32", (2,))})
    assert "is a directory" in opcost_command("count", tmp_path).err
    assert "`opcost scan` lists them" in opcost_command("count", tmp_path / "model.safetensors").err
