"""The table of a notebook, at the width of a window and of a narrow cell."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

import opcost

STARTS = "cells => cells.map(cell => Math.round(cell.getBoundingClientRect().right))"


@pytest.mark.parametrize("width", [1200, 420])
def test_columns_stand_below_their_heads_at_every_level_of_the_tree(browser: Any, width: int) -> None:
    net = nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 8)), nn.Linear(8, 8))
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_content(opcost.count(net, shapes=(2, 8))._repr_html_())
    closed = page.locator("details:not([open]) > summary:visible")
    while closed.count():
        closed.first.click()
    ends = page.locator(".opcost .r > :nth-child(4)").evaluate_all(STARTS)
    page.close()
    assert len(ends) == 8  # heads, the net, two sequences in one another, and four layers
    assert len(set(ends)) == 1
