"""What is installed here: versions, frameworks, plug-ins and extras, and what is missing."""

import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from opcost.core.plugin import FRONTENDS, GROUPS, RULES, checked, clashes, find
from opcost.core.sheet import Section, Sheet, Table
from opcost.errors import OpcostError
from opcost.rules.registry import Rules
from opcost.version import __version__

LIBRARIES = (
    "torch", "torchvision", "timm", "transformers", "onnx", "onnxruntime", "tensorboard", "megengine", "mxnet", "numpy",
    "rich", "cyclopts",
)  # fmt: skip
"""What a user's models or opcost's own output may need."""


def doctor() -> Sheet:
    """Versions, frameworks, plug-ins and extras, and what is missing: `print(opcost.doctor())`."""
    tables = []

    def add(title: str, rows: list[tuple[str, str]]) -> None:
        tables.append(Table.of(title, "name:name state:text", rows or [("none", "")]))

    here = [("opcost", __version__), ("python", platform.python_version()), ("system", platform.platform())]
    add("opcost", here)
    add("libraries", states(LIBRARIES))
    try:
        extras = sorted(metadata.metadata("opcost").get_all("Provides-Extra") or ())
    except metadata.PackageNotFoundError:
        extras = []
    rows = []
    for extra in extras:
        of_extra = re.compile(rf"extra\s*==\s*['\"]{extra}['\"]")
        needs = filter(of_extra.search, metadata.requires("opcost") or ())
        names = [re.split(r"[\s;<>=!~\[(]", line, maxsplit=1)[0] for line in needs]
        missing = ", ".join(name for name in names if version(name) is None)
        rows.append((extra, f"missing {missing}: pip install 'opcost[{extra}]'" if missing else "installed"))
    add("extras", rows)
    broken = []
    for group in GROUPS:
        rows = []
        for name, entry in sorted(find(group).items()):
            fault = _fault(entry)
            broken += [name] if fault is not None else []
            rows.append((name, f"{entry.value}  CANNOT BE LOADED: {fault}" if fault is not None else entry.value))
        for name, clash in sorted(clashes(group).items()):
            broken.append(name)
            rows.append((name, f"CLASH: {clash.message}"))
        add(group, rows)
    sections = (Section("plug-ins that cannot be used", tuple(broken), urgent=True),) if broken else ()
    return Sheet(name="doctor", answer="what is installed", tables=tuple(tables), sections=sections)


def _fault(entry: metadata.EntryPoint) -> str | None:
    """Why a plug-in cannot be used, if it cannot: it is imported and called once."""
    try:
        part = checked(entry)
        if entry.group == FRONTENDS and hasattr(part, "load"):
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


# -- libraries are imported in another process: an import can fail, print, take long, or end the process ----------------------

SECONDS = 120  # how long all imports together may take

_IMPORTER = """
import importlib, json, os, sys, warnings
out = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
warnings.simplefilter("ignore")
for name in sys.argv[1:]:
    fault = ""
    try:
        importlib.import_module(name)
    except BaseException as exc:
        fault = (str(exc).strip() or type(exc).__name__).splitlines()[0]
    print(json.dumps([name, fault]), file=out, flush=True)
torch = sys.modules.get("torch")
if hasattr(torch, "cuda"):
    cuda = torch.cuda
    names = [cuda.get_device_name(at) for at in range(cuda.device_count())] if cuda.is_available() else []
    built = torch.version.cuda or torch.version.hip
    print(json.dumps(["cuda", built, names]), file=out, flush=True)
"""


def version(distribution: str) -> str | None:
    """The version of an installed library; None: it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def states(names: Sequence[str]) -> list[tuple[str, str]]:
    """Each library with its version and what is wrong with it, and a line for CUDA where PyTorch is there."""
    versions = {name: version(name) for name in names}
    installed = [name for name in names if versions[name] is not None]
    faults: dict[str, str] = {}
    cuda = ""
    for name, *answer in _imported(installed):
        if name == "cuda":
            built, devices = answer
            found = ", ".join(devices) or "but PyTorch finds no device"
            cuda = f"{built}, {found}" if built else "PyTorch is not built for it"
        elif answer[0]:
            faults[name] = answer[0]
    rows = []
    for name in names:
        fault = f"  CANNOT BE IMPORTED: {faults[name]}" if name in faults else ""
        rows.append((name, f"{versions[name] or 'not installed'}{fault}"))
    return [*rows, ("cuda", cuda or "unknown: PyTorch is needed to see it")]


def _imported(names: list[str]) -> Iterator[list[Any]]:
    """What the importing process prints; a library that ends it is reported, and the others are tried again without it."""
    while names:
        command = [sys.executable, "-c", _IMPORTER, *names]
        try:
            done = subprocess.run(  # noqa: S603 - this interpreter
                command, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            out, why = done.stdout, f"the process that imported it ended with {done.returncode}"
        except subprocess.TimeoutExpired as exc:
            out, why = (exc.stdout or b"").decode(), f"the import takes more than {SECONDS} s"
        lines = [json.loads(line) for line in out.splitlines()]
        yield from lines
        answered = {line[0] for line in lines}
        left = [name for name in names if name not in answered]
        if left:
            yield [left[0], why]
        names = left[1:]
