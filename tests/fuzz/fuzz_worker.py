"""Reads changed files of one format in a process of its own, and watches what that process does.

    python tests/fuzz/fuzz_worker.py FORMAT --cases 20000        the first 20000 cases
    python tests/fuzz/fuzz_worker.py FORMAT --case 1234          one case, with where it failed; --keep FILE keeps the file

The number of a case is all that chance depends on. A case is fine if it is read or refused with an OpcostError, within MEMORY and
the seconds of its format, and if nothing was run, opened for writing, or reached over a network meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fuzz_formats import FORMATS, Format, Seed

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
from peak_memory import peak

HANGS_AFTER = 60
"""Seconds by the clock after which a case is given up, so that one that waits for ever fails and does not wait for ever."""
MEMORY = 300 << 20
ADDRESSES = 8 << 30
"""What the process may map beyond what it has, so that no case can hurt the machine."""
RARE = 200
"""One case in 200 is a special file or a file that changes, and one a rare change of the format."""


class Outcome(NamedTuple):
    """What became of a case: `read`, `refused`, or what it must not be."""

    word: str
    text: str = ""


class Hang(BaseException):
    """The time is over; no `except Exception` may catch it."""


# -- what the process does -----------------------------------------------------------------------------------------------

_FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen", "pty.spawn", "socket.",
    "ctypes.", "pickle.find_class", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink",
    "os.chmod", "os.truncate", "os.putenv", "shutil.", "urllib.", "http.", "smtplib.", "ftplib.", "os.kill",
)  # fmt: skip
_OURS = (str(Path(__file__).resolve().parents[2]), sys.prefix, sys.base_prefix, "<frozen", "<unknown>")
"""Whose code may be loaded late; `ast.literal_eval` parses without running and calls its text unknown."""


class Watch:
    """An audit hook: what was done, and at which opening of the file the file itself is changed."""

    def __init__(self) -> None:
        self.on = False
        self.done: list[str] = []
        self.path = ""
        self.openings = 0
        self.change_at = 0
        self.change: Any = None
        sys.addaudithook(self._event)

    def _event(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            self._opened(*args)
        elif event in ("exec", "compile"):
            code = args[0] if event == "exec" else None
            name = str(getattr(code, "co_filename", "") if event == "exec" else args[1])
            if not name.startswith(_OURS):
                self.done.append(f"{event} {name}")
        elif event.startswith(_FORBIDDEN):
            self.done.append(f"{event} {args!r}"[:200])

    def _opened(self, path: object, mode: object, flags: int) -> None:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
            if not str(path).startswith(tempfile.gettempdir()):  # where pipes are kept
                self.done.append(f"open for writing {path!r}")
        elif str(path) == self.path:
            self.openings += 1
            if self.openings == self.change_at:
                self.on = False
                self.change()
                self.on = True


# -- cases ----------------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A changed file, or something else where a file should be, and when it changes again."""

    content: bytes | None
    given: Any
    special: str = ""
    change_at: int = 0
    changed: bytes = b""


SPECIAL = ("device", "link", "directory", "empty", "nothing", "pipe", "written pipe")


def make(form: Format, seeds: list[Seed], number: int) -> Case:
    rng = random.Random(f"{form.name}:{number}")
    seed = rng.choice(seeds)
    chance = rng.randrange(RARE)
    if chance == 0:
        return Case(seed.content, seed.given, special=rng.choice(SPECIAL))
    if chance == 1 and form.rare:
        return Case(rng.choice(form.rare)(seed.content, rng), seed.given)
    content = rng.choice(form.changes)(seed.content, rng)
    if chance == 2:
        other = rng.choice((content[: len(content) // 2], seed.content + seed.content, b"", rng.choice(seeds).content))
        return Case(seed.content, seed.given, change_at=rng.randrange(1, 6), changed=other)
    return Case(content, seed.given)


def lay(case: Case, path: Path) -> None:
    """Put what the case is where it will be read."""
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    match case.special:
        case "device":
            path.symlink_to("/dev/zero")
        case "link":
            path.symlink_to(path)
        case "directory":
            path.mkdir()
        case "nothing":
            pass
        case "pipe" | "written pipe":
            os.mkfifo(path)
        case _:
            path.write_bytes(b"" if case.special == "empty" else case.content or b"")


class Writer:
    """A process that writes into a pipe."""

    def __init__(self, case: Case, path: Path) -> None:
        self._child = os.fork() if case.special == "written pipe" else 0
        if case.special == "written pipe" and not self._child:
            with suppress(OSError):
                path.write_bytes(case.content or b"")
            os._exit(0)

    def end(self) -> None:
        if self._child:
            with suppress(OSError):
                os.kill(self._child, signal.SIGKILL)
                os.waitpid(self._child, 0)


def attempt(form: Format, case: Case, path: Path, watch: Watch) -> Outcome:
    from opcost.errors import OpcostError

    lay(case, path)
    writer = Writer(case, path)
    watch.done, watch.openings, watch.path = [], 0, str(path)
    watch.change_at, watch.change = case.change_at, lambda: path.write_bytes(case.changed)
    before, began = peak(), time.process_time()
    signal.setitimer(signal.ITIMER_REAL, HANGS_AFTER)
    watch.on = True
    try:
        form.read(path, case.given)
        outcome = Outcome("read")
    except OpcostError:
        outcome = Outcome("refused")
    except Hang:
        outcome = Outcome("hang", "".join(traceback.format_exc().splitlines()[-4:]))
    except MemoryError:
        outcome = Outcome("over memory", traceback.format_exc().splitlines()[-3])
    except Exception:  # noqa: BLE001 - what becomes exit code 70
        outcome = Outcome("exit 70", traceback.format_exc())
    finally:
        watch.on = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        writer.end()
    spent, grown = time.process_time() - began, peak() - before
    if watch.done:
        return Outcome("code run", "; ".join(watch.done[:3]))
    if outcome.word in ("read", "refused") and spent > form.seconds:
        return Outcome("hang", f"{spent:.1f} s")
    if grown > MEMORY:
        return Outcome("over memory", f"{grown >> 20} MB")
    return outcome


def warm_up(form: Format, seeds: list[Seed], path: Path) -> None:
    """Load what reading and refusing load, so that afterwards what is loaded and taken is the files' doing."""
    from opcost.errors import OpcostError, nearest

    nearest("name", ["nam"])
    for seed in seeds[:10]:
        path.write_bytes(seed.content)
        form.read(path, seed.given)
        for faulty in (b"", b"\0" * 100, seed.content[:100], seed.content[:-10], b"{}", b"[]"):
            path.write_bytes(faulty)
            with suppress(OpcostError):
                form.read(path, seed.given)
    for special in SPECIAL:
        case = Case(seeds[0].content, seeds[0].given, special)
        lay(case, path)
        writer = Writer(case, path)
        with suppress(OpcostError):
            form.read(path, case.given)
        writer.end()
    lay(Case(None, None, "nothing"), path)


def prepare(form: Format, folder: Path) -> tuple[list[Seed], Path, Watch]:
    warnings.simplefilter("ignore")
    sys.dont_write_bytecode = True
    seeds = list(form.seeds())
    path = folder / form.file
    signal.signal(signal.SIGALRM, _hang)
    signal.setitimer(signal.ITIMER_REAL, 5 * HANGS_AFTER)
    warm_up(form, seeds, path)
    signal.setitimer(signal.ITIMER_REAL, 0)
    mapped = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if sys.platform == "linux" else 0
    )
    if mapped:
        resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESSES, mapped + ADDRESSES))
    return seeds, path, Watch()


def _hang(_signal: int, _frame: object) -> None:
    raise Hang


def run(form: Format, cases: int) -> dict[str, Any]:
    """All cases from the first on; what became of them, and the faulty ones by number."""
    counts: Counter[str] = Counter()
    faults: list[list[Any]] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        seeds, path, watch = prepare(form, Path(folder))
        for number in range(cases):
            outcome = attempt(form, make(form, seeds, number), path, watch)
            counts[outcome.word] += 1
            if outcome.word not in ("read", "refused") and len(faults) < 20:
                faults.append([number, *outcome])
        lay(Case(None, None, "nothing"), path)
    return {"name": form.name, "cases": cases, **counts, "seconds": round(time.monotonic() - began), "faults": faults}


def show_one(form: Format, number: int, keep: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        seeds, path, watch = prepare(form, Path(folder))
        case = make(form, seeds, number)
        if keep is not None:
            keep.write_bytes(case.content or b"")
        print(case._replace(content=(case.content or b"")[:200]))
        print(*attempt(form, case, path, watch), sep="\n")
        lay(Case(None, None, "nothing"), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--case", type=int)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    form = FORMATS[options.format]
    if options.case is not None:
        show_one(form, options.case, options.keep)
    else:
        print(json.dumps(run(form, options.cases)))


if __name__ == "__main__":
    main()
