"""A dump of 45 MB is little work: its weights are listed and not loaded."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path

import pytest
from work import calls

import opcost

pytest.importorskip("flatbuffers")
sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from made_files import SMALL_DUMP, ResNet18

CALLS = 200_000
"""Twice what it takes now, a tenth of a second."""


def resnet18() -> tuple[int, int]:
    """Parameters and multiply-adds of the full net on an image of 224 x 224."""
    params, macs = 0, 0
    layers = [(3, 64, 7, 112), (64, 64, 3, 56), (64, 64, 3, 56), (64, 64, 3, 56), (64, 64, 3, 56)]
    for channels, size in ((128, 28), (256, 14), (512, 7)):
        layers += [(channels // 2, channels, 3, size), *[(channels, channels, 3, size)] * 3]
        layers.append((channels // 2, channels, 1, size))
    for before, after, kernel, size in layers:
        params += before * after * kernel**2 + 2 * after  # the filter, and the norm after it
        macs += before * after * kernel**2 * size**2
    return params + 512 * 1000 + 1000, macs + 512 * 1000


def test_a_full_resnet18_is_read_and_counted_with_little_work_and_memory(tmp_path: Path) -> None:
    path = tmp_path / "resnet18.mge"
    net = ResNet18()
    net.dump.write(path, net.result)
    assert path.stat().st_size > 46_000_000
    opcost.count(SMALL_DUMP)  # imports and tables are start-up
    report = opcost.count(path)
    assert report.coverage.complete
    assert (report.totals.params, report.totals.macs) == resnet18()
    assert report.outputs[0].dims == (1, 1000)
    tracemalloc.start()
    try:
        assert calls(lambda: opcost.count(path)) < CALLS
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
