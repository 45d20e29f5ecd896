"""Traces of real processes with gloo between them: what they sent is what each of the models has to send."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

dist = pytest.importorskip("torch.distributed")
if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("PyTorch without gloo", allow_module_level=True)

import torch.multiprocessing  # noqa: E402
from rank_runs import LIMIT, B, D, H  # noqa: E402
from rank_traces import MICROBATCHES, STEPS, record_rank  # noqa: E402

from opcost.profiles import askable  # noqa: E402
from opcost.traces.ranks import read_ranks  # noqa: E402

BLOCK = 4 * (D * H + H + H * D + D)
"""Bytes of the parameters of one of three blocks."""
BLOCKS = 3


@pytest.fixture(scope="module", params=[2, 4])
def recorded(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """The number of ranks, and the folder with the traces of each run."""
    ranks, folder = request.param, tmp_path_factory.mktemp("traces")
    processes = torch.multiprocessing.spawn(record_rank, (ranks, str(folder)), nprocs=ranks, join=False)
    end = time.monotonic() + LIMIT.total_seconds()
    try:
        while not processes.join(timeout=1):
            assert time.monotonic() < end, f"{ranks} processes did not end within {LIMIT}"
    finally:
        for process in processes.processes:
            process.kill()
    return ranks, folder


def sent(folder: Path, kinds: set[str]) -> list[tuple[int | None, int]]:
    """Bytes and number of the collectives of these types."""
    lines = askable(read_ranks([folder], cache="none", workers=1)).communication()["collectives"]
    return sorted((line["bytes"], line["calls"]) for line in lines if line["collective"] in kinds)


@pytest.mark.slow
def test_data_parallel_ranks_sum_all_gradients_in_every_step(recorded: tuple[int, Path]) -> None:
    ranks, folder = recorded
    found = sent(folder / "ddp", {"all_reduce"})
    assert sum(calls for _, calls in found) > STEPS * ranks  # buckets
    assert sum(size * calls for size, calls in found if size) == STEPS * ranks * BLOCKS * BLOCK
    sheet = askable(read_ranks([folder / "ddp"], cache="none", workers=1)).communication()
    assert {line["ranks"] for line in sheet["collectives"]} == {ranks}
    assert {line["rank"] for line in sheet["ranks"]} == set(range(ranks))
    # In each collective at least the one that comes last waits for no other
    assert all(0 <= line["waiting"] < line["collectives"] for line in sheet["ranks"])
    assert sum(line["last"] for line in sheet["ranks"]) > 0


@pytest.mark.slow
def test_fully_sharded_ranks_gather_each_block_twice_and_sum_it_once(recorded: tuple[int, Path]) -> None:
    ranks, folder = recorded
    assert sent(folder / "fsdp", {"all_gather"}) == [(BLOCK, 2 * BLOCKS * STEPS * ranks)]
    assert sent(folder / "fsdp", {"reduce_scatter", "all_reduce"}) == [(BLOCK, BLOCKS * STEPS * ranks)]


@pytest.mark.slow
def test_stages_send_every_microbatch_on_and_its_gradient_back(recorded: tuple[int, Path]) -> None:
    ranks, folder = recorded
    microbatch, messages = 4 * B // MICROBATCHES * D, 2 * (ranks - 1) * MICROBATCHES * STEPS
    for kind in ("send", "recv"):
        assert sent(folder / "pp", {kind}) == [(microbatch, messages)]
    profile = askable(read_ranks([folder / "pp"], cache="none", workers=1))
    assert not profile.communication()["ranks"]  # of messages it is not known who waited
