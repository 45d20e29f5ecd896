"""A .pt2 file is data: nothing that lies in it is run, however it is made up."""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from torch import nn

import opcost
from opcost.errors import SourceError

MARK = "OPCOST_TEST_RAN"
CODE = f"import os; os.environ[{MARK!r}] = '1'"
"""What a file tries to run."""


class Runs:
    """Unpickling this runs something."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, (CODE,))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "net.pt2"
    exported = torch.export.export(
        nn.Linear(4, 3), (torch.ones(2, 4),), dynamic_shapes={"input": {0: torch.export.Dim("batch", min=2)}}
    )
    torch.export.save(exported, path)
    return path


def rewritten(path: Path, change: Callable[[str, bytes], bytes | None], **added: bytes) -> Path:
    """The same archive with some files changed, and others added."""
    result = path.with_name("changed.pt2")
    with ZipFile(path) as old, ZipFile(result, "w") as new:
        for name in old.namelist():
            content = change(name, old.read(name))
            if content is not None:
                new.writestr(name.replace("net/", "changed/"), content)
        for name, content in added.items():
            new.writestr(f"changed/{name}", content)
    return result


def in_model(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    def apply(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        model = json.loads(content)
        change(model)
        return json.dumps(model).encode()

    return rewritten(path, apply)


def refused(path: Path, match: str) -> None:
    os.environ.pop(MARK, None)
    with pytest.raises(SourceError, match=match):
        opcost.count(path, shapes=(2, 4))
    assert MARK not in os.environ


def test_the_program_itself_is_read(program: Path) -> None:
    assert opcost.count(program, shapes=(5, 4)).totals.macs == 5 * 4 * 3
    assert opcost.count(rewritten(program, lambda name, content: content)).totals.macs == 2 * 4 * 3


def test_pickled_inputs_may_hold_only_tensors(program: Path) -> None:
    buffer = io.BytesIO()
    torch.save(((Runs(),), {}), buffer)
    evil = buffer.getvalue()
    refused(
        rewritten(program, lambda name, content: evil if "sample_inputs" in name else content),
        "changed.pt2 is not an exported program",
    )


def test_pickled_weights_may_hold_only_tensors(program: Path) -> None:
    buffer = io.BytesIO()
    torch.save(Runs(), buffer)

    def change(name: str, content: bytes) -> bytes:
        if name.endswith("weight_0"):
            return buffer.getvalue()
        if name.endswith("model_weights_config.json"):
            config = json.loads(content)
            for entry in config["config"].values():
                entry["use_pickle"] = True
            return json.dumps(config).encode()
        return content

    refused(rewritten(program, change), "not an exported program")


def test_pickled_constants_are_refused(program: Path) -> None:
    def change(name: str, content: bytes) -> bytes:
        if not name.endswith("model_constants_config.json"):
            return content
        entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
        return json.dumps({"config": {"evil": entry}}).encode()

    refused(
        rewritten(program, change, **{"data/constants/opaque_obj_0": pickle.dumps(Runs())}),
        "pickled object|not an exported program",
    )


def test_compiled_libraries_are_refused(program: Path) -> None:
    evil = {"data/aotinductor/model/model.wrapper.so": b"\x7fELF"}
    refused(rewritten(program, lambda name, content: content, **evil), "compiled code")


@pytest.mark.parametrize(
    "text",
    [
        f"exec({CODE!r})",
        "__import__('os').getcwd()",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "open('x')",
        "s0.__class__",
        "Max(s0, key=print)",
        "1 if s0 else 2",
        "s0 +",
    ],
)
def test_sizes_may_only_be_arithmetic(program: Path, text: str) -> None:
    def change(model: dict[str, Any]) -> None:
        place = model["graph_module"]["graph"]["tensor_values"]["input"]["sizes"][0]
        place["as_expr"]["expr_str"] = text

    refused(in_model(program, change), "not an expression of sizes")


def test_names_may_not_be_code(program: Path) -> None:
    evil = f"input=exec({CODE!r})"

    def change(model: dict[str, Any]) -> None:
        graph = model["graph_module"]["graph"]
        graph["inputs"][-1]["as_tensor"]["name"] = evil

    refused(in_model(program, change), "not a name")


def test_only_operators_may_be_called(program: Path) -> None:
    def change(model: dict[str, Any]) -> None:
        model["graph_module"]["graph"]["nodes"][0]["target"] = "torch.hub.load"

    refused(in_model(program, change), "not an operator|not an exported program")


def test_guards_are_not_run(program: Path) -> None:
    def change(model: dict[str, Any]) -> None:
        model["guards_code"] = [f"exec({CODE!r})"]

    os.environ.pop(MARK, None)
    assert opcost.count(in_model(program, change), shapes=(2, 4)).totals.macs == 2 * 4 * 3
    assert MARK not in os.environ


def test_two_files_of_one_name_are_refused(program: Path) -> None:
    path = rewritten(program, lambda name, content: content)
    with ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("changed/models/model.json", "{}")
    refused(path, "two files of one name")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"\x80\x04K\x01."])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(content)
    with pytest.raises(opcost.OpcostError):
        opcost.count(path)
