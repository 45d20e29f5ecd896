"""What kernels take for themselves, by the nearest operators that were measured."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import opcost
from opcost.analysis.prediction.workspaces import Workspaces, fit_workspaces
from opcost.core.graph import Op, TensorSpec
from opcost.core.report import Row
from opcost.devices.calibration import Measured
from opcost.errors import UnknownName
from opcost.frontends.torch.recording import recorder
from opcost.rules import default_rules

MIB = 1 << 20


def half(*shape: int) -> TensorSpec:
    return TensorSpec(shape, "bfloat16")


def row_of(image: TensorSpec, weight: TensorSpec, result: TensorSpec, **attrs: bool) -> Row:
    op = Op(0, "conv", "aten::convolution", (0, 1), (2,), attrs)
    return Row(op, (image, weight), (result,), None, "conv")


def fitted(*rows: tuple[Row, int]) -> Workspaces:
    """Workspaces by these convolutions and what each took."""
    measured = tuple(Measured("conv", row.op.raw, row.op.attrs, row.ins, row.outs, 1000, 0, took) for row, took in rows)
    return Workspaces(fit_workspaces(measured, default_rules()))


def square(extent: int, window: int, channels: int = 64) -> Row:
    image = half(8, channels, extent, extent)
    return row_of(image, half(channels, channels, window, window), image)


def tensors(row: Row) -> int:
    return sum(spec.nbytes for spec in (*row.ins, *row.outs))


def test_a_convolution_converts_its_tensors_where_its_neighbours_do() -> None:
    # A window of three by three is brought into another order first, one of one by one is not.
    found = fitted((square(28, 3), tensors(square(28, 3))), (square(28, 1), 0))
    assert found.of(square(56, 3)) == tensors(square(56, 3))
    assert found.of(square(56, 1)) == 0


def test_weights_of_single_pixels_are_in_both_orders_at_once() -> None:
    one = square(28, 1)
    images = one.ins[0].nbytes + one.outs[0].nbytes
    assert fitted((one, images)).of(square(56, 1)) == 4 * images


@pytest.mark.parametrize(("dtype", "size", "channels"), [("bfloat16", 2, 8), ("float32", 4, 4)])
def test_channels_are_padded_to_vectors_of_16_bytes(dtype: str, size: int, channels: int) -> None:
    def colours(batch: int) -> tuple[Row, int]:
        shapes = (batch, 3, 32, 32), (64, 3, 3, 3), (batch, 64, 32, 32)
        bytes_in_order = (batch * (channels + 64) * 32 * 32 + 64 * channels * 9) * size
        return row_of(*(TensorSpec(shape, dtype) for shape in shapes)), bytes_in_order

    row, took = colours(4)
    assert fitted(colours(2)).of(row) == took


def test_the_channels_of_a_group_are_padded_to_a_power_of_two() -> None:
    def groups(batch: int) -> tuple[Row, int]:  # twelve of 24 channels, each of which becomes 32
        image = half(batch, 288, 7, 7)
        return row_of(image, half(288, 24, 3, 3), image), 12 * (2 * batch * 32 * 7 * 7 + 32 * 32 * 9) * 2

    row, took = groups(4)
    assert fitted(groups(2)).of(row) == took


def test_the_other_way_round_a_convolution_converts_as_much() -> None:
    image, weight, result = half(2, 64, 16, 16), half(64, 8, 2, 2), half(2, 8, 32, 32)
    forward = row_of(result, half(64, 8, 2, 2), image)
    found = fitted((forward, tensors(forward)))
    assert found.of(row_of(image, weight, result, transposed=True)) == tensors(forward)


def test_what_most_of_five_neighbours_do_counts_and_more_the_nearer_they_are() -> None:
    rows = {extent: square(extent, 3) for extent in (20, 24, 28, 36, 40, 112)}  # of which the last is too far to count

    def taken(*converting: int) -> int:
        measured = ((row, tensors(row) if extent in converting else 0) for extent, row in rows.items())
        return fitted(*measured).of(square(32, 3))

    assert taken(28, 36) == tensors(square(32, 3))
    assert taken(20, 24, 112) == 0


def test_what_was_measured_of_the_same_sizes_counts_alone() -> None:
    rows = [square(extent, 3) for extent in (28, 29, 30, 31, 32)]
    assert fitted((rows[0], tensors(rows[0])), *((row, 0) for row in rows[1:])).of(rows[0]) == tensors(rows[0])


def test_slices_have_results_of_their_own_and_more_channels_more_slices() -> None:
    image, result = half(1, 512, 7, 7), half(1, 80, 7, 7)
    found = fitted((row_of(image, half(80, 512, 1, 1), result), 8 * result.nbytes + 256))  # each of 64 channels
    wider, larger = half(1, 1000, 7, 7), half(1, 96, 7, 7)
    assert found.of(row_of(wider, half(96, 1000, 1, 1), larger)) == 16 * larger.nbytes  # the last one of 40


@pytest.mark.parametrize("converted", ["image", "weight", "result", "image weight", "image result", "weight result"])
def test_some_of_the_tensors_may_be_converted_alone(converted: str) -> None:
    def row(batch: int) -> tuple[Row, int]:
        sizes = half(batch, 64, 28, 28), half(200, 64, 3, 3), half(batch, 200, 14, 14)
        sums = zip(("image", "weight", "result"), sizes, strict=True)
        return row_of(*sizes), sum(spec.nbytes for name, spec in sums if name in converted)

    (measured, took), (other, expected) = row(8), row(12)
    assert fitted((measured, took)).of(other) == expected


def test_tensors_that_are_copied_first_are_there_beside_the_workspace() -> None:
    image, weight, result = half(2, 8, 9, 9), half(16, 8, 3, 3), half(2, 16, 7, 7)
    row = row_of(image, weight, result)
    found = fitted((row, tensors(row)))
    copying = row._replace(op=row.op._replace(attrs={"copied": ("image",)}))
    assert found.of(copying) == tensors(row) + image.nbytes
    assert found.of(row._replace(op=row.op._replace(attrs={"copied": ("image", "weight")}))) == sum(
        (tensors(row), image.nbytes, weight.nbytes)
    )


def test_of_a_convolution_unlike_any_that_was_measured_nothing_is_expected() -> None:
    # A window of 256 times as many elements is eight doublings away, each of which weighs 0.6.
    near, far = square(28, 3), square(28, 48)
    assert fitted((near, tensors(near))).of(far) == 0


def test_what_the_allocator_adds_is_not_part_of_a_workspace() -> None:
    # A block keeps a rest of up to 1 MiB, which a larger convolution does not have three times.
    row = square(112, 3)
    assert tensors(row) > MIB
    assert fitted((row, tensors(row) + MIB)).of(square(224, 3)) == tensors(square(224, 3))


def test_float16_is_like_bfloat16() -> None:
    row = square(28, 3)
    other = row_of(*(TensorSpec(spec.shape, "float16") for spec in (*row.ins, *row.outs)))
    assert fitted((row, tensors(row))).of(other) == tensors(row)


def test_an_operator_of_which_nothing_was_measured_takes_none() -> None:
    empty = Workspaces({})
    assert empty.of(square(28, 3)) == 0


def test_a_device_hands_out_whole_blocks() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh())
    plain, on_gpu = (opcost.count(model, torch.zeros(1, 3), device=device).memory for device in (None, "h200"))
    assert plain.base_bytes == (3 * 5 + 5 + 3) * 4
    assert on_gpu.base_bytes == 3 * 512  # weight, bias, input
    assert on_gpu.peak_bytes == (3 + 2) * 512
    assert (plain.device, on_gpu.device) == ("", "h200")


def test_a_block_keeps_a_rest_that_is_not_worth_splitting() -> None:
    # One of 12 MiB is gone when another of 11.5 MiB is made, which gets its block whole; so does one in a new segment, as these
    # come in steps of 2 MiB. Beside them are a handful of single bytes.
    first, second, third = 12 * MIB, 23 * MIB // 2, 23 * MIB // 2

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scalar = torch.zeros(first, dtype=torch.uint8)[0] + x
            other = torch.zeros(second, dtype=torch.uint8)
            last = torch.zeros(third, dtype=torch.uint8)
            return last[0] + other[0] + scalar

    memory = opcost.count(Net(), torch.zeros(1, dtype=torch.uint8), device="h200").memory
    assert memory.peak_bytes - 2 * 12 * MIB in range(8 * 512)
    # What is small shares 2 MiB, and libraries have theirs.
    assert memory.reserved_bytes == (2 + 34 + 12 + 12) * MIB
    assert memory.fixed_bytes == 740 * MIB


def test_a_convolution_on_a_device_takes_a_workspace() -> None:
    model, x = nn.Conv2d(64, 128, 3, padding=1).bfloat16(), torch.zeros(8, 64, 56, 56, dtype=torch.bfloat16)
    memory = opcost.count(model, x, device="h200").memory
    # As measured on many of this kind: its image, weight and result once more.
    again = (8 * 64 * 56 * 56 + 8 * 128 * 56 * 56 + 128 * 64 * 9) * 2
    assert 0.85 * again <= memory.parts["workspace"] <= 1.15 * again + (1 << 20)  # a block keeps a rest of up to 1 MiB
    assert sum(memory.parts.values()) == memory.peak_bytes


def test_attention_by_products_asks_of_every_score_whether_it_is_hidden() -> None:
    # Heads that share keys have no kernel in float32. On an H200 there were scores, their softmax, and a byte of each.
    query, key = torch.zeros(1, 8, 1024, 64), torch.zeros(1, 2, 1024, 64)

    def heads(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)

    report = opcost.count(heads, (query, key), device="h200")
    scores = 8 * 1024 * 1024
    assert report.rows[report.memory.at].op.raw == "aten::_safe_softmax"
    assert report.memory.parts["workspace"] == scores
    assert report.memory.peak_bytes > 2 * 4 * scores + scores


def test_on_a_device_an_optimizer_updates_all_parameters_at_once() -> None:
    model, x = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(4))), torch.zeros(1, 512)
    one, size = 512 * 512 * 4, 4 * 512 * 512 * 4
    alone, together = (opcost.count(model, x, optimizer="Adam", device=device).memory for device in (None, "h200"))
    # Gradients of all, and roots of second moments: all at once; or one after another, the root and what it is divided to,
    # while a variable still holds that of the parameter before. The output is still there.
    output = 512 * 4
    assert alone.peak_bytes - alone.base_bytes == size + 3 * one + output
    assert together.peak_bytes - together.base_bytes == size + size + output


def test_a_long_run_says_that_its_memory_is_not_estimated_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "REPLAYS_AFTER", 0)
    report = opcost.count(nn.Linear(2, 2), torch.zeros(1, 2), device="h200")
    assert report.memory.device == ""
    assert [note.code for note in report.notes] == ["memory"]


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UnknownName, match="h2000"):
        opcost.count(nn.Linear(2, 2), torch.zeros(1, 2), device="h2000")
