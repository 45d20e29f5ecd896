"""Long work shows how much of it is done: its share is read at moments inside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import opcost
from opcost.core import progress
from opcost.recorders.measure import timed_runs, warmed_up


class Shares:
    """The shares at each moment at which a test read them."""

    def __init__(self) -> None:
        self._read: list[float] = []

    def read(self, *_: Any, **__: Any) -> None:
        self._read.append(progress._lines[0]._done()[0])

    def recent(self) -> list[float]:
        """Those since the last call."""
        shares, self._read = self._read, []
        return shares

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*args: Any, **kwargs: Any) -> Any:
            self.read()
            return function(*args, **kwargs)

        return reading

    def assert_rising(self, fewest: int = 3) -> list[float]:
        shares = self.recent()
        known = [share for share in shares if share]
        assert len(set(known)) >= fewest, shares
        assert known == sorted(known)
        assert known[-1] <= 1
        return shares


@pytest.fixture
def shares() -> Iterator[Shares]:
    with shown():
        yield Shares()


@contextmanager
def shown() -> Iterator[None]:
    with progress.working("working", quiet=True):
        yield


@pytest.fixture
def calls(shares: Shares, monkeypatch: pytest.MonkeyPatch) -> Shares:
    """Read whenever a model calls a module, and at every operator of the backward pass."""
    from opcost.frontends.torch.recording.run import ModelRun

    for name in ("enter", "where_backward"):
        monkeypatch.setattr(ModelRun, name, shares.around(getattr(ModelRun, name)))
    return shares


@pytest.mark.parametrize("real", [False, True])
def test_a_count(calls: Shares, real: bool) -> None:
    opcost.count(nn.Sequential(*(nn.Linear(4, 4) for _ in range(10))), shapes=(1, 4), real=real)
    assert calls.recent() == [n / 11 for n in range(11)]  # before each call of the net and its ten layers


def test_a_count_with_the_backward_pass(calls: Shares) -> None:
    opcost.count(nn.Sequential(*(nn.Linear(4, 4) for _ in range(6))), shapes=(1, 4), backward=True)
    found = calls.assert_rising(12)
    assert found[:7] == [n / 7 / 3 for n in range(7)]
    assert 1 / 3 <= found[7] < found[-1] <= 1


def test_a_model_that_calls_its_layers_again_and_again_has_no_share(calls: Shares) -> None:
    layer = nn.Linear(4, 4)

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(9):
                x = self.layer(x)
            return x

    opcost.count(Loop(), shapes=(1, 4))
    assert calls.recent() == [0, 1 / 2, *[1.0], *[0] * 7]


def test_runs(shares: Shares) -> None:
    timed_runs(shares.read, lambda _: None, repeat=8, seconds=None, prepare=lambda: None)
    assert shares.recent() == [n / 8 for n in range(8)]
    warmed_up(shares.read, 4)
    assert shares.recent() == [n / 4 for n in range(4)]
    timed_runs(shares.read, lambda _: None, repeat=1, seconds=0.01, prepare=lambda: None)
    shares.assert_rising()


def test_a_trace(shares: Shares, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from opcost.traces.kineto.columns import Columns

    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "dur": 5}
    events = [{**event, "ts": 10 * number} for number in range(20_000)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    monkeypatch.setattr(Columns, "add", shares.around(Columns.add))
    opcost.read_profile(path)
    shares.assert_rising(10)


def test_many_files(shares: Shares, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from opcost.frontends.checkpoint import scan as scanning

    for number in range(5):
        torch.save({f"w{number}": torch.zeros(2)}, tmp_path / f"model-0000{number + 1}-of-00005.pt")
    monkeypatch.setattr(scanning, "_gather", shares.around(scanning._gather))
    opcost.scan(*sorted(tmp_path.iterdir()))
    assert shares.recent() == [n / 5 for n in range(1, 6)]


def test_the_nodes_of_a_file(shares: Shares, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    from opcost.frontends.nodes.walk import Walk

    monkeypatch.setattr(Walk, "node", shares.around(Walk.node))
    names = [f"v{number}" for number in range(9)]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in (names[0], names[-1])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "net", ends[:1], ends[1:])), tmp_path / "net.onnx")
    opcost.count(tmp_path / "net.onnx")
    assert shares.recent() == [n / 8 for n in range(8)]


def test_several_models(shares: Shares, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from opcost import comparing

    report = opcost.count(nn.Linear(2, 2), shapes=(1, 2))
    paths = [str(tmp_path / f"{number}.json") for number in range(4)]
    for path in paths:
        report.save(path)
    monkeypatch.setattr(comparing, "load_report", shares.around(comparing.load_report))
    comparing.results_of(paths, {})
    assert shares.recent() == [n / 4 for n in range(4)]


def test_a_fit(calls: Shares) -> None:
    """Beside the requested options there are three others, so four searches of about five counts: a twentieth each."""
    net = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(4)))
    opcost.fit(net, shapes=(1, 4), memory="1MiB", backward=True)
    found = calls.recent()
    assert found[0] == 0
    assert max(found) > 0.75  # the fourth of four began
    assert all(after > before - 1 / 20 for before, after in pairwise(found))


def test_rounds_that_take_longer_than_usual_stay_in_their_last_step() -> None:
    done = progress.Rounds(3)
    done.step()
    assert done.share() == (0, inf)
    done.rounds = 2
    found = []
    for over in (False, False, False, True, False):
        done.next() if over else done.step()
        found.append(done.share())
    assert found == [(2, 6), (2, 6), (2, 6), (3, 6), (4, 6)]


def test_calibrating(shares: Shares, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The share of one operator is a second at most of all of them."""
    from opcost.cli import profile as command

    def timed(*_: Any, progress: Callable[[int, float], None], **__: Any) -> Any:
        for operators in range(4):
            progress(operators, operators / 4)
            with progress_of(1.0):
                shares.read()
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "time_operators", timed)
    with pytest.raises(KeyboardInterrupt):
        command.calibrate(output=tmp_path / "c.json", seconds=100, quiet=True)
    assert shares.recent() == [0.01, 0.26, 0.51, 0.76]


def progress_of(share: float) -> Any:
    return progress.sharing(lambda: (share, 1.0))
