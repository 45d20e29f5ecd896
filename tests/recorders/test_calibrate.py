"""What is timed, and that a calibration that was broken off goes on."""

import random
from itertools import islice
from pathlib import Path

import pytest
import torch
from sampling import FULL

import opcost
from opcost.devices.calibration import DOCUMENT
from opcost.devices.hosts import shipped_host
from opcost.errors import InputError
from opcost.recorders.calibration.cases import Draw, Family
from opcost.recorders.calibration.memory_families import SHARES
from opcost.recorders.calibration.run import GPU, PROCESSOR, describe, plan


def test_the_plan_is_the_same_each_time_and_no_case_comes_twice() -> None:
    first, second = ([case.name for case in islice(plan((torch.float32,), GPU), 500)] for _ in range(2))
    assert first == second
    assert len(set(first)) == 500


def test_one_round_of_the_plan_has_every_family() -> None:
    round_ = sum(SHARES.values())
    families = {case.family.split()[0] for case in islice(plan((torch.float32,), GPU), 2 * round_)}
    assert {"linear", "bmm", "convolution", "attention", "batch_norm", "layer_norm", "cat", "embedding"} <= families


def test_cases_for_a_processor_are_small() -> None:
    for case in islice(plan((torch.float32,), PROCESSOR), 300):
        assert case.flops <= PROCESSOR.flops32
        assert sum(tensor.nbytes for tensor in case.tensors) <= PROCESSOR.nbytes


@pytest.mark.parametrize("family", SHARES, ids=lambda family: family.__name__)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_every_case_is_one_operator_that_is_known(family: Family, dtype: torch.dtype) -> None:
    rng = random.Random(5)
    kinds = set()
    for _ in range(4 if FULL else 1):
        found = describe(family(Draw(rng, dtype)))
        if found is not None:
            kinds.add(found[0].kind)
    assert kinds
    assert "unknown" not in kinds


def test_a_product_is_described_by_its_sizes() -> None:
    case = next(case for case in plan((torch.bfloat16,), GPU) if case.family == "linear" and len(case.tensors) == 3)
    (m, k), (n, _), _ = (tensor.shape for tensor in case.tensors)
    found = describe(case)
    assert found is not None
    op, _, outs = found
    assert (op.kind, op.raw, op.attrs["depth"]) == ("matmul", "aten::addmm", k)
    assert outs[0].shape == (m, n)
    assert case.flops == 2 * m * n * k


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
