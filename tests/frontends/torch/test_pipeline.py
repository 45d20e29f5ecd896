"""`mesh="pp=..."` counts one rank of a pipeline: the model's own forward cut into stages, run by PyTorch's schedule.

Together the stages do the work of the whole model, once for each microbatch; what a rank sends, stores and adds up is derived
below, and equals that of a pipeline made by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pytest
import torch
from sampling import sampled
from torch import Tensor, nn

import opcost
from opcost.core import schema
from opcost.core.alignment import NotRepeating
from opcost.core.report import Report, Row
from opcost.errors import InputError
from opcost.frontends.torch.sharding import pipeline

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.pipelining import PipelineStage, schedules  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

FLOAT = 4
D, H = 16, 32
WORDS, S = 64, 8
BLOCK = 2 * D * H + H + D  # parameters
MACS = 2 * D * H  # of a block, for each row


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(D, H), nn.Linear(H, D)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


def stack(blocks: int = 8) -> nn.Module:
    return nn.Sequential(*(Block() for _ in range(blocks)))


class Turned(Block):
    def forward(self, x: Tensor, turns: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x * turns)


class Decoder(nn.Module):
    """What is before the blocks, a table without parameters that each block reads, and what is after them."""

    def __init__(self, layers: int = 8, *, tied: bool = False) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, D), nn.Parameter(torch.zeros(S, D))
        self.layers = nn.ModuleList(Turned() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, WORDS, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) * 4 + self.places
        turns = torch.arange(S * D, dtype=torch.float32).view(S, D).cos()
        for layer in self.layers:
            x = layer(x, turns)
        return self.head(self.norm(x))


TOKENS = torch.zeros(16, S, dtype=torch.long)
ROWS = torch.ones(16, D)


def sent(report: Report) -> dict[tuple[str, str], tuple[int, int, set[Any]]]:
    """Messages of each type and phase: how many, their bytes, and to or from which ranks."""
    found: dict[tuple[str, str], tuple[int, int, set[Any]]] = {}
    for row in report.rows:
        if row.op.attrs.get("fn") in ("send", "recv"):
            assert (row.op.attrs["axis"], row.op.attrs["group"]) == ("pp", len(report.stages))
            key = str(row.op.attrs["fn"]), str(row.op.phase)
            calls, nbytes, peers = found.get(key, (0, 0, set()))
            times = row.op.repeat
            found[key] = calls + times, nbytes + times * row.ins[0].nbytes, {*peers, row.op.attrs["peer"]}
    return found


# -- what each rank does -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 3, 7])
def test_each_microbatch_is_sent_on_and_its_gradient_back(rank: int) -> None:
    """16 messages each way at the ends, 32 between."""
    ranks, microbatches, size = 8, 16, 2
    report = opcost.count(stack(), torch.ones(microbatches * size, D), mesh="pp=8", rank=rank, backward=True)
    message = microbatches, microbatches * size * D * FLOAT
    expected = {}
    if rank > 0:
        expected |= {("recv", "forward"): (*message, {rank - 1}), ("send", "backward"): (*message, {rank - 1})}
    if rank < ranks - 1:
        expected |= {("send", "forward"): (*message, {rank + 1}), ("recv", "backward"): (*message, {rank + 1})}
    assert sent(report) == expected
    assert [stage.messages for stage in report.stages] == [16, *[32] * 6, 16]
    assert report.totals.params == BLOCK
    assert report.phases["forward"].macs == microbatches * size * MACS
    own = 2 * MACS - (D * H if rank == 0 else 0)  # the very first layer needs no gradient of what it is given
    assert report.phases["backward"].macs == microbatches * size * own


SCHEDULES = ["1f1b", "gpipe", "interleaved-1f1b", "zero-bubble", "zero-bubble-v"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("model", [stack, Decoder])
def test_the_stages_together_do_the_work_of_the_model(model: Callable[[], nn.Module], schedule: str) -> None:
    """As often as there are microbatches. Each stage that is not the first also makes its own table of turns."""
    x, microbatches, ranks = (ROWS, 8, 4) if model is stack else (TOKENS, 8, 4)
    once = opcost.count(model(), x[:2], backward=True)
    report = opcost.count(model(), x, mesh="pp=4", backward=True, schedule=schedule, microbatches=microbatches)
    stages = ranks * (1 if schedule in ("1f1b", "gpipe") else 2)
    params = once.totals.params
    assert sum(stage.params for stage in report.stages) == params
    assert sum(stage.macs for stage in report.stages) == microbatches * once.totals.macs
    added, averaged = (microbatches - 1) * params, params
    turns = 0 if model is stack else (stages - 1) * microbatches * S * D
    flops = sum(stage.flops for stage in report.stages)
    if model is stack or "zero" not in schedule:  # where weights wait, a norm goes backward twice
        assert flops == microbatches * once.totals.flops + added + averaged + turns


def test_what_is_before_the_blocks_is_on_the_first_stage_and_what_is_after_on_the_last() -> None:
    reports = [opcost.count(Decoder(), TOKENS, mesh="pp=4", rank=rank) for rank in range(4)]
    modules = [{module.path for module in report.modules if "." not in module.path} for report in reports]
    assert modules == [{"", "words", "layers"}, {"", "layers"}, {"", "layers"}, {"", "layers", "norm", "head"}]
    assert [p.name for report in reports for p in report.parameters if "layers" not in p.name] == [
        "places", "words.weight", "norm.weight", "norm.bias", "head.weight",
    ]  # fmt: skip
    assert {module.path for module in reports[1].modules if module.type == "Turned"} == {"layers.2", "layers.3"}
    assert all("aten::embedding" not in {row.op.raw for row in report.rows} for report in reports[1:])
    assert all("aten::cos" in {row.op.raw for row in report.rows} for report in reports)
    assert [report.run_on for report in reports] == [reports[0].run_on] * 4  # inputs are those of the step


def test_a_weight_that_the_first_and_the_last_stage_have_is_on_both() -> None:
    whole = opcost.count(Decoder(tied=True), TOKENS[:2]).totals.params
    report = opcost.count(Decoder(tied=True), TOKENS, mesh="pp=4")
    assert sum(stage.params for stage in report.stages) == whole + WORDS * D
    assert any(note.code == "shared" and "words.weight" in note.text for note in report.notes)


def test_stages_are_sharded_and_spread_as_models_are() -> None:
    alone = opcost.count(stack(), ROWS, mesh="pp=4", rank=1, backward=True)
    plan = {"*.up": "colwise", "*.down": "rowwise"}
    report = opcost.count(stack(), ROWS, mesh="pp=4,fsdp=2,tp=2", rank=6, backward=True, tp_plan=plan)
    found = {(line.collective, line.axis): line for line in report.collectives if line.phase == "forward"}
    microbatches, blocks, size = 8, 2, 2
    assert alone.totals.macs == 2 * report.totals.macs
    assert found["all_gather", "fsdp"].calls == blocks  # once in a step: what was gathered stays
    scattered = [line.calls for line in report.collectives if line.collective == "reduce_scatter"]
    assert scattered == [blocks]  # gradients of all microbatches at once
    assert found["all_reduce", "tp"].payload_bytes == microbatches * blocks * size * D * FLOAT
    assert found["send", "pp"].payload_bytes == microbatches * size * D * FLOAT


@pytest.mark.parametrize("mesh", ["pp=4", "pp=4,fsdp=2"])
def test_stages_train_in_float8_as_models_do(mesh: str) -> None:
    """Two layers of each block, with one product forward and two backward for each microbatch."""
    once = opcost.count(Decoder(), TOKENS[:2], backward=True, quantize="fp8")
    report = opcost.count(Decoder(), TOKENS, mesh=mesh, backward=True, quantize="fp8")
    blocks = microbatches = 8
    rows = [row for rank in report.pipeline for row in rank.rows if row.op.raw == "aten::_scaled_mm"]
    assert sum(row.op.repeat for row in rows) == microbatches * blocks * 2 * 3
    assert sum(stage.macs for stage in report.stages) == microbatches * once.totals.macs
    assert report.meta["quantize"] == "fp8"


def test_parameters_that_are_freed_are_gathered_for_each_pass() -> None:
    """A microbatch that comes after one that went back finds what that one gathered."""
    found = {
        reshard: opcost.count(stack(), ROWS, mesh="pp=4,fsdp=2", backward=True, schedule="gpipe", reshard=reshard)
        for reshard in (None, True)
    }
    gathers = {
        key: sum(c.calls for c in report.collectives if c.collective == "all_gather") for key, report in found.items()
    }
    assert gathers == {None: 2, True: 8 * 2 + 2}  # the backward passes keep them


# -- few microbatches give all -------------------------------------------------------------------------------------------------


def expanded(report: Report) -> list[tuple[Any, ...]]:
    """The operators as they run."""
    assert report.order is not None

    def seen(row: Row) -> tuple[Any, ...]:
        return row.op.raw, row.op.module, row.op.phase, row.op.attrs, row.ins, row.outs, row.cost

    rows = [seen(row) for row in report.rows]
    return list(
        chain.from_iterable(rows[first:end] for first, end in map(report.order.parts.__getitem__, report.order.runs))
    )


LAYOUTS: list[dict[str, Any]] = [
    {"mesh": "pp=4", "rank": 0},
    {"mesh": "pp=4", "rank": 3, "optimizer": "adamw", "device": "h100"},
    {"mesh": "pp=4,fsdp=2", "rank": 4, "optimizer": "sgd"},
    {"mesh": "pp=2,fsdp=2,tp=2", "rank": 5, "tp_plan": {"layers.*.up": "colwise", "layers.*.down": "rowwise"}},
    {"mesh": "pp=4,replicate=2,fsdp=2", "rank": 9, "checkpoint": "layers.*", "precision": "bf16-mixed"},
    {"mesh": "pp=4,fsdp=2", "rank": 2, "reshard": True},
    {"mesh": "pp=4", "rank": 2, "backward": False},
]
CASES = [
    (schedule, layout)
    for layout in LAYOUTS
    for schedule in SCHEDULES
    if "zero" not in schedule or "reshard" not in layout
]


@pytest.mark.parametrize(("schedule", "layout"), sampled(CASES, every=5))
def test_few_microbatches_give_the_step_of_all(
    schedule: str, layout: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every operator, in their order, and in the memory of each."""

    def count() -> Report:
        return opcost.count(Decoder(), TOKENS, microbatches=8, schedule=schedule, **{"backward": True, **layout})

    def recorded_in_full(*_: Any) -> Any:
        raise NotRepeating

    found = count()
    monkeypatch.setattr(pipeline, "excerpt", recorded_in_full)
    whole = count()
    assert expanded(found) == expanded(whole)
    assert len(found.rows) < len(whole.rows) or "zero" in schedule  # in mixed precision that takes more microbatches
    assert found.totals._replace(ops=0) == whole.totals._replace(ops=0)
    assert found.phases == whole.phases
    assert found.collectives == whole.collectives
    assert [m.calls for m in found.modules] == [m.calls for m in whole.modules]
    for name in ("peak_bytes", "base_bytes", "parts", "holders", "reserved_bytes"):
        assert getattr(found.memory, name) == getattr(whole.memory, name), name
    assert found.stages == whole.stages


def test_of_many_blocks_few_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    few = opcost.count(Decoder(40), TOKENS, mesh="pp=2,fsdp=2", rank=2, backward=True)
    monkeypatch.setattr(pipeline, "MANY", 1000)
    whole = opcost.count(Decoder(40), TOKENS, mesh="pp=2,fsdp=2", rank=2, backward=True)
    assert expanded(few) == expanded(whole)
    assert (few.totals, few.memory, few.modules, few.stages) == (
        whole.totals,
        whole.memory,
        whole.modules,
        whole.stages,
    )


# -- as made by hand -----------------------------------------------------------------------------------------------------------


@contextmanager
def by_hand(rank: int, ranks: int, shards: int) -> Iterator[Any]:
    """The schedule of a rank whose user has cut the stack, and sharded it."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks * shards)
    try:
        mesh = init_device_mesh("cpu", (ranks, shards), mesh_dim_names=("pp", "fsdp"))
        number = mesh.get_local_rank("pp")
        net = stack()[2 * number : 2 * number + 2]
        for part in (*net, net) if shards > 1 else ():
            fully_shard(part, mesh=mesh["fsdp"], reshard_after_forward=False)
        ends = torch.empty(2, D, requires_grad=True), torch.empty(2, D, requires_grad=True)
        stage = PipelineStage(net, number, ranks, torch.device("cpu"), *ends, group=mesh.get_group("pp"))
        yield schedules.Schedule1F1B(stage, 8, loss_fn=lambda y, _: y.sum())
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("shards", [1, 2])
def test_a_mesh_is_the_pipeline_made_by_hand(shards: int) -> None:
    options = {"optimizer": "adamw", "device": "h100"}
    report = opcost.count(stack(), ROWS, mesh=f"pp=4,fsdp={shards}", rank=shards, **options)
    with by_hand(shards, 4, shards) as schedule:
        other = opcost.count(schedule, **options)
    assert report.totals.cost == other.totals.cost
    assert report.phases == other.phases
    one, two = report.known_memory(), other.known_memory()
    assert (one.peak_bytes, one.reserved_bytes, one.parts) == (two.peak_bytes, two.reserved_bytes, two.parts)
    assert report.collectives == other.collectives
    names = [row.op.raw for row in other.rows if row.op.kind != "view"]
    views = {row.op.raw for row in report.rows if row.op.kind == "view"}
    assert [raw for raw, *_ in expanded(report) if raw not in views] == [name for name in names if name not in views]


# -- models that cannot be split, and options ------------------------------------------------------------------------------------


class Renewed(Decoder):
    """Something runs between its blocks."""

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, x).relu()
        return self.head(x)


class Shared(Decoder):
    """What each block reads has parameters."""

    def forward(self, tokens: Tensor) -> Tensor:
        x, turns = self.words(tokens), self.norm(self.places)
        for layer in self.layers:
            x = layer(x, turns)
        return self.head(x)


@pytest.mark.parametrize(
    ("model", "inputs", "options", "message"),
    [
        (lambda: nn.Linear(4, 4), torch.ones(8, 4), {}, "Linear has no list of equal blocks"),
        (Renewed, TOKENS, {}, r"layers\.1 is not given what layers\.0 returns"),
        (Shared, TOKENS, {}, "norm has parameters, and 4 stages need what it computes"),
        (lambda: Decoder(3), TOKENS, {}, "3 blocks cannot be split into 4 stages"),
        (Decoder, TOKENS[:2], {}, r"1f1b does not run 2 microbatches over pp=4: .* \(2\) must be greater"),
        (Decoder, TOKENS, {"microbatches": 5}, "a batch of 16 cannot be split into 5"),
        (Decoder, TOKENS, {"microbatches": 16, "schedule": "interleaved-1f1b", "stages_per_rank": 3}, "8 blocks"),
        (Decoder, TOKENS, {"accumulate": 2, "backward": True}, "accumulate gradients, once in a step"),
    ],
)
def test_what_cannot_be_counted_says_why(
    model: Callable[[], nn.Module], inputs: Tensor, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        opcost.count(model(), inputs, mesh="pp=4", **options)
    assert caught.value.hint


def test_the_model_and_the_process_stay_as_they_were() -> None:
    model = Decoder()
    parameters, modules = [*model.parameters()], [*model.modules()]
    opcost.count(model, TOKENS, mesh="pp=2,fsdp=2", optimizer="adamw")
    assert not dist.is_initialized()
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert all(a is b for a, b in zip(modules, model.modules(), strict=True))
    assert all(p.grad is None and p.device.type == "cpu" for p in parameters)
    assert "forward" not in vars(model)


def test_the_batch_of_default_inputs_has_a_sample_for_each_microbatch() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    for options, batch in (({}, 4), ({"microbatches": 6}, 6), ({"batch": 12, "microbatches": 3}, 12)):
        report = opcost.count(model, mesh="pp=2", tokens=16, backward=True, **options)
        assert report.inputs[0][1].shape == (batch, 16)
        assert report.meta["microbatches"] == str(options.get("microbatches", 4))
        assert report.meta["loss"] == "its own, from labels"


# -- how it is shown -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report() -> Report:
    return opcost.count(stack(), ROWS, mesh="pp=4", rank=2, backward=True)


def test_ranks_are_side_by_side_in_every_output(report: Report) -> None:
    rows = report.sheet()["stages"]
    assert [(row["rank"], row["blocks"], row["in_flight"]) for row in rows] == [
        (0, "blocks 0-1", 4), (1, "blocks 2-3", 3), (2, "blocks 4-5", 2), (3, "blocks 6-7", 1),
    ]  # fmt: skip
    assert report.stages[2].peak_bytes == report.peak_bytes
    assert report.stages[2].flops == report.totals.flops
    for view in ("table", "md", "latex", "notebook"):
        assert "blocks 4-5" in report.render(view, **({"width": 160} if view == "table" else {}))
    assert "blocks 4-5" in report.render("html")
    assert json.loads(report.render("json"))["stages"][2]["blocks"] == "blocks 4-5"


def test_a_saved_report_has_its_stages(report: Report) -> None:
    again = schema.loads(schema.dumps(report))
    assert again == report
    assert again.stages == report.stages
    damaged = json.loads(schema.dumps(report))
    damaged["stages"][0]["flops"] = -1
    with pytest.raises(opcost.OpcostError, match="stages"):
        schema.from_dict(damaged)


def test_a_note_says_what_the_rank_has(report: Report) -> None:
    (note,) = (note for note in report.notes if note.code == "ranks")
    assert note.text == (
        "rank 2 of pp=4 has stage 2 of 4, blocks 4-5; the batch is run in 8 microbatches by the schedule 1f1b"
    )
