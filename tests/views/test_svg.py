"""The badge of a report, as SVG and as a line; pictures that the page draws are refused with the way to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from page_subjects import profile, report

from opcost.errors import UnknownName
from opcost.profiles import askable

SVG = "{http://www.w3.org/2000/svg}"


def test_a_badge_has_the_numbers_and_says_what_is_missing(tmp_path: Path, opcost_command: Callable[..., Any]) -> None:
    texts = "".join(ET.fromstring(report(uncounted=True).render("svg")).itertext())
    assert "params" in texts
    assert "≥" in texts
    report().save(tmp_path / "net.json")
    done = opcost_command("count", tmp_path / "net.json", "-o", tmp_path / "badge.svg", "-q")
    assert (done.code, done.out) == (0, "")
    assert (tmp_path / "badge.svg").read_text(encoding="utf-8") == report().render("svg")
    # 4 blocks of 3 layers with 6 operators of 1000, 2000 and 3000 MACs, two FLOPs each.
    assert (
        opcost_command("count", tmp_path / "net.json", "--view", "badge").out
        == "780 params · 144.00 K MACs · 288.00 K FLOPs\n"
    )


def test_words_and_numbers_of_a_badge_stand_side_by_side() -> None:
    root = ET.fromstring(report().render("svg"))
    ground, *boxes = root.iter(f"{SVG}rect")
    end = 0.0
    for place, (box, text) in enumerate(zip(boxes, root.iter(f"{SVG}text"), strict=True)):
        x, width = float(box.attrib["x"]), float(box.attrib["width"])
        assert x == pytest.approx(end + (4 if place and place % 2 == 0 else 0))  # a gap before each further word
        assert float(text.attrib["x"]) == pytest.approx(x + width / 2)
        assert width == pytest.approx(6.4 * len(text.text or "") + 12)
        end = x + width
    assert len(boxes) == 6
    assert float(root.attrib["width"]) == float(ground.attrib["width"]) == pytest.approx(end)


def test_pictures_that_the_page_draws_are_refused_with_the_way_to_them(
    tmp_path: Path, opcost_command: Callable[..., Any]
) -> None:
    way = "-o page.html draws treemap, flame, memory and roofline; -o badge.svg writes the badge"
    report().save(tmp_path / "net.json")
    askable(profile()).save(tmp_path / "run.json")
    for command, source, file, *further in (
        ("count", "net.json", "x.svg", "--picture", "flame"),
        ("count", "net.json", "x.svg", "--picture=flame"),
        ("count", "net.json", "x.png"),
        ("analyze", "run.json", "x.png"),
        ("analyze", "run.json", "x.svg"),
    ):
        done = opcost_command(command, tmp_path / source, "-o", tmp_path / file, *further)
        assert (done.code, way in done.err, (tmp_path / file).exists()) == (2, True, False), done.err
    with pytest.raises(UnknownName, match="option of the svg view 'picture'") as caught:
        report().save(tmp_path / "x.svg", picture="flame")
    assert way in caught.value.hint
