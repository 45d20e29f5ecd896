"""The ways to run: as a graph, eagerly, and with simple operators merged."""

import pytest
import torch
from torch import nn

import opcost
from opcost.analysis.prediction.fusion import compiled, merged
from opcost.analysis.prediction.host import Host
from opcost.analysis.prediction.predict import COMPILED_NS, PRODUCT_NS, predict_report
from opcost.analysis.prediction.speeds import Speeds, fit_laws
from opcost.core.devices import device
from opcost.core.graph import TensorSpec
from opcost.devices.calibration import Calibration, Measured
from opcost.errors import InputError
from opcost.rules import default_rules

N = 1024
MIB = N * N * 4 // 2**20


def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Two merged groups around a product: relu, add, then a softmax with what is done to it."""
    y = (x.relu() + 1.0).t() @ w
    return (y.view(N, N).softmax(-1) * 2.0).sigmoid()


def counted() -> opcost.Report:
    with torch.no_grad():
        return opcost.count(chain, (torch.empty(N, N), torch.empty(N, N)))


def test_chains_are_one_kernel_that_moves_memory_only_at_its_edges() -> None:
    report = counted()
    first, product, second = merged(report.rows, report.output_values)
    assert first.op.raw == "merged relu, add"
    assert second.op.raw == "merged _softmax, mul, sigmoid"
    assert product.op.kind == "matmul"
    for group in (first, second):
        assert group.cost
        assert (group.cost.bytes_read, group.cost.bytes_written) == (MIB * 2**20, MIB * 2**20)


class Part(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.relu() + 1.0).sigmoid()


def test_of_modules_that_are_compiled_alone_nothing_is_merged_with_another() -> None:
    report = opcost.count(nn.Sequential(Part(), Part(), nn.Tanh()), torch.empty(N, N))
    whole, first, both = ([kernel.row for kernel in compiled(report, only)] for only in ((), ("0",), ("0", "1")))
    assert [row.op.raw for row in whole] == ["merged relu, add, sigmoid and 1 more"]
    simple = ["aten::relu", "aten::add", "aten::sigmoid"]
    assert [row.op.raw for row in first] == ["merged relu, add, sigmoid", *simple, "aten::tanh"]
    assert [row.op.raw for row in both] == ["merged relu, add, sigmoid"] * 2 + ["aten::tanh"]
    assert all(row.cost is not None and row.cost.bytes_written == MIB * 2**20 for row in (*whole, *first, *both))
    with pytest.raises(InputError, match="matches no module"):
        compiled(report, ("2.*",))


def test_what_a_kernel_between_reads_is_written_and_no_group_needs_what_comes_after_it() -> None:
    def branched(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a = x.relu()
        return (a + a @ w).sigmoid()

    report = opcost.count(branched, (torch.empty(N, N), torch.empty(N, N)))
    rows = merged(report.rows, report.output_values)
    assert [row.op.raw for row in rows] == ["aten::relu", "aten::mm", "merged add, sigmoid"]
    assert rows[2].cost
    assert rows[2].cost.bytes_read == 2 * MIB * 2**20


def test_what_only_a_larger_result_reads_is_calculated_within_it() -> None:
    def spread(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.cos() * y

    def read_twice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a = x.cos()
        return (a @ y) + (a * y)

    given = torch.empty(1, N), torch.empty(N, N)
    for net, kernels in ((spread, ["merged cos, mul"]), (read_twice, ["aten::cos", "aten::mm", "merged mul, add"])):
        report = opcost.count(net, given)
        assert [row.op.raw for row in merged(report.rows, report.output_values)] == kernels


def test_a_compiler_puts_channels_side_by_side_and_adds_a_bias_later() -> None:
    plain, grouped = torch.nn.Conv2d(128, 128, 3), torch.nn.Conv2d(128, 128, 3, groups=4)
    for net, is_laid_out in ((plain, True), (grouped, False)):
        report = opcost.count(net, torch.empty(1, 128, 8, 8))
        rows = [row for row in merged(report.rows, report.output_values) if row.op.kind == "conv"]
        assert {bool(row.op.attrs.get("channels_last")) for row in rows} == {is_laid_out}
        assert {len(row.ins) for row in rows} == {2}


def timed(kind: str, raw: str, attrs: dict[str, object], host_ns: int) -> Measured:
    x = TensorSpec((N, N))
    return Measured(kind, raw, attrs, (x, x), (x,), 1000, host_ns)  # type: ignore[arg-type]


HOST_NS = 8000
ROWS = (
    timed("elementwise", "aten::relu", {"fn": "relu"}, HOST_NS),
    timed("matmul", "aten::mm", {"depth": N}, 3 * HOST_NS),
)
SPEEDS = Speeds(fit_laws(Calibration(device="h200", meta={}, position=0, rows=ROWS), default_rules()), device("h200"))


def test_eagerly_nothing_starts_before_the_host_has_come_to_it() -> None:
    report = counted()
    meta = {"device": "h200"}
    graph = predict_report(report, SPEEDS, meta, calibrated=True)
    one = Host(SPEEDS.starts, {}, {"view": HOST_NS // 8}, spread=0.2)
    eager = predict_report(report, SPEEDS, meta, calibrated=True, execution="eager", host=one)
    host = sum(one.operator_ns(row, recorded=False) for row in report.rows)
    last = eager.profile.rows[-1].device_ns
    assert last
    assert eager.latency_ns == pytest.approx(host + last, rel=0.01)  # every kernel is shorter than its start
    assert eager.bounds["host"] == eager.latency_ns - graph.latency_ns
    assert graph.bounds["host"] == 0
    assert eager.kernel_ns == graph.kernel_ns
    assert eager.band_ns[1] - eager.band_ns[0] > graph.band_ns[1] - graph.band_ns[0]


def test_a_slow_kernel_hides_the_host() -> None:
    with torch.device("meta"):
        model = nn.Sequential(*[nn.Linear(16384, 16384, bias=False) for _ in range(4)]).to(torch.bfloat16)
        x = torch.empty(16384, 16384, dtype=torch.bfloat16)
    graph = opcost.predict(model, (x,), device="h200")
    eager = opcost.predict(model, (x,), device="h200", execution="eager")
    assert graph.latency_ns < eager.latency_ns < 1.02 * graph.latency_ns


def test_shares_tell_the_time_of_each_module_and_what_it_waits_for() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8192, 8192), nn.ReLU()).to(torch.bfloat16)
        x = torch.empty(8192, 8192, dtype=torch.bfloat16)
    found = opcost.predict(model, (x,), device="h200")
    by_module = {share.key: share for share in found.shares("module")}
    assert sum(share.time_ns for share in by_module.values()) == found.latency_ns
    assert sum(share.ideal_ns for share in by_module.values()) == pytest.approx(found.ideal_ns, abs=2)
    assert by_module["0"].bounds == {"compute": by_module["0"].time_ns}
    assert by_module["1"].bounds == {"memory": by_module["1"].time_ns}
    bounds = {line.labels["bound"]: line.time_ns for line in found.query(aggregate_by="bound")}
    assert bounds == {name: taken for name, taken in found.bounds.items() if taken}


def test_an_unknown_execution_is_an_error() -> None:
    with pytest.raises(opcost.OpcostError, match="did you mean 'eager'"):
        opcost.predict(nn.ReLU(), (torch.empty(4),), execution="eagr")  # type: ignore[arg-type]


def test_an_execution_without_measured_models_says_so_and_has_a_wider_interval() -> None:
    with torch.device("meta"):
        model = nn.Linear(4096, 4096).to(torch.bfloat16)
        x = torch.empty(512, 4096, dtype=torch.bfloat16)
    graph = opcost.predict(model, (x,), device="h200")
    compiled = opcost.predict(model, (x,), device="h200", execution="compiled")
    # There is nothing to merge, and the product starts earlier.
    assert compiled.latency_ns == graph.latency_ns - PRODUCT_NS + COMPILED_NS
    assert compiled.band_ns[1] > graph.band_ns[1]
    assert [note.code for note in compiled.notes] == ["unchecked-band"]
    assert not graph.notes


def test_writing_into_a_cache_touches_only_what_is_written() -> None:
    def enter(cache: torch.Tensor, place: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        return cache.index_copy_(2, place, new)

    with torch.device("meta"):
        tensors = torch.empty(8, 8, 65536, 128), torch.zeros(1, dtype=torch.int64), torch.empty(8, 8, 1, 128)
    found = opcost.predict(enter, tensors, device="h200")
    moved = 2 * 8 * 8 * 128 * 4 + 8  # read and written, and the place
    assert found.ideal_ns == pytest.approx(moved / device("h200").bandwidth * 1e9, abs=1)


def test_a_device_without_calibration_is_an_estimate_that_names_what_it_lacks() -> None:
    with torch.device("meta"):
        model = nn.Linear(4096, 4096).to(torch.bfloat16)
        x = torch.empty(2048, 4096, dtype=torch.bfloat16)
    h100, v100 = (opcost.predict(model, (x,), device=name) for name in ("h100", "v100"))
    assert [note.code for note in h100.notes] == ["estimate"]
    assert [note.code for note in v100.notes] == ["estimate", "estimate"]
    assert "products of bfloat16 is printed: that of float32" in v100.notes[1].text
    known = opcost.predict(model, (x,), device="h200")
    assert h100.band_ns[1] / h100.latency_ns > known.band_ns[1] / known.latency_ns


def test_float16_is_as_fast_as_the_other_type_of_its_size() -> None:
    times = []
    for dtype in (torch.bfloat16, torch.float16):
        with torch.device("meta"):
            model, x = nn.Linear(4096, 4096).to(dtype), torch.empty(2048, 4096, dtype=dtype)
        found = opcost.predict(model, (x,), device="h200")
        assert not found.notes
        times.append(found.latency_ns)
    assert times[0] == times[1]
