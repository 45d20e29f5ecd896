"""The marked pieces of the documents, and what they print: for the tests, and for trying what would be released.

As a script it writes the output of today into them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = (README, *(ROOT / "docs" / name for name in ("tutorial.md", "guide.md", "compat.md", "gallery.md")))
IN_CHINESE = {"README.md": "README.zh-CN.md", "docs/tutorial.md": "docs/tutorial.zh-CN.md"}
MARKED = re.compile(
    r"<!-- run -->\n```(?P<language>sh|python)\n(?P<code>.*?)```\n(?:\n```text\n(?P<output>.*?)```\n)?", re.DOTALL
)

COLUMNS = 80  # of a pipe, and of most terminals


class Block(NamedTuple):
    """A marked piece of a page, and the output that is under it, if any does."""

    language: str
    code: str
    output: str | None


def blocks(pages: Sequence[Path] = PAGES) -> list[Block]:
    """The marked pieces of these pages."""
    found = [match for page in pages for match in MARKED.finditer(page.read_text(encoding="utf-8"))]
    return [Block(match["language"], match["code"], match["output"]) for match in found]


def run(block: Block, scratch: Path, python: Path = Path(sys.executable)) -> str:
    """What the block prints with this interpreter, where opcost is installed, in a folder with our examples and data."""
    for name in ("examples", "tests"):
        if not (scratch / name).exists():
            (scratch / name).symlink_to(ROOT / name)
    code = block.code.replace("pip install torch .\n", "").replace("/tmp/", "")
    path = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    command = ["bash", "-euc", code] if block.language == "sh" else [str(python), "-c", code]
    environment = {**os.environ, "PATH": path, "COLUMNS": str(COLUMNS)}
    done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_versions(text: str) -> str:
    return re.sub(r"torch \S+", "torch", text)


def _refresh() -> None:
    from tempfile import TemporaryDirectory

    from warm_process import warm_programs

    with warm_programs() as programs, TemporaryDirectory() as scratch:

        def filled(found: re.Match[str]) -> str:
            if found["output"] is None:
                return found[0]
            block = Block(found["language"], found["code"], found["output"])
            start, end = (place - found.start() for place in found.span("output"))
            return found[0][:start] + run(block, Path(scratch), programs / "python") + found[0][end:]

        for page in (*PAGES, *(ROOT / name for name in IN_CHINESE.values())):
            page.write_text(MARKED.sub(filled, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    _refresh()
