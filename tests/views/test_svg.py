"""Pictures of a report: areas as large as their shares, curves at their heights, and names that are texts."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_subjects import HOSTILE, profile, report

from opcost.core.devices import device
from opcost.errors import InputError, MissingFramework, OpcostError, UnknownName
from opcost.profiles import askable
from opcost.views.drawing import COLOURS, GREY, RAISED
from opcost.views.pictures import SvgOptions, badge, squarified

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


@pytest.mark.parametrize("picture", ["treemap", "flame", "memory", "roofline"])
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
    done = opcost_command("count", tmp_path / "net.json", "--picture", "badge", "-o", tmp_path / "badge.svg", "-q")
    assert (done.code, done.out) == (0, "")
    assert (tmp_path / "badge.svg").read_text().startswith("<svg ")
    # 4 blocks of 3 layers with 6 operators of 1000, 2000 and 3000 MACs, two FLOPs each.
    assert (
        opcost_command("count", tmp_path / "net.json", "--view", "badge").out
        == "780 params · 144.00 K MACs · 288.00 K FLOPs\n"
    )


def test_the_command_line_writes_the_picture_that_is_named(tmp_path: Path, opcost_command: Callable[..., Any]) -> None:
    report().save(tmp_path / "net.json")
    for picture, tag in (("treemap", "rect"), ("memory", "polygon"), ("roofline", "circle")):
        done = opcost_command("count", tmp_path / "net.json", "-o", tmp_path / "x.svg", "--picture", picture, "-q")
        assert done.code == 0, done.err
        assert len(shapes((tmp_path / "x.svg").read_text(), tag)) > 1
    refused = opcost_command("count", tmp_path / "net.json", "--picture", "memory")
    assert (refused.code, "--picture is for an .svg or .png file" in refused.err) == (2, True)


def test_a_report_without_a_curve_is_told() -> None:
    from dataclasses import replace

    subject = report()
    bare = replace(subject, memory=replace(subject.memory, curve=()))
    with pytest.raises(OpcostError, match="no curve"):
        bare.render("svg", picture="memory")


# -- flames ------------------------------------------------------------------------------------------------------------


def test_a_flame_stands_on_its_root_and_every_level_is_as_wide_as_its_share() -> None:
    text = report(blocks=2).render("svg", picture="flame", quantity="macs", size=(1016, 400))
    boxes = shapes(text, "rect")[1:-2]  # without the ground, and without the keys of layers and of others
    levels: dict[float, list[float]] = {}
    for shape in boxes:
        levels.setdefault(float(shape["y"]), []).append(float(shape["width"]) + 0.6)
    assert [len(found) for _, found in sorted(levels.items())] == [6, 2, 1]
    # 1000 units for 2 blocks of 6 operators of 1000, 2000 and 3000 MACs.
    assert sorted(round(width) for width in min(levels.items())[1]) == [83, 83, 167, 167, 250, 250]
    assert all(sum(widths) == pytest.approx(1000, abs=0.1) for widths in levels.values())
    assert float(parsed(text).attrib["height"]) == 44 + 3 * 26 + 30


def test_a_flame_of_a_profile_has_modules_operators_and_kernels(
    tmp_path: Path, opcost_command: Callable[..., Any]
) -> None:
    asked = askable(profile(count=6))
    asked.save(tmp_path / "flame.svg")
    found = (tmp_path / "flame.svg").read_text()
    told = [text.text or "" for text in parsed(found).iter(f"{SVG}text")]
    # Six operators of 500 ns in three parts, and 3 ns of a kernel that no operator launched.
    assert "device time by module, operator and kernel, 3.00 µs in all" in told
    assert any(text.startswith("part0") and text.endswith("1.00 µs") for text in told)
    asked.save(tmp_path / "run.json")
    done = opcost_command("analyze", tmp_path / "run.json", "-o", tmp_path / "again.svg")
    assert done.code == 0, done.err
    assert len(shapes((tmp_path / "again.svg").read_text(), "rect")) == len(shapes(found, "rect"))
    with pytest.raises(InputError, match="whole profile"):
        asked.answer().save(tmp_path / "lines.svg")


# -- points ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("picture", ["treemap", "flame", "memory", "roofline"])
def test_a_png_is_the_same_picture_twice_as_fine(tmp_path: Path, picture: str) -> None:
    image = pytest.importorskip("PIL.Image")
    report(word=HOSTILE).save(tmp_path / "x.png", picture=picture, size=(400, 300))
    drawn = image.open(tmp_path / "x.png").convert("RGB")
    height = float(parsed(report().render("svg", picture=picture, size=(400, 300))).attrib["height"])
    assert drawn.size == (800, 2 * height)
    colours = {f"#{red:02x}{green:02x}{blue:02x}" for _, (red, green, blue) in drawn.getcolors(1 << 20)}
    assert "#ffffff" in colours
    if picture in ("treemap", "flame"):
        assert len({*COLOURS} & colours) >= 1


def test_a_profile_is_saved_as_a_png_too(tmp_path: Path, opcost_command: Callable[..., Any]) -> None:
    pytest.importorskip("PIL")
    askable(profile()).save(tmp_path / "run.json")
    done = opcost_command("analyze", tmp_path / "run.json", "-o", tmp_path / "flame.png")
    assert done.code == 0, done.err
    assert (tmp_path / "flame.png").read_bytes().startswith(b"\x89PNG")


def test_without_pillow_a_png_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingFramework, match="pillow") as caught:
        report().save(tmp_path / "x.png")
    assert ".svg" in caught.value.hint
    assert not (tmp_path / "x.png").exists()
