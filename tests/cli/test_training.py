"""What the command line says about training steps: the words of `opcost.count`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opcost

DECODER = "examples/transformer.py:Decoder"
TOKENS = ("--input", "tokens:1x16:int64", "--set", "layers=2")


def saved(command: Callable, path: Path, *words: str) -> Any:
    assert command(*words, "-o", str(path), "-q").code == 0
    return path


def test_flags_mean_what_the_arguments_of_count_mean(opcost_command: Callable, root: Path, tmp_path: Path) -> None:
    source = str(root / DECODER)
    words = ("--backward", "--precision", "bf16-mixed", "--checkpoint", "blocks.*", "--device", "h200")
    words = (*words, "--accumulate", "4", "--zero-grad", "zero")
    by_command = opcost.load_report(saved(opcost_command, tmp_path / "r.json", "count", source, *TOKENS, *words))
    counted = opcost.count(
        source,
        shapes="tokens:1x16:int64",
        set={"layers": 2},
        backward=True,
        precision="bf16-mixed",
        checkpoint="blocks.*",
        accumulate=4,
        zero_grad="zero",
        device="h200",
    )
    assert by_command.totals == counted.totals
    assert by_command.memory == counted.memory
    assert by_command.module("blocks.0").calls == 4 * 2


@pytest.mark.parametrize("command", ["count", "predict"])
def test_an_unknown_precision_is_refused(opcost_command: Callable, root: Path, command: str) -> None:
    done = opcost_command(command, str(root / DECODER), *TOKENS, "--precision", "int8")
    assert done.code == 2
    assert "unknown precision 'int8'; known: bf16-mixed, bfloat16, float16, float32, fp16-mixed" in done.err


def test_a_prediction_is_mixed_as_its_device_does_it(opcost_command: Callable, root: Path, tmp_path: Path) -> None:
    path = saved(
        opcost_command, tmp_path / "p.json", "predict", str(root / DECODER), *TOKENS, "--precision", "bf16-mixed"
    )
    notes = [note["text"] for note in json.loads(path.read_text())["notes"]]
    assert any("by the rules that PyTorch has for cuda" in text for text in notes)
    found = opcost.predict(str(root / DECODER), shapes="tokens:1x16:int64", set={"layers": 2}, precision="bf16-mixed")
    assert [row.ins for row in found.rows] == [row.ins for row in opcost.read_profile(path).rows]
    kinds = {row.type: row.ins[0].dtype for row in found.rows if row.ins}
    assert (kinds["aten::native_layer_norm"], kinds["aten::addmm"]) == ("float32", "bfloat16")


def test_budgets_take_the_same_options(opcost_command: Callable, root: Path, tmp_path: Path) -> None:
    params = opcost.count(str(root / DECODER), shapes="tokens:1x16:int64", set={"layers": 2}).totals.params
    file, size = tmp_path / "opcost.toml", 2 * params + 1
    file.write_text(
        f'[models.decoder]\nsource = "{root / DECODER}"\ninput = "tokens:1x16:int64"\nset = {{ layers = 2 }}\n'
        'backward = true\nprecision = "bf16"\ncheckpoint = ["blocks.*"]\n'
        f'accumulate = 2\nzero-grad = "zero"\nlimits = {{ param_bytes = "<{size}B" }}\n'
    )
    assert opcost_command("check", "--config", str(file)).code == 0
    file.write_text(file.read_text().replace(f"<{size}B", f"<{size - 1}B"))
    assert opcost_command("check", "--config", str(file)).code == 1


def test_parts_are_frozen_and_adapters_are_trained_as_in_python(
    opcost_command: Callable, root: Path, tmp_path: Path
) -> None:
    source, shapes = str(root / DECODER), "tokens:1x16:int64"
    for words, options in (
        (("--freeze", "blocks.0", "--freeze", "tokens"), {"freeze": ("blocks.0", "tokens")}),
        (("--lora", "r=4,targets=qkv,alpha=8"), {"lora": {"r": 4, "targets": ["qkv"], "alpha": 8}}),
    ):
        path = saved(opcost_command, tmp_path / "r.json", "count", source, *TOKENS, "--optimizer", "adamw", *words)
        by_command = opcost.load_report(path)
        counted = opcost.count(source, shapes=shapes, set={"layers": 2}, optimizer="adamw", **options)
        assert (by_command.totals, by_command.memory) == (counted.totals, counted.memory)
        assert 0 < counted.totals.trainable_params < counted.totals.params
        path = saved(opcost_command, tmp_path / "p.json", "predict", source, *TOKENS, "--optimizer", "adamw", *words)
        predicted = opcost.predict(source, shapes=shapes, set={"layers": 2}, optimizer="adamw", **options)
        assert [row.device_ns for row in opcost.read_profile(path).rows] == [row.device_ns for row in predicted.rows]


def test_more_fits_where_only_adapters_are_trained(opcost_command: Callable, root: Path) -> None:
    words = ("fit", str(root / DECODER), *TOKENS, "--optimizer", "adamw", "--memory", "1GiB", "--no-advise")
    plain = opcost_command(*words)
    tuned = opcost_command(*words, "--lora", "r=4,targets=qkv,up")
    assert tuned.code == 0, tuned.err
    assert "lora=r=4,targets=qkv,up" in tuned.out
    largest = [int(done.out.split("batch ")[1].split()[0].replace(",", "")) for done in (plain, tuned)]
    assert largest[0] < largest[1]
