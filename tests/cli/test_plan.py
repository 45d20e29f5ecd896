"""`opcost plan` and `opcost.plan`: the best layout is that of all predictions, and each has the memory of its count."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from language_net import Decoder, tokens
from mesh_models import causal_lm
from torch import Tensor, nn

import opcost
from opcost.analysis.memory import curve_of
from opcost.api import graph_of
from opcost.core.results import LayoutCost, LayoutPlan
from opcost.distributed.mesh import Mesh
from opcost.errors import BudgetExceeded, InputError, UnknownName

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

NODES = "4 per node, nvlink 300GB/s, network 25GB/s per gpu"
FLOAT = 4
MIXTURE: dict[str, Any] = {
    "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 32, "vocab_size": 256,
    "num_local_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 2, "attn_implementation": "sdpa",
}  # fmt: skip
NET = f"{Path(__file__).parents[1] / 'shared' / 'language_net.py'}:Decoder"


def arguments(layout: LayoutCost, blocks: str = "layers.*") -> dict[str, Any]:
    """The options of `count` and `predict` that mean a layout."""
    checkpoint: dict[str, Any] = {"none": {}, "full": {"checkpoint": blocks}}.get(
        layout.checkpoint, {"checkpoint": blocks, "checkpoint_keep": "alternate"}
    )
    mesh = {"fsdp": 1} if layout.mesh == "1 rank" else layout.mesh
    return {"mesh": mesh, "accumulate": layout.passes, "reshard": layout.reshard, **checkpoint}


@pytest.fixture(scope="module")
def small() -> LayoutPlan:
    return opcost.plan(
        Decoder(), tokens(1), gpus=4, cluster=NODES, device="a100", global_batch=8, fix="tp=1", checkpoint="none,full"
    )


def test_the_best_layout_is_the_best_of_all_predictions(small: LayoutPlan) -> None:
    """Memory is that of the count, to the byte; times are within 1 %."""
    predicted = {}
    for layout in small.layouts:
        options = {"optimizer": "adamw", **arguments(layout)}
        found = opcost.predict(Decoder(), tokens(layout.batch), device="a100", cluster=NODES, **options)
        assert layout.latency_ns == pytest.approx(found.latency_ns, rel=0.01)
        assert found.step is not None
        later = {axis: ns + found.step.slowing_ns.get(axis, 0) for axis, ns in found.step.exposed_ns.items()}
        assert layout.exposed_ns == pytest.approx(later, rel=0.01)
        assert layout.mfu == pytest.approx(found.step.mfu, rel=0.01)
        assert layout.items_per_second == pytest.approx(8 * 16 / found.latency_ns * 1e9, rel=0.01)
        predicted[str(layout)] = found.latency_ns
        if not layout.counted:
            on_gpu = opcost.count(Decoder(), tokens(layout.batch), device="a100", **options).known_memory()
            assert layout.peak_bytes <= on_gpu.peak_bytes <= layout.peak_bytes + 512 * 400  # a block ends at 512 bytes
    # 1 pass of 2 samples or 2 of 1; copies alone, and with shards two meshes, with gathers once or twice; two checkpoints
    assert len(predicted) == 2 * (1 + 2 * 2) * 2
    assert str(small.best) == min(predicted, key=predicted.__getitem__)
    assert [layout.latency_ns for layout in small.layouts] == sorted(layout.latency_ns or 0 for layout in small.layouts)


def test_what_the_first_line_says(small: LayoutPlan) -> None:
    answer = small.render("answer").strip()
    best, second = small.layouts[:2]
    assert answer.startswith(f"Decoder on 4 a100 ({NODES}): {best}, ")
    assert f"ahead of {second}, which" in answer
    gpus, half = small.smaller or (0, None)
    assert gpus == 2
    assert half is not None
    assert f"; 2 GPUs take {(half.latency_ns or 0) / (best.latency_ns or 1):.2f} times as long" in answer


@pytest.mark.parametrize("fixed", ["cp=2,tp=1", "ep=2"])
def test_axes_that_are_searched_where_they_are_fixed(fixed: str) -> None:
    """Memory is that of the tensors of a count, to the byte; times are within 1 %."""
    model: nn.Module = Decoder()
    options: dict[str, Any] = {"shapes": "1x16:int64", "precision": "bf16"}
    if fixed == "ep=2":
        model = causal_lm("mixtral", **MIXTURE)
        options = {"tokens": 16}
    found = opcost.plan(
        model, gpus=4, cluster=NODES, device="a100", global_batch=4, fix=fixed, checkpoint="none", batch=1, **options
    )
    assert {Mesh.of(layout.mesh).size for layout in found.layouts} == {4}
    assert all(fixed.partition(",")[0] in layout.mesh for layout in found.layouts)
    for layout in found.layouts:
        counting = {"optimizer": "adamw", **options, **arguments(layout)}
        predicted = opcost.predict(model, device="a100", cluster=NODES, **counting)
        assert layout.latency_ns == pytest.approx(predicted.latency_ns, rel=0.01)
        if not layout.counted:
            assert layout.peak_bytes == max(curve_of(graph_of(model, device="a100", **counting)))
    assert any(not layout.counted for layout in found.layouts)


# -- by hand ----------------------------------------------------------------------------------------------------------------

B, D, H, BLOCKS = 8, 64, 256, 24
BLOCK = 2 * D * H * FLOAT
X, HIDDEN = B * D * FLOAT, B * H * FLOAT


class Blocks(nn.Module):
    """Blocks of two layers without biases; the model returns its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(D, H, bias=False), nn.ReLU(), nn.Linear(H, D, bias=False)) for _ in range(BLOCKS)
        )

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        for block in self.blocks:
            x = block(x)
        return {"loss": x.sum()}


def test_memory_by_hand() -> None:
    """As derived in test_sharded_memory.py, of a model of which few blocks are recorded; SGD keeps nothing."""
    plan = opcost.plan(
        Blocks(), torch.ones(1, D), gpus=8, cluster="dgx-h100", global_batch=8 * B, fix="fsdp=8", batch=B, optimizer="sgd",
        checkpoint="none",
    )  # fmt: skip
    (twice,) = (layout for layout in plan.layouts if layout.reshard)
    shards, gradients = BLOCKS * BLOCK // 8, (BLOCKS - 2) * BLOCK // 8
    saved, passing = X + HIDDEN + X, HIDDEN + X
    expected = shards + gradients + 4 * BLOCK + saved + passing + 2 * FLOAT
    rounded = 512 * 2  # the loss and its gradient, where the allocator of the device was simulated
    assert twice.peak_bytes == expected + (rounded - 2 * FLOAT if twice.counted else 0)
    report = opcost.count(Blocks(), torch.ones(B, D), mesh="fsdp=8", reshard=False, optimizer="sgd", device="h100")
    (once,) = (layout for layout in plan.layouts if not layout.reshard)
    assert report.peak_bytes is not None
    assert once.peak_bytes <= report.peak_bytes <= once.peak_bytes + rounded


# -- what is left out, and what does not fit ---------------------------------------------------------------------------------


def test_heads_that_do_not_divide_are_named() -> None:
    """Four heads for keys and values are not shared by eight ranks."""
    plan = opcost.plan(
        Decoder(), tokens(1), gpus=8, cluster="dgx-h100", global_batch=8, batch=1, checkpoint="none", optimizer="adamw"
    )
    assert all("tp=8" not in layout.mesh for layout in plan.layouts)
    assert any("left out: " in note and "don't multiply" in note for note in plan.notes)
    assert "2 meshes left out: DistributedDataParallel takes no tensor parallelism" in plan.notes


def large() -> nn.Module:
    """64 GiB of parameters in 16 blocks, and as much for gradients."""
    with torch.device("meta"):
        return nn.Sequential(*(nn.Linear(1 << 15, 1 << 15, bias=False) for _ in range(16)))


def test_nothing_fits() -> None:
    """Parameters, gradients and both states of AdamW are 256 GiB.

    A GPU has 78 GiB. On 4 each has 64 of these, and gathers 4 blocks of 4 GiB at once; on 8 that is 32 and 16.
    """
    with pytest.raises(BudgetExceeded, match=r"Sequential does not fit on 2 h100 \(78\.36 GiB usable each\)") as caught:
        opcost.plan(large(), torch.ones(1, 1 << 15), gpus=2, cluster="dgx-h100", global_batch=16)
    assert caught.value.exit_code == 1
    assert caught.value.hint == "8 GPUs would do: fsdp=8, 2 × 1, 48.00 GiB"


def test_what_does_not_fit_comes_last_with_how_much_is_missing() -> None:
    plan = opcost.plan(
        large(), torch.ones(1, 1 << 15), gpus=8, cluster="dgx-h100", global_batch=8, checkpoint="none", batch=1
    )
    assert [layout.fits for layout in plan.layouts] == sorted((layout.fits for layout in plan.layouts), reverse=True)
    over = [layout for layout in plan.layouts if not layout.fits]
    kept = {"fsdp=8", "replicate=4,fsdp=2", "replicate=2,fsdp=4"}
    assert {layout.mesh for layout in over if not layout.reshard} == kept  # all 64 GiB of gathered parameters
    assert {layout.mesh for layout in over if layout.reshard} == kept - {"fsdp=8"}
    assert all(layout.latency_ns is None for layout in over)
    assert "without fsdp, parameters and gradients alone are larger than the memory" in " ".join(plan.notes)
    rows = {(row["mesh"], row["gathered"]): row for row in plan.sheet()["layouts"]}
    for layout in over:
        assert (
            rows[layout.mesh, "twice" if layout.reshard else "once"]["left"].number
            == plan.limit_bytes - layout.peak_bytes
        )
    assert plan.smaller is not None
    assert plan.smaller[1] is None
    assert plan.render("answer").strip().endswith("; 4 GPUs have too little memory")


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"gpus": None}, "gpus is missing"),
        ({"global_batch": None}, "global_batch is missing"),
        ({"cluster": None}, "cluster is missing"),
        ({"gpus": 12}, "12 GPUs are not whole nodes of dgx-h100, which have 8"),
        ({"gpus": 0}, "gpus is 0; it must be a whole number above zero"),
        ({"fix": "tp=16"}, "there is no layout of 8 GPUs"),
        ({"global_batch": 3, "fix": "tp=1"}, "there is no layout of 8 GPUs"),
        ({"fix": "pp=2"}, "a plan has no pipelines yet"),
        ({"scheduler": "local"}, "a cluster counts models that a string names"),
    ],
)
def test_what_cannot_be_planned(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        opcost.plan(Decoder(), tokens(1), **{"gpus": 8, "cluster": "dgx-h100", "global_batch": 8, **options})


def test_unknown_names() -> None:
    with pytest.raises(UnknownName, match="checkpoint of a plan"):
        opcost.plan(Decoder(), tokens(1), gpus=8, cluster="dgx-h100", global_batch=8, checkpoint="some")
    with pytest.raises(UnknownName, match="axis of a mesh"):
        opcost.plan(Decoder(), tokens(1), gpus=8, cluster="dgx-h100", global_batch=8, fix="xp=2")


# -- on the command line -----------------------------------------------------------------------------------------------------

WORDS = (
    "plan", NET, "--input", "tokens:1x16:int64", "--gpus", "4", "--cluster", NODES, "--global-batch", "8", "--fix", "tp=1",
    "--checkpoint", "none", "--batch", "2", "--workers", "1",
)  # fmt: skip


def test_every_format(opcost_command: Callable[..., Any], tmp_path: Path) -> None:
    files = [tmp_path / f"plan.{suffix}" for suffix in ("json", "csv", "md", "html", "tex")]
    found = opcost_command(*WORDS, *(word for file in files for word in ("-o", file)), "--width", "200")
    assert found.code == 0
    data = json.loads(files[0].read_text("utf-8"))
    assert data["schema"] == "opcost.plan/1"
    assert data["answer"] in found.out.replace("\n  ", " ").replace("\u00a0", " ")
    meshes = [layout["mesh"] for layout in data["layouts"]]
    assert sorted(meshes) == ["fsdp=4"] * 2 + ["replicate=2,fsdp=2"] * 2 + ["replicate=4"]
    rows = [*csv.DictReader(StringIO(files[1].read_text("utf-8")))]
    assert [(row["mesh"], int(row["peak_bytes"])) for row in rows] == [
        (layout["mesh"], layout["peak_bytes"]) for layout in data["layouts"]
    ]
    assert all(mesh in files[2].read_text("utf-8") for mesh in meshes)
    assert '"plan":{"limit":' in files[3].read_text("utf-8")


def test_an_interrupt_shows_what_is_done(opcost_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from opcost import planning

    work = planning.work
    monkeypatch.setattr("opcost.core.workers.process_count", lambda *_: 1)

    def interrupted(job: Any) -> Any:
        if next(iter(job.layouts.values()))[0].mesh.tp > 1:
            raise KeyboardInterrupt
        return work(job)

    monkeypatch.setattr(planning, "work", interrupted)
    words = [word for word in WORDS if word not in ("--fix", "tp=1")]
    found = opcost_command(*words)
    assert found.code == 130
    assert "interrupted: " in found.err
    assert "fsdp=4" in found.out
    assert "tp=2" not in found.out


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"workers": 2}, {"scheduler": "local"}])
def test_processes_and_a_cluster_find_the_same(how: dict[str, Any]) -> None:
    if "scheduler" in how:
        pytest.importorskip("distributed")
    options: dict[str, Any] = {
        "shapes": "tokens:1x16:int64", "gpus": 4, "cluster": NODES, "global_batch": 4, "batch": 1, "checkpoint": "none",
    }  # fmt: skip
    assert opcost.plan(NET, **options, **how) == opcost.plan(NET, **options, workers=1)
