"""Configurations that ask for more than a count, or make no sense: nothing is fetched, opened or run, and all is refused."""

from __future__ import annotations

import json
import logging
import pickle
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sampling import FULL, sampled

import opcost
from opcost.errors import Refused

pytestmark = pytest.mark.zoo

Config = dict[str, Any]
Command = Callable[..., Any]

LLAMA: Config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 100,
    "tie_word_embeddings": False,
}
DETR: Config = {
    "architectures": ["DetrModel"],
    "model_type": "detr",
    "backbone": "resnet18",
    "use_timm_backbone": True,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "num_queries": 10,
}
TIMM: Config = {
    "architectures": ["TimmWrapperForImageClassification"],
    "model_type": "timm_wrapper",
    "architecture": "resnet18",
}
BACKBONE: Config = {"model_type": "timm_backbone", "architectures": ["TimmBackbone"], "backbone": "resnet18"}
UPERNET: Config = {"model_type": "upernet", "architectures": ["UperNetForSemanticSegmentation"]}


class Bomb:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.fixture(autouse=True)
def exploded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Every connection that is tried all the same, and a pickle in the working directory that notes if it was opened."""
    reached: list[object] = []

    def connect(self: socket.socket, address: object) -> None:
        reached.append(address)
        raise ConnectionRefusedError(address)

    def look_up(*names: object, **_: object) -> None:
        reached.append(names)
        raise socket.gaierror(str(names))

    monkeypatch.setattr(socket.socket, "connect", connect, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        logging, "raiseExceptions", False
    )  # transformers logs to the stderr of the test that imported it
    mark = tmp_path / "exploded"
    (tmp_path / "bomb.bin").write_bytes(pickle.dumps(Bomb(mark)))
    yield reached
    assert reached == [], "the network was reached for"
    assert not mark.exists(), "a pickle was opened"


@pytest.fixture
def count(opcost_command: Command, tmp_path: Path) -> Command:
    def run(config: Config | str | bytes, *words: str) -> Any:
        path = tmp_path / "config.json"
        if isinstance(config, bytes):
            path.write_bytes(config)
        else:
            path.write_text(config if isinstance(config, str) else json.dumps(config))
        return opcost_command("count", f"hf:{path}", *words)

    return run


def assert_refused(done: Any, *words: str) -> None:
    assert done.code == 2, done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    assert "should not happen" not in done.err
    assert len(done.err) < 5000
    for word in words:
        assert word in done.err


REFUSED: dict[str, tuple[Config, str]] = {
    "a model of the hub as timm architecture": ({**TIMM, "architecture": "hf-hub:owner/name"}, "architecture"),
    "the same in its old spelling": ({**TIMM, "architecture": "hf_hub:owner/name"}, "architecture"),
    "the same in capitals": ({**TIMM, "architecture": "HF-Hub:owner/name"}, "architecture"),
    "a folder as timm architecture": ({**TIMM, "architecture": "local-dir:/tmp"}, "architecture"),
    "a timm architecture without its prefix": ({**TIMM, "architecture": "owner/name"}, "owner/name"),
    "a checkpoint for timm": ({**TIMM, "model_args": {"checkpoint_path": "bomb.bin"}}, "model_args.checkpoint_path"),
    "trained weights for timm": ({**TIMM, "model_args": {"pretrained": True}}, "model_args.pretrained"),
    "a file of weights for timm": (
        {**TIMM, "model_args": {"pretrained": True, "pretrained_cfg": {"file": "bomb.bin"}}},
        "model_args.pretrained",
    ),
    "a backbone of the hub": ({**BACKBONE, "backbone": "hf-hub:owner/name"}, "backbone"),
    "a backbone from a folder": ({**BACKBONE, "backbone": "local-dir:."}, "backbone"),
    "arguments of a backbone, which transformers looks up": (
        {**DETR, "backbone_kwargs": {"out_indices": [1, 2, 3, 4]}},
        "resnet18",
    ),
    "a backbone's checkpoint": ({**DETR, "backbone_kwargs": {"checkpoint_path": "bomb.bin"}}, "checkpoint_path"),
    "a backbone's trained weights": ({**DETR, "backbone_kwargs": {"pretrained": True}}, "backbone_kwargs.pretrained"),
    "a backbone of transformers by name": (
        {**DETR, "use_timm_backbone": False, "backbone": "owner/name"},
        "owner/name",
    ),
    "a backbone by name in a segmentation model": ({**UPERNET, "backbone": "owner/name"}, "owner/name"),
    "a nested backbone of the hub": (
        {**UPERNET, "backbone_config": {**BACKBONE, "backbone": "hf-hub:owner/name"}},
        "backbone_config.backbone",
    ),
    "a kernel of the hub": ({**LLAMA, "attn_implementation": "kernels-community/flash-attn"}, "attn_implementation"),
    "a kernel of the hub in the private entry": ({**LLAMA, "_attn_implementation": "owner/name"}, "owner/name"),
    "a kernel with its revision and function": ({**LLAMA, "_attn_implementation": "owner/name@v1:run"}, "owner/name"),
    "a paged kernel": ({**LLAMA, "_attn_implementation": "paged|owner/name"}, "owner/name"),
    "a kernel of one part": ({**LLAMA, "attn_implementation": {"text_config": "owner/name"}}, "owner/name"),
    "a kernel for the experts": ({**LLAMA, "experts_implementation": "owner/name"}, "experts_implementation"),
    "a checkpoint at the top": ({**LLAMA, "checkpoint_path": "bomb.bin"}, "checkpoint_path"),
    "a checkpoint deep inside": ({**LLAMA, "a": [{"b": [{"checkpoint_path": "bomb.bin"}]}]}, "a.0.b.0.checkpoint_path"),
    "foreign code without a model of transformers": (
        {**LLAMA, "architectures": ["Evil"], "auto_map": {"AutoModelForCausalLM": "owner/name--evil.Evil"}},
        "Evil",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_load_something_is_refused_by_name(count: Command, name: str) -> None:
    config, named = REFUSED[name]
    assert_refused(count(config), named)


@pytest.mark.parametrize(
    ("source", "setting", "code"),
    [
        ("timm:resnet18", "pretrained=True", 2),
        ("timm:resnet18", "pretrained=False", 0),
        ("timm:resnet18", "checkpoint_path=bomb.bin", 2),
        ("timm:resnet18", "pretrained_cfg={'file': 'bomb.bin', 'input_size': (3, 64, 64)}", 0),
        ("timm:resnet18", "depth=1000000000", 2),
        ("timm:hf-hub:owner/name", "in_chans=3", 2),
        ("timm:local-dir:.", "in_chans=3", 2),
        ("torchvision:resnet18", "weights=DEFAULT", 2),
        ("torchvision:fcn_resnet50", "weights_backbone=DEFAULT", 2),
        ("hf:CONFIG", "attn_implementation=owner/name", 2),
        ("hf:CONFIG", "checkpoint_path=bomb.bin", 2),
        ("hf:CONFIG", "architectures=BertModel", 2),
        ("hf:CONFIG", "num_hidden_layers=1000000000", 2),
        ("hf:CONFIG", "num_hidden_layers=3", 0),
    ],
)
def test_settings_go_through_the_same_check(
    opcost_command: Command, tmp_path: Path, source: str, setting: str, code: int
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    shape = ["-i", "1x3x64x64"] if source.startswith("torchvision") else []
    done = opcost_command("count", source.replace("CONFIG", str(path)), "--set", setting, *shape)
    assert done.code == code, done.err
    assert "should not happen" not in done.err


ACCEPTED: dict[str, Config] = {
    "where it came from": {**LLAMA, "_name_or_path": "owner/name"},
    "where it came from, oddly": {**LLAMA, "_name_or_path": "hf-hub:owner/name"},
    "foreign code beside a model of transformers": {
        **LLAMA,
        "auto_map": {"AutoConfig": "owner/name--c.C", "AutoModelForCausalLM": "owner/name--m.M"},
        "trust_remote_code": True,
    },
    "a type of element": {**LLAMA, "torch_dtype": "bfloat16"},
    "how it was quantized": {
        **LLAMA,
        "quantization_config": {
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["lm_head"],
        },
    },
    "how attention is computed": {**LLAMA, "_attn_implementation": "eager", "attn_implementation": "sdpa"},
    "pipelines of its own": {**LLAMA, "custom_pipelines": {"x": {"impl": "x.X", "pt": ["AutoModel"]}}},
    "a byte order mark": LLAMA,
    "trained weights for a backbone, which a count does not want": {**DETR, "use_pretrained_backbone": True},
    "no trained weights": {**DETR, "use_pretrained_backbone": False},
    "where the weights of a timm model lie": {
        **TIMM,
        "pretrained_cfg": {"hf_hub_id": "owner/name", "url": "https://example.org/x.pth", "input_size": [3, 224, 224]},
    },
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_loads_nothing_is_counted(count: Command, name: str) -> None:
    config = ACCEPTED[name]
    mark = "\ufeff" if "mark" in name else ""
    pixels = [] if config["model_type"] == "llama" else ["-i", "pixel_values:1x3x64x64"]
    done = count((mark + json.dumps(config)).encode(), *pixels)
    assert done.code == 0, done.err
    assert config["architectures"][0] in done.out


@pytest.mark.slow
def test_no_usual_configuration_of_transformers_is_refused() -> None:
    from opcost.frontends.zoo import _library, without_loads

    passed = 0
    for name, kind in sampled(_library("transformers").CONFIG_MAPPING.items(), every=8):
        try:
            usual = json.loads(kind().to_json_string(use_diff=False))
        except Exception:  # noqa: BLE001 - some types have no usual configuration
            continue
        assert without_loads(usual, name).keys() >= usual.keys() - {"auto_map"}
        passed += 1
    assert passed > (100 if FULL else 12)


def test_weights_that_are_not_wanted_change_no_number(count: Command) -> None:
    plain, trained = ({**DETR, "use_pretrained_backbone": wanted} for wanted in (False, True))
    words = ("-i", "pixel_values:1x3x64x64", "--format", "csv")
    assert count(plain, *words).out == count(trained, *words).out


SENSELESS: dict[str, Config | str | bytes] = {
    "text for a size": {**LLAMA, "hidden_size": "sixty-four"},
    "a negative size": {**LLAMA, "hidden_size": -64},
    "no size": {**LLAMA, "hidden_size": None},
    "a size of nothing": {**LLAMA, "hidden_size": 0},
    "a list for a size": {**LLAMA, "hidden_size": [64, 64]},
    "a mapping for a size": {**LLAMA, "hidden_size": {"a": 1}},
    "lists in lists for a size": {**LLAMA, "hidden_size": [[[[64]]]]},
    "a fraction for a size": {**LLAMA, "hidden_size": 64.5},
    "no number for a size": {**LLAMA, "hidden_size": float("nan")},
    "infinity for a size": {**LLAMA, "hidden_size": float("inf")},
    "a size that no machine holds": {**LLAMA, "hidden_size": 10**30},
    "a vocabulary that no machine holds": {**LLAMA, "vocab_size": 10**30},
    "a billion layers": {**LLAMA, "num_hidden_layers": 10**9},
    "more layers than there are atoms": {**LLAMA, "num_hidden_layers": 10**90},
    "a billion labels": {**LLAMA, "num_labels": 10**9},
    "text for layers": {**LLAMA, "num_hidden_layers": "two"},
    "a list for layers": {**LLAMA, "num_hidden_layers": [2]},
    "no heads": {**LLAMA, "num_attention_heads": 0},
    "text for heads": {**LLAMA, "num_attention_heads": "4"},
    "heads that do not divide": {**LLAMA, "num_attention_heads": 5, "num_key_value_heads": 3},
    "text for a switch": {**LLAMA, "attention_bias": "yes please"},
    "a number for an activation": {**LLAMA, "hidden_act": 7},
    "an unknown activation": {**LLAMA, "hidden_act": "os.system"},
    "text for a fraction": {**LLAMA, "rms_norm_eps": "small"},
    "text for the rotary embedding": {**LLAMA, "rope_parameters": "default"},
    "an unknown rotary embedding": {**LLAMA, "rope_parameters": {"rope_type": "evil", "rope_theta": 1e4}},
    "a list for the rotary embedding": {**LLAMA, "rope_scaling": [1, 2]},
    "a type of element that is a function": {**LLAMA, "torch_dtype": "load"},
    "a type of element that is a number": {**LLAMA, "torch_dtype": 16},
    "a method's name as entry": {**LLAMA, "to_dict": "x"},
    "the class as entry": {**LLAMA, "__class__": "x"},
    "self as entry": {**LLAMA, "self": 1},
    "an unknown attention": {**LLAMA, "_attn_implementation": "evil"},
    "a number for an attention": {**LLAMA, "_attn_implementation": 3},
    "text for architectures": {**LLAMA, "architectures": "LlamaForCausalLM"},
    "another model's text for architectures": {**LLAMA, "architectures": "BertModel"},
    "a number for architectures": {**LLAMA, "architectures": 3},
    "a mapping for architectures": {**LLAMA, "architectures": {"a": 1}},
    "numbers in architectures": {**LLAMA, "architectures": [1, 2]},
    "an architecture that transformers does not have": {**LLAMA, "architectures": ["NoSuchModel"]},
    "an architecture that is a function": {**LLAMA, "architectures": ["pipeline"]},
    "an architecture that is a module": {**LLAMA, "architectures": ["logging"]},
    "an architecture that is a tokenizer": {**LLAMA, "architectures": ["BertTokenizer"]},
    "an architecture that finds one": {**LLAMA, "architectures": ["AutoModelForCausalLM"]},
    "an architecture of another family": {**LLAMA, "architectures": ["DetrModel"]},
    "an abstract architecture": {**LLAMA, "architectures": ["PreTrainedModel"]},
    "a type of model that is a list": {**LLAMA, "model_type": ["llama"]},
    "a type of model that is a number": {**LLAMA, "model_type": 3},
    "a type of model that is a path": {**LLAMA, "model_type": "../../evil"},
    "an empty type of model": {**LLAMA, "model_type": ""},
    "a type of model with 100,000 letters": {**LLAMA, "model_type": "x" * 100_000},
    "parts that are missing": {"model_type": "encoder-decoder", "architectures": ["EncoderDecoderModel"]},
    "a part that is text": {"model_type": "clip", "architectures": ["CLIPModel"], "text_config": "small"},
    "a part that is a number": {
        "model_type": "llava",
        "architectures": ["LlavaForConditionalGeneration"],
        "text_config": 3,
    },
    "a part of an unknown type": {"model_type": "llava", "text_config": {"model_type": "evil"}},
    "a backbone without a type": {**UPERNET, "backbone_config": {}},
    "a backbone that is text": {**UPERNET, "backbone_config": "resnet"},
    "a backbone that timm does not have": {**BACKBONE, "backbone": "resnet"},
    "a backbone that is a number": {**BACKBONE, "backbone": 18},
    "a timm architecture that is a list": {**TIMM, "architecture": ["resnet18"]},
    "a timm architecture that is missing": {"model_type": "timm_wrapper"},
    "arguments that timm does not know": {**TIMM, "model_args": {"evil": 1}},
    "arguments that are text": {**TIMM, "model_args": "evil"},
    "a mapping of labels that is text": {**LLAMA, "id2label": "evil"},
    "labels that are no numbers": {**LLAMA, "id2label": {"a": "b"}},
    "an empty file": b"",
    "white space": b" \n\t ",
    "half a file": b'{"model_type": "lla',
    "no UTF-8": b'{"model_type": "\xff\xfe"}',
    "UTF-16": json.dumps(LLAMA).encode("utf-16"),
    "zeros": bytes(5000),
    "a pickle": pickle.dumps({"model_type": "llama"}),
    "a list": b"[]",
    "a number": b"3",
    "a number of 100,000 digits": b"9" * 100_000,
    "a size of 100,000 digits": b'{"model_type": "llama", "hidden_size": ' + b"9" * 100_000 + b"}",
    "null": b"null",
    "a type twice": b'{"model_type": "llama", "model_type": "bert"}',
    "a size twice, deep inside": b'{"model_type": "clip", "text_config": {"hidden_size": 1, "hidden_size": 2}}',
    "nesting that no reader takes": b"[" * 200_000,
    "nesting that a reader takes": b'{"model_type": "llama", "a": ' + b'{"a": ' * 300 + b"1" + b"}" * 301,
    "lists that a reader takes": b'{"model_type": "llama", "a": ' + b"[" * 300 + b"]" * 300 + b"}",
    "a name with a lone surrogate": b'{"model_type": "\\ud800"}',
    "a name that steers the terminal": b'{"model_type": "\\u001b[2J"}',
}


@pytest.mark.parametrize("name", SENSELESS)
def test_what_makes_no_sense_is_refused(count: Command, name: str) -> None:
    assert_refused(count(SENSELESS[name]))


def test_a_folder_and_a_huge_file_are_refused(opcost_command: Command, tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    assert_refused(opcost_command("count", f"hf:{tmp_path / 'config.json'}"), "no configuration file")
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(1 << 30)
    assert_refused(opcost_command("count", f"hf:{huge}"), "32 MiB")


def test_a_count_of_many_positions_does_not_take_their_memory(count: Command) -> None:
    bert = {**LLAMA, "model_type": "bert", "architectures": ["BertModel"], "max_position_embeddings": 10**15}
    done = count(bert, "-i", "input_ids:1x8:int64")
    assert done.code == 0, done.err  # no machine has the eight petabytes


def test_a_forward_that_fetches_is_refused_too(
    opcost_command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from transformers import LlamaModel

    def fetch(*_: object, **__: object) -> None:
        from urllib.request import urlopen

        urlopen("https://example.org/kernel.so")

    monkeypatch.setattr(LlamaModel, "forward", fetch)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    assert_refused(opcost_command("count", f"hf:{path}"), "https://example.org/kernel.so")
    with pytest.raises(Refused, match=r"kernel\.so"):
        opcost.count(f"hf:{path}")


def test_the_users_own_code_keeps_its_network(opcost_command: Command, tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        "import pickle\nfrom torch import nn\ndef net():\n    return nn.Linear(pickle.loads(pickle.dumps(8)), 8)\n"
    )
    assert opcost_command("count", f"{path}:net", "-i", "1x8").code == 0
