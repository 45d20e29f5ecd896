"""The wall around the making and counting of a collection's model: for its thread alone, and gone afterwards."""

from __future__ import annotations

import pickle
import socket
import threading

import pytest

from opcost.errors import Refused
from opcost.frontends.offline import offline


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


def test_a_library_that_hides_the_refusal_does_not_hide_what_was_asked_for() -> None:
    def fetch() -> None:
        try:
            socket.getaddrinfo("example.org", 443)
        except OSError:
            raise ValueError("an error occurred") from None

    with pytest.raises(Refused, match=r"example\.org"), offline("timm:net"):
        fetch()
