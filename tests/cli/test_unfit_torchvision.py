"""Code of a user's that imports a torchvision whose compiled operators do not fit the installed torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import opcost
from opcost.errors import UnknownSource
from opcost.frontends import zoo
from opcost.frontends.zoo import repaired

OUT = 3
TORCHVISION = """
import torch
from torchvision import models

@torch.library.register_fake("torchvision::nms")  # fails, as the true one does, where the operator is not registered
def nms(dets, scores, iou_threshold):
    return dets
"""
MODELS = f"""
import torch
make = lambda: torch.nn.Linear(2, {OUT}, bias=False)
"""
NET = "import torchvision\n\ndef net():\n    return torchvision.models.make()\n"
LATE = "def net():\n    import torchvision\n    return torchvision.models.make()\n"


def test_a_file_whose_import_of_torchvision_fails_is_counted_and_the_report_says_why(tmp_path: Path) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(TORCHVISION)
    (package / "models.py").write_text(MODELS)
    (tmp_path / "by_file.py").write_text(NET)
    (tmp_path / "by_function.py").write_text(LATE)
    program = """
import os, torch
for source in ("by_file.py:net", "by_function.py:net"):
    if not os.fork():  # a process that has loaded torch and not torchvision
        import opcost
        report = opcost.count(source, shapes=(1, 2))
        print(report.totals.macs, *(note.code for note in report.notes))
        print(*(note.code for note in opcost.count(source, shapes=(1, 2)).notes), flush=True)
        os._exit(0)
    os.wait()
"""
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == 2 * [f"{2 * OUT} torchvision-operators", ""], done.stderr


@pytest.mark.parametrize("fault", [ValueError("operator torchvision::nms"), RuntimeError("no such operator")])
def test_another_failure_is_not_tried_again(fault: Exception) -> None:
    calls = []

    def fails() -> None:
        calls.append(1)
        raise fault

    with pytest.raises(type(fault), match=str(fault)):
        repaired(fails)
    assert calls == [1]


def test_a_file_without_a_name_lists_its_names_although_its_import_fails_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zoo, "_declared", [])
    monkeypatch.setattr(zoo, "declare_torchvision_operators", (tmp_path / "declared").touch)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    path = tmp_path / "unfit_net.py"
    path.write_text(
        "from pathlib import Path\n"
        "if not (Path(__file__).parent / 'declared').exists():\n"
        "    raise RuntimeError('operator torchvision::nms does not exist')\n"
        "class Seg: ...\n"
    )
    with pytest.raises(UnknownSource, match="which of its names makes the model") as caught:
        opcost.count(str(path))
    assert f"{path}:Seg" in caught.value.hint
