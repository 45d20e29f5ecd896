"""Pictures of a report: areas as large as their shares, curves at their heights, and names that are texts."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_subjects import HOSTILE, report

from opcost.core.devices import device
from opcost.errors import OpcostError, UnknownName
from opcost.views.svg import SvgOptions
from opcost.views.svg.areas import squarified
from opcost.views.svg.badge import badge
from opcost.views.svg.drawing import COLOURS, GREY, RAISED

SVG = "{http://www.w3.org/2000/svg}"


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)


def shapes(text: str, tag: str) -> list[dict[str, str]]:
    return [dict(found.attrib) for found in parsed(text).iter(f"{SVG}{tag}")]


@given(st.lists(st.floats(0.01, 1000), min_size=1, max_size=40), st.floats(5, 500), st.floats(5, 500))
def test_areas_fill_the_box_and_are_as_large_as_their_sizes(sizes: list[float], width: float, height: float) -> None:
    boxes = squarified(sizes, (3, 4, width, height))
    scale = width * height / sum(sizes)
    for size, (x, y, w, h) in zip(sizes, boxes, strict=True):
        assert math.isclose(w * h, size * scale, rel_tol=1e-6, abs_tol=1e-6)
        assert 3 - 1e-6 <= x <= x + w <= 3 + width + 1e-6
        assert 4 - 1e-6 <= y <= y + h <= 4 + height + 1e-6


def test_a_treemap_has_an_area_for_every_module_in_proportion() -> None:
    text = report(blocks=2).render("svg", quantity="macs")
    leaves = [
        shape
        for shape in shapes(text, "rect")[1:]
        if shape["fill"] not in (RAISED, "#fff") and float(shape["width"]) > 11
    ]
    areas = sorted((float(shape["width"]) + 1) * (float(shape["height"]) + 1) for shape in leaves)
    assert len(areas) == 2 * 3
    # Layers of 1000, 2000 and 3000 MACs for each operator; titles of the blocks take the same room in both.
    assert areas[4] / areas[0] == pytest.approx(3, rel=0.02)
    assert areas[2] / areas[0] == pytest.approx(2, rel=0.02)


def test_memory_reaches_as_high_as_its_peak() -> None:
    subject = report()
    text = subject.render("svg", picture="memory", size=(900, 500))
    points = [float(point.partition(",")[2]) for shape in shapes(text, "polygon") for point in shape["points"].split()]
    bottom, room = 500 - 54, 500 - 54 - 44
    assert max(points) == pytest.approx(bottom, abs=0.1)
    assert min(points) == pytest.approx(bottom - room / 1.04, abs=0.1)


def test_points_of_a_roofline_stand_at_the_roof() -> None:
    subject = report()
    text = subject.render("svg", picture="roofline", on="a100")
    circles = shapes(text, "circle")
    # Three sizes of operators in each of three kinds.
    assert len(circles) == 9
    assert {shape["fill"] for shape in circles} <= {*COLOURS, GREY}
    (line,) = [shape["points"].split() for shape in shapes(text, "polyline")]
    (x0, y0), (x1, y1) = (tuple(map(float, point.split(","))) for point in line[:2])
    assert device("a100").bandwidth > 0
    for shape in circles:  # 10 to 31 FLOP per byte lie left of the ridge or right of it
        x, y = float(shape["cx"]), float(shape["cy"])
        roof = y0 + (y1 - y0) * (x - x0) / (x1 - x0) if x < x1 else y1
        assert y == pytest.approx(roof, abs=0.3)


@pytest.mark.parametrize("picture", ["treemap", "memory", "roofline"])
def test_names_are_texts(picture: str) -> None:
    text = report(word=HOSTILE).render("svg", picture=picture)
    assert {element.tag for element in parsed(text).iter()} <= {
        f"{SVG}{tag}" for tag in ("svg", "title", "rect", "text", "line", "polygon", "polyline", "circle")
    }
    assert "onerror=alert(1)>" not in text
    assert "<script" not in text


def test_what_cannot_be_drawn_is_told() -> None:
    subject = report()
    with pytest.raises(UnknownName, match="picture"):
        subject.render("svg", picture="pie")
    with pytest.raises(UnknownName, match="did you mean 'params'"):
        subject.render("svg", quantity="param")
    with pytest.raises(UnknownName, match="device"):
        subject.render("svg", picture="roofline", on="nothing")
    assert SvgOptions().picture == "treemap"


def test_a_badge_has_the_numbers_and_says_what_is_missing(tmp_path: Path, opcost_command: Callable[..., Any]) -> None:
    subject = report(uncounted=True)
    told = "".join(parsed(str(badge(subject))).itertext())
    assert "params" in told
    assert "≥" in told
    report().save(tmp_path / "net.json")
    done = opcost_command("badge", tmp_path / "net.json", "-o", tmp_path / "badge.svg", "-q")
    assert (done.code, done.out) == (0, "")
    assert (tmp_path / "badge.svg").read_text().startswith("<svg ")
    # 4 blocks of 3 layers with 6 operators of 1000, 2000 and 3000 MACs, two FLOPs each.
    assert opcost_command("badge", tmp_path / "net.json").out == "780 params · 144.00 K MACs · 288.00 K FLOPs\n"
    refused = opcost_command("badge", tmp_path / "net.json", "-o", tmp_path / "badge.png")
    assert (refused.code, "does not end in .svg" in refused.err) == (2, True)


def test_the_command_line_writes_the_picture_that_is_named(tmp_path: Path, opcost_command: Callable[..., Any]) -> None:
    report().save(tmp_path / "net.json")
    for picture, tag in (("treemap", "rect"), ("memory", "polygon"), ("roofline", "circle")):
        done = opcost_command("count", tmp_path / "net.json", "-o", tmp_path / "x.svg", "--picture", picture, "-q")
        assert done.code == 0, done.err
        assert len(shapes((tmp_path / "x.svg").read_text(), tag)) > 1
    refused = opcost_command("count", tmp_path / "net.json", "--picture", "memory")
    assert (refused.code, "--picture is for an .svg file" in refused.err) == (2, True)


def test_a_report_without_a_curve_is_told() -> None:
    from dataclasses import replace

    subject = report()
    bare = replace(subject, memory=replace(subject.memory, curve=()))
    with pytest.raises(OpcostError, match="no curve"):
        bare.render("svg", picture="memory")
