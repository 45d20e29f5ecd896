"""A log that TensorBoard's own readers open: the event accumulator and the graph page's backend."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tensorboard import context
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.compat.proto import config_pb2, graph_pb2
from tensorboard.plugins import base_plugin
from tensorboard.plugins.graph.graphs_plugin import GraphsPlugin
from tensorboard.util.tensor_util import make_ndarray

import opcost
from opcost.core.graph import Graph, Module, Op, TensorSpec, Value
from opcost.core.report import Report
from opcost.errors import MissingFramework, OpcostError
from opcost.rules.registry import Rules
from opcost.views.tensorboard import COLOURS, FLOPS_PER_MICROSECOND, TEXT, Dataflow

MGE = Path(__file__).resolve().parents[1] / "data/megengine/mge"


def log(report: Report, folder: Path) -> EventAccumulator:
    assert Path(report.to_tensorboard(str(folder))).parent == folder
    return EventAccumulator(str(folder)).Reload()


def nodes(graph: Any) -> dict[str, Any]:
    found = {node.name: node for node in graph.node}
    assert len(found) == len(graph.node)
    return found


def stats(events: EventAccumulator) -> dict[str, Any]:
    (device,) = events.RunMetadata(COLOURS).step_stats.dev_stats
    return {stat.node_name: stat for stat in device.node_stats}


def test_scopes_are_module_paths_and_edges_lead_to_nodes(plain: Report, tmp_path: Path) -> None:
    found = nodes(log(plain, tmp_path).Graph())
    assert {
        "images",
        "patch_embed/weight",
        "patch_embed/convolution",
        "blocks/0/fc1/addmm",
        "head/addmm",
        "output",
    } <= set(found)
    for node in found.values():
        for edge in node.input:
            assert edge.partition(":")[0] in found
    assert list(found["blocks/0/fc1/addmm"].input) == ["view", "blocks/0/fc1/weight", "blocks/0/fc1/bias"]
    assert list(found["output"].input) == ["head/addmm"]
    assert found["head/addmm"].op == "aten::addmm"


def test_a_node_has_its_shapes_type_and_cost(plain: Report, tmp_path: Path) -> None:
    found = nodes(log(plain, tmp_path).Graph())
    rows = {node.name: node.row for node in Dataflow(plain).nodes if node.row is not None}
    assert len(rows) == len(plain.rows)
    for name, row in rows.items():
        attr = found[name].attr
        (shape,) = attr["_output_shapes"].list.shape
        assert tuple(dim.size for dim in shape.dim) == row.outs[0].dims
        assert attr["dtype"].s == b"float32"
        assert attr["flops"].i == row.cost.flops
        assert attr["macs"].i == row.cost.macs
        assert attr["kind"].s.decode() == row.op.kind
        if row.op.all_attrs:
            assert attr["params"].s.decode() == ", ".join(f"{name}={value}" for name, value in row.op.all_attrs.items())
    weight = found["head/weight"].attr
    parameter = next(p for p in plain.parameters if p.name == "head.weight")
    assert weight["params"].i == parameter.spec.numel
    assert weight["size"].s.decode() == "3.75 KiB"
    assert parameter.spec.nbytes == 3.75 * 1024


def test_the_numbers_of_all_nodes_are_the_totals(plain: Report, odd: Report, tmp_path: Path) -> None:
    for name, report in {"plain": plain, "odd": odd}.items():
        events = log(report, tmp_path / name)
        found = nodes(events.Graph())
        for quantity in ("flops", "macs", "bytes_read", "bytes_written", "activations"):
            assert sum(node.attr[quantity].i for node in found.values()) == getattr(report.totals, quantity)
        params = [node for node in found.values() if node.op == "Parameter"]
        assert sum(node.attr["params"].i for node in params) == report.totals.params
        memory = stats(events)
        used_bytes: dict[str, int] = {}
        for stat in memory.values():
            for used in stat.memory:
                used_bytes[used.allocator_name] = used_bytes.get(used.allocator_name, 0) + used.total_bytes
        assert used_bytes["activations"] == report.totals.activation_bytes
        assert used_bytes["parameters"] == report.totals.param_bytes + report.totals.buffer_bytes


def test_times_are_flops_one_operator_after_the_other(plain: Report, tmp_path: Path) -> None:
    events = log(plain, tmp_path)
    found = stats(events)
    end = 1
    for node in Dataflow(plain).nodes:
        stat = found[node.name]
        flops = node.row.cost.flops if node.row is not None else 0
        assert stat.all_end_rel_micros == -(-flops // FLOPS_PER_MICROSECOND)
        assert stat.all_start_micros == end > 0  # a zero would be left out on the way to the browser
        end += stat.all_end_rel_micros


def test_the_report_is_text_and_no_page_before_the_graph_has_anything(plain: Report, tmp_path: Path) -> None:
    events = log(plain, tmp_path)
    assert events.Tags()["tensors"] == [TEXT]
    assert events.PluginTagToContent("text").keys() == {TEXT}
    assert make_ndarray(events.Tensors(TEXT)[0].tensor_proto).item() == plain.render("md").encode()


def backend(folder: Path) -> tuple[GraphsPlugin, Any]:
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(folder)).Reload()
    provider = MultiplexerDataProvider(multiplexer, str(folder))
    return GraphsPlugin(base_plugin.TBContext(logdir=str(folder), data_provider=provider)), context.RequestContext()


def test_the_graph_page_serves_it(plain: Report, tmp_path: Path) -> None:
    log(plain, tmp_path)
    plugin, request = backend(tmp_path)
    info = plugin.info_impl(request, experiment="")
    ((run, about),) = info.items()
    assert about["run_graph"]
    assert about["tags"][COLOURS]["profile"]
    served, kind = plugin.graph_impl(request, run, None, False, "")
    assert kind == "text/x-protobuf"
    graph = text_format.Parse(served, graph_pb2.GraphDef())
    assert len(graph.node) == len(Dataflow(plain).nodes)
    metadata, _ = plugin.run_metadata_impl(request, "", run, COLOURS)
    parsed = text_format.Parse(metadata, config_pb2.RunMetadata())
    assert len(parsed.step_stats.dev_stats[0].node_stats) == len(graph.node)


def test_the_text_is_the_graph_in_a_form_that_can_be_uploaded(plain: Report) -> None:
    graph = text_format.Parse(plain.render("tensorboard"), graph_pb2.GraphDef())
    assert set(nodes(graph)) == {node.name for node in Dataflow(plain).nodes}


def test_unknown_and_repeated_operators_and_the_backward_pass_are_marked(odd: Report, tmp_path: Path) -> None:
    found = nodes(log(odd, tmp_path).Graph())
    twist = found["twister/twist"].attr
    assert twist["uncounted"].b
    assert "flops" not in twist
    assert found["mul"].attr["repeat"].i == 5
    assert (
        found["mul"].attr["activations"].i == 5 * next(r for r in odd.rows if r.op.raw == "aten::mul").activations > 0
    )
    assert list(found["backward/lm_head/mm"].input)[-1] == "embed/weight"  # the tied weight is where it is defined
    unknown = found["where"].attr["_output_shapes"].list.shape[0]
    assert unknown.dim[0].size == -1
    assert not found["spare/0/weight"].attr["used"].b


def two_outputs(names: tuple[str, str], raw: str = "lib::split/a:b", module: str = "") -> Report:
    """An operator with two outputs, of which the second is read, in modules of strange names."""
    from opcost.analysis.costing import cost_graph

    spec = TensorSpec((2, 3))
    values = [Value(0, "x y/z", spec, "input", 0), *(Value(i, "", spec, "activation", i) for i in (1, 2, 3))]
    ops = (Op(0, "unknown", raw, (0,), (1, 2), {}, module), Op(1, "unknown", "lib::use", (2, 1), (3,), {}, names[0]))
    modules = [Module(path="", type="Net"), *(Module(path=name, type="Part") for name in names)]
    graph = Graph(
        source="", framework="", values=tuple(values), ops=ops, modules=tuple(modules), inputs=(0,), outputs=(3,)
    )
    return cost_graph(graph, Rules())


def test_slashes_and_colons_in_names_open_no_scope(tmp_path: Path) -> None:
    report = two_outputs(("part/one:1", "use"))
    found = nodes(log(report, tmp_path).Graph())
    assert set(found) == {"x_y_z", "split_a_b", "part_one_1/use", "output"}
    assert list(found["part_one_1/use"].input) == ["split_a_b:1", "split_a_b"]
    assert len(found["split_a_b"].attr["_output_shapes"].list.shape) == 2


def test_no_node_has_the_name_of_a_scope() -> None:
    report = two_outputs(("split", "use"), raw="lib::split")
    names = [node.name for node in Dataflow(report).nodes]
    assert "split" not in names
    assert "2.split" in names


@pytest.mark.parametrize("name", ["mlp.v2", "dwnet_nogn.v1", "op_condtake.v2", "qnet_qint8.v2"])
def test_dumps_of_megengine_are_drawn(name: str, tmp_path: Path) -> None:
    report = opcost.count(MGE / f"{name}.mge")
    found = nodes(log(report, tmp_path).Graph())
    assert sum(node.attr["flops"].i for node in found.values()) == report.totals.flops
    for node in found.values():
        assert all(edge.partition(":")[0] in found for edge in node.input)
        assert node.op == "Input" or node.op in ("Parameter", "Buffer", "Const") or node.input


SERIES = re.compile(r"\D*\d+")
"""What TensorBoard takes for members of a row: nodes with a number at the end of the last word."""


def test_operators_of_one_name_are_no_row_for_tensorboard() -> None:
    report = opcost.count(MGE.parent / "parity/transformer.v2.mge")
    operators = [node for node in Dataflow(report).nodes if node.row is not None]
    assert sum(node.op == "mge::Reshape" for node in operators) > 5
    assert not [node.name for node in operators if SERIES.fullmatch(node.name.rpartition("/")[2])]


def test_what_only_works_out_shapes_has_a_box_of_its_own() -> None:
    report = opcost.count(MGE.parent / "parity/transformer.v2.mge")
    found = {node.name: node for node in Dataflow(report).nodes}
    boxed = {name: node for name, node in found.items() if "shapes" in name.split("/")}
    assert {"mge::GetVarShape", "mge::Concat"} <= {node.op for node in boxed.values()}
    assert not any(node.row is not None and node.row.cost and node.row.cost.flops for node in boxed.values())
    target = found["Reshape"].inputs[1]
    assert target in boxed  # the shape that it takes on is drawn as an input


def test_an_operator_of_many_functions_says_which_it_is() -> None:
    names = {node.name for node in Dataflow(opcost.count(MGE / "mlp.v2.mge")).nodes}
    assert "fc1/Elemwise.FUSE_ADD_RELU" in names


def test_every_log_has_a_file_of_its_own(plain: Report, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "log"
    assert plain.to_tensorboard(str(folder)) != plain.to_tensorboard(str(folder))
    assert len(list(folder.iterdir())) == 2


def test_a_folder_that_cannot_be_written_is_reported(plain: Report, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OpcostError, match=r"cannot be written to .*file"):
        plain.to_tensorboard(str(tmp_path / "file"))


def test_without_the_package_the_error_says_what_to_install(
    plain: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("tensorboard.compat.proto")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with pytest.raises(MissingFramework, match=r"pip install 'opcost\[tensorboard\]'"):
        plain.to_tensorboard(str(tmp_path / "log"))
    assert not (tmp_path / "log").exists()


def test_it_is_written_without_any_framework(plain: Report, tmp_path: Path) -> None:
    plain.save(str(tmp_path / "net.json"))
    code = (
        f"import opcost, sys; opcost.load_report({str(tmp_path / 'net.json')!r}).to_tensorboard({str(tmp_path / 'log')!r}); "
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert {"torch", "tensorflow", "megengine", "mxnet"}.isdisjoint(done.stdout.split())


def test_numbers_beyond_what_tensorboard_holds_are_cut_or_text(tmp_path: Path) -> None:
    from opcost.analysis.costing import cost_graph

    huge = TensorSpec((2**70, 3))
    values = (Value(0, "x", huge, "input", 0), Value(1, "", huge, "activation", 1))
    graph = Graph(
        source="",
        framework="",
        values=values,
        ops=(Op(0, "copy", "lib::huge", (0,), (1,), {}),),
        modules=(Module(path="", type="Net"),),
        inputs=(0,),
        outputs=(1,),
    )
    rules = Rules()
    rules.add("copy", lambda op: op.cost(flops=op.outs[0].numel))
    events = log(cost_graph(graph, rules), tmp_path)
    attr = nodes(events.Graph())["huge"].attr
    assert attr["flops"].s.decode() == str(3 * 2**70)
    assert [dim.size for dim in attr["_output_shapes"].list.shape[0].dim] == [2**63 - 1, 3]
    assert stats(events)["huge"].memory[0].total_bytes == 2**63 - 1


def test_many_namesakes_cost_no_more_than_others(plain: Report) -> None:
    repeated = dataclasses.replace(plain, rows=plain.rows[-1:] * 30_000)
    start = time.process_time()
    names = [node.name for node in Dataflow(repeated).nodes]
    assert len(set(names)) == len(names) > 30_000
    assert time.process_time() - start < 3


def test_a_large_model_is_written_in_a_moment(big: Callable[[int, int], Report], tmp_path: Path) -> None:
    report = big(1000, 5000)
    events = log(report, tmp_path)
    assert len(events.Graph().node) == 5000 + 900 + 2
