"""Peers that are not installed here, compared with what they print for one small net (tests/data/compat)."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_net import Net
from torch import nn

from opcost.compat import (
    accelerate,
    calflops,
    deepspeed,
    lightning,
    pytorch_model_summary,
    torch_summary,
    torchsummaryX,
)
from opcost.core.devices import DEVICES

DATA = Path(__file__).parents[1] / "data" / "compat"
SHAPE = (2, 3, 9, 9)
CONV, DOWN, HEAD = 2 * 81 * 8 * 27, 2 * 16 * 8 * 72, 2 * 8 * 5
MACS = CONV + DOWN + HEAD
PARAMS = 8 * 27 + 16 + 8 * 72 + 8 + 8 * 5 + 5


def recorded(name: str) -> str:
    return (DATA / f"{name}.txt").read_text(encoding="utf-8")


def x() -> torch.Tensor:
    return torch.zeros(SHAPE)


# -- calflops and DeepSpeed -------------------------------------------------------------------------------------------


def test_calflops_prints_and_returns_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    found = calflops.calculate_flops(Net(), SHAPE)
    assert capsys.readouterr().out == recorded("calflops")
    assert found == ("111.15 KFLOPS", "53.5 KMACs", "861")


def test_flops_are_two_for_a_multiply_add_and_one_for_each_element_of_the_rest() -> None:
    bias, norm, relu = 2 * 16 * 8, 2 * 2 * 81 * 8, 2 * 81 * 8
    flops, macs, params = calflops.calculate_flops(Net(), SHAPE, print_results=False, output_as_string=False)
    assert (flops, macs, params) == (2 * MACS + bias + norm + relu, MACS, PARAMS)
    both = calflops.calculate_flops(
        Net(), SHAPE, print_results=False, output_as_string=False, include_backPropagation=True
    )
    assert both[:2] == (3 * flops, 3 * macs)


def test_operators_cost_what_their_modules_cost() -> None:
    class Functional(nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return torch.softmax(q @ q.transpose(-1, -2), -1) @ q + q

    _, macs, _ = found = deepspeed.get_model_profile(Functional(), (2, 4, 3), print_profile=False, as_string=False)
    assert macs == 2 * 4 * 4 * 3 * 2
    assert found[0] == 2 * macs + 2 * 4 * 4 + 2 * 4 * 3  # softmax, sum


def test_ignored_modules_and_trainable_parameters() -> None:
    net = Net()
    net.down.weight.requires_grad_(False)
    found = calflops.calculate_flops(
        net, SHAPE, print_results=False, output_as_string=False, ignore_modules=[nn.Conv2d]
    )
    assert found[1:] == (HEAD, PARAMS - 8 * 72)


def timeless(text: str) -> str:
    """Without what a clock measures: latencies, speeds, and how wide they are."""
    text = re.sub(r"[\d.]+(e[-+]\d+)? (m|u|)s\b *", "TIME ", text)
    text = re.sub(r"TIME = [\d.]+% latency, [\d.]+ [A-Z]?FLOPS", "TIME", text)
    text = re.sub(r"(fwd latency: +)[\d.]+ [A-Z]?FLOPS *", r"\1SPEED", text)
    return re.sub(r"(    fwd latency - )\{'\w+'", r"\1{CLASS", text)


def test_deepspeed_prints_its_own_profile(capsys: pytest.CaptureFixture[str]) -> None:
    found = deepspeed.get_model_profile(Net(), SHAPE)
    theirs = recorded("deepspeed").replace(
        "mp_size:                             0  ", "mp_size:                             861"
    )
    assert timeless(capsys.readouterr().out) == timeless(theirs)
    assert found == ("111.15 K", "53.5 KMACs", "861")


def test_deepspeed_writes_to_a_file_and_leaves_the_model_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = Net().train()
    deepspeed.get_model_profile(net, args=[x()], output_file=str(tmp_path / "deep" / "profile.txt"), detailed=False)
    assert "Aggregated Profile" in (tmp_path / "deep" / "profile.txt").read_text()
    assert capsys.readouterr().out == ""
    assert all(module.training and "extra_repr" not in vars(module) for module in net.modules())
    assert int(net.stem[1].num_batches_tracked) == 0


def test_a_model_without_data_has_no_latency(capsys: pytest.CaptureFixture[str]) -> None:
    deepspeed.get_model_profile(Net().to("meta"), SHAPE)
    assert re.search(r"fwd latency: +0 s\b", capsys.readouterr().out)


# -- tables -----------------------------------------------------------------------------------------------------------


def test_a_profiler_of_deepspeed_counts_what_a_loop_runs(capsys: pytest.CaptureFixture[str]) -> None:
    net = Net().train()
    profiler = deepspeed.FlopsProfiler(net)
    for step in range(3):
        if step == 1:
            profiler.start_profile()
        loss = net(x()).sum()
        if step == 1:
            flops = profiler.get_total_flops()
            loss.backward()  # which DeepSpeed leaves out
            assert (profiler.get_total_flops(), profiler.get_total_macs()) == (flops, MACS)
            assert profiler.get_total_macs(as_string=True) == "53.5 KMACs"
            assert profiler.get_total_params(as_string=True) == str(PARAMS)
            assert profiler.get_total_duration() > 0
            profiler.print_model_profile(profile_step=step)
            profiler.end_profile()
    printed = capsys.readouterr().out
    assert "Profile Summary at step 1:" in printed
    assert re.search(r"fwd MACs per GPU: +53.5 KMACs", printed)
    assert profiler.get_total_macs() == 0
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_modules_that_a_profiler_ignores_are_left_out() -> None:
    profiler = deepspeed.FlopsProfiler(net := Net().eval())
    profiler.start_profile(ignore_list=[nn.Linear])
    net(x())
    assert profiler.get_total_macs() == MACS - HEAD
    profiler.stop_profile()
    net(x())  # after the end
    assert profiler.get_total_macs() == MACS - HEAD


def test_calflops_counts_a_transformers_model_by_its_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    tokens, width, inner, words = 6, 8, 16, 10
    transformers.GPT2Config(n_embd=width, n_layer=1, n_head=2, n_inner=inner, vocab_size=words).save_pretrained(
        tmp_path
    )
    config = tmp_path / "config.json"
    named = json.loads(config.read_text())
    config.write_text(json.dumps({**named, "architectures": ["GPT2LMHeadModel"]}))
    _, macs, _, text = calflops.calculate_flops_hf(
        str(tmp_path), input_shape=(1, tokens), output_as_string=False, print_results=False, return_results=True
    )
    block = 3 * width * width + width * width + 2 * width * inner
    assert macs == tokens * (block + words * width) + 2 * tokens * tokens * width
    assert capsys.readouterr().out == ""
    assert "Calculate Flops Results" in text


def test_torchsummaryX_prints_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    frame = torchsummaryX.summary(Net(), x())
    assert capsys.readouterr().out == recorded("torchsummaryX")
    assert len(frame) == 5


def test_torchsummaryX_counts_what_a_model_runs_itself(capsys: pytest.CaptureFixture[str]) -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 4)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return self.linear(given) @ torch.zeros(4, 5)

    torchsummaryX.summary(Functional(), torch.zeros(2, 3))
    last = capsys.readouterr().out.splitlines()[-2]
    assert last.split() == ["Mult-Adds", str(float(3 * 4 + 4 * 5))]


def test_pytorch_model_summary_returns_its_own_text() -> None:
    plain = pytorch_model_summary.summary(Net(), x())
    full = pytorch_model_summary.summary(
        Net(), x(), max_depth=None, show_parent_layers=True, show_input=True, batch_size=2, show_hierarchical=True
    )
    assert f"{plain}\n{full}\n" == recorded("pytorch_model_summary")


def test_pytorch_model_summary_shows_a_depth(capsys: pytest.CaptureFixture[str]) -> None:
    text = pytorch_model_summary.summary(nn.Sequential(Net(), nn.ReLU()), x(), print_summary=True)
    assert capsys.readouterr().out == f"{text}\n"
    assert [line.split()[0] for line in text.splitlines() if "-1" in line or "-2" in line] == ["Net-1", "ReLU-2"]


def test_torch_summary_prints_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ("input_size", "output_size", "num_params", "kernel_size", "mult_adds")
    torch_summary.summary(Net(), SHAPE[1:])
    torch_summary.summary(Net(), SHAPE[1:], col_names=columns, col_width=16, depth=1, branching=False, verbose=2)
    torch_summary.summary(Net())
    assert capsys.readouterr().out == recorded("torch_summary")


def test_torch_summary_counts_once_and_says_what_is_wrong() -> None:
    found = torch_summary.summary(Net(), SHAPE[1:], verbose=0)
    assert found.total_params == PARAMS
    assert found.total_mult_adds == MACS // 2 + 8  # one sample, and the weights of the norm once
    with pytest.raises(ValueError, match="not a valid column name"):
        torch_summary.summary(Net(), SHAPE[1:], col_names=("size",))
    with pytest.raises(RuntimeError, match="Failed to run torchsummary"):
        torch_summary.summary(Net(), (4, 9, 9), verbose=0)


class Lit(nn.Module):
    def __init__(self, example: Any = None) -> None:
        super().__init__()
        self.net = Net()
        self.bare = nn.Parameter(torch.ones(3))
        self.example_input_array = example

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.net(given)


def test_lightning_summaries_are_its_own() -> None:
    found = f"{lightning.ModelSummary(Lit(x()))}\n{lightning.ModelSummary(Lit(x()), max_depth=-1)}\n"
    assert found == recorded("lightning")


def test_lightning_without_an_example_has_no_shapes() -> None:
    found = lightning.summarize(Lit(), max_depth=2)
    assert found.in_sizes == ["?"] * 4
    assert found.total_flops == 0
    assert "In sizes" not in str(found)
    with pytest.raises(ValueError, match="max_depth"):
        lightning.ModelSummary(Lit(), max_depth=-2)


@pytest.mark.parametrize(
    ("example", "sizes"),
    [
        ((1, 2, 3), ["?", "?", "?"]),
        ({"a": torch.zeros(1, 2)}, [1, 2]),
        ({"a": torch.zeros(1, 2), "b": torch.zeros(3)}, [[1, 2], [3]]),
        ((torch.zeros(4), 5), [[4], "?"]),
    ],
    ids=str,
)
def test_lightning_shows_sizes_of_whatever_a_layer_is_given(example: Any, sizes: list[Any]) -> None:
    class Any_(nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> None:
            return None

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Any_()
            self.example_input_array = example

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.layer(*args, **kwargs)

    assert lightning.summarize(Around()).in_sizes == [sizes]


def test_lightning_warns_where_its_numbers_are_not_exact() -> None:
    lazy = Lit()
    lazy.head = nn.LazyLinear(3)
    found = lightning.summarize(lazy)
    with pytest.warns(UserWarning, match="may be inaccurate because the model contains an instance of `Uninit"):
        assert found.total_parameters == PARAMS + 3
    half = Lit()
    half._trainer = SimpleNamespace(precision="bf16-mixed")
    with pytest.warns(UserWarning, match="Precision bf16-mixed is not supported"):
        assert lightning.summarize(half).model_size == (PARAMS + 3) * 4e-6


def test_lightning_throughput_is_over_a_window() -> None:
    meter = lightning.Throughput(available_flops=100, world_size=2, window_size=2)
    meter.update(time=1.0, batches=1, samples=3, lengths=12, flops=10)
    assert meter.compute() == {"time": 1.0, "batches": 1, "samples": 3, "lengths": 12}
    meter.update(time=3.0, batches=2, samples=6, lengths=24, flops=10)
    assert meter.compute() == {
        "time": 3.0, "batches": 2, "samples": 6, "lengths": 24,
        "device/batches_per_sec": 1 / 2, "batches_per_sec": 2 * 1 / 2,
        "device/samples_per_sec": 3 / 2, "samples_per_sec": 2 * 3 / 2,
        "device/items_per_sec": 12 / 2, "items_per_sec": 2 * 12 / 2,
        "device/flops_per_sec": 10 / 2, "flops_per_sec": 2 * 10 / 2, "device/mfu": 10 / 2 / 100,
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"Expected the value to increase, last: 3\.0, current: 3\.0"):
        meter.update(time=3.0, batches=3, samples=9)
    with pytest.raises(ValueError, match="greater or equal than batches"):
        meter.update(time=4.0, batches=9, samples=8)
    meter.reset()
    meter.update(time=1.0, batches=1, samples=1)
    assert meter.compute() == {"time": 1.0, "batches": 1, "samples": 1}


def test_a_devices_peak_is_that_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(("NVIDIA H100 80GB HBM3", "Tesla T4", "CocoNut"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: next(names))
    cuda = torch.device("cuda")
    assert lightning.get_available_flops(cuda, torch.bfloat16) == DEVICES["h100"].flops["bfloat16"]
    with pytest.warns(UserWarning, match="'Tesla T4' does not support torch.bfloat16"):
        assert lightning.get_available_flops(cuda, torch.bfloat16) is None
    with pytest.warns(UserWarning, match="FLOPs not found for 'CocoNut'"):
        assert lightning.get_available_flops(cuda, torch.bfloat16) is None
    assert lightning.get_available_flops(torch.device("cpu"), torch.float32) is None


# -- accelerate -------------------------------------------------------------------------------------------------------


def test_accelerates_table_is_its_own() -> None:
    headers = ["dtype", "Largest Layer", "Total Size", "Training using Adam"]
    rows = [["float32", "2.28 KB", "3.4 KB", "13.6 KB"], ["int8", "584 bytes", "871 bytes", "N/A"]]
    found = accelerate.create_ascii_table(headers, rows, "Memory Usage for loading `net`")
    assert f"{found}\n" == recorded("accelerate")


def test_memory_is_that_of_parameters_and_buffers_and_adam() -> None:
    total = 4 * (PARAMS + 16) + 8  # running mean and variance, and a counter of 8 bytes
    table = accelerate.estimate_memory(Net(), dtypes=["float32", "int8"])
    float32, int8 = (line.split("│")[1:-1] for line in table.splitlines()[5:7])
    assert [cell.strip() for cell in float32] == [
        "float32", f"{round(4 * 584 / 1024, 2)} KB", f"{round(total / 1024, 2)} KB", f"{round(4 * total / 1024, 2)} KB",
    ]  # fmt: skip
    assert [cell.strip() for cell in int8] == ["int8", "584.0 bytes", f"{total / 4} bytes", "N/A"]


def test_the_command_line_takes_what_opcost_takes(tmp_path: Path, module_as_program: Callable[..., Any]) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\ndef Net():\n    return nn.Linear(1024, 1024, bias=False)\n"
    )
    done = module_as_program("opcost.compat.accelerate", f"{tmp_path}/net.py:Net", "--dtypes", "float16")
    assert "│float16│" in done.out
    assert "2.0 MB" in done.out


def test_the_parser_of_estimate_memory_is_one_command_of_several(capsys: pytest.CaptureFixture[str]) -> None:
    commands = argparse.ArgumentParser().add_subparsers()
    parser = accelerate.estimate_command_parser(commands)
    args = parser.parse_args(["resnet18", "--library_name", "timm", "--dtypes", "int8"])
    args.func(args)
    assert "Memory Usage for loading `timm:resnet18`" in capsys.readouterr().out
