"""An error shows the user's own lines and none of opcost's: in a script, a notebook, pytest, and for every public function."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import partial
from json import loads
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import opcost
from opcost.core.sheet import Sheet
from opcost.core.tracebacks import keep_whole, trims_traceback
from opcost.errors import InputError, OpcostError
from opcost.profiles import Profile

PACKAGE = str(Path(opcost.__file__).parent)

# Line 6 of the model raises; line 9 calls opcost.
CODE = """import opcost
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        return x.reshape(3, -1)

def count_it():
    return opcost.count(Net(), shapes=(2, 4))
"""
NOTEBOOK = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
shell.run_cell(open("net.py").read() + "\\ncount_it()")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(CODE)
    (tmp_path / "script.py").write_text("import net\nnet.count_it()\n")
    (tmp_path / "notebook.py").write_text(NOTEBOOK)
    (tmp_path / "test_net.py").write_text("import net\ndef test_it():\n    net.count_it()\n")
    return tmp_path


WAYS = {
    "script": ["script.py"],
    "notebook": ["notebook.py"],
    "pytest": ["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_net.py"],
}


def output(way: str, folder: Path, **environment: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "OPCOST_DEBUG"} | environment
    if way == "notebook":
        pytest.importorskip("IPython")
        env |= {"IPYTHONDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, *WAYS[way]], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_the_line_of_the_model_is_first_and_no_frame_is_of_opcost(way: str, folder: Path) -> None:
    text = output(way, folder)
    assert (
        text.index("return x.reshape(3, -1)") < text.index("return opcost.count(Net()") < text.index("ForwardError: ")
    )
    lines = text.splitlines()
    framed = [line for line in lines if PACKAGE in line or "/torch/" in line or "opcost/core/tracebacks" in line]
    assert framed == [] or (sys.version_info < (3, 11) and way == "script" and len(framed) == 1)
    assert "--debug" not in text


def test_the_whole_traceback_is_there_for_who_sets_a_variable(folder: Path) -> None:
    text = output("script", folder, OPCOST_DEBUG="1")
    assert "_call_impl" in text
    assert PACKAGE in text


# -- every public function ----------------------------------------------------------------------------------------------


def frames(call: Callable[[], Any], kind: type[Exception]) -> list[str]:
    """The files of the frames that a user sees."""
    with pytest.raises(kind) as caught:
        call()
    head = caught.value.__traceback__
    files = [frame.filename for frame in traceback.extract_tb(head)]
    if sys.version_info < (3, 11):  # there the head of the traceback is the function that trims
        files = [file for file in files if not file.endswith("tracebacks.py")]
    return files


FUNCTIONS = [name for name in opcost.__all__ if isinstance(getattr(opcost, name), FunctionType)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_call_with_an_unknown_argument_shows_the_call_alone(name: str) -> None:
    function = getattr(opcost, name)
    call: Callable[[], Any] = lambda: function(*[b"no such source"] * 30, no_such_option=1)
    assert {*frames(call, (TypeError, OpcostError))} == {__file__}  # type: ignore[arg-type]


def test_a_call_of_a_method_shows_the_call_alone() -> None:
    sheet = Sheet(name="x")
    profile = Profile(meta={}, rows=())
    calls: tuple[Callable[[], Any], ...] = (
        lambda: sheet.render("no such view"),
        lambda: sheet.save("x.no"),
        lambda: profile.query(side="no such side"),  # type: ignore[arg-type]
        lambda: profile.save("x.no"),
        lambda: opcost.StepMeter("no such device"),
        lambda: opcost.StepMeter("h200", "too", "many"),  # type: ignore[call-arg,arg-type]
    )
    for call in calls:
        assert {*frames(call, (TypeError, OpcostError))} == {__file__}  # type: ignore[arg-type]


def test_a_public_function_can_be_sent_to_another_process() -> None:
    for name in FUNCTIONS:
        assert pickle.loads(pickle.dumps(getattr(opcost, name))) is getattr(opcost, name)


# -- what is kept -------------------------------------------------------------------------------------------------------


def fails(make: Callable[[], Any]) -> None:
    """As a function of opcost: its error has the cause that the user's function raised, or one of Python's library."""
    code = "def called(make):\n  try:\n    make()\n  except ValueError as exc:\n    raise InputError('bad') from exc"
    trims_traceback(of_opcost(code)["called"])(make)


def of_opcost(code: str) -> dict[str, Any]:
    """The functions of some code, as if it were in a file of opcost."""
    space: dict[str, Any] = {"InputError": InputError}
    exec(compile(code, f"{PACKAGE}/example.py", "exec"), space)
    return space


def users() -> None:
    raise ValueError("of the user")


def test_a_cause_of_the_users_is_shown_and_one_of_opcosts_own_is_not() -> None:
    with pytest.raises(InputError) as caught:
        fails(users)
    assert isinstance(caught.value.__cause__, ValueError)
    assert [frame.name for frame in traceback.extract_tb(caught.value.__cause__.__traceback__)] == ["users"]
    with pytest.raises(InputError) as caught:
        fails(partial(loads, "{"))
    assert caught.value.__cause__ is None
    assert isinstance(caught.value.__context__, ValueError)
    assert "During handling" not in "".join(traceback.format_exception(caught.value))


def test_a_bug_of_opcost_and_debug_keep_the_whole_traceback() -> None:
    space = of_opcost("def inner(): raise KeyError('a bug')\ndef called(): inner()\ndef wrong(): len(1)")
    for name, kind in (("called", KeyError), ("wrong", TypeError)):
        with pytest.raises(kind) as caught:
            trims_traceback(space[name])()
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name in ("inner", "wrong")
    token = keep_whole.set(True)
    try:
        with pytest.raises(InputError) as debugged:
            fails(users)
    finally:
        keep_whole.reset(token)
    assert traceback.extract_tb(debugged.value.__traceback__)[-1].name == "called"
