"""What a notebook shows: a light piece of a page whose tree opens, without a script, and whatever a name holds."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from opcost.analysis.query import query
from opcost.core.graph import TensorSpec
from opcost.core.profile import Profile, ProfileRow
from opcost.core.report import ModuleCost, Report, Stats
from opcost.views.notebook import LINES

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class Page(HTMLParser):
    """The elements of a page, checked to be closed in order, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.deepest = 0
        self.said: list[str] = []
        self._unfinished: list[str] = []
        self.feed(text)
        assert self._unfinished == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._unfinished.append(tag)
        self.deepest = max(self.deepest, self._unfinished.count("details"))

    def handle_endtag(self, tag: str) -> None:
        assert self._unfinished.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def test_every_module_is_there_and_those_with_others_inside_open(plain: Report) -> None:
    page = Page(plain._repr_html_())
    inner = {module.parent for module in plain.modules if module.path}
    assert page.tags.count("details") == page.tags.count("summary") == len(inner)
    assert page.deepest == max(module.depth for module in plain.modules)
    named = {module.name for module in plain.modules if module.path}
    assert named <= set(page.said)
    assert ("open", None) in page.attributes


def test_it_needs_no_script_and_nothing_from_elsewhere(odd: Report) -> None:
    text = odd._repr_html_()
    page = Page(text)
    assert set(page.tags) <= {"div", "style", "p", "strong", "details", "summary", "b", "i", "u", "s"}
    assert {name for name, _ in page.attributes} <= {"class", "style", "open"}
    assert "url(" not in text
    assert "@import" not in text


def test_shares_have_bars(plain: Report) -> None:
    first = next(module for module in plain.modules if module.depth == 1 and module.total.macs)
    share = 100 * first.total.macs / plain.totals.macs
    assert f'style="--p:{share:.1f}%"' in plain._repr_html_()


def test_no_name_is_taken_for_markup(plain: Report) -> None:
    modules = tuple(replace(module, type=EVIL) for module in plain.modules)
    page = Page(replace(plain, modules=modules, meta={"source": EVIL})._repr_html_())
    assert not {"script", "img"} & set(page.tags)
    assert any("<script>" in said for said in page.said)


def wide(children: int, depth: int = 1) -> list[ModuleCost]:
    """A root with `children` different modules, each the top of a chain of `depth`."""
    made = [module("", "Net", 0, 0)]
    for number in range(children):
        path = f"m{number}"
        made += [
            module(".".join([path, *["x"] * level]), f"Type{number}", level + 1, number + 1) for level in range(depth)
        ]
    return made


def module(path: str, kind: str, depth: int, macs: int) -> ModuleCost:
    return ModuleCost(path=path, type=kind, depth=depth, calls=1, own=Stats(macs=macs), total=Stats(macs=macs))


def test_what_is_too_long_is_cut_and_a_line_says_so(plain: Report) -> None:
    text = replace(plain, modules=tuple(wide(LINES + 99)))._repr_html_()
    assert Page(text).tags.count("b") == LINES + 1  # and the heads
    assert "100 more lines are not shown" in text


def test_a_deep_tree_is_cut_at_a_depth_and_a_line_says_so(plain: Report) -> None:
    text = replace(plain, modules=tuple(wide(30, depth=40)))._repr_html_()
    assert "drawn to depth 8 of 40" in text  # of 30 chains 8 levels are the most that 250 lines hold with the root
    assert len(text) < 60_000


def test_resnet_50_takes_less_than_60_kb() -> None:
    timm = pytest.importorskip("timm")
    import opcost

    text = opcost.count(timm.create_model("resnet50"), shapes=(1, 3, 224, 224))._repr_html_()
    assert len(text.encode()) < 60_000
    assert Page(text).tags.count("details") == 1 + 4 + 16 + 4 + 1  # the net, stages, blocks, their shortcuts, the pool


def test_answers_and_comparisons_are_shown_too(plain: Report, odd: Report) -> None:
    rows = tuple(
        ProfileRow(id=i, name=f"op{i}", type=EVIL, host_self_ns=i, ins=(TensorSpec((2, 3)),)) for i in range(LINES + 50)
    )
    import opcost

    shown: list[Any] = [query(Profile(meta={"source": "x", "format": "own"}, rows=rows)), opcost.compare(plain, odd)]
    for each in shown:
        page = Page(each._repr_html_())
        assert "script" not in page.tags
        assert len(each._repr_html_()) < 60_000
    assert "50 more lines are not shown" in shown[0]._repr_html_()
    assert "total" in Page(shown[0]._repr_html_()).said
