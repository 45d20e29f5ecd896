"""Recompute the frozen sources and name the first difference of each.

    python tests/frozen/compare.py [ROOM | NAME ...] [--update] [--jobs N] [--full DIR] [--against DIR]

A name is a room (`torch`), or a pattern of sources (`timm/resnet*`, `*llama*`). Digests say which part of which source changed;
with the full data of the old code in a folder (`--full DIR`, written by that code), `--against DIR` also names the first row and
field. `--numbers` leaves out the parts that a change of wording changes (text, page).
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
for _folder in (HERE, ROOT / "tests" / "shared"):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))

from record import WORDING, Parts, canonical, digest, frozen, parts_of, quiet  # noqa: E402
from sources import ROOMS  # noqa: E402

DATA = HERE / "data"


class Outcome(NamedTuple):
    """One source: its parts, or why there are none."""

    name: str
    parts: Parts | None = None
    skipped: str = ""
    """The library that is missing."""
    error: str = ""
    seconds: float = 0.0


def committed(room: str) -> dict[str, dict[str, Any]]:
    """The frozen records of a room by name."""
    return read_lines(DATA / f"{room}.jsonl")


def read_lines(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {line.pop("source"): line for line in lines}


def write_lines(path: Path, records: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [canonical({"source": name, **records[name]}) + "\n" for name in sorted(records)]
    path.write_text("".join(lines), encoding="utf-8")


@contextlib.contextmanager
def surroundings() -> Iterator[None]:
    """In the root, with a home and a scratch folder of its own, no network, no color, and a fixed terminal."""
    scratch = tempfile.mkdtemp(prefix="opcost-frozen-")
    fixed = {
        "HOME": scratch, "XDG_CACHE_HOME": scratch, "HF_HUB_OFFLINE": "1", "NO_COLOR": "1",
        "COLUMNS": "100", "LINES": "40", "TERM": "dumb", "TZ": "UTC",
    }  # fmt: skip
    before = {name: os.environ.get(name) for name in fixed}
    folder, here = tempfile.tempdir, Path.cwd()
    os.chdir(ROOT)
    os.environ.update(fixed)
    tempfile.tempdir = scratch
    try:
        yield
    finally:
        tempfile.tempdir = folder
        os.chdir(here)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        shutil.rmtree(scratch, ignore_errors=True)


def _missing(error: ModuleNotFoundError) -> str:
    """The library that is missing; a missing module of opcost's own or of these tests is an error."""
    top = (error.name or "").partition(".")[0]
    return "" if top in ("", "opcost", *(path.stem for path in HERE.glob("*.py"))) else top


def outcomes(room: str, patterns: Sequence[str] = ("*",)) -> Iterator[Outcome]:
    """The sources of a room whose name matches, one after the other."""
    with surroundings(), quiet():
        try:
            sources = ROOMS[room]()
        except ModuleNotFoundError as error:
            if not _missing(error):
                raise
            for name in committed(room):
                if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                    yield Outcome(name, skipped=_missing(error))
            return
        for name, source in sources.items():
            if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                yield _outcome(name, source)


def _outcome(name: str, source: Any) -> Outcome:
    start = time.process_time()
    _seed()
    try:
        parts = json.loads(json.dumps(parts_of(source())))
    except ModuleNotFoundError as error:
        if not _missing(error):
            return Outcome(name, error=f"{type(error).__name__}: {error}")
        return Outcome(name, skipped=_missing(error))
    except Exception as error:  # noqa: BLE001 - a source that stops is a difference, and the others are still compared
        return Outcome(name, error=f"{type(error).__name__}: {error}".splitlines()[0])
    return Outcome(name, parts, seconds=time.process_time() - start)


def _seed() -> None:
    random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def chosen(words: Sequence[str]) -> dict[str, list[str]]:
    """Patterns by room. A pattern without a room is looked up among the committed names, so that nothing else is imported."""
    if not words:
        return {room: ["*"] for room in ROOMS}
    found: dict[str, list[str]] = {}
    for word in words:
        room, slash, pattern = word.partition("/")
        if room in ROOMS:
            found.setdefault(room, []).append(pattern if slash else "*")
            continue
        places = [each for each in ROOMS if any(fnmatch.fnmatch(name, word) for name in committed(each))]
        if not places:
            raise SystemExit(f"no room and no source is named {word!r}; rooms: {', '.join(ROOMS)}")
        for each in places:
            found.setdefault(each, []).append(word)
    return found


def differences(name: str, parts: Parts, record: dict[str, Any], *, ignored: Iterable[str] = ()) -> list[str]:
    """One line for each part that is not as it was frozen."""
    now, lines = frozen(parts), []
    for part in sorted({*now, *record} - {"marks", *ignored}):
        old, new = record.get(part), now.get(part)
        if old == new:
            continue
        if part == "totals":
            lines += [f"{name}: totals: {_first(old or {}, new or {})}"]
        elif part == "rows":
            lines += [f"{name}: rows: {_marked(parts['rows'], record.get('marks', ''))}"]
        else:
            lines += [f"{name}: {part}: digest {old} is now {new}"]
    return lines


def _marked(rows: list[Any], marks: str) -> str:
    """The first row whose mark is another one."""
    if not marks:
        return f"{len(rows)} rows differ from the frozen ones; --against DIR names the first"
    if len(marks) != 2 * len(rows):
        return f"{len(marks) // 2} rows are now {len(rows)}"
    for place, row in enumerate(rows):
        if digest(row)[:2] != marks[2 * place : 2 * place + 2]:
            return f"row {place} differs, and is now {canonical(row)[:400]}"
    return "a row differs; --against DIR names it"


def full_differences(name: str, parts: Parts, reference: Parts, *, ignored: Iterable[str] = ()) -> list[str]:
    """One line for each part, with the first row and field that differ."""
    names = sorted({*parts, *reference} - {*ignored})
    changed = [part for part in names if parts.get(part) != reference.get(part)]
    return [f"{name}: {part}: {_first(reference.get(part), parts.get(part))}" for part in changed]


def _first(old: Any, new: Any, path: str = "") -> str:
    """Where two values first differ, in words."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return _first(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
    if isinstance(old, list) and isinstance(new, list):
        for place, (one, other) in enumerate(zip(old, new, strict=False)):
            if one != other:
                label = f" ({_label(other)})" if isinstance(other, dict) else ""
                return _first(one, other, f"{path}[{place}]{label}")
        return f"{path} has {len(new)} entries in place of {len(old)}"
    if isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        return _first(old.splitlines(), new.splitlines(), f"{path} line ")
    return f"{path} was {canonical(old)[:300]}, is {canonical(new)[:300]}"


def _label(row: dict[str, Any]) -> str:
    return " ".join(str(row[key]) for key in ("op", "type", "name", "path", "module") if row.get(key))


def _run(room: str, patterns: Sequence[str]) -> list[Outcome]:
    return list(outcomes(room, patterns))


def _all(selected: dict[str, list[str]], jobs: int) -> Iterator[tuple[str, Outcome]]:
    if jobs == 1:
        for room, patterns in selected.items():
            for outcome in outcomes(room, patterns):
                yield room, outcome
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        futures = {room: pool.submit(_run, room, patterns) for room, patterns in selected.items()}
        for room, future in futures.items():
            for outcome in future.result():
                yield room, outcome


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, or write; 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="rooms or patterns of sources; all without any")
    parser.add_argument("--update", action="store_true", help="write what is computed as the frozen digests")
    parser.add_argument("--jobs", type=int, default=1, help="rooms that are computed at once, each in a process")
    parser.add_argument("--full", type=Path, metavar="DIR", help="write the full data into this folder")
    parser.add_argument("--against", type=Path, metavar="DIR", help="compare with the full data in this folder")
    parser.add_argument("--numbers", action="store_true", help="without the parts that depend on wording: text, page")
    parser.add_argument("--times", action="store_true", help="print the CPU seconds of each source")
    options = parser.parse_args(argv)
    selected = chosen(options.names)
    ignored = WORDING if options.numbers else ()
    equal, skipped, lines = 0, [], []
    made: dict[str, dict[str, Parts]] = {room: {} for room in selected}
    seconds = dict.fromkeys(selected, 0.0)
    start = time.perf_counter()
    before = {room: committed(room) for room in selected}
    reference = {room: read_lines(options.against / f"{room}.jsonl") if options.against else {} for room in selected}
    seen: dict[str, set[str]] = {room: set() for room in selected}
    for room, outcome in _all(selected, options.jobs):
        name = f"{room}/{outcome.name}"
        seen[room].add(outcome.name)
        seconds[room] += outcome.seconds
        if options.times:
            print(f"{outcome.seconds:7.2f} s  {name}", flush=True)
        if outcome.skipped:
            skipped.append(f"{name} (no {outcome.skipped})")
            continue
        found = []
        if outcome.parts is None:
            found = [f"{name}: {outcome.error}"]
        else:
            made[room][outcome.name] = outcome.parts
            if options.against:
                full = reference[room].get(outcome.name)
                found = (
                    [f"{name}: not in {options.against}"]
                    if full is None
                    else full_differences(name, outcome.parts, full, ignored=ignored)
                )
            elif not options.update:
                record = before[room].get(outcome.name)
                found = (
                    [f"{name}: not frozen yet"]
                    if record is None
                    else differences(name, outcome.parts, record, ignored=ignored)
                )
        equal += not found
        lines += found
        for line in found:
            print(line, flush=True)
    for room, patterns in selected.items():
        known = reference[room] if options.against else before[room]
        gone = [
            name for name in known if name not in seen[room] and any(fnmatch.fnmatch(name, each) for each in patterns)
        ]
        if not options.update:
            lines += gone
            for name in gone:
                print(f"{room}/{name}: is frozen, and no source has this name")
        if options.full:
            write_lines(options.full / f"{room}.jsonl", {**read_lines(options.full / f"{room}.jsonl"), **made[room]})
        if options.update:
            kept = {name: record for name, record in before[room].items() if name not in gone}
            write_lines(DATA / f"{room}.jsonl", {**kept, **{name: frozen(parts) for name, parts in made[room].items()}})
    if options.times:
        print(
            ", ".join(f"{room} {spent:.1f} s" for room, spent in seconds.items()),
            f"(wall {time.perf_counter() - start:.0f} s)",
        )
    import opcost

    print(f"opcost of {Path(opcost.__file__).parent}")
    names = f"{len(skipped)} skipped: {', '.join(skipped)}" if skipped else "0 skipped"
    print(
        f"{equal} sources, all equal ({names})"
        if not lines
        else f"{len(lines)} differences, {equal} sources equal ({names})"
    )
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
