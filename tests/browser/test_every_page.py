"""What holds for the pages of all kinds of results, in light and dark and on a small screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_subjects import PAGES, fit, timed_sweep
from page_tree import cut_numbers
from playwright.sync_api import expect

Show = Callable[..., Any]
SMALL = {"width": 390, "height": 844}
SCREENS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"}, "dark": {"color_scheme": "dark"}, "small": SMALL,
}  # fmt: skip
every_page = pytest.mark.parametrize("subject", PAGES)


def views_of(page: Any) -> Iterator[str]:
    """Each view of a page after the other, shown."""
    for tab in page.get_by_role("tab").all():
        tab.click()
        yield str(tab.inner_text())
    if not page.get_by_role("tab").count():
        yield ""


@pytest.mark.parametrize("screen", SCREENS)
@every_page
def test_axe_finds_nothing_wrong(show: Show, subject: str, screen: str) -> None:
    import axe_playwright_python

    script = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
    page = show(PAGES[subject](), **SCREENS[screen])
    page.evaluate(script)
    # In the dark only colours are others.
    chosen = "{ resultTypes: ['violations']" + (", runOnly: ['color-contrast'] }" if screen == "dark" else " }")
    where = "document"  # the whole page once, then what each of the other views adds
    for view in views_of(page):
        found = page.evaluate(f"axe.run({where}, {chosen})")["violations"]
        assert [(view, one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found] == []
        where = "document.querySelector('.side')"


@every_page
def test_nothing_is_wider_than_a_small_screen_and_no_number_is_cut(show: Show, subject: str) -> None:
    page = show(PAGES[subject](), **SMALL)
    for view in views_of(page):
        assert page.evaluate("document.documentElement.scrollWidth") <= SMALL["width"], view
        assert cut_numbers(page, "main") == [], view


@every_page
def test_no_panel_table_or_column_is_empty(show: Show, subject: str) -> None:
    page = show(PAGES[subject]())
    for view in views_of(page):
        empty = page.evaluate("""() => {
            const seen = (one) => one.offsetParent;
            const bare = [...document.querySelectorAll(".panel")].filter((one) => seen(one)
                && !one.querySelector("tr[data-place], svg *, canvas, .meter, dd, li"));
            // A source that is compared may have none of the modules.
            const grids = [...document.querySelectorAll(":not([aria-label='Modules']) > .grid")].filter(seen);
            const blank = grids.flatMap((grid) => {
                const lines = [...grid.querySelectorAll("tr[data-place]")];
                const isBlank = (place) => lines.every((line) => !line.children[place].textContent);
                return [...grid.querySelectorAll("th")].filter((_, place) => isBlank(place));
            });
            return [...bare, ...blank].map((one) => one.getAttribute("aria-label") || one.textContent);
        }""")
        assert empty == [], view


@every_page
def test_pictures_are_drawn_and_not_written(show: Show, subject: str) -> None:
    page = show(PAGES[subject]())
    assert not set(page.locator("body").inner_text()) & set("▁▂▃▄▅▆▇█")


def test_what_two_lines_have_no_room_for_is_left_out_and_not_cut(show: Show) -> None:
    page = show(PAGES["blocks"](), width=290, height=844)
    inside, outside, cut = page.evaluate("""() => {
        const found = [0, 0, 0];
        for (const line of document.querySelectorAll(".tree tr[data-place]")) {
            const room = line.getBoundingClientRect();
            for (const cell of line.querySelectorAll("td:not([hidden])")) {
                const { top, bottom } = cell.getBoundingClientRect();
                // A letter begins a quarter of the line of 20 below its top.
                found[top >= room.top - 1 && bottom <= room.bottom + 1 ? 0 : top >= room.bottom - 5 ? 1 : 2] += 1;
            }
        }
        return found;
    }""")
    assert cut == 0
    assert inside > 0
    assert outside > 0


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_the_limit_of_a_fit_is_a_bar_of_its_parts(show: Show) -> None:
    page = show(fit().render("html"))
    panel = page.locator(".fit")
    # Of ten GiB: 5 saved, 3 of weights, 9 - 8 that the allocator holds, and 10 - 9 that are left.
    expect(panel.locator("h2")).to_have_text("10.00 GiB at batch 8")
    widths = panel.locator(".meter i").evaluate_all("all => all.map((one) => one.style.width)")
    assert widths == ["50%", "30%", "10%", "10%"]
    assert panel.locator("li").all_inner_texts() == [
        "saved 5.00 GiB (50.0 %)", "weights 3.00 GiB (30.0 %)", "kept by the allocator 1.00 GiB (10.0 %)",
        "left of the limit 1.00 GiB (10.0 %)",
    ]  # fmt: skip
    page.get_by_role("button", name="kB").click()
    expect(panel.locator("h2")).to_have_text("10.74 GB at batch 8")


def test_a_sweep_draws_what_varies_and_crosses_out_what_does_not_fit(show: Show) -> None:
    page = show(timed_sweep().render("html"))
    # The image has one size, so that there is one curve over the batch.
    expect(page.locator("[aria-label='Sweep'] h2")).to_have_text("By batch")
    assert page.locator(".sweep .curve").count() == 1
    assert page.locator(".sweep circle").count() == 4
    assert page.locator(".sweep .over").count() == 1
    assert "crossed out" in page.locator("[aria-label='Sweep'] .legend").inner_text()
    # Each batch takes as many milliseconds as it has images.
    page.get_by_label("Amounts are").select_option("images/s")
    heights = page.locator(".sweep circle").evaluate_all("all => all.map((one) => one.cy.baseVal.value)")
    assert len(set(heights[:3])) == 1
    # Marks of binary bytes are powers of two.
    page.get_by_label("Amounts are").select_option("peak memory")
    marks = page.locator(".sweep text.axis").all_text_contents()
    assert {"1.00 GiB", "2.00 GiB", "4.00 GiB", "8.00 GiB"} <= set(marks)
