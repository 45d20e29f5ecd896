"""An answer as a page: whole, escaped, and on its own."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from opcost.analysis.query import query
from opcost.core.profile import Kernel, Profile, ProfileRow

HOSTILE = "</script><img src=x onerror=alert(1)>\"' & <b>"
VOID = {"meta", "input"}


class Page(HTMLParser):
    """What a browser sees: tags in their nesting, and the lines of each table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.lines: list[tuple[str, list[str]]] = []
        self.said = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.lines.append((dict(attrs).get("class") or "", []))
        if tag == "td":
            self.lines[-1][1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            return
        data = data.replace("\u00a0", " ")
        self.said += data
        if "td" in self.open and "ul" not in self.open:
            self.lines[-1][1][-1] += data


def profile(count: int, *, name: str = "n") -> Profile:
    rows = tuple(
        ProfileRow(
            id=number,
            name=f"{name}{number}",
            type=name,
            module=name,
            host_start_ns=number * 100,
            host_self_ns=7,
            device_ns=number + 1,
            kernels=(
                Kernel(f"{name} kernel {number}", "gpu:0", "7", number * 100 + 50, number + 1, number * 100 + 10),
            ),
        )
        for number in range(count)
    )
    lost = (Kernel("lost", "gpu:0", "7", 0, 3),)
    return Profile(meta={"source": f"{name}.json"}, rows=rows, unattributed=lost, wall_ns=1000)


def page(asked: Profile, **wishes: object) -> Page:
    return Page(query(asked, **wishes).render("html"))


def test_every_line_stands_in_the_page() -> None:
    found = page(profile(300))
    rows = [cells[0] for kind, cells in found.lines if kind.split() == ["row"]]
    assert sorted(rows) == sorted(f"n{number}" for number in range(300))
    assert [kind for kind, _ in found.lines if kind in ("unattributed", "total")] == ["unattributed", "total"]
    # 1 + 2 + ... + 300 ns of operators and 3 ns of the other kernel.
    assert "device time" in found.said
    assert f"{(sum(range(301)) + 3) / 1000:.2f} µs" in found.said


def test_kernels_are_behind_the_names() -> None:
    found = page(profile(2))
    assert [tag for tag, _ in found.tags].count("details") == 2 + len(("unattributed",))
    for number in range(2):
        assert f"1 × n kernel {number}: {number + 1} ns" in found.said


def test_idle_time_and_the_split_are_drawn() -> None:
    found = page(profile(2))
    bars = [attrs["aria-label"] or "" for tag, attrs in found.tags if attrs.get("class") == "meter"]
    spent, host = 1 + 2 + 3, 2 * 7
    assert bars[0].startswith(f"device {100 * spent / (spent + host):.1f} %")
    # From the lost kernel at 0 to the end of the last operator's at 152.
    assert bars[1] == f"busy {100 * spent / 152:.1f} %"


def test_names_from_a_file_are_text_and_nothing_else() -> None:
    found = page(profile(3, name=HOSTILE), group_by="module", aggregate_by="type,name")
    assert "img" not in {tag for tag, _ in found.tags}
    assert [tag for tag, _ in found.tags].count("script") == 1
    assert not any(name.startswith("on") for _, attrs in found.tags for name in attrs)
    assert HOSTILE in found.said


@pytest.mark.parametrize("wishes", [{}, {"device": "h200"}, {"aggregate_by": "type"}])
def test_nothing_is_loaded_from_elsewhere(wishes: dict[str, object]) -> None:
    text = query(profile(3), **wishes).render("html")
    assert not re.search(r"https?:|//\w+\.\w|url\(|@import|\bsrc=|<link|\bhref=", text)
    found = Page(text)
    (policy,) = [attrs["content"] for tag, attrs in found.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert (policy or "").startswith("default-src 'none'")


def test_numbers_sort_by_their_value_and_what_is_missing_has_none() -> None:
    rows = (
        ProfileRow(id=0, name="long", type="t", device_ns=2_000_000),
        ProfileRow(id=1, name="short", type="t", device_ns=900, host_self_ns=4),
    )
    text = query(Profile(meta={}, rows=rows)).render("html", columns="name,time,host")
    assert re.findall(r'data-v="([^"]*)"', text)[:4] == ["2000000", "", "900", "4"]


def test_groups_are_bodies_of_their_own() -> None:
    found = page(profile(4), group_by="type", top=2)
    assert [kind for kind, _ in found.lines if kind] == ["group", "row", "row", "rest", "unattributed", "total"]


def test_host_and_device_stand_below_each_other() -> None:
    from opcost.views.html import ANSWER

    asked = profile(2)
    found = Page(ANSWER.render(query(asked), others=[query(asked, side="host")]))
    assert [tag for tag, _ in found.tags].count("section") == 2
    assert "host time" in found.said
