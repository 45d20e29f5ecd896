"""What one format says of a result all of them say: the answer, the large figures, the sections, the notes and the rows."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from html_page import HtmlPage
from page_subjects import checkpoint, comparison, profile, recomputation, report, stack, sweep

import opcost
from opcost.core.graph import Memory, Note, TensorSpec
from opcost.core.limits import QUANTITIES, parse_limit
from opcost.core.profile import Busy
from opcost.core.report import Parameter, Report
from opcost.core.results import Advice, Counted, Fit, LimitCheck, ModelCheck, Verdict
from opcost.core.sheet import Sheet
from opcost.predicting import predict
from opcost.profiles import askable
from opcost.utilizing import mfu

MARKS = re.compile(r"<[^>]+>|&emsp;|[*`|]")
"""What marks a text up; wordings are compared without it, and with single spaces."""


def plain(text: str) -> str:
    return " ".join(html.unescape(MARKS.sub(" ", text.replace("\\", ""))).replace("\u00a0", " ").split())


def trained() -> Report:
    """A step whose peak is known, and of what it is made."""
    memory = Memory(
        peak_bytes=4000, base_bytes=1000, at=0, how="lifetimes", parts={"weights": 1000, "saved": 3000}, curve=()
    )
    found = stack()
    macs = {
        phase: sum(row.cost.macs for row in found.rows if row.cost and row.op.phase == phase) for phase in found.phases
    }
    phases = {phase: replace(cost, macs=macs[phase]) for phase, cost in found.phases.items()}
    return replace(found, memory=memory, phases=phases, notes=(Note("n", "a note of a step"),))


def mixture() -> Report:
    """Of 8 experts of 100 parameters each, and 50 others."""
    sizes = {"moe.experts.weight": (8, 10, 10), "head.weight": (5, 10)}
    parameters = tuple(
        Parameter(names=(name,), spec=TensorSpec(shape), trainable=True, used=True) for name, shape in sizes.items()
    )
    found = report()
    meta = {**found.meta, "experts": "8", "experts_per_token": "2"}
    return replace(found, meta=meta, parameters=parameters, totals=found.totals._replace(params=850))


def verdict() -> Verdict:
    line = LimitCheck(
        model="net", quantity=QUANTITIES["macs"], amount=2000, partial=False, before=None,
        limit=parse_limit("macs", "<1000"), word="EXCEEDED",
    )  # fmt: skip
    return Verdict(models=(ModelCheck(name="net", source="net.py", inputs="x:1x8", lines=(line,)),))


def used(rank: int) -> Busy:
    """Half of the time computes, and a quarter waits for the host."""
    return Busy(
        device="gpu:0", rank=rank, span_ns=40_000, busy_ns=20_000, work_ns=20_000, kernels=9, median_ns=50.0,
        idle_host_ns=10_000, idle_launch_ns=10_000,
    )  # fmt: skip


FIT = Fit(
    source="net", vary="batch", largest=2, inputs="x 2x8 float32", peak_bytes=20, next_peak_bytes=30, limit_bytes=25,
    parts={"weights": 20}, counted=(Counted(2, 20, fits=True), Counted(3, 30, fits=False)),
    advice=(Advice("precision", "bfloat16", 4, 24),), notes=("a note of a fit",),
)  # fmt: skip
MEASURED = replace(askable(profile()).query(), notes=(Note("n", "a note of a trace"),))
RESULTS: dict[str, Any] = {
    "report": report(uncounted=True),
    "training step": trained(),
    "mixture": mixture(),
    "prediction": predict(report(), device="h200").query(),
    "profile": replace(MEASURED, devices=(used(0),)),
    "ranks": replace(MEASURED, devices=tuple(map(used, range(4)))),
    "comparison": comparison(),
    "changes": comparison().changed(),
    "check": verdict(),
    "fit": FIT,
    "recomputation": recomputation(),
    "sweep": replace(sweep(), notes=("a note of a sweep",)),
    "scan": replace(checkpoint(), notes=(Note("n", "a note of a checkpoint"),)),
    "mfu": mfu(report(), step_time="1ms", device="h200", inference=True),
}
TEXTS = {"table": {"width": 4000}, "md": {}, "notebook": {}, "latex": {}}


PRINTED = {
    r"$\mu$": "µ", r"$\ge$": "≥", r"$\to$": "→", r"$\times$": "×", r"$\cdot$": "·", r"\textendash{}": "–", r"\textless{}": "<",
    r"\dots{}": "…", r"\textbar{}": "|", "{*}": "*", "-{}-": "--", "~": " ", "$-$": "-",
}  # fmt: skip
"""What LaTeX prints."""
LATEX_PACKAGES = "% usepackage{booktabs} and for tables of several pages usepackage{longtable} % "


def shown(result: Any, view: str) -> str:
    """A text as a reader sees it."""
    text = result.render(view, **TEXTS[view])
    if view == "latex":
        for written, letter in PRINTED.items():
            text = text.replace(written, letter)
    return plain(text)


def names_of(sheet: Sheet) -> list[str]:
    """What the rows of the main table are about; a run of equal ones is unfolded in some formats."""
    table = next(table for table in sheet.tables if table.main)
    return [row[0] for row in table.rows if isinstance(row[0], str) and row[0] and "–" not in row[0]]


def texts_in(data: Any) -> list[str]:
    """Every text in data of JSON."""
    if isinstance(data, str):
        return [plain(data)]
    items = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return [text for item in items for text in texts_in(item)]


def numbers_in(data: Any) -> set[float]:
    """Every number in it."""
    if isinstance(data, (int, float)) and not isinstance(data, bool):
        return {float(data)}
    items = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return {number for item in items for number in numbers_in(item)}


def facts_of(sheet: Sheet, view: str) -> list[str]:
    """What a reader must find: the answer, the conditions, the totals, the sections, the notes and the rows.

    A notebook draws what other texts plot with letters, and LaTeX has no place for it.
    """
    drawn = sheet.unplotted if view in ("notebook", "latex") else sheet.sections
    totals = [text for total in sheet.totals for text in (total.label.strip(), total.human)]
    sections = [text for section in drawn for text in (section.title, *section.lines, section.hint) if text]
    return [sheet.answer, *sheet.heading, *totals, *sections, *sheet.facts, *names_of(sheet)]


@pytest.mark.parametrize("view", TEXTS)
@pytest.mark.parametrize("name", RESULTS)
def test_a_text_has_every_fact(name: str, view: str) -> None:
    text = shown(RESULTS[name], view)
    missing = [fact for fact in facts_of(RESULTS[name].sheet(), view) if plain(fact) not in text]
    assert not missing


@pytest.mark.parametrize("view", TEXTS)
@pytest.mark.parametrize("name", RESULTS)
def test_a_text_begins_with_the_answer(name: str, view: str) -> None:
    text, answer = shown(RESULTS[name], view), RESULTS[name].answer
    assert answer
    if view == "notebook":
        assert plain(answer) in text[text.index("}") :]  # behind the styles
    else:
        assert text.removeprefix(LATEX_PACKAGES).startswith(plain(answer))


@pytest.mark.parametrize("name", RESULTS)
def test_the_page_has_the_answer_the_figures_and_the_notes(name: str) -> None:
    result = RESULTS[name]
    sheet, page = result.sheet(), HtmlPage(result.render("html"))
    assert plain(page.data["title"]) == plain(sheet.answer) == plain(page.inside["title"][0])
    figures = [(total["label"], total["value"]) for total in page.data["totals"] if total["large"]]
    assert figures == [(total.label.strip(), total.value) for total in sheet.figures]
    assert len(page.data["totals"]) == len(sheet.totals)
    texts = texts_in({key: value for key, value in page.data.items() if key != "title"})
    wanted = [
        line for section in sheet.sections for line in section.lines if section.title == "notes" or section.urgent
    ]
    assert not [line for line in wanted if plain(line) not in texts]
    words = " ".join(texts)
    assert not [row for row in names_of(sheet) if plain(row).partition(" ")[0] not in words]


@pytest.mark.parametrize("name", RESULTS)
def test_json_has_the_answer_and_the_numbers_of_the_figures(name: str) -> None:
    sheet, data = RESULTS[name].sheet(), json.loads(RESULTS[name].render("json"))
    assert data["answer"] == RESULTS[name].answer
    numbers = numbers_in(data)
    counted = [total for total in sheet.figures if total.unit in ("count", "bytes", "time")]
    assert not [total for total in counted if float(total.value) not in numbers]
    notes = [getattr(note, "text", note) for note in getattr(RESULTS[name], "notes", ())]
    assert not [note for note in notes if plain(note) not in texts_in(data)]


@pytest.mark.parametrize("name", RESULTS)
def test_at_most_four_figures_are_large(name: str) -> None:
    assert len(RESULTS[name].sheet().figures) <= 4


def test_a_sentence_names_the_part_with_most_of_the_work() -> None:
    """A small Llama: of blocks that are alike the share is of all of them, and equal parts are named by what they are in."""
    transformers = pytest.importorskip("transformers")
    hidden, inner, heads, layers, words, tokens = 16, 128, 4, 3, 8, 2
    config = transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=1, vocab_size=words,
    )  # fmt: skip
    mlp = 3 * tokens * hidden * inner  # gate, up and down, which are equal
    key = tokens * hidden * (hidden // heads)  # and the value, of one head; query and output are of all
    projections = 2 * tokens * hidden * hidden + 2 * key
    attention = projections + 2 * tokens * tokens * hidden
    assert mlp > 0.8 * (mlp + attention)
    whole = layers * (mlp + attention) + tokens * hidden * words
    model = transformers.LlamaForCausalLM(config).eval()
    counted = opcost.count(model, torch.zeros(1, tokens, dtype=torch.int64))
    assert counted.totals.macs == whole
    assert counted.answer.endswith(f"; {100 * layers * mlp / whole:.0f} % in model.layers.*.mlp")


def test_no_part_is_named_that_says_nothing() -> None:
    first, last = torch.nn.Linear(4, 6), torch.nn.Linear(6, 2)  # 24 and 12 MACs
    shares = {
        torch.nn.Sequential(first, last): f"; {100 * 24 / 36:.0f} % in 0 (Linear)",
        torch.nn.Sequential(first): " peak",
        first: " peak",
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4)): " peak",
    }
    for model, end in shares.items():
        assert opcost.count(model, torch.zeros(1, 4)).answer.endswith(end)


def test_a_sentence_says_what_was_counted_under_which_conditions() -> None:
    """The step: 32 blocks of 100 + 1000 MACs forward and 2000 backward are 99,200; 3000 of 4000 bytes are kept."""
    forward = round(100 * 1100 / 3100)
    answer = RESULTS["training step"].answer
    assert answer.startswith("stack, forward and backward")
    assert f"99.2 KMACs ({forward} % forward), 3.91 KiB peak, of which 75 % saved activations" in answer
    assert f"850 parameters ({50 + 2 * 100} active)" in RESULTS["mixture"].answer
    busy = RESULTS["profile"].answer
    assert "40.0 µs, busy 50 %, 25 % host-bound" in busy
    assert "4 ranks" in RESULTS["ranks"].answer
    assert RESULTS["check"].answer.startswith("NOT within the budget: 1 of 1 limit")
    assert RESULTS["fit"].answer == "net: batch 2 is the largest within 25 B, at 20 B peak; 4 with precision=bfloat16"
