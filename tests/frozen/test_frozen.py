"""A sample of the frozen sources, and that the comparison notices a change."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from compare import ROOMS, committed, differences, full_differences, outcomes
from record import frozen

SAMPLE = {
    "torch": "small backward|attention fused|nested jagged|language adamw",
    "timm": "test_vit3",
    "transformers": "gpt2",
    "onnx": "light_squeezenet|attention",
    "tflite": "keras_cnn_int8",
    "coreml": "torch_attention_mlprogram",
    "pt2": "small",
    "torchscript": "attention",
    "megengine": "handlstm.v2",
    "mxnet": "small tiny_resnet_v1",
    "checkpoint": "safetensors experts|gguf",
    "traces": "kineto cuda_fwd_stack|nsight steps|xla gpu.trace.json",
    "predict": "check latency",
    "peers": "fvcore|torchinfo",
    "views": "report table 80",
}


@pytest.mark.parametrize("room", ROOMS)
def test_a_sample_of_each_room_is_as_it_was_frozen(room: str) -> None:
    names, known = SAMPLE[room].split("|"), committed(room)
    found = list(outcomes(room, names))
    assert len(found) == len(names)
    for outcome in found:
        if outcome.skipped:
            pytest.skip(f"{room}/{outcome.name}: {outcome.skipped} is missing")
        assert outcome.parts is not None, outcome.error
        assert differences(outcome.name, outcome.parts, known[outcome.name]) == []


def test_a_changed_number_is_named_with_its_row_and_field() -> None:
    (outcome,) = outcomes("torchscript", ["attention"])
    assert outcome.parts is not None
    changed = copy.deepcopy(outcome.parts)
    place = next(number for number, row in enumerate(changed["rows"]) if row["cost"]["macs"])
    changed["rows"][place]["cost"]["macs"] += 1
    changed["totals"]["macs"] += 1
    record = frozen(outcome.parts)
    totals = changed["totals"]["macs"]
    assert f"attention: totals: macs was {totals - 1}, is {totals}" in differences("attention", changed, record)
    (line,) = [each for each in differences("attention", changed, record) if ": rows:" in each]
    assert f"row {place} differs" in line
    (line,) = [each for each in full_differences("attention", changed, outcome.parts) if ": rows:" in each]
    assert f"[{place}]" in line
    assert "cost.macs was" in line


def test_a_change_of_wording_leaves_the_figures() -> None:
    (outcome,) = outcomes("torchscript", ["attention"])
    assert outcome.parts is not None
    from record import figures

    text = outcome.parts["text"]
    assert figures(text.replace("params", "weights")) == outcome.parts["figures"] == figures(text)
    assert figures("latency 34.35 µs, 1,024 MACs, 3.36 KiB, 12.5 %") == ["34.35µs", "1,024MACs", "3.36KiB", "12.5%"]


def test_every_room_has_frozen_sources_and_there_are_enough() -> None:
    assert all(committed(room) for room in ROOMS)
    assert sum(len(committed(room)) for room in ROOMS) >= 150
