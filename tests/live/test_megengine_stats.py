"""Live: MegEngine 1.13.0's own counters and opcost's answer to them, on nets that are drawn now.

MegEngine runs in a virtual environment of its own; see `test_megengine`.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("OPCOST_MEGENGINE_PYTHON", "")
SCRIPT = Path(__file__).with_name("megengine_stats.py")
TOTALS = ("param_size", "param_dims", "flops", "act_size", "act_dims")

pytestmark = pytest.mark.skipif(not PYTHON, reason="MegEngine's Python is not named; run `make test-frameworks`")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, opcost_path: str) -> dict[str, Any]:
    """What the script prints, run by MegEngine's Python with opcost on its path."""
    folder = tmp_path_factory.mktemp("megengine")
    seed = os.environ.get("OPCOST_SEED") or str(random.SystemRandom().randrange(2**31))
    print(f"OPCOST_SEED={seed}")
    done = subprocess.run(
        [*shlex.split(PYTHON), str(SCRIPT), str(folder), seed],
        check=True,
        env={**os.environ, "PYTHONPATH": opcost_path, "MGB_LOG_LEVEL": "ERROR"},
        stdout=subprocess.PIPE,
        text=True,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def totals(found: dict[str, Any], net: str, whose: str = "ours") -> dict[str, int]:
    return dict(zip(TOTALS, found[net][whose]["totals"], strict=True))


@pytest.mark.parametrize("net", ["convolutional", "shapes", "float", "quantized", "linear_float", "sequence"])
def test_where_megengine_is_right_numbers_and_text_are_the_same(net: str, found: dict[str, Any]) -> None:
    assert totals(found, net) == totals(found, net, "theirs")
    assert found[net]["ours"]["text"] == found[net]["theirs"]["text"]


@pytest.mark.parametrize(("prepared", "original"), [("prepared", "float"), ("linear_prepared", "linear_float")])
def test_a_net_prepared_for_quantization_keeps_its_fused_layers(
    prepared: str, original: str, found: dict[str, Any]
) -> None:
    assert totals(found, prepared) == totals(found, original)
    assert totals(found, prepared, "theirs")["flops"] < totals(found, prepared)["flops"]


def test_a_quantized_linear_layer_is_counted(found: dict[str, Any]) -> None:
    assert found["linear_quantized"]["theirs"] == {"error": "KeyError"}
    channels = totals(found, "linear_float")["flops"], totals(found, "linear_quantized")["flops"]
    assert 0 < channels[1] < channels[0]  # the norms are folded into the convolutions


def test_functions_with_multiply_adds_are_added_to_megengines_number(found: dict[str, Any]) -> None:
    sizes = found["sizes"]
    products = 2 * 2 * sizes["length"] ** 2 * sizes["width"]
    results = 2 * sizes["length"] ** 2 + 2 * sizes["length"] * sizes["width"]
    ours, theirs = totals(found, "attention"), totals(found, "attention", "theirs")
    assert ours["flops"] == theirs["flops"] + products
    assert ours["act_dims"] == theirs["act_dims"] + results
    assert ours["param_dims"] == theirs["param_dims"]


def test_layers_that_megengine_fails_on_are_counted(found: dict[str, Any]) -> None:
    assert found["words"]["theirs"] == {"error": "KeyError"}
    width, length, words, hidden = (found["sizes"][name] for name in ("width", "length", "words", "hidden"))
    steps = 2 * length
    lstm = steps * (4 * hidden * (width + hidden) + 2 * 4 * hidden)
    ours = totals(found, "words")
    assert ours["flops"] == lstm + steps * hidden * 3 + 3
    assert ours["param_dims"] == words * width + 4 * hidden * (width + hidden + 2) + 1 + hidden * 3 + 3


def test_a_model_leaves_as_it_came_also_when_its_forward_raises(found: dict[str, Any]) -> None:
    for net, error in (("fine", None), ("failing", "ValueError")):
        seen = found["restored"][net]
        assert seen["error"] == error
        assert seen["after"] == seen["before"]


def test_a_dump_has_megengines_totals(found: dict[str, Any]) -> None:
    assert totals(found, "dump") == totals(found, "dump", "theirs")
