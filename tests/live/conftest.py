from __future__ import annotations

import os
import shutil
from importlib.metadata import distribution
from pathlib import Path

import pytest

import opcost


@pytest.fixture(scope="session")
def opcost_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PYTHONPATH for a framework's own Python: opcost and its entry points, and none of this Python's packages."""
    folder = tmp_path_factory.mktemp("opcost")
    installed = Path(str(distribution("opcost").locate_file(""))) / f"opcost-{opcost.__version__}.dist-info"
    shutil.copytree(installed, folder / installed.name)
    return os.pathsep.join((str(Path(opcost.__file__).parents[1]), str(folder)))
