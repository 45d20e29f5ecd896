"""`opcost view`: the page of anything, written, opened, or served."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from html_page import HtmlPage

from opcost.cli import view as serving
from opcost.cli.view import WatchedPage, _handler, files_of, stamp_of

LINEAR = "from torch import nn\ndef net(width=8):\n    return nn.Sequential(nn.Linear(width, 5, bias=False))\n"
MEGENGINE = Path(__file__).resolve().parents[1] / "data/megengine/mge/mlp.v2.mge"


@pytest.fixture
def linear(tmp_path: Path) -> str:
    path = tmp_path / "linear.py"
    path.write_text(LINEAR)
    return f"{path}:net"


def written(command: Callable[..., Any], tmp_path: Path, *words: str | Path) -> dict[str, Any]:
    done = command("view", *words, "-o", tmp_path / "page.html", "-q")
    assert (done.code, done.out) == (0, ""), done.err
    return HtmlPage((tmp_path / "page.html").read_text()).data


def test_a_model_a_saved_report_and_a_file_have_the_page_of_a_report(
    opcost_command: Callable[..., Any], linear: str, tmp_path: Path
) -> None:
    opcost_command("count", linear, "-i", "2x8", "-o", tmp_path / "net.json", "-q")
    counted = written(opcost_command, tmp_path, linear, "-i", "2x8")
    saved = written(opcost_command, tmp_path, tmp_path / "net.json")
    assert counted["tree"] == saved["tree"]
    (macs,) = [each["own"] for each in counted["tree"]["quantities"] if each["name"] == "macs"]
    assert macs == [0, 2 * 8 * 5]
    assert written(opcost_command, tmp_path, MEGENGINE)["ops"]["count"] > 0


def test_several_are_compared(opcost_command: Callable[..., Any], linear: str, tmp_path: Path) -> None:
    opcost_command("count", linear, "-i", "2x8", "-o", tmp_path / "a.json", "-q")
    opcost_command("count", linear, "--set", "width=16", "-i", "2x16", "-o", tmp_path / "b.json", "-q")
    data = written(opcost_command, tmp_path, tmp_path / "a.json", tmp_path / "b.json")
    assert [table["title"] for table in data["tables"]] == ["by kind"]
    compared = data["compared"]
    assert compared["sources"] == [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert [total["amounts"] for total in compared["totals"] if total["title"] == "params"] == [[40, 80]]
    amounts = {each["name"]: each["amounts"][compared["paths"].index("0")] for each in compared["quantities"]}
    assert amounts["macs"] == [2 * 8 * 5, 2 * 16 * 5]


def test_a_profile_and_two_of_them(opcost_command: Callable[..., Any], tmp_path: Path) -> None:
    trace = Path(__file__).resolve().parents[1] / "data"
    found = next(path for path in sorted(trace.rglob("*.json*")) if "profile" in str(path))
    data = written(opcost_command, tmp_path, found)
    assert data["tables"]
    assert data["tree"]["noun"] == "module"
    both = written(opcost_command, tmp_path, found, found)
    assert both["title"].endswith("no difference")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no source is named"),
        (("SOURCE", "-o", "page.pdf"), "does not end in .html"),
        (("SOURCE", "-o", "no/such/page.html"), "no/such"),
        (("SOURCE", "--serve", "-o", "page.html"), "--serve shows the page"),
        (("nowhere.json",), "nowhere.json"),
    ],
)
def test_what_cannot_be_shown_is_an_error(
    opcost_command: Callable[..., Any], linear: str, words: tuple[str, ...], said: str
) -> None:
    done = opcost_command("view", *[linear if word == "SOURCE" else word for word in words])
    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize("opens", [True, False])
def test_without_a_file_it_is_opened(
    opcost_command: Callable[..., Any], linear: str, monkeypatch: pytest.MonkeyPatch, opens: bool
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or opens)
    done = opcost_command("view", linear, "-i", "2x8", "-q")
    assert done.code == 0, done.err
    path = Path(done.out.splitlines()[0])
    assert opened == [path.as_uri()]
    assert HtmlPage(path.read_text()).data["tree"]["root"] == "Sequential"
    assert ("no browser was found" in done.out) is not opens
    path.unlink()


# -- served ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def watched(linear: str) -> Iterator[tuple[WatchedPage, str]]:
    found = WatchedPage([linear], ["view", linear, "-i", "2x8"])
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(found))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield found, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_served_page_may_ask_its_server_and_follows_its_source(watched: tuple[WatchedPage, str], linear: str) -> None:
    found, address = watched
    assert found.refresh() == ""
    page = HtmlPage(urlopen(f"{address}/").read().decode())
    assert page.policy.endswith("; connect-src 'self'")
    assert page.data["served"] is True
    assert urlopen(f"{address}/version").read() == b"1"
    assert found.refresh() == ""
    assert found.version == 1, "nothing has changed"
    source = Path(linear.rpartition(":")[0])
    source.write_text(LINEAR.replace("5, bias=False", "50, bias=False"))
    assert found.refresh() == ""
    assert urlopen(f"{address}/version").read() == b"2"
    (macs,) = [
        q["own"]
        for q in json.loads(HtmlPage(found.text).inside["script"][0])["tree"]["quantities"]
        if q["name"] == "macs"
    ]
    assert macs == [0, 2 * 8 * 50]
    source.write_text("not python")
    assert "linear.py" in found.refresh()
    assert found.version == 2, "the old page stays"


def test_nothing_else_is_served_and_to_no_other_host(watched: tuple[WatchedPage, str]) -> None:
    _, address = watched
    for path, headers, code in (("/../secret", {}, 404), ("/", {"Host": "evil.example"}, 403)):
        with pytest.raises(HTTPError) as caught:
            urlopen(Request(f"{address}{path}", headers=headers))
        assert caught.value.code == code


def test_no_more_clients_are_served_than_a_few_at_a_time(linear: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_CLIENTS", 2)
    monkeypatch.setattr(serving, "ANSWERED_WITHIN", 0.2)
    server = serving._Server(("127.0.0.1", 0), _handler(WatchedPage([linear], [])))
    before = threading.active_count()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    silent = [socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(8)]
    try:
        with urlopen(f"http://127.0.0.1:{server.server_port}/version", timeout=20) as answer:
            assert answer.read() == b"0"
        assert threading.active_count() <= before + 1 + 2
    finally:
        for each in silent:
            each.close()
        server.shutdown()
        server.server_close()


def test_folders_and_code_are_watched(tmp_path: Path, linear: str) -> None:
    (tmp_path / "folder").mkdir()
    assert list(files_of([linear, str(tmp_path / "folder"), "timm:resnet18"])) == [
        Path(linear.rpartition(":")[0]), tmp_path / "folder",
    ]  # fmt: skip
    before = stamp_of([tmp_path / "folder"])
    (tmp_path / "folder" / "new").write_text("x")
    assert stamp_of([tmp_path / "folder"]) != before
