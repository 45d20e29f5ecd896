"""`opcost doctor`: what is installed, what is plugged in, what is missing or broken."""

from __future__ import annotations

import platform
import re
from importlib import metadata
from pathlib import Path

from opcost.cli.libraries import states, version
from opcost.cli.saying import say
from opcost.core.plugin import FRONTENDS, GROUPS, RULES, checked, clashes, find
from opcost.errors import OpcostError
from opcost.rules.registry import Rules
from opcost.version import __version__

LIBRARIES = (
    "torch", "torchvision", "timm", "transformers", "onnx", "onnxruntime", "tensorboard", "megengine", "mxnet", "numpy",
    "rich", "cyclopts",
)  # fmt: skip
"""What a user's models or opcost's own output may need."""


def doctor() -> int:
    """Show versions, frameworks, plug-ins and extras, and what is missing."""
    _section(
        "opcost", [("opcost", __version__), ("python", platform.python_version()), ("system", platform.platform())]
    )
    _section("libraries", states(LIBRARIES))
    _section("extras", [(name, _extra_state(name)) for name in _extras()])
    broken = False
    for group in GROUPS:
        rows = []
        for name, entry in sorted(find(group).items()):
            fault = _fault(entry)
            broken |= fault is not None
            rows.append((name, f"{entry.value}  CANNOT BE LOADED: {fault}" if fault is not None else entry.value))
        for name, clash in sorted(clashes(group).items()):
            broken = True
            rows.append((name, f"CLASH: {clash.message}"))
        _section(group, rows)
    return 2 if broken else 0


def _fault(entry: metadata.EntryPoint) -> str | None:
    """Why a plug-in cannot be used, if it cannot: it is imported and asked an easy question."""
    try:
        part = checked(entry)
        if entry.group == FRONTENDS:
            part.sniff(b"", Path(f"model{next(iter(part.suffixes), '')}"))
        elif entry.group == RULES:
            part(Rules())
    except KeyboardInterrupt:
        raise
    except OpcostError as exc:
        return exc.message
    except BaseException as exc:  # noqa: BLE001 - whatever a plug-in raises, the others are still of interest
        return f"{type(exc).__name__}: {exc}"
    return None


def _section(title: str, rows: list[tuple[str, str]]) -> None:
    width = max((len(name) for name, _ in rows), default=0)
    say(title)
    for name, value in rows or [("none", "")]:
        say(f"  {name:<{width}}  {value}".rstrip())


def _extras() -> list[str]:
    try:
        return sorted(metadata.metadata("opcost").get_all("Provides-Extra") or ())
    except metadata.PackageNotFoundError:
        return []


def _extra_state(extra: str) -> str:
    """Whether everything that an extra asks for is there, and how to get it if not."""
    wanted = [line for line in metadata.requires("opcost") or () if re.search(rf"extra\s*==\s*['\"]{extra}['\"]", line)]
    names = [re.split(r"[\s;<>=!~\[(]", line, maxsplit=1)[0] for line in wanted]
    missing = [name for name in names if version(name) is None]
    return f"missing {', '.join(missing)}: pip install 'opcost[{extra}]'" if missing else "installed"
