"""One message that says what, where and what to do; an exit code; no traceback unless it is requested."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from opcost.cli import main as cli
from opcost.errors import MissingFramework

ENTRY = "from opcost.cli.main import main; main()"


@pytest.fixture
def resnet(root: Path) -> str:
    return str(root / "examples/resnet18.py:ResNet18")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cuont"], 'Did you mean "count"'),
        (["count"], "SOURCE"),
        (["count", "x", "--bakward"], "--backward"),
        (["count", "x", "--causal", "hlaf"], "half"),
        (["count", "x", "--depth", "deep"], "--depth"),
        (["count", "RESNET", "-i", "1x3x64x64", "--format", "tabel"], "'table'"),
        (["count", "RESNET", "-i", "1x3x64x64", "--columns", "parms"], "'params'"),
        (["count", "RESNET", "-i", "1x3x64x64", "--sort", "mac"], "'macs'"),
        (["count", "RESNET", "-i", "1x3x64x64", "-o", "x.jsno"], "'.json'"),
        (["count", "RESNET", "-i", "1x3x64x64:flaot16"], "'float16'"),
        (["count", "RESNET", "-i", "imgae:1x3x64x64"], "'image'"),
        (["count", "RESNET", "-i", "1x3x64x64", "--optimizer", "adma"], "Adam"),
        (["count", "RESNET", "-i", "image:1x3x8x8", "-i", "1x3"], "name all of them"),
        (["count", "torch.nn:Identity"], "--input"),
        (["count", "RESNET", "--set", "classes"], "name=value"),
        (["rules", "cnov"], "'conv'"),
        (["count", "no-such-report.json"], "no file"),
        (["check", "RESNET", "-i", "1x3x64x64"], "--max-macs"),
        (["check", "RESNET", "-i", "1x3x64x64", "--max-macs", "much"], "4.2G"),
    ],
)
def test_a_mistake_is_answered_with_what_to_do_and_exit_code_2(
    opcost_command: Callable, resnet: str, words: list[str], said: str
) -> None:
    done = opcost_command(*[resnet if word == "RESNET" else word for word in words])
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_a_wrong_shape_names_the_module_in_which_it_does_not_fit(opcost_command: Callable, resnet: str) -> None:
    done = opcost_command("count", resnet, "-i", "1x4x64x64")
    assert done.code == 2
    assert "'stem.0'" in done.err
    assert "; --debug shows where it was raised" in done.err
    assert done.err.count("\n") <= 3


def test_a_shape_too_small_to_be_pooled_is_an_error_and_not_a_nan(opcost_command: Callable, tmp_path: Path) -> None:
    path = tmp_path / "pools.py"
    path.write_text("from torch import nn\ndef net():\n    return nn.Sequential(nn.Conv2d(3, 4, 5), nn.MaxPool2d(2))\n")
    done = opcost_command("count", f"{path}:net", "-i", "1x3x4x4")
    assert done.code == 2
    assert "module '0'" in done.err


def test_debug_shows_where_the_error_came_from(opcost_command: Callable, resnet: str) -> None:
    from opcost.errors import ForwardError

    with pytest.raises(ForwardError) as caught:
        opcost_command("count", resnet, "-i", "1x4x64x64", "--debug")
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (MissingFramework("torch is not installed", hint="pip install torch"), 3, "pip install torch"),
        (KeyboardInterrupt(), cli.INTERRUPTED, "interrupted"),
        (RuntimeError("a surprise"), cli.INTERNAL_ERROR, "RuntimeError: a surprise"),
    ],
)
def test_each_error_has_its_exit_code(
    opcost_command: Callable, monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, said: str
) -> None:
    def fail(tokens: list[str]) -> int:
        raise raised

    monkeypatch.setattr(cli, "_dispatch", fail)
    done = opcost_command("doctor")
    assert done.code == code
    assert said in done.err
    assert "Traceback" not in done.err


def test_a_note_added_on_the_way_is_printed_too(opcost_command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(tokens: list[str]) -> int:
        error = MissingFramework("torch is not installed")
        error.__notes__ = ["while reading net.py"]
        raise error

    monkeypatch.setattr(cli, "_dispatch", fail)
    assert "while reading net.py" in opcost_command("doctor").err


def test_a_file_that_cannot_be_written_is_reported(opcost_command: Callable, resnet: str, tmp_path: Path) -> None:
    done = opcost_command("count", resnet, "-i", "1x3x64x64", "-o", tmp_path / "no" / "folder" / "out.json")
    assert done.code == 2
    assert "cannot be written" in done.err


def test_a_reader_that_goes_away_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.argv = ['opcost', 'rules']; {ENTRY}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate()
    assert process.returncode == cli.BROKEN_PIPE
    assert err == b""


def test_a_missing_framework_is_reported_with_exit_code_3(tmp_path: Path, resnet: str) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['opcost', 'count', {resnet!r}]; {ENTRY}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "pip install torch" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_error_for_a_model_on_an_absent_gpu_says_that_none_is_needed(
    opcost_command: Callable, tmp_path: Path
) -> None:
    path = tmp_path / "on_gpu.py"
    path.write_text("from torch import nn\ndef net():\n    return nn.Linear(8, 8).to('cuda:99')\n")
    done = opcost_command("count", f"{path}:net", "-i", "1x8")
    assert done.code == 2
    assert "needs no GPU" in done.err


def test_an_unknown_column_is_answered_with_all_there_are(opcost_command: Callable, resnet: str) -> None:
    done = opcost_command("count", resnet, "-i", "1x3x64x64", "--columns", "xyzzy")
    assert done.code == 2
    assert "unknown column 'xyzzy'; known: " in done.err
    assert {"params", "macs", "flops", "bytes_read"} <= set(
        done.err.partition("known: ")[2].replace("\n", "").split(", ")
    )


def test_pytorch_without_numpy_counts_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("from torch import nn\ndef net():\n    return nn.Conv2d(3, 4, 3)\n")
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError('No module named numpy', name='numpy')")
    search = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
    words = ["count", f"{tmp_path}/net.py:net", "-i", "1x3x64x64"]
    done = subprocess.run([sys.executable, "-c", search + ENTRY, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a shell closes the streams")
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("count - <&-", 2, "cannot be read"),
        ("count - <&- >&-", 2, "cannot be read"),
        ("count nothing.json 2>/dev/full", 2, ""),
        ("count nothing.json 2>&-", 2, ""),
    ],
)
def test_streams_that_are_closed_or_full(words: str, code: int, message: str) -> None:
    command = f"exec {sys.executable} -m opcost {words}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
