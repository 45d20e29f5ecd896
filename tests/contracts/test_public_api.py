"""The Python API and the command line give the same answer to the same words."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.core.graph import TensorSpec
from opcost.core.profile import ProfileRow
from opcost.errors import InputError, OpcostError, UnknownName
from opcost.profiles import Profile

Command = Callable[..., Any]

MODES = """
from torch import nn

class Net(nn.Module):
    '''In training it does twice the work.'''
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
    def forward(self, x):
        return self.fc(x) + self.fc(x) if self.training else self.fc(x)

made = Net()
"""
MACS = 8 * 4


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(MODES)
    return tmp_path / "net.py"


@pytest.fixture
def profile() -> Profile:
    row = ProfileRow(0, "fc", "aten::mm", host_ns=5, host_self_ns=5, ins=(TensorSpec((2, 3), "float32"),))
    return Profile(meta={"source": "net", "format": "opcost"}, rows=(row,))


@pytest.mark.parametrize("name", ["Net", "made"])
@pytest.mark.parametrize(("options", "words", "uses"), [({}, (), 1), ({"mode": "train"}, ("--train",), 2)])
def test_a_source_is_counted_in_the_same_mode_from_python_and_the_command_line(
    code: Path, opcost_command: Command, name: str, options: Any, words: tuple[str, ...], uses: int
) -> None:
    saved = code.parent / "r.json"
    assert opcost_command("count", f"{code}:{name}", "-i", "1x8", *words, "-o", saved).code == 0
    by_command = opcost.load_report(saved)
    counted = opcost.count(f"{code}:{name}", shapes=(1, 8), **options)
    assert by_command.totals == counted.totals
    assert counted.totals.macs == uses * MACS


def test_a_model_keeps_its_own_mode(code: Path) -> None:
    from opcost.frontends.python import import_file

    model = import_file(code).Net()
    assert opcost.count(model, shapes=(1, 8)).totals.macs == 2 * MACS
    assert opcost.count(model.eval(), shapes=(1, 8)).totals.macs == MACS


def test_where_the_backward_pass_is_counted_a_source_trains(code: Path) -> None:
    forward = opcost.count(f"{code}:Net", shapes=(1, 8), backward=True).phases["forward"]
    assert forward.macs == 2 * MACS


# -- what a file is called decides what is in it ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, Path])
def test_a_report_is_saved_by_its_suffix(code: Path, tmp_path: Path, kind: type) -> None:
    report = opcost.count(f"{code}:Net", shapes=(1, 8))
    report.save(kind(tmp_path / "x.json"))
    assert opcost.load_report(kind(tmp_path / "x.json")) == report
    with pytest.raises(UnknownName, match=r"'\.jsno'; did you mean '\.json'"):
        report.save(kind(tmp_path / "x.jsno"))
    with pytest.raises(OpcostError, match="has no suffix") as caught:
        report.save(kind(tmp_path / "x"))
    assert ".csv, .html, .json, .md, .svg, .tex, .txt" in caught.value.hint


BEGINNINGS = {"x.json": "{", "x.csv": "role,", "x.md": "**", "x.html": "<!DOCTYPE", "x.txt": "net: "}


@pytest.mark.parametrize("name", BEGINNINGS)
def test_a_profile_is_saved_by_its_suffix(
    profile: Profile, tmp_path: Path, name: str, opcost_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile.save(tmp_path / name)
    assert (tmp_path / name).read_text().startswith(BEGINNINGS[name])
    monkeypatch.setattr("opcost.cli.profile._recorded", lambda *args, **options: profile)
    assert opcost_command("profile", "net.py:Net", "-o", tmp_path / f"again_{name}", "-q").code == 0
    assert (tmp_path / f"again_{name}").read_text() == (tmp_path / name).read_text()
    profile.save(tmp_path / "profile.json")
    assert opcost_command("analyze", tmp_path / "profile.json", "-o", tmp_path / f"answer_{name}").code == 0
    if name == "x.json":
        assert opcost.read_profile(tmp_path / name).rows == profile.rows
        assert json.loads((tmp_path / "answer_x.json").read_text())["schema"].startswith("opcost.answer/")
    else:
        assert (tmp_path / f"answer_{name}").read_text().startswith(BEGINNINGS[name])


@pytest.mark.parametrize("name", ["p.xlsx", "p.jsn", "p"])
def test_an_unknown_suffix_is_refused_before_any_work(
    profile: Profile, tmp_path: Path, name: str, opcost_command: Command
) -> None:
    profile.save(tmp_path / "profile.json")
    for words in (
        ("analyze", tmp_path / "profile.json"),
        ("profile", "no-such-file.py:Net"),
        ("count", "no-such-file.py:Net"),
    ):
        done = opcost_command(*words, "-o", tmp_path / name)
        assert done.code == 2
        assert "name the file with one of .csv, " in done.err
        assert not (tmp_path / name).exists()
    with pytest.raises(OpcostError, match="suffix"):
        profile.save(tmp_path / name)


def test_a_layout_of_json_is_not_written_under_another_suffix(opcost_command: Command, tmp_path: Path) -> None:
    done = opcost_command("profile", "net.py:Net", "-o", tmp_path / "p.csv", "--layout", "chrome")
    assert done.code == 2
    assert "--layout chrome writes JSON" in done.err


def test_a_folder_that_is_not_there_is_reported_before_the_profile_is_read(
    profile: Profile, tmp_path: Path, opcost_command: Command
) -> None:
    profile.save(tmp_path / "p.json")
    done = opcost_command("analyze", tmp_path / "p.json", "-o", tmp_path / "nofolder" / "p.json")
    assert done.code == 2
    assert "there is no folder" in done.err


# -- unknown names ------------------------------------------------------------------------------------------------------

MISSPELT_OPTIONS = {
    "kind": ("cnov", "conv"),
    "side": ("hots", "host"),
    "measure": ("wiat", "wait"),
    "sort": ("tmie", "time"),
    "aggregate_by": ("kidn", "kind"),
    "group_by": ("modul", "module"),
    "aggregate": ("meam", "mean"),
    "device": ("h20O", "h200"),
}


@pytest.mark.parametrize("option", MISSPELT_OPTIONS)
def test_a_misspelt_option_of_a_query_is_reported_with_what_was_meant(profile: Profile, option: str) -> None:
    typed, meant = MISSPELT_OPTIONS[option]
    with pytest.raises(UnknownName) as caught:
        opcost.query(profile, **{option: typed})  # type: ignore[arg-type]
    assert meant in caught.value.near
    with pytest.raises(UnknownName, match="did you mean 'kind'"):
        profile.query(kidn="conv")  # type: ignore[call-arg]


@pytest.mark.parametrize("view", ["table", "md", "html"])
def test_a_misspelt_option_or_column_of_a_view_is_corrected(profile: Profile, view: str) -> None:
    with pytest.raises(UnknownName, match="did you mean 'columns'"):
        profile.query().render(view, colums="time")
    with pytest.raises(UnknownName, match="did you mean 'time'"):
        profile.query().render(view, columns="tmie")


def test_a_type_or_module_that_the_profile_does_not_have_is_noted(profile: Profile) -> None:
    (note,) = profile.query(type="aten::nm").notes
    assert note.text == "no operator of the profile has the type 'aten::nm'; did you mean 'aten::mm'?"
    (note,) = profile.query(module="fc.1").notes
    assert note.text == "no operator of the profile has the module 'fc.1'"
    assert not profile.query(type="aten::mm").notes
    (note,) = profile.query(input_dtype="Flaot32").notes
    assert note.text == "no operator of the profile has the input type 'flaot32'; did you mean 'float32'?"
    assert not profile.query(input_dtype="Float32").notes


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ({"mode": "trian"}, "train"),
        ({"causal": "hafl"}, "half"),
        ({"optimizer": "adamm"}, "Adam"),
        ({"dtypes": "flaot16"}, "float16"),
        ({"options": {"parms": 1}}, ""),
    ],
)
def test_a_misspelt_option_is_reported_with_what_was_meant(code: Path, options: dict[str, Any], meant: str) -> None:
    with pytest.raises(UnknownName) as caught:
        opcost.count(f"{code}:Net", shapes=(1, 8), **options)
    assert meant in (*caught.value.near, "")


def test_an_unknown_mode_is_refused_for_a_file_too(root: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'train'"):
        opcost.count("x.mge", mode="trian")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="did you mean 'eval'"):
        opcost.profile("x.onnx", mode="evla")  # type: ignore[arg-type]


def test_a_device_is_for_models_that_are_made_from_a_string(code: Path) -> None:
    import torch

    with pytest.raises(InputError, match="from a string"):
        opcost.profile(torch.nn.Linear(2, 2), shapes=(1, 2), device="cpu")


# -- what is looked at once ---------------------------------------------------------------------------------------------


def test_a_source_is_resolved_once(code: Path, opcost_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from opcost.frontends import source

    resolved: list[str] = []
    usual = source._resolve
    monkeypatch.setattr(source, "_resolve", lambda text, settings: resolved.append(text) or usual(text, settings))
    name = f"{code}:Net"
    for words in (("count",), ("check", "--max-macs", "1G"), ("visualize",), ("profile", "-o", code.parent / "p.json")):
        resolved.clear()
        assert opcost_command(words[0], name, "-i", "1x8", *words[1:]).code == 0
        assert resolved == [name], words


def test_a_trace_is_sniffed_once(profile: Profile, tmp_path: Path, opcost_command: Command) -> None:
    from opcost.traces.registry import SAVED_PROFILES

    profile.save(tmp_path / "p.json")
    heads: list[bytes] = []
    usual = type(SAVED_PROFILES).sniff
    try:
        type(SAVED_PROFILES).sniff = lambda self, head: heads.append(head) or usual(self, head)  # type: ignore[method-assign,func-returns-value]
        assert opcost_command("analyze", tmp_path / "p.json").code == 0
        assert len(heads) == 1
        assert opcost_command("compare", "--changes", tmp_path / "p.json", tmp_path / "p.json").code == 0
        assert len(heads) == 3
    finally:
        type(SAVED_PROFILES).sniff = usual  # type: ignore[method-assign]


# -- what editors and type checkers see ---------------------------------------------------------------------------------

TYPED = """
import opcost
profile = opcost.read_profile("x.json")
profile.query(kind="conv", sort="-time", top=5, aggregate_by=["type"], percentiles=(10, 90))
opcost.query(profile, tpo=5)
opcost.query(profile, top="5")
profile.query(side="hots")
opcost.count("x.mge", mode="trian")
opcost.count("x.mge", shapes={"x": (1, 3)}, dtypes="float16", mode="eval", causal="half", epoch=3)
opcost.profile("x.onnx", shapes=[(1, 3)], repeat="3")
reveal_type(opcost.count("x.mge"))
reveal_type(opcost.measure(print))
"""


def test_a_type_checker_knows_every_argument_of_the_public_api(tmp_path: Path, root: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "typed.py").write_text(TYPED)
    words = [sys.executable, "-m", "mypy", "--config-file", str(root / "pyproject.toml"), str(tmp_path / "typed.py")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=root, check=False)
    messages = [line.partition("typed.py:")[2] for line in done.stdout.splitlines() if "typed.py:" in line]
    assert [line.partition(":")[0] for line in messages if "error" in line] == ["5", "6", "7", "8", "9", "10"], (
        done.stdout
    )
    assert 'Unexpected keyword argument "tpo"' in messages[0]
    assert ['opcost.core.report.Report"' in line or 'Measurement"' in line for line in messages[-2:]] == [True, True]
