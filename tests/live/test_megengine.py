"""Live: nets that MegEngine 1.13.0 builds and dumps now, read without it.

MegEngine runs in a virtual environment of its own; `make test-frameworks` makes it and names its Python in
OPCOST_MEGENGINE_PYTHON. Each run draws other nets; OPCOST_SEED repeats one.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.frontends.megengine.model import read_model
from opcost.frontends.megengine.walk import DumpWalk

PYTHON = os.environ.get("OPCOST_MEGENGINE_PYTHON", "")
SCRIPT = Path(__file__).with_name("megengine_nets.py")
THEIR_TYPES = {"ConvolutionBackwardData": "ConvTranspose", "BatchedMatrixMul": "BatchedMatmul"}
"""Where MegEngine's Python calls an operator by another name than its files do."""
SECONDS = 0.3
PARITY = Path(__file__).parents[1] / "data/megengine/parity"

pytestmark = pytest.mark.skipif(not PYTHON, reason="MegEngine's Python is not named; run `make test-frameworks`")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder with the dumps, and what MegEngine says about them."""
    folder = tmp_path_factory.mktemp("megengine")
    seed = int(os.environ.get("OPCOST_SEED") or random.SystemRandom().randrange(2**31))
    print(f"OPCOST_SEED={seed}")
    command = [*shlex.split(PYTHON), str(SCRIPT), str(folder), str(seed)]
    subprocess.run(command, check=True, env={**os.environ, "MGB_LOG_LEVEL": "ERROR"})
    return folder, json.loads((folder / "facts.json").read_text())


def dumps(live: tuple[Path, dict[str, Any]]) -> list[tuple[Path, dict[str, Any], str]]:
    folder, facts = live
    return [(folder / f"{name}.{form}.mge", net, form) for name, net in facts["nets"].items() for form in net["dumps"]]


def test_macs_are_those_derived_from_the_layers(live: Any) -> None:
    for path, net, _ in dumps(live):
        report = opcost.count(path)
        assert report.totals.macs == net["macs"], path.name
        assert not report.coverage.uncounted, path.name
        assert report.inputs[0][1].dims == tuple(net["input"])
        assert report.outputs[0].dims == tuple(net["output"])


def test_shapes_are_those_that_megengine_infers(live: Any) -> None:
    for path, net, form in dumps(live):
        expected = net["dumps"][form]
        if not expected:
            continue
        model = read_model(path)
        found = DumpWalk(model).run()
        ours: Counter[str] = Counter()
        for op in model.operators:
            variable = op.outputs[-1] if op.type == "BatchNorm" else op.outputs[0]
            extents = "x".join(map(str, found.tensor(variable).shape or ()))
            ours[f"{THEIR_TYPES.get(op.type, op.type)} {extents}"] += 1
        assert ours == Counter({key.replace("Forward ", " "): count for key, count in expected.items()}), path.name


def test_weights_of_an_untouched_graph_are_those_of_the_module(live: Any) -> None:
    """Equal constants are stored once, so of shapes that only ones and zeros fill there may be fewer."""
    for path, net, form in dumps(live):
        if form == "v2_plain":
            ours = Counter(tuple(p.spec.dims) for p in opcost.count(path).parameters)
            theirs = Counter(tuple(shape) for shape in net["weights"].values())
            assert set(ours) <= set(theirs), path.name  # some norms are made and not used
            drawn = {
                key: tuple(shape) for key, shape in net["weights"].items() if key.endswith(".weight") and len(shape) > 1
            }
            names = {name for p in opcost.count(path).parameters for name in p.names}
            kept = [key for key in drawn if not key.partition(".")[0].startswith(("bn", "norm"))]
            assert set(kept) <= names, path.name


def test_another_batch_multiplies_the_macs(live: Any) -> None:
    for path, net, _ in dumps(live):
        batch, *rest = net["input"]
        report = opcost.count(path, shapes=(4 * batch, *rest))
        assert report.totals.macs == 4 * net["macs"], path.name


def test_reading_and_counting_a_full_resnet18_takes_little_time(live: Any) -> None:
    folder, facts = live
    path = folder / "resnet18.v2.mge"
    assert path.stat().st_size > 44_000_000
    opcost.count(folder / "attention.v2.mge")  # imports and tables are start-up
    start = time.process_time()
    report = opcost.count(path)
    spent = time.process_time() - start
    assert report.totals.macs == facts["nets"]["resnet18"]["macs"]
    assert spent < SECONDS
    print(f"{path.stat().st_size >> 20} MB in {spent:.3f} s", file=sys.stderr)


def test_a_live_module_is_counted_as_its_dump(live: Any, opcost_path: str) -> None:
    """Inside MegEngine's Python, with opcost on its path."""
    _, facts = live
    net = facts["nets"]["attention"]
    command = [*shlex.split(PYTHON), str(SCRIPT.with_name("megengine_module.py")), str(facts["seed"])]
    environment = {**os.environ, "PYTHONPATH": opcost_path, "MGB_LOG_LEVEL": "ERROR"}
    done = subprocess.run(
        [*command, *map(str, net["input"])], check=True, env=environment, stdout=subprocess.PIPE, text=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["macs"] == net["macs"]
    assert found["still_training"]
    assert not found["uncounted"]
    assert {"block.norm", "block.q", "block.up"} <= set(found["modules"])
    assert found["matrices"] == found["matrices_of_the_module"]


def test_the_nets_of_the_parity_tests_are_dumped_as_they_are_stored(tmp_path: Path) -> None:
    command = [*shlex.split(PYTHON), str(SCRIPT.with_name("megengine_parity.py")), str(tmp_path)]
    subprocess.run(command, check=True, env={**os.environ, "MGB_LOG_LEVEL": "ERROR"})
    made = sorted(tmp_path.glob("*.mge"))
    assert [path.name for path in made] == [path.name for path in sorted(PARITY.glob("*.mge"))]
    for path in made:
        ours, stored = opcost.count(path), opcost.count(PARITY / path.name)
        assert ours.totals == stored.totals, path.name
        assert [row.op.raw for row in ours.rows] == [row.op.raw for row in stored.rows], path.name
