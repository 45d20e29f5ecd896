"""What a compiler makes of operators: which run as one kernel, and what it moves, derived from shapes by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import opcost
from opcost.compiling import CompiledKernel, kernels_of

torch = pytest.importorskip("torch")
F = torch.nn.functional
FLOAT, HALF = 4, 2  # bytes of an element


def kernels(run: Callable[..., Any], *given: Any, **options: Any) -> list[CompiledKernel]:
    with torch.no_grad():
        return kernels_of(opcost.count(run, given, **options))


def moved(run: Callable[..., Any], *given: Any) -> list[tuple[bool, int]]:
    """Of each kernel, whether the compiler writes it, and the bytes that it moves."""
    return [(kernel.own, kernel.after) for kernel in kernels(run, *given)]


def image(*shape: int) -> Any:
    return torch.zeros(*shape)


def test_simple_operators_that_follow_each_other_are_one_kernel() -> None:
    x, y = torch.zeros(2, 300, 100)
    (kernel,) = kernels(lambda x, y: torch.relu(x + y) * 2, x, y)
    assert kernel.operators == "add, relu, mul"
    assert kernel.after == 3 * 300 * 100 * FLOAT  # x and y are read, one result is written
    assert kernel.before == (3 + 2 + 2) * 300 * 100 * FLOAT


def test_products_stay_kernels_of_a_library_with_what_is_between_them() -> None:
    x, weight = torch.zeros(64, 32), torch.zeros(32, 32)
    size = 64 * 32 * FLOAT
    product = 2 * size + 32 * 32 * FLOAT
    assert moved(lambda x, w: F.gelu(x @ w) @ w, x, weight) == [(False, product), (True, 2 * size), (False, product)]


@pytest.mark.parametrize(
    ("dtype", "then", "fused"),
    [
        (torch.float32, F.gelu, False),
        (torch.bfloat16, F.gelu, True),  # the library adds it to halves
        (torch.float32, lambda x: x.softmax(-1), True),  # which reads it twice, and does not only follow
    ],
)
def test_a_bias_of_a_float32_product_is_added_by_what_follows(
    dtype: Any, then: Callable[..., Any], *, fused: bool
) -> None:
    x, weight, bias = (torch.zeros(*shape, dtype=dtype, device="meta") for shape in ((64, 32), (32, 48), (48,)))
    product, after = kernels(lambda x, w, b: then(torch.addmm(b, x, w)), x, weight, bias)
    size = dtype.itemsize
    assert product.after == (64 * 32 + 32 * 48 + 64 * 48 + 48 * fused) * size
    assert after.after == (2 * 64 * 48 + 48 * (not fused)) * size


def test_a_layer_norm_is_one_kernel_with_the_sum_before_it() -> None:
    x, y, scale = torch.zeros(100, 64), torch.zeros(100, 64), torch.zeros(64)
    (kernel,) = kernels(lambda x, y, s: F.layer_norm(x + y, (64,), s, s), x, y, scale)
    assert kernel.after == 3 * 100 * 64 * FLOAT + 64 * FLOAT


def test_softmax_reads_and_writes_once() -> None:
    assert moved(lambda x: x.softmax(-1), torch.zeros(500, 70)) == [(True, 2 * 500 * 70 * FLOAT)]


@pytest.mark.parametrize(("tensors", "written"), [(4, False), (5, True)])
def test_what_several_read_is_written_if_it_is_calculated_from_more_than_four_tensors(
    tensors: int, *, written: bool
) -> None:
    given = torch.zeros(tensors, 40, 30).unbind()

    def run(*given: Any) -> tuple[Any, Any]:
        total = sum(given[1:], given[0])
        return total.sum(0), total.sum(1)

    size = 40 * 30 * FLOAT
    whole = sum(after for _, after in moved(run, *given))
    sums = (40 + 30) * FLOAT
    # Written by the kernel of one sum, and read by that of the other
    assert whole == sums + (tensors * size + size + size if written else 2 * tensors * size)


def test_few_long_sums_are_made_in_two_steps() -> None:
    first, second = kernels(lambda x: x.sum(), torch.zeros(1 << 20))
    # Each of 132 multiprocessors' threads adds 32 elements; a block has 256 threads.
    parts = (1 << 20) // (32 * 256)
    assert first.after == ((1 << 20) + parts) * FLOAT
    assert second.after == (parts + 1) * FLOAT


def test_an_image_and_weights_are_put_channels_last_before_a_convolution() -> None:
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 128, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(128, 128, 1)
    ).eval()
    found = kernels(net, image(2, 3, 16, 16))
    weights, result = 128 * 3 * 9 * FLOAT, 2 * 128 * 16 * 16 * FLOAT
    given, bias = 2 * 3 * 16 * 16 * FLOAT, 128 * FLOAT
    assert [(kernel.operators, kernel.after) for kernel in found] == [
        ("to channels_last", 2 * given),
        ("to channels_last", 2 * weights),
        ("convolution", given + weights + result),
        ("convolution, relu", 2 * result + bias),  # its bias
        ("convolution", 2 * result + 128 * 128 * FLOAT),  # weights of one by one are the same in both orders
        ("convolution", 2 * result + bias),
    ]


def test_convolutions_in_groups_keep_the_order_of_the_image() -> None:
    grouped = torch.nn.Conv2d(64, 64, 3, groups=2, bias=False).eval()
    assert [kernel.operators for kernel in kernels(grouped, image(1, 64, 8, 8))] == ["convolution"]


def test_parts_of_a_cat_that_are_in_memory_are_copied_by_kernels_of_their_own() -> None:
    x, weight = torch.zeros(16, 32), torch.zeros(32, 32)
    size, square = 16 * 32 * FLOAT, 32 * 32 * FLOAT
    found = moved(lambda x, w: torch.cat((x @ w, x), 1) @ torch.cat((w, w)), x, weight)
    assert sorted(found) == [
        (False, 2 * size + square),  # x @ w
        (False, 2 * size + 2 * square + size),  # the product of both results
        (True, 2 * size),
        (True, 2 * size),
        (True, 3 * square),  # both halves are the same tensor, which is read once
    ]


def test_a_lookup_reads_what_it_looks_up() -> None:
    table, places = torch.zeros(10_000, 64), torch.zeros(20, dtype=torch.int64)
    assert moved(lambda t, p: F.embedding(p, t) * 2, table, places) == [(True, 2 * 20 * 64 * FLOAT + 20 * 8)]


def test_a_backward_pass_is_compiled_and_its_gradients_are_written() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(32, 48, bias=False), torch.nn.GELU(), torch.nn.Linear(48, 8, bias=False))
    found = kernels_of(opcost.count(net, torch.zeros(10, 32), backward=True))
    (gelu,) = (kernel for kernel in found if kernel.operators == "gelu_backward")
    assert gelu.after == 3 * 10 * 48 * FLOAT
    assert {kernel.phase for kernel in found} == {"forward", "backward"}


def test_every_operator_is_counted_before_in_one_kernel() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 128, 3), torch.nn.BatchNorm2d(128), torch.nn.SiLU()).eval()
    report = opcost.count(net, image(2, 3, 16, 16))
    assert sum(kernel.before for kernel in kernels_of(report)) == report.totals.bytes_read + report.totals.bytes_written


def test_the_sheet_says_kernels_bytes_and_what_is_saved() -> None:
    report = opcost.count(lambda x: torch.relu(x + 1), torch.zeros(1000, 1000))
    sheet = opcost.compiled(report)
    assert "1 kernels instead of 2 operators" in sheet.answer
    (line,) = sheet["kernels"]
    assert (line["before"], line["after"], line["saved"]) == (16_000_000, 8_000_000, 8_000_000)
    assert sheet["modules"][0]["after"] == 8_000_000


@pytest.mark.parametrize(("columns", "copied"), [(4096, False), (4100, True)])
def test_a_large_product_of_sizes_that_tensor_cores_do_not_take_is_enlarged(columns: int, *, copied: bool) -> None:
    x, weight = (torch.zeros(*shape, dtype=torch.bfloat16, device="meta") for shape in ((2048, 1024), (1024, columns)))
    found = kernels(torch.mm, x, weight)
    wide = 4104 if copied else 4096  # a multiple of eight
    product = (False, (2048 * 1024 + 1024 * wide + 2048 * wide) * HALF)
    padding = (True, 1024 * (columns + wide) * HALF)
    assert [(kernel.own, kernel.after) for kernel in found] == ([padding] if copied else []) + [product]


@pytest.mark.parametrize(("size", "wide"), [(4, 8), (9, 9)])
def test_a_very_narrow_product_is_enlarged(size: int, wide: int) -> None:
    rows, heads = (torch.zeros(*shape, dtype=torch.bfloat16, device="meta") for shape in ((4000, size), (size, size)))
    *copies, product = kernels(torch.mm, rows, heads)
    assert len(copies) == (2 if wide > size else 0)
    assert product.after == (2 * 4000 * wide + wide * wide) * HALF


def test_sums_in_an_order_are_not_those_of_another() -> None:
    x, scale = torch.zeros(8, 100, 64), torch.zeros(64)
    size, sums = 8 * 100 * 64 * FLOAT, 3 * 8 * 100 * FLOAT  # mean, deviation and weight of each row

    def run(x: Any, scale: Any) -> Any:
        return F.layer_norm(x, (64,), scale, scale).roll(1, 0)

    assert moved(run, x, scale) == [(True, size + sums), (True, 2 * size + sums // 3 + 64 * FLOAT)]


def test_predicted_kernels_are_those_of_the_report() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 128, 3), torch.nn.BatchNorm2d(128), torch.nn.SiLU()).eval()
    report = opcost.count(net, image(2, 3, 16, 16))
    predicted = opcost.predict(report, device="h200", execution="compiled")
    assert [row.count for row in predicted.rows] == [1] * len(kernels_of(report))
    assert not [note for note in predicted.notes if note.code == "guessed-time"]
