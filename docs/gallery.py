"""The pages of the gallery, made by the commands that stand in gallery.md; run as a script, the pictures of them too.

`python docs/gallery.py CHROMIUM [NAME...]` writes docs/pictures; it needs playwright, Pillow and a browser.
"""
# ruff: noqa: INP001, S108, S603, S607 (a script and a part of the site's hook, not a package; it runs our own commands)

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PICTURES = HERE / "pictures"
COMMANDS = re.compile(r"<!-- run -->\n```sh\n(.*?)```", re.DOTALL)
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "390": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
"""How each page is looked at: on a screen, on one that is dark, and on a phone."""
VIEWS = {"training": "Memory", "unet": "Graph"}
"""The view that is opened in a page; without one, what its reader sees first."""
SETTLED = 800  # milliseconds after which nothing moves any more


def make(folder: Path) -> dict[str, Path]:
    """The pages and drawings by their names, written into a folder."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    for code in COMMANDS.findall((HERE / "gallery.md").read_text(encoding="utf-8")):
        command = code.replace("/tmp/", f"{folder}/")
        subprocess.run(["bash", "-euc", command], cwd=HERE.parent, env={**os.environ, "PATH": path}, check=True)
    made = {path.name: path for path in sorted(folder.iterdir()) if path.suffix in (".html", ".svg")}
    for path in made.values():  # they name their sources as the commands do
        path.write_text(path.read_text(encoding="utf-8").replace(str(folder), "/tmp"), encoding="utf-8")
    return made


def photograph(browser: Any, page: Path) -> None:
    """Write a picture of each look of a page."""
    for look, options in LOOKS.items():
        opened = _open(browser, page, options)
        if view := VIEWS.get(page.stem):
            opened.get_by_role("tab", name=view, exact=True).click()
            opened.wait_for_timeout(SETTLED)
        _picture(opened.screenshot()).save(PICTURES / f"{page.stem}-{look}.webp", quality=80, method=6)
        opened.context.close()


def record(browser: Any, page: Path) -> None:
    """Write a moving picture of a reader who looks for a layer, and then at the other views."""
    opened = _open(browser, page, LOOKS["light"])
    search, frames, times = opened.get_by_role("searchbox").first, [], []

    def step(act: Callable[[], object], milliseconds: int) -> None:
        act()
        opened.wait_for_timeout(SETTLED)
        frames.append(_picture(opened.screenshot()))
        times.append(milliseconds)

    def tab(name: str) -> Callable[[], object]:
        return opened.get_by_role("tab", name=name, exact=True).click

    step(lambda: None, 2500)
    for letters in ("la", "laye", "layer4.0"):
        step(lambda letters=letters: search.fill(letters), 500)
    step(lambda: search.press("Enter"), 1800)
    step(lambda: search.fill(""), 500)
    for name in ("Graph", "Operators", "Roofline"):
        step(tab(name), 2200)
    first, *others = frames
    film = {"save_all": True, "append_images": others, "duration": times, "loop": 0}
    first.save(PICTURES / "page.webp", quality=70, method=6, **film)
    opened.context.close()


def _open(browser: Any, page: Path, options: dict[str, Any]) -> Any:
    opened = browser.new_context(**options).new_page()
    opened.goto(page.as_uri())
    opened.wait_for_selector("html[data-ready]")
    opened.wait_for_timeout(SETTLED)
    return opened


def _picture(shot: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(shot)).convert("RGB")


def main() -> None:
    """Make the pages, and pictures of all or of those that are named."""
    from playwright.sync_api import sync_playwright

    chromium, *names = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        made = make(Path(folder))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for path in made.values():
            if path.suffix == ".svg":
                shutil.copy(path, PICTURES)
            elif not names or path.stem in names:
                photograph(browser, path)
        if not names or "page" in names:
            record(browser, made["resnet50.html"])
        browser.close()


if __name__ == "__main__":
    main()
