from __future__ import annotations

from typing import Any

import pytest
from tests.views.conftest import Model

from opcost.core.report import STATS, Report
from opcost.core.sheet import Table
from opcost.errors import OpcostError, UnknownName
from opcost.views.report import EVERY_BY, RANKED, SHOWN, columns_of, list_report
from opcost.views.view import ViewOptions

ADDITIVE = [name for name in STATS if name not in ("ops", "uncounted")]


def listed(report: Report, **options: Any) -> Table:
    return list_report(report, ViewOptions(**options))


def column(listing: Table, name: str, *, role: str | None = None) -> list[Any]:
    place = [column.name for column in listing.fields].index(name)
    return [line.values[place] for line in listing.lines if role is None or line.role == role]


def own_sum(listing: Table, name: str) -> int:
    return sum(column(listing, f"own_{name}"))


@pytest.fixture(params=["plain", "odd", "deep"])
def report(request: pytest.FixtureRequest) -> Report:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


@pytest.mark.parametrize("depth", ["auto", None, 0, 1, 2, 5, 100])
@pytest.mark.parametrize("merge", [None, True, False])
def test_own_columns_of_a_tree_add_up_to_the_totals_at_every_depth(report: Report, depth: Any, merge: Any) -> None:
    listing = listed(report, depth=depth, merge=merge, columns=[f"own_{name}" for name in STATS])
    for name in STATS:
        assert own_sum(listing, name) == getattr(report.totals, name), name


@pytest.mark.parametrize("by", ["op", "kind", "type"])
@pytest.mark.parametrize("top", [None, 1, 2, 1000])
def test_lines_and_the_rest_add_up_to_the_total_line_and_to_the_totals(
    report: Report, by: Any, top: int | None
) -> None:
    names = [name for name in ADDITIVE if name in columns_of(by, 0)]
    assert "macs" in names
    listing = listed(report, by=by, top=top, columns=names)
    for name in names:
        shown = [value for role in ("row", "rest") for value in column(listing, name, role=role) if value is not None]
        assert [sum(shown)] == column(listing, name, role="total") == [getattr(report.totals, name)], name


@pytest.mark.parametrize("depth", ["auto", 1, None])
@pytest.mark.parametrize("top", [1, 3, 1000])
def test_a_top_of_modules_adds_up_because_each_is_shown_without_what_is_below(
    report: Report, depth: Any, top: int
) -> None:
    listing = listed(report, depth=depth, top=top, columns=ADDITIVE)
    assert len(column(listing, "macs", role="row")) <= top
    for name in ADDITIVE:
        shown = column(listing, name, role="row") + column(listing, name, role="rest")
        assert [sum(shown)] == column(listing, name, role="total") == [getattr(report.totals, name)], name


def test_the_rest_says_how_many_lines_it_sums_up(plain: Report) -> None:
    listing = listed(plain, by="op", top=3, columns="op")
    assert column(listing, "op", role="rest") == [f"{len(plain.rows) - 3} more"]
    assert column(listed(plain, by="op", top=len(plain.rows), columns="op"), "op", role="rest") == []


def test_a_column_is_not_dull_while_the_rest_has_something_to_tell(odd: Report, plain: Report) -> None:
    def shown(report: Report) -> list[str]:
        listing = listed(report, by="kind", top=1)
        return [listing.fields[place].name for place in listing.visible]

    assert "uncounted" in shown(odd)
    assert "uncounted" not in shown(plain)


def test_a_tree_shows_modules_in_definition_order_with_the_totals_of_what_is_below(plain: Report) -> None:
    listing = listed(plain, depth=None, columns="path,macs")
    assert column(listing, "path") == [module.path for module in plain.modules]
    assert column(listing, "macs") == [module.total.macs for module in plain.modules]


def test_a_cut_module_keeps_the_total_of_everything_below_it(plain: Report) -> None:
    listing = listed(plain, depth=1, columns="path,macs,own_macs")
    assert column(listing, "path") == ["", "patch_embed", "blocks", "head"]
    blocks = plain.module("blocks").total.macs
    assert column(listing, "macs")[2] == column(listing, "own_macs")[2] == blocks > 0
    assert listing.remarks == ("drawn to depth 1 of 3",)


def test_identical_blocks_are_merged_into_one_line_that_carries_their_sum(plain: Report) -> None:
    listing = listed(plain, depth=None, merge=True, columns="module,path,type,macs,params,calls,output")
    assert column(listing, "module") == ["PatchMixer", "patch_embed", "blocks", "0–2", "fc1", "act", "fc2", "head"]
    assert column(listing, "path")[3:5] == ["blocks.0–2", "blocks.0–2.fc1"]
    assert column(listing, "type")[3:6] == ["3 × Block", "3 × Linear", "3 × ReLU"]
    for name in ("macs", "params"):
        fc1 = [getattr(plain.module(f"blocks.{number}.fc1").total, name) for number in range(3)]
        assert column(listing, name)[4] == sum(fc1) > 0
    assert column(listing, "calls")[4] == 1
    assert "identical blocks drawn once" in listing.remarks[0]


def test_blocks_that_differ_in_anything_shown_are_not_merged(odd: Report) -> None:
    merged = listed(odd, depth=None, merge=True, columns="module")
    assert column(merged, "module")[-2:] == ["spare", "0–3"]
    assert "fc" in column(merged, "module")
    assert "again" in column(merged, "module")


def test_a_long_tree_is_merged_or_cut_by_itself_and_a_short_one_is_not(plain: Report, long: Report) -> None:
    assert len(listed(plain).lines) == len(plain.modules)
    assert listed(plain).remarks == ()
    assert len(listed(long, merge=False, depth=None).lines) == len(long.modules)
    assert column(listed(long, columns="module"), "module")[3:5] == ["0–39", "fc1"]
    assert len(listed(long, merge=False).lines) == len([module for module in long.modules if module.depth <= 2])
    assert listed(long, merge=False).remarks == ("drawn to depth 2 of 3",)


def with_idle_modules() -> Report:
    """Two equal blocks but for what is beside their layer: an Identity in the first, a DropPath in the second."""
    model = Model("Net")
    made = model.input("x", 2, 4)
    for block, dropping in enumerate(("Identity", "DropPath")):
        model.module(f"blocks.{block}", "Block")
        made = model.linear(model.module(f"blocks.{block}.fc", "Linear"), made, 4)
        model.module(f"blocks.{block}.drop", "Sequential")
        model.called(model.module(f"blocks.{block}.drop.0", dropping), made, made)
    model.modules["blocks"] = model.modules[""] | {"type": "Sequential"}
    model.modules = dict(sorted(model.modules.items()))
    return model.report(made)


def test_modules_that_do_and_hold_nothing_are_left_out_of_a_tree_and_counted_below_it() -> None:
    report = with_idle_modules()
    listing = listed(report, depth=None, columns=["path", *STATS])
    assert column(listing, "path") == ["", "blocks", "blocks.0", "blocks.0.fc", "blocks.1", "blocks.1.fc"]
    named = (
        "left out: 4 modules without operators and parameters (Sequential, Identity, DropPath); --no-merge shows all"
    )
    assert listing.remarks == (named,)
    merged = listed(report, depth=None, merge=True, columns="module,own_macs")
    assert column(merged, "module") == ["Net", "blocks", "0–1", "fc"]
    assert sum(column(merged, "own_macs")) == 2 * 2 * 4 * 4  # of each block batch x in x out
    assert len(listed(report, depth=2).lines) == 4
    assert listed(report, depth=2).remarks == ("drawn to depth 2 of 4",)
    assert listed(report, depth=3).remarks == (named,)


@pytest.mark.parametrize("options", [{"exact": True}, {"merge": False}])
def test_all_modules_are_in_a_tree_with_all_digits_or_without_merging(options: dict[str, Any]) -> None:
    report = with_idle_modules()
    listing = listed(report, depth=None, columns="path", **options)
    assert column(listing, "path") == [module.path for module in report.modules]
    assert listing.remarks == ()
    assert len(report.render("csv", by="module", merge=True).splitlines()) == 1 + len(report.modules)


def test_a_second_name_is_one_line_that_says_whose_it_is(odd: Report) -> None:
    listing = listed(odd, columns="module,note,same_as")
    notes = dict(zip(column(listing, "module"), column(listing, "note"), strict=True))
    assert notes["again"] == "= fc"
    assert notes["fc"] == ""
    assert notes["0"] == "unused"
    assert notes["twister"] == "1 uncounted"
    assert dict(zip(column(listing, "module"), column(listing, "same_as"), strict=True))["again"] == "fc"


def test_modules_are_sorted_under_their_parent(plain: Report) -> None:
    listing = listed(plain, sort="params", depth=2, columns="path")
    assert column(listing, "path") == ["", "blocks", "blocks.0", "blocks.1", "blocks.2", "patch_embed", "head"]
    rising = listed(plain, sort="+params", depth=1, columns="path")
    assert column(rising, "path") == ["", "head", "patch_embed", "blocks"]


@pytest.mark.parametrize("name", [name for name in columns_of("op", 0) if name not in ("input", "output")])
def test_operators_can_be_sorted_by_every_column(odd: Report, name: str) -> None:
    falling, rising = (
        column(listed(odd, by="op", sort=f"{sign}{name}", columns=name), name, role="row") for sign in "-+"
    )
    known = [value for value in rising if value is not None]
    assert known == sorted(known, key=lambda value: value.casefold() if isinstance(value, str) else value)
    assert [value for value in falling if value is not None] == known[::-1]
    unknown = [None] * rising.count(None)
    assert rising[len(known) :] == falling[len(known) :] == unknown


def test_shapes_are_sorted_by_their_elements(odd: Report) -> None:
    sizes = [
        sum(spec.numel for spec in specs if spec.known)
        for specs in column(listed(odd, by="op", sort="output", columns="output"), "output", role="row")
    ]
    assert sizes == sorted(sizes, reverse=True)


def test_without_a_sign_numbers_fall_and_text_rises(plain: Report) -> None:
    macs = column(listed(plain, by="kind", sort="macs", columns="macs"), "macs", role="row")
    kinds = column(listed(plain, by="kind", sort="kind", columns="kind"), "kind", role="row")
    assert macs == sorted(macs, reverse=True)
    assert kinds == sorted(kinds)


def test_groups_come_costliest_first_and_operators_in_the_order_they_ran(plain: Report) -> None:
    assert column(listed(plain, by="op", columns="index"), "index", role="row") == list(range(len(plain.rows)))
    macs = column(listed(plain, by="type", columns="macs"), "macs", role="row")
    assert macs == sorted(macs, reverse=True)
    top = column(listed(plain, by="op", top=4, columns="macs"), "macs", role="row")
    assert top == sorted((row.cost.macs for row in plain.rows if row.cost), reverse=True)[:4]


def test_a_repeated_operator_costs_what_all_its_repetitions_cost(odd: Report) -> None:
    repeated = [row for row in odd.rows if row.op.repeat > 1]
    assert [row.op.repeat for row in repeated] == [5]
    listing = listed(odd, by="op", columns="repeat,activations")
    place = column(listing, "repeat").index(5)
    assert column(listing, "activations")[place] == 5 * repeated[0].outs[0].numel


def test_an_operator_without_a_cost_is_unknown_and_not_zero(odd: Report) -> None:
    listing = listed(odd, by="op", columns="op,macs,flops,bytes,share")
    place = column(listing, "op").index("mylib::twist")
    assert listing.lines[place].values[1:] == (None, None, None, None)
    assert listing.lines[-1].partial


def test_columns_are_named_in_any_case_and_order(plain: Report) -> None:
    listing = listed(plain, columns=["FLOPs", " own-MACs", "Own Params", "module"])
    assert [column.name for column in listing.fields] == ["flops", "own_macs", "own_params", "module"]
    assert listed(plain, columns="flops, own_macs,own_params,module").fields[0].name == "flops"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"columns": "modul"}, "unknown column 'modul'; did you mean 'module'"),
        ({"columns": ["params", "mac"]}, "did you mean 'macs'"),
        ({"sort": "+flop"}, "did you mean 'flops'"),
        ({"by": "kin"}, "did you mean 'kind'"),
        ({"by": "kind", "columns": "params"}, "unknown column 'params'"),
    ],
)
def test_a_misspelt_name_is_an_error_that_knows_better(plain: Report, options: Any, said: str) -> None:
    with pytest.raises(UnknownName, match=said.replace("+", r"\+")):
        plain.render("table", **options)


@pytest.mark.parametrize(
    "options", [{"top": 0}, {"top": -1}, {"top": True}, {"depth": -1}, {"depth": "x"}, {"columns": []}]
)
def test_a_number_that_makes_no_sense_is_an_error(plain: Report, options: Any) -> None:
    with pytest.raises(OpcostError):
        plain.render("table", **options)


@pytest.mark.parametrize("by", EVERY_BY)
def test_what_is_shown_by_itself_exists_and_has_a_rank(by: Any) -> None:
    assert set(SHOWN[by]) <= set(columns_of(by, 0))
    assert sorted(SHOWN[by]) == sorted(RANKED[by])
