"""The graph of a page: what is a box, where boxes and lines are, what the reader does, and how long it takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any

import pytest
import torch
from page_subjects import BLOCKS, many, report, stack
from playwright.sync_api import expect
from torch import nn

import opcost
from opcost.core.report import Report
from opcost.views.html import HTML, bundle

Show = Callable[..., Any]
MOST_OPENING = 30


class Block(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.conv2(self.relu(self.conv1(x))) + x)


class Residual(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (4, 8)) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1)
        self.stages = nn.ModuleList(nn.Sequential(Block(width), Block(width)) for width in widths)
        self.wider = nn.ModuleList(nn.Conv2d(a, b, 1) for a, b in pairwise(widths))
        self.head = nn.Linear(widths[-1], 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stages[0](self.stem(x))
        for wider, stage in zip(self.wider, self.stages[1:], strict=True):
            x = stage(wider(x))
        return self.head(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (part(x).unflatten(-1, (2, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(*parts)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Experts(nn.Module):
    def __init__(self, width: int = 8, count: int = 3) -> None:
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.gate(x).softmax(-1)
        return sum(weights[..., place : place + 1] * expert(x) for place, expert in enumerate(self.experts))


class Layer(nn.Module):
    def __init__(self, mixer: nn.Module, width: int = 8) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mixer = Attention(width), mixer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mixer(self.norm2(x))


class Language(nn.Module):
    def __init__(self, mixer: Callable[[], nn.Module], layers: int = 12, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.layers = nn.ModuleList(Layer(mixer(), width) for _ in range(layers))
        self.head = nn.Linear(width, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Steps(nn.Module):
    """A U: what goes down is read again on the way up, the pool is called at each step."""

    def __init__(self, steps: int = 3, width: int = 4) -> None:
        super().__init__()
        self.stem, self.pool = nn.Conv2d(3, width, 1), nn.MaxPool2d(2)
        self.down = nn.ModuleList(nn.Conv2d(width << n, width << n + 1, 1) for n in range(steps))
        self.up = nn.ModuleList(nn.ConvTranspose2d(width << n + 1, width << n, 2, 2) for n in reversed(range(steps)))
        self.join = nn.ModuleList(nn.Conv2d(width << n + 1, width << n, 1) for n in reversed(range(steps)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = [self.stem(x)]
        for down in self.down:
            kept.append(down(self.pool(kept[-1])))
        x = kept.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        return x


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))


TOKENS = torch.zeros(1, 6, dtype=torch.long)
SUBJECTS: dict[str, Callable[[], Report]] = {
    "residual": lambda: opcost.count(Residual().eval(), torch.zeros(1, 3, 16, 16)),
    "language": lambda: opcost.count(Language(perceptron).eval(), TOKENS),
    "experts": lambda: opcost.count(Language(Experts).eval(), TOKENS),
    "u-net": lambda: opcost.count(Steps().eval(), torch.zeros(1, 3, 16, 16)),
    "training": lambda: opcost.count(Language(perceptron), TOKENS, backward=True, optimizer="adamw"),
    "large": lambda: many(300, 3000),
}
EVERY = pytest.mark.parametrize("subject", SUBJECTS)


def graph(show: Show, subject: str, **options: Any) -> Any:
    page = show(HTML.render(SUBJECTS[subject]()), fragment="view=graph", **options)
    page.wait_for_selector(".flow .box")
    return page


def boxes(page: Any) -> list[dict[str, Any]]:
    """What is drawn: title, whether it is open, and its sides in the drawing."""
    return page.locator(".flow .box").evaluate_all(  # type: ignore[no-any-return]
        """(all) => all.map((box) => {
            const { x, y, width, height } = box.querySelector(".shape").getBBox();
            return { title: box.querySelector(".title")?.textContent ?? "", classes: [...box.classList],
                     open: box.classList.contains("open"), left: x, top: y, right: x + width, bottom: y + height };
        })"""
    )


def titles(page: Any) -> list[str]:
    return [box["title"] for box in sorted(boxes(page), key=lambda box: (box["top"], box["left"]))]


def overlapping(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Boxes that have a place in common and are not one in the other."""

    def inside(a: dict[str, Any], b: dict[str, Any]) -> bool:
        sides = (
            a["left"] >= b["left"] and a["right"] <= b["right"] and a["top"] >= b["top"] and a["bottom"] <= b["bottom"]
        )
        return bool(b["open"] and sides)

    def apart(a: dict[str, Any], b: dict[str, Any]) -> bool:
        return bool(
            a["right"] <= b["left"] or b["right"] <= a["left"] or a["bottom"] <= b["top"] or b["bottom"] <= a["top"]
        )

    pairs = combinations(found, 2)
    return [(a["title"], b["title"]) for a, b in pairs if not (apart(a, b) or inside(a, b) or inside(b, a))]


def open_box(page: Any, title: str) -> None:
    box = page.locator(".flow .box", has=page.locator(".title", has_text=title)).first
    if "open" not in str(box.get_attribute("class")).split():
        box.dispatch_event("dblclick")
    expect(page.locator(".flow .open .title", has_text=title).first).to_be_attached()


def open_level(page: Any) -> None:
    before = page.locator(".flow").inner_html()
    page.get_by_role("button", name="open a level").click()
    page.wait_for_function("(before) => document.querySelector('.flow').innerHTML !== before", arg=before)


# -- what is drawn, and where -------------------------------------------------------------------------------------------


@EVERY
def test_it_opens_whole_with_few_boxes_from_the_inputs_to_the_outputs(show: Show, subject: str) -> None:
    page = graph(show, subject, width=1280, height=800)
    found = boxes(page)
    assert 3 <= len(found) <= MOST_OPENING
    if subject != "large":
        assert page.locator(".flow .of-end").count() >= 2
    outside = page.evaluate("""() => {
        const room = document.querySelector(".flow").getBoundingClientRect();
        return [...document.querySelectorAll(".flow .shape, .flow .line, .flow .label")].filter((one) => {
            const at = one.getBoundingClientRect();
            return at.left < room.left - 1 || at.right > room.right + 1 || at.top < room.top - 1 || at.bottom > room.bottom + 1;
        }).length;
    }""")
    assert outside == 0


@EVERY
def test_boxes_never_overlap_whatever_is_opened(show: Show, subject: str) -> None:
    page = graph(show, subject)
    assert overlapping(boxes(page)) == []
    for _ in range(3):
        if page.locator(".flow .sign", has_text="+").count() == 0:
            break
        before = page.locator(".flow .box").count()
        open_level(page)
        found = boxes(page)
        assert len(found) > before
        assert overlapping(found) == []


def test_the_main_path_is_straight_through_opened_blocks(show: Show) -> None:
    page = graph(show, "residual")
    for _ in range(3):
        if page.locator(".flow .sign", has_text="+").count():
            open_level(page)
    found = boxes(page)
    centres = {round(box["left"] + box["right"], 0) for box in found if not box["open"]}
    assert len([box for box in found if not box["open"]]) > 20
    # Blocks have one operator after the other, and lines alone go around.
    assert len(centres) == 1, sorted((box["title"], box["left"] + box["right"]) for box in found)


@EVERY
def test_each_tensor_has_one_label(show: Show, subject: str) -> None:
    page = graph(show, subject)
    places = page.locator(".flow .label").evaluate_all(
        "(all) => all.map((label) => `${label.getAttribute('x')} ${label.getAttribute('y')}`)"
    )
    assert len(set(places)) == len(places)
    assert places


def test_lists_of_modules_and_modules_that_are_called_again_are_where_they_are_called(show: Show) -> None:
    page = graph(show, "u-net")
    found = titles(page)
    calls = ["pool", "down.0", "pool (2)", "down.1", "pool (3)", "down.2", "up.0", "cat", "join.0"]
    assert [title for title in found if title in calls][: len(calls)] == calls
    assert page.locator(".flow .back").count() == 0


def test_views_are_left_out_until_the_reader_wants_them(show: Show) -> None:
    page = graph(show, "language")
    open_box(page, "attention")
    without = titles(page)
    assert {"q", "k", "v", "out"} <= set(without)
    assert "transpose" not in without
    page.get_by_role("checkbox", name="views").check()
    page.wait_for_function("(before) => document.querySelectorAll('.flow .box').length > before", arg=len(without))
    # The three parts are divided into heads and transposed, the result is transposed back and flattened.
    assert len(boxes(page)) >= len(without) + 3 * 2 + 2
    page.get_by_role("checkbox", name="views").uncheck()
    expect(page.locator(".flow .box")).to_have_count(len(without))


def test_repeated_blocks_are_one_box_that_unfolds(show: Show) -> None:
    page = show(HTML.render(stack()), fragment="view=graph&phase=forward")
    page.wait_for_selector(".flow .box")
    run = page.locator(".flow .run", has_text=f"{BLOCKS} ×")
    expect(run).to_have_count(1)
    assert f"layers.0–{BLOCKS - 1}" in titles(page)
    run.dispatch_event("click")
    expect(run).to_have_count(0)
    # The first block and its last part stay open.
    expect(page.locator(".flow .box")).to_have_count(1 + BLOCKS + 2 + 2)
    page.get_by_role("button", name="merge repeated blocks").click()
    expect(run).to_have_count(1)


def test_a_step_is_its_phases_of_which_the_forward_one_is_open(show: Show) -> None:
    page = graph(show, "training")
    phases = page.locator(".flow .of-phase")
    assert phases.locator(".title").all_text_contents() == ["forward", "backward", "update"]
    assert [("open" in box["classes"]) for box in boxes(page) if "of-phase" in box["classes"]] == [True, False, False]
    page.get_by_role("button", name="backward", exact=True).click()
    expect(phases).to_have_count(0)
    assert page.locator(".flow .box").count() > 2


def test_gradients_go_from_the_head_through_merged_blocks_to_the_first_module(show: Show) -> None:
    page = show(HTML.render(SUBJECTS["training"]()), fragment="view=graph&graph=-&phase=backward")
    page.wait_for_selector(".flow .box")
    found = titles(page)
    # The last block has its gradients first.
    assert found.index("head") < found.index("layers.0–11") < found.index("embed")
    assert page.locator(".flow .of-end", has_text="output").count() == 0


# -- what the reader does -----------------------------------------------------------------------------------------------


def test_it_opens_what_is_clicked_and_shares_the_choice(show: Show) -> None:
    page = show(HTML.render(report()), fragment="view=graph&graph=-")
    expect(page.locator(".flow .box")).to_have_count(4)
    page.locator(".flow").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(".details h2").inner_text() == "block1"
    assert page.locator(".flow .chosen .title").all_text_contents() == ["block1"]
    page.keyboard.press("Enter")
    expect(page.locator(".flow .box")).to_have_count(4 + 3)
    page.wait_for_url("**graph=**")
    page.wait_for_timeout(400)  # the address follows after a pause
    again = show(HTML.render(report()), fragment=page.evaluate("location.hash.slice(1)"))
    expect(again.locator(".flow .box")).to_have_count(4 + 3)
    assert again.locator(".flow .chosen .title").all_text_contents() == ["block1"]
    again.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".flow .box")).to_have_count(4)


def test_hits_and_filters_are_marked_in_the_graph(show: Show) -> None:
    page = show(HTML.render(report()), fragment="view=graph&graph=-")
    expect(page.locator(".flow .box")).to_have_count(4)
    page.get_by_label("Find a module").fill("block2")
    expect(page.locator(".flow .hit .title")).to_have_text(["block2"])
    assert page.locator(".flow .dim").count() == 3
    page.get_by_label("Find a module").fill("")
    expect(page.locator(".flow .hit")).to_have_count(0)
    page.locator("#view-graph .key", has_text="convolution").click()
    open_box(page, "block0")
    open_box(page, "layer0")
    # Of six operators every third is a convolution.
    assert page.locator(".flow .of-operator").count() == 6
    expect(page.locator(".flow .of-operator.dim")).to_have_count(4)


def test_fit_puts_all_of_it_back_into_view(show: Show) -> None:
    page = graph(show, "residual")
    whole = page.locator(".flow > g").bounding_box()
    for _ in range(4):
        page.get_by_role("button", name="zoom in").click()
    assert page.locator(".flow > g").bounding_box()["height"] > 2 * whole["height"]
    page.get_by_role("button", name="fit", exact=True).click()
    assert page.locator(".flow > g").bounding_box() == pytest.approx(whole)


# -- the layout itself --------------------------------------------------------------------------------------------------


def laid(page: Any, count: int, nets: list[list[int]], result: str) -> Any:
    """A value of a box in which boxes pass tensors to each other: of each its maker and its readers."""
    given = [
        {"key": key, "source": source, "targets": readers, "label": 0} for key, (source, *readers) in enumerate(nets)
    ]
    children = [{"width": 50, "height": 20}] * count
    return page.evaluate(
        f"""(() => {{ {bundle("layers")} {bundle("slices")}
        const box = {json.dumps({"children": children, "nets": given})};
        $slices.finished($layers.arrange(box));
        return {result}; }})()"""
    )


def test_what_prepares_something_is_right_above_its_reader(show: Show) -> None:
    page = show(HTML.render(report()))
    # A chain of six, and two that turn a weight for its last: without being drawn down they would be at the top.
    tops = laid(page, 7, [[0, 1], [1, 2], [2, 3], [3, 6], [4, 5], [5, 6]], "box.children.map(({ y }) => y)")
    assert [top / tops[1] for top in tops] == [0, 1, 2, 3, 2, 3, 4]


def test_lines_do_not_cross_where_they_need_not(show: Show) -> None:
    page = show(HTML.render(report()))
    # Two pairs in the wrong order: 0 is read by 3, and 1 by 2.
    a, b, c, d = laid(page, 4, [[0, 3], [1, 2]], "box.children.map(({ x }) => x)")
    assert (a, b) == (d, c)


# -- how long it takes --------------------------------------------------------------------------------------------------

LONGEST = """async (act) => {
    const spin = () => {
        const begun = performance.now();
        let sum = 0;
        for (let at = 0; at < 2e7; at += 1) sum += at % 7;
        return sum && performance.now() - begun;
    };
    const before = Math.min(spin(), spin(), spin());
    await new Promise((resume) => setTimeout(resume, 100));
    const tasks = [];
    const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((one) => one.duration)));
    observer.observe({ type: "longtask" });
    const begun = performance.now();
    document.querySelector("#tab-graph").click();
    while (!document.querySelector(".flow .box")) await new Promise((resume) => setTimeout(resume, 5));
    const took = performance.now() - begun;
    await new Promise((resume) => setTimeout(resume, 200));
    return { took, longest: Math.max(0, ...tasks), spin: before };
}"""


def test_a_graph_of_a_hundred_thousand_operators_answers_in_short_slices(show: Show) -> None:
    text = HTML.render(many(10_000, 100_000))
    runs = []
    for _ in range(3):
        page = show(text)
        runs.append(page.evaluate(LONGEST))
        page.context.close()
    best = min(runs, key=lambda run: run["longest"] / run["spin"])
    print(f"100,000 operators: graph after {best['took']:.0f} ms, the longest task {best['longest']:.0f} ms; {runs}")
    # The loop takes 40 ms or less where nothing else runs; where it takes longer, everything does.
    slower = max(1, best["spin"] / 40)
    assert best["took"] < 1000 * slower
    assert best["longest"] < 100 * slower
