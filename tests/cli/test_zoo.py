"""Models by the name of their collection: timm, torchvision, Hugging Face configurations."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from opcost.errors import MissingFramework, OpcostError, SourceError, UnknownName
from opcost.frontends.source import PythonModel, resolve

pytestmark = pytest.mark.zoo


def build(source: str, **settings: object) -> object:
    found = resolve(source, settings)
    assert isinstance(found, PythonModel)
    return found.build()


def parameters(model: object) -> int:
    return sum(parameter.numel() for parameter in model.parameters())  # type: ignore[attr-defined]


def on_meta(model: object) -> bool:
    return any(parameter.device.type == "meta" for parameter in model.parameters())  # type: ignore[attr-defined]


def llama(tmp_path: Path, **changes: object) -> Path:
    entries = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "vocab_size": 100,
        "tie_word_embeddings": False,
        **changes,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(entries))
    return path


def llama_parameters(
    *, layers: int, hidden: int = 64, between: int = 96, vocabulary: int = 100, grouped: float = 0.5
) -> int:
    attention = 2 * hidden * hidden + 2 * int(hidden * hidden * grouped)
    layer = attention + 3 * hidden * between + 2 * hidden
    return layers * layer + hidden + 2 * vocabulary * hidden


def test_a_timm_model_is_made_without_weights_and_takes_settings() -> None:
    model = build("timm:resnet18", num_classes=7)
    assert on_meta(model)
    assert model.fc.out_features == 7  # type: ignore[attr-defined]


def test_a_tag_of_pretrained_weights_changes_nothing() -> None:
    assert parameters(build("timm:resnet18.a1_in1k")) == parameters(build("timm:resnet18"))


def test_a_timm_model_gets_its_own_input_size(opcost_command: Callable) -> None:
    done = opcost_command("count", "timm:resnet18", "--depth", "0")
    assert done.code == 0
    assert "1x3x224x224" in done.out


def test_a_torchvision_model_is_made_without_weights_and_takes_settings() -> None:
    model = build("torchvision:resnet18", num_classes=7)
    assert on_meta(model)
    assert model.fc.out_features == 7  # type: ignore[attr-defined]


def test_a_torchvision_model_does_not_fetch_the_weights_of_its_backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: object, **__: object) -> None:
        raise AssertionError("weights were requested")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", fetch)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fetch)
    assert parameters(build("torchvision:fcn_resnet50")) > 0


def test_the_architecture_that_a_configuration_names_is_made(tmp_path: Path) -> None:
    model = build(f"hf:{llama(tmp_path)}")
    assert type(model).__name__ == "LlamaForCausalLM"
    assert parameters(model) == llama_parameters(layers=2)


def test_the_folder_of_a_configuration_will_do(tmp_path: Path) -> None:
    llama(tmp_path)
    assert parameters(build(f"hf:{tmp_path}")) == llama_parameters(layers=2)


def test_an_entry_of_the_configuration_is_replaced(tmp_path: Path) -> None:
    assert parameters(build(f"hf:{llama(tmp_path)}", num_hidden_layers=5)) == llama_parameters(layers=5)


def test_a_nested_entry_is_replaced_by_its_dotted_name(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    small = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    path.write_text(
        json.dumps({"model_type": "clip", "architectures": ["CLIPModel"], "text_config": small, "vision_config": small})
    )
    model = build(f"hf:{path}", **{"text_config.num_hidden_layers": 3})
    assert len(model.text_model.encoder.layers) == 3  # type: ignore[attr-defined]
    assert len(model.vision_model.encoder.layers) == 1  # type: ignore[attr-defined]


def test_an_entry_of_a_plain_mapping_is_replaced_and_its_neighbours_stay(tmp_path: Path) -> None:
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    model = build(f"hf:{llama(tmp_path, rope_parameters=rope)}", **{"rope_parameters.factor": 4.0})
    assert model.config.rope_parameters == {**rope, "factor": 4.0}  # type: ignore[attr-defined]


def test_without_an_architecture_the_causal_language_model_is_made(tmp_path: Path) -> None:
    assert type(build(f"hf:{llama(tmp_path, architectures=None)}")).__name__ == "LlamaForCausalLM"


def test_a_model_too_large_for_any_laptop_is_made(tmp_path: Path) -> None:
    path = llama(tmp_path, hidden_size=8192, intermediate_size=28672, num_attention_heads=64, num_key_value_heads=8)
    model = build(f"hf:{path}", vocab_size=32000)
    assert parameters(model) == llama_parameters(layers=2, hidden=8192, between=28672, vocabulary=32000, grouped=1 / 8)
    assert on_meta(model)


@pytest.mark.parametrize(
    ("source", "settings", "near"),
    [
        ("timm:resnet5o", {}, "resnet50"),
        ("torchvision:resnet1", {}, "resnet18"),
        ("torchvision:resnet18", {"num_clases": 3}, "num_classes"),
        ("timm:resnet18", {"num_clases": 3}, "num_classes"),
        ("hf:CONFIG", {"num_hiden_layers": 3}, "num_hidden_layers"),
        ("hf:CONFIG", {"rope_parameter.rope_theta": 3}, "rope_parameters"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(
    tmp_path: Path, source: str, settings: dict[str, object], near: str
) -> None:
    with pytest.raises(UnknownName) as caught:
        build(source.replace("CONFIG", str(llama(tmp_path))), **settings)
    assert near in caught.value.near


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "not JSON"), ("[]", "no entries"), ("{}", "no model_type"), ('{"model_type": "lama"}', "'llama'")],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(OpcostError, match=words):
        build(f"hf:{path}")


def test_a_name_on_the_hub_is_not_fetched() -> None:
    with pytest.raises(SourceError, match="local"):
        build("hf:meta-llama/Llama-2-7b")


def test_a_collection_that_is_not_installed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "timm" else real(name, *rest))
    with pytest.raises(MissingFramework, match="pip install timm"):
        build("timm:resnet18")


def test_an_operator_of_torchvision_that_another_package_has_declared_is_left() -> None:
    program = """
import torch
library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from opcost.frontends.zoo import declare_torchvision_operators
declare_torchvision_operators()
torch._C._dispatch_find_schema_or_throw("torchvision::qnms", "")
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
