"""Whatever opcost hands out is one short line at a prompt, and what hangs on it too; `print` gives the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import opcost
from opcost.core.rendering import FEW, SHORT, Listed
from opcost.devices.calibration import Calibration
from opcost.frontends.megengine import FRONTEND
from opcost.frontends.options import CountOptions

DATA = Path(__file__).resolve().parents[1] / "data"
DUMP = DATA / "megengine/mge/mlp.v2.mge"
TRACE = DATA / "traces/kineto/cuda_fwd_stack.json.gz"
LONGEST = SHORT + 40
"""Of a record its fields are cut, and its own name is around them."""
NAMES = [name for name in opcost.__all__ if name[0].isupper()]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One of everything."""
    folder = tmp_path_factory.mktemp("found")
    net = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(30)))
    report = opcost.count(net, shapes=(2, 8), backward=True)
    profile = opcost.profile(net, shapes=(2, 8), warmup=0, repeat=2)
    prediction = opcost.predict(report)
    trace = opcost.read_profile(TRACE)
    torch.save(net.state_dict(), folder / "weights.pt")
    with opcost.recording() as recorded:
        net(torch.zeros(2, 8))
    return {
        "report": report,
        "recording": recorded,
        "profile": profile,
        "answer": profile.query(aggregate_by="kind"),
        "prediction": prediction,
        "shares": prediction.shares(),
        "scan": opcost.scan(folder / "weights.pt"),
        "groups": opcost.scan(folder / "weights.pt").by("tensor"),
        "comparison": opcost.compare(report, opcost.count(net, shapes=(1, 8)), by="module"),
        "fit": opcost.fit(net, shapes=(2, 8), memory="1MiB", advise=False),
        "recomputation": opcost.fit(net, shapes=(2, 8), batch=4, memory="1MiB"),
        "plan": opcost.plan(
            net, shapes=(1, 8), gpus=2, cluster="dgx-h100", global_batch=2, fix="tp=1", checkpoint="none"
        ),
        "sweep": opcost.sweep(net, shapes=(2, 8), vary={"batch": [1, 2]}),
        "breakdown": trace.breakdown(),
        "communication": trace.communication(),
        "memory of a trace": trace.allocations(),
        "critical path": trace.critical_path(),
        "launches": trace.launches(),
        "verdict": opcost.check(report, macs="<1G"),
        "measurement": opcost.measure(net, torch.zeros(2, 8), warmup=0, repeat=40),
        "memory": report.memory,
        "kinds": report.by_kind(),
        "types": report.by_type(),
        "graph": FRONTEND.load(DUMP, CountOptions()),
        "calibration": Calibration(device="h200", meta={"made": "2026-11-18"}, position=0, rows=()),
        "meter": opcost.StepMeter("h200", step=report),
        "op view": opcost.OpView("conv", attrs={"groups": 1}),
        "mesh": opcost.Mesh(fsdp=128, tp=8),
    }


def parts(thing: Any, seen: set[int]) -> Iterator[Any]:
    """The thing and what hangs on it, as far as it is opcost's."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if type(thing).__module__.startswith("opcost."):
        yield thing
    if hasattr(thing, "_fields"):
        inside = [getattr(thing, name) for name in thing._fields]
    elif is_dataclass(thing):
        inside = [getattr(thing, field.name) for field in fields(thing) if field.repr]
    else:
        inside = list(thing)[:20] if isinstance(thing, (list, tuple)) else []
    for part in inside:
        yield from parts(part, seen)


def test_everything_is_one_short_line(found: dict[str, Any]) -> None:
    seen: set[int] = set()
    every = [part for thing in found.values() for part in parts(thing, seen)]
    assert len({type(part).__name__ for part in every}) > 25
    for part in every:
        text = repr(part)
        most = (FEW + 1) * LONGEST if isinstance(part, Listed) else LONGEST
        assert len(text) <= most, f"{type(part).__name__}: {text}"
        assert text.isprintable()


def test_every_public_class_is_among_them(found: dict[str, Any]) -> None:
    seen: set[int] = set()
    classes = {type(part) for thing in found.values() for part in parts(thing, seen)}
    left = [
        name for name in NAMES if name not in ("OpcostError", "Step", "Text") and getattr(opcost, name) not in classes
    ]
    assert left == []


def test_a_prompt_says_what_a_reader_looks_for(found: dict[str, Any]) -> None:
    report = replace(found["report"], meta={**found["report"].meta, "source": "net"})
    macs = (3 * 30 - 1) * 2 * 8 * 8  # forward, and backward for weights and inputs, but not for those of the net
    assert repr(report).startswith(f"<Report net: 2.16 K params, {macs / 1000:.2f} K MACs, ")
    assert repr(report).endswith("FLOPs>")
    assert repr(found["memory"]).startswith("<Memory: peak ")
    assert repr(found["prediction"]).startswith("<Prediction Sequential: ")
    assert " on h200, " in repr(found["prediction"])
    assert repr(found["verdict"]).startswith("<Verdict Sequential: all limits are kept")
    assert repr(found["comparison"]).startswith("<Comparison Sequential")
    assert repr(found["measurement"]).endswith("40 calls>") or " 40 calls, " in repr(found["measurement"])
    assert repr(report.totals).startswith("Stats(params=2160, ")
    assert repr(report.rows).endswith(f"... {len(report.rows) - FEW:,} more)")


def test_a_sequence_is_still_a_tuple(found: dict[str, Any]) -> None:
    modules = found["report"].modules
    assert isinstance(modules, tuple)
    plain = (*modules,)
    assert type(plain) is tuple
    assert modules == plain
    assert type(modules[:2]) is tuple


@pytest.mark.parametrize(
    "name",
    [
        "report",
        "profile",
        "answer",
        "prediction",
        "scan",
        "comparison",
        "verdict",
        "fit",
        "sweep",
        "breakdown",
        "memory of a trace",
    ],
)
def test_print_gives_the_table(found: dict[str, Any], name: str) -> None:
    text = str(found[name])
    assert len(text.splitlines()) > 3
    assert "─────" in text


def test_printing_a_prediction_shows_the_latency_and_memory_its_parts(found: dict[str, Any]) -> None:
    assert "\nlatency      " in str(found["prediction"])
    lines = str(found["memory"]).splitlines()
    assert [line.split()[0] for line in lines[:2]] == [
        "peak",
        max(found["memory"].parts, key=found["memory"].parts.get),
    ]


@pytest.mark.parametrize("name", ["x" * 100_000, "\n\x1b[2J" * 50, "卷积" * 500])
def test_a_name_makes_no_line_long(found: dict[str, Any], name: str) -> None:
    report = found["report"]
    hostile = replace(report, meta={"source": name}, modules=(replace(report.modules[0], path=name, type=name),))
    for part in (hostile, hostile.modules[0], hostile.rows[0]._replace(op=hostile.rows[0].op._replace(raw=name))):
        assert len(repr(part)) <= LONGEST
        assert repr(part).isprintable()


def test_a_terminal_without_our_characters_is_printed_to(
    found: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "out.txt").open("w", encoding="cp1252") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        print(found["report"])
        print(found["answer"])
    assert "|- 0" in (tmp_path / "out.txt").read_text("ascii")
