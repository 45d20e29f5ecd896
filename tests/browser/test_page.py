"""The page in a browser: what is shown, chosen, sorted, found, copied, and never run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from page_subjects import HOSTILE, checkpoint, comparison, page_of, profile, report, sweep
from page_tree import ROWS, cell_of, line_of, names_of
from playwright.sync_api import expect

from opcost.core.units import format_bytes, format_count, format_time
from opcost.views.html import HTML, bundle

Show = Callable[..., Any]


# -- one choice for all views ------------------------------------------------------------------------------------------


def test_what_is_chosen_in_one_view_is_chosen_in_all(show: Show) -> None:
    page = show(HTML.render(report()))
    line_of(page, "block1").click()
    assert page.locator(".details h2").inner_text() == "block1"
    assert page.locator(".area.chosen").count() == 1
    page.get_by_role("tab", name="Operators").click()
    page.get_by_label("of the chosen module").check()
    assert page.locator("#view-operators output").inner_text() == "18 of 72"
    page.locator("#view-operators tbody tr[data-place]").nth(2).click()
    assert page.locator('.tree tr[aria-selected="true"] .name').inner_text() == "layer0"
    page.get_by_role("tab", name="Roofline").click()
    assert page.locator(".point.chosen").count() == 1
    page.get_by_role("tab", name="Memory").click()
    assert page.locator(".mark").count() == 1
    box = page.locator("#view-memory svg").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert page.locator(".details h2").inner_text().startswith("operator ")


def test_the_map_goes_in_and_out(show: Show) -> None:
    page = show(HTML.render(report()))
    page.locator(".area.inner text", has_text="block2").dblclick(force=True)
    page.wait_for_selector('.trail button[aria-current="true"]:has-text("block2")')
    assert page.locator(".area.inner").count() == 1
    page.get_by_role("button", name="icicle").click()
    assert page.locator(".area").count() == 1 + 3
    page.locator(".trail button").first.click()
    assert page.locator(".area").count() == 1 + 4 + 12
    page.get_by_label("Area is").select_option("params")
    assert page.locator("#view-map").get_by_text("params: ").inner_text().endswith("in all")


def test_a_link_shows_what_its_sender_saw(show: Show) -> None:
    page = show(HTML.render(report()))
    line_of(page, "block1").click()
    page.get_by_role("button", name="kB").click()
    page.get_by_role("tab", name="Roofline").click()
    page.get_by_label("Device").select_option("a100")
    page.wait_for_url(re.compile("a100"))
    fragment = page.evaluate("location.hash.slice(1)")
    other = show(HTML.render(report()), fragment=fragment)
    assert other.locator(".details h2").inner_text() == "block1"
    assert other.get_by_role("tab", name="Roofline").get_attribute("aria-selected") == "true"
    assert other.get_by_label("Device").input_value() == "a100"
    assert other.get_by_role("button", name="kB").get_attribute("aria-pressed") == "true"


def test_a_fragment_of_nonsense_does_no_harm(show: Show) -> None:
    page = show(
        HTML.render(report()),
        fragment="sel=%3Cb%3E&view=nowhere&open=zz.!&sort=-x&zoom=no&qty=q&dev=d&from=x&theme=q&tables=0~-x~%25E0%25A4%7C~~~",
    )
    assert names_of(page)[0] == "Net"


# -- numbers and texts -------------------------------------------------------------------------------------------------


def test_numbers_are_written_as_on_the_command_line(show: Show) -> None:
    page = show(HTML.render(report()))
    amounts = [
        0,
        1,
        999,
        1000,
        1023,
        1024,
        1025,
        99_995,
        999_994,
        999_995,
        1_048_575,
        4_089_184_256,
        10**12,
        123_456_789_012_345,
    ]
    each = "[$format.formatCount(n), $format.formatBytes(n), $format.formatTime(n)]"
    script = f"(() => {{ {bundle('format')} return {amounts}.map((n) => {each}); }})()"
    for amount, texts in zip(amounts, page.evaluate(script), strict=True):
        assert texts == [format_count(amount), format_bytes(amount), format_time(amount)], amount


def test_the_answer_is_the_heading_and_four_figures_come_before_all_totals(show: Show) -> None:
    found = report()
    page = show(HTML.render(found))
    assert page.locator("h1").inner_text().replace("\u00a0", " ") == found.answer
    assert page.locator(".figures dt").all_inner_texts() == ["params", "MACs", "FLOPs", "peak memory"]
    assert not page.locator(".totals").is_visible()
    figures, more = page.locator(".figures").bounding_box(), page.get_by_text("all totals").bounding_box()
    assert figures is not None
    assert more is not None
    assert figures["y"] < more["y"] < figures["y"] + figures["height"]  # they are in one row
    page.get_by_text("all totals").click()
    assert page.locator(".totals dt").count() == len(found.sheet().totals)
    assert f"{found.totals.macs:,}" in page.locator(".totals").inner_text()


def test_units_of_bytes_are_switched_everywhere(show: Show) -> None:
    page = show(HTML.render(report()))
    assert "KiB" in page.locator(".figures").inner_text()
    page.get_by_role("button", name="kB").click()
    assert "KiB" not in page.locator(".figures").inner_text() + page.locator(".tree table").inner_text()


def test_tables_are_copied_as_markdown_and_csv(show: Show) -> None:
    page = show(HTML.render(report(word="|=<b>")), permissions=["clipboard-read", "clipboard-write"])
    copied = "navigator.clipboard.readText()"
    page.get_by_role("button", name="Copy module tree as Markdown").click()
    page.wait_for_selector("text=copied")
    text = page.evaluate(copied)
    assert text.startswith("| module | type | input | output | params | MACs | share |")
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines()}) == 1
    assert "<b" not in text
    page.get_by_role("button", name="Copy module tree as CSV").click()
    expect(page.get_by_role("button", name="Copy module tree as CSV")).to_have_text("copied")
    lines = page.evaluate(copied).splitlines()
    assert lines[2].startswith("block0|=<b>,Block")
    assert f",{6 * 6000}," in lines[2]


def test_what_is_not_counted_is_an_alert(show: Show) -> None:
    page = show(HTML.render(report(uncounted=True)))
    assert "odd" in page.locator(".alert").inner_text()
    # MACs, FLOPs, activations, bytes read and written, peak memory; of these the first two and the last are large
    assert page.locator(".totals .partial").count() == 6
    assert page.locator(".figures .partial").count() == 3
    assert page.locator(f"{ROWS}.partial .name").first.inner_text() == "Net"
    assert cell_of(page, 0, "MACs").startswith("≥")


@pytest.mark.parametrize(("view", "heading"), [("memory", "operator 2"), ("roofline", "operator ")])
def test_plots_are_walked_with_the_keys(show: Show, view: str, heading: str) -> None:
    page = show(HTML.render(report()), fragment=f"view={view}")
    page.locator(f"#view-{view} svg").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator(".details h2").inner_text().startswith(heading)
    assert page.locator("[role=status].unseen").inner_text() != ""


# -- hostile names -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["report", "profile", "checkpoint"])
def test_names_from_everywhere_are_shown_and_never_run(show: Show, subject: str) -> None:
    page = show(
        {
            "report": lambda: HTML.render(report(word=HOSTILE, uncounted=True)),
            "profile": lambda: page_of(profile(word=HOSTILE)),
            "checkpoint": lambda: checkpoint(HOSTILE).render("html"),
        }[subject]()
    )
    for tab in page.get_by_role("tab").all():
        tab.click()
    page.locator(ROWS).nth(1).click()
    assert page.locator("img, iframe, object, embed, a").count() == 0
    assert page.locator("script").count() == 2
    assert page.title() != "taken"
    assert "<script>" in page.locator(f"{ROWS} td:first-child").nth(1).inner_text()
    assert "<script>" in page.locator(".details").inner_text()
    assert "<script>" in page.locator("header").inner_text()


# -- comparisons and sweeps --------------------------------------------------------------------------------------------


def test_a_comparison_colours_differences_and_opens_modules(show: Show) -> None:
    page = show(comparison(HOSTILE).render("html"))
    more = page.get_by_role("grid", name="totals").locator("td.more")
    assert more.all_inner_texts() == ["+2.00 K", "+200.0 %"]
    modules = page.get_by_role("treegrid", name="modules compared")
    assert modules.locator("td.less").all_inner_texts() == ["-400", "-44.4 %"]
    modules.locator(".fold").first.click()
    assert modules.locator("td.less").count() == 4
    page.get_by_label("only what differs").check()
    assert modules.locator("tbody tr[data-place]").count() == 2
    page.wait_for_url(re.compile("changed=yes"))
    other = show(comparison(HOSTILE).render("html"), fragment=page.evaluate("location.hash.slice(1)"))
    assert other.get_by_label("only what differs").is_checked()
    assert other.get_by_role("treegrid", name="modules compared").locator("tbody tr[data-place]").count() == 2


def test_a_sweep_is_drawn_as_curves_and_as_a_heat_map(show: Show) -> None:
    page = show(sweep(HOSTILE).render("html"))
    expect(page.locator(".sweep rect")).to_have_count(9)
    page.get_by_role("button", name="curves").click()
    assert page.locator(".sweep .curve").count() == 3
    assert page.locator(".sweep circle").count() == 9
    page.get_by_label("Amounts are").select_option("macs")
    assert "MACs" in page.locator(".sweep").inner_text()
