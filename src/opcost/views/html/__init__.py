"""Results as one page that needs nothing else: no network, no other file.

The page is its data as one block of JSON, the script and the style, and a policy that names the hashes of script and style, so
that nothing else can run or be loaded, whatever is in the data; the script shows every text as text. The script is the modules
of `assets`, each as a function that returns its exports, in the order in which they need each other.
"""

import base64
import hashlib
import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from opcost.core.escaping import json_text, printable
from opcost.views.html.profiles import profile_page
from opcost.views.html.reports import report_page, scan_page, tables_page
from opcost.views.results import RESULTS
from opcost.views.view import Build, View

_MARKUP = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_IMPORT = re.compile(r'^import (?P<names>\{[^}]*\}) from "\./(?P<module>\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?P<what>(?:async )?function\*?|const|class) (?P<name>\w+)", re.MULTILINE)
_REMARK = re.compile(r"^\s*//.*\n", re.MULTILINE)
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_EMPTY = re.compile(r"\n{2,}")


def write_page(data: dict[str, Any], options: object = None) -> str:
    """The page of this data."""
    script, style = bundle("main"), _packed(_asset("page.css"))
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"
    # Nothing in the JSON can end the block that it is in, or begin another.
    block = re.sub("[<>&]", lambda found: _MARKUP[found[0]], json_text(data, halves=False, separators=(",", ":")))
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(printable(str(data['title'])), quote=True)}</title>",
            f"<style>{style}</style>\n</head>\n<body>",
            f'<script type="application/json" id="data">{block}</script>',
            f'<script type="module">{script}</script>\n</body>\n</html>\n',
        ]
    )


def served(page: str) -> str:
    """The same page, which may ask the server that it came from, and no other, whether there is a newer one."""
    allowed = page.replace("form-action 'none'", "form-action 'none'; connect-src 'self'", 1)
    return allowed.replace(' id="data">{', ' id="data">{"served":true,', 1)


@cache
def bundle(entry: str) -> str:
    """A module of `assets` and all that it imports as one script."""
    written: dict[str, str] = {}

    def add(name: str) -> None:
        text = _asset(f"{name}.js")
        for found in _IMPORT.finditer(text):
            if found["module"] not in written:
                add(found["module"])
        exported = ", ".join(found["name"] for found in _EXPORT.finditer(text))
        body = _EXPORT.sub(r"\g<what> \g<name>", _IMPORT.sub(r"const \g<names> = $\g<module>;", text))
        written[name] = f"const ${name} = (() => {{\n{_packed(body)}return {{ {exported} }};\n}})();\n"

    add(entry)
    return "".join(written.values())


def _asset(name: str) -> str:
    return (files("opcost.views.html") / "assets" / name).read_text(encoding="utf-8")


def _packed(text: str) -> str:
    """Without remarks, indentation and empty lines; no text of the sources goes over several lines."""
    return _EMPTY.sub("\n", _INDENT.sub("", _REMARK.sub("", text))).lstrip("\n")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


_SCAN, _TABLES = RESULTS["scan"].sheet, RESULTS["tables"].sheet
HTML = View(
    name="html",
    suffix=".html",
    builds={
        "report": Build("", report_page),
        "profile": Build("columns others profile sheets", profile_page),
        "scan": Build(f"{_SCAN.names} exact", scan_page, **_SCAN.defaults),
        "tables": Build(f"{_TABLES.names} exact", tables_page),
    },
    write=write_page,
)
