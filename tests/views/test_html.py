"""The page for a browser: whole, escaped, on its own, with the numbers of what it shows."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from html_page import HtmlPage, column, hashed, values
from small_net import Net

import opcost
from opcost.analysis.query import query
from opcost.core.graph import Cost
from opcost.core.limits import QUANTITIES
from opcost.core.names import short_source
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.core.report import Report
from opcost.core.results import Compared, Comparison, Entry, Point, Sweep
from opcost.views.html import HTML, bundle
from opcost.views.html.reports import MOST_OPERATORS

HOSTILE = "</script><img src=x onerror=alert(1)>\"' & <b><!--\u2028"
ASSETS = Path(__file__).resolve().parents[2] / "src/opcost/views/html/assets"
TAGS = ["html", "head", "meta", "meta", "meta", "title", "style", "body", "script", "script"]
TAMED = HOSTILE.replace("\u2028", " ")
"""A separator of lines is a blank on a page."""


def profile(count: int, *, name: str = "n") -> Profile:
    rows = tuple(
        ProfileRow(
            id=number, name=f"{name}{number}", type=name, module=name, host_start_ns=number * 100, host_ns=20, host_self_ns=7,
            device_ns=number + 1,
            kernels=(Kernel(f"{name} kernel {number}", "gpu:0", "7", number * 100 + 50, number + 1, number * 100 + 10),),
        )
        for number in range(count)
    )  # fmt: skip
    lost = (Kernel("lost", "gpu:0", "7", 0, 3),)
    return Profile(meta={"source": f"{name}.json"}, rows=rows, unattributed=lost, wall_ns=1000)


def page(profile: Profile, **options: object) -> HtmlPage:
    return HtmlPage(HTML.render(query(profile, **options), profile=profile))


def totals(tree: dict, quantity: str) -> dict[str, int]:
    """Amounts of every node with all below it, by path, added up as the page does."""
    (own,) = [each["own"] for each in tree["quantities"] if each["name"] == quantity]
    sums, names = list(own), values(tree["name"])
    paths = [""] * len(sums)
    for node in range(1, len(sums)):
        parent = tree["parent"][node]
        paths[node] = f"{paths[parent]}.{names[node]}" if parent else names[node]
    for node in range(len(sums) - 1, 0, -1):
        sums[tree["parent"][node]] += sums[node]
    return dict(zip(paths, sums, strict=True))


# -- the file ----------------------------------------------------------------------------------------------------------


def test_nothing_but_its_own_script_may_run_and_nothing_is_loaded(plain: Report) -> None:
    for text in (HTML.render(plain), HTML.render(query(profile(3)), profile=profile(3))):
        found = HtmlPage(text)
        assert [tag for tag, _ in found.tags] == TAGS
        (script,), (style,) = found.inside["script"][1:], found.inside["style"]
        assert found.policy == (
            f"default-src 'none'; script-src {hashed(script)}; style-src {hashed(style)}; base-uri 'none'; form-action 'none'"
        )
        code = script.replace("http://www.w3.org/2000/svg", "")  # the name of a language, which no browser loads
        assert not re.search(r"https?:|//\w+\.\w|url\(|@import|\bsrc=|<link|\bhref=", code + style)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", code)


def test_names_are_data_and_nothing_else() -> None:
    hostile = profile(3, name=HOSTILE)
    for found in (page(hostile), page(hostile, group_by="module", aggregate_by="type,name")):
        assert [tag for tag, _ in found.tags] == TAGS
        assert found.inside["title"][0].startswith(short_source(TAMED))
        assert TAMED in values(found.data["tree"]["name"])
        assert not set("<>&\u2028") & set(found.inside["script"][0])


def test_modules_of_the_script_are_written_after_those_that_they_need() -> None:
    text = bundle("main")
    for asset in ASSETS.glob("*.js"):
        assert f"const ${asset.stem} = (" in text, "a module that no other imports"
        begins = text.index(f"const ${asset.stem} = (")
        for needed in re.findall(r'from "\./(\w+)\.js"', asset.read_text()):
            assert text.index(f"const ${needed} = (") < begins
    assert not re.search(r"^(?:import|export)\b", text, re.MULTILINE)


def test_no_text_of_the_script_goes_over_several_lines() -> None:
    # Indentation is left out where the script is built, which would change such a text.
    for asset in ASSETS.glob("*.js"):
        for number, line in enumerate(asset.read_text().splitlines(), 1):
            plain = re.sub(r"\(/.*?/[gimu]*[,.]", "(", line)  # a pattern may name the sign that texts begin with
            assert plain.count("`") % 2 == 0, f"{asset.name}:{number}"


# -- reports -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantity", ["params", "macs", "flops", "ops"])
def test_modules_add_up_to_what_the_report_has(plain: Report, odd: Report, quantity: str) -> None:
    for report in (plain, odd):
        tree = HtmlPage(report.render("html")).data["tree"]
        found = totals(tree, quantity)
        assert found == {module.path: getattr(module.total, quantity) for module in report.modules}


def test_operators_stand_on_lines_with_their_costs(odd: Report) -> None:
    data = HtmlPage(odd.render("html")).data
    assert column(data["ops"], "raw") == [row.op.raw for row in odd.rows]
    assert column(data["ops"], "flops") == [None if row.cost is None else row.cost.flops for row in odd.rows]
    assert [odd.modules[place].path for place in data["ops"]["module"]] == [row.op.module for row in odd.rows]


def test_edges_lead_from_who_makes_a_tensor_to_who_reads_it(plain: Report) -> None:
    data = HtmlPage(plain.render("html")).data["graph"]
    count = len(plain.rows)
    readers = list(accumulate(data["step"]))
    found = {
        (reader - back if back > 0 else count - 1 - back, reader, result)
        for reader, back, result in zip(readers, data["back"], data["result"], strict=True)
    }
    (entry,), (leaving,) = plain.input_values, plain.output_values
    ends = [(end["name"], end["shape"], end["input"]) for end in data["ends"]]
    assert ends == [(plain.inputs[0][0], str(plain.inputs[0][1]), True), ("output", str(plain.outputs[0]), False)]
    makers = {value: (at, result) for at, row in enumerate(plain.rows) for result, value in enumerate(row.op.outputs)}
    makers[entry] = (count, 0)
    wanted = {
        (maker, at, result)
        for at, row in enumerate(plain.rows)
        for maker, result in (makers[value] for value in row.op.inputs if value in makers)
    }
    made, result = makers[leaving]
    assert found == wanted | {(made, count + 1, result)}
    assert any(maker == count for maker, _, _ in found)


def test_parts_of_a_cache_are_one_input_and_one_output(plain: Report) -> None:
    inputs, outputs = plain.input_values, plain.output_values
    spec = plain.outputs[0]
    cached = replace(
        plain,
        inputs=(*plain.inputs, ("cache.0.key", spec), ("cache.0.value", spec), ("cache.1.key", spec), ("cache.1.value", spec)),
        input_values=(*inputs, *range(10_000, 10_004)), outputs=(*plain.outputs, spec), output_values=outputs * 2,
    )  # fmt: skip
    ends = HtmlPage(cached.render("html")).data["graph"]["ends"]
    assert [end["name"] for end in ends] == [plain.inputs[0][0], "2 × cache.key", "2 × cache.value", "2 × output"]


def test_what_is_not_counted_is_an_alert(odd: Report, plain: Report) -> None:
    data = HtmlPage(odd.render("html")).data
    assert not odd.coverage.complete
    (alert,) = data["alerts"]
    assert all(any(missed.raw in line for line in alert["lines"]) for missed in odd.coverage.uncounted)
    assert [total["partial"] for total in data["totals"] if total["label"] in ("MACs", "params")] == [False, True]
    assert data["tree"]["partial"] == "uncounted"
    assert HtmlPage(plain.render("html")).data["alerts"] == []


def test_memory_has_its_curve_its_peak_and_who_holds_it(plain: Report) -> None:
    data = HtmlPage(plain.render("html")).data["memory"]
    assert data["curve"] == list(plain.memory.curve)
    assert data["curve"][data["at"]] == data["peak"] == plain.memory.peak_bytes == sum(data["parts"].values())


def test_the_device_is_the_one_whose_memory_is_simulated() -> None:
    model, x = torch.nn.Linear(4, 2), torch.zeros(1, 4)
    for device, named, drawn in ((None, "cpu", "h200"), ("l40s", "l40s", "l40s")):
        report = opcost.count(model, x, device=device)
        page = HtmlPage(report.render("html")).data
        assert (dict(page["run"])["device"], page["device"]) == (named, drawn)
        assert f" · {named} · " in str(report)


def test_layers_of_memory_make_the_curve() -> None:
    for options in ({}, {"backward": True, "optimizer": "adam"}, {"backward": True, "device": "h200"}):
        report = opcost.count(Net(), torch.zeros(2, 3, 8, 8), **options)
        data = HtmlPage(report.render("html")).data["memory"]
        steps = len(data["curve"])
        layers = {layer["name"]: layer.get("curve") or [layer["constant"]] * steps for layer in data["layers"]}
        assert [sum(sizes) for sizes in zip(*layers.values(), strict=True)] == data["curve"]
        at_peak = {name: curve[data["at"]] for name, curve in layers.items()}
        assert {name: size for name, size in at_peak.items() if size} == data["parts"]


def test_memory_names_each_phase_with_its_first_operator() -> None:
    model, inputs = Net(), torch.zeros(2, 3, 8, 8)
    report = opcost.count(model, inputs, backward=True, optimizer="adam")
    found = HtmlPage(report.render("html")).data["memory"]["phases"]
    assert [phase for phase, _ in found] == ["forward", "backward", "update"]
    for (phase, first), (_, end) in zip(found, [*found[1:], ("", len(report.rows))], strict=True):
        assert {row.op.phase for row in report.rows[first:end]} == {phase}
    assert HtmlPage(opcost.count(model, inputs).render("html")).data["memory"]["phases"] == []


def test_recomputing_is_a_part_of_the_backward_pass_on_the_axis_of_memory(plain: Report) -> None:
    phases = ["forward", "backward", "recompute", "backward", "update", *["forward"] * (len(plain.rows) - 5)]
    rows = [row._replace(op=row.op._replace(phase=phase)) for row, phase in zip(plain.rows, phases, strict=True)]
    several = replace(plain, rows=rows, phases=dict.fromkeys(phases, Cost(0, 0, 0, 0)))
    found = HtmlPage(several.render("html")).data["memory"]["phases"]
    assert found == [["forward", 0], ["backward", 1], ["update", 4], ["forward", 5]]


def test_the_page_itself_is_small(plain: Report) -> None:
    found = HtmlPage(plain.render("html"))
    assert len(found.inside["script"][1]) + len(found.inside["style"][0]) < 240_000


def test_too_many_operators_are_not_listed_and_that_is_said(plain: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_OPERATORS >= 100_000
    monkeypatch.setattr("opcost.views.html.reports.MOST_OPERATORS", 1)
    data = HtmlPage(plain.render("html")).data
    assert data["ops"] is None
    assert data["memory"]["curve"] == [plain.memory.peak_bytes]
    assert any("too many" in line for note in data["notes"] for line in note["lines"])


# -- profiles ----------------------------------------------------------------------------------------------------------


def test_every_line_of_an_answer_is_in_the_page() -> None:
    (table,) = page(profile(300)).data["tables"]
    assert table["count"] == 300 + len(("unattributed", "total"))
    assert sorted(column(table, "name")[:300]) == sorted(f"n{number}" for number in range(300))
    assert [role for _, role in table["roles"]] == ["unattributed", "total"]
    # 1 + 2 + ... + 300 ns of operators and 3 ns of the other kernel.
    assert column(table, "time")[-1] == sum(range(301)) + 3


def test_kernels_are_behind_the_lines() -> None:
    (table,) = page(profile(2)).data["tables"]
    found = dict(zip(column(table, "name"), table["kernels"], strict=True))
    assert [found[f"n{number}"] for number in range(2)] == [
        [[1, f"n kernel {number}", number + 1]] for number in range(2)
    ]


def test_groups_keep_their_lines_and_sums_stay_at_the_foot() -> None:
    (table,) = page(profile(4), group_by="type", top=2).data["tables"]
    roles = dict(map(tuple, table["roles"]))
    assert [roles.get(row, "row") for row in range(table["count"])] == [
        "group", "row", "row", "rest", "unattributed", "total",
    ]  # fmt: skip


def test_host_and_device_are_below_each_other() -> None:
    both = profile(2)
    found = HtmlPage(HTML.render(query(both), others=[query(both, side="host")]))
    assert [table["title"].split(" by ")[0] for table in found.data["tables"]] == ["device time", "host time"]


def test_the_parts_of_a_devices_time_make_its_span() -> None:
    (use,) = page(profile(2)).data["uses"]
    # From the lost kernel at 0 to the end of the last operator's at 152; 1 + 2 + 3 ns of kernels.
    assert use["span"] == 152
    assert dict(map(tuple, use["parts"])) == {"computing": 6, "idle": 146}


def test_numbers_that_are_missing_are_none_and_columns_are_the_requested_ones() -> None:
    rows = (
        ProfileRow(id=0, name="long", type="t", device_ns=2_000_000),
        ProfileRow(id=1, name="short", type="t", device_ns=900, host_self_ns=4),
    )
    answer = query(Profile(meta={}, rows=rows))
    (table,) = HtmlPage(HTML.render(answer, columns="name,time,host")).data["tables"]
    assert [each["name"] for each in table["columns"]] == ["name", "time", "host"]
    assert (column(table, "time")[:2], column(table, "host")[:2]) == ([2_000_000, 900], [None, 4])


def test_the_tree_of_a_profile_has_modules_operators_and_kernels() -> None:
    tree = page(profile(3)).data["tree"]
    found = totals(tree, "device")
    assert found[""] == 1 + 2 + 3 + 3
    assert found["n"] == 1 + 2 + 3
    assert found["n.n2.n kernel 2"] == 3
    assert found["(no operator).lost"] == 3
    assert totals(tree, "host")["n"] == 3 * 7


def test_the_timeline_has_every_event_at_its_time() -> None:
    data = page(profile(3)).data["timeline"]
    lanes = {lane["title"]: lane for lane in data["lanes"]}
    assert list(lanes) == ["host", "gpu:0 stream 7"]
    assert lanes["host"]["step"] == [0, 100, 100]
    assert lanes["gpu:0 stream 7"]["step"] == [0, 50, 100, 100]  # the lost kernel begins with the first operator
    assert next(data["words"][name] for name in lanes["gpu:0 stream 7"]["name"]) == "lost"
    assert lanes["gpu:0 stream 7"]["length"] == [3, 1, 2, 3]


# -- comparisons -------------------------------------------------------------------------------------------------------


def test_a_difference_carries_its_unit_and_sign() -> None:
    entry = Entry(
        part="total", name="", quantity=QUANTITIES["param_bytes"], amounts=(5, 3), present=(True, True), partial=(False, True)
    )  # fmt: skip
    sources = tuple(Compared(label=label, facts={}) for label in (HOSTILE, "b"))
    data = HtmlPage(Comparison(sources=sources, entries=(entry,)).changed().render("html")).data
    (table,) = data["tables"]
    assert column(table, "difference") == [[-2, "bytes", False, True]]
    assert short_source(TAMED) in data["title"]


def test_a_module_that_one_source_does_not_have_has_no_amount() -> None:
    entries = tuple(
        Entry(
            part="module",
            name=name,
            quantity=QUANTITIES["macs"],
            amounts=amounts,
            present=present,
            partial=(False, False),
        )
        for name, amounts, present in (("a", (5, 0), (True, False)), ("a.b", (5, 7), (True, True)))
    )
    sources = tuple(Compared(label=label, facts={}) for label in "xy")
    data = HtmlPage(Comparison(sources=sources, entries=entries).render("html")).data["compared"]
    assert data["paths"] == ["a", "a.b"]
    assert [quantity["amounts"] for quantity in data["quantities"]] == [[[5, None], [5, 7]]]


def test_a_sweep_has_its_points_and_leaves_out_what_does_not_vary() -> None:
    points = (
        Point((1,), {"params": 7, "flops": 10}, latency_ns=100, band_ns=(80, 120)),
        Point((2,), {"params": 7, "flops": 20}, counted=False, latency_ns=150, band_ns=(120, 180)),
    )
    data = HtmlPage(Sweep(source="net", variables=("batch",), points=points, device="h200").render("html")).data[
        "sweep"
    ]
    assert (data["sizes"], data["counted"]) == ([[1], [2]], [True, False])
    latency, flops = data["quantities"]
    assert (latency["amounts"], latency["bands"]) == ([100, 150], [[80, 120], [120, 180]])
    assert (flops["name"], flops["amounts"]) == ("flops", [10, 20])


def test_a_page_of_a_report_has_no_options_because_it_has_its_own_controls() -> None:
    assert not fields(HTML.results["report"])
