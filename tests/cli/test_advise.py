"""`opcost.advise` and `opcost advise`: each line is what `opcost.predict` says under that option, with expectations by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import opcost
from opcost.core.sheet import Sheet
from opcost.errors import InputError, UnknownName

MIB = 1 << 20
WIDE = 2048  # its square in float32 is 16 MiB


def lines_of(found: Sheet) -> dict[str, dict[str, Any]]:
    return {str(line["change"]): line for line in found["changes"]}


def left_out(found: Sheet) -> tuple[str, ...]:
    return next((section.lines for section in found.sections if section.title == "left out"), ())


class Convolutions(nn.Module):
    """Two convolutions of images, batch norm and a layer on top, in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3))
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3)))


SHAPES = (4, 3, 64, 64)
TRAINING: dict[str, Any] = {"optimizer": "adamw", "mode": "train"}


@pytest.fixture(scope="module")
def trained() -> Sheet:
    return opcost.advise(Convolutions(), shapes=SHAPES, **TRAINING)


@pytest.mark.parametrize(
    "changed",
    [{}, {"precision": "bf16-mixed"}, {"channels_last": True}, {"optimizer": "adamw_fused"}, {"execution": "compiled"}],
)
def test_a_line_is_the_prediction_with_that_option(trained: Sheet, changed: dict[str, Any]) -> None:
    alone = opcost.predict(Convolutions(), shapes=SHAPES, device="h200", **{**TRAINING, **changed})
    name = ", ".join(f"{option}={value}" for option, value in changed.items()) or "as it is"
    line = lines_of(trained).get(name)
    before = lines_of(trained)["as it is"]
    if line is None:  # it gains nothing
        assert any(text.startswith(name) for text in left_out(trained))
        assert alone.latency_ns >= 0.99 * before["latency"]
        return
    assert alone.memory is not None
    assert (line["latency"], line["fits"]) == (alone.latency_ns, "yes")
    own = alone.memory.peak_bytes, alone.memory.reserved_bytes
    eager = before["peak"], before["reserved"]  # also where the model is compiled, as a note says
    assert (line["peak"], line["reserved"]) == (eager if "execution" in changed else own)
    if changed:
        assert line["saved"] == pytest.approx(1 - line["latency"] / before["latency"])


def test_the_combination_is_the_prediction_with_all_of_them(trained: Sheet) -> None:
    section = next(section for section in trained.sections if section.title == "together")
    (text,) = section.lines
    chosen: dict[str, Any] = dict(part.split("=") for part in text.split(", "))
    assert "optimizer" not in chosen or chosen["optimizer"] == "adamw_fused"  # it learns the same
    batch = int(chosen.pop("batch", SHAPES[0]))
    chosen |= {"channels_last": True} if "channels_last" in chosen else {}
    alone = opcost.predict(Convolutions(), shapes=(batch, *SHAPES[1:]), device="h200", **{**TRAINING, **chosen})
    line = lines_of(trained)["together"]
    assert line["latency"] == alone.latency_ns
    assert line["per_item"] == round(alone.latency_ns / batch)
    others = [each["saved"] for name, each in lines_of(trained).items() if name not in ("as it is", "together")]
    assert line["saved"] > max(others)
    assert text in trained.answer


def test_lines_are_sorted_by_what_they_save(trained: Sheet) -> None:
    saved = [line["saved"] for line in trained["changes"][1:-1]]
    assert saved == sorted(saved, reverse=True)


def test_half_the_bytes_in_bfloat16() -> None:
    model = nn.Linear(WIDE, WIDE, bias=False)
    lines = lines_of(opcost.advise(model, shapes=(WIDE, WIDE)))
    # A weight, an input and a result of 16 MiB each
    assert lines["as it is"]["peak"] == 3 * 16 * MIB
    assert lines["precision=bfloat16"]["peak"] == 3 * 8 * MIB


def test_a_larger_batch_shares_the_start_of_each_kernel() -> None:
    found = opcost.advise(nn.Linear(8, 8), shapes=(2, 8))
    lines = lines_of(found)
    (name,) = (each for each in lines if each.startswith("batch="))
    batch, line, before = int(name.removeprefix("batch=")), lines[name], lines["as it is"]
    assert batch in {2 << doubling for doubling in range(1, 9)}
    assert line["per_item"] == round(line["latency"] / batch) < before["per_item"] == round(before["latency"] / 2)
    # So little work takes little more than the start of its kernel, of which each sample has the batch's share.
    assert line["saved"] > (1 - 2 / batch) / 2


def test_what_is_the_same_before_and_after_has_no_error() -> None:
    """The fused update leaves forward and backward as they are: at most the share of the update is uncertain."""
    model = nn.Sequential(*(nn.Linear(WIDE, WIDE) for _ in range(4)))
    lines = lines_of(opcost.advise(model, shapes=(64, WIDE), **TRAINING))
    before = opcost.predict(model, shapes=(64, WIDE), device="h200", **TRAINING)
    update = sum(row.device_ns or 0 for row in before.rows if row.phase == "update")
    low, high = before.band_ns
    half = (high - low) / 2 / before.latency_ns
    line = lines["optimizer=adamw_fused"]
    assert 0 < line["error"] < 1.5 * half * update / before.latency_ns
    assert line["effect"] == "faster"
    assert lines["precision=bf16-mixed"]["error"] > line["error"]


class OnlyFloats(nn.Module):
    """Takes nothing but float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32:
            raise ValueError("float32, please")
        return x * self.weight


def test_what_does_not_run_is_named() -> None:
    found = opcost.advise(OnlyFloats(), shapes=(2, 8))
    assert any(
        text.startswith("precision=bfloat16: does not run, ") and "float32, please" in text for text in left_out(found)
    )
    assert "precision=bfloat16" not in lines_of(found)


def test_only_what_applies_is_tried() -> None:
    found = opcost.advise(nn.Linear(8, 8), shapes=(2, 8), dtype="bf16", execution="compiled")
    tried = " ".join([*lines_of(found), *left_out(found)])
    for option in ("precision", "channels_last", "optimizer", "checkpoint", "static", "execution", "set"):
        assert option not in tried
    eager = opcost.advise(nn.Linear(8, 8), shapes=(2, 8), dtype="bf16", execution="eager")
    assert "execution=graph" in lines_of(eager)


def test_checkpoints_are_tried_off_where_they_are_on() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDE, WIDE), nn.GELU()) for _ in range(3)))
    options: dict[str, Any] = {"shapes": (WIDE, WIDE), "backward": True, "checkpoint": "*"}
    line = lines_of(opcost.advise(model, **options))["checkpoint=none"]
    assert line["effect"] == "faster"
    # Forward, and backward twice as much: without the second forward pass a quarter of the work goes.
    assert line["saved"] == pytest.approx(0.25, abs=0.1)


class Blocks(nn.Module):
    """Four blocks with results inside that are kept for the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(nn.Sequential(nn.Linear(WIDE, WIDE), nn.GELU(), nn.Linear(WIDE, WIDE)) for _ in range(4))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x)


def test_what_is_smaller_and_slower_has_a_negative_gain() -> None:
    found = opcost.advise(Blocks(), shapes=(8 * WIDE, WIDE), backward=True, mode="train")
    lines = lines_of(found)
    line, before = lines["checkpoint=blocks.*"], lines["as it is"]
    assert line["peak"] < before["peak"]
    # 8 products forward and 15 backward, for the input needs no gradient; of each block the first is run once more
    assert line["saved"] == pytest.approx(-4 / 23, abs=0.03)
    assert line["effect"] == "slower"
    (row,) = (text for text in str(found).splitlines() if text.startswith("checkpoint=blocks.*"))
    assert f" {100 * line['saved']:.1f} " in row


# -- the options that it suggests ------------------------------------------------------------------------------------------


def test_a_fused_update_reads_four_tensors_and_writes_three() -> None:
    model = nn.Linear(WIDE, WIDE, bias=False)
    report = opcost.count(model, shapes=(1, WIDE), optimizer="adamw_fused", mode="train")
    (update,) = (row for row in report.rows if row.op.raw == "aten::_fused_adamw_")
    assert update.cost is not None
    # The weight, its gradient and two moments; of these all but the gradient are written. The step and flags are scalars.
    assert update.cost.bytes_written - 3 * 16 * MIB in range(100)
    assert update.cost.bytes_read - 4 * 16 * MIB in range(100)
    for name, said in (("rprop_fused", "Rprop has no fused kernel"), ("adamw_fast", "unknown optimizer 'adamw_fast'")):
        with pytest.raises((InputError, UnknownName), match=said):
            opcost.count(model, shapes=(1, WIDE), optimizer=name)


def test_compiling_leaves_the_update_as_it_is() -> None:
    report = opcost.count(nn.Linear(WIDE, WIDE), shapes=(8, WIDE), device="h200", **TRAINING)
    graph, compiled = (
        [row.device_ns or 0 for row in opcost.predict(report, execution=execution).rows if row.phase == "update"]
        for execution in ("graph", "compiled")
    )
    assert sum(compiled) == pytest.approx(sum(graph), rel=0.05)  # but for the gaps between kernels
    assert len(compiled) == len(graph)
    assert min(compiled) >= 0


def test_channels_last_changes_the_layout_and_no_count() -> None:
    model = Convolutions().eval()
    usual = opcost.count(model, shapes=SHAPES)
    last = opcost.count(model, shapes=SHAPES, channels_last=True)
    by_hand = opcost.count(
        Convolutions().eval().to(memory_format=torch.channels_last),  # type: ignore[call-overload]
        torch.ones(SHAPES).to(memory_format=torch.channels_last),
    )
    layouts = [
        [row.op.attrs.get("channels_last") for row in report.rows if row.op.kind == "conv"]
        for report in (usual, last, by_hand)
    ]
    assert layouts == [[None] * 2, [True] * 2, [True] * 2]
    assert usual.totals.macs == last.totals.macs
    assert model.body[0].weight.is_contiguous()  # the model itself stays as it is


def test_a_file_has_no_other_layout(tmp_path: Path) -> None:
    onnx_making = pytest.importorskip("onnx_making")
    helper, onnx = onnx_making.helper, onnx_making.onnx
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "net",
        [onnx_making.tensor("x", 2, 8)],
        [onnx_making.tensor("y", 2, 8)],
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    with pytest.raises(InputError, match="channels_last needs a model in PyTorch"):
        opcost.count(str(path), channels_last=True)
    assert "as it is" in lines_of(opcost.advise(str(path)))


CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 256,
}  # fmt: skip


@pytest.mark.zoo
def test_a_language_model_that_takes_attention_apart(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    source, options = f"hf:{tmp_path}", {"dtype": "bf16", "decode": 1, "cache": 2048, "batch": 8}
    found = opcost.advise(source, set={"attn_implementation": "eager"}, **options)
    line = lines_of(found)["set=attn_implementation=sdpa"]
    assert line["latency"] == opcost.predict(source, **options).latency_ns
    assert any("static=2049" in text for text in [*lines_of(found), *left_out(found)])
    with pytest.raises(UnknownName, match="known: eager, sdpa"):
        opcost.count(source, set={"attn_implementation": "other/kernels"})


# -- in every form ---------------------------------------------------------------------------------------------------------

SOURCE = """
from torch import nn

def net():
    return nn.Sequential(*(nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()) for _ in range(3)))
"""


def test_the_command_says_the_same_in_every_form(opcost_command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(SOURCE)
    source = f"{tmp_path / 'net.py'}:net"
    words = ("advise", source, "-i", "4x16x32x32", "--device", "a100")
    found = opcost.advise(source, shapes=[(4, 16, 32, 32)], device="a100")
    names = list(lines_of(found))
    for width in (80, 200):
        done = opcost_command(*words, "--width", width)
        assert done.code == 0
        assert max(map(len, done.out.splitlines())) <= width
        assert " ".join(done.out.split()).startswith(found.answer.replace("\u00a0", " "))
        assert all(name in done.out for name in names)
    assert "80 % interval" in done.out  # where there is room
    data = json.loads(opcost_command(*words, "--format", "json").out)
    assert data["tables"][0]["lines"] == json.loads(found.render("json"))["tables"][0]["lines"]
    assert [line["change"] for line in data["tables"][0]["lines"]] == names
    assert opcost_command(*words, "--format", "csv").out.count("\n") == len(names) + 1
    assert all(name in opcost_command(*words, "--format", "md").out for name in names)
    assert opcost_command(*words, "-q", "-o", tmp_path / "advice.html").out == ""
    assert "<!DOCTYPE" in (tmp_path / "advice.html").read_text()


def test_what_is_not_understood(opcost_command: Callable[..., Any]) -> None:
    with pytest.raises(UnknownName, match="did you mean 'h200'"):
        opcost.advise(nn.Linear(8, 8), shapes=(2, 8), device="h2000")
    with pytest.raises(UnknownName, match="did you mean 'backward'"):
        opcost.advise(nn.Linear(8, 8), shapes=(2, 8), bakward=True)
    assert opcost_command("advise", "timm:resnet5O").code == 2
