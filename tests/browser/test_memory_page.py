"""Memory over a training step in a browser: an axis on which every phase can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from page_subjects import report, step
from playwright.sync_api import expect

from opcost.views.html import HTML

Show = Callable[..., Any]
LEFT, RIGHT = 74, 12  # beside the axis


def test_an_update_of_many_operators_takes_a_fifth_of_the_axis(show: Show) -> None:
    page = show(HTML.render(step()), fragment="view=memory")
    picture = page.locator("#view-memory svg.plot")
    width = picture.evaluate("one => one.viewBox.baseVal.width") - LEFT - RIGHT
    borders = picture.locator(".phase").evaluate_all("all => all.map((one) => one.x1.baseVal.value)")
    # Forward and backward have two parts of the axis each, the update one.
    assert borders == pytest.approx([LEFT + 0.4 * width, LEFT + 0.8 * width])
    labels = picture.locator("text").all_text_contents()
    assert {"forward 1–4", "backward 5–10"} <= set(labels)
    assert any(label.startswith("update") for label in labels)
    # In the middle of the backward pass is the fourth of its six operators, of all the eighth.
    box = picture.bounding_box()
    page.mouse.click(box["x"] + LEFT + 0.61 * width, box["y"] + box["height"] / 2)
    expect(page.locator(".details h2")).to_have_text("operator 8")


def test_without_phases_every_operator_is_equally_wide(show: Show) -> None:
    page = show(HTML.render(report(blocks=2, ops=5)), fragment="view=memory")
    picture = page.locator("#view-memory svg.plot")
    assert picture.locator(".phase").count() == 0
    assert "operators 1–30" in picture.locator("text").all_text_contents()
    box, width = picture.bounding_box(), picture.evaluate("one => one.viewBox.baseVal.width") - LEFT - RIGHT
    page.mouse.click(box["x"] + LEFT + 0.5 * width + 2, box["y"] + box["height"] / 2)
    expect(page.locator(".details h2")).to_have_text("operator 16")
