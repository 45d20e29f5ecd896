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


def test_an_svg_file_is_of_a_report_alone(tmp_path: Path, opcost_command: Callable[..., Any]) -> None:
    askable(profile()).save(tmp_path / "run.json")
    for file in ("x.svg", "x.png"):
        done = opcost_command("analyze", tmp_path / "run.json", "-o", tmp_path / file)
        assert (done.code, ".html" in done.err, (tmp_path / file).exists()) == (2, True, False), done.err
    with pytest.raises(UnknownName, match="option of the svg view 'picture'"):
        report().save(tmp_path / "x.svg", picture="flame")
