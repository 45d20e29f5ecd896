"""How the script of the page, which is modules in `assets`, becomes the one file that every page carries: `make assets`.

Modules are written in the order in which they need each other, each as a function that hands out what it exports. Comments and
indentation are left out, so that what travels with every page is small; nothing else is changed, and nothing from elsewhere is
in it. `page.js` and `page.css` beside this file are made here and committed; a test holds them to their sources.
"""

from __future__ import annotations

import re
from pathlib import Path

from opcost.core.writing import write_text

SOURCES = Path(__file__).parent / "assets"
ENTRY = "main"
_IMPORT = re.compile(r'^import (?P<names>\{[^}]*\}) from "\./(?P<module>\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?P<what>(?:async )?function|const|class) (?P<name>\w+)", re.MULTILINE)
_REMARK = re.compile(r"^\s*//.*\n", re.MULTILINE)
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_EMPTY = re.compile(r"\n{2,}")


def bundle(entry: str) -> str:
    """A module and all that it imports as one."""
    written: dict[str, str] = {}

    def add(name: str) -> None:
        text = (SOURCES / f"{name}.js").read_text(encoding="utf-8")
        for found in _IMPORT.finditer(text):
            if found["module"] not in written:
                add(found["module"])
        exported = ", ".join(found["name"] for found in _EXPORT.finditer(text))
        body = _EXPORT.sub(r"\g<what> \g<name>", _IMPORT.sub(r"const \g<names> = $\g<module>;", text))
        written[name] = f"const ${name} = (() => {{\n{_packed(body)}return {{ {exported} }};\n}})();\n"

    add(entry)
    return "".join(written.values())


def _packed(text: str) -> str:
    """Without remarks, indentation and empty lines; no text of the sources goes over several lines."""
    return _EMPTY.sub("\n", _INDENT.sub("", _REMARK.sub("", text))).lstrip("\n")


def built() -> dict[str, str]:
    """The files that every page carries, by name."""
    style = (SOURCES / "page.css").read_text(encoding="utf-8")
    return {"page.js": bundle(ENTRY), "page.css": _packed(style)}


if __name__ == "__main__":
    for name, text in built().items():
        write_text(SOURCES.parent / name, text)
