"""The laws that hold for every graph: generated graphs, each quantity worked out a second way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from work import calls

from opcost.analysis.costing import cost_graph
from opcost.analysis.memory import memory, storage_bytes
from opcost.core.graph import ZERO, Attrs, Cost, Graph, Module, Op, Phase, TensorSpec, Value
from opcost.core.report import Report, Stats
from opcost.core.schema import dumps, loads
from opcost.rules import default_rules

SHAPES = st.lists(st.integers(0, 6), max_size=3).map(tuple)
SPECS = st.builds(TensorSpec, SHAPES, st.sampled_from(["float32", "float16", "int64", "int4"]))
OPERATORS: list[tuple[str, Attrs]] = [
    ("matmul", {"depth": 3}),
    ("matmul", {"depth": 5, "bias": True}),
    ("elementwise", {"fn": "add"}),
    ("elementwise", {"fn": "gelu"}),
    ("copy", {}),
    ("softmax", {}),
    ("view", {}),
    ("unknown", {}),
]

PHASES: tuple[Phase, ...] = ("forward", "backward", "update")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Random trees of modules, tied and unused weights, views, in-place writes, unknown operators and shapes."""
    paths = [""]
    for number in range(draw(st.integers(0, 6))):
        parent = draw(st.sampled_from(paths))
        paths.append(f"{parent}.m{number}" if parent else f"m{number}")

    values: list[Value] = []

    def add(name: str, spec: TensorSpec, role: str, storage: int | None = None, *, trainable: bool = False) -> int:
        number = len(values)
        values.append(Value(number, name, spec, role, number if storage is None else storage, trainable))
        return number

    stored: dict[str, dict[str, list[tuple[str, int]]]] = {path: {"param": [], "buffer": []} for path in paths}
    for number in range(draw(st.integers(0, 4))):
        role = draw(st.sampled_from(["param", "param", "buffer"]))
        value = add(f"w{number}", draw(SPECS), role, trainable=role == "param" and draw(st.booleans()))
        for path in draw(st.lists(st.sampled_from(paths), min_size=1, max_size=3, unique=True)):
            stored[path][role].append((f"w{number}", value))
        if draw(st.booleans()):  # the same memory once more, as another tensor
            again = add(f"t{number}", values[value].spec, role, value, trainable=values[value].trainable)
            stored[draw(st.sampled_from(paths))][role].append((f"t{number}", again))
    inputs = tuple(add(f"x{number}", draw(SPECS), "input") for number in range(draw(st.integers(1, 2))))

    ops = []
    phases = sorted(draw(st.lists(st.sampled_from(PHASES), max_size=12)), key=PHASES.index)
    for number, phase in enumerate(phases):
        kind, attrs = draw(st.sampled_from(OPERATORS))
        read = draw(st.lists(st.sampled_from(range(len(values))), min_size=1, max_size=3))
        in_place = kind == "view" or (kind == "elementwise" and draw(st.booleans()))
        first = values[read[0]]
        spec = first.spec if in_place else draw(SPECS | st.just(TensorSpec((2, None))))
        made = add(f"v{number}", spec, "activation", first.storage if in_place else None)
        module, repeat = draw(st.sampled_from(paths)), draw(st.integers(1, 3))
        ops.append(Op(number, kind, f"test::{kind}", tuple(read), (made,), attrs, module, repeat, phase))

    graph = Graph(
        source="test",
        framework="none",
        values=tuple(values),
        ops=tuple(ops),
        modules=tuple(
            Module(path=path, type=f"T{len(path) % 3}", parameters=tuple(h["param"]), buffers=tuple(h["buffer"]))
            for path, h in stored.items()
        ),
        inputs=inputs,
        outputs=tuple(draw(st.lists(st.sampled_from(range(len(values))), max_size=2))),
    )
    graph.check()
    return graph


def costed(graph: Graph) -> Report:
    return cost_graph(graph, default_rules())


def total(costs: list[Cost]) -> Cost:
    return sum(costs, ZERO)


def summed(stats: list[Stats]) -> Stats:
    return sum(stats, Stats())


@given(graphs())
def test_the_rows_add_up_to_the_root(graph: Graph) -> None:
    report = costed(graph)
    rows = total([row.cost * row.op.repeat for row in report.rows if row.cost is not None])
    assert rows == report.totals.cost == report.module("").total.cost


@given(graphs())
def test_a_module_is_its_own_part_and_its_children(graph: Graph) -> None:
    report = costed(graph)
    for module in report.modules:
        assert module.total == module.own + summed([child.total for child in report.children(module.path)])


@given(graphs(), st.integers(0, 8))
def test_cutting_at_a_depth_keeps_every_total(graph: Graph, depth: int) -> None:
    report = costed(graph)
    cut = report.by_module(depth)
    assert summed([module.own for module in cut]) == report.totals
    assert {module.path: module.total for module in cut} == {
        module.path: module.total for module in report.modules if module.depth <= depth
    }


@given(graphs())
def test_parameters_are_distinct_storages(graph: Graph) -> None:
    report = costed(graph)
    first = [value for value in graph.values if value.storage == value.id]
    weights = [value for value in first if value.role == "param"]
    read = {graph.values[i].storage for op in graph.ops for i in op.inputs} | {
        graph.values[i].storage for i in graph.outputs
    }
    assert report.totals.params == sum(value.spec.numel for value in weights)
    assert report.totals.param_bytes == sum(value.spec.nbytes for value in weights)
    assert report.totals.trainable_params == sum(value.spec.numel for value in weights if value.trainable)
    assert report.totals.unused_params == sum(value.spec.numel for value in weights if value.storage not in read)
    assert report.totals.buffers == sum(value.spec.numel for value in first if value.role == "buffer")


@given(graphs())
def test_counted_and_uncounted_are_all_rows(graph: Graph) -> None:
    report = costed(graph)
    uncounted = sum(found.count for found in report.coverage.uncounted)
    assert report.coverage.counted + uncounted == len(report.rows) == len(graph.ops) == report.totals.ops
    assert uncounted == report.totals.uncounted == sum(row.cost is None for row in report.rows)
    assert report.coverage.complete == all(row.cost is not None for row in report.rows)


@given(graphs())
def test_an_operator_is_uncounted_exactly_if_its_kind_or_its_shape_is_unknown(graph: Graph) -> None:
    for row in costed(graph).rows:
        shapes_known = all(spec.known for spec in (*row.ins, *row.outs))
        assert (row.cost is None) == (row.op.kind == "unknown" or (row.op.kind != "view" and not shapes_known))


@given(graphs())
def test_every_way_to_group_keeps_the_total(graph: Graph) -> None:
    report = costed(graph)
    for groups in (report.by_kind(), report.by_operator(), report.by_type()):
        assert summed([group.stats for group in groups]).cost == report.totals.cost
    assert summed([group.stats for group in report.by_type()]) == report.totals


@given(graphs())
def test_phases_add_up_to_the_total(graph: Graph) -> None:
    report = costed(graph)
    assert total(list(report.phases.values())) == report.totals.cost


@given(graphs())
def test_activations_are_the_storages_that_the_forward_pass_makes(graph: Graph) -> None:
    expected = {}
    for op in graph.ops:
        made = graph.values[op.outputs[0]]
        new = made.storage == made.id  # views and in-place results stand in an older storage
        if op.phase == "forward" and op.kind != "view" and new and made.spec.known:
            expected[op.id] = (made.spec.numel, made.spec.nbytes)
    found = {row.op.id: (row.activations, row.activation_bytes) for row in costed(graph).rows if row.activation_bytes}
    assert found == {number: sizes for number, sizes in expected.items() if sizes[1]}


def peak_by_definition(graph: Graph) -> int:
    """The live storages counted anew at every step."""
    values = graph.values
    size: dict[int, int] = {}
    for value in values:
        size.setdefault(value.storage, value.spec.nbytes if value.spec.known else 0)
    always = {value.storage for value in values if value.role != "activation"}
    kept = {values[i].storage for i in graph.outputs}
    touched = [{values[i].storage for i in (*op.inputs, *op.outputs)} for op in graph.ops]
    made = [{values[i].storage for i in op.outputs} for op in graph.ops]
    sums = [sum(size[storage] for storage in always)]
    for step in range(len(graph.ops)):
        born = set().union(*made[: step + 1])
        needed = kept.union(*touched[step:])
        sums.append(sum(size[storage] for storage in always | (born & needed)))
    return max(sums)


@given(graphs())
def test_peak_memory_is_the_highest_sum_of_live_storages(graph: Graph) -> None:
    found = memory(graph, storage_bytes(graph))
    assert found.peak_bytes == peak_by_definition(graph) == costed(graph).peak_bytes
    assert sum(found.parts.values()) == found.peak_bytes


@given(graphs())
def test_saving_and_reading_back_is_the_identity(graph: Graph) -> None:
    report = costed(graph)
    assert loads(dumps(report)) == report


def chain(count: int, width: int) -> Graph:
    """`count` operators, every other one a product, in blocks of ten layers."""
    spec = TensorSpec((width, width))
    values = (Value(0, "x", spec, "input", 0), *(Value(i, "", spec, "activation", i) for i in range(1, count + 1)))
    blocks = count // 100
    paths = ["", *(f"b{i}" for i in range(blocks)), *(f"b{i}.l{j}" for i in range(blocks) for j in range(10))]
    attrs: list[Attrs] = [{"depth": width}, {"fn": "relu"}]
    ops = tuple(
        Op(
            i,
            "matmul" if i % 2 else "elementwise",
            "test::op",
            (i,),
            (i + 1,),
            attrs[(i + 1) % 2],
            paths[i % len(paths)],
        )
        for i in range(count)
    )
    modules = tuple(Module(path=path, type="Block") for path in paths)
    return Graph(source="", framework="", values=values, ops=ops, modules=modules, inputs=(0,), outputs=(count,))


def test_computing_costs_is_as_much_work_for_each_operator_however_many_there_are() -> None:
    width = 64
    few, many = chain(500, width), chain(5000, width)
    assert costed(many).totals.macs == len(many.ops) // 2 * width**3
    each = [calls(lambda: costed(graph)) / len(graph.ops) for graph in (few, many)]  # noqa: B023
    assert each[1] < min(1.2 * each[0], 60), "some 30 calls now"
