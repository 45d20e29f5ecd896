"""The chart of a sweep: points at the logarithm of size and amount, one curve for each second size, and hostile names."""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from opcost.core.results import Comparison, Point, Sweep
from opcost.errors import InputError, UnknownName
from opcost.views.chart import COLOURS

SVG = "{http://www.w3.org/2000/svg}"


def sweep(*points: Point, variables: tuple[str, ...] = ("batch",), **more: Any) -> Sweep:
    return Sweep(source="net", variables=variables, points=points, **more)


def drawn(found: Sweep, quantity: str | None = None) -> ET.Element:
    return ET.fromstring(found.plot(quantity))


def places(picture: ET.Element) -> list[tuple[float, float]]:
    return [(float(each.attrib["cx"]), float(each.attrib["cy"])) for each in picture.iter(f"{SVG}circle")]


def texts(picture: ET.Element) -> list[str]:
    return [str(each.text) for each in picture.iter(f"{SVG}text")]


def test_equal_factors_of_size_and_amount_are_equal_distances() -> None:
    picture = drawn(sweep(*(Point((size,), {"macs": 1000 * size**2}) for size in (1, 2, 4, 8))), "macs")
    found = places(picture)
    steps = [(right[0] - left[0], right[1] - left[1]) for left, right in pairwise(found)]
    assert all(step == pytest.approx(steps[0], abs=0.2) for step in steps)
    assert steps[0][0] > 0 > steps[0][1]  # to the right, and up
    assert {"1", "2", "4", "8", "1.00 K", "10.00 K"} <= set(texts(picture))


def test_a_point_that_was_not_counted_is_hollow_and_one_that_does_not_run_is_left_out() -> None:
    points = (Point((1,), {"peak_bytes": 1024}), Point((2,), {"peak_bytes": 2048}, counted=False), Point((3,), {}))
    circles = [*drawn(sweep(*points)).iter(f"{SVG}circle")]
    assert [circle.attrib["fill"] == "#fff" for circle in circles] == [False, True]
    assert [str(circle[0].text) for circle in circles] == ["batch 1: 1.00 KiB", "batch 2: 2.00 KiB"]


def test_two_sizes_are_a_curve_for_each_of_the_second() -> None:
    points = (Point((a, b), {"flops": a * b}) for a in (1, 2) for b in (16, 32, 64))
    picture = drawn(sweep(*points, variables=("batch", "tokens")), "flops")
    assert len([*picture.iter(f"{SVG}polyline")]) == 3
    assert {"tokens 16", "tokens 32", "tokens 64"} <= set(texts(picture))


def test_the_latency_on_a_device_has_its_interval_and_is_drawn_unless_another_is_named() -> None:
    points = (Point((size,), {"macs": size}, latency_ns=size, band_ns=(size // 2, 2 * size)) for size in (100, 200))
    found = sweep(*points, device="h200")
    assert "net: latency by batch on h200" in texts(drawn(found))
    assert len([*drawn(found).iter(f"{SVG}polygon")]) == 1
    assert not [*drawn(found, "macs").iter(f"{SVG}polygon")]


def test_its_colours_are_those_of_the_page() -> None:
    script = (files("opcost.views.html") / "assets" / "colours.js").read_text(encoding="utf-8")
    assert f"export const COLOURS = {json.dumps(COLOURS)};" in script


def test_what_cannot_be_drawn_is_an_error() -> None:
    one = sweep(Point((1,), {"macs": 5}))
    assert places(drawn(one, "macs"))  # a single point is in the middle
    with pytest.raises(InputError, match="no latency above zero"):
        one.plot("latency")
    with pytest.raises(UnknownName, match="did you mean 'macs'"):
        one.plot("mcas")
    with pytest.raises(InputError, match="only a sweep has a chart"):
        Comparison(sources=(), entries=()).render("chart")


def test_names_do_no_harm_and_it_is_saved(tmp_path: Path) -> None:
    evil = '"><script>alert(1)</script>\x1b[31m'
    picture = Sweep(source=evil, variables=(evil,), points=(Point((1,), {"peak_bytes": 2}),)).plot()
    assert "script" not in {each.tag.removeprefix(SVG) for each in ET.fromstring(picture).iter()}
    assert picture._repr_svg_() == picture
    picture.save(tmp_path / "sweep.svg")
    assert (tmp_path / "sweep.svg").read_text(encoding="utf-8") == picture
    assert repr(picture).startswith("<Picture: SVG of ")
