"""What the page shows of repeated blocks and of operators that pass the filters, in numbers and on the map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from page_subjects import BLOCKS, checkpoint, many, page_of, profile, report, stack
from playwright.sync_api import expect

from opcost.core.units import format_count
from opcost.views.html import HTML, bundle

Show = Callable[..., Any]
FORWARD = BLOCKS * (100 + 1000)
BACKWARD = BLOCKS * 2000


def shown(page: Any, expression: str, fragment: str = "") -> Any:
    """A value of the model of what is shown, under a state as in an address."""
    read = f"Object.assign($state.state, Object.fromEntries(new URLSearchParams({fragment!r})));"
    return page.evaluate(
        f"(() => {{ {bundle('shown')} {read} const now = $shown.shown(), {{ tree }} = $data; return {expression}; }})()"
    )


def labels(page: Any) -> list[str]:
    return page.locator("#view-map .area text").all_text_contents()  # type: ignore[no-any-return]


def test_merging_changes_no_sum_and_keeps_every_block(show: Show) -> None:
    page = show(HTML.render(stack()))
    first = "tree.byPath.get('layers.0')"
    folded = shown(page, f"[now.total.macs[0], now.total.macs[{first}], now.times({first}), now.label({first})]")
    assert folded == [FORWARD + BACKWARD, FORWARD + BACKWARD, BLOCKS, f"0–{BLOCKS - 1}"]
    assert shown(page, f"now.typeOf({first})") == f"{BLOCKS} × Block"
    # What is below a merged block is that of all blocks, too.
    mix = "tree.byPath.get('layers.0.mix')"
    assert shown(page, f"[now.total.macs[{mix}], now.path({mix})]") == [BLOCKS * 100, f"layers.0–{BLOCKS - 1}.mix"]
    assert shown(page, "now.rep[tree.byPath.get('layers.7.mix')] === tree.byPath.get('layers.0.mix')") is True
    one = page.evaluate(f"(() => {{ {bundle('shown')} return $data.tree.byPath.get('layers.0').toString(36); }})()")
    single = shown(page, f"[now.total.macs[0], now.total.macs[{first}], now.times({first})]", f"unfold={one}")
    assert single == [FORWARD + BACKWARD, 3100, 1]


def test_the_sums_of_own_amounts_are_those_of_all_nodes(show: Show) -> None:
    page = show(HTML.render(stack()))
    for fragment in ("", "phase=backward", "element=float16", "kind=matmul"):
        sums = shown(
            page,
            "tree.quantities.map(({ name }) => [now.own[name].reduce((a, b) => a + b, 0), now.total[name][0]])",
            fragment,
        )
        assert all(own == total for own, total in sums)


def test_filters_add_up_to_the_whole(show: Show) -> None:
    page = show(HTML.render(stack()))
    macs = "[now.total.macs[0], now.total.ops[0], now.total.params[0]]"
    # Parameters belong to modules and not to operators.
    params = BLOCKS * 2 * 10
    assert shown(page, macs) == [FORWARD + BACKWARD, BLOCKS * 4, params]
    assert shown(page, macs, "phase=forward") == [FORWARD, BLOCKS * 3, params]
    assert shown(page, macs, "phase=backward") == [BACKWARD, BLOCKS, params]
    assert shown(page, macs, "element=float32") == [BLOCKS * 100, BLOCKS, params]
    assert shown(page, macs, "phase=forward&kind=matmul") == [BLOCKS * 1000, BLOCKS, params]
    assert shown(page, "now.isEmpty(tree.byPath.get('layers.0.mix'))", "kind=matmul") is True
    assert shown(page, "now.isEmpty(tree.byPath.get('layers.0.out'))", "kind=matmul") is False


def test_times_of_a_trace_are_filtered_with_their_kernels(show: Show) -> None:
    page = show(page_of(profile()))
    # 30 matmuls of 500 ns on the device; 3 ns are of a kernel that no operator launched.
    assert shown(page, "now.total.device[0]") == 30 * 500 + 3
    assert shown(page, "now.total.device[0]", "kind=matmul") == 30 * 500
    assert shown(page, "now.total.device[0]", "kind=convolution") == 0
    # In which phase an operator of a profile ran is not known, and its type is that of one of many inputs.
    assert page.get_by_role("group", name="Filters").count() == 0
    # Each operator and the kernel that it launched have one colour.
    assert page.locator("#view-map .area rect[fill='#2ba35f']").count() == 2 * 30


def test_the_map_draws_blocks_once_and_a_click_unfolds_them(show: Show) -> None:
    page = show(HTML.render(stack()), width=1600)
    assert any(text.startswith(f"0–{BLOCKS - 1} · {BLOCKS} × Block") for text in labels(page))
    page.locator("#view-map .area.inner text", has_text=f"{BLOCKS} × Block").click(force=True)
    expect(page.locator("#view-map .area.inner")).to_have_count(2 + BLOCKS)
    page.get_by_role("button", name="merge repeated blocks").click()
    expect(page.locator("#view-map .area.inner")).to_have_count(2 + 1)
    # The same with the keyboard; the block is still chosen.
    page.locator("#view-map svg").focus()
    page.keyboard.press("+")
    expect(page.locator("#view-map .area.inner")).to_have_count(2 + BLOCKS)
    page.keyboard.press("-")
    expect(page.locator("#view-map .area.inner")).to_have_count(2 + 1)


def test_what_is_searched_for_lights_up_in_the_map(show: Show) -> None:
    page = show(HTML.render(stack()))
    page.get_by_label("Find a module").fill("out")
    # The block is drawn once, and so is its `out`; the other part of it is dimmed.
    expect(page.locator("#view-map .area.hit")).to_have_count(1)
    assert page.locator("#view-map .area.hit text").first.text_content().startswith("out")
    assert page.locator("#view-map .area.dim").count() == 1
    # What is below a hit is part of it.
    page.get_by_label("Find a module").fill("layers.0")
    expect(page.locator("#view-map .area.dim")).to_have_count(0)
    page.get_by_label("Find a module").fill("")
    expect(page.locator("#view-map .area.hit")).to_have_count(0)


def test_the_smallest_of_very_many_parts_are_one_area(show: Show) -> None:
    page = show(HTML.render(many(2, 2)))
    laid = """$areas.treemapAreas({
        children: (node) => (node ? [] : Array.from({ length: 3000 }, (_, place) => place + 1)),
        size: (node) => node || 3000 * 3001 / 2, own: () => 0 }, 0, 800, 600)"""
    areas = page.evaluate(f"(() => {{ {bundle('areas')} return {laid}; }})()")
    assert len(areas) == 1500  # the root, its 1498 largest parts, and the others
    (rest,) = [area for area in areas if area.get("rest")]
    assert (rest["rest"], rest["size"]) == (1502, 1502 * 1503 / 2)
    assert sum(area["size"] for area in areas[1:]) == areas[0]["size"] == 3000 * 3001 / 2


def test_many_modules_of_many_parts_share_the_areas_and_small_ones_keep_theirs(show: Show) -> None:
    page = show(HTML.render(many(2, 2)))
    # The first of 40 modules has 3 parts, all others have 250 each.
    laid = """(() => {
        const from = (first, length) => Array.from({ length }, (_, place) => first + place);
        const parts = (node) => (node > 40 ? [] : from(1000 * node, node === 1 ? 3 : 250));
        const children = (node) => (node === 0 ? from(1, 40) : parts(node));
        const size = (node) => (node > 40 ? 1 : node ? 250 : 40 * 250);
        return $areas.treemapAreas({ children, size, own: () => 0 }, 0, 800, 600);
    })()"""
    areas = page.evaluate(f"(() => {{ {bundle('areas')} return {laid}; }})()")
    of = {module: [area for area in areas if area["node"] // 1000 == module] for module in range(1, 41)}
    # Of 1500 areas 41 are the root and the modules, 3 those of the first; 39 modules share 1456.
    share = (1500 - 41 - 3) // 39
    assert [len(of[module]) for module in range(1, 41)] == [3] + 39 * [share - 1]
    assert [area["rest"] for area in areas if area.get("rest")] == 39 * [250 - (share - 1)]


def test_an_entry_of_a_legend_filters_and_takes_it_back(show: Show) -> None:
    page = show(HTML.render(stack()))
    total = page.locator("#view-map").get_by_text("in all")
    legend = page.locator("#view-map").get_by_role("group", name="Kinds of operators")
    assert legend.get_by_role("button").all_inner_texts() == ["matmul", "attention", "normalization"]
    entry = legend.get_by_role("button", name="attention")
    entry.click()
    assert entry.get_attribute("aria-pressed") == "true"
    assert total.inner_text() == f"MACs: {format_count(BLOCKS * 100)} in all"
    entry.press("Enter")
    assert entry.get_attribute("aria-pressed") == "false"
    assert total.inner_text() == f"MACs: {format_count(FORWARD + BACKWARD)} in all"


def test_chips_filter_tree_map_operators_and_roofline(show: Show) -> None:
    page = show(HTML.render(stack()))
    filters = page.get_by_role("group", name="Filters")
    phases = filters.get_by_role("group", name="phase")
    types = filters.get_by_role("group", name="dtype")
    assert phases.get_by_role("button").all_inner_texts() == ["all", "forward", "backward"]
    assert types.get_by_role("button").all_inner_texts() == ["all", "float32", "float16"]
    phases.get_by_role("button", name="backward").click()
    assert page.locator("#view-map").get_by_text("in all").inner_text() == f"MACs: {format_count(BACKWARD)} in all"
    page.get_by_role("tab", name="Operators").click()
    assert page.locator("#view-operators output").inner_text() == f"{BLOCKS} of {BLOCKS * 4}"
    page.get_by_role("tab", name="Roofline").click()
    # All backward operators do the same; forward there are three kinds.
    assert page.locator("#view-roofline circle").count() == 1
    phases.get_by_role("button", name="forward").click()
    assert page.locator("#view-roofline circle").count() == 3
    page.get_by_role("tab", name="Map").click()
    page.locator("#view-map").get_by_role("button", name="matmul").click()
    assert page.locator("#view-map").get_by_text("in all").inner_text() == f"MACs: {format_count(BLOCKS * 1000)} in all"
    # What is filtered by is said above all views, and kept in the address.
    page.wait_for_url("**phase=forward**kind=matmul**")
    filters.get_by_role("button", name="Show all kinds").click()
    assert page.locator("#view-map").get_by_text("in all").inner_text() == f"MACs: {format_count(FORWARD)} in all"


def test_a_filter_with_one_choice_is_plain_text(show: Show) -> None:
    page = show(HTML.render(report()))
    filters = page.get_by_role("group", name="Filters")
    assert filters.inner_text().split() == ["phase", "forward", "dtype", "float32", "device", "cpu"]
    assert filters.get_by_role("button").count() == 0


def test_a_kind_has_one_colour_in_every_view(show: Show) -> None:
    page = show(HTML.render(report()))
    colours = []
    for view in ("Map", "Graph", "Roofline"):
        page.get_by_role("tab", name=view).click()
        legend = page.locator(f"#view-{view.lower()}").get_by_role("group", name="Kinds of operators")
        assert legend.get_by_role("button").all_inner_texts() == ["convolution", "normalization", "elementwise"]
        colours.append(legend.locator("i").evaluate_all("all => all.map(one => one.style.background)"))
    assert colours[0] == colours[1] == colours[2]
    assert len(set(colours[0])) == 3


def test_modules_and_operators_have_the_colour_of_their_kind(show: Show) -> None:
    page = show(HTML.render(stack()))
    squares = "all => Object.fromEntries(all.map((one) => [one.parentElement.textContent.trim(), getComputedStyle(one).color]))"
    legend = page.locator("#view-map").get_by_role("group", name="Kinds of operators").locator("i")
    of_kind = dict(
        zip(
            ("matmul", "attention", "normalization"),
            legend.evaluate_all("all => all.map((one) => getComputedStyle(one).backgroundColor)"),
            strict=True,
        )
    )
    # In a block, `mix` is attention and most of `out` a product; lines that open have none.
    found = page.locator(".tree .fold.square").evaluate_all(squares)
    assert [(name.split()[0], colour) for name, colour in found.items()] == [
        ("mix", of_kind["attention"]), ("out", of_kind["matmul"]),
    ]  # fmt: skip
    page.get_by_role("tab", name="Operators").click()
    operators = page.locator("#view-operators .fold.square").evaluate_all(squares)
    assert [operators[str(n)] for n in (1, 2, 3)] == [
        of_kind[kind] for kind in ("attention", "matmul", "normalization")
    ]
    page.locator("#view-operators .fold.square").nth(1).click()
    assert page.locator(".details h2").inner_text() == "operator 2"


def test_an_entry_of_a_module_shows_it_alone(show: Show) -> None:
    page = show(HTML.render(report()))
    page.get_by_role("button", name="by module").click()
    legend = page.locator("#view-map").get_by_role("group", name="Colours of the map")
    assert legend.inner_text().split() == ["block0", "block1", "block2", "block3"]
    assert not page.locator(".trail").is_visible()
    entry = legend.get_by_role("button", name="block2")
    entry.focus()
    page.keyboard.press("Enter")
    assert page.locator(".trail [aria-current]").inner_text() == "block2"
    assert page.locator("#view-map .area.inner").count() == 1
    assert entry.get_attribute("aria-pressed") == "true"
    page.keyboard.press("Enter")
    assert page.locator("#view-map .area.inner").count() == 1 + 4
    assert entry.get_attribute("aria-pressed") == "false"


def test_a_checkpoint_of_one_type_is_coloured_by_module(show: Show) -> None:
    legend = ("#view-map", {"role": "group", "name": "Colours of the map"})
    page = show(checkpoint().render("html"))
    assert page.locator(legend[0]).get_by_role(**legend[1]).inner_text().split() == ["part0", "part1", "part2"]
    page.get_by_role("button", name="by type").click()
    page.locator(legend[0]).get_by_role(**legend[1]).get_by_role("button", name="type").click()
    # All three tensors are of it.
    expect(page.locator("#view-map .area.hit")).to_have_count(3)
    assert page.get_by_label("Find a").first.input_value() == "type:type"


def test_labels_of_the_map_do_not_overlap_and_stay_in_their_areas(show: Show) -> None:
    page = show(HTML.render(report(9, 2)))
    for shape in ("treemap", "icicle"):
        page.get_by_role("button", name=shape).click()
        outside, overlapping = page.evaluate("""() => {
            const boxes = [...document.querySelectorAll("#view-map .area")].flatMap((area) => {
                const room = area.querySelector("rect").getBoundingClientRect();
                return [...area.querySelectorAll("text")].map((text) => [text.getBoundingClientRect(), room]);
            });
            const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
            return [
                boxes.filter(([text, room]) => text.right > room.right + 2).length,
                boxes.filter(([a], at) => boxes.slice(at + 1).some(([b]) => over(a, b))).length,
            ];
        }""")
        assert (outside, overlapping) == (0, 0), shape


def test_a_hundred_thousand_operators_are_filtered_fast(show: Show) -> None:
    page = show(HTML.render(many(10_000, 100_000)))
    took, total = page.evaluate(f"""() => {{
        {bundle("shown")}
        $shown.shown();
        $state.setState({{ kind: "matmul" }});
        const begun = performance.now();
        const {{ total }} = $shown.shown();
        return [performance.now() - begun, total.macs[0]];
    }}""")
    assert total == 100_000 * 10
    print(f"filtered in {took:.0f} ms")
    assert took < 1000  # with room for a machine that is busy
