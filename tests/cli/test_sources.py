"""What a SOURCE can be, and what is said of one that cannot."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from opcost.errors import MissingFramework, OpcostError, SourceError, UnknownName, UnknownSource
from opcost.frontends.identify import identify
from opcost.frontends.registry import FrontEnd, frontends, owner
from opcost.frontends.source import PythonModel, SavedReport, resolve

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8, *, bias=True):
        super().__init__()
        self.fc = nn.Linear(width, width, bias=bias)

    def forward(self, x):
        return self.fc(x)

class Outer:
    @staticmethod
    def make():
        return Net(4)

def factory(width: int):
    return Net(width)

def nothing():
    return {"model": Net()}

def broken():
    raise ValueError("no such width")

ready = Net(3)
number = 3
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return path


def build(source: str, **settings: object) -> object:
    found = resolve(source, settings)
    assert isinstance(found, PythonModel)
    return found.build()


def width(model: object) -> int:
    return model.fc.in_features  # type: ignore[attr-defined]


# -- Python code ------------------------------------------------------------------------------------------------------


def test_a_class_in_a_file_is_called_with_the_settings(net: Path) -> None:
    assert width(build(f"{net}:Net", width=32)) == 32


def test_a_function_a_method_and_a_ready_model_are_sources_too(net: Path) -> None:
    assert width(build(f"{net}:factory", width=5)) == 5
    assert width(build(f"{net}:Outer.make")) == 4
    assert width(build(f"{net}:ready")) == 3


def test_a_factory_allocates_no_weights(net: Path) -> None:
    model = build(f"{net}:Net", width=10**6)  # four terabytes, were it real
    assert model.fc.weight.device.type == "meta"  # type: ignore[attr-defined]


def test_a_real_model_is_built_where_it_is_requested(net: Path) -> None:
    found = resolve(f"{net}:Net", {"width": 256})
    assert isinstance(found, PythonModel)
    assert found.build(real=True).fc.weight.device.type == "cpu"  # type: ignore[attr-defined]


def test_a_module_is_found_from_the_working_directory(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = net.parent / "somewhere_own"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "net.py").write_text(NET)
    monkeypatch.chdir(net.parent)
    assert width(build("somewhere_own.net:Net")) == 8


def test_a_file_may_import_its_neighbours_and_the_import_path_is_restored(net: Path) -> None:
    user = net.parent / "uses_neighbour.py"
    (net.parent / "neighbour_net.py").write_text(NET)
    user.write_text("from neighbour_net import Net")
    before = list(sys.path)
    assert width(build(f"{user}:Net")) == 8
    assert sys.path == before


def test_a_file_inside_a_package_keeps_its_relative_imports(tmp_path: Path) -> None:
    package = tmp_path / "own_package" / "models"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "layers.py").write_text(NET)
    (package / "big.py").write_text("from .layers import Net")
    assert width(build(f"{package / 'big.py'}:Net")) == 8


def test_a_file_named_like_a_standard_module_does_not_replace_it(tmp_path: Path) -> None:
    path = tmp_path / "types.py"
    path.write_text(NET)
    before = sys.modules["types"]
    assert width(build(f"{path}:Net")) == 8
    assert sys.modules["types"] is before


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("nett", {}, "did you mean 'Net'"),
        ("Net", {"widht": 3}, "did you mean 'width'"),
        ("factory", {}, "--set width="),
        ("nothing", {}, "returned a dict"),
        ("number", {}, "is an int"),
        ("broken", {}, "ValueError: no such width"),
        ("ready", {"width": 3}, "nothing can be set"),
    ],
)
def test_what_cannot_be_called_or_is_no_model_is_named(
    net: Path, name: str, settings: dict[str, object], words: str
) -> None:
    with pytest.raises(OpcostError) as caught:
        build(f"{net}:{name}", **settings)
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("def f(:", SourceError, "SyntaxError"),
        ("x = 1\ny = 1 / 0", SourceError, "line 2: ZeroDivisionError"),
        ("import sys; sys.exit(3)", SourceError, "__main__"),
        ("import no_such_library_at_all", MissingFramework, "pip install no_such_library_at_all"),
    ],
)
def test_code_that_cannot_be_imported_is_reported_with_the_place(
    tmp_path: Path, code: str, error: type[OpcostError], words: str
) -> None:
    path = tmp_path / "bad.py"
    path.write_text(code)
    with pytest.raises(error) as caught:
        resolve(f"{path}:Net")
    assert words in str(caught.value)
    assert "bad" not in sys.modules


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("tim:resnet18", "timm:resnet18"),
        ("timm:", "timm:NAME"),
        ("no_such_module_at_all:Net", "no Python module"),
        ("no/such/file.py:Net", "no file"),
        ("no/such/file.onnx", "no file"),
        ("resnet18", "path/to/file.py:Net"),
        ("", "path/to/file.py:Net"),
        (":", "path/to/file.py:Net"),
    ],
)
def test_a_source_that_is_nothing_is_answered_with_what_a_source_is(source: str, words: str) -> None:
    with pytest.raises(SourceError) as caught:
        resolve(source)
    assert words in str(caught.value)


def test_a_misspelt_file_is_answered_with_its_neighbour(net: Path) -> None:
    with pytest.raises(UnknownSource, match="did you mean"):
        resolve(f"{net.parent / 'nett.py'}:Net")


def test_a_python_file_without_a_name_lists_its_names(net: Path) -> None:
    with pytest.raises(UnknownSource) as caught:
        resolve(str(net))
    assert f"{net}:Net" in caught.value.hint
    assert f"{net}:factory" in caught.value.hint


# -- files ------------------------------------------------------------------------------------------------------------


class Bomb:
    """A pickle of this would leave a mark if anybody opened it."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (sys.exit, (99,))


def archive(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, content in members.items():
            file.writestr(name.replace("__", "/").replace("_dot_", "."), content)
    return out.getvalue()


safetensors_header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()

FILES = {
    "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "an HTML page": b"<!DOCTYPE html>\n<html></html>",
    "an empty file": b"",
    "a Python pickle": pickle.dumps(Bomb()),
    "a PyTorch checkpoint": archive(archive__data_dot_pkl=pickle.dumps(Bomb())),
    "a safetensors checkpoint": len(safetensors_header).to_bytes(8, "little") + safetensors_header + b"\0" * 4,
    "a GGUF checkpoint": b"GGUF\x03\0\0\0",
    "an HDF5 file": b"\x89HDF\r\n\x1a\n",
    "a gzip archive": b"\x1f\x8b\x08",
    "a MegEngine dump": b"mgbtest0" + b"\0" * 16,
    "a Hugging Face configuration": b'{"model_type": "llama"}',
    "a Jupyter notebook": b'{"cells": [], "nbformat": 4}',
    "a profiler trace": b'{"traceEvents": []}',
    "a JSON file, but no report": b'{"a": 1}',
    "text that looks like JSON": b'{"a": 1',
    "a text file": b"hello",
    "a binary file": b"\x01\0\x02",
}


@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize("suffix", [".bin", ".pt", ".json", ".onnx"])
def test_the_error_says_what_the_file_is(tmp_path: Path, what: str, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(FILES[what])
    if suffix == ".onnx" and what in ("a text file", "a binary file"):
        what = "an ONNX model"  # a protocol buffer begins with nothing in particular
    with pytest.raises(UnknownSource) as caught:
        resolve(str(path))
    assert f"is {what}" in str(caught.value)


def test_a_folder_is_a_model_by_its_configuration(tmp_path: Path) -> None:
    with pytest.raises(UnknownSource, match="is a directory"):
        resolve(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SourceError, match="no model_type"):
        resolve(str(tmp_path))
    assert identify(tmp_path / "..").what == "a directory"


def test_nothing_can_be_set_on_a_file(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    path.write_text('{"schema": "opcost.report/1"}')
    assert resolve(str(path)) == SavedReport(path)
    with pytest.raises(SourceError, match="--set"):
        resolve(str(path), {"depth": 3})


# -- front ends -------------------------------------------------------------------------------------------------------


def test_the_owner_of_an_object_is_found_by_its_framework() -> None:
    from torch import nn

    assert owner(nn.Identity()).name == "torch"


@pytest.mark.parametrize("stranger", [3, "text", {"a": 1}, object()])
def test_an_object_without_a_front_end_is_refused_by_its_type(stranger: object) -> None:
    with pytest.raises(UnknownSource, match=type(stranger).__name__):
        owner(stranger)


def test_every_front_end_says_what_it_is() -> None:
    for frontend in frontends():
        checked: FrontEnd = frontend
        assert checked.name
        assert checked.framework
        assert all(suffix.startswith(".") for suffix in checked.suffixes)


def test_a_front_end_of_an_absent_framework_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent:
        name, framework, suffixes = "absent", "no_such_framework", ()

        def owns(self, obj: object) -> bool:
            raise AssertionError("called although its framework is not there")

    monkeypatch.setattr("opcost.frontends.registry.frontends", lambda: (Absent(),))
    with pytest.raises(UnknownSource):
        owner(3)


def test_two_claims_are_an_error_and_not_a_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    class Greedy:
        framework, suffixes = "sys", ()

        def __init__(self, name: str) -> None:
            self.name = name

        def owns(self, obj: object) -> bool:
            return True

    monkeypatch.setattr("opcost.frontends.registry.frontends", lambda: (Greedy("one"), Greedy("two")))
    with pytest.raises(SourceError, match="one and two"):
        owner(3)


def test_a_misspelt_name_carries_the_nearest(net: Path) -> None:
    with pytest.raises(UnknownName) as caught:
        resolve(f"{net}:factry")
    assert caught.value.near == ("factory",)


@pytest.mark.parametrize(
    ("archive_name", "member", "options"),
    [
        ("tflite/operators.zip", "dense.tflite", []),
        ("coreml/models.zip", "torch_mlp_mlprogram.mlmodel", []),
        ("torchscript", "chosen.pt", ["--input", "2x4"]),
    ],
)
def test_a_model_that_is_piped_in_is_known_by_its_content(archive_name: str, member: str, options: list[str]) -> None:
    place = Path(__file__).resolve().parents[1] / "data" / archive_name
    if place.is_dir():
        content = (place / member).read_bytes()
    else:
        with zipfile.ZipFile(place) as archive:
            content = archive.read(member)
    command = [sys.executable, "-m", "opcost", "count", "-", *options]
    done = subprocess.run(command, input=content, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"MACs" in done.stdout
