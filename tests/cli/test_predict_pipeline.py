"""`opcost predict --mesh pp=... --cluster`: how long a step takes that passes through the stages of a pipeline."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opcost
from opcost.analysis.prediction.pipelines import ends_of
from opcost.core.order import StageEvent
from opcost.core.report import Report
from opcost.errors import InputError

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

D, HIDDEN, LAYERS, WORDS, TOKENS = 256, 512, 8, 1024, 64
FORWARD, BACKWARD = 30.0, 60.0  # of all stages of a rank
CLUSTER = "8 per node, nvlink 450GB/s, network 50GB/s per gpu"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, D)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, D), nn.Linear(D, WORDS)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def events_of(schedule: str, ranks: int, microbatches: int, *, backward: bool = True) -> list[tuple[StageEvent, ...]]:
    """What each rank does by PyTorch's own schedule."""
    blocks = nn.Sequential(*(nn.Linear(4, 4) for _ in range(8)))
    options: dict[str, Any] = {"microbatches": microbatches, "schedule": schedule, "backward": backward}
    report = opcost.count(blocks, torch.ones(microbatches, 4), mesh=f"pp={ranks}", **options)
    return [each.order.events for each in report.pipeline if each.order is not None]


def step_ns(events: list[tuple[StageEvent, ...]], stages: int = 1, message: float = 0.0) -> float:
    """A step whose stages take equally long; the gradients of inputs and of weights take half of a backward pass each."""
    taken = {"forward": FORWARD, "backward": BACKWARD, "input": BACKWARD / 2, "weight": BACKWARD / 2}

    def taken_ns(rank: int, at: int) -> float:
        return taken.get(events[rank][at].kind, 0.0) / stages

    return max(ends_of(events, taken_ns, lambda *_: message))


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 4), (4, 8), (4, 16), (8, 8)])
def test_equal_stages_take_m_plus_p_minus_1_passes(ranks: int, microbatches: int) -> None:
    whole = (microbatches + ranks - 1) * (FORWARD + BACKWARD)
    assert step_ns(events_of("1f1b", ranks, microbatches)) == whole
    assert step_ns(events_of("gpipe", ranks, microbatches)) == whole


def test_several_stages_of_a_rank_divide_the_bubble() -> None:
    """By their number, and gradients of weights fill more of it."""
    ranks, microbatches = 4, 8
    work = microbatches * (FORWARD + BACKWARD)
    interleaved, *deferred = (
        step_ns(events_of(schedule, ranks, microbatches), 2) / work - 1
        for schedule in ("interleaved-1f1b", "zero-bubble", "zero-bubble-v")
    )
    assert interleaved == (ranks - 1) / (2 * microbatches)
    assert all(0 < share < interleaved for share in deferred)


def test_messages_make_the_stages_behind_them_later() -> None:
    ranks, microbatches, message = 4, 8, 7.0
    forward = events_of("gpipe", ranks, microbatches, backward=False)
    assert step_ns(forward, 1, message) == (microbatches + ranks - 1) * FORWARD + (ranks - 1) * message
    # Where a message takes longer than a pass, they follow each other on the link.
    slow = 2 * FORWARD
    assert step_ns(forward, 1, slow) == ranks * FORWARD + (ranks - 1) * slow + (microbatches - 1) * slow


@pytest.fixture(scope="module")
def predicted() -> Callable[..., opcost.Prediction]:
    def predict(**options: Any) -> opcost.Prediction:
        usual: dict[str, Any] = {"mesh": "pp=4,fsdp=2", "optimizer": "adamw", "device": "h200", "cluster": CLUSTER}
        return opcost.predict(Decoder(), torch.zeros(8, TOKENS, dtype=torch.long), **usual | options)

    return predict


def test_rows_and_the_bubble_add_up_to_the_step(predicted: Callable[..., opcost.Prediction]) -> None:
    found = {rank: predicted(rank=rank) for rank in (0, 2, 6)}
    for each in found.values():
        assert each.step is not None
        rows = sum(row.device_ns or 0 for row in each.rows)
        assert rows + each.step.bubble_ns == pytest.approx(each.latency_ns, abs=len(each.rows))
        assert sum(each.bounds.values()) == pytest.approx(each.latency_ns, abs=len(each.rows))
        assert each.bounds["bubble"] == each.step.bubble_ns > 0
        later = sum((*each.step.exposed_ns.values(), *each.step.slowing_ns.values()))
        assert each.step.compute_ns + later + each.step.bubble_ns == each.latency_ns
        assert each.step.bubble_share == pytest.approx(each.step.bubble_ns / each.latency_ns)
        assert each.step.tokens_per_second == pytest.approx(8 * TOKENS / 4 / (each.latency_ns / 1e9))
        assert each.latency_ns == pytest.approx(found[0].latency_ns, abs=5)
        assert (each.step.mfu, each.step.hfu) == pytest.approx((found[0].step.mfu, found[0].step.hfu), rel=1e-6)  # type: ignore[union-attr]
    busy = {rank: each.latency_ns - each.bounds["bubble"] for rank, each in found.items()}
    assert busy[6] > busy[2]  # the last stage has the head, of 4 times the products of a block


def test_messages_take_as_long_as_their_bytes_between_nodes(predicted: Callable[..., opcost.Prediction]) -> None:
    near, far = (
        predicted(cluster=f"{gpus} per node, nvlink 450GB/s, network 50GB/s per gpu", mesh="pp=4") for gpus in (4, 1)
    )
    assert near.step is not None
    assert far.step is not None
    # 8 microbatches of one sequence are sent on, and their gradients come back: each 64 KiB, in the fastest of NCCL's protocols.
    for found, bandwidth, steps in (
        (near, 450e9 * 0.8, (600, 1_900, 3_400)),
        (far, 50e9 * 0.97, (2_700, 4_000, 14_000)),
    ):
        each = min(
            base + step + TOKENS * D * 4 / (bandwidth * share) * 1e9
            for base, step, share in zip((6_600, 14_000, 8_400), steps, (0.5, 0.92, 1.0), strict=True)
        )
        assert found.step is not None
        assert found.step.sending_ns["pp"] == pytest.approx(16 * each, rel=1e-3)
    assert far.step.exposed_ns["pp"] > near.step.exposed_ns["pp"] > 0


def test_more_microbatches_have_a_smaller_bubble(predicted: Callable[..., opcost.Prediction]) -> None:
    shares = [
        found.step.bubble_share for number in (4, 8) if (found := predicted(mesh="pp=2", microbatches=number)).step
    ]
    assert shares[0] > shares[1] > 0


def test_what_is_not_predicted_of_a_pipeline(predicted: Callable[..., opcost.Prediction], tmp_path: Path) -> None:
    for execution in ("eager", "compiled"):
        with pytest.raises(InputError, match=f"not predicted with {execution} execution"):
            predicted(execution=execution)
    path = tmp_path / "rank.json"
    report: Report = opcost.count(Decoder(), torch.zeros(8, TOKENS, dtype=torch.long), mesh="pp=2")
    report.save(path)
    with pytest.raises(InputError, match="a saved report has one rank of a pipeline"):
        opcost.predict(str(path), device="h200", cluster=CLUSTER)
