"""`opcost.fit` and `opcost fit`: the largest size, worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from sampling import chosen
from torch import nn

import opcost
from opcost.analysis.capacity import sample_between
from opcost.analysis.changes import changes
from opcost.analysis.growth import Sample
from opcost.api import on_device
from opcost.core.devices import DEVICES, UNUSABLE_BYTES
from opcost.core.option import filled
from opcost.devices.allocator import fits
from opcost.errors import BudgetExceeded, ForwardError, InputError, UnknownName
from opcost.frontends.torch.recording import recorder
from opcost.frontends.torch.tree import tensors_in
from opcost.options import Counting

INS, OUTS = 100, 40
WEIGHTS = 4 * (INS * OUTS + OUTS)
MIB = 1 << 20


def inference(batch: int) -> int:
    """A linear layer: its weights, its input and its output, of four bytes each."""
    return WEIGHTS + 4 * batch * (INS + OUTS)


def training(batch: int) -> int:
    """With the backward pass also the gradients of the weights, and that of the output."""
    return 2 * WEIGHTS + 4 * batch * (INS + 2 * OUTS)


@pytest.fixture
def linear() -> nn.Linear:
    return nn.Linear(INS, OUTS)


@pytest.mark.parametrize("limit", [MIB, 10 * MIB, 3 * MIB + 17])
def test_the_largest_batch_of_a_linear_layer(linear: nn.Linear, limit: int) -> None:
    found = opcost.fit(linear, torch.ones(3, INS), memory=limit)
    assert found.largest == (limit - WEIGHTS) // (4 * (INS + OUTS))
    assert found.peak_bytes == inference(found.largest) <= limit < inference(found.largest + 1)
    assert found.next_peak_bytes == inference(found.largest + 1)
    assert [each.size for each in found.counted] == [1, 2, found.largest, found.largest + 1]
    assert all(each.peak_bytes == inference(each.size) for each in found.counted)
    assert (found.vary, found.limit_bytes, found.device) == ("batch", limit, "")
    assert found.parts == {
        "weights": WEIGHTS, "inputs": 4 * found.largest * INS, "outputs": 4 * found.largest * OUTS,
    }  # fmt: skip


def test_the_largest_batch_of_a_training_step(linear: nn.Linear) -> None:
    found = opcost.fit(linear, shapes=(3, INS), memory="1MiB", backward=True, optimizer="sgd")
    assert found.largest == (MIB - 2 * WEIGHTS) // (4 * (INS + 2 * OUTS))
    assert found.peak_bytes == training(found.largest)
    assert found.options == {"backward": "True", "optimizer": "sgd"}


def test_a_limit_that_is_met_exactly_is_kept(linear: nn.Linear) -> None:
    assert opcost.fit(linear, shapes=(1, INS), memory=inference(77), advise=False).largest == 77
    assert opcost.fit(linear, shapes=(1, INS), memory=inference(77) - 1, advise=False).largest == 76
    assert opcost.fit(linear, shapes=(1, INS), memory=inference(1), advise=False).largest == 1


def test_a_dimension_by_the_name_of_its_input(linear: nn.Linear) -> None:
    for options in ({"shapes": (2, 5, INS)}, {"inputs": torch.ones(2, 5, INS)}, {"shapes": {"input": (2, 5, INS)}}):
        found = opcost.fit(linear, memory=MIB, vary="input=1", advise=False, **options)
        assert found.largest == (MIB - WEIGHTS) // (2 * 4 * (INS + OUTS))
    assert opcost.fit(linear, shapes=(2, 5, INS), memory=MIB, vary="input=-2", advise=False).largest == found.largest


class Two(nn.Module):
    """Takes a batch of numbers, as many indices, and a table that is no batch."""

    def forward(self, x: torch.Tensor, index: torch.Tensor, *, table: torch.Tensor) -> torch.Tensor:
        return x + table[index]


def test_every_input_that_is_as_long_as_the_first_is_part_of_the_batch() -> None:
    x, index, table = torch.ones(6, 8), torch.tensor([0, 1, 2, 0, 1, 2]), torch.ones(3, 8)
    found = opcost.fit(Two(), (x, index), kwargs={"table": table}, memory=10_000, advise=False)
    # x, what is looked up and the sum are 8 floats each, and an index has 8 bytes.
    assert found.largest == (10_000 - 4 * 3 * 8) // (3 * 4 * 8 + 8)
    assert (x.shape, index.tolist()) == ((6, 8), [0, 1, 2, 0, 1, 2])


def test_several_dimensions_grow_together() -> None:
    conv = nn.Conv2d(3, 4, 1, bias=False)
    found = opcost.fit(conv, shapes=(1, 3, 9, 9), memory=100_000, vary="input=2,input=3", advise=False)
    fixed, each = 4 * 3 * 4, 4 * (3 + 4)
    assert fixed + each * found.largest**2 <= 100_000 < fixed + each * (found.largest + 1) ** 2
    assert len(found.counted) <= 6


def test_nothing_is_allocated(linear: nn.Linear) -> None:
    """The inputs of the largest batch would take half a TiB."""
    found = opcost.fit(linear, torch.ones(1, INS), memory="700GiB", advise=False)
    assert found.largest == ((700 << 30) - WEIGHTS) // (4 * (INS + OUTS))


# -- what would let more in ------------------------------------------------------------------------------------------------


def test_advice_has_numbers_of_its_own() -> None:
    model = nn.Sequential(nn.Linear(INS, OUTS), nn.Tanh())
    found = opcost.fit(model, shapes=(3, INS), memory="1MiB", backward=True, optimizer="adam")
    advised = {(each.option, each.value): each for each in found.advice}
    for (option, value), each in advised.items():
        options: dict[str, Any] = {"backward": True, "optimizer": "adam", option: value}
        alone = opcost.fit(model, shapes=(3, INS), memory="1MiB", advise=False, **options)
        assert (each.largest, each.peak_bytes) == (alone.largest, alone.peak_bytes)
        assert each.largest > found.largest
    # Adam remembers two numbers for each weight, and SGD nothing.
    assert ("optimizer", "sgd") in advised
    assert [each.largest for each in found.advice] == sorted((each.largest for each in found.advice), reverse=True)


def test_without_advice_nothing_else_is_counted(linear: nn.Linear, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    @wraps(opcost.count)
    def count(*args: Any, **options: Any) -> Any:
        counted.append(options)
        return usual(*args, **options)

    usual = opcost.count
    monkeypatch.setattr("opcost.sizing.count", count)
    opcost.fit(linear, shapes=(3, INS), memory="1MiB", advise=False)
    assert len(counted) == 4


def images() -> nn.Sequential:
    """Convolutions of which cuDNN converts the tensors, and a batch norm."""
    layers = (
        nn.Conv2d(3, 64, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=2),
        nn.Flatten(),
    )
    return nn.Sequential(*layers, nn.Linear(64 * 18 * 18, 10)).to("meta")


def test_what_is_between_two_sizes_is_what_a_count_finds_there() -> None:
    def sample(batch: int) -> Sample:
        memory = (report := opcost.count(images(), shapes=(batch, 3, 40, 40), device="h200", optimizer="adam")).memory
        assert memory is not None
        return Sample(memory.peak_bytes, memory.curve, memory.lives, rows=report.rows)

    ends, counted = {40: sample(40), 700: sample(700)}, sample(123)
    found = sample_between(ends, 123, on_device("h200").workspace)
    assert found is not None
    assert found.lives == counted.lives
    assert list(found.curve) == list(counted.curve)
    assert found.peak_bytes == counted.peak_bytes
    by_line = sample_between(ends, 123)  # of a convolution another kernel runs at one of the ends
    assert by_line is not None
    assert by_line.lives != counted.lives


def test_advice_takes_two_counts_where_memory_follows_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []

    @wraps(opcost.count)
    def count(*args: Any, **options: Any) -> Any:
        counted.append(options.get("precision", "none"))
        return usual(*args, **options)

    usual = opcost.count
    monkeypatch.setattr("opcost.sizing.count", count)
    options: dict[str, Any] = {"device": "h200", "backward": True}
    found = opcost.fit(images(), shapes=(1, 3, 40, 40), memory="2GiB", **options)
    for advice in found.advice:
        assert counted.count(advice.value) == 2
        largest = usual(images(), shapes=(advice.largest, 3, 40, 40), **{advice.option: advice.value}, **options)
        assert largest.known_memory().peak_bytes == advice.peak_bytes
        assert fits(largest.known_memory(), 2 << 30)
    assert {advice.value for advice in found.advice} == {"bf16-mixed", "bfloat16"}


@pytest.mark.parametrize(("batch", "tried"), [(1, True), (1 << 20, False)])
def test_an_optimizer_that_takes_little_is_left(batch: int, tried: bool) -> None:
    # Adam has 32 MiB for the weight of 16; of the larger batch input, output and its gradient take 8 GiB each.
    report = opcost.count(nn.Linear(2048, 2048, device="meta"), shapes=(batch, 2048), optimizer="adam")
    found = [each for each in changes(filled(Counting, {"optimizer": "adam"}), report) if each.value == "sgd"]
    assert [each.saves_memory for each in found] == [tried]


@pytest.mark.parametrize(("batch", "tried"), [(1, True), (1 << 20, False)])
def test_a_fused_optimizer_is_tried_where_its_update_takes_most(batch: int, tried: bool) -> None:
    # The update has temporary tensors as large as the weight, of 16 MiB; of the larger batch input and gradients take 8 GiB each.
    options: dict[str, Any] = {"optimizer": "adamw", "device": "h200"}
    report = opcost.count(nn.Linear(2048, 2048, device="meta"), shapes=(batch, 2048), **options)
    found = [each for each in changes(filled(Counting, options), report) if each.value == "adamw_fused"]
    assert [each.saves_memory for each in found] == [tried]


def test_operators_are_worked_out_once_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def work_out(call: Any) -> Any:
        others = [each for each in (*call.args, *call.kwargs.values()) if not tensors_in(each)]
        if call.func.namespace == "aten":  # marks of a profiler have no arguments that could be compared
            seen.append(f"{call.func} {others} {[(state.sig.spec, state.sig.stride) for state in call.states]}")
        return usual(call)

    usual = recorder.work_out
    monkeypatch.setattr(recorder, "work_out", work_out)
    model = nn.Sequential(nn.Linear(INS, OUTS), nn.Tanh())
    opcost.fit(model, shapes=(3, INS), memory="1MiB", optimizer="adam")
    assert len(seen) == len(set(seen)) > 0
    numbers = []
    for _ in range(2):  # and anew after the fit, for rules and kernels may be registered in between
        seen.clear()
        opcost.count(model, shapes=(3, INS), optimizer="adam")
        numbers.append(len(seen))
    assert numbers[0] == numbers[1] > 0


# -- what does not fit, and what does not grow -----------------------------------------------------------------------------


def test_where_nothing_fits_the_error_says_what_one_needs(linear: nn.Linear) -> None:
    with pytest.raises(
        BudgetExceeded, match=r"into 10\.00 KiB: batch 1 needs 16\.33 KiB \(weights 15\.78 KiB, inputs 400 B"
    ) as caught:
        opcost.fit(linear, shapes=(3, INS), memory="10KiB")
    assert "options that would fit: precision=bfloat16 (8.16 KiB)" in caught.value.hint
    with pytest.raises(BudgetExceeded) as caught:
        opcost.fit(linear, shapes=(3, INS), memory="1KiB")
    assert "no other option" in caught.value.hint


class Adds(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Shorter(nn.Module):
    """Has room for 50 positions."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(50, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 50:
            raise ValueError(f"{x.shape[1]} positions, and there are 50")
        return x + self.positions[: x.shape[1]]


def test_a_model_that_takes_no_more_ends_before_the_memory_does() -> None:
    found = opcost.fit(Shorter(), shapes=(2, 7, 4), memory="1GiB", vary="x=1", advise=False)
    assert (found.largest, found.next_peak_bytes) == (50, None)
    assert any("51 positions, and there are 50" in note for note in found.notes)
    assert "does not run" in str(found)


def test_a_model_that_needs_two_begins_there() -> None:
    norm = nn.BatchNorm1d(8)
    found = opcost.fit(norm, shapes=(4, 8), memory="100KiB", mode="train", advise=False)
    assert found.counted[0].peak_bytes is None
    assert found.counted[1].size == 2
    assert found.notes[0].startswith("the model does not run at 1: ")


class OfOneSize(nn.Module):
    """Runs at no other size than its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] != 16:
            raise ValueError("sixteen, please")
        return x + 1


def test_a_model_that_runs_only_as_it_was_given_begins_there() -> None:
    found = opcost.fit(OfOneSize(), shapes=(16, 3), memory="1MiB", advise=False)
    assert (found.largest, found.peak_bytes, found.next_peak_bytes) == (16, 2 * 4 * 16 * 3, None)
    assert "sizes below 16 were not tried" in found.notes[0]
    with pytest.raises(ForwardError, match="sixteen"):
        opcost.fit(OfOneSize(), shapes=(2, 3), memory="1MiB")


def test_a_size_that_changes_nothing_is_said() -> None:
    with pytest.raises(InputError, match=r"the peak is 0 B.* at 1, and does not depend on it"):
        opcost.fit(Adds(), shapes=(3, 0), memory="1MiB")


def test_where_nothing_can_vary_that_is_said() -> None:
    with pytest.raises(InputError, match="no input has a dimension that could be a batch"):
        opcost.fit(Adds(), torch.tensor(1.0), memory="1MiB")
    with pytest.raises(InputError, match="needs inputs, and none were given"):
        opcost.fit(Adds(), memory="1MiB", vary="x=0")


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({}, InputError, "no memory limit"),
        ({"memory": "24G"}, opcost.OpcostError, "unit"),
        ({"memory": "24"}, opcost.OpcostError, "24 GiB or 24 bytes"),
        ({"memory": -1}, InputError, "above zero"),
        ({"memory": "1GiB", "vary": "btach"}, UnknownName, "did you mean 'batch'"),
        ({"memory": "1GiB", "vary": "x=0"}, UnknownName, "known: input"),
        ({"memory": "1GiB", "vary": "input=2"}, InputError, "no dimension 2"),
        ({"memory": "1GiB", "vary": "input=a"}, InputError, "does not say what varies"),
        ({"memory": "1GiB", "vary": "tokens"}, InputError, "inputs were given"),
        ({"memory": "1GiB", "bakward": True}, UnknownName, "did you mean 'backward'"),
        ({"device": "h2000"}, UnknownName, "h200"),
        ({"device": "v100"}, InputError, "not in the table"),
    ],
)
def test_what_is_not_understood(linear: nn.Linear, options: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        opcost.fit(linear, shapes=(3, INS), **options)


def test_a_device_is_a_limit_of_its_own(linear: nn.Linear) -> None:
    found = opcost.fit(linear, shapes=(3, INS), device="NVIDIA T4", advise=False)
    assert found.limit_bytes == 15360 * MIB - UNUSABLE_BYTES
    assert found.device == "t4"
    assert found.reserved_bytes is not None
    assert found.next_reserved_bytes is not None
    assert found.peak_bytes <= found.reserved_bytes <= found.limit_bytes < found.next_reserved_bytes
    assert "reserved for it" in str(found)
    assert opcost.fit(linear, shapes=(3, INS), device="t4", memory="1GiB", advise=False).limit_bytes == 1 << 30


@pytest.mark.parametrize("alone", [True, False])
def test_what_does_not_fit_a_device_is_reported_with_its_reserved_memory(
    monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """Two tensors of 9 MiB share a segment of 20: as tensors they are below the limit, and the segment is above it."""
    limit = 2 * MIB + 34 * MIB + 2 * 9 * MIB  # the weight's segment, what a library keeps, input and output
    small = replace(DEVICES["t4"], memory=UNUSABLE_BYTES + limit)
    monkeypatch.setattr("opcost.sizing.find_device", lambda _: small)
    with pytest.raises(BudgetExceeded) as caught:
        opcost.fit(
            nn.Linear(1, 1, bias=False), shapes=(1, 9 * MIB // 4, 1), device="t4", memory=None if alone else limit,
            vary="input=0", advise=False,
        )  # fmt: skip
    where = "on t4 (54.00 MiB usable)" if alone else "into 54.00 MiB with the allocator of t4"
    assert f"Linear does not fit {where}: input=0 1 needs 56.00 MiB reserved, of which allocated " in str(caught.value)


MEASURED = {("vit_b_16", False): 2332, ("resnet50", True): 289}
"""The largest batches that ran on an H200 limited to 24 GiB (benchmarks/measure_gpu.py fit)."""


@pytest.mark.zoo
@pytest.mark.parametrize(("net", "training"), chosen(MEASURED, ("resnet50", True)))
def test_fit_for_a_device_is_what_ran_on_it(net: str, training: bool) -> None:
    options: Any = {"backward": True, "optimizer": "adamw"} if training else {}
    found = opcost.fit(f"torchvision:{net}", memory="24GiB", device="h200", advise=False, **options)
    assert abs(found.largest / MEASURED[net, training] - 1) < 0.02


def test_devices_have_the_memory_that_their_names_say() -> None:
    for name, gigabytes in (("h100", 80), ("a100-40gb", 40), ("rtx4090", 24), ("h200", 141), ("mi300x", 192)):
        memory = DEVICES[name].memory
        assert memory is not None
        assert 0.98 < memory / (gigabytes << 30) < 1.01


# -- files, and sources by name --------------------------------------------------------------------------------------------


def test_an_onnx_file_by_its_own_batch_and_by_shapes(tmp_path: Path) -> None:
    onnx_making = pytest.importorskip("onnx_making")
    helper, onnx = onnx_making.helper, onnx_making.onnx
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "net",
        [onnx_making.tensor("x", "n", INS)],
        [onnx_making.tensor("y", "n", OUTS)],
        [onnx_making.weight("w", INS, OUTS)],
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    largest = (MIB - 4 * INS * OUTS) // (4 * (INS + OUTS))
    for options in (
        {},
        {"shapes": {"x": (2, INS)}},
        {"shapes": (2, INS), "vary": "x=0"},
        {"inputs": torch.ones(2, INS)},
    ):
        found = opcost.fit(str(path), memory=MIB, **options)
        assert (found.largest, found.advice) == (largest, ())
        assert any("read from a file" in note for note in found.notes)
    with pytest.raises(InputError, match="read and not run"):
        opcost.fit(str(path), memory=MIB, backward=True)


def test_a_saved_report_has_no_other_sizes(linear: nn.Linear, tmp_path: Path) -> None:
    opcost.count(linear, shapes=(1, INS)).save(tmp_path / "report.json")
    with pytest.raises(InputError, match="saved report"):
        opcost.fit(str(tmp_path / "report.json"), memory=MIB)


SOURCE = f"""
from torch import nn

def net(width={OUTS}):
    return nn.Linear({INS}, width)
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(SOURCE)
    return f"{tmp_path / 'net.py'}:net"


def test_the_command_says_the_same_in_every_form(
    opcost_command: Callable[..., Any], source: str, tmp_path: Path
) -> None:
    largest = (MIB - WEIGHTS) // (4 * (INS + OUTS))
    words = ("fit", source, "-i", f"1x{INS}", "--memory", "1MiB")
    done = opcost_command(*words)
    assert done.code == 0
    assert f"batch {largest:,} is the largest within 1.00 MiB" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    data = json.loads(opcost_command(*words, "--format", "json").out)
    assert (data["schema"], data["largest"]) == ("opcost.fit/1", largest)
    assert data == json.loads(opcost.fit(source, shapes=[(1, INS)], memory="1MiB").render("json"))
    lines = opcost_command(*words, "--format", "csv").out.splitlines()
    assert lines[0] == "what,size,peak_bytes,fits"
    assert f"batch,{largest},{inference(largest)},yes" in lines
    assert f"batch,{largest + 1},{inference(largest + 1)},no" in lines
    assert "| largest |" in opcost_command(*words, "--format", "md").out
    assert opcost_command(*words, "-q", "-o", tmp_path / "fit.html").out == ""
    assert (tmp_path / "fit.html").read_text().startswith("<!DOCTYPE")


def test_settings_and_training_are_heard(opcost_command: Callable[..., Any], source: str) -> None:
    done = opcost_command(
        "fit", source, "-i", f"1x{INS}", "--memory", "1MiB", "--optimizer", "sgd", "--no-advise", "--format", "json"
    )
    assert json.loads(done.out)["largest"] == (MIB - 2 * WEIGHTS) // (4 * (INS + 2 * OUTS))
    done = opcost_command(
        "fit", source, "-i", f"1x{INS}", "--memory", "1MiB", "--set", "width=1", "--no-advise", "--format", "json"
    )
    assert json.loads(done.out)["largest"] == (MIB - 4 * (INS + 1)) // (4 * (INS + 1))


def test_a_model_of_a_collection_is_called_by_its_name_there() -> None:
    pytest.importorskip("timm")
    source, shapes = "timm:test_vit", [(1, 3, 160, 160)]
    assert opcost.count(source, shapes=shapes).meta["source"] == source
    assert opcost.fit(source, shapes=shapes, memory="64MiB").source == source
    assert opcost.sweep(source, shapes=shapes, vary={"batch": "1,2"}).source == source


def test_exit_codes(opcost_command: Callable[..., Any], source: str) -> None:
    done = opcost_command("fit", source, "-i", f"1x{INS}", "--memory", "1KiB")
    assert done.code == 1
    assert "does not fit into 1.00 KiB" in done.err
    for words in (("-i", f"1x{INS}"), ("-i", f"1x{INS}", "--memory", "lots")):
        assert opcost_command("fit", source, *words).code == 2


def test_it_says_what_it_is_in_one_line(linear: nn.Linear) -> None:
    found = opcost.fit(linear, shapes=(3, INS), memory="1MiB", advise=False)
    assert repr(found) == f"<Fit Linear: batch {found.largest:,}, 1023.67 KiB of 1.00 MiB>"
