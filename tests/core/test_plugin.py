"""A broken plug-in costs that plug-in: everything else works, and a request for it gets the reason."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

from opcost.core import plugin
from opcost.core.plugin import FRONTENDS, GROUPS, RULES, VIEWS, load, usable
from opcost.errors import BrokenPlugin, PluginWarning, UnknownName
from opcost.frontends.registry import frontends, owner, reader
from opcost.rules import default_rules

Command = Callable[..., Any]
Install = Callable[..., None]

GOOD_VIEW = """
from dataclasses import dataclass
@dataclass(frozen=True)
class Options: pass
class View:
    name, suffix, results = "good", ".good", {"report": Options}
    def render(self, report, **options): return "a good picture\\n"
VIEW = View()
"""
FRONT_END = """
class FrontEnd:
    options = ()
    def named(self, text): return None
    def build(self, factory, kwargs): return factory(**kwargs)
    name, framework, suffixes = "evil", "torch", (".pt2", ".evil")
    def sniff(self, head, path): return False
    def owns(self, obj): return False
    def load(self, source, options): raise NotImplementedError
"""

BROKEN = {
    "an error at import": ("raise RuntimeError('out of order')", "RuntimeError: out of order"),
    "a missing module": ("import no_such_module_at_all", "No module named 'no_such_module_at_all'"),
    "a syntax error": ("def (", "SyntaxError"),
    "an end of the program": ("import sys; sys.exit(3)", "ends the program (exit code 3)"),
    "an attribute that is not there": ("OTHER = 1", "PART"),
    "nothing": ("PART = None", "it "),
    "a number": ("PART = 3", "it "),
}


def forget() -> None:
    for function in (plugin._scan, plugin._imported, plugin._warn, default_rules):
        function.cache_clear()  # type: ignore[attr-defined]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a package with one plug-in where Python finds it."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)

    def put(package: str, group: str, name: str, code: str, *, value: str = "", entry: str = "") -> None:
        module = package.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        line = entry or f"{name} = {value or f'{module}:PART'}"
        (info / "entry_points.txt").write_text(f"[{group}]\n{line}\n")
        forget()

    yield put
    monkeypatch.undo()
    for module in set(sys.modules) - before:
        if str(getattr(sys.modules[module], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[module]
    forget()


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text("from torch import nn\ndef net():\n    return nn.Linear(8, 8)\n")
    return f"{path}:net"


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_plug_in_is_reported_once_and_left_out(install: Install, group: str, fault: str) -> None:
    code, reason = BROKEN[fault]
    before = set(usable(group))
    install("evil-parts", group, "evil", code)
    with pytest.warns(PluginWarning, match="'evil' of .*evil-parts 1.0") as warned:
        assert set(usable(group)) == before
    assert reason in str(warned[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(usable(group)) == before
    with pytest.raises(BrokenPlugin, match="evil-parts") as caught:
        load(group, "evil")
    assert reason in caught.value.message


@pytest.fixture
def no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor imports every library in a process of its own, which takes seconds and has nothing to do with plug-ins."""
    monkeypatch.setattr("opcost.installed.LIBRARIES", ())


@pytest.mark.usefixtures("no_libraries")
@pytest.mark.parametrize(("fault", "group"), sampled(product(BROKEN, GROUPS), every=5))
def test_a_model_is_counted_beside_a_broken_plug_in_and_doctor_says_why(
    install: Install, opcost_command: Command, model: str, group: str, fault: str
) -> None:
    code, reason = BROKEN[fault]
    install("evil-parts", group, "evil", code)
    done = opcost_command("count", model, "-i", "1x8", "-o", Path(model).parent / "report.json")
    assert done.code == 0, done.err
    assert "Linear" in done.out
    lines = [line for line in done.err.splitlines() if "evil-parts" in line]
    assert len(lines) == (group in (FRONTENDS, RULES, VIEWS)), "one line, and none where the group is not needed"
    assert all(line.startswith("opcost: ") for line in lines)
    doctor = opcost_command("doctor")
    assert doctor.code == 2
    assert reason in doctor.out
    assert group in doctor.out


@pytest.mark.parametrize("words", [("--view", "evil"), ("-o", "report.evil")])
def test_a_request_for_the_broken_view_gets_the_reason(
    install: Install, opcost_command: Command, model: str, words: tuple[str, str]
) -> None:
    install("evil-parts", VIEWS, "evil", "raise RuntimeError('out of order')")
    done = opcost_command("count", model, "-i", "1x8", *words)
    assert done.code == 2
    assert "evil-parts 1.0" in done.err
    assert "out of order" in done.err
    assert "unknown" not in done.err


def test_a_view_that_works_is_used_and_one_that_fails_at_drawing_is_named(
    install: Install, opcost_command: Command, model: str
) -> None:
    install("good-parts", VIEWS, "good", GOOD_VIEW, value="good_parts:VIEW")
    install("evil-parts", VIEWS, "evil", GOOD_VIEW.replace("return", "raise SystemExit"), value="evil_parts:VIEW")
    assert opcost_command("count", model, "-i", "1x8", "--view", "good").out == "a good picture\n"
    done = opcost_command("count", model, "-i", "1x8", "--view", "evil")
    assert done.code == 2
    assert "evil_parts" in done.err
    assert "should not happen" not in done.err


@pytest.mark.parametrize(
    "change",
    [
        ("def sniff", "def other"),
        ("def owns", "def other"),
        ("def load", "def other"),
        ('name, framework, suffixes = "evil", "torch", (".pt2", ".evil")', 'name, framework = "evil", "torch"'),
        ('(".pt2", ".evil")', '".pt2"'),
        ('(".pt2", ".evil")', "(1, 2)"),
        ('"evil", "torch"', '"evil", []'),
    ],
)
def test_a_front_end_that_lacks_something_is_left_out(install: Install, change: tuple[str, str]) -> None:
    before = frontends()
    install("evil-parts", FRONTENDS, "evil", FRONT_END.replace(*change) + "PART = FrontEnd()\n")
    with pytest.warns(PluginWarning, match="evil-parts"):
        assert frontends() == before


@pytest.mark.parametrize("raised", ["ValueError('no')", "SystemExit(3)"])
def test_a_front_end_that_fails_when_it_is_called_is_left_out(install: Install, tmp_path: Path, raised: str) -> None:
    import torch

    path = tmp_path / "model.pt2"
    path.write_bytes(b"PK\x03\x04")
    before = reader(path)
    assert before is not None
    code = FRONT_END.replace("return False", f"raise {raised}") + "PART = FrontEnd()\n"
    install("evil-parts", FRONTENDS, "evil", code)
    with pytest.warns(PluginWarning, match="failed when deciding whether an object is its own"):
        assert owner(torch.nn.Linear(1, 1)).name == "torch"
    with pytest.warns(PluginWarning, match="failed when deciding whether it reads a file"):
        assert reader(path) is before


@pytest.mark.usefixtures("no_libraries")
def test_doctor_asks_a_front_end_an_easy_question(install: Install, opcost_command: Command) -> None:
    code = FRONT_END.replace("return False", "raise ValueError('no answer')") + "PART = FrontEnd()\n"
    install("evil-parts", FRONTENDS, "evil", code)
    done = opcost_command("doctor")
    assert done.code == 2
    assert "ValueError: no answer" in done.out


def test_a_front_end_that_fails_at_reading_is_named(install: Install, opcost_command: Command, tmp_path: Path) -> None:
    code = FRONT_END.replace("head, path): return False", "head, path): return True") + "PART = FrontEnd()\n"
    install("evil-parts", FRONTENDS, "evil", code)
    (tmp_path / "model.evil").write_text("x")
    done = opcost_command("count", tmp_path / "model.evil")
    assert done.code == 2
    assert "evil_parts" in done.err
    assert "NotImplementedError" in done.err


@pytest.mark.parametrize(
    "code",
    [
        "def PART(rules):\n    rules.add('evil::op', len)\n    raise RuntimeError('half way')",
        "def PART(rules):\n    rules.add('evil::op', len)\n    rules.add('conv', len)",
        "def PART(rules):\n    rules.add('evil::op', len)\n    raise SystemExit",
    ],
)
def test_rules_that_fail_half_way_add_none(install: Install, code: str) -> None:
    before = dict(default_rules())
    install("evil-parts", RULES, "evil", code)
    with pytest.warns(PluginWarning, match="failed when adding its rules"):
        assert dict(default_rules()) == before


def test_rules_that_work_are_added(install: Install) -> None:
    install("good-parts", RULES, "good", "def PART(rules):\n    rules.add('good::op', len)")
    assert "good::op" in default_rules()


@pytest.mark.usefixtures("no_libraries")
def test_of_two_foreign_plug_ins_of_one_name_neither_is_used_and_both_are_reported(
    install: Install, opcost_command: Command, model: str
) -> None:
    for package in ("first-parts", "second-parts"):
        install(package, VIEWS, "good", GOOD_VIEW, value=f"{package.replace('-', '_')}:VIEW")
    with pytest.warns(PluginWarning, match="two plug-ins .* 'good'"):
        assert "good" not in usable(VIEWS)
    done = opcost_command("count", model, "-i", "1x8", "--view", "good")
    assert done.code == 2
    assert "first-parts 1.0" in done.err
    assert "second-parts 1.0" in done.err
    assert opcost_command("count", model, "-i", "1x8").code == 0
    doctor = opcost_command("doctor")
    assert doctor.code == 2
    assert "CLASH" in doctor.out


def test_a_plug_in_cannot_take_the_name_of_an_own_part(install: Install) -> None:
    own = load(VIEWS, "table")
    install("evil-parts", VIEWS, "table", GOOD_VIEW, value="evil_parts:VIEW")
    with pytest.warns(PluginWarning, match="that of opcost is used"):
        assert usable(VIEWS)["table"] is own
    assert load(VIEWS, "table") is own


def test_a_list_of_plug_ins_that_cannot_be_parsed_costs_its_package(install: Install) -> None:
    before = set(usable(VIEWS))
    install("evil-parts", VIEWS, "evil", "", entry="this is no entry")
    install("good-parts", VIEWS, "good", GOOD_VIEW, value="good_parts:VIEW")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of Python skip the line themselves
        assert set(usable(VIEWS)) == before | {"good"}


def test_a_misspelt_name_is_still_a_misspelt_name() -> None:
    with pytest.raises(UnknownName):
        load(VIEWS, "tabel")


def test_front_ends_that_run_models_or_read_checkpoints_are_kept_apart(install: Install) -> None:
    readers, recorders = usable(FRONTENDS, "read"), usable(FRONTENDS, "record")
    code = """
class Part:
    name, framework, suffixes, ordered, wants_report = "both", "both", (".both",), True, False
    def sniff(self, head, path): return False
    def owns(self, obj): return False
    def record(self, source, options, report): raise NotImplementedError
    def read(self, path): raise NotImplementedError
PART = Part()
"""
    install("good-parts", FRONTENDS, "both", code)
    assert set(usable(FRONTENDS, "read")) - set(readers) == {"both"}
    assert set(usable(FRONTENDS, "record")) - set(recorders) == {"both"}
    assert "both" not in usable(FRONTENDS, "load")
