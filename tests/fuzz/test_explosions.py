"""Small files whose meaning is large: each is read or refused, in little time and memory.

Every third runs with the tests, all of them with `make fuzz`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import explosions
import pytest
from peak_memory import needs_peak

pytestmark = needs_peak

SECONDS = 4
"""Of one processor. Each takes less than 2 s on a slow machine of 2026."""
MEMORY = 150 << 20


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A process that has loaded what reading needs, and reads each file in a child of its own."""
    command = [sys.executable, explosions.__file__, str(tmp_path_factory.mktemp("explosions"))]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.parametrize("name", [*explosions.FILES][:: 1 if "OPCOST_FUZZ" in os.environ else 3])
def test_a_small_file_stays_small(name: str, reader: subprocess.Popen[str]) -> None:
    assert reader.stdin is not None
    assert reader.stdout is not None
    reader.stdin.write(f"{name}\n")
    reader.stdin.flush()
    found = json.loads(reader.stdout.readline())
    assert found.get("code") in (0, 2), found
    assert found["seconds"] < SECONDS, found
    assert found["bytes"] < MEMORY, found
    if found["code"] == 2:
        assert found["said"].strip(), found


def test_memory_that_does_not_suffice_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from opcost.cli.main import run
    from opcost.frontends.torchscript import walk as reading

    words = explosions.script(tmp_path, "return x")
    monkeypatch.chdir(tmp_path)

    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(reading, "read_script", full)
    assert run(words) == 2
    assert "not enough memory" in capsys.readouterr().err
