"""`opcost predict`."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import opcost
from opcost.cli.main import run
from opcost.core.devices import DEVICES, UNUSABLE_BYTES
from opcost.core.graph import TensorSpec
from opcost.devices.calibration import Calibration, Measured, dumps
from opcost.devices.hosts import shipped_host
from opcost.errors import SourceError
from opcost.profiles import Prediction

MEASURED_MS = {"bfloat16": 2.408, "float32": 2.997}
"""timm's resnet50d on 16 images of 224x224, replayed as a CUDA graph on an H200 (benchmarks/measure_gpu.py models)."""


@pytest.mark.parametrize("options", [{}, {"prefill": 4, "generate": 3}])
def test_a_prediction_that_is_read_again_says_all_that_it_said(tmp_path: Path, options: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=8
    )
    model = transformers.LlamaForCausalLM(config).eval()
    found = opcost.predict(model, device="h200", **(options or {"shapes": [(1, 4)], "dtypes": ["int64"]}))
    assert bool(found.text and found.text.copies) == bool(options)
    path = tmp_path / "p.json"
    found.save(path)
    again = opcost.read_profile(path)
    assert isinstance(again, opcost.Prediction)
    assert again.analyze().render("json") == found.analyze().render("json")
    assert again.answer == found.answer
    assert again.page() == found.page()
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    damaged = json.loads(path.read_text())
    damaged["extra"]["prediction"]["band_ns"] = [1]
    path.write_text(json.dumps(damaged))
    with pytest.raises(SourceError, match="prediction is damaged"):
        opcost.read_profile(path)


@pytest.mark.parametrize("dtype", MEASURED_MS)
def test_a_network_that_was_measured_lies_in_its_band(dtype: str) -> None:
    found = opcost.predict("timm:resnet50d", shapes=(16, 3, 224, 224), dtype=dtype, device="h200")
    assert found.band_ns[0] / 1e6 <= MEASURED_MS[dtype] <= found.band_ns[1] / 1e6
    assert found.ideal_ns < found.kernel_ns < found.latency_ns


def test_the_command_prints_the_latency_its_interval_and_its_calibration(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "p.json"
    assert run(["predict", "timm:resnet18", "--dtype", "bf16", "--batch", "8", "-o", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    printed = {line.split()[0]: line for line in lines if line and not line.startswith(" ")}
    assert "aten::convolution" in printed
    assert "80 % interval" in printed["latency"]
    assert "NVIDIA H200" in printed["timed"]
    assert max(map(len, lines)) <= 80
    saved = opcost.read_profile(path)
    assert saved.meta["format"] == "prediction"
    assert json.loads(path.read_text())["schema"] == "opcost.profile/1"


def test_a_prediction_has_the_memory_of_a_count_on_its_device() -> None:
    model, x = torch.nn.Linear(64, 64), torch.zeros(8, 64)
    found = opcost.predict(model, x, device="h200", optimizer="adamw")
    counted = opcost.count(model, x, device="h200", optimizer="adamw").memory
    assert found.memory == counted
    assert found.memory is not None
    assert found.memory.device == "h200"
    assert found.memory.reserved_bytes == (2 + 34) << 20  # all of it is small; libraries take 34 MiB
    assert found.analyze().sheet().totals[-1].value == found.memory.reserved_bytes
    assert opcost.predict(opcost.count(model, x), device="h200").memory == opcost.count(model, x).memory


@pytest.mark.parametrize(("outs", "fits"), [(50_000, True), (100_000, False)])
def test_what_does_not_fit_the_device_is_marked_everywhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, outs: int, fits: bool
) -> None:
    """Weights of 50,000 by 50,000 numbers are 9.3 GiB, which a T4 of 15 GiB has, and twice as many are not."""
    (tmp_path / "wide.py").write_text(
        f"from torch import nn\n\ndef wide(): return nn.Linear(50_000, {outs}, bias=False)\n"
    )
    marked = f"does not fit on t4: peak {4 * 50_000 * outs / 2**30:.2f} GiB"
    source = f"{tmp_path / 'wide.py'}:wide"
    assert run(["predict", source, "--input", "1x50000", "--device", "t4"]) == 0
    said = capsys.readouterr().out
    assert ("DOES NOT FIT on t4" in said) == (not fits)
    assert (marked in " ".join(said.split())) == (not fits)
    found = opcost.predict(source, shapes=(1, 50_000), device="t4")
    assert found.fits == fits
    for suffix in ("json", "md", "html"):
        found.save(tmp_path / f"found.{suffix}")
        assert (marked in (tmp_path / f"found.{suffix}").read_text()) == (not fits)


@pytest.mark.zoo
def test_what_does_not_fit_writes_no_tokens_per_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options: dict[str, Any] = {"prefill": 16, "device": "h200"}
    source = llama(tmp_path)
    found = opcost.predict(source, **options)
    assert found.fits
    assert "tokens/s" in str(found)
    small = replace(DEVICES["h200"], memory=UNUSABLE_BYTES + (1 << 20))
    monkeypatch.setattr("opcost.predicting.find_device", lambda _: small)
    over = opcost.predict(source, **options)
    assert over.fits is False
    assert over.latency_ns == found.latency_ns
    assert "tokens/s" not in str(over)
    assert "first token" in str(over)
    assert "DOES NOT FIT" in over._repr_html_()


def test_an_unknown_device_is_an_error_that_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "timm:resnet18", "--device", "h20000"]) == 2
    assert "h200" in capsys.readouterr().err


def llama(folder: Path) -> str:
    sizes = {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 1000,
    }  # fmt: skip
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], **sizes}))
    return f"hf:{path}"


@pytest.mark.zoo
def test_the_command_prints_the_first_token_the_throughput_and_the_cache_of_a_text(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = llama(tmp_path)
    for words in (["--prefill", "64"], ["--decode", "1", "--cache", "64"], ["--prefill", "64", "--generate", "10"]):
        assert run(["predict", source, "--dtype", "bf16", "--batch", "2", *words]) == 0
        lines = capsys.readouterr().out.splitlines()
        printed = {line.split("  ")[0]: line for line in lines}
        assert "at batch size 2" in printed["tokens/s"]
        assert ("first token" in printed) == ("--prefill" in words)
        assert ("each token" in printed) == ("--prefill" not in words or "--generate" in words)
        tokens = {"--decode": 65, "--prefill": 64}[words[0]] + (9 if "--generate" in words else 0)
        assert f"{tokens} tokens a sequence" in printed["cache"]
        assert max(map(len, lines)) <= 80


@pytest.mark.zoo
def test_the_command_prints_what_a_serving_engine_takes_and_holds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["--dtype", "bf16", "--batch", "2", "--prefill", "64", "--generate", "10", "--engine", "vllm"]
    saved = tmp_path / "saved.json"
    assert run(["predict", llama(tmp_path), *words, "-o", str(saved)]) == 0
    lines = capsys.readouterr().out.splitlines()
    printed = {line.split("  ")[0]: line for line in lines}
    assert {"tokens/s", "first token", "each token", "largest batch"} <= printed.keys()
    assert "paged attention" in printed
    assert max(map(len, lines)) <= 80
    again = opcost.read_profile(saved)
    assert isinstance(again, Prediction)
    assert again.text
    assert again.text.largest_batch
    assert again.meta["cache_tokens"] == str(again.text.cache_tokens) == "73"


@pytest.mark.zoo
def test_a_count_of_a_step_knows_the_cache(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    assert run(["count", llama(tmp_path), "--decode", "1", "--cache", "64", "-o", str(path), "-q"]) == 0
    assert opcost.load_report(path).meta["cache_bytes"] == str(65 * 2 * 2 * 2 * 16 * 4)
    assert run(["count", llama(tmp_path), "--decode", "1", "--cache", "64", "--depth", "0"]) == 0
    lines = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "65 tokens of each text" in lines["cache"]
    assert f"{65 * 2 * 2 * 2 * 16 * 4:,}" in lines["cache"]
    assert run(["count", llama(tmp_path), "--decode", "1"]) == 2
    assert "against a cache" in capsys.readouterr().err


def test_a_prediction_is_compared_with_a_measured_profile_by_module_and_kind(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    predicted, measured = tmp_path / "predicted.json", tmp_path / "measured.json"
    assert run(["predict", "timm:resnet18", "--dtype", "bf16", "-o", str(predicted), "-q"]) == 0
    found = opcost.read_profile(predicted)
    by_author = {"aten::convolution": "aten::conv2d", "aten::native_batch_norm": "aten::batch_norm"}
    slower = [
        row._replace(type=by_author.get(row.type, row.type), device_ns=3 * (row.device_ns or 0)) for row in found.rows
    ]
    replace(found, rows=tuple(slower), meta={**found.meta, "format": "opcost"}).save(measured)
    assert run(["compare", "--changes", str(predicted), str(measured), "--top", "5"]) == 0
    out = capsys.readouterr().out
    assert "by module and kind" in out
    assert "added" not in out
    assert out.count("+200.00%") == 6  # the total and five lines, each three times as long


def test_a_saved_prediction_is_queried_by_its_bounds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    predicted = tmp_path / "predicted.json"
    assert run(["predict", "timm:resnet18", "--dtype", "bf16", "-o", str(predicted), "-q"]) == 0
    assert run(["analyze", str(predicted), "--where", 'bound == "launch"', "--aggregate-by", "bound"]) == 0
    assert "launch" in capsys.readouterr().out


def test_on_a_processor_the_time_is_the_hosts(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    row = Measured("elementwise", "aten::relu", {"fn": "relu"}, (TensorSpec((1024,)),), (TensorSpec((1024,)),), 1000)
    path.write_text(dumps(Calibration(device="cpu", meta={}, position=0, rows=(row,) * 100)))
    found = opcost.predict(torch.nn.ReLU(), shapes=(1024,), device="cpu", calibration=path)
    assert [(row.host_ns, row.device_ns) for row in found.rows] == [(1000, None)]
    assert found.shares("type")[0].time_ns == 1000
    with pytest.raises(opcost.OpcostError, match="replays no graphs"):
        opcost.predict(torch.nn.ReLU(), shapes=(1024,), device="cpu", calibration=path, execution="graph")


def host_file(path: Path, *, slower: int = 1, **meta: str) -> Path:
    """The calibration of a host of which every part takes `slower` times what it takes on the shipped one."""
    parts = {name: slower * taken for name, taken in shipped_host().host.items()}
    made = {"cpu": "A processor", "python": "3.12.1", "torch": "2.11.0", **meta}
    path.write_text(dumps(Calibration(device="cpu", meta=made, position=0, rows=(), host=parts)))
    return path


def test_an_eager_run_names_its_host_and_another_is_taken_from_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = opcost.count(torch.nn.Linear(8, 8), shapes=(2, 8))
    usual = opcost.predict(report, execution="eager")
    slow = opcost.predict(report, execution="eager", host=host_file(tmp_path / "slow.json", slower=3))
    [start], [last] = usual.rows, slow.rows
    assert last.host_ns == pytest.approx(3 * start.host_ns, abs=2)
    assert slow.bounds["host"] > usual.bounds["host"]
    # A host that was timed is surer than the shipped one.
    same = opcost.predict(report, execution="eager", host=host_file(tmp_path / "same.json"))
    assert same.latency_ns == usual.latency_ns
    assert same.band_ns[1] - same.band_ns[0] < usual.band_ns[1] - usual.band_ns[0]
    assert run(["predict", "timm:resnet18", "--execution", "eager"]) == 0
    assert re.search(r"host +shipped: Intel.*Python 3\.\d+", capsys.readouterr().out)
    found = ["--host", str(tmp_path / "slow.json")]
    assert run(["predict", "timm:resnet18", "--execution", "eager", *found]) == 0
    assert re.search(r"host +A processor, Python 3\.12\.1, torch 2\.11\.0", capsys.readouterr().out)


def test_a_calibration_of_the_gpu_brings_its_host(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    relu = Measured("elementwise", "aten::relu", {"fn": "relu"}, (TensorSpec((9,)),), (TensorSpec((9,)),), 1000, 20_000)
    parts = shipped_host().host
    made = Calibration(device="h200", meta={}, position=0, rows=(relu,) * 100, host=parts)
    path.write_text(dumps(made))
    report = opcost.count(torch.nn.ReLU(), shapes=(9,))
    found = opcost.predict(report, execution="eager", calibration=path)
    assert found.meta["host"] == "of the calibration"
    assert found.rows[0].host_ns == pytest.approx(1.47 * 20_000, abs=1)
    slow = host_file(tmp_path / "slow.json", slower=2)
    found = opcost.predict(report, execution="eager", calibration=path, host=slow)
    assert found.rows[0].host_ns == pytest.approx(1.47 * 40_000, abs=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"execution": "graph"}, "a host takes part in eager execution only"),
        ({"execution": "eager", "empty": True}, "has no times of a host"),
    ],
)
def test_a_host_that_is_of_no_use_is_an_error(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = host_file(tmp_path / "host.json", slower=1)
    if options.pop("empty", False):
        path.write_text(dumps(Calibration(device="cpu", meta={}, position=0, rows=())))
    with pytest.raises(opcost.OpcostError, match=message):
        opcost.predict(torch.nn.ReLU(), shapes=(9,), host=path, **options)


def test_a_prediction_is_saved_as_a_page(tmp_path: Path) -> None:
    prediction = opcost.predict(opcost.count(torch.nn.Linear(8, 8), shapes=(2, 8)))
    prediction.save(tmp_path / "page.html")
    assert "aten::addmm" in (tmp_path / "page.html").read_text(encoding="utf-8")
