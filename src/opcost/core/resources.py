"""Tables that travel with the package as JSON: what is written down and never computed."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def table(package: str, name: str) -> Any:
    """What a file beside the modules of a package holds; the package may be a folder or lie in an archive."""
    return json.loads((files(package) / name).read_text(encoding="utf-8"))
