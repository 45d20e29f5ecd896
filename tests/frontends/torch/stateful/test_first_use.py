"""The first use of an entry point in a process may import more of torch; that too leaves the process as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from stateful.entry_points import ENTRY_POINTS

PROGRAM = """
import sys, os, warnings
sys.path.insert(0, {folder!r})
from stateful import process
from stateful.entry_points import call
from stateful.registry import made
with made("caches", "KeysInBuffers") as twin:
    twin()
    given = twin.case.inputs()
    before = process.look()
    for entry in {entries!r}:
        call(entry, twin.model, given)
        after = process.look()
        print([(entry, name, str(after[name])[:300]) for name in before if before[name] != after[name]])
"""


def test_the_first_use_in_a_process_leaves_its_switches_alone() -> None:
    program = PROGRAM.format(folder=str(Path(__file__).parents[1]), entries=list(ENTRY_POINTS))
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [line for line in found.stdout.splitlines() if line.startswith("[")] == ["[]"] * len(ENTRY_POINTS)
