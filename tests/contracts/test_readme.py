"""The marked commands of the README and of the pages run, and print what stands under them.

`python tests/contracts/test_readme.py` writes the output of today into them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = (README, *(ROOT / "docs" / name for name in ("tutorial.md", "how-to.md", "coming-from.md", "gallery.md")))
MARKED = re.compile(
    r"<!-- run -->\n```(?P<language>sh|python)\n(?P<code>.*?)```\n(?:\n```text\n(?P<output>.*?)```\n)?", re.DOTALL
)


class Block(NamedTuple):
    """A marked piece of a page, and the output that stands under it, if any does."""

    language: str
    code: str
    output: str | None


def blocks(pages: Sequence[Path] = PAGES) -> list[Block]:
    """The marked pieces of these pages."""
    found = [match for page in pages for match in MARKED.finditer(page.read_text(encoding="utf-8"))]
    return [Block(match["language"], match["code"], match["output"]) for match in found]


def run(block: Block, scratch: Path, python: Path = Path(sys.executable)) -> str:
    """What the block prints with this interpreter, where opcost is installed and files go to a scratch folder."""
    code = block.code.replace("pip install torch .\n", "").replace("/tmp/", f"{scratch}/")
    path = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    command = ["bash", "-euc", code] if block.language == "sh" else [str(python), "-c", code]
    environment = {**os.environ, "PATH": path, "COLUMNS": "100"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(f"{scratch}/", "/tmp/")


def without_versions(text: str) -> str:
    return re.sub(r"torch \S+", "torch", text)


def test_something_is_marked_and_something_is_shown() -> None:
    assert len(blocks()) >= 3
    assert any(block.output for block in blocks())


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.code.splitlines()[-1])
def test_a_marked_block_runs_and_prints_what_stands_under_it(block: Block) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a short name: a long one would break lines elsewhere
        printed = run(block, Path(folder))
    if block.output is not None:
        assert without_versions(printed) == without_versions(block.output)


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))], ids=lambda page: page.name
)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target


IN_CHINESE = {"README.md": "README.zh-CN.md", "docs/tutorial.md": "docs/tutorial.zh-CN.md"}
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", IN_CHINESE)
def test_the_chinese_page_has_the_same_commands_and_outputs(page: str) -> None:
    english, chinese = (
        [
            (language, _without_remarks(code))
            for language, code in FENCED.findall((ROOT / name).read_text(encoding="utf-8"))
        ]
        for name in (page, IN_CHINESE[page])
    )
    assert chinese == english


def _without_remarks(code: str) -> str:
    """What a shell or Python is told; the words behind it may be in either language."""
    return re.sub(r"[ \t]+#.*$", "", code, flags=re.MULTILINE)


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

    for page in (*PAGES, *(ROOT / name for name in IN_CHINESE.values())):
        page.write_text(MARKED.sub(filled, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    _refresh()
