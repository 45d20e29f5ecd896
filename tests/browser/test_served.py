"""A page that is served shows what its source has become, and keeps what was chosen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_subjects import report
from page_tree import line_of
from playwright.sync_api import expect


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A report in a file, and the address of its page."""
    source = tmp_path / "net.json"
    report(blocks=4).save(source)
    words = [sys.executable, "-m", "opcost", "view", str(source), "--serve", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield source, process.stdout.readline().split()[0]
        process.terminate()


def test_a_served_page_follows_its_source_and_keeps_what_was_chosen(browser: Any, served: tuple[Path, str]) -> None:
    source, address = served
    page = browser.new_page()
    wrong: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    line_of(page, "block1").click()
    expect(page.locator(".details h2")).to_have_text("block1")
    expect(page.locator(".facts")).to_contain_text("all 72 operators")
    page.wait_for_url("**#*sel=block1*")
    report(blocks=5).save(source)
    # Five blocks of three layers with six operators.
    expect(page.locator(".facts")).to_contain_text("all 90 operators", timeout=30_000)
    expect(page.locator(".details h2")).to_have_text("block1")
    page.close()
    assert wrong == []
    assert all(url.startswith(address) for url in requests)
