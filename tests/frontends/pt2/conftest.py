"""What the tests of exported programs share: a small program in a file, and archives in which something is changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from torch import nn

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """A model exported to a file."""

    def save(model: nn.Module, *args: Any, decomposed: bool = False, **options: Any) -> Path:
        program = torch.export.export(model, args, **options)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.pt2"
        torch.export.save(program.run_decompositions() if decomposed else program, path)
        return path

    return save


@cache
def _exported() -> bytes:
    with TemporaryFile() as file:
        open_batch = {"input": {0: torch.export.Dim("batch", min=2)}}
        torch.export.save(torch.export.export(nn.Linear(4, 3), (torch.ones(2, 4),), dynamic_shapes=open_batch), file)
        file.seek(0)
        return file.read()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A linear layer that takes any batch from two on."""
    path = tmp_path / "program.pt2"
    path.write_bytes(_exported())
    return path


@pytest.fixture
def rewritten() -> Callable[..., Path]:
    """The same archive with some files changed, and others added."""

    def rewrite(path: Path, change: Callable[[str, bytes], bytes | None], **added: bytes) -> Path:
        result = path.with_name("changed.pt2")
        with ZipFile(path) as old, ZipFile(result, "w") as new:
            for name in old.namelist():
                content = change(name, old.read(name))
                if content is not None:
                    new.writestr(name, content)
            for name, content in added.items():
                new.writestr(f"changed/{name}", content)
        return result

    return rewrite


@pytest.fixture
def in_model(rewritten: Callable[..., Path]) -> Callable[[Path, Change], Path]:
    """The same archive with another description of the program."""

    def alter(path: Path, change: Change) -> Path:
        def apply(name: str, content: bytes) -> bytes:
            if not name.endswith("models/model.json"):
                return content
            model = json.loads(content)
            change(model)
            return json.dumps(model).encode()

        return rewritten(path, apply)

    return alter
