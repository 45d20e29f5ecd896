"""Whether the libraries that are installed can also be imported, and which accelerators PyTorch sees.

They are imported in another process, one after the other: importing can fail, print, take long, or end the process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any

SECONDS = 120
"""How long all imports together may take."""

_IMPORTER = """
import importlib, json, os, sys, warnings
told = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
warnings.simplefilter("ignore")
for name in sys.argv[1:]:
    fault = ""
    try:
        importlib.import_module(name)
    except BaseException as exc:
        fault = (str(exc).strip() or type(exc).__name__).splitlines()[0]
    print(json.dumps([name, fault]), file=told, flush=True)
torch = sys.modules.get("torch")
if hasattr(torch, "cuda"):
    cuda = torch.cuda
    names = [cuda.get_device_name(at) for at in range(cuda.device_count())] if cuda.is_available() else []
    built = torch.version.cuda or torch.version.hip
    print(json.dumps(["cuda", built, names]), file=told, flush=True)
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
    for name, *told in _imported(installed):
        if name == "cuda":
            cuda = _cuda(*told)
        elif told[0]:
            faults[name] = told[0]
    rows = []
    for name in names:
        fault = f"  CANNOT BE IMPORTED: {faults[name]}" if name in faults else ""
        rows.append((name, f"{versions[name] or 'not installed'}{fault}"))
    return [*rows, ("cuda", cuda or "not known: it takes PyTorch to see it")]


def _cuda(built: str | None, devices: list[str]) -> str:
    if not built:
        return "PyTorch is not built for it"
    return f"{built}, {', '.join(devices)}" if devices else f"{built}, but PyTorch finds no device"


def _imported(names: list[str]) -> Iterator[list[Any]]:
    """What the importing process tells; a library that ends it is told, and the others are tried again without it."""
    while names:
        command = [sys.executable, "-c", _IMPORTER, *names]
        try:
            done = subprocess.run(  # noqa: S603 - this interpreter
                command, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            out, why = done.stdout, f"the process that imported it ended with {done.returncode}"
        except subprocess.TimeoutExpired as exc:
            out, why = (exc.stdout or b"").decode(), f"the import takes more than {SECONDS} s"
        told = [json.loads(line) for line in out.splitlines()]
        yield from told
        answered = {line[0] for line in told}
        left = [name for name in names if name not in answered]
        if left:
            yield [left[0], why]
        names = left[1:]
