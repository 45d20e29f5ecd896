"""A browser for all tests of the page; every page that is opened must ask for nothing and report no error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

BROWSER = os.environ.get("OPCOST_BROWSER", "")
"""Set by `make test-browser`, which looks for one."""

if not BROWSER or find_spec("playwright") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium's own sandbox needs rights that containers do not have; the page is our own.
        found = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a text as a page, at a size, with a fragment of the address."""
    opened: list[Any] = []
    wrong: list[str] = []

    def show(text: str, *, fragment: str = "", width: int = 1400, height: int = 900, **context: Any) -> Any:
        path = tmp_path / f"page{len(opened)}.html"
        path.write_text(text, encoding="utf-8")
        page = browser.new_context(viewport={"width": width, "height": height}, **context).new_page()
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(path.as_uri()) else wrong.append(request.url))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        opened.append(page)
        page.goto(path.as_uri() + (f"#{fragment}" if fragment else ""))
        page.wait_for_selector("html[data-ready]", timeout=20_000)
        return page

    yield show
    for page in opened:
        page.context.close()
    assert wrong == []
