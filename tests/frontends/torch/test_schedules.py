"""A pipeline that its user has put in a schedule is counted as it is: what one rank runs, sends and stores.

One process is a rank of a fake process group, which sends nothing, but whose tensors have real memory where a step is run for
comparison. PyTorch's schedules run, in a count and for real.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from live_storages import LiveStorages
from torch import Tensor, nn

import opcost
from opcost.core.report import Report
from opcost.errors import InputError

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.pipelining import PipelineStage, schedules  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

FLOAT = 4
B, D, H = 2, 64, 256  # a microbatch, and the widths of the two layers of a block
BLOCKS = 2  # of each stage
WEIGHTS = BLOCKS * (2 * D * H + D + H)
MACS = BLOCKS * 2 * B * D * H  # of a microbatch forward
ROW = B * D * FLOAT  # what a stage sends of a microbatch


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(D, H), nn.Linear(H, D)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


def squares(y: Tensor, target: Tensor) -> Tensor:
    """The mean square in plain operators: the fused one has a scratch tensor on the CPU."""
    return (y - target).pow(2).mean()


class Pipeline:
    """One rank of a pipeline of equal stages, whose parameters may be sharded over two ranks."""

    def __init__(
        self, kind: str, rank: int, ranks: int, microbatches: int, *, shards: int = 1, reshard: bool = False
    ) -> None:
        made = schedules.get_schedule_class(kind)
        per_rank = 2 if issubclass(made, schedules.PipelineScheduleMulti) else 1
        mesh = init_device_mesh("cpu", (ranks, shards), mesh_dim_names=("pp", "fsdp"))
        numbers = [rank + ranks * local for local in range(per_rank)]
        if made is schedules.ScheduleZBVZeroBubble:
            numbers[1] = 2 * ranks - 1 - rank
        self.stages = [self._stage(number, per_rank * ranks, mesh, shards, reshard) for number in numbers]
        stages: Any = self.stages if per_rank > 1 else self.stages[0]
        self.schedule = made(stages, microbatches, loss_fn=squares)
        whole = torch.ones(microbatches * B, D)
        self.args = (whole,) if any(stage.is_first for stage in self.stages) else ()
        self.kwargs = {"target": torch.ones(microbatches * B, D)} if any(s.is_last for s in self.stages) else {}

    @staticmethod
    def _stage(number: int, stages: int, mesh: Any, shards: int, reshard: bool) -> Any:
        net = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        for part in (*net, net) if shards > 1 else ():
            fully_shard(part, mesh=mesh["fsdp"], reshard_after_forward=reshard)
        ends = torch.empty(B, D, requires_grad=number > 0), torch.empty(B, D, requires_grad=True)
        group = mesh.get_group("pp")
        return PipelineStage(net, number, stages, torch.device("cpu"), *ends, group=group)

    def count(self, **options: Any) -> Report:
        return opcost.count(self.schedule, self.args, kwargs=self.kwargs, **options)

    def parameters(self) -> list[nn.Parameter]:
        return [parameter for stage in self.stages for parameter in stage.submod.parameters()]

    def received(self) -> list[Tensor]:
        infos = [info for s in self.stages for each in (s.args_recv_info, s.grad_recv_info) for info in each.values()]
        return [one.buffer for info in infos for one in info if one.buffer is not None]

    def measured(self) -> int:
        """The peak of live storages in a second step."""
        for _ in range(2):
            for parameter in self.parameters():
                parameter.grad = None
            local = [getattr(parameter, "_local_tensor", parameter) for parameter in self.parameters()]
            with LiveStorages(local, self.args, self.kwargs, self.received()) as live:
                self.schedule.step(*self.args, **self.kwargs)
        return live.peak


@contextmanager
def as_rank(rank: int, ranks: int, shards: int = 1) -> Iterator[None]:
    """The rank of a pipeline, with neighbours that shard its parameters."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank * shards, world_size=ranks * shards)
    try:
        yield
    finally:
        dist.destroy_process_group()


def sent(report: Report) -> dict[tuple[str, str], tuple[int, int, set[int]]]:
    """Messages of each type and phase: how many, their bytes, and to or from which ranks."""
    found: dict[tuple[str, str], tuple[int, int, set[int]]] = {}
    for row in report.rows:
        if row.op.attrs.get("fn") in ("send", "recv"):
            assert row.op.attrs["axis"] == "pp"
            key = str(row.op.attrs["fn"]), str(row.op.phase)
            calls, nbytes, peers = found.get(key, (0, 0, set()))
            found[key] = calls + 1, nbytes + row.ins[0].nbytes, {*peers, int(row.op.attrs["peer"])}  # type: ignore[call-overload]
    return found


@pytest.mark.parametrize("rank", [0, 3, 7])
def test_every_microbatch_passes_each_stage_forward_and_its_gradient_back(rank: int) -> None:
    stages, microbatches = 8, 16
    with as_rank(rank, stages):
        report = Pipeline("1F1B", rank, stages, microbatches).count()
    message = microbatches, microbatches * ROW
    expected = {}
    if rank > 0:
        expected |= {("recv", "forward"): (*message, {rank - 1}), ("send", "backward"): (*message, {rank - 1})}
    if rank < stages - 1:
        expected |= {("send", "forward"): (*message, {rank + 1}), ("recv", "backward"): (*message, {rank + 1})}
    assert sent(report) == expected
    assert report.totals.params == WEIGHTS
    assert report.phases["forward"].macs == microbatches * MACS
    inputs = rank > 0  # the first layer of the first stage has no gradient of its input to compute
    assert report.phases["backward"].macs == microbatches * (2 * MACS - (0 if inputs else B * D * H))


KINDS = ["1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rank", [0, 2, 3])
@pytest.mark.parametrize(
    "sharding", [{}, {"shards": 2}, {"shards": 2, "reshard": True}], ids=["whole", "kept", "reshard"]
)
def test_memory_is_that_of_live_storages(
    kind: str, rank: int, sharding: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with as_rank(rank, 4, sharding.get("shards", 1)):
        pipeline = Pipeline(kind, rank, 4, 8, **sharding)
        memory = pipeline.count().known_memory()
        monkeypatch.setattr(schedules._PipelineSchedule, "_warmup_p2p", static_shapes)
        assert memory.peak_bytes == pipeline.measured()
        again = pipeline.count().known_memory()  # what is received is there now
    assert again.peak_bytes == memory.peak_bytes


def static_shapes(_: Any, stages: Any, *__: Any) -> None:
    """In place of a vote of all stages, whose answers a fake group does not have."""
    for stage in stages:
        stage._inference_mode = schedules.InferenceMode.STATIC


def test_as_many_microbatches_as_stages_after_it_are_in_flight() -> None:
    """Of each that is, a block keeps its hidden row and its output. The stage receives each into memory of its own."""
    received, kept = 2 * ROW, BLOCKS * B * (D + H) * FLOAT

    def peak(kind: str, rank: int, microbatches: int) -> int:
        with as_rank(rank, 4):
            memory = Pipeline(kind, rank, 4, microbatches).count().known_memory()
        assert memory.parts["received"] == microbatches * received  # tensors and their gradients
        return memory.peak_bytes

    assert peak("GPipe", 1, 9) - peak("GPipe", 1, 8) == received + kept
    assert peak("1F1B", 1, 9) - peak("1F1B", 1, 8) == received
    assert peak("1F1B", 1, 8) - peak("1F1B", 2, 8) == kept


def test_gradients_are_added_up_and_the_update_follows() -> None:
    microbatches = 8
    with as_rank(1, 4):
        report = Pipeline("1F1B", 1, 4, microbatches).count(optimizer="sgd")
    by_operator = {row: [r for r in report.rows if r.op.raw == row] for row in ("aten::add_", "aten::div_")}
    sums = [row for row in by_operator["aten::add_"] if row.op.phase == "backward"]
    assert sum(row.cost.flops for row in sums if row.cost) == (microbatches - 1) * WEIGHTS
    assert {row.op.module for row in sums} == {f"{block}.{layer}" for block in "01" for layer in ("up", "down")}
    scaled = [row for row in by_operator["aten::div_"] if row.op.phase == "backward"]
    assert sum(row.cost.flops for row in scaled if row.cost) == WEIGHTS  # the loss is an average
    assert report.phases["update"].flops == 2 * WEIGHTS


def test_deferred_gradients_of_weights_are_the_same_work() -> None:
    found = {}
    for kind in ("Interleaved1F1B", "InterleavedZeroBubble"):
        with as_rank(1, 4):
            found[kind] = Pipeline(kind, 1, 4, 8).count()
    first, other = found.values()
    assert first.phases["backward"].macs == other.phases["backward"].macs == 8 * 2 * 2 * MACS


def test_the_schedule_and_its_stages_stay_as_they_were() -> None:
    with as_rank(0, 4):
        pipeline = Pipeline("1F1B", 0, 4, 8)
        parameters = pipeline.parameters()
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        gradients, before = [p.grad for p in parameters], {**vars(pipeline.stages[0])}
        pipeline.count(optimizer="adamw")
        assert all(p.grad is g and bool((g == 1).all()) for p, g in zip(parameters, gradients, strict=True))
        assert vars(pipeline.stages[0]) == before
        assert not pipeline.schedule._stage_forward_initialized


def test_a_function_that_steps_the_schedule_is_counted_as_the_schedule() -> None:
    with as_rank(0, 4):
        pipeline = Pipeline("1F1B", 0, 4, 8)
        x = pipeline.args[0].clone().requires_grad_()

        def step(x: Tensor) -> Tensor:
            pipeline.schedule.step(x.detach())
            return x * 1

        by_function = opcost.count(step, x, backward=True)
        assert sent(by_function) == sent(pipeline.count())


def test_a_schedule_without_a_loss_runs_forward_alone() -> None:
    with as_rank(1, 4):
        pipeline = Pipeline("1F1B", 1, 4, 8)
        pipeline.schedule._loss_fn, pipeline.schedule._has_backward = None, False
        report = pipeline.count()
        with pytest.raises(InputError, match="the schedule has no loss"):
            pipeline.count(optimizer="adamw")
    assert report.phases.keys() == {"forward"}
    assert sent(report) == {("recv", "forward"): (8, 8 * ROW, {0}), ("send", "forward"): (8, 8 * ROW, {2})}


def test_a_stage_that_would_ask_its_neighbours_for_shapes() -> None:
    with as_rank(1, 4):
        stage = PipelineStage(nn.Linear(D, D), 1, 4, torch.device("cpu"))
        with pytest.raises(InputError, match="stage 1 does not know the shapes") as caught:
            opcost.count(schedules.Schedule1F1B(stage, 4, loss_fn=nn.functional.mse_loss))
    assert "input_args" in caught.value.hint


def test_what_would_change_the_stages_is_refused() -> None:
    with as_rank(0, 4):
        pipeline = Pipeline("1F1B", 0, 4, 8)
        for options in ({"dtype": "bf16"}, {"shapes": (8, D)}, {"freeze": "0"}):
            with pytest.raises(InputError, match="counted as it is"):
                opcost.count(pipeline.schedule, **options)
