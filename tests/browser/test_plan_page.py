"""Layouts of many GPUs in a browser: memory against throughput."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from opcost.core.results import LayoutCost, LayoutPlan

Show = Callable[[str], Any]
LIMIT = 64 << 30
FASTEST = LayoutCost(
    mesh="fsdp=8", batch=2, passes=4, checkpoint="none", reshard=True, peak_bytes=LIMIT // 2, fits=True, latency_ns=10**9,
    items_per_second=8e4, counted=True,
)  # fmt: skip
SLOWER = replace(FASTEST, mesh="fsdp=4,tp=2", latency_ns=2 * 10**9, items_per_second=4e4, counted=False)
TOO_LARGE = replace(
    FASTEST, mesh="replicate=8", peak_bytes=2 * LIMIT, fits=False, latency_ns=None, items_per_second=None, counted=False
)


def plan(*layouts: LayoutCost) -> LayoutPlan:
    return LayoutPlan(
        source="Net", device="h100", cluster="dgx-h100", gpus=8, samples=64, item="token", limit_bytes=LIMIT,
        layouts=layouts, smaller=None, options={}, notes=(),
    )  # fmt: skip


def test_each_layout_is_a_point_beside_the_limit(show: Show) -> None:
    page = show(plan(FASTEST, SLOWER, TOO_LARGE).render("html"))
    picture = page.locator("svg.plot")
    assert picture.get_attribute("aria-label") == "Throughput by memory of 3 layouts; the fastest is fsdp=8, 4 × 2"
    assert [picture.locator(shape).count() for shape in ("circle.point", "circle.curve", "path.over")] == [1, 1, 1]
    fastest, slower = (picture.locator(f"circle.{name}").bounding_box() for name in ("point", "curve"))
    assert slower["y"] > fastest["y"]
    assert picture.get_by_text("64.00 GiB").count() >= 1


@pytest.mark.parametrize("share", [1, 100])
def test_the_limit_is_a_line_where_layouts_come_near_it(show: Show, share: int) -> None:
    page = show(plan(replace(FASTEST, peak_bytes=LIMIT // share)).render("html"))
    assert page.locator("svg.plot line.limit").count() == (share == 1)
    assert page.locator(".legend").get_by_text("a GPU has 64.00 GiB").count() == (share > 1)
    if share == 1:
        frame, label = (
            page.locator(f"svg.plot{inner}").last.bounding_box() for inner in ("", " text:text-is('64.00 GiB')")
        )
        assert label["x"] + label["width"] <= frame["x"] + frame["width"]
