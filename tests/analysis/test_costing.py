from __future__ import annotations

import pytest

from opcost.analysis.costing import cost_graph
from opcost.core.graph import NO_ATTRS, ZERO, Attrs, Cost, Graph, Module, Op, TensorSpec, Value
from opcost.core.report import Report, Uncounted
from opcost.errors import GraphError, RuleError
from opcost.rules import default_rules
from opcost.rules.registry import Convention, OpView, Rule

N, M = 4, 6
MATRIX = TensorSpec((N, M))
BYTES = 4 * N * M
ADD: Attrs = {"fn": "add"}


def value(number: int, role: str = "activation", *, spec: TensorSpec = MATRIX, storage: int | None = None) -> Value:
    return Value(number, f"v{number}", spec, role, number if storage is None else storage)


def graph(values: list[Value], ops: list[Op], modules: tuple[Module, ...] = (Module(path="", type="Net"),)) -> Graph:
    inputs = tuple(v.id for v in values if v.role == "input")
    made = Graph(source="test", framework="none", values=tuple(values), ops=tuple(ops), modules=modules, inputs=inputs)
    made.check()
    return made


def costed(values: list[Value], ops: list[Op], modules: tuple[Module, ...] = (Module(path="", type="Net"),)) -> Report:
    return cost_graph(graph(values, ops, modules), default_rules())


def op(number: int, kind: str, inputs: tuple[int, ...], output: int, attrs: Attrs = NO_ATTRS, **more: object) -> Op:
    return Op(number, kind, f"test::{kind}", inputs, (output,), attrs, **more)


def test_a_tensor_used_twice_by_one_operator_is_read_once() -> None:
    values = [value(0, "input"), value(1, "input"), value(2), value(3)]
    report = costed(values, [op(0, "elementwise", (0, 0), 2, ADD), op(1, "elementwise", (0, 1), 3, ADD)])
    assert [row.cost.bytes_read for row in report.rows] == [BYTES, 2 * BYTES]


def test_a_broadcast_view_reads_no_more_than_its_memory_holds() -> None:
    values = [value(0, "input", spec=TensorSpec((N, 1))), value(1, storage=0), value(2)]
    report = costed(values, [op(0, "view", (0,), 1), op(1, "copy", (1,), 2)])
    assert report.rows[1].cost == Cost(bytes_read=4 * N, bytes_written=BYTES)


def test_views_and_in_place_results_are_no_new_activations() -> None:
    values = [value(0, "input"), value(1), value(2, storage=1), value(3, storage=1), value(4, storage=0)]
    ops = [
        op(0, "copy", (0,), 1),
        op(1, "view", (1,), 2),
        op(2, "elementwise", (2,), 3, ADD),
        op(3, "elementwise", (0,), 4, ADD),
    ]
    report = costed(values, ops)
    assert [row.activations for row in report.rows] == [N * M, 0, 0, 0]
    assert (report.totals.activations, report.totals.activation_bytes) == (N * M, BYTES)


def test_what_is_repeated_counts_as_often() -> None:
    once = costed([value(0, "input"), value(1)], [op(0, "elementwise", (0,), 1, ADD)])
    thrice = costed([value(0, "input"), value(1)], [op(0, "elementwise", (0,), 1, ADD, repeat=3)])
    assert thrice.rows[0].cost == once.rows[0].cost
    assert thrice.totals.flops == 3 * once.totals.flops == 3 * N * M


def test_phases_are_kept_apart() -> None:
    values = [value(0, "input"), value(1), value(2)]
    ops = [op(0, "elementwise", (0,), 1, ADD), op(1, "elementwise", (1,), 2, {"fn": "relu_grad"}, phase="backward")]
    report = costed(values, ops)
    assert {phase: cost.flops for phase, cost in report.phases.items()} == {"forward": N * M, "backward": 2 * N * M}
    assert report.rows[1].activations == 0


def test_one_operator_name_may_stand_for_two_kinds() -> None:
    values = [value(0, "input"), value(1, storage=0), value(2)]
    ops = [Op(0, "view", "test::to", (0,), (1,), NO_ATTRS), Op(1, "copy", "test::to", (1,), (2,), NO_ATTRS)]
    report = costed(values, ops)
    assert [row.cost for row in report.rows] == [Cost(), Cost(bytes_read=BYTES, bytes_written=BYTES)]


def test_inputs_are_not_mistaken_for_outputs() -> None:
    values = [value(0, "input"), value(1, "input"), value(2), value(3), value(4)]
    two_in = Op(0, "copy", "test::copy", (0, 1), (2,), NO_ATTRS)
    two_out = Op(1, "copy", "test::copy", (0,), (3, 4), NO_ATTRS)
    report = costed(values, [two_in, two_out])
    assert [(row.cost.bytes_read, row.cost.bytes_written) for row in report.rows] == [
        (2 * BYTES, BYTES),
        (BYTES, 2 * BYTES),
    ]


def test_the_cost_of_one_shape_with_two_types_is_computed_twice() -> None:
    half = TensorSpec((N, M), "float16")
    values = [value(0, "input"), value(1), value(2, spec=half), value(3, spec=half)]
    ops = [op(0, "copy", (0,), 1), op(1, "copy", (1,), 2), op(2, "copy", (2,), 3)]
    report = costed(values, ops)
    assert [row.cost.bytes_written for row in report.rows] == [BYTES, BYTES // 2, BYTES // 2]
    assert [row.cost.bytes_read for row in report.rows] == [BYTES, BYTES, BYTES // 2]


class TestUnknown:
    VALUES = (value(0, "input"), value(1), value(2), value(3))
    MODULES = (Module(path="", type="Net"), Module(path="a", type="A"), Module(path="b", type="B"))

    def test_an_operator_without_a_rule_is_listed_with_its_places(self) -> None:
        ops = [
            Op(0, "unknown", "lib::odd", (0,), (1,), NO_ATTRS, "a"),
            Op(1, "unknown", "lib::odd", (1,), (2,), NO_ATTRS, "b"),
            Op(2, "elementwise", "lib::add", (2,), (3,), ADD, "b"),
        ]
        report = costed(list(self.VALUES), ops, self.MODULES)
        assert report.coverage.counted == 1
        assert report.coverage.uncounted == (Uncounted("lib::odd", 2, ("a", "b"), "no rule"),)
        assert [row.cost for row in report.rows[:2]] == [None, None]
        assert report.module("a").total.uncounted == 1

    def test_a_shape_that_depends_on_data_is_a_reason_of_its_own(self) -> None:
        values = [value(0, "input"), value(1, spec=TensorSpec((None, M)))]
        report = costed(values, [op(0, "gather", (0,), 1)])
        assert report.coverage.uncounted == (Uncounted("test::gather", 1, ("",), "its shape depends on data"),)

    def test_a_users_rule_gives_the_cost_of_the_operator(self) -> None:
        def odd(view: OpView) -> Cost:
            return view.cost(macs=view.outs[0].numel * 7)

        ops = [Op(0, "unknown", "lib::odd", (0,), (1,), NO_ATTRS)]
        report = cost_graph(graph(list(self.VALUES), ops), default_rules().with_rules({"lib::odd": odd}))
        assert report.coverage.complete
        assert (report.rows[0].rule, report.totals.macs) == ("lib::odd", N * M * 7)


def test_a_misspelt_attribute_is_refused_and_not_left_out() -> None:
    x, y = TensorSpec((1, 4, 8, 8)), TensorSpec((1, 4, 8, 8))
    values = (value(0, "input", spec=x), value(1, "input", spec=TensorSpec((4, 4, 1, 1))), value(2, spec=y))
    misspelt = Op(0, "conv", "lib::conv", (0, 1), (2,), {"transposd": True})
    unchecked = Graph(
        source="test", framework="none", values=values, ops=(misspelt,), modules=(Module(path="", type="Net"),)
    )
    with pytest.raises(
        GraphError, match="conv operator lib::conv: unknown attribute 'transposd'; did you mean 'transposed'"
    ):
        cost_graph(unchecked, default_rules())


@pytest.mark.parametrize(
    ("kind", "attrs", "rule", "seen"),
    [
        ("elementwise", ADD, "elementwise", {"fn": "add"}),
        ("elementwise", ADD, "lib::odd", {"fn": "add", "mode": "ADD", "elements": 0}),
        ("unknown", NO_ATTRS, "lib::odd", {"fn": 7, "mode": "ADD", "elements": 0}),
        ("unknown", NO_ATTRS, "unknown", {"fn": 7, "mode": "ADD", "elements": 0}),
    ],
)
def test_only_a_rule_for_the_very_operator_sees_the_frameworks_own_parameters(
    kind: str, attrs: Attrs, rule: str, seen: Attrs
) -> None:
    views = []

    def spy(view: OpView) -> Cost:
        views.append(view.attrs)
        return ZERO

    native: Attrs = {"fn": 7, "mode": "ADD", "elements": 0}
    ops = [Op(0, kind, "lib::odd", (0,), (1,), attrs, native=native)]
    cost_graph(graph([value(0, "input"), value(1)], ops), default_rules().with_rules({rule: spy}))
    assert views == [seen]


def fails(view: OpView) -> Cost:
    raise ZeroDivisionError("no such thing")


def forgets(view: OpView) -> Cost:
    return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (fails, "failed on lib::odd with inputs .4x6. and outputs .4x6.*no such thing"),
        (forgets, "returned None"),
    ],
)
def test_a_wrong_rule_is_named_with_the_operator_it_failed_on(rule: Rule, message: str) -> None:
    ops = [Op(0, "unknown", "lib::odd", (0,), (1,), NO_ATTRS)]
    with pytest.raises(RuleError, match=message):
        cost_graph(graph([value(0, "input"), value(1)], ops), default_rules().with_rules({"lib::odd": rule}))


def test_the_convention_changes_the_number_and_is_written_down() -> None:
    heads, length, features = 2, 5, 3
    spec = TensorSpec((heads, length, features))
    made = graph(
        [value(0, "input", spec=spec), value(1, spec=spec)], [op(0, "attention", (0, 0, 0), 1, {"causal": True})]
    )
    full, half = (cost_graph(made, default_rules(), Convention(causal)) for causal in ("full", "half"))
    assert (full.meta["causal"], half.meta["causal"]) == ("full", "half")
    assert full.totals.macs == heads * length**2 * 2 * features
    assert half.totals.macs == heads * (length * (length + 1) // 2) * 2 * features


class TestParameters:
    SHARED = Module(path="a", type="A", parameters=(("weight", 1),))
    MODULES = (
        Module(path="", type="Net"),
        SHARED,
        Module(path="b", type="B", parameters=(("weight", 1), ("idle", 2)), buffers=(("mean", 3),)),
    )
    VALUES = (value(0, "input"), value(1, "param"), value(2, "param"), value(3, "buffer"), value(4))
    OPS = (op(0, "elementwise", (0, 1), 4, ADD, module="b"),)

    def test_a_shared_weight_counts_once_in_its_first_module(self) -> None:
        report = costed(list(self.VALUES), list(self.OPS), self.MODULES)
        assert report.module("a").own.params == N * M
        assert report.module("b").own.params == N * M  # idle alone
        assert report.totals.params == 2 * N * M
        assert [p.names for p in report.shared] == [("a.weight", "b.weight")]
        assert report.module("b").parameters == ("b.weight", "b.idle")

    def test_weights_that_no_operator_reads_are_named(self) -> None:
        report = costed(list(self.VALUES), list(self.OPS), self.MODULES)
        assert [p.name for p in report.unused] == ["b.idle"]
        assert report.module("b").own.unused_params == report.totals.unused_params == N * M

    def test_buffers_are_no_parameters(self) -> None:
        report = costed(list(self.VALUES), list(self.OPS), self.MODULES)
        assert (report.totals.buffers, report.totals.buffer_bytes) == (N * M, BYTES)
        assert report.totals.param_bytes == 2 * BYTES

    def test_a_weight_handed_out_unchanged_is_used(self) -> None:
        made = Graph(
            source="", framework="", values=(value(0, "param"),), ops=(), modules=self.MODULES[:1], outputs=(0,)
        )
        assert cost_graph(made, default_rules()).unused == ()

    def test_weights_of_a_source_without_modules_belong_to_the_root(self) -> None:
        report = costed([value(0, "input"), value(1, "param"), value(2)], [op(0, "elementwise", (0, 1), 2, ADD)])
        assert [p.names for p in report.parameters] == [("v1",)]
        assert report.module("").own.params == N * M
