"""The marked commands of the README and of the pages run, and print what stands under them.

`python tests/shared/marked_blocks.py` writes the output of today into them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from marked_blocks import COLUMNS, IN_CHINESE, ROOT, Block, blocks, run, without_versions
from warm_process import warm_programs


def test_something_is_marked_and_something_is_shown() -> None:
    assert len(blocks()) >= 3
    assert any(block.output for block in blocks())


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    """`python` and `opcost`; the marked commands would load torch forty times."""
    with warm_programs() as folder:
        yield folder


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.code.splitlines()[-1])
def test_a_marked_block_runs_and_prints_what_stands_under_it(block: Block, programs: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a short name: a long one would break lines elsewhere
        printed = run(block, Path(folder), programs / "python")
    if block.output is not None:
        assert without_versions(printed) == without_versions(block.output)
        assert all(len(line) <= COLUMNS for line in printed.splitlines())


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))], ids=lambda page: page.name
)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target


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


NAMED_FILE = re.compile(r"`(?!build/)((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|json|txt))`")


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_file_that_a_page_for_contributors_names_exists(page: str) -> None:
    package = ROOT / "src" / "opcost"
    for name in NAMED_FILE.findall((ROOT / page).read_text(encoding="utf-8")):
        path = name.replace("FORMAT", "onnx")
        assert any((place / path).exists() for place in (ROOT, package)) or any(package.rglob(path)), name


GENERATED = ("rules.md", "options.md", "api.md")
PAGES_TO_READ = [
    *(ROOT / name for name in ("README.md", "README.zh-CN.md", "CONTRIBUTING.md")),
    *(page for page in sorted(ROOT.glob("docs/*.md")) if page.name not in GENERATED),
]
OLD_DIALECT = re.compile(
    r"\b(?:told|asked|wish(?:es)?|held|nobody|doors?|prices?|priced|dear(?:er)?|won back|so many)\b", re.IGNORECASE
)


def test_what_is_to_be_read_has_at_most_20_000_words() -> None:
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in PAGES_TO_READ) <= 20_000


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_readme_has_at_most_600_words(page: str) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").split()) <= 600


@pytest.mark.parametrize("page", PAGES_TO_READ, ids=lambda page: page.name)
def test_a_page_is_in_plain_words(page: Path) -> None:
    assert not OLD_DIALECT.findall(page.read_text(encoding="utf-8"))
