"""Time beside cost: costs from recorded shapes, modules of a report, two profiles compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opcost.analysis.compare import ProfileBy, diff_profiles
from opcost.analysis.costing import cost_graph
from opcost.analysis.join import with_costs, with_modules
from opcost.analysis.query import query
from opcost.core.graph import Cost, Graph, Module, Op, TensorSpec, Value
from opcost.core.profile import Busy, Kernel, Profile, ProfileRow
from opcost.core.report import Report
from opcost.errors import UnknownName
from opcost.rules import default_rules

X = TensorSpec((1, 4, 8, 8))
W = TensorSpec((4, 4, 3, 3))
MACS = 1 * 4 * 8 * 8 * 4 * 3 * 3


@pytest.fixture
def report() -> Report:
    """Two equal convolutions in different modules."""
    values = (
        Value(0, "x", X, "input", 0),
        Value(1, "w1", W, "param", 1),
        Value(2, "w2", W, "param", 2),
        Value(3, "y1", X, "activation", 3),
        Value(4, "y2", X, "activation", 4),
    )
    ops = (
        Op(0, "conv", "aten::conv2d", (0, 1), (3,), {}, "layer1.0.conv1"),
        Op(1, "conv", "aten::conv2d", (3, 2), (4,), {}, "layer1.0.conv2"),
    )
    paths = ("", "layer1", "layer1.0", "layer1.0.conv1", "layer1.0.conv2")
    graph = Graph(
        source="net",
        framework="test",
        values=values,
        ops=ops,
        modules=tuple(Module(path=path, type="M") for path in paths),
        inputs=(0,),
        outputs=(4,),
    )
    return cost_graph(graph, default_rules())


def conv(number: int, **more: object) -> ProfileRow:
    row = ProfileRow(id=number, name=f"n{number}", type="Conv", kind="conv", ins=(X, W), outs=(X,), host_self_ns=1)
    return row._replace(**more)


def test_the_cost_of_a_row_is_that_of_its_own_shapes() -> None:
    (row,) = with_costs(Profile(meta={}, rows=(conv(0),)), default_rules()).rows
    assert row.cost == Cost(MACS, 2 * MACS, X.nbytes + W.nbytes, X.nbytes)


def test_a_cost_that_is_already_known_is_kept() -> None:
    known = Cost(1, 2, 3, 4)
    (row,) = with_costs(Profile(meta={}, rows=(conv(0, cost=known),)), default_rules()).rows
    assert row.cost == known


def test_a_row_whose_trace_says_too_little_has_no_cost_and_a_note() -> None:
    profile = with_costs(Profile(meta={}, rows=(conv(0, outs=()),)), default_rules())
    assert profile.rows[0].cost is None
    (note,) = profile.notes
    assert note.code == "uncosted"
    assert "Conv (1)" in note.text


@pytest.mark.parametrize("kind", ["conv", "elementwise", "copy"])
def test_a_row_of_which_only_the_kind_is_known_is_uncosted_and_not_free(kind: str) -> None:
    profile = with_costs(Profile(meta={}, rows=(conv(0, kind=kind, ins=(), outs=()),)), default_rules())
    assert profile.rows[0].cost is None
    assert not profile.notes


def test_a_row_without_a_kind_is_left_as_it_is() -> None:
    profile = Profile(meta={}, rows=(conv(0, kind=""),))
    assert with_costs(profile, default_rules()) == profile


@pytest.mark.parametrize(
    "name",
    ["/layer1/layer1.0/conv2/Conv", "layer1.0.conv2", "/model/layer1/0/conv2/Conv", "/layer1.0/conv2/Conv", "conv2"],
)
def test_a_name_that_holds_a_path_finds_its_module(name: str, report: Report) -> None:
    row = conv(0, name=name, kind="")
    assert with_modules(Profile(meta={}, rows=(row,)), report).rows[0].module == "layer1.0.conv2"


def test_equal_operators_are_joined_in_their_order_and_runs_begin_again(report: Report) -> None:
    rows = tuple(conv(number) for number in range(5))
    joined = with_modules(Profile(meta={}, rows=rows), report)
    first, second = "layer1.0.conv1", "layer1.0.conv2"
    assert [row.module for row in joined.rows] == [first, second, first, second, first]
    assert all(row.cost is not None and row.cost.macs == MACS for row in joined.rows)
    assert "5 of 5 rows" in joined.notes[-1].text


def test_what_the_report_does_not_have_stays_unjoined(report: Report) -> None:
    row = conv(0, kind="matmul", module="mine")
    joined = with_modules(Profile(meta={}, rows=(row,)), report)
    assert joined.rows == (row,)
    assert "0 of 1 rows" in joined.notes[-1].text


def test_a_trace_without_shapes_is_joined_by_type_and_order(report: Report) -> None:
    bare = {"ins": (), "outs": (), "kind": "", "type": "aten::conv2d"}
    rows = tuple(conv(number, **bare) for number in range(4))
    joined = with_modules(Profile(meta={}, rows=rows), report)
    assert [row.module for row in joined.rows] == ["layer1.0.conv1", "layer1.0.conv2"] * 2
    assert all(row.cost is not None and row.cost.macs == MACS for row in joined.rows)
    # Three are no whole number of runs: the trace does not say which was left out.
    broken = with_modules(Profile(meta={}, rows=rows[:3]), report)
    assert {row.module for row in broken.rows} == {""}


def test_what_runs_inside_or_around_an_operator_belongs_to_its_module(report: Report) -> None:
    def timed(number: int, start: int, length: int, **more: object) -> ProfileRow:
        return conv(number, host_start_ns=start, host_ns=length, device="cpu", stream="1", **more)

    unknown = {"kind": "", "type": "inner"}
    rows = (
        timed(0, 0, 1000, **unknown),
        timed(1, 10, 100, **unknown),
        timed(2, 20, 80),
        timed(3, 30, 10, **unknown),
        timed(4, 200, 50),
        timed(5, 210, 10, **unknown),
        timed(6, 240, 50, **unknown),
    )
    joined = with_modules(Profile(meta={}, rows=rows), report)
    first, second = "layer1.0.conv1", "layer1.0.conv2"
    # Row 0 holds both convolutions and row 6 begins in the second but ends after it.
    assert [row.module for row in joined.rows] == ["", first, first, first, second, second, ""]


def test_a_module_of_another_name_takes_all_its_rows_along(report: Report) -> None:
    rows = (
        conv(0, module="Net_0.Stage_0.Block_0.Conv_0"),
        conv(1, module="Net_0.Stage_0.Block_0.Conv_1"),
        conv(2, module="Net_0.Stage_0.Block_0.Conv_1", phase="backward", kind="", type="gradient"),
        conv(3, module="Net_0.Stage_0.Block_0", kind="", type="sum"),
    )
    joined = with_modules(Profile(meta={}, rows=rows), report)
    assert [row.module for row in joined.rows] == ["layer1.0.conv1", "layer1.0.conv2", "layer1.0.conv2", "layer1.0"]


def test_a_gradient_is_no_execution_of_the_operator_before(report: Report) -> None:
    rows = (conv(0), conv(1, phase="backward"), conv(2))
    joined = with_modules(Profile(meta={}, rows=rows), report)
    assert [row.module for row in joined.rows] == ["layer1.0.conv1", "", "layer1.0.conv2"]


# -- two profiles ------------------------------------------------------------------------------------------------------


def test_equal_profiles_do_not_differ(profile: Profile) -> None:
    assert not diff_profiles(profile, profile)


def test_differences_go_by_module_type_and_shape_the_largest_first(profile: Profile) -> None:
    slower = profile.rows[0]._replace(device_ns=45_000)
    found = diff_profiles(profile, replace(profile, rows=(slower, *profile.rows[1:2], *profile.rows[3:])), by="shape")
    times = [entry for entry in found.of_part("operator") if entry.quantity.name == "time"]
    assert [(entry.name, entry.difference) for entry in times] == [("b.fc", -50_000), ("a.conv", 15_000)]
    assert (times[0].change, times[1].change) == ("removed", "changed")
    total = found.total("time")
    assert total is not None
    assert total.quantity.title == "device time"
    assert total.difference == -50_000 + 15_000


def test_unattributed_work_takes_part(profile: Profile) -> None:
    found = diff_profiles(profile, replace(profile, unattributed=()), by="shape")
    (change,) = [entry for entry in found.of_part("operator") if entry.quantity.name == "time"]
    assert change.type == "(unattributed)"
    assert change.difference == -15_000


def spent(time: int, **fields: object) -> ProfileRow:
    kernels = (Kernel("gemm", "gpu:0", "7", 0, time - 1), Kernel("fill", "gpu:0", "7", 0, 1))
    return ProfileRow(id=0, name="x", device_ns=time, kernels=kernels, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("by", "part", "changes"),
    [
        (None, "type", {"mm": (60, 90), "add": (10, 11)}),  # one line for the same operator of all layers
        ("operator", "type", {"mm": (60, 90), "add": (10, 11)}),
        ("kind", "kind", {"matmul": (60, 90), "add": (10, 11)}),
        ("module", "module", {"a": (20, 30), "b": (40, 60), "(none)": (10, 11)}),
        ("kernel", "kernel", {"gemm": (67, 98)}),
    ],
)
def test_profiles_are_compared_by_the_requested_key(
    by: ProfileBy | None, part: str, changes: dict[str, tuple[int, int]]
) -> None:
    old, new = (
        Profile(
            meta={},
            rows=(
                spent(first, type="mm", kind="matmul", module="a"),
                spent(second, type="mm", kind="matmul", module="b"),
                spent(third, type="add"),
            ),
        )
        for first, second, third in ((20, 40, 10), (30, 60, 11))
    )
    found = diff_profiles(old, new, by=by)
    assert {entry.name: entry.amounts for entry in found.entries if entry.part == part} == changes
    total = found.total("time")
    assert total is not None
    assert total.amounts == (70, 101)


def test_profiles_with_steps_are_compared_step_by_step() -> None:
    def of(steps: int, time: int) -> Profile:
        use = Busy("gpu:0", 0, 10 * time, time, time, 1, 1, steps=steps)
        return Profile(meta={}, rows=(spent(time, type="mm"),), extra={"devices": [use._asdict()]})

    assert not diff_profiles(of(2, 100), of(5, 250))
    found = diff_profiles(of(2, 100), of(5, 500))
    amounts = {entry.quantity.name: entry.amounts for entry in found.of_part("total")}
    assert amounts == {"time": (50, 100), "span": (500, 1000), "idle": (450, 900)}
    assert "per step of 2" in str(found)
    assert "the largest change is +50 ns of +50 ns: mm +50 ns" in str(found)
    whole = diff_profiles(of(0, 100), of(5, 500)).total("time")  # one has no steps
    assert whole is not None
    assert whole.amounts == (100, 500)


def attention(**fields: object) -> ProfileRow:
    heads = (TensorSpec((2, 3, 8, 16)),) * 3
    return ProfileRow(
        id=0,
        name="a",
        type="sdpa",
        kind="attention",
        device_ns=10,
        ins=heads,
        outs=heads[:1],
        attrs={"causal": True},
        **fields,
    )


@pytest.mark.parametrize("counted", [False, True], ids=["read", "recorded"])
def test_causal_attention_is_counted_in_full_unless_half_is_requested(*, counted: bool) -> None:
    profile = Profile(meta={}, rows=(attention(),))
    if counted:
        profile = with_costs(profile, default_rules())
    full, half = (query(profile, causal=causal) for causal in ("full", "half"))
    pairs, features = 2 * 3 * 8 * 8, 2 * 16
    per_pair = full.rows[0].computation / pairs
    assert per_pair >= 2 * features
    assert half.rows[0].computation == per_pair * 2 * 3 * (8 * 9 // 2)
    assert query(profile).rows == full.rows
    assert [[note.text for note in found.notes if note.code == "causal"] for found in (full, half)] == [
        ["causal attention counted in full; --causal half counts what the mask lets through"],
        ["causal attention counted by half"],
    ]
    with pytest.raises(UnknownName, match="value of causal"):
        query(profile, causal="quarter")


def test_a_cost_from_the_trace_is_kept_whatever_the_convention() -> None:
    known = Cost(macs=5, flops=10)
    assert query(Profile(meta={}, rows=(attention(cost=known),)), causal="half").rows[0].computation == 10
