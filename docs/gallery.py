"""The pages of the gallery, made by the commands that stand in gallery.md; run as a script, the pictures of them too.

`python docs/gallery.py CHROMIUM` writes docs/pictures; it needs playwright, Pillow and a browser.
"""
# ruff: noqa: INP001, S108, S603, S607 (a script and a part of the site's hook, not a package; it runs our own commands)

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PICTURES = HERE / "pictures"
COMMANDS = re.compile(r"<!-- run -->\n```sh\n(.*?)```", re.DOTALL)
SHOTS: dict[str, tuple[str, str, int]] = {
    "model": ("model", "", 720),
    "model-graph": ("model", "Graph", 720),
    "model-roofline": ("model", "Roofline", 720),
    "training": ("training", "Memory", 760),
    "trace": ("trace", "", 1240),
    "prediction": ("prediction", "", 760),
    "sweep": ("sweep", "", 530),
    "comparison": ("comparison", "", 620),
}
"""Of each picture the page, the view that is opened in it, and how much of its height is shown."""

WIDTH, TALLEST = 1280, 760
"""Of the window: what is shown of a longer page lies below it."""


def make(folder: Path) -> dict[str, Path]:
    """The pages and drawings by their names, written into a folder."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    for code in COMMANDS.findall((HERE / "gallery.md").read_text(encoding="utf-8")):
        told = code.replace("/tmp/", f"{folder}/")
        subprocess.run(["bash", "-euc", told], cwd=HERE.parent, env={**os.environ, "PATH": path}, check=True)
    made = {path.name: path for path in sorted(folder.iterdir())}
    for path in made.values():  # they name their sources as the commands do
        path.write_text(path.read_text(encoding="utf-8").replace(str(folder), "/tmp"), encoding="utf-8")
    return made


def photograph(browser: Any, page: Path, picture: str) -> None:
    """Open a page and write a picture of it."""
    from PIL import Image

    _, view, height = SHOTS[picture]
    opened = browser.new_page(viewport={"width": WIDTH, "height": min(height, TALLEST)})
    opened.goto(page.as_uri())
    opened.wait_for_selector("html[data-ready]")
    if view:
        opened.get_by_role("tab", name=view).click()
    opened.wait_for_timeout(1000)
    target = PICTURES / f"{picture}.png"
    opened.screenshot(path=target, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
    opened.close()
    Image.open(target).convert("RGB").save(target, optimize=True)


def main() -> None:
    """Make the pages, and pictures of them."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        made = make(Path(folder))
        browser = playwright.chromium.launch(executable_path=sys.argv[1], args=["--no-sandbox"])
        for picture, (page, _, _) in SHOTS.items():
            photograph(browser, made[f"{page}.html"], picture)
        for drawing in (path for path in made.values() if path.suffix == ".svg"):
            shutil.copy(drawing, PICTURES)
        browser.close()


if __name__ == "__main__":
    main()
