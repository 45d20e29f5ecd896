"""Real processes: what each of several ranks sends, and the peak of its live storages, are what a count of that rank says."""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing
from rank_runs import LAYOUTS, LIMIT, MODELS, counted, run_rank

dist = pytest.importorskip("torch.distributed")
if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("PyTorch without gloo", allow_module_level=True)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What all ranks found, by their number."""

    @cache
    def run(ranks: int) -> list[dict[str, Any]]:
        folder = tmp_path_factory.mktemp("ranks")
        processes = torch.multiprocessing.spawn(run_rank, (ranks, str(folder)), nprocs=ranks, join=False)
        end = time.monotonic() + LIMIT.total_seconds()
        try:
            while not processes.join(timeout=1):
                assert time.monotonic() < end, f"{ranks} processes did not end within {LIMIT}"
        finally:
            for process in processes.processes:
                process.kill()
        return [json.loads(Path(folder, f"{rank}.json").read_text(encoding="utf-8")) for rank in range(ranks)]

    return run


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_each_rank_sends_and_stores_what_was_counted(found: Any, ranks: int, model: str) -> None:
    for rank, result in enumerate(found(ranks)):
        peak, sent = result[model]["measured"]
        counted_peak, counted = result[model]["counted"]
        assert (rank, counted) == (rank, sent)
        assert (rank, counted_peak) == (rank, peak)
        assert {group for _, _, group, _ in sent} == {ranks}


CASES = [
    (ranks, layout)
    for ranks in (2, 4, 8)
    for layout in LAYOUTS
    if LAYOUTS[layout].least <= ranks <= LAYOUTS[layout].most
]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "layout"), CASES)
def test_each_rank_of_a_mesh_sends_and_stores_what_was_counted(found: Any, ranks: int, layout: str) -> None:
    """Spread by hand and run for real, against a count of the model alone, with a mesh."""
    each = LAYOUTS[layout]
    model, mesh = each.model(), each.mesh.format(ranks=ranks, half=ranks // 2)
    for rank, result in enumerate(found(ranks)):
        peak, sent = result[layout]["measured"]
        counted_peak, counted_sent = counted(model, each.given, mesh=mesh, rank=rank, **each.options)
        assert (rank, [list(each) for each in counted_sent]) == (rank, sent)
        assert (rank, counted_peak) == (rank, peak)
