"""Changed files of every format: each is read or refused, and nothing is run, hangs, or fills the memory.

A sample of every second format runs with the tests; `make fuzz` runs OPCOST_FUZZ cases of each, which begin with the same ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzz_formats import FORMATS
from peak_memory import needs_peak

pytestmark = needs_peak

ALL = "OPCOST_FUZZ" in os.environ
CASES = int(os.environ.get("OPCOST_FUZZ", "60"))
SLOW = ("pt2", "hf")
"""Readers that take ten seconds to load: `make fuzz` alone; test_pt2_safety.py and test_hostile_configs.py change them too."""
WORKER = Path(__file__).with_name("fuzz_worker.py")
FAULTS = ("code run", "exit 70", "hang", "over memory")


@pytest.mark.parametrize("name", FORMATS if ALL else [name for name in FORMATS if name not in SLOW][::2])
def test_a_changed_file_is_read_or_refused(name: str, record_property: Callable[[str, object], None]) -> None:
    command = [sys.executable, str(WORKER), name, "--cases", str(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    record_property("fuzzed", found)
    faults = "\n".join(
        f"{WORKER.name} {name!r} --case {number}: {word}: {text}" for number, word, text in found["faults"]
    )
    assert not any(found.get(word) for word in FAULTS), faults
    assert found["read"] + found["refused"] == CASES
    assert found["read"] >= CASES // 50
    assert found["refused"] >= CASES // 50


READERS = {
    "read": "pass",
    "refused": "raise SourceError('no')",
    "exit 70": "[][0]",
    "code run": "eval('1 + 1')",
    "code run by a shell": "import os; os.system('true')",
    "code run to write": "(path.parent.parent.parent / 'written').open('a')",
    "hang": "while True: pass",
    "hang while it waits": "import time; time.sleep(60)",
    "over memory": "b'x' * (400 << 20)",
}


@pytest.mark.parametrize("word", READERS)
def test_what_a_reader_must_not_do_is_seen(word: str, tmp_path: Path) -> None:
    script = f"""
import sys, tempfile
tempfile.tempdir = {str(tmp_path)!r}
import fuzz_worker
from fuzz_formats import Format, Seed
from opcost.errors import SourceError
from pathlib import Path
fuzz_worker.HANGS_AFTER = 3
warm = True
def read(path, given):
    if not warm:
        {READERS[word]}
form = Format(name="x", file="x", seeds=lambda: [Seed(b"x" * 100)], changes=(lambda data, rng: data,), read=read)
seeds, path, watch = fuzz_worker.prepare(form, Path(tempfile.mkdtemp()))
tempfile.tempdir = str(path.parent)
warm = False
print(fuzz_worker.attempt(form, fuzz_worker.Case(b"x", None), path, watch).word)
"""
    path = os.pathsep.join((str(WORKER.parent), *sys.path))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split("\n")[0] == next(
        known for known in ("read", "refused", *FAULTS) if word.startswith(known)
    ), done


def test_a_case_depends_on_its_number_alone() -> None:
    import fuzz_worker

    for form in [*FORMATS.values()][:: 1 if ALL else 7]:
        seeds = list(form.seeds())
        assert fuzz_worker.make(form, seeds, 7) == fuzz_worker.make(form, list(form.seeds()), 7)
