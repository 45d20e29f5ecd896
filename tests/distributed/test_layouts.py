"""Which layouts of a number of GPUs are sensible, derived by hand."""

from __future__ import annotations

from typing import Any

import pytest

from opcost.distributed.clusters import Cluster
from opcost.distributed.layouts import Layout, Space, check_space, divisors, layouts
from opcost.distributed.mesh import Mesh
from opcost.errors import InputError

NODES = Cluster.of("8 per node, nvlink 450GB/s, network 50GB/s per gpu")


def meshes(**options: Any) -> set[str]:
    return {str(layout.mesh) for layout in layouts(Space(cluster=NODES, **options))[0]}


def test_divisors() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]


def test_meshes_of_four_gpus() -> None:
    """Each product of three factors of 4, without copies of the whole model that tensor parallelism spreads."""
    assert meshes(gpus=4, samples=8) == {
        "replicate=4", "replicate=2,fsdp=2", "fsdp=4", "fsdp=2,tp=2", "tp=4",
    }  # fmt: skip
    _, left_out = layouts(Space(4, NODES, 8))
    assert left_out == ["1 mesh left out: DistributedDataParallel takes no tensor parallelism"]  # replicate=2,tp=2


def test_tensor_parallelism_stays_in_a_node() -> None:
    assert {Mesh.of(mesh).tp for mesh in meshes(gpus=32, samples=64)} == {1, 2, 4, 8}


def test_samples_are_shared_evenly() -> None:
    """Twelve samples are shared by 4 ranks of data parallelism, not by 8."""
    assert meshes(gpus=8, samples=12) == {"replicate=2,fsdp=2,tp=2", "fsdp=4,tp=2", "fsdp=2,tp=4", "tp=8"}


def test_copies_are_whole_nodes_or_equal_parts_of_one() -> None:
    """Of 24 GPUs a copy of 12 would be a node and a half, and one of 3 or 6 no equal part of a node."""
    found = {mesh for mesh in meshes(gpus=24, samples=24, fixed={"tp": 1}) if "replicate" in mesh and "fsdp" in mesh}
    assert found == {"replicate=12,fsdp=2", "replicate=6,fsdp=4", "replicate=3,fsdp=8"}


def test_microbatches_divide_what_a_rank_has() -> None:
    """Of 24 samples on 4 ranks each has 6: 6 passes of 1, 3 of 2, 2 of 3 or 1 of 6."""
    found, _ = layouts(Space(4, NODES, 24, ("none",), {"fsdp": 4}))
    passes = {(layout.passes, layout.batch) for layout in found}
    assert passes == {(6, 1), (3, 2), (2, 3), (1, 6)}
    assert len(found) == 4 * 2  # with and without gathers in the backward pass
    assert {layout.batch for layout in layouts(Space(4, NODES, 24, batch=3))[0]} == {3}


def test_without_shards_nothing_is_gathered_again() -> None:
    found, _ = layouts(Space(4, NODES, 4, ("none",), {"replicate": 4}))
    assert found == [Layout(mesh=Mesh(replicate=4), batch=1, passes=1)]


def test_a_layout_in_words() -> None:
    layout = Layout(mesh=Mesh(fsdp=4, tp=2), batch=2, passes=3, checkpoint="full", reshard=False)
    assert str(layout) == "fsdp=4,tp=2, 3 × 2 samples, checkpoint full, no reshard"


@pytest.mark.parametrize(
    ("gpus", "smaller"), [(64, 32), (24, 16), (16, 8), (8, 4), (40, 32), (6, 3), (3, None), (2, None), (1, None)]
)
def test_the_next_smaller_cluster(gpus: int, smaller: int | None) -> None:
    """Half of it, or where that is no number of whole nodes, one node less."""
    assert Space(gpus, NODES, 64).smaller == smaller


def test_gpus_that_are_no_whole_nodes() -> None:
    with pytest.raises(InputError, match="12 GPUs are not whole nodes") as caught:
        check_space(Space(12, NODES, 64))
    assert caught.value.hint == "gpus=8 or gpus=16"
    check_space(Space(6, NODES, 64))


def test_parts_of_the_sequence_and_experts_only_where_they_are_fixed() -> None:
    """Beside two ranks for parts of the sequence four are left; parameters are sharded over all that share them."""
    assert {(Mesh.of(mesh).cp, Mesh.of(mesh).ep) for mesh in meshes(gpus=8, samples=8)} == {(1, 1)}
    assert meshes(gpus=8, samples=8, fixed={"cp": 2, "tp": 1}) == {
        "fsdp=4,cp=2", "replicate=2,fsdp=2,cp=2", "fsdp=1,replicate=4,cp=2",
    }  # fmt: skip
    assert meshes(gpus=8, samples=8, fixed={"ep": 3}) == set()
