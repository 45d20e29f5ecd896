from __future__ import annotations

from dataclasses import replace

import pytest

from opcost.core.graph import Note, TensorSpec
from opcost.core.report import Coverage, Parameter, Report, Uncounted
from opcost.core.sheet import Section
from opcost.core.units import format_count
from opcost.errors import MANY
from opcost.views.summary import summarize


def section(report: Report, title: str) -> Section:
    return next(section for section in summarize(report).sections if section.title.startswith(title))


def test_phases_are_listed_only_where_there_is_more_than_the_forward_pass(plain: Report, odd: Report) -> None:
    assert summarize(plain).phases == ()
    phases = dict(summarize(odd).phases)
    assert list(phases) == ["forward", "backward"]
    assert sum(cost.macs for cost in phases.values()) == odd.totals.macs


def test_the_conventions_are_named(plain: Report, odd: Report) -> None:
    assert summarize(plain).conventions == ("1 MAC = 2 FLOPs", "eval mode", "cpu", "float32 parameters")
    assert "train mode" in summarize(odd).conventions


@pytest.mark.parametrize(("causal", "said"), [("full", "counted in full"), ("half", "counted by half")])
def test_the_causal_convention_is_named_where_it_matters(plain: Report, causal: str, said: str) -> None:
    op = plain.rows[0].op._replace(kind="attention", attrs={"causal": True})
    with_attention = replace(plain, rows=(plain.rows[0]._replace(op=op),), meta={**plain.meta, "causal": causal})
    assert f"causal attention {said}" in summarize(with_attention).conventions
    assert not any("causal" in said for said in summarize(plain).conventions)


def test_unused_parameters_of_equal_modules_are_one_line(odd: Report) -> None:
    (line,) = section(odd, "unused").lines
    assert line.replace("\u00a0", " ") == f"spare.*: weight, bias ×4, {format_count(odd.totals.unused_params)}"


def test_a_module_under_two_names_is_named_once_and_tied_parameters_by_name(odd: Report) -> None:
    assert section(odd, "shared modules").lines == ("again = fc",)
    (tied,) = section(odd, "shared parameters").lines
    assert tied.startswith("embed.weight = lm_head.weight ")


def test_uncounted_operators_say_where_and_what_to_do(odd: Report) -> None:
    missed = section(odd, f"uncounted operators, 3 of {len(odd.rows)}")
    assert missed.urgent
    assert missed.lines[0] == "mylib::twist in twister"
    assert missed.lines[2].endswith("(its inputs come from mylib::where, which is not counted)")
    assert missed.hint.replace("\u00a0", " ").endswith('rules={"mylib::twist": rule, ...}')


def test_many_places_are_counted_and_not_all_named(plain: Report) -> None:
    coverage = Coverage(0, (Uncounted("lib::op", 1200, tuple(f"layer{number}" for number in range(100))),))
    (line,) = section(replace(plain, coverage=coverage), "uncounted").lines
    assert line.replace("\u00a0", " ") == "lib::op ×1200 in layer0, layer1 and 98 more modules"


def test_a_long_list_is_cut_with_the_number_of_what_is_missing(plain: Report) -> None:
    notes = tuple(Note("n", f"note {number}") for number in range(MANY + 5))
    lines = section(replace(plain, notes=notes), "notes").lines
    assert len(lines) == MANY
    assert lines[-1] == "and 6 more"
    assert section(replace(plain, notes=notes[:MANY]), "notes").lines[-1] == f"note {MANY - 1}"


def test_only_whole_numbers_in_a_path_become_a_star(plain: Report) -> None:
    names = ("conv2.weight", "conv3.weight", "layers.1.weight", "layers.2.weight", "cls")
    unused = tuple(Parameter(names=(name,), spec=TensorSpec((2,)), trainable=True, used=False) for name in names)
    lines = [line.replace("\u00a0", " ") for line in section(replace(plain, parameters=unused), "unused").lines]
    assert lines == ["conv2: weight 2", "conv3: weight 2", "layers.*: weight ×2, 4", "cls 2"]


def test_equal_outputs_are_written_once(plain: Report) -> None:
    outputs = (TensorSpec((1, 5)),) + (TensorSpec((2, 3), "float16"),) * 64
    heading = summarize(replace(plain, outputs=outputs)).heading
    assert heading[-1].replace("\u00a0", " ") == "output  1x5 float32, 64 × 2x3 float16"


def test_equal_notes_are_printed_once_with_their_number(plain: Report) -> None:
    notes = [Note("experts", "tokens over experts", f"layers.{index}") for index in range(3, 61)]
    report = replace(plain, notes=(Note("one", "said once", "head"), *notes, Note("two", "nowhere")))
    assert section(report, "notes").lines == (
        "said once (head)",
        f"tokens over experts ({len(notes)} times, first in layers.3)",
        "nowhere",
    )
    assert len(report.notes) == len(notes) + 2
