"""The wall around the making and counting of a collection's model: for its thread alone, and gone afterwards."""

from __future__ import annotations

import pickle
import socket
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
import torch

import opcost
from opcost.errors import Refused, SourceError
from opcost.frontends.python import offline


def test_other_threads_keep_their_network_and_nothing_stays_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: "the answer")
    before = (socket.getaddrinfo, socket.socket.connect, pickle.loads)
    answers: list[object] = []
    with offline("timm:net"):
        with pytest.raises(Refused, match=r"timm:net asks for the network address example\.org"):
            socket.getaddrinfo("example.org", 443)
        other = threading.Thread(target=lambda: answers.append(socket.getaddrinfo("example.org", 443)))
        other.start()
        other.join()
    assert answers == ["the answer"]
    with pytest.raises(RuntimeError), offline("timm:net"):
        raise RuntimeError
    assert (socket.getaddrinfo, socket.socket.connect, pickle.loads) == before


def test_two_threads_that_overlap_leave_nothing_behind() -> None:
    before = pickle.loads
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with offline("timm:other"):
            inside.set()
            leave.wait()

    with offline("timm:net"):
        other = threading.Thread(target=stay)
        other.start()
        inside.wait()
    assert pickle.loads(pickle.dumps(3)) == 3  # this thread has left, the other has not
    leave.set()
    other.join()
    assert pickle.loads is before


def test_a_function_imported_by_name_meanwhile_works_afterwards() -> None:
    with offline("timm:net"):
        loads = pickle.loads
        with pytest.raises(Refused, match="a pickle of"):
            loads(b"")
    assert loads(pickle.dumps(3)) == 3


def test_a_library_that_hides_the_refusal_does_not_hide_the_requested_address() -> None:
    def fetch() -> None:
        try:
            socket.getaddrinfo("example.org", 443)
        except OSError:
            raise ValueError("an error occurred") from None

    with pytest.raises(Refused, match=r"example\.org"), offline("timm:net"):
        fetch()


FACTORY = """
import torch
from torch import nn

def net():
    model = nn.Linear(4, 3, bias=False)
    if "timm.models._builder" in __import__("sys").modules:
        __import__("sys").modules["timm.models._builder"].load_pretrained(model)
    state = torch.hub.load_state_dict_from_url("https://example.invalid/weights.pth")["model"]
    state.pop("head.weight")
    model.load_state_dict({name.removeprefix("module."): value for name, value in state.items()})
    return model

def own():
    model = nn.Linear(4, 3, bias=False)
    model.load_state_dict({"weight": torch.ones(3, 5)})
    return model
"""


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("weights are fetched")

    builder = ModuleType("timm.models._builder")
    builder.load_pretrained = never  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm.models._builder", builder)
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", never)
    path = tmp_path / "pretrained_net.py"
    path.write_text(FACTORY)
    return str(path)


def test_a_count_goes_without_pretrained_weights_and_says_so(factory: str) -> None:
    before = (torch.hub.load_state_dict_from_url, torch.nn.Module.load_state_dict)
    report = opcost.count(f"{factory}:net", shapes=(2, 4))
    assert report.totals.macs == 2 * 4 * 3
    assert "pretrained weights were not loaded: a count needs only their shapes" in [note.text for note in report.notes]
    assert (torch.hub.load_state_dict_from_url, torch.nn.Module.load_state_dict) == before


def test_weights_that_need_not_be_fetched_are_loaded_as_ever(factory: str) -> None:
    with pytest.raises(SourceError, match="size mismatch for weight"):
        opcost.count(f"{factory}:own", shapes=(2, 4))


def test_a_model_that_is_made_with_its_weights_fetches_them(factory: str) -> None:
    with pytest.raises(SourceError, match="weights are fetched"):
        opcost.count(f"{factory}:net", shapes=(2, 4), real=True)
