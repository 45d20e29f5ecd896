"""The page on paper, in the dark, and of what is very large."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from page_subjects import many, page_of, profile, report

from opcost.analysis.query import query
from opcost.core.timeline import Span, lanes_as_columns, thinned_lanes
from opcost.views.html import HTML, write_page

Show = Callable[..., Any]
ROWS = ".tree tbody tr[data-place]"


# -- paper and the dark ------------------------------------------------------------------------------------------------


def test_it_prints_whole(show: Show) -> None:
    page = show(HTML.render(report(blocks=20)), fragment="open=0")
    page.get_by_label("Open to a level").select_option("all")
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(ROWS).count() == 1 + 20 + 60
    assert page.locator("#view-memory svg").is_visible()
    assert not page.locator(".settings").is_visible()


@pytest.mark.parametrize("text", [HTML.render(report()), page_of(profile())], ids=["report", "profile"])
def test_nothing_is_wider_than_the_paper_and_what_is_left_out_is_named(show: Show, text: str) -> None:
    page = show(text)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 within the usual margins
    assert page.evaluate("document.documentElement.scrollWidth") <= 718
    assert page.get_by_text(re.compile("^not on paper: ")).count() >= 1
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.get_by_text(re.compile("^not on paper: ")).count() == 0
    assert page.locator("th[hidden], td[hidden]").count() == 0


def test_dark_is_dark_by_the_system_and_by_choice(show: Show) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = show(HTML.render(report()), color_scheme="dark")
    light = show(HTML.render(report()), color_scheme="light")
    assert dark.evaluate(ground) != light.evaluate(ground)
    light.get_by_role("button", name="dark").click()
    assert dark.evaluate(ground) == light.evaluate(ground)


# -- large -------------------------------------------------------------------------------------------------------------


BLOCKED = """() => {
    window.blocked = [];
    const keep = (list) => blocked.push(...list.getEntries().map((one) => one.duration));
    new PerformanceObserver(keep).observe({ type: "longtask" });
}"""


FILTER = """document.querySelector("#view-map .legend button").click()"""


def test_a_hundred_thousand_operators_open_in_a_second_and_a_half_and_scroll(show: Show) -> None:
    text = HTML.render(many(10_000, 100_000))
    opened, views = [], []
    for _ in range(3):  # a machine that is busy with something else is not the page's fault
        page = show(text)
        opened.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
        page.evaluate(BLOCKED)
        page.wait_for_timeout(300)
        longest = {}
        for tab in page.get_by_role("tab").all():
            page.evaluate("blocked.length = 0")
            tab.click()
            page.wait_for_timeout(250)
            longest[tab.inner_text()] = page.evaluate("Math.max(0, ...blocked)")
            page.evaluate("blocked.length = 0")
            for _ in range(2):  # a filter, and all operators again
                page.evaluate(FILTER)
                page.wait_for_timeout(250)
            longest[f"{tab.inner_text()}, filtered"] = page.evaluate("Math.max(0, ...blocked)")
        views.append(longest)
    best = {view: min(longest[view] for longest in views) for view in views[0]}
    assert page.locator("#view-operators output").inner_text() == "100,000 of 100,000"
    scrolled = page.evaluate("""async () => {
        const grid = document.querySelector("#view-operators .grid");
        const begun = performance.now();
        for (let step = 1; step <= 30; step += 1) {
            grid.scrollTop = (grid.scrollHeight * step) / 30;
            await new Promise(requestAnimationFrame);
        }
        return (performance.now() - begun) / 30;
    }""")
    assert page.locator("#view-operators tbody tr[data-place] td").first.inner_text() > "99"
    print(
        f"100,000 operators: {len(text) / 1e6:.1f} MB, open after {min(opened):.0f} ms, a view and its filter block for {best}"
    )
    assert min(opened) < 1500
    assert max(best.values()) <= 100
    assert scrolled < 100


def test_a_million_events_are_drawn_and_zoomed(show: Show) -> None:
    small = profile()
    spans = [[Span(lane + 100 * n, 60 + n % 7, f"kernel {n % 40}") for n in range(250_000)] for lane in range(4)]
    begun = time.monotonic()
    timeline = lanes_as_columns(
        thinned_lanes({f"gpu:0 stream {lane}": events for lane, events in enumerate(spans)}), {}
    )
    binned = time.monotonic() - begun
    text = write_page(HTML.data(query(small), profile=small) | {"timeline": {**timeline, "steps": []}})
    page = show(text)
    page.locator("canvas").scroll_into_view_if_needed()
    frames = page.evaluate("""async () => {
        const canvas = document.querySelector("canvas");
        const room = canvas.getBoundingClientRect();
        const begun = performance.now();
        for (let step = 0; step < 40; step += 1) {
            const place = { clientX: room.left + 400, clientY: room.top + 40, cancelable: true };
            canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: step < 20 ? -120 : 120, ...place }));
            await new Promise(requestAnimationFrame);
        }
        return (performance.now() - begun) / 40;
    }""")
    print(
        f"1,000,000 events: {len(text) / 1e6:.1f} MB, binned in {binned:.1f} s, {frames:.1f} ms for a frame of zooming"
    )
    assert len(text) < 10_000_000
    assert frames < 100
