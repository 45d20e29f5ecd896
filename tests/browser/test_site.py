"""The documentation as it is read from a disk: search, the switch of colours, and nothing that is loaded from elsewhere."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(find_spec("material") is None, reason="MkDocs is not installed")
SCHEMES = {"default", "slate"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch_module: pytest.MonkeyPatch) -> Path:
    """The first page of a site of some of our pages, with the settings of the whole."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch_module.setenv("NO_MKDOCS_2_WARNING", "1")
    logging.getLogger("mkdocs").setLevel(logging.ERROR)  # links to the pages that are not there
    pages, site = (tmp_path_factory.mktemp(name) for name in ("pages", "site"))
    for name in ("assets", "pictures"):
        shutil.copytree(ROOT / "docs" / name, pages / name)
    for name in ("index.md", "fit.md", "tutorial.zh-CN.md"):
        shutil.copy(ROOT / "docs" / name, pages)
    shutil.copy(ROOT / "benchmarks/RESULTS.md", pages / "results.md")
    hook = pages / "hook.py"  # only what it does to a page: it would make the gallery, too
    hook.write_text(
        f"import runpy\non_page_markdown = runpy.run_path({str(ROOT / 'docs/site.py')!r})['on_page_markdown']\n"
    )
    options: Any = {"docs_dir": str(pages), "site_dir": str(site), "hooks": [str(hook)], "nav": None, "strict": False}
    build(load_config(str(ROOT / "mkdocs.yml"), plugins=["material/search", "material/offline"], **options))
    return site / "index.html"


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture
def page(browser: Any, home: Path) -> Iterator[Any]:
    wrong: list[str] = []
    opened = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light").new_page()
    opened.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: wrong.append(request.url) if request.url.startswith("http") else None)
    opened.goto(home.as_uri())
    yield opened
    opened.context.close()
    assert wrong == []


def test_search_finds_pages_of_tasks_first_from_a_disk(page: Any) -> None:
    page.locator(".md-search__input").click()
    for words in ("largest batch", "GPU"):
        page.locator(".md-search__input").fill("")
        page.locator(".md-search__input").press_sequentially(words, delay=50)
        first = page.locator("a.md-search-result__link").first
        first.wait_for()
        assert re.search(r"fit\.html", first.get_attribute("href"))


@pytest.mark.parametrize("name", ["index", "fit", "tutorial.zh-CN", "results"])
def test_a_page_has_its_pictures_and_none_of_how_pages_were(page: Any, home: Path, name: str) -> None:
    page.goto((home.parent / f"{name}.html").as_uri())
    shown = page.locator("article img").evaluate_all("all => all.map(each => each.complete && each.naturalWidth > 0)")
    assert all(shown)
    assert not (home.parent / "pictures/before").exists()


def test_a_switch_goes_through_light_and_dark(page: Any) -> None:
    seen = []
    for _ in range(3):
        page.locator("label[for^=__palette]:visible").first.click()
        seen.append(page.locator("body").get_attribute("data-md-color-scheme"))
    assert set(seen) == SCHEMES


@pytest.mark.parametrize("width", [1280, 390])
def test_the_four_entrances_have_a_command_each_and_fit(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    cards = page.locator(".grid.cards > ul > li")
    assert [card.locator("a").first.inner_text() for card in cards.all()] == [
        "I have a model", "A GPU budget", "A trace", "A CI job",
    ]  # fmt: skip
    for code in cards.locator("pre > code").all():
        assert code.inner_text().startswith("opcost ")
        assert code.evaluate("code => code.scrollWidth <= code.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
