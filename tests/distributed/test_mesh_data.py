"""A mesh is read from text, says where each rank is, and refuses what it cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.distributed.mesh import Mesh
from opcost.distributed.sharding import Sharding, plan_of
from opcost.errors import InputError, UnknownName


def test_a_mesh_is_public() -> None:
    assert opcost.Mesh is Mesh


def test_text_and_mapping_describe_a_mesh() -> None:
    wanted = Mesh(fsdp=128, tp=8)
    assert (
        Mesh.of("dp=128,tp=8")
        == Mesh.of(" tp = 8, fsdp=128 ")
        == Mesh.of({"dp": 128, "tp": 8})
        == Mesh.of(wanted)
        == wanted
    )
    assert str(wanted) == "fsdp=128,tp=8"
    assert str(Mesh()) == "1 rank"


def test_the_axes_are_in_order_and_those_of_one_rank_are_left_out() -> None:
    mesh = Mesh(tp=8, replicate=2, fsdp=4, pp=3)
    assert list(mesh.shape.items()) == [("pp", 3), ("replicate", 2), ("fsdp", 4), ("tp", 8)]
    assert mesh.size == 3 * 2 * 4 * 8


def test_ranks_count_along_the_last_axis_first() -> None:
    mesh = Mesh(replicate=2, fsdp=4, tp=8)
    assert mesh.coordinates(0) == {"replicate": 0, "fsdp": 0, "tp": 0}
    assert mesh.coordinates(1 * 32 + 2 * 8 + 5) == {"replicate": 1, "fsdp": 2, "tp": 5}
    assert [*mesh.group(53, "tp")] == [48, 49, 50, 51, 52, 53, 54, 55]
    assert [*mesh.group(53, "fsdp")] == [37, 45, 53, 61]
    assert [*mesh.group(53, "replicate")] == [21, 53]


@pytest.mark.parametrize("rank", range(24))
def test_every_rank_is_in_its_own_groups_once(rank: int) -> None:
    mesh = Mesh(pp=2, fsdp=3, tp=4)
    for axis, size in mesh.shape.items():
        group = mesh.group(rank, axis)
        assert len(group) == size
        assert group[mesh.coordinates(rank)[axis]] == rank


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("tpp=8", "did you mean 'tp'"),
        ("tp", "describes no mesh"),
        ("tp=two", "describes no mesh"),
        ("", "names no axis"),
        ("dp=2,fsdp=4", "gives fsdp twice"),
        ({"tp": 0}, "tp of a mesh is 0"),
        ({"tp": 2.0}, "tp of a mesh is 2.0"),
        (8, "describes no mesh"),
    ],
)
def test_what_is_no_mesh(given: Any, message: str) -> None:
    with pytest.raises((InputError, UnknownName), match=message):
        Mesh.of(given)


def test_a_rank_lies_in_the_mesh() -> None:
    with pytest.raises(InputError, match="the mesh has 16 ranks"):
        Sharding(mesh=Mesh(fsdp=2, tp=8), rank=16)


@pytest.mark.parametrize(
    ("mesh", "gathers"),
    [({"fsdp": 2}, True), ({"fsdp": 1, "cp": 4}, True), ({"fsdp": 1, "ep": 4}, True), ({"fsdp": 1, "tp": 4}, False),
     ({"cp": 4, "ep": 2}, False), ({"replicate": 8}, False)],
)  # fmt: skip
def test_parameters_are_sharded_where_the_mesh_says_so(mesh: dict[str, int], gathers: bool) -> None:
    """Over the ranks of context and expert parallelism too, which have tokens of their own; `fsdp=1` over these alone."""
    assert Sharding(mesh=Mesh(**mesh)).gathers is gathers


def test_axes_that_are_taken_together() -> None:
    mesh = Mesh(replicate=2, fsdp=3, cp=2, tp=4)
    assert mesh.along("fsdp_cp") == 6
    assert [*mesh.group(1, "fsdp_cp")] == [1, 5, 9, 13, 17, 21]
    assert [*mesh.group(1, "replicate_fsdp_cp")] == [*range(1, 48, 4)]
    assert [*mesh.group(1, "ep")] == [1]
    sharding = Sharding(mesh=mesh)
    assert (sharding.along("fsdp", "cp", "ep"), sharding.along("ep")) == ("fsdp_cp", "")
    assert str(Mesh(fsdp=1, cp=4)) == "fsdp=1,cp=4"
    assert Mesh.of("fsdp=1,cp=4") == Mesh(fsdp=1, cp=4) != Mesh(cp=4)
    assert Mesh(fsdp=1).size == Mesh().size == 1


def test_copies_of_a_whole_model_have_no_tensor_parallelism() -> None:
    for mesh in (Mesh(replicate=2, tp=2), Mesh(cp=2, tp=2)):
        Sharding(mesh=mesh).check(trains=False, caches=False)
        with pytest.raises(InputError, match="takes no tensor parallelism"):
            Sharding(mesh=mesh).check(trains=True, caches=False)


def test_a_plan_is_a_mapping_or_a_file(tmp_path: Path) -> None:
    plan = {"layers.*.wq": "colwise", "layers.*.wo": "rowwise"}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    assert plan_of(plan) == plan_of(file) == plan_of(str(file)) == plan
    with pytest.raises(UnknownName, match="did you mean 'colwise'"):
        plan_of({"layers.*.wq": "columnwise"})
    with pytest.raises(InputError, match=r"the plan .*none\.json cannot be read"):
        plan_of(tmp_path / "none.json")
    with pytest.raises(InputError, match="no axis tp"):
        Sharding(mesh=Mesh(fsdp=2), plan=plan)
