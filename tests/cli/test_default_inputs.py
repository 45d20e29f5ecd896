"""`opcost count` without `--input`: what is made, what changes it, and configurations in the local cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.frontends.zoo import cached_configuration

NET = """
import torch
from torch import nn

class Net(nn.Conv2d):
    def __init__(self, width=3):
        super().__init__(3, width, 1)
        self.default_cfg = {"input_size": (3, 8, 6)}
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return f"{path}:Net"


def test_sizes_and_the_type_are_flags(net: str, opcost_command: Any, tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    words = ("--batch", "2", "--image", "5", "--dtype", "bf16", "--set", "width=7", "-o", saved)
    assert opcost_command("count", net, *words).code == 0
    report = opcost.load_report(saved)
    assert [(spec.shape, spec.dtype) for _, spec in report.inputs] == [((2, 3, 5, 5), "bfloat16")]
    assert report.totals.macs == 2 * 5 * 5 * 3 * 7


def test_the_table_says_what_was_made(net: str, opcost_command: Any) -> None:
    assert "no inputs were given: input 1x3x8x6 float32" in " ".join(opcost_command("count", net).out.split())


def test_python_sets_what_the_flag_sets(net: str) -> None:
    assert opcost.count(net, set={"width": 7}).totals.macs == 8 * 6 * 3 * 7


@pytest.mark.zoo
def test_a_model_in_the_local_cache_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opcost_command: Any
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--org--tiny"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("0123abc")
    (model / "snapshots" / "0123abc").mkdir(parents=True)
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "num_hidden_layers": 1, "vocab_size": 32,
        "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 16, "max_position_embeddings": 16,
    }  # fmt: skip
    (model / "snapshots" / "0123abc" / "config.json").write_text(json.dumps(config))
    report = opcost.count("hf:org/tiny")
    assert [(name, spec.shape) for name, spec in report.inputs] == [("input_ids", (1, 16))]
    assert report.totals.params == 2 * 32 * 8 + 4 * 8 * 8 + 3 * 8 * 16 + 3 * 8
    done = opcost_command("count", "hf:org/other")
    assert done.code == 2
    assert "no model of this name in the local cache" in done.err


def test_a_state_that_leads_out_of_the_cache_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "hub" / "models--org--tiny" / "refs").mkdir(parents=True)
    (tmp_path / "hub" / "models--org--tiny" / "snapshots").mkdir()
    (tmp_path / "hub" / "models--org--tiny" / "refs" / "main").write_text("../../..")
    (tmp_path / "config.json").write_text("{}")
    assert cached_configuration("org/tiny") is None
    assert cached_configuration("../tiny") is None
