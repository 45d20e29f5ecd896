"""The tree of modules in a browser: opened, sorted, searched, with columns that fit, and one step back at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_subjects import BLOCKS, many, page_of, profile, report, stack
from page_tree import ROWS, cell_of, cut_numbers, line_of, names_of, titles_of
from playwright.sync_api import expect

import opcost
from opcost.core.report import Report
from opcost.core.units import format_count
from opcost.views.html import HTML, bundle

Show = Callable[..., Any]
FIND = "Find a module"
ROOT = Path(__file__).resolve().parents[2]
CHOSEN = '.tree tr[aria-selected="true"]'


def typed() -> Report:
    """Each block has one Conv2d, whose name does not say so; `layer2` is below `layer1.inner` as well."""
    plain = report()
    modules = [replace(each, type="Conv2d") if each.path.endswith("layer1") else each for each in plain.modules]
    return replace(plain, modules=tuple(modules))


# -- opened, sorted, walked --------------------------------------------------------------------------------------------


def test_the_tree_opens_closes_and_adds_up(show: Show) -> None:
    page = show(HTML.render(report()))
    assert names_of(page)[:5] == ["Net", "block0", "layer0", "layer1", "layer2"]
    page.locator(f"{ROWS} .fold").nth(1).click()
    assert names_of(page)[:3] == ["Net", "block0", "block1"]
    # 4 blocks of 3 layers with 6 operators of 1000, 2000 and 3000 MACs.
    assert cell_of(page, 0, "MACs") == format_count(4 * 6 * 6000)
    assert cell_of(page, 1, "share") == "25.0 %"
    page.get_by_role("button", name="FLOPs").click()
    assert cell_of(page, 0, "FLOPs") == format_count(2 * 4 * 6 * 6000)
    page.get_by_role("button", name="own", exact=True).click()
    assert cell_of(page, 0, "FLOPs") == "–"


def test_siblings_are_sorted_by_a_column_and_back(show: Show) -> None:
    page = show(HTML.render(report()))
    head = page.locator(".tree").get_by_role("columnheader", name="params")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert names_of(page)[:5] == ["Net", "block3", "layer2", "layer1", "layer0"]
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert names_of(page)[1] == "block0"


def test_the_keyboard_walks_opens_and_closes(show: Show) -> None:
    page = show(HTML.render(report()))
    page.locator(ROWS).first.focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(f"{CHOSEN} .name").inner_text() == "block0"
    page.keyboard.press("ArrowLeft")
    assert page.locator(CHOSEN).get_attribute("aria-expanded") == "false"
    page.keyboard.press("End")
    assert page.locator(f"{CHOSEN} .name").inner_text() == "layer2"
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"


# -- search ------------------------------------------------------------------------------------------------------------


def test_a_hit_has_all_words_in_its_path_and_keeps_its_dimmed_ancestors(show: Show) -> None:
    page = show(HTML.render(report()))
    page.get_by_label(FIND).fill("block2 LAYER1")
    expect(page.locator(ROWS)).to_have_count(3)
    assert names_of(page) == ["Net", "block2", "layer1"]
    assert page.locator(f"{ROWS}.dim .name").all_inner_texts() == ["Net", "block2"]
    assert page.locator(".tree output").inner_text() == "1 hit"
    page.get_by_label(FIND).fill("")
    expect(page.locator(ROWS)).to_have_count(1 + 4 + 12)
    assert page.locator(f"{ROWS}.dim").count() == 0


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("block1", ["block1"]),  # and not the layers below it, which have its name in their paths alone
        ("block1.layer", ["layer0", "layer1", "layer2"]),
        ("type:conv2d", ["layer1"] * 4),
        ("block3 type:conv", ["layer1"]),
        ("conv2d", []),
    ],
)
def test_names_are_searched_and_types_where_it_is_said(show: Show, query: str, names: list[str]) -> None:
    page = show(HTML.render(typed()))
    page.get_by_label(FIND).fill(query)
    expect(page.locator(".tree output")).to_have_text(f"{len(names)} {'hit' if len(names) == 1 else 'hits'}")
    assert page.locator(f"{ROWS}.hit .name").all_inner_texts() == names


def test_a_word_that_is_a_type_alone_offers_to_search_types(show: Show) -> None:
    page = show(HTML.render(typed()))
    page.get_by_label(FIND).fill("conv2d")
    page.get_by_role("button", name="4 with type:conv2d").click()
    expect(page.locator(f"{ROWS}.hit")).to_have_count(4)
    assert page.get_by_label(FIND).input_value() == "type:conv2d"


def test_search_is_walked_and_cleared_with_the_keyboard(show: Show) -> None:
    page = show(HTML.render(report()))
    page.keyboard.press("/")
    page.keyboard.type("layer1")
    expect(page.locator(f"{ROWS}.hit")).to_have_count(4)
    heading = page.locator(".details h2")
    for key, path in (("Enter", "block0"), ("Enter", "block1"), ("Shift+Enter", "block0"), ("Shift+Enter", "block3")):
        page.keyboard.press(key)
        expect(heading).to_have_text(f"{path}.layer1")
    page.keyboard.press("Escape")
    expect(page.locator(ROWS)).to_have_count(1 + 4 + 12)
    assert page.get_by_label(FIND).input_value() == ""


def test_what_is_found_can_be_folded_and_a_hit_opened(show: Show) -> None:
    page = show(HTML.render(report()), fragment="q=block")
    assert names_of(page) == ["Net", "block0", "block1", "block2", "block3"]
    page.locator(f"{ROWS} .fold").nth(1).click()
    assert names_of(page)[:5] == ["Net", "block0", "layer0", "layer1", "layer2"]
    page.locator(f"{ROWS} .fold").first.click()
    assert names_of(page) == ["Net"]


# -- repeated blocks ---------------------------------------------------------------------------------------------------

RUN = f"0–{BLOCKS - 1}"
MERGED = ["Net", "layers", RUN, "mix", "out"]


def test_repeated_blocks_are_one_line_with_the_sum_of_all(show: Show) -> None:
    page = show(HTML.render(stack()))
    assert names_of(page) == MERGED
    # 100 and 1000 forward, 2000 backward, in each block
    assert [cell_of(page, row, "MACs") for row in (0, 2, 4)] == [
        format_count(BLOCKS * 3100), format_count(BLOCKS * 3100), format_count(BLOCKS * 3000)
    ]  # fmt: skip
    line_of(page, "out").click()
    expect(page.locator(".details h2")).to_have_text(f"layers.{RUN}.out")
    assert f"{format_count(BLOCKS * 3000)} (96.8 %, each 3.00 K)" in page.locator(".details").inner_text()
    page.get_by_role("tab", name="Operators").click()
    page.get_by_label("of the chosen module").check()
    expect(page.locator("#view-operators output")).to_have_text(f"{3 * BLOCKS} of {4 * BLOCKS}")


def test_blocks_are_unfolded_and_merged_with_mouse_and_keyboard(show: Show) -> None:
    page = show(HTML.render(stack()))
    page.get_by_role("button", name=f"{BLOCKS} ×", exact=True).click()
    names = [str(number) for number in range(BLOCKS)]
    expect(page.locator(".tree table")).to_have_attribute(
        "aria-rowcount",
        str(1 + 2 + BLOCKS + 2),  # the head, the root and layers, and the parts of 0, which is open
    )
    assert [name for name in names_of(page) if name.isdigit()] == names[: len(names_of(page)) - 4]
    assert cell_of(page, 2, "MACs") == "3.10 K"
    page.wait_for_url("**unfold=**")
    again = show(HTML.render(stack()), fragment=page.evaluate("location.hash.slice(1)"))
    assert names_of(again) == names_of(page)
    line_of(again, "0").click()
    again.keyboard.press("Tab")
    assert again.evaluate("document.activeElement.textContent") == "merge"
    again.keyboard.press("Enter")
    assert names_of(again) == MERGED


def test_hits_in_merged_blocks_are_counted_and_shown_in_their_line(show: Show) -> None:
    page = show(HTML.render(stack()))
    page.get_by_label(FIND).fill("mix")
    expect(page.locator(".tree output")).to_have_text(f"{BLOCKS} hits, 1 line")
    assert page.locator(f"{ROWS}.hit .name").all_inner_texts() == ["mix"]
    page.get_by_label(FIND).fill("layers.17")
    expect(page.locator(".tree output")).to_have_text("1 hit")
    assert page.locator(f"{ROWS}.hit .name").all_inner_texts() == [RUN]
    page.get_by_label(FIND).press("Enter")
    expect(page.locator(".details h2")).to_have_text("layers.17")
    assert "MACs3.10 K" in page.locator(".details").inner_text().replace("\n", "")


def test_filtered_amounts_are_in_the_tree_and_lines_without_them_are_dimmed(show: Show) -> None:
    page = show(HTML.render(stack()), fragment="phase=backward")
    assert cell_of(page, 0, "MACs") == format_count(BLOCKS * 2000)
    assert page.locator(f"{ROWS}.dim .name").all_inner_texts() == ["mix"]


# -- columns -----------------------------------------------------------------------------------------------------------


def test_a_common_screen_shows_module_shapes_params_macs_share_and_peak(show: Show) -> None:
    page = show(HTML.render(report()), width=1280, height=800)
    assert titles_of(page)[:7] == ["module", "input", "output", "params", "MACs", "share", "at peak"]
    assert page.locator(".tree .grid").evaluate("(grid) => grid.scrollWidth - grid.clientWidth") == 0


def test_a_wide_screen_shows_more_columns_and_the_reader_chooses_others(show: Show) -> None:
    page = show(HTML.render(report()), width=2400)
    assert "bytes moved" in titles_of(page)
    page.locator(".tree summary", has_text="columns").click()
    page.get_by_label("input", exact=True).uncheck()
    page.get_by_label("params", exact=True).uncheck()
    expect(page.locator(".tree th", has_text="params")).to_have_count(0)
    assert "output" in titles_of(page)
    page.wait_for_url("**cols=out.macs.**")
    other = show(HTML.render(report()), width=2400, fragment=page.evaluate("location.hash.slice(1)"))
    assert titles_of(other) == titles_of(page)
    other.set_viewport_size({"width": 1100, "height": 800})
    expect(other.locator(".tree th")).to_have_count(len(titles_of(page)))  # chosen ones stay, and the table scrolls
    other.locator(".tree summary", has_text="columns").click()
    other.get_by_role("button", name="as many as fit").click()
    expect(other.locator(".tree th", has_text="params")).to_have_count(1)


def test_numbers_are_never_cut_wherever_the_table_is_scrolled(show: Show) -> None:
    large = many(3000, 3000)
    wide = list(large.modules)
    # Far below and in no regular sample of the lines; with the 29,980 of others they are 1.12 M, which is shorter.
    for place, macs in ((2777, 888_880), (2778, 200_000)):
        wide[place] = replace(wide[place], own=wide[place].own._replace(macs=macs))
    page = show(
        HTML.render(replace(large, modules=tuple(wide))), width=600, fragment="open=0&cols=macs.in.out.params.bytes.ops"
    )
    assert cell_of(page, 0, "MACs") == "1.12 M"
    page.locator(".tree .grid").evaluate("(grid) => { grid.scrollTop = 24 * 2770; }")
    expect(page.locator(".tree td.number", has_text="888.88 K")).to_have_count(1)
    assert cut_numbers(page, ".tree") == []


@pytest.mark.parametrize("width", [1280, 700, 390])
@pytest.mark.parametrize("text", [HTML.render(report(uncounted=True)), page_of(profile())], ids=["report", "profile"])
def test_numbers_of_no_table_are_cut(show: Show, text: str, width: int) -> None:
    page = show(text, width=width)
    for tab in [None, page.get_by_role("tab", name="Operators")]:
        if tab is not None:
            tab.click()
        assert cut_numbers(page, "main") == []


def test_on_a_narrow_screen_a_line_has_its_name_and_numbers_below_it(show: Show) -> None:
    page = show(HTML.render(report()), width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    grid = page.locator(".tree .grid")
    assert grid.evaluate("(grid) => grid.scrollWidth - grid.clientWidth") <= 0
    line = page.locator(ROWS).nth(2)
    assert line.locator(".name").inner_text() == "layer0"
    name, *others = line.locator("td").all()
    # 6 operators of 1000 MACs of 144,000; the first of the layers has 10 parameters.
    assert [cell.inner_text() for cell in others] == ["6.00 K", "4.17 %", "10"]
    below, row = name.bounding_box(), line.bounding_box()
    for cell in others:
        box = cell.bounding_box()
        assert box["y"] >= below["y"] + below["height"] - 1
        assert box["y"] + box["height"] <= row["y"] + row["height"] + 1
        assert box["x"] + box["width"] <= 390


# For each line what is neither within it nor wholly out of it, and what lies on the cell before it.
OVERLAPPING = """(lines) => lines.flatMap((line) => {
    const { top } = line.getBoundingClientRect();
    const bottom = top + line.clientHeight;
    let last = null;
    return [...line.cells].filter((cell) => !cell.hidden).filter((cell) => {
        const box = cell.getBoundingClientRect();
        const lies = last && box.top < last.bottom && box.left < last.right;
        last = box;
        return lies || (box.bottom > bottom && box.top < bottom);
    }).map((cell) => `${line.cells[0].textContent}: ${cell.textContent}`);
})"""
WITHOUT_AMOUNT = """(lines) => lines.filter((line) => {
    const bottom = line.getBoundingClientRect().top + line.clientHeight;
    const cells = [...line.cells].slice(1).filter((cell) => !cell.hidden);
    return cells.length && cells.every((cell) => cell.getBoundingClientRect().bottom > bottom);
}).map((line) => line.textContent)"""


@functools.cache
def page_of_example(name: str) -> str:
    return HTML.render(opcost.count(ROOT / "examples" / name, shapes=(1, 2048)))


@pytest.mark.parametrize("width", [390, 320])
@pytest.mark.parametrize("example", ["llama-8b", "mixtral-8x7b"])
def test_lines_of_deep_trees_of_a_narrow_screen_do_not_overlap(show: Show, example: str, width: int) -> None:
    page = show(page_of_example(example), width=width, height=844)
    page.get_by_label("Open to a level").select_option("all")
    page.get_by_role("button", name="32 ×", exact=True).click(timeout=5000)
    page.locator(".tree.panel").evaluate("(panel) => { panel.style.height = '60000px'; }")
    lines = page.locator(ROWS)
    expect(lines.nth(300)).to_be_attached()
    assert lines.evaluate_all(OVERLAPPING) == []
    assert lines.evaluate_all(WITHOUT_AMOUNT) == []


def test_room_is_given_by_rank_and_numbers_keep_their_width(show: Show) -> None:
    page = show(HTML.render(report()))
    script = f"""(() => {{ {bundle("widths")}
        const need = (least, most) => ({{ least, most, whole: most }});
        const columns = [{{}}, {{ rank: 2 }}, {{ rank: 1 }}, {{ rank: 3 }}];
        const needs = [need(100, 300), need(50, 90), need(60, 60), need(70, 70)];
        return [
            [480, 479, 210, 150, 10].map((room) => $widths.columnsThatFit(columns, needs, room).map((one) => one.rank ?? 0)),
            ...[200, 280, 400, 1040].map((room) => $widths.spreadColumns(needs, room)),
        ]; }})()"""
    fitting, scrolled, least, between, scaled = page.evaluate(script)
    # All need 280 at least; the third rank is for what is left when the name has the 300 that it needs.
    assert fitting == [[0, 2, 1, 3], [0, 2, 1], [0, 2, 1], [0], [0]]
    assert scrolled == [100, 90, 60, 70]
    assert least == [100, 50, 60, 70]
    # 280 at least and 520 at most: of 400, texts get half of what they could have more.
    assert between == [200, 70, 60, 70]
    assert scaled == [600, 180, 120, 140]


# -- back and forward --------------------------------------------------------------------------------------------------


def test_back_and_forward_undo_tab_zoom_and_choice(show: Show) -> None:
    page = show(HTML.render(report()))
    line_of(page, "block1").click()
    page.get_by_role("tab", name="Memory").click()
    page.get_by_role("tab", name="Map").click()
    page.locator(".area.inner text", has_text="block2").dblclick(force=True)
    zoomed = page.locator('.trail button[aria-current="true"]')
    expect(zoomed).to_have_text("block2")
    page.go_back()
    expect(zoomed).to_have_text("Net")
    page.go_back()
    page.go_back()
    expect(page.get_by_role("tab", name="Memory")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".details h2")).to_have_text("block1")
    page.go_back()
    expect(page.get_by_role("tab", name="Map")).to_have_attribute("aria-selected", "true")
    page.go_back()
    expect(page.locator(CHOSEN)).to_have_count(0)
    page.go_forward()
    expect(page.locator(".details h2")).to_have_text("block1")


def test_typing_sorting_and_walking_are_no_steps_of_their_own(show: Show) -> None:
    page = show(HTML.render(report()))
    before = page.evaluate("history.length")
    page.get_by_label(FIND).fill("layer")
    page.locator(".tree").get_by_role("columnheader", name="params").get_by_role("button").click()
    page.wait_for_url("**sort=-params**")
    assert page.evaluate("history.length") == before
    page.locator(ROWS).first.focus()
    page.evaluate("""() => {
        for (let step = 0; step < 5; step += 1) {
            document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
        }
    }""")
    assert page.locator(f"{CHOSEN} .name").inner_text() != "Net"
    assert page.evaluate("history.length") == before + 1
