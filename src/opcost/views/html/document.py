"""One file that holds everything: the data as one block of JSON, the script and the style, and a policy that forbids all else.

Script and style are what `make assets` makes of `assets`. The policy names the hashes of script and
style, so that nothing else can run or be loaded, whatever stands in the data; and the script shows every text as text.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from opcost.core.harmless import json_text, printable

_MARKUP = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def write_document(data: dict[str, Any]) -> str:
    """The page of this data."""
    script, style = _asset("page.js"), _asset("page.css")
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(printable(str(data['title'])), quote=True)}</title>",
            f"<style>{style}</style>\n</head>\n<body>",
            f'<script type="application/json" id="data">{block_of(data)}</script>',
            f'<script type="module">{script}</script>\n</body>\n</html>\n',
        ]
    )


def served(page: str) -> str:
    """The same page, which may ask the server that it came from, and nobody else, whether there is a newer one."""
    asked = page.replace("form-action 'none'", "form-action 'none'; connect-src 'self'", 1)
    return asked.replace(' id="data">{', ' id="data">{"served":true,', 1)


def block_of(data: dict[str, Any]) -> str:
    """The data as JSON in which nothing can end the block that it stands in, or begin another."""
    text = json_text(data, halves=False, separators=(",", ":"))
    return re.sub("[<>&]", lambda found: _MARKUP[found[0]], text)


@cache
def _asset(name: str) -> str:
    return (files("opcost.views.html") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
