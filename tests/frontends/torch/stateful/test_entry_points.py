"""After any entry point was called with a stateful model, it, everything reachable from it, and the process are as before.

A count and, in turn, some of the other entry points are tried on every model; OPCOST_FULL=1 tries each on every model.
"""

from __future__ import annotations

import contextvars
import gc
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from sampling import FULL, sampled
from stateful import process
from stateful.entry_points import COUNTS, ENTRY_POINTS, call, difference
from stateful.registry import ALL, made
from stateful.snapshot import Snapshot, differences, set_aside, without_data
from stateful.twins import expected, once, outputs, warm_entry_points

import opcost
from opcost.errors import OpcostError

EVERY = 23
"""Each of the other entry points is tried on every twenty-third model, beginning at another one."""
OFTEN = 3
"""And the other counts on every third."""

FOUND = frozenset(
    (name, entry)
    for name, entries in {"LazyLayers": "profile torchstat megengine", "Generator": "ptflops"}.items()
    for entry in entries.split()
)
"""Pairs that once were not as before: these are always tried."""

pytestmark = pytest.mark.filterwarnings("ignore")


def _pairs(entries: Iterable[str], *, always: Iterable[str] = COUNTS) -> list[Any]:
    """Models and entry points: the first of `always` on all models, the others in turn."""
    return [
        pytest.param(
            family, name, entry, id=f"{name}-{entry}", marks=[pytest.mark.zoo] if family == "libraries" else []
        )
        for start, entry in enumerate(entries)
        for index, (family, name) in enumerate(ALL)
        if FULL
        or (name, entry) in FOUND
        or entry == next(iter(always), "")
        or (family != "libraries" and index % (every := OFTEN if entry in always else EVERY) == start % every)
    ]


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    """The first use of an entry point imports what it needs; test_first_use looks at that."""
    warm_entry_points()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def process_kept() -> Iterator[None]:
    with process.kept():
        yield


@pytest.fixture(autouse=True)
def as_in_a_process_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that other tests left behind would make queues theirs as well."""
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    # PyTorch's own testing tools, which other tests import, forbid to turn the switches of backends.
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)


@pytest.mark.parametrize(("family", "name", "entry"), _pairs(ENTRY_POINTS))
def test_everything_is_as_before(family: str, name: str, entry: str) -> None:
    contextvars.copy_context().run(_is_called_with, family, name, entry)


def _is_called_with(family: str, name: str, entry: str) -> None:
    set_aside()
    with made(family, name) as twin:
        given = twin.case.inputs()
        before = Snapshot(twin)
        answer = call(entry, twin.model, given)
        if entry in COUNTS and not twin.case.holder:
            _compare("the second count", call(entry, twin.model, given), answer)
        refused = twin.case.holder if isinstance(answer, OpcostError) else ""
        if refused and refused not in str(answer):
            pytest.fail(f"the error does not name {refused}: {answer}")
        if changed := differences(before, Snapshot(twin), holder=refused):
            pytest.fail("not as before:\n" + "\n".join(changed[:12]))
        del answer, before, given
        if refused:
            return
        if alive := list(map(repr, without_data())):
            pytest.fail(f"tensors without data are alive: {alive[:5]}")
        with process.kept():
            answers = outputs(twin)
    if answers != expected(family, name):
        pytest.fail(f"the model answers otherwise: {str(answers)[:300]}")


@pytest.mark.parametrize(("family", "name", "entry"), _pairs(COUNTS, always=()))
def test_a_twin_has_the_same_count(family: str, name: str, entry: str) -> None:
    contextvars.copy_context().run(_is_counted_as_its_twin, family, name, entry)


def _is_counted_as_its_twin(family: str, name: str, entry: str) -> None:
    with process.kept(), made(family, name) as twin:
        first = call(entry, twin.model, twin.case.inputs())
    with made(family, name) as other:
        _compare("the count of a twin", call(entry, other.model, other.case.inputs()), first)


def _compare(what: str, answer: Any, first: Any) -> None:
    if unlike := difference(answer, first):
        pytest.fail(f"{what} is another one: {unlike}")


@pytest.mark.parametrize(("family", "name", "entry"), _pairs(("measure",)))
def test_measuring_adds_nothing_to_what_the_calls_do(family: str, name: str, entry: str) -> None:
    contextvars.copy_context().run(_is_measured, family, name)


def _is_measured(family: str, name: str) -> None:
    with made(family, name) as plain:
        if plain.case.fails:
            pytest.skip("what the function raises reaches the caller")
        with process.kept():
            given = plain.case.inputs()
            for _ in range(2):
                plain.model(*given)
            called = process.look()
            called_answers = outputs(plain)
    with made(family, name) as measured:
        opcost.measure(measured.model, *measured.case.inputs(), warmup=1, repeat=1)
        assert _but_modules(process.look()) == _but_modules(called)
        assert outputs(measured) == called_answers


def _but_modules(found: dict[str, Any]) -> dict[str, Any]:
    """The names of the two files differ, and so does what points into them; each run adds a handler of its own to a logger."""
    level, handlers = found["process: a logger"]
    loggers = {"process: a logger": (level, [type(handler) for handler in handlers])}
    return {name: value for name, value in (found | loggers).items() if name not in _OF_THE_FILE}


_OF_THE_FILE = ("process: modules of the user's", "process: exception hook")


# -- the comparison itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "name"), [pytest.param(*pair, id=pair[1]) for pair in sampled(ALL, every=OFTEN)])
def test_the_comparison_sees_what_the_model_changes_when_it_runs_and_twins_answer_alike(family: str, name: str) -> None:
    contextvars.copy_context().run(_is_compared, family, name)


def _is_compared(family: str, name: str) -> None:
    answers = expected(family, name)  # before the model changes the process
    with made(family, name) as twin:
        before = Snapshot(twin)
        first = once(twin)
        assert isinstance(first, str) == twin.case.fails, first
        assert bool(differences(before, Snapshot(twin))) == twin.case.restless
        assert [first, once(twin)] == answers


@pytest.mark.parametrize(("family", "name"), [pytest.param(*pair, id=pair[1]) for pair in sampled(ALL, every=EVERY)])
def test_the_comparison_finds_nothing_where_nothing_happened(family: str, name: str) -> None:
    with made(family, name) as twin:
        assert differences(Snapshot(twin), Snapshot(twin)) == []


def test_there_are_more_than_a_hundred_models() -> None:
    assert len({name for _, name in ALL}) == len(ALL) >= 110
