"""Repeated blocks and families of operators in the data of a page, from which it draws tree, map and graph."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

from html_page import HtmlPage, values
from page_subjects import page_of

from opcost.core.kinds import KINDS
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.core.report import Report
from opcost.core.scan import Scan, StoredTensor, Totals
from opcost.views.html import HTML
from opcost.views.report import list_report
from opcost.views.tree import numbered_runs
from opcost.views.view import ViewOptions


def folded(tree: dict[str, Any]) -> list[str]:
    """The labels from top to bottom, where each run is one line."""
    names, below = values(tree["name"]), [[] for _ in tree["parent"]]
    for node, parent in list(enumerate(tree["parent"]))[1:]:
        below[parent].append(node)
    label, hidden = dict(enumerate(names)), set()
    for first, length in tree["runs"]:
        siblings = below[tree["parent"][first]]
        run = siblings[siblings.index(first) :][:length]
        label[first] = f"{names[run[0]]}–{names[run[-1]]}"
        hidden.update(run[1:])
    lines, walk = [], [0]
    while walk:
        node = walk.pop()
        lines.append(label[node])
        walk += [child for child in reversed(below[node]) if child not in hidden]
    return lines[1:]


def test_blocks_are_merged_as_in_the_terminal(long: Report) -> None:
    listing = list_report(long, ViewOptions(depth=None, merge=True))
    names = [str(line.values[0]).lstrip("│├└─ ") for line in listing.lines][1:]
    tree = HtmlPage(HTML.render(long)).data["tree"]
    assert folded(tree) == names
    assert "0–39" in names


def test_a_tree_that_is_readable_as_it_is_has_no_runs(plain: Report) -> None:
    assert HtmlPage(HTML.render(plain)).data["tree"]["runs"] == []


def test_runs_are_consecutive_numbers_alike_in_themselves_and_all_below() -> None:
    # A list of blocks 0, 1, 2, 3, of which 2 has another size; a part is in each, and 0 and 1 have two equal ones.
    parents, names, built = [-1], ["list"], ["list"]
    for block in range(4):
        at = len(parents)
        parents += [0, at, at]
        names += [str(block), "0", "1"]
        built += ["block", 7, 7 if block < 2 else 9 + block]
    assert sorted(numbered_runs(parents, names, built)) == [[1, 4], [2, 3], [5, 6]]
    # A gap in the numbers ends a run, and words are no numbers.
    assert numbered_runs([-1, 0, 0, 0], ["", "0", "2", "3"], ["x"] * 4) == [[2, 3]]
    assert numbered_runs([-1, 0, 0], ["", "a1", "a2"], ["x"] * 3) == []


def test_blocks_of_a_checkpoint_are_merged_at_every_level() -> None:
    names = [f"layers.{layer}.experts.{expert}.weight" for layer in range(5) for expert in range(4)]
    tensors = tuple(StoredTensor(name=name, shape=(4, 4), dtype="f", params=16, bytes=64, file="") for name in names)
    scan = Scan(
        source="",
        format="",
        files=("",),
        tensors=tensors,
        totals=Totals(tensors=20, params=320, bytes=1280),
        details={},
    )
    tree = HtmlPage(HTML.render(scan)).data["tree"]
    assert folded(tree) == ["layers", "0–4", "experts", "0–3", "weight"]
    assert sorted(length for _, length in tree["runs"]) == [4] * 5 + [5]


def test_blocks_of_a_trace_are_merged_whatever_time_they_took() -> None:
    def recorded(calls_of_last: int) -> Profile:
        rows = tuple(
            ProfileRow(
                id=block, name=f"layers.{block}.mm", type="aten::mm", kind="matmul", module=f"layers.{block}",
                count=calls_of_last if block == 19 else 1, device_ns=block + 1,
                kernels=(Kernel("gemm", "gpu:0", "7", block, block + 1),),
            )
            for block in range(20)
        )  # fmt: skip
        return Profile(meta={}, rows=rows, wall_ns=1000)

    # The kernel of an operator is below it.
    assert folded(HtmlPage(page_of(recorded(1))).data["tree"]) == ["layers", "0–19", "mm", "gemm"]
    assert folded(HtmlPage(page_of(recorded(2))).data["tree"]) == ["layers", "0–18", "mm", "gemm", "19", "mm", "gemm"]


def test_every_family_of_operators_has_a_colour_of_its_own() -> None:
    script = (files("opcost.views.html") / "assets" / "colours.js").read_text(encoding="utf-8")
    table = script.partition("const FAMILIES")[2].partition("]);")[0]
    colours = dict(re.findall(r'\["([a-z]+)", "(#[0-9a-f]{6})"\]', table))
    # Updates are the optimizer's, whatever their kind.
    assert set(colours) == {kind.family for kind in KINDS.values()} | {"optimizer"}
    assert len(set(colours.values())) == len(colours)
    for colour in colours.values():
        # Against the light and the dark ground, by the formula of WCAG 2.
        for ground in ("#ffffff", "#14171b"):
            light, dark = sorted((luminance(colour), luminance(ground)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 2.2


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
