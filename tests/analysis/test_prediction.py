"""The laws by which times are foretold, on calibrations whose times follow a formula."""

import pytest

from opcost.analysis.prediction.predict import GAP_NS, OTHER_NS, predict_report
from opcost.analysis.prediction.speeds import Speeds, fit_laws
from opcost.analysis.prediction.work import work_of
from opcost.core.devices import device
from opcost.core.graph import Cost, Graph, Module, Op, TensorSpec, Value
from opcost.core.report import Report
from opcost.devices.calibration import Calibration, Measured
from opcost.rules import default_rules

H200 = device("h200")
START_NS = 2000


def tensor(*shape: int, dtype: str = "bfloat16") -> TensorSpec:
    return TensorSpec(shape, dtype)


def moved(elements: int) -> Measured:
    """A relu that reaches half of the bandwidth: it reads and writes two bytes for each element."""
    taken = START_NS + 4 * elements / (H200.bandwidth / 2) * 1e9
    x = tensor(elements)
    return Measured("elementwise", "aten::relu", {"fn": "relu"}, (x,), (x,), round(taken))


def product(m: int, n: int, k: int) -> Measured:
    """A product that reaches a quarter of the peak: two operations for each of its m n k products."""
    taken = START_NS + 2 * m * n * k / (H200.peak_flops("bfloat16") / 4) * 1e9
    given = tensor(m, k), tensor(k, n)
    return Measured("matmul", "aten::mm", {"depth": k}, given, (tensor(m, n),), round(taken))


def calibration(*rows: Measured) -> Calibration:
    return Calibration(device="h200", meta={"product": "NVIDIA H200"}, position=len(rows), rows=rows)


MOVED = [moved(2**power) for power in range(8, 28)]
PRODUCTS = [product(2**a, 2**b, 1024) for a in range(7, 14) for b in range(7, 14)]
SPEEDS = Speeds(fit_laws(calibration(*MOVED, *PRODUCTS), default_rules()), H200)


def predicted(row: Measured, speeds: Speeds = SPEEDS) -> float:
    found = default_rules().for_op(row.kind, row.raw)
    assert found
    macs = row.outs[0].numel * row.attrs["depth"] if row.kind == "matmul" else 0  # type: ignore[operator]
    work = work_of(row.kind, row.raw, row.attrs, row.ins, row.outs, Cost(macs, 2 * macs, 0, 0))
    return speeds.time(work).device_ns


@pytest.mark.parametrize("elements", [3 * 2**10, 5 * 2**16, 3 * 2**24])
def test_what_moves_memory_takes_what_its_law_says_between_the_sizes_that_were_timed(elements: int) -> None:
    assert predicted(moved(elements)) == pytest.approx(moved(elements).device_ns, rel=0.05)


def test_a_product_takes_what_its_law_says_between_the_sizes_that_were_timed() -> None:
    between = product(3 * 2**10, 3 * 2**10, 1024)
    assert predicted(between) == pytest.approx(between.device_ns, rel=0.05)


def test_an_operator_that_was_timed_is_predicted_as_it_was_timed() -> None:
    odd = Measured("softmax", "aten::_softmax", {"fn": "softmax"}, (tensor(64, 64),), (tensor(64, 64),), 9_000)
    slow = Measured(
        "softmax", "aten::_softmax", {"fn": "softmax"}, (tensor(4096, 4096),), (tensor(4096, 4096),), 90_000
    )
    speeds = Speeds(fit_laws(calibration(*MOVED, odd, slow), default_rules()), H200)
    assert predicted(odd, speeds) == pytest.approx(9_000, rel=0.05)
    assert predicted(slow, speeds) == pytest.approx(90_000, rel=0.05)


def test_a_device_without_timings_reaches_the_same_shares_of_its_own_peaks() -> None:
    other = device("mi300x")
    speeds = Speeds(fit_laws(calibration(*MOVED, *PRODUCTS), default_rules()), other)
    large = moved(2**27)
    assert predicted(large, speeds) == pytest.approx(START_NS + 4 * 2**27 / (other.bandwidth / 2) * 1e9, rel=0.05)


def test_what_waits_for_its_instructions_is_as_fast_as_these_are_issued() -> None:
    """It reaches half of 4.8 TB/s on an H200, whose memory gives 0.92 of that."""
    laws = fit_laws(calibration(*MOVED, *PRODUCTS), default_rules())

    def rate(name: str) -> float:
        return 4 * 2**27 / (predicted(moved(2**27), Speeds(laws, device(name))) - START_NS) * 1e9

    issued = (2.4e12**-4 - (0.92 * 4.8e12) ** -4) ** -0.25
    for name, multiprocessors in (("h100", 132 * 1980), ("h100-96gb", 132 * 1980), ("a100", 108 * 1410)):
        own = issued * multiprocessors / (132 * 1980), 0.92 * device(name).bandwidth
        both = sum(each**-4 for each in own) ** -0.25
        assert rate(name) == pytest.approx(both, rel=0.05)
        assert rate(name) < min(own)
    # slower memory matters less than in proportion
    assert 1.1 < rate("h200") / rate("h100-96gb") < 1.5


def test_a_device_reaches_the_share_of_its_peak_that_its_products_were_seen_to_reach() -> None:
    h200, a100 = (
        Speeds(fit_laws(calibration(*MOVED, *PRODUCTS), default_rules()), device(n)) for n in ("h200", "a100")
    )
    size = 8192
    large = product(size, size, size)
    times = [
        speeds.time(
            work_of(large.kind, large.raw, large.attrs, large.ins, large.outs, Cost(size**3, 2 * size**3, 0, 0))
        ).device_ns
        - START_NS
        for speeds in (h200, a100)
    ]
    assert times[1] / times[0] == pytest.approx(989.4 / 312 * 0.803 / 0.869, rel=0.02)


def test_what_bounds_an_operator_is_reported() -> None:
    def bound(row: Measured, macs: int = 0) -> str:
        return SPEEDS.time(work_of(row.kind, row.raw, row.attrs, row.ins, row.outs, Cost(macs, 2 * macs, 0, 0))).bound

    assert bound(moved(2**8)) == "launch"
    assert bound(moved(2**27)) == "memory"
    assert bound(product(8192, 8192, 1024), macs=8192 * 8192 * 1024) == "compute"


def test_a_bias_puts_a_product_into_a_family_of_its_own() -> None:
    given = (tensor(8, 4), tensor(4, 16), tensor(16))
    plain = work_of("matmul", "aten::mm", {"depth": 4}, given[:2], (tensor(8, 16),), Cost(512, 1024, 0, 0))
    biased = work_of(
        "matmul", "aten::addmm", {"depth": 4, "bias": True}, given, (tensor(8, 16),), Cost(512, 1024, 0, 0)
    )
    assert (plain.family, biased.family) == ("mm", "addmm")
    assert plain.flops == 2 * 8 * 16 * 4
    assert plain.nbytes == 2 * (8 * 4 + 4 * 16 + 8 * 16)


@pytest.mark.parametrize(
    ("image", "weight", "family"),
    [
        ((1, 8, 9, 9), (16, 8, 3, 3), "conv dense"),
        ((1, 8, 9, 9), (8, 1, 3, 3), "conv depthwise"),
        ((1, 8, 9, 9), (16, 4, 3, 3), "conv grouped"),
    ],
)
def test_families_of_convolutions_differ_by_their_groups(
    image: tuple[int, ...], weight: tuple[int, ...], family: str
) -> None:
    out = tensor(1, weight[0], 7, 7)
    work = work_of("conv", "aten::convolution", {}, (tensor(*image), tensor(*weight)), (out,), Cost(1, 2, 0, 0))
    assert work.family == family


# -- whole models ----------------------------------------------------------------------------------------------------


def report(*ops: tuple[str, str, str, dict[str, object]], elements: int = 2**20) -> Report:
    """A model of operators of one tensor each."""
    from opcost.analysis.costing import cost_graph

    spec = tensor(elements)
    values = tuple(Value(i, f"v{i}", spec, "input" if i == 0 else "activation", i) for i in range(len(ops) + 1))
    made = tuple(
        Op(i, kind, raw, (i,), (i + 1,), attrs, phase=phase)  # type: ignore[arg-type]
        for i, (phase, kind, raw, attrs) in enumerate(ops)
    )
    graph = Graph(source="made", framework="torch", values=values, ops=made, modules=(Module(path="", type="Made"),))
    return cost_graph(graph, default_rules())


RELU = ("forward", "elementwise", "aten::relu", {"fn": "relu"})


def test_the_rows_add_up_to_the_latency_and_the_gaps_are_left_out_of_the_kernels() -> None:
    found = predict_report(report(RELU, RELU, RELU), SPEEDS, {"device": "h200"}, calibrated=True)
    assert len(found.profile.rows) == 3
    assert sum(row.device_ns or 0 for row in found.profile.rows) == found.latency_ns == sum(found.bounds.values())
    later = OTHER_NS
    assert found.kernel_ns == found.latency_ns - 3 * (GAP_NS + later)
    assert found.latency_ns == pytest.approx(3 * (moved(2**20).device_ns + later), rel=0.05)
    # At the printed bandwidth: 4 bytes for each of 2**20 elements, three times.
    assert found.ideal_ns == round(3 * 4 * 2**20 / H200.bandwidth * 1e9)


def test_the_band_holds_the_latency_and_is_wider_for_a_device_that_was_not_timed() -> None:
    sure = predict_report(report(RELU), SPEEDS, {"device": "h200"}, calibrated=True)
    unsure = predict_report(report(RELU), SPEEDS, {"device": "h200"}, calibrated=False)
    assert sure.band_ns[0] < sure.latency_ns < sure.band_ns[1]
    assert unsure.band_ns[1] > sure.band_ns[1]


def test_an_operator_that_was_never_timed_is_named_and_widens_the_band() -> None:
    sort = ("forward", "sort", "aten::sort", {"length": 2**20})
    known = predict_report(report(RELU, RELU), SPEEDS, {"device": "h200"}, calibrated=True)
    guessed = predict_report(report(RELU, sort), SPEEDS, {"device": "h200"}, calibrated=True)
    assert not known.profile.notes
    assert [note.text for note in guessed.profile.notes if "aten::sort (1x): nothing like it" in note.text]
    width = lambda found: (found.band_ns[1] - found.band_ns[0]) / found.latency_ns
    assert width(guessed) > width(known)


def test_an_operator_far_larger_than_all_that_was_timed_is_not_said_to_be_untimed() -> None:
    small = predict_report(report(RELU), SPEEDS, {"device": "h200"}, calibrated=True)
    large = predict_report(report(RELU, elements=2**44), SPEEDS, {"device": "h200"}, calibrated=True)
    assert not small.profile.notes
    (note,) = large.profile.notes
    assert note.text.startswith("aten::relu (1x): nothing like it in size was timed on this device")


def test_views_take_no_time_and_are_no_rows() -> None:
    found = predict_report(
        report(RELU, ("forward", "view", "aten::view", {})), SPEEDS, {"device": "h200"}, calibrated=True
    )
    assert [row.type for row in found.profile.rows] == ["aten::relu"]


def test_an_optimizer_starts_once_for_all_parameters() -> None:
    step = ("update", "elementwise", "aten::mul_", {"fn": "mul"})
    few = predict_report(report(RELU, *[step] * 2, elements=256), SPEEDS, {"device": "h200"}, calibrated=True)
    many = predict_report(report(RELU, *[step] * 100, elements=256), SPEEDS, {"device": "h200"}, calibrated=True)
    # A kernel has room for 110 tensors, and each one's few elements for a block of their own.
    assert many.latency_ns == pytest.approx(few.latency_ns, abs=100)


def test_the_state_that_an_optimizer_makes_in_its_first_step_is_not_made_again() -> None:
    first = ("update", "create", "aten::zeros_like", {})
    with_state = predict_report(report(RELU, first), SPEEDS, {"device": "h200"}, calibrated=True)
    assert [row.phase for row in with_state.profile.rows] == ["forward"]


def test_how_memory_lies_is_a_family_where_it_was_timed_and_else_none() -> None:
    given, joined = (tensor(1 << 20), tensor(1 << 20)), tensor(2 << 20)
    alike = Measured("copy", "aten::cat", {}, given, (joined,), 10_000)
    apart = Measured("copy", "aten::cat", {"strided": True}, given, (joined,), 30_000)
    work = work_of("copy", "aten::cat", apart.attrs, given, (joined,), None)
    for rows, taken in (((alike,), 10_000), ((alike, apart), 30_000)):
        found = Speeds(fit_laws(calibration(*rows), default_rules()), H200).time(work)
        assert found.known
        assert found.device_ns == pytest.approx(taken)
