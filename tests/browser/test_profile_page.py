"""The page of a profile in a browser: its devices, what to do next, lines, icicle and timeline."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from typing import Any

from mesh_models import TOKENS, Decoder
from page_subjects import HOSTILE, page_of, profile
from page_tree import cell_of
from playwright.sync_api import expect

from opcost import predict, read_profile
from opcost.analysis.query import query
from opcost.core.profile import Gain, Kernel
from opcost.core.units import format_count
from opcost.profiles import askable, with_default_costs
from opcost.traces.ranks import read_ranks
from opcost.views.html import HTML

Show = Callable[..., Any]


# -- profiles ----------------------------------------------------------------------------------------------------------


def test_a_profile_has_its_devices_timeline_and_lines(show: Show) -> None:
    page = show(page_of(profile()))
    assert "computing" in page.locator(".uses").inner_text()
    assert page.locator(".panel.table tbody tr[data-place]").count() > 10
    page.locator(".panel.table tbody tr[data-place]").first.click()
    assert "1 × kernel" in page.locator(".behind").inner_text()
    page.locator(".panel.table").get_by_label("Find in").fill("op29")
    assert page.locator(".panel.table output").inner_text().startswith("1 of 30")


def test_a_link_keeps_how_tables_are_sorted_and_what_was_found(show: Show) -> None:
    page = show(page_of(profile()))
    page.locator(".panel.table").get_by_role("button", name="name", exact=True).click()
    page.locator(".panel.table").get_by_label("Find in").fill("op2 ~|%")
    expect(page.locator(".panel.table output")).to_have_text("0 of 30 lines")
    page.locator(".panel.table").get_by_label("Find in").fill("op2")
    page.get_by_role("tab", name="Operators").click()
    page.get_by_label("Find an operator").fill("op7")
    expect(page.locator("#view-operators output")).to_have_text("1 of 30")
    page.wait_for_url(re.compile("oq=op7"))
    other = show(page_of(profile()), fragment=page.evaluate("location.hash.slice(1)"))
    # op2 and op20 to op29.
    expect(other.locator(".panel.table output")).to_have_text("11 of 30 lines")
    sorted_by = other.locator(".panel.table").get_by_role("columnheader", name="name")
    assert sorted_by.get_attribute("aria-sort") == "ascending"
    expect(other.locator("#view-operators output")).to_have_text("1 of 30")


def test_work_is_shown_in_macs_or_flops(show: Show) -> None:
    page = show(page_of(profile()))
    # Thirty operators of 64 MACs and 128 FLOPs.
    assert cell_of(page, 0, "MACs") == format_count(30 * 64)
    page.get_by_role("button", name="FLOPs").click()
    assert cell_of(page, 0, "FLOPs") == format_count(30 * 128)


def test_a_rank_of_many_has_lanes_for_what_it_computes_and_sends(show: Show) -> None:
    options: dict[str, Any] = {"mesh": "fsdp=2,tp=4", "backward": True, "device": "h200", "cluster": "dgx-h200"}
    page = show(page_of(predict(Decoder(), TOKENS, **options)))
    canvas = page.locator("canvas")
    canvas.scroll_into_view_if_needed()
    assert canvas.get_attribute("aria-label").split(";")[0].endswith("on 3 lanes")
    box = canvas.bounding_box()

    def tip(lane: int) -> str:
        page.mouse.move(box["x"] + 170, box["y"] + 22 + 22 * lane + 11)  # right of the names, below the axis
        return str(page.locator(".tip").inner_text())

    # It begins with a gather of parameters, which are copied together first; operators wait.
    assert tip(0).startswith("waits for fsdp")
    assert tip(1).startswith("fsdp::all_gather_copy_in")
    assert tip(1).endswith(", fsdp")


def test_the_timeline_zooms_moves_and_chooses(show: Show) -> None:
    page = show(page_of(profile()))
    canvas = page.locator("canvas")
    canvas.scroll_into_view_if_needed()
    output = page.locator(".panel.time output")
    whole = output.inner_text()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    page.mouse.wheel(0, -600)
    expect(output).not_to_have_text(whole)
    canvas.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    expect(output).to_have_text(whole)
    page.mouse.click(
        box["x"] + 138 + (box["width"] - 138) * 10.2 / 30, box["y"] + 22 + 22 + 11
    )  # the host is below the stream
    page.wait_for_selector(".details h2:has-text('part1.op10')")


def test_times_are_an_icicle_that_grows_downwards(show: Show) -> None:
    page = show(page_of(profile()))
    assert page.get_by_role("button", name="icicle").get_attribute("aria-pressed") == "true"
    boxes = page.locator("#view-map .area rect").evaluate_all(
        "all => all.map((one) => [one.y.baseVal.value, one.width.baseVal.value])"
    )
    root, *others = boxes
    assert root[0] < 1
    assert root[1] == max(width for _, width in boxes)
    assert all(top > root[0] for top, _ in others)


def test_the_lines_are_below_the_use_of_the_device_and_above_all_views(show: Show) -> None:
    page = show(page_of(profile()))
    tops = [page.locator(each).first.bounding_box()["y"] for each in (".uses", "#table-0", ".pair", "#timeline")]
    assert tops == sorted(tops)


TRACE = Path(__file__).parents[2] / "examples/trace.json.gz"


def test_names_are_whole_and_columns_give_way_to_them(show: Show) -> None:
    page = show(read_profile(TRACE).page(), width=1280)
    table = page.locator("#table-0")
    cells = table.locator("tbody tr[data-place] td:first-child")
    assert all(cells.evaluate_all("all => all.map((one) => one.scrollWidth <= one.clientWidth)"))
    heads = table.locator("th").all_inner_texts()
    assert heads[:5] == ["type", "device time", "%", "calls", "bound"]
    assert "occupancy" in "".join(heads)
    assert "kernel" not in heads
    table.locator("summary").click()
    table.get_by_label("cumulative").check()
    assert "cumulative" in table.locator("th").all_inner_texts()
    page.wait_for_url(re.compile("tcols="))


def test_on_a_phone_a_line_is_its_name_and_below_that_its_time_and_share(show: Show) -> None:
    page = show(read_profile(TRACE).page(), width=390)
    table = page.locator("#table-0")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    name, time, share = table.locator("tbody tr[data-place]").first.locator("td").all()
    assert name.inner_text() == "aten::addmm"
    assert time.bounding_box()["y"] == share.bounding_box()["y"] > name.bounding_box()["y"]
    # All lines are in sight.
    assert table.locator(".grid").evaluate("one => one.scrollHeight - one.clientHeight") <= 0


def test_labels_of_the_icicle_fit_and_its_keys_walk(show: Show) -> None:
    page = show(read_profile(TRACE).page(), width=1280)
    inside = page.locator("#view-map .area:has(text)").evaluate_all("""all => all.map((one) => {
        const [area, text] = [one.querySelector("rect"), one.querySelector("text")].map((part) => part.getBBox());
        return text.x + text.width <= area.x + area.width + 1 && text.y + text.height <= area.y + area.height + 1;
    })""")
    assert len(inside) > 5
    assert all(inside)
    picture = page.locator("#view-map svg.map")
    picture.focus()
    for key, chosen in (
        ("ArrowDown", "G_0"),
        ("ArrowDown", "G_0.Embedding_0"),
        ("ArrowRight", "G_0.B_0"),
        ("ArrowUp", "G_0"),
    ):
        page.keyboard.press(key)
        expect(page.locator(".details h2")).to_have_text(re.compile(rf"^{re.escape(chosen)}\b"))


def test_ranks_that_are_alike_are_one_line_and_the_late_one_is_first(show: Show, tmp_path: Path) -> None:
    examples = run_path(str(TRACE.with_name("ranks.py")))
    whole = json.loads(gzip.decompress(TRACE.read_bytes()))
    for rank in (3, 16, 17, 18, 40):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(examples["trace_of"](whole, rank)), encoding="utf-8")
    page = show(askable(read_ranks([tmp_path], cache="none")).page())
    heads = page.locator(".uses h2").all_inner_texts()
    assert heads[0].startswith("late: rank 17: 4 ranks waited")
    assert heads[2].startswith("rank 17 gpu:0: busy")
    assert heads[3].startswith("ranks 3, 16, 18, 40 gpu:0 (the median of 4 alike)")
    page.get_by_role("button", name="show in communication: ranks").click()
    lines = page.get_by_role("grid", name="communication: ranks").locator("tbody tr[data-place]")
    assert [line.split()[0] for line in lines.all_inner_texts()] == ["17", "3,"]


def test_lines_without_device_time_are_folded(show: Show) -> None:
    plain = profile()
    rows = [row._replace(device_ns=0, kernels=()) if row.id % 3 == 0 else row for row in plain.rows]
    page = show(page_of(replace(plain, rows=tuple(row._replace(kernels=()) for row in rows), unattributed=())))
    lines = page.locator("#table-0 tbody tr[data-place]")
    # Of thirty operators ten have no time on the device; the total is a line too.
    expect(page.locator("#table-0 output")).to_have_text("20 of 30 lines")
    page.get_by_role("button", name="show 10 rows without device time").click()
    expect(page.locator("#table-0 output")).to_have_text("30 of 30 lines")
    page.get_by_role("button", name="fold 10 rows").click()
    page.locator("#table-0").get_by_label("Find in").fill("op27")
    expect(lines).to_have_count(2)


def test_devices_are_above_the_host_and_steps_are_marked(show: Show) -> None:
    plain = profile()
    mark = plain.rows[0]._replace(
        name="ProfilerStep#7", type="mark", module="", kernels=(), host_ns=10_000, device_ns=0
    )
    page = show(page_of(replace(plain, rows=(mark, *plain.rows))))
    titles = page.evaluate("""async () => {
        const drawn = [];
        const own = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (...what) {
            drawn.push(what);
            own.apply(this, what);
        };
        document.querySelector("#timeline button").click();
        while (!drawn.length) await new Promise(requestAnimationFrame);
        return drawn;
    }""")
    assert "step 7" in [text for text, _, _ in titles]
    lanes = sorted((y, text) for text, x, y in titles if x == 4)
    assert [text for _, text in lanes][:2] == ["gpu:0 stream 7", "host"]


def test_what_to_do_next_is_below_the_use_of_the_device(show: Show) -> None:
    hostile = profile(word=HOSTILE)
    gain = Gain(what=f"idle: host-bound{HOSTILE}", share=0.25, time_ns=2_500_000, command="--view breakdown")
    page = show(HTML.render(replace(query(hostile), gains=(gain,)), profile=with_default_costs(hostile)))
    advice = page.locator(".gains li").inner_text()
    assert advice.startswith("2.50 ms (25.0 %) idle: host-bound")
    assert "larger batch" in advice
    assert "opcost analyze run" in page.locator(".gains code").inner_text()
    page.get_by_role("button", name="show in the timeline").click()
    # Kernels of 500 ns begin every 1,000 ns, from 450 ns on: the first of equal gaps is from 950 to 1,450 ns.
    page.wait_for_url(re.compile("idle=950-1450"))
    expect(page.locator("#timeline output")).to_contain_text("idle for 500 ns")
    assert page.evaluate("document.activeElement.tagName") == "CANVAS"


def test_what_to_do_next_leads_to_operators_and_tables(show: Show) -> None:
    plain = profile()
    commands = {"aten::op at 10 % of its bound": "--type aten::op", "kernels shorter than a launch": "--where"}
    gains = tuple(Gain(what=what, share=0.1, time_ns=10, command=command) for what, command in commands.items())
    page = show(HTML.render(replace(query(plain), gains=gains), profile=with_default_costs(plain)))
    page.get_by_role("button", name="show in the operators").click()
    expect(page.get_by_label("Find an operator")).to_have_value("aten::op")
    assert page.get_by_role("tab", name="Operators").get_attribute("aria-selected") == "true"
    page.get_by_role("button", name="show in device time").click()
    expect(page.locator("#table-0").get_by_label("Find in")).to_have_value("launch")


def test_collectives_and_copies_have_a_colour_of_their_own(show: Show) -> None:
    plain = profile()
    exchange = Kernel("ncclDevKernel_AllReduce", "gpu:0", "20", 1000, 9000)
    page = show(page_of(replace(plain, unattributed=(*plain.unattributed, exchange))))
    keys = page.locator(".panel.time .key")
    assert "communication" in keys.all_inner_texts()
    colour = "one => getComputedStyle(one.querySelector('i')).backgroundColor"
    assert keys.filter(has_text="communication").evaluate(colour) == "rgb(204, 121, 167)"
