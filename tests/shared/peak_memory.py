"""How much memory this process takes, as Linux counts it.

`getrusage` would not do: its peak is that of the whole life of a process, even of the one that it was forked from, so that
nothing below that is seen in a long run of tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_STATUS = Path("/proc/self/status")

needs_peak = pytest.mark.skipif(not _STATUS.exists(), reason="the peak of a process is read from /proc")


def peak() -> int:
    """The most bytes that were resident since the process began, or since the mark was put back."""
    return _status_bytes("VmHWM:")


@contextmanager
def rises_by_less_than(limit: int) -> Iterator[None]:
    """Fail if the block below takes more bytes than this beyond those that are taken now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _status_bytes("VmRSS:")
    yield
    rise = peak() - before
    assert rise < limit, f"memory rose by {rise:,} bytes"


def _status_bytes(name: str) -> int:
    return 1024 * int(_STATUS.read_text(encoding="ascii").partition(name)[2].split()[0])
