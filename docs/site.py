"""What the site takes from elsewhere in the repository: the README as its first page, the changelog, how to contribute, results.

Links in them, and links to them, lead to the same page of the site; what is no page, such as an example, is only named.
"""
# ruff: noqa: INP001 (a hook of mkdocs, not a package)

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TAKEN = {
    "README.md": "index.md",
    "README.zh-CN.md": "index.zh-CN.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/RESULTS.md": "results.md",
}
"""Files of the repository, and the pages that they are on the site."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that do not lie in this folder."""
    from mkdocs.structure.files import File, InclusionLevel

    for path, page in TAKEN.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        # The Chinese README stands beside the English one and has no place of its own in the menu.
        level = InclusionLevel.NOT_IN_NAV if page == "index.zh-CN.md" else InclusionLevel.UNDEFINED
        files.append(File.generated(config, page, content=text, inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links lead to pages of the site."""
    homes = {target: path for path, target in TAKEN.items()}
    home = homes.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return LINK.sub(lambda found: _link(found, posixpath.dirname(home)), markdown)


def _link(found: re.Match[str], folder: str) -> str:
    picture, text, target, anchor = found[1], found[2], found[3], found[4] or ""
    if "://" in target or target.startswith("mailto:"):
        return found[0]
    path = posixpath.normpath(posixpath.join(folder, target))
    if not (ROOT / path).exists():
        return found[0]  # which the build then refuses
    if path in TAKEN:
        return f"{picture}[{text}]({TAKEN[path]}{anchor})"
    if path.startswith("docs/"):
        return f"{picture}[{text}]({path.removeprefix('docs/')}{anchor})"
    return text if "`" in text else f"`{path}`"
