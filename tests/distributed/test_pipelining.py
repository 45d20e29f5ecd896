"""Which stages are where, which blocks they have, and into what a batch is split."""

from __future__ import annotations

from typing import Any

import pytest

from opcost.core.order import StageEvent, most_in_flight
from opcost.distributed.mesh import Mesh
from opcost.distributed.pipelining import SCHEDULES, Pipelining, blocks_of_stages
from opcost.distributed.sharding import Sharding
from opcost.errors import InputError, UnknownName


@pytest.mark.parametrize(
    ("blocks", "sizes"),
    [
        (8, [2, 2, 2, 2]),
        (4, [1, 1, 1, 1]),
        (126, [15, 16, 16, 16, 16, 16, 16, 15]),  # Llama 3 405B, as torchtitan splits it
        (10, [2, 3, 3, 2]),
        (7, [4, 3]),  # the last stage also has the head, which is the larger one
        (9, [2, 3, 2, 2]),
    ],
)
def test_stages_have_equal_blocks_and_those_at_the_ends_less(blocks: int, sizes: list[int]) -> None:
    found = blocks_of_stages(blocks, len(sizes))
    assert [len(each) for each in found] == sizes
    assert [number for each in found for number in each] == list(range(blocks))


def test_more_stages_than_blocks() -> None:
    with pytest.raises(InputError, match="3 blocks cannot be split into 4 stages") as caught:
        blocks_of_stages(3, 4)
    assert caught.value.hint == "up to 3 stages"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_stage_is_on_one_rank(schedule: str) -> None:
    pipelining, ranks = Pipelining(schedule=schedule), 4
    of_rank = [pipelining.stages(rank, ranks) for rank in range(ranks)]
    assert sorted(stage for stages in of_rank for stage in stages) == list(range(ranks * pipelining.per_rank))
    assert all(pipelining.rank_of(stage, ranks) == rank for rank, stages in enumerate(of_rank) for stage in stages)


def test_stages_of_a_folded_pipeline_come_back() -> None:
    assert [Pipelining(schedule="zero-bubble-v").stages(rank, 4) for rank in range(4)] == [
        (0, 7),
        (1, 6),
        (2, 5),
        (3, 4),
    ]
    assert Pipelining(schedule="interleaved-1f1b", stages_per_rank=3).stages(1, 4) == (1, 5, 9)


@pytest.mark.parametrize(("batch", "microbatches"), [(8, 8), (16, 8), (12, 6), (7, 7), (3, 3), (22, 11)])
def test_a_batch_is_split_into_twice_as_many_parts_as_ranks_or_nearly(batch: int, microbatches: int) -> None:
    assert Pipelining().split(batch, 4) == microbatches


def test_a_batch_that_microbatches_do_not_divide() -> None:
    assert Pipelining(microbatches=5).split(10, 4) == 5
    with pytest.raises(InputError, match="a batch of 10 cannot be split into 4 equal microbatches"):
        Pipelining(microbatches=4).split(10, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"microbatches": 0}, "microbatches is 0"),
        ({"stages_per_rank": True}, "stages_per_rank is True"),
        ({"stages_per_rank": 2}, "1f1b has 1 stages on each rank, not 2"),
        ({"schedule": "gpipe", "stages_per_rank": 2}, "gpipe has 1 stages on each rank, not 2"),
        ({"schedule": "zero-bubble-v", "stages_per_rank": 3}, "zero-bubble-v has 2 stages on each rank, not 3"),
    ],
)
def test_choices_that_do_not_go_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pipelining(**options)


def test_a_schedule_that_is_not_known() -> None:
    with pytest.raises(UnknownName, match="did you mean 'interleaved-1f1b'"):
        Pipelining(schedule="interleaved")


@pytest.mark.parametrize(
    ("mesh", "options", "message"),
    [
        ("fsdp=4", {"pipelining": Pipelining(microbatches=4)}, "the mesh has no axis pp"),
        ("pp=2,replicate=2", {}, "DistributedDataParallel"),
        ("pp=2,cp=2", {}, r"context parallelism \(cp\) is not counted in a pipeline"),
        ("pp=2,fsdp=1,ep=2", {}, r"expert parallelism \(ep\) is not counted in a pipeline"),
        (
            "pp=2,tp=2",
            {"sequence": True, "pipelining": Pipelining(schedule="zero-bubble")},
            "zero-bubble does not run backward through parts of the sequence",
        ),
        ("pp=2,fsdp=2", {"pipelining": Pipelining(schedule="zero-bubble")}, "after a stage has freed them"),
    ],
)
def test_layouts_that_are_refused(mesh: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sharding(mesh=Mesh.of(mesh), **options)


def test_microbatches_in_flight() -> None:
    forward, backward = (lambda number, kind=kind: StageEvent(kind, 0, number) for kind in ("forward", "backward"))
    assert most_in_flight([forward(0), forward(1)]) == 1
    one_by_one = [forward(0), backward(0), forward(1), backward(1)]
    assert most_in_flight(one_by_one) == 1
    assert most_in_flight([forward(0), forward(1), backward(0), forward(2), backward(1), backward(2)]) == 2
    deferred = [
        forward(0),
        StageEvent("input", 0, 0),
        forward(1),
        StageEvent("input", 0, 1),
        StageEvent("weight", 0, 0),
    ]
    assert most_in_flight(deferred) == 2
