"""Sources side by side in a browser: a baseline that is chosen, differences from it, and sources as points."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from page_subjects import four
from playwright.sync_api import expect

from opcost.core.limits import QUANTITIES
from opcost.core.results import Compared, Comparison, Entry

Show = Callable[..., Any]


def changes(page: Any, grid: str, line: int) -> list[str]:
    """The signed cells of a line."""
    return (
        page.get_by_role(grid).locator("tbody tr[data-place]").nth(line).locator("td.more, td.less").all_inner_texts()
    )


def test_a_click_on_a_heading_chooses_the_source_to_compare_with(show: Show) -> None:
    page = show(four().render("html"))
    # Parameters of two, three and four times one's, 100; then MACs.
    assert changes(page, "grid", 0) == ["+100.0 %", "+300.0 %", "+200.0 %"]
    assert changes(page, "grid", 1) == ["+300.0 %", "+100.0 %", "-50.0 %"]
    page.get_by_role("grid").get_by_role("button", name="four").click()
    # From four's 300 parameters and 500 MACs.
    assert changes(page, "grid", 0) == ["-66.7 %", "-33.3 %", "+33.3 %"]
    assert changes(page, "grid", 1) == ["+100.0 %", "+700.0 %", "+300.0 %"]
    assert page.get_by_role("grid").get_by_role("button", name="◆ four").count() == 1
    # The module is in the others alone.
    module = page.get_by_role("treegrid").locator("tbody tr[data-place]").first
    assert module.locator("td").all_inner_texts().count("added") == 3
    page.wait_for_url(re.compile("base=3"))
    again = show(four().render("html"), fragment="base=3")
    assert changes(again, "grid", 0) == ["-66.7 %", "-33.3 %", "+33.3 %"]
    assert changes(show(four().render("html"), fragment="base=9"), "grid", 0) == ["+100.0 %", "+300.0 %", "+200.0 %"]


def test_sources_are_points_of_macs_by_parameters(show: Show) -> None:
    page = show(four().render("html"), fragment="base=1")
    points = page.locator("[aria-label='Scatter'] circle")
    places = points.evaluate_all("all => all.map((one) => [one.cx.baseVal.value, one.cy.baseVal.value])")
    assert len(places) == 4
    lefts = sorted(range(4), key=lambda place: places[place][0])
    tops = sorted(range(4), key=lambda place: places[place][1])
    # Points are drawn from top to bottom: two, three, one, four; parameters rise from one, two, four to three.
    assert tops == [0, 1, 2, 3]
    assert lefts == [2, 0, 3, 1]
    assert page.locator("[aria-label='Scatter'] .chosen").count() == 1
    page.get_by_label("Upwards").select_option("params")
    straight = points.evaluate_all("all => all.map((one) => [one.cx.baseVal.value, one.cy.baseVal.value])")
    assert [x for x, _ in straight] == sorted((x for x, _ in straight), reverse=True)
    assert "params by params" in page.locator("[aria-label='Scatter'] svg").get_attribute("aria-label")


def test_on_a_narrow_screen_sources_are_below_each_other(show: Show) -> None:
    page = show(four().render("html"), width=390, height=844)
    assert not page.get_by_role("grid").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.get_by_role("treegrid").get_by_role("columnheader", name="type").count() == 0
    blocks = page.locator(".stack section")
    expect(blocks).to_have_count(4)
    assert re.sub(r"\s+", " ", blocks.nth(1).inner_text()) == "two params 200 +100.0 % MACs 4.00 K +300.0 %"
    assert blocks.nth(1).locator(".more").count() == 2
    blocks.nth(3).get_by_role("button").click()
    assert re.sub(r"\s+", " ", blocks.nth(1).inner_text()) == "two params 200 -33.3 % MACs 4.00 K +700.0 %"


def test_two_sources_have_differences_in_amounts_too_and_no_points(show: Show) -> None:
    entry = Entry(
        part="total", name="", quantity=QUANTITIES["macs"], amounts=(1000, 3000), present=(True, True), partial=(False, False)
    )  # fmt: skip
    two = Comparison(sources=(Compared(label="one", facts={}), Compared(label="two", facts={})), entries=(entry,))
    page = show(two.render("html"))
    assert changes(page, "grid", 0) == ["+2.00 K", "+200.0 %"]
    assert page.locator("[aria-label='Scatter']").count() == 0


def test_modules_of_the_baseline_come_first_and_bars_are_equally_wide(show: Show) -> None:
    amounts = {"early": (0, 5), "late": (7, 9)}
    entries = tuple(
        Entry(
            part="module", name=name, quantity=QUANTITIES["macs"],
            amounts=found, present=(name == "late", True), partial=(False, False),
        )
        for name, found in amounts.items()
    )  # fmt: skip
    sources = (Compared(label="a", facts={}), Compared(label="another of a long name", facts={}))
    page = show(Comparison(sources=sources, entries=entries).render("html"))
    modules = page.get_by_role("treegrid")
    assert modules.locator(".name").all_inner_texts() == ["late", "early"]
    widths = modules.locator("td.bar").evaluate_all("all => all.map((one) => Math.round(one.offsetWidth))")
    assert len(set(widths)) == 1
    page.get_by_role("button", name="another of a long name").first.click()
    expect(modules.locator(".name").first).to_have_text("late")


def test_long_names_of_sources_give_way_and_no_amount_does(show: Show) -> None:
    names = ["timm:vit_small_patch16_224", "timm:vit_base_patch16_224", "timm:eva02_base_patch14_448", "timm:resnet18"]
    entries = (
        Entry(
            part="total", quantity=QUANTITIES["bytes_read"], amounts=(1 << 40, 2 << 40, 3 << 40, 4 << 40),
            present=(True,) * 4, partial=(False,) * 4,
        ),
    )  # fmt: skip
    sources = tuple(Compared(label=name, facts={}) for name in names)
    page = show(Comparison(sources=sources, entries=entries).render("html"))
    grid = page.locator(".compared [role=grid]")
    assert grid.evaluate("grid => grid.parentElement.scrollWidth <= grid.parentElement.clientWidth")
    assert grid.get_by_title(names[0]).count()
    cells = grid.locator("tbody td")
    assert cells.evaluate_all("all => all.every((one) => one.scrollWidth <= one.clientWidth)")
