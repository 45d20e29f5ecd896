"""The dumps that MegEngine 1.13.0 made, and what its own tool says about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[2] / "data" / "megengine"
DUMPS = sorted((DATA / "mge").glob("*.mge"))
VISUALIZED = sorted((DATA / "network_visualize").glob("*.json"))


@pytest.fixture
def dump() -> Callable[[str], Path]:
    """A dump by its name."""
    return lambda name: DATA / "mge" / f"{name}.mge"


@pytest.fixture
def visualized() -> Callable[[str], dict[str, Any]]:
    """What MegEngine's network_visualize says about a dump."""
    return lambda name: json.loads((DATA / "network_visualize" / f"{name}.json").read_text())


@pytest.fixture(params=DUMPS, ids=[path.stem for path in DUMPS])
def any_dump(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(params=VISUALIZED, ids=[path.stem for path in VISUALIZED])
def any_visualized(request: pytest.FixtureRequest) -> str:
    return request.param.stem
