"""The README's marked commands run, and print what it says they print.

`python tests/contracts/test_readme.py` writes the output of today into the README.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
MARKED = re.compile(
    r"<!-- run -->\n```(?P<language>sh|python)\n(?P<code>.*?)```\n(?:\n```text\n(?P<output>.*?)```\n)?", re.DOTALL
)


class Block(NamedTuple):
    """A marked piece of the README, and the output that stands under it, if any does."""

    language: str
    code: str
    output: str | None


def blocks() -> list[Block]:
    return [Block(found["language"], found["code"], found["output"]) for found in MARKED.finditer(README.read_text())]


def run(block: Block, scratch: Path) -> str:
    """What the block prints here, where opcost is installed and files go to a scratch folder."""
    code = block.code.replace("pip install .\n", "").replace("/tmp/", f"{scratch}/")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    command = ["bash", "-euc", code] if block.language == "sh" else [sys.executable, "-c", code]
    environment = {**os.environ, "PATH": path, "COLUMNS": "100"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_versions(text: str) -> str:
    return re.sub(r"torch \S+", "torch", text)


def test_something_is_marked_and_something_is_shown() -> None:
    assert len(blocks()) >= 3
    assert any(block.output for block in blocks())


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.code.splitlines()[-1])
def test_a_marked_block_runs_and_prints_what_stands_under_it(block: Block, tmp_path: Path) -> None:
    printed = run(block, tmp_path)
    if block.output is not None:
        assert without_versions(printed) == without_versions(block.output)


@pytest.mark.parametrize("page", [README, *sorted(ROOT.glob("docs/*.md"))], ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target


def _refresh() -> None:
    def filled(found: re.Match[str]) -> str:
        if found["output"] is None:
            return found[0]
        start, end = (place - found.start() for place in found.span("output"))
        return (
            found[0][:start]
            + run(Block(found["language"], found["code"], found["output"]), Path("/tmp"))
            + found[0][end:]
        )

    README.write_text(MARKED.sub(filled, README.read_text()))


if __name__ == "__main__":
    _refresh()
