"""`rules`, `doctor`, `check` and `compare`."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from importlib import metadata
from io import StringIO
from pathlib import Path

import pytest

from opcost.cli.main import COMMANDS, app
from opcost.core.kinds import KINDS
from opcost.core.plugin import FRONTENDS, RULES, VIEWS, find
from opcost.rules import default_rules

LINEAR = (
    "from torch import nn\ndef net(width=8, bias=False):\n    return nn.Sequential(nn.Linear(width, 5, bias=bias))\n"
)


@pytest.fixture
def linear(tmp_path: Path) -> str:
    path = tmp_path / "linear.py"
    path.write_text(LINEAR)
    return f"{path}:net"


def test_every_command_is_there_and_says_what_it_does(opcost_command: Callable) -> None:
    shown = opcost_command("--help").out
    for name in COMMANDS:
        assert name in shown
        assert opcost_command(name, "--help").out.startswith(f"Usage: opcost {name}")
    assert set(COMMANDS) == {name for name in app() if not name.startswith("-")}


def test_rules_lists_every_rule_with_its_formula(opcost_command: Callable) -> None:
    listed = dict(line.split(maxsplit=1) for line in opcost_command("rules").out.splitlines())
    assert set(listed) == set(default_rules())
    assert all(listed.values())


def test_one_rule_is_shown_in_full_with_its_operator(opcost_command: Callable) -> None:
    assert "\n".join(KINDS["conv"].described()) in opcost_command("rules", "conv").out


def test_doctor_lists_versions_plug_ins_and_extras(opcost_command: Callable) -> None:
    done = opcost_command("doctor")
    assert done.code == 0
    for group in (FRONTENDS, RULES, VIEWS):
        assert group in done.out
        assert all(entry.value in done.out for entry in find(group).values())
    assert re.search(rf"torch +{re.escape(metadata.version('torch'))}", done.out)
    for extra in metadata.metadata("opcost").get_all("Provides-Extra") or ():
        assert re.search(rf"^  {extra} +(installed|missing)", done.out.partition("extras")[2], re.MULTILINE)
    assert re.search(r"^  cuda +(PyTorch is not built for it|[\d.]+, )", done.out, re.MULTILINE)


def installed(folder: Path, name: str, code: str) -> None:
    """A library that is there as far as its metadata goes."""
    (folder / f"{name}.py").write_text(code)
    about = folder / f"{name}-1.5.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")


def test_doctor_says_which_libraries_cannot_be_imported_and_what_pytorch_sees(
    opcost_command: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed(tmp_path, "whole", "print('noise')")
    installed(tmp_path, "broken", "raise RuntimeError('operator nms does not exist\\nsecond line')")
    installed(tmp_path, "ending", "import os; os._exit(9)")
    installed(tmp_path, "after", "")
    device = "def get_device_name(at): return f'Card {at}'"
    cuda = f"class cuda:\n    def is_available(): return True\n    def device_count(): return 2\n    {device}\n"
    installed(tmp_path, "torch", f"{cuda}class version: cuda, hip = '13.0', None\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    names = ("whole", "broken", "ending", "after", "absent", "torch")
    monkeypatch.setattr("opcost.installed.LIBRARIES", names)
    done = opcost_command("doctor")
    libraries = done.out.partition("libraries\n")[2].partition("extras")[0].splitlines()
    assert libraries == [
        "  whole   1.5",
        "  broken  1.5  CANNOT BE IMPORTED: operator nms does not exist",
        "  ending  1.5  CANNOT BE IMPORTED: the process that imported it ended with 9",
        "  after   1.5",
        "  absent  not installed",
        "  torch   1.5",
        "  cuda    13.0, Card 0, Card 1",
    ]
    assert done.code == 0


def test_doctor_names_a_plug_in_that_cannot_be_loaded(
    opcost_command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = metadata.EntryPoint("broken", "no_such_module_at_all:VIEW", VIEWS)
    monkeypatch.setattr("opcost.installed.find", lambda group: {"broken": broken})
    monkeypatch.setattr("opcost.installed.LIBRARIES", ())
    done = opcost_command("doctor")
    assert done.code == 2
    assert "CANNOT BE LOADED" in done.out


@pytest.mark.parametrize(("budget", "code"), [("120", 0), ("0.12K", 0), ("119", 1)])
def test_a_budget_is_kept_up_to_the_last_mac(opcost_command: Callable, linear: str, budget: str, code: int) -> None:
    batch, width, classes = 3, 8, 5
    assert batch * width * classes == 120
    done = opcost_command("check", linear, "-i", f"{batch}x{width}", "--max-macs", budget)
    assert done.code == code
    assert ("EXCEEDED" in done.out) == bool(code)


def test_every_exceeded_limit_is_named(opcost_command: Callable, linear: str) -> None:
    param_bytes = 8 * 5 * 4
    words = (
        "check",
        linear,
        "-i",
        "1x8",
        "--max-params",
        "39",
        "--max-flops",
        "1K",
        "--max-param-bytes",
        f"{param_bytes - 1}B",
    )
    done = opcost_command(*words, "--format", "csv")
    verdicts = {line["quantity"]: line["verdict"] for line in csv.DictReader(StringIO(done.out))}
    assert (done.code, verdicts) == (1, {"params": "EXCEEDED", "flops": "ok", "param_bytes": "EXCEEDED"})


def test_a_budget_is_not_kept_where_an_operator_has_no_cost(opcost_command: Callable, tmp_path: Path) -> None:
    path = tmp_path / "mystery.py"
    path.write_text(
        "import torch\n"
        "@torch.library.custom_op('opcost_test_check::mystery', mutates_args=())\n"
        "def mystery(x: torch.Tensor) -> torch.Tensor:\n"
        "    return x.clone()\n"
        "@mystery.register_fake\n"
        "def _(x):\n"
        "    return torch.empty_like(x)\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return mystery(x)\n"
    )
    words = ("check", f"{path}:Net", "-i", "2x3", "--max-macs", "1G")
    done = opcost_command(*words)
    assert done.code == 1
    assert "opcost_test_check::mystery" in done.out
    assert opcost_command(*words, "--allow-uncounted").code == 0


def test_a_model_does_not_differ_from_its_saved_report(opcost_command: Callable, linear: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    opcost_command("count", linear, "-i", "1x8", "-o", saved)
    assert opcost_command("compare", "--changes", saved, saved).code == 0


def test_a_difference_is_listed_by_quantity_and_by_module(
    opcost_command: Callable, linear: str, tmp_path: Path
) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    opcost_command("count", linear, "-i", "1x8", "-o", old)
    opcost_command("count", linear, "-i", "1x8", "--set", "bias=True", "-o", new)
    done = opcost_command("compare", "--changes", old, new, "--fail-if", "changed")
    assert done.code == 1
    lines = [line.split() for line in done.out.splitlines() if line]
    assert ["params", str(8 * 5), str(8 * 5 + 5), "+5", f"{5 / (8 * 5):+.2%}"] in lines
    assert not any(line[0] == "MACs" for line in lines)
    assert ["0", "changed", "Linear", "+5"] in [line[:4] for line in lines]


def test_no_option_of_a_front_end_can_take_the_name_of_a_flag(opcost_command: Callable) -> None:
    from opcost.cli.flags import RESERVED
    from opcost.frontends.registry import frontends
    from opcost.recorders.registry import recorders

    declared = {option.name for part in (*frontends(), *recorders()) for option in part.options}
    for command in ("count", "check", "compare", "visualize", "profile", "fit", "sweep"):
        help_text = opcost_command(command, "--help").out
        flags = {flag.replace("-", "_") for flag in re.findall(r"--([a-z][a-z_\d-]+)", help_text)}
        assert len(flags) > 10
        flags -= {"profile"}  # of MegEngine's load_and_run, named in the text
        assert {flag for flag in flags - declared if not flag.startswith("no_")} <= RESERVED, command
