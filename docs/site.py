"""What the site takes from elsewhere in the repository: the changelog, how to contribute, measured results, the notebook.

Links in them, and links to them, lead to the same page of the site; what is no page, such as an example, is only named. The
notebook is shown with what its cells show, and the pages of the gallery are made anew.
"""
# ruff: noqa: INP001 (a hook of mkdocs, not a package)

from __future__ import annotations

import importlib.util
import json
import posixpath
import re
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TAKEN = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/RESULTS.md": "results.md",
    "docs/notebook.ipynb": "notebook.md",
}
"""Files of the repository, and the pages that they are on the site."""
LINKED = {**TAKEN, "README.md": "index.md", "README.zh-CN.md": "tutorial.zh-CN.md"}
FOUND_LAST = {
    "api.md": 0.3, "architecture.md": 0.3, "changelog.md": 0.2, "contributing.md": 0.3, "options.md": 0.5, "results.md": 0.1,
    "rules.md": 0.5,
}  # fmt: skip
"""Pages that are found after those of tasks, though they have the same words more often."""
SHOWN = re.compile(r"(!\[[^\]]*\])\(pictures/([\w-]+)\.webp\)")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that do not lie in this folder."""
    from mkdocs.structure.files import File

    for path, page in TAKEN.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        if path.endswith(".ipynb"):
            text = _notebook(text)
        files.append(File.generated(config, page, content=text))
    with tempfile.TemporaryDirectory() as folder:
        for name, made in _gallery().make(Path(folder)).items():
            if made.suffix == ".html":
                files.append(File.generated(config, f"gallery/{name}", content=made.read_text(encoding="utf-8")))
    return files


def _gallery() -> Any:
    """The maker of the pages, which lies beside this file."""
    spec = importlib.util.spec_from_file_location("gallery", Path(__file__).with_name("gallery.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _notebook(text: str) -> str:
    """Cells and what they show, as a page."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            shown = output.get("data", {"text/plain": output.get("text", "")})
            if (
                "text/html" in shown
            ):  # apart from the site's style; without empty lines, at which Markdown would begin again
                html = re.sub(r"\n\s*\n", "\n", "".join(shown["text/html"]))
                parts.append(f'<div style="overflow-x: auto"><template shadowrootmode="open">{html}</template></div>')
            else:
                parts.append(f"```text\n{''.join(shown['text/plain']).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links lead to pages of the site, and set where search finds the page."""
    page.meta["search"] = {"boost": FOUND_LAST.get(page.file.src_uri, 1)}
    homes = {target: path for path, target in TAKEN.items()}
    home = homes.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    linked = LINK.sub(lambda found: _link(found, posixpath.dirname(home)), markdown)
    return SHOWN.sub(_with_page, linked) if page.file.src_uri == "gallery.md" else linked


def _with_page(found: re.Match[str]) -> str:
    """A picture of a page leads to it."""
    page = found[2].partition("-")[0]
    return f"[{found[0]}](gallery/{page}.html)"


def _link(found: re.Match[str], folder: str) -> str:
    picture, text, target, anchor = found[1], found[2], found[3], found[4] or ""
    if "://" in target or target.startswith("mailto:"):
        return found[0]
    path = posixpath.normpath(posixpath.join(folder, target))
    if not (ROOT / path).exists():
        return found[0]  # which the build then refuses
    if path in LINKED:
        return f"{picture}[{text}]({LINKED[path]}{anchor})"
    if path.startswith("docs/"):
        return f"{picture}[{text}]({path.removeprefix('docs/')}{anchor})"
    return text if "`" in text else f"`{path}`"
