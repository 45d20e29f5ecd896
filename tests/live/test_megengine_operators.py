"""Functions and layers with odd settings, dumped by MegEngine 1.13.0: stored dumps, and live ones where MegEngine is at hand.

Shapes and element types are those that MegEngine itself infers from the dump; multiply-adds are derived from the settings.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.compat.megengine.tables import dtype_name
from opcost.frontends.megengine.model import read_model
from opcost.frontends.megengine.walk import DumpWalk

PYTHON = os.environ.get("OPCOST_MEGENGINE_PYTHON", "")
SCRIPT = Path(__file__).with_name("megengine_operators.py")
STORED = Path(__file__).parents[1] / "data/megengine/odd_settings.zip"
THEIR_TYPES = {"ConvolutionBackwardData": "ConvTranspose", "BatchedMatrixMul": "BatchedMatmul"}
"""Where MegEngine's Python calls an operator by another name than its files do."""

Found = tuple[Path, dict[str, Any]]


@pytest.fixture(scope="module", params=["stored", "live"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The folder with the dumps, and what MegEngine says about them."""
    folder = tmp_path_factory.mktemp("megengine")
    if request.param == "stored":
        with zipfile.ZipFile(STORED) as archive:
            archive.extractall(folder)
    elif PYTHON:
        command = [*shlex.split(PYTHON), str(SCRIPT), str(folder)]
        subprocess.run(command, check=True, env={**os.environ, "MGB_LOG_LEVEL": "ERROR"})
    else:
        pytest.skip("MegEngine's Python is not named; run `make test-frameworks`")
    return folder, json.loads((folder / "facts.json").read_text())


def test_multiply_adds_are_those_derived_from_the_settings(found: Found) -> None:
    folder, facts = found
    assert len(facts) > 50
    for name, fact in facts.items():
        for form in fact["dumps"]:
            report = opcost.count(folder / f"{name}.{form}.mge")
            assert report.totals.macs == fact["macs"], f"{name}.{form}"
            assert report.outputs[0].dims == (tuple(fact["output"]) or (1,)), f"{name}.{form}"
            assert report.coverage.complete, f"{name}.{form}"


def test_shapes_and_types_are_those_that_megengine_infers(found: Found) -> None:
    folder, facts = found
    for name, fact in facts.items():
        for form, expected in fact["dumps"].items():
            model = read_model(folder / f"{name}.{form}.mge")
            inferred = DumpWalk(model).run()
            ours: Counter[str] = Counter()
            for op in model.operators:
                variable = op.outputs[-1] if op.type == "BatchNorm" else op.outputs[0]
                extents = "x".join(map(str, inferred.tensor(variable).shape or ()))
                ours[
                    f"{THEIR_TYPES.get(op.type, op.type)} {extents} {dtype_name(inferred.tensor(variable).dtype)}"
                ] += 1
            theirs = Counter({re.sub(r"(Forward)?(V\d)? ", " ", key, count=1): n for key, n in expected.items()})
            assert ours == theirs, f"{name}.{form}"
