"""`view` shows the page of any result: below the cell of a notebook, else in a browser; `opcost.view` of any source."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from html_page import HtmlPage
from torch import nn

import opcost
from opcost.core.showing import show_page
from opcost.errors import InputError

TRACE = Path(__file__).resolve().parents[2] / "examples" / "trace.json.gz"


def net(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 5, bias=False))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The addresses that a browser was given; temporary files are in a folder of the test."""
    found: list[str] = []

    def opens(address: str) -> bool:
        found.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", opens)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return found


RESULTS: dict[str, Callable[[], Any]] = {
    "report": lambda: opcost.count(net(), shapes=(2, 8)),
    "comparison": lambda: opcost.compare(net(), net(), shapes=(2, 8)),
    "sweep": lambda: opcost.sweep(net(), shapes=(2, 8), vary="batch=1,2"),
    "fit": lambda: opcost.fit(net(), shapes=(2, 8), memory="1MiB"),
    "verdict": lambda: opcost.check(net(), shapes=(2, 8), macs=2 * 8 * 5),
    "prediction": lambda: opcost.predict(net(), shapes=(2, 8), device="h200"),
    "profile": lambda: opcost.read_profile(TRACE),
    "answer": lambda: opcost.analyze(TRACE),
    "sheet": lambda: opcost.mfu(net(), shapes=(2, 8), step_time=1e-3, device="h200"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_outside_a_notebook_a_browser_opens_the_page_of_a_result(name: str, opened: list[str]) -> None:
    result = RESULTS[name]()
    file = result.view()
    assert opened == [file.as_uri()]
    assert HtmlPage(file.read_text(encoding="utf-8")).data["title"]
    if name != "profile":
        assert opcost.view(result, output=file).read_text(encoding="utf-8") == file.read_text(encoding="utf-8")  # type: ignore[union-attr]


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(monkeypatch: pytest.MonkeyPatch, opened: list[str]) -> None:
    display = pytest.importorskip("IPython.display")
    shown: list[Any] = []
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setattr(display, "display", lambda data, **_: shown.append(data))
    page = RESULTS["report"]().render("html")
    assert show_page(page) is None
    assert opened == []
    (frame,) = (data["text/html"] for data in shown)
    head, _, inside = frame.partition(' srcdoc="')
    assert head.startswith('<iframe sandbox="allow-scripts allow-downloads"')
    assert unescape(inside.removesuffix('"></iframe>')) == page
    assert inside.count('"') == 1  # nothing in the page ends the attribute
    monkeypatch.setattr("IPython.get_ipython", SimpleNamespace)  # in a terminal
    assert show_page(page) is not None
    assert len(opened) == 1


def test_a_model_a_trace_a_checkpoint_and_several_models_have_a_page(tmp_path: Path) -> None:
    torch.save(net().state_dict(), tmp_path / "weights.pt")
    file = tmp_path / "page.html"

    def data(*sources: Any, **options: Any) -> dict[str, Any]:
        opcost.view(*sources, output=file, **options)
        found: dict[str, Any] = HtmlPage(file.read_text(encoding="utf-8")).data
        return found

    assert data(net(), inputs=torch.ones(2, 8))["tree"]["root"] == "Sequential"
    assert data(TRACE)["timeline"]
    assert data(tmp_path / "weights.pt")["tree"]
    totals = data(net(), net(), shapes=(2, 8))["compared"]["totals"]
    assert [total["amounts"] for total in totals if total["title"] == "params"] == [[40, 40]]


def test_options_of_a_count_do_not_apply_to_a_result() -> None:
    with pytest.raises(InputError, match="is a result; options about counting"):
        opcost.view(RESULTS["report"](), shapes=(2, 8))
    with pytest.raises(InputError, match="is a profile; options about counting"):
        opcost.view(TRACE, shapes=(2, 8))
    with pytest.raises(InputError, match="no source is named"):
        opcost.view()
