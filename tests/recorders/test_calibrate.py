"""What is timed, and that a calibration that was broken off goes on."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sampling import FULL
from torch import Tensor

import opcost
from opcost.core.graph import TensorSpec
from opcost.devices.calibration import DOCUMENT
from opcost.devices.hosts import shipped_host
from opcost.errors import InputError
from opcost.frontends.options import CountOptions
from opcost.frontends.torch import FRONTEND
from opcost.recorders.calibration import plan as plan_module
from opcost.recorders.calibration import run as run_module
from opcost.recorders.calibration.plan import Case, packed, plan, unpacked
from opcost.recorders.calibration.replay import calls_of
from opcost.recorders.calibration.run import DTYPES, GPU, PROCESSOR, fitting, run

CPU = torch.device("cpu")
CASES = list(plan())


def product(**how: object) -> Case:
    """A product of 3 x 4 and 4 x 5, whose second factor has these settings."""
    left, right = TensorSpec((3, 4), "float32"), TensorSpec((4, 5), "float32")
    args = [{"shape": [3, 4], "dtype": "float32"}, {"shape": [4, 5], "dtype": "float32", **how}]
    made = (TensorSpec((3, 5), "float32"),)
    return Case("aten.mm.default", args, {}, "matmul", "aten::mm", {"depth": 4}, (left, right), made, 2 * 3 * 4 * 5)


def test_the_plan_begins_with_operators_of_every_sort_in_both_types() -> None:
    kinds = {(case.kind, case.dtype) for case in CASES[:1500]}
    wanted = ("matmul", "conv", "attention", "norm", "softmax", "elementwise", "copy", "reduce", "pool", "embedding")
    assert {(kind, dtype) for kind in wanted for dtype in ("bfloat16", "float32")} <= kinds


def test_no_case_comes_twice() -> None:
    assert len({repr(case) for case in CASES}) == len(CASES)


def test_cases_for_a_device_are_of_its_types_and_not_too_large_for_it() -> None:
    small = list(fitting(CASES, ("float32",), PROCESSOR))
    assert len(small) > 1000
    assert {case.dtype for case in small} == {"float32"}
    assert max(case.nbytes for case in small) <= PROCESSOR.nbytes
    assert max(case.flops for case in small) <= PROCESSOR.flops32
    assert len(list(fitting(CASES, DTYPES["cuda"], GPU))) == len(CASES)


def sampled(cases: list[Case], few: int) -> list[Case]:
    return cases[:: max(1, len(cases) // (10 * few if FULL else few))]


@pytest.mark.parametrize("case", sampled(CASES, 60), ids=lambda case: case.call)
def test_a_case_is_the_operator_that_a_count_of_its_call_finds(case: Case) -> None:
    graph = FRONTEND.load(calls_of(case, torch.device("meta"), 1)[0], CountOptions(inputs=()))
    op = next(op for op in reversed(graph.ops) if op.kind != "view")
    attrs = {name: value for name, value in op.attrs.items() if name != "copied"}  # matters to its memory alone
    assert (op.kind, op.raw, attrs) == (case.kind, case.raw, dict(case.attrs))
    made = tuple(graph.values[i].spec for i in op.outputs)
    assert made[0] == case.outs[0]
    assert made == case.outs or case.raw == "aten::native_batch_norm"  # whose statistics depend on the kernel


def test_a_file_of_cases_gives_them_back() -> None:
    some = [*CASES[:20], product(cold=True)]
    assert list(unpacked(packed(some))) == some


def test_a_tensor_from_the_cache_is_the_same_each_time_and_one_from_memory_is_not() -> None:
    spec = TensorSpec((3,), "float32")
    for cold, tensors_used in ((False, 1), (True, 3)):
        args = [{"shape": [3], "dtype": "float32", "cold": cold}]
        same = Case("aten.alias.default", args, {}, "view", "aten::alias", {}, (spec,), (spec,), 0)
        found = [call() for call in calls_of(same, CPU, 3)]
        assert len({tensor.data_ptr() for tensor in found}) == tensors_used


def test_integers_are_indices_of_what_they_index() -> None:
    table, places = TensorSpec((7, 2), "float32"), TensorSpec((500,), "int64")
    args = [{"shape": [7, 2], "dtype": "float32"}, {"shape": [500], "dtype": "int64", "below": 7}]
    case = Case("aten.embedding.default", args, {}, "embedding", "aten::embedding", {}, (table, places), (), 0)
    assert calls_of(case, CPU, 1)[0]().shape == (500, 2)


def test_an_operator_that_is_not_here_has_no_times() -> None:
    cases = [product()._replace(call="aten.no_such_operator.default", raw="aten::none"), product()]
    found = []
    run(CPU, 60, 0, lambda number, name, row: found.append((number, name, row is None)), cases=cases)
    assert found == [(1, "aten::none", True), (2, "aten::mm", False)]


def test_a_failure_while_a_row_is_kept_is_not_hidden() -> None:
    def keep(*_: object) -> None:
        raise RuntimeError("no space left")

    with pytest.raises(RuntimeError, match="no space left"):
        run(CPU, 60, 0, keep, cases=[product()])


def test_operators_that_fail_are_counted_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = product()._replace(call="aten.no_such_operator.default", raw="aten::none")
    monkeypatch.setattr(run_module, "plan", lambda: iter([broken, product(), broken]))
    path = tmp_path / "cpu.json"
    found = opcost.calibrate(path, device="cpu", seconds=5, force=True)
    assert found.left_out == {"aten::none": 2}
    assert [row.raw for row in found.rows] == ["aten::mm"]
    assert DOCUMENT.load(path) == found


@pytest.mark.parametrize("failure", [RuntimeError("illegal"), TimeoutError("it did not end")], ids=str)
def test_a_device_that_no_longer_works_ends_the_calibration_and_keeps_what_was_timed(
    failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_device: object = None) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    def clock(case: Case, **_: object) -> tuple[int, int, int]:
        if case.raw == "aten::bad":
            raise failure
        return 1, 2, 3

    cases = [product(), product()._replace(raw="aten::bad"), product()]
    monkeypatch.setattr(run_module, "plan", lambda: iter(cases))
    monkeypatch.setattr(run_module, "timed_on_cuda", clock)
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", gone)
    monkeypatch.setattr(run_module, "machine", lambda _: {"product": "NVIDIA H200", "torch": torch.__version__})
    path = tmp_path / "h200.json"
    with pytest.raises(InputError, match=f"can no longer be used since aten::bad failed on it: {failure}"):
        opcost.calibrate(path, device="cuda", seconds=60)
    kept = DOCUMENT.load(path)
    assert (len(kept.rows), kept.position, kept.left_out) == (1, 2, {"aten::bad": 1})


class Stream:
    """A stream on which calls run at once."""

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True


class Clock:
    """Moments that only calls bring forward, and events on a stream at such moments."""

    now = 0

    def perf_counter_ns(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1e9

    def event(self, **_: object) -> SimpleNamespace:
        made = SimpleNamespace(synchronize=lambda: None)
        made.record = lambda _: setattr(made, "at", self.now)
        made.elapsed_time = lambda end: (end.at - made.at) / 1e6
        return made


@pytest.mark.parametrize(
    ("taken", "calls"),
    [
        (100_000, 8 * (3 + 1 + 7) + 2),
        (300_000, 3 * (3 + 1 + 7) + 2),
        (2_000_000, 1 * (3 + 1 + 3) + 2),
        (500_000_000, 1 * (3 + 1 + 1) + 2),
    ],
)
def test_a_call_that_takes_long_is_repeated_a_few_times_only(
    taken: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two calls to begin with, three rounds for the host, one replay, and those that are timed.

    At most eight calls in a row, as many as fit into one millisecond, and at most seven rounds, as many as fit into seven.
    """
    clock = Clock()

    def call() -> None:
        clock.now += taken
        made.append(1)

    made: list[int] = []
    for name in ("reset_peak_memory_stats", "memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda _: 0)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", clock.event)
    monkeypatch.setattr(run_module, "time", clock)
    replayed = lambda calls, *_: SimpleNamespace(replay=lambda: [each() for each in calls])
    monkeypatch.setattr(run_module, "capture", replayed)
    monkeypatch.setattr(run_module, "calls_of", lambda _case, _device, times: [call] * times)
    assert run_module.timed_on_cuda(product(), CPU, Stream()) == (taken, taken, 0)  # type: ignore[arg-type]
    assert len(made) == calls


def test_a_call_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "STUCK", 0)
    with pytest.raises(TimeoutError, match="did not end"):
        run_module._end(SimpleNamespace(query=lambda: False))


def test_a_file_of_another_plan_is_continued_from_the_first_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cpu.json"
    first = opcost.calibrate(path, device="cpu", seconds=0, force=True)
    assert opcost.calibrate(path, device="cpu", seconds=0, force=True).position == first.position + 1
    monkeypatch.setattr(plan_module, "plan_id", lambda: "another")
    again = opcost.calibrate(path, device="cpu", seconds=0, force=True)
    assert again.position == 1
    assert again.rows[: len(first.rows)] == first.rows
    assert again.meta["plan"] == "another"


@pytest.mark.parametrize("case", sampled(list(fitting(CASES, ("float32",), PROCESSOR)), 25), ids=lambda case: case.call)
def test_cases_run_on_a_processor(case: Case) -> None:
    calls_of(case, CPU, 1)[0]()


@pytest.mark.parametrize("keys", [2, 4], ids=["shared keys", "as many keys"])
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
def test_attention_is_timed_by_the_kernel_that_the_device_chooses(
    monkeypatch: pytest.MonkeyPatch, keys: int, masked: bool
) -> None:
    """Not by that of the count, which was seen on another device; the mask has numbers for each head, and is learned."""
    given = []
    attention = F.scaled_dot_product_attention

    def seen(*args: Tensor, **kwargs: Any) -> Tensor:
        given.append((args, kwargs))
        return attention(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", seen)
    query, key, mask = ({"shape": [2, *shape], "dtype": "float32"} for shape in ([4, 5, 8], [keys, 6, 8], [4, 5, 6]))
    specs = tuple(TensorSpec(tuple(each["shape"]), "float32") for each in (query, key, key, *[mask] * masked))
    rest = [mask if masked else None, True]
    raw = "_scaled_dot_product_efficient_attention"
    case = Case(
        f"aten.{raw}.default", [query, key, key, *rest], {}, "attention", f"aten::{raw}", {}, specs, specs[:1], 0
    )
    out = calls_of(case, CPU, 1)[0]()
    assert out.shape == (2, 4, 5, 8)
    args, kwargs = given.pop()
    assert kwargs == {"attn_mask": kwargs["attn_mask"], "is_causal": False, "enable_gqa": keys == 2}
    assert (kwargs["attn_mask"] is not None) == masked
    backward = case._replace(
        call=f"aten.{raw}_backward.default", raw=f"{case.raw}_backward", attrs={"grad": True},
        args=[query, *case.args], ins=(specs[0], *specs),
    )  # fmt: skip
    (call,) = calls_of(backward, CPU, 1)
    (args, kwargs) = given.pop()  # the forward pass, which is not timed
    gradients = call()
    assert not given
    assert [each.shape for each in gradients] == [each.shape for each in (*args, *[kwargs["attn_mask"]] * masked)]


def test_a_calibration_that_was_broken_off_goes_on_and_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    first = opcost.calibrate(path, device="cpu", seconds=0, force=True)
    second = opcost.calibrate(path, device="cpu", seconds=0, force=True)
    assert second.rows[: len(first.rows)] == first.rows
    assert second.position > first.position
    assert DOCUMENT.load(path) == second


def test_the_host_is_timed_without_a_gpu_and_beside_operators(tmp_path: Path) -> None:
    alone = opcost.calibrate(tmp_path / "host.json", host=True, seconds=0, force=True)
    beside = opcost.calibrate(tmp_path / "cpu.json", device="cpu", seconds=0, force=True)
    assert alone.rows == ()
    assert set(alone.host) == set(beside.host) == set(shipped_host().host)
    assert min(alone.host.values()) > 0
    assert {"cpu", "python", "torch", "made"} <= set(alone.meta)
    assert len(alone.repeats["host"]) == 3


def test_the_same_operators_are_timed_at_the_start_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    for runs in (1, 2):
        found = opcost.calibrate(path, device="cpu", seconds=0, force=True)
        on_device = {name: times for name, times in found.repeats.items() if name != "host"}
        assert len(on_device) == 3
        assert {len(times) for times in on_device.values()} == {2 * runs}


def test_a_file_of_another_torch_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    opcost.calibrate(path, device="cpu", seconds=0, force=True)
    text = path.read_text().replace(torch.__version__, "1.0")
    path.write_text(text)
    with pytest.raises(InputError, match="write to another file"):
        opcost.calibrate(path, device="cpu", seconds=0, force=True)
    assert path.read_text() == text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no CUDA device"):
        opcost.calibrate(tmp_path / "x.json", device="cuda")
