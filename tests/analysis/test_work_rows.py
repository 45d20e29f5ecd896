"""What an operator is to a device, and what a device makes of it: rows whose numbers follow from the shapes.

Sizes are powers of two, so that every place is made of whole logarithms; the factors are those that were fitted.
"""

from __future__ import annotations

from math import exp, log2
from typing import Any, NamedTuple

import pytest

from opcost.analysis.prediction.fusion import merged
from opcost.analysis.prediction.speeds import Speeds, _base_ns, _ratio, _spread, fit_laws
from opcost.analysis.prediction.work import Work, families, place_in, work_of
from opcost.core.devices import HOST, device
from opcost.core.graph import Cost, Op, TensorSpec
from opcost.core.report import Row
from opcost.devices.calibration import Calibration, Law, Measured
from opcost.devices.neighbours import Near, Neighbours
from opcost.rules import default_rules

H200 = device("h200")


def tensors(shapes: str, dtype: str = "bfloat16") -> tuple[TensorSpec, ...]:
    """`8x4 16:float32 -` is a matrix, a vector of another type, and a number."""
    found = []
    for each in shapes.split():
        shape, _, own = each.partition(":")
        known = tuple(int(n) for n in shape.split("x")) if shape not in "-?" else ()
        found.append(TensorSpec(None if shape == "?" else known, own or dtype))
    return tuple(found)


class Case(NamedTuple):
    """An operator, the family it belongs to and its place there."""

    kind: str
    raw: str
    attrs: dict[str, Any]
    ins: str
    outs: str
    family: str
    place: tuple[float, ...]


def moves(*elements: int) -> float:
    """The logarithm of the bytes of this many elements of two bytes."""
    return log2(2 * sum(elements))


PLAIN = 0.5, 0.5, 0.35, 1.4, 1.5, 0.15, 1, 0.75, 1, 1
LAST = 0.25, 0.5, 0.25, 1.4, 0.3, 0.08, 1, 0.75, 3, 1  # channels: what is not whole vectors is copied first


def convolution(
    *sizes: float, wide: float = 0, result: float | None = None, image: float = 0, weights: tuple[float, ...] = PLAIN,
    each: int = 0,
) -> tuple[float, ...]:  # fmt: skip
    """Places of the result, channels, window, stride, images, groups; multiples of eight; a bias within; how often pixels can
    be halved where the window is one pixel, as `alignment` counts it; the channels of each group, and if they are a power of two.
    """
    place = tuple(weight * size for weight, size in zip(weights, sizes, strict=True))
    of_groups = (log2(each), 3.0 * log2(each).is_integer()) if each else (0, 0)
    return *place, wide, 0.7 * (result is not None), result or 0, 0.25 * image, *of_groups


DEPTH = {"depth": 4}
CONV = "aten::convolution"
BACK = "aten::convolution_backward"
PRODUCTS = ("matmul", "conv", "attention")
ALL = {"grads": ("input", "weight", "bias")}
CASES = [
    # products: logarithms of batch, m, n, k; how often n, k and m can be halved, at most thrice, by two; n and k by eight
    Case("matmul", "aten::mm", DEPTH, "8x4 4x32", "8x32", "mm", (0, 3, 5, 0.7 * 2, 3 * 1.5, 1 * 1.0, 0.5 * 1.5, 0)),
    Case("matmul", "aten::mm", {"depth": 8}, "8x8 8x32", "8x32", "mm", (0, 3, 5, 0.7 * 3, 3 * 1.5, 1 * 1.5, 0.5 * 1.5, 4)),
    Case("matmul", "aten::matmul", DEPTH, "2x6x4 4x32", "2x6x32", "mm",
         (1, log2(6), 5, 0.7 * 2, 3 * 1.5, 1 * 1.0, 0.5 * 0.5, 0)),
    Case("matmul", "aten::addmm", {"depth": 8, "bias": True}, "8x8 8x2 2", "8x2", "addmm",
         (0, 3, 1, 0.7 * 3, 3 * 0.5, 1 * 1.5, 0.5 * 1.5, 0)),
    Case("matmul", "aten::bmm", {"depth": 2}, "16x8x2 16x2x32", "16x8x32", "bmm",
         (0.35 * 4, 0.5 * 3, 1.5 * 5, 0.7 * 1, 1 * 1.5, 3 * 0.5, 0.1 * 1.5, 0)),
    Case("matmul", "aten::bmm", {"depth": 16}, "16x8x16 16x16x32", "16x8x32", "bmm",
         (0.35 * 4, 0.5 * 3, 1.5 * 5, 0.7 * 4, 1 * 1.5, 3 * 1.5, 0.1 * 1.5, 4)),
    Case("matmul", "aten::_weight_int4pack_mm", {"depth": 8}, "8x8 4x1x32x2:int32", "8x32", "mm _weight_int4pack_mm",
         (0, 3, 5, 0.7 * 3, 3 * 1.5, 1 * 1.5, 0.5 * 1.5, 4)),
    Case("matmul", "aten::mv", {"depth": 4}, "32x4 4", "32", "mm", (0, 0, 5, 0.7 * 2, 3 * 1.5, 1.0, 0, 0)),
    Case("matmul", "aten::dot", {}, "4 4", "-", "mm", (0, 0, 0, 0, 0, 0, 0, 0)),
    Case("matmul", "aten::mm", DEPTH, "2x4 4x0", "2x0", "mm", (0, 1, 0, 0.7 * 2, 0, 1.0, 0.5 * 0.5, 0)),
    Case("matmul", "aten::mm", DEPTH, "8x4 4x32", "?", "matmul",
         (moves(32, 128), 0.3 * 2, 0.5 * 5, 0.4 * 3, 0)),
    # convolutions
    Case("conv", CONV, {}, "4x16x32x32 64x16x2x2", "4x64x16x16", "conv dense", convolution(10, 4, 6, 1, 1, 2, 0, 1, 1, 0)),
    Case("conv", CONV, {"channels_last": True}, "2x4x9x9 12x4x4x4", "2x12x4x4", "conv dense channels-last",
         convolution(5, 2, log2(12), 2, log2(3), 1, 0, 0, 0, 0, weights=LAST)),
    Case("conv", CONV, {"channels_last": True}, "1x8x4x4 8x8x1x1", "1x8x4x4", "conv dense channels-last",
         convolution(4, 3, 3, 0, 0, 0, 0, 1, 1, 0, result=1.5, image=1.5, weights=LAST)),
    Case("conv", CONV, {"channels_last": True}, "1x8x4x4 8x1x2x2", "1x8x3x3", "conv depthwise channels-last",
         convolution(log2(9), 3, 3, 1, 1, 0, 0, 1, 1, 0)),
    Case("conv", CONV, {}, "1x16x4x4 8x4x4x4", "1x8x1x1", "conv grouped",
         convolution(0, 4, 3, 2, 2, 0, 2, 1, 1, 0, each=4)),
    Case("conv", CONV, {}, "1x12x4x4 8x6x4x4", "1x8x1x1", "conv grouped",
         convolution(0, log2(12), 3, 2, 2, 0, 1, 0, 1, 0, each=6)),
    Case("conv", CONV, {}, "1x16x4x8 8x16x2x8", "1x8x3x1", "conv dense",
         convolution(log2(3), 4, 3, 3, 3, 0, 0, 1, 1, 0, wide=2)),
    Case("conv", CONV, {}, "1x1x4x4 8x1x1x1", "1x8x4x4", "conv dense",
         convolution(4, 0, 3, 0, 0, 0, 0, 0, 1, 0, result=1.5, image=1.5)),
    Case("conv", CONV, {}, "1x8x6x6 1x8x1x1", "1x1x3x3", "conv dense",
         convolution(log2(9), 3, 0, 0, 1, 0, 0, 1, 0, 0, result=0, image=1)),
    Case("conv", CONV, {}, "1x2x4x4 2x1x1x1", "1x2x4x4", "conv depthwise",
         convolution(4, 1, 1, 0, 0, 0, 0, 0, 0, 0, result=1.5, image=1.5)),
    Case("conv", CONV, {}, "1x8x4x4 8x1x1x1 8", "1x8x4x4", "conv depthwise",
         convolution(4, 3, 3, 0, 0, 0, 0, 1, 1, 1, result=1.5, image=1.5)),
    Case("conv", CONV, {}, "1x8x4x4 8", "1x8x4x4", "conv dense", convolution(4, 3, 3, 3, 0, 0, 0, 1, 1, 0)),
    Case("conv", BACK, ALL, "4x64x16x16 4x16x32x32 64x16x2x2", "4x16x32x32 64x16x2x2 64", "conv dense iw",
         convolution(10, 4, 6, 1, 1, 2, 0, 1, 1, 0)),
    Case("conv", BACK, ALL, "1x8x4x4 1x8x4x4 8x1x1x1", "1x8x4x4 8x1x1x1 8", "conv depthwise iw",
         convolution(4, 3, 3, 0, 0, 0, 0, 1, 1, 0, result=1.5, image=1.5)),
    Case("conv", BACK, {"grads": ("weight",)}, "1x8x4x4 1x4x8x8", "8x4x2x2", "conv grouped w",  # of two: as it is given
         convolution(5, 3, 2, 3, 1, 3, 1, 1, 0, 0, each=4)),
    Case("conv", CONV, {}, "1x8x4x4", "1x8x4x4", "conv", (moves(128, 128), 0.3 * 2, 0, 0, 0)),
    # attention: heads, queries, keys, features, masks, and whether a mask ends with a whole tile
    Case("attention", "aten::sdpa", {}, "2x4x8x16 2x4x32x16 2x4x32x16", "2x4x8x16", "attention",
         (0.7 * 3, 0.5 * 3, 5, 1.2 * 4, 0, 0)),
    Case("attention", "aten::sdpa", {}, "2x4x8x16 2x4x32x16 2x4x32x16 8x32", "2x4x8x16", "attention masked",
         (0.7 * 3, 0.5 * 3, 5, 1.2 * 4, 0, 0)),
    Case("attention", "aten::sdpa", {}, "2x4x1x16 2x2x32x16 2x2x32x16", "2x4x1x16", "attention decode",
         (0.7 * 3, 0, 5, 1.2 * 4, 0, 0)),
    Case("attention", "aten::sdpa", {}, "2x4x8x16 2x4x32x16 2x4x32x16 2x4x8x32", "2x4x8x16", "attention masked",
         (0.7 * 3, 0.5 * 3, 5, 1.2 * 4, 0.35 * 3, 0)),
    Case("attention", "aten::sdpa", {}, "2x8x16 2x64x16 2x64x16 8x64", "2x8x16", "attention masked",
         (0.7, 0.5 * 3, 6, 1.2 * 4, 0, 1.5)),
    Case("attention", "aten::sdpa", {"causal": True}, "2x8x16 2x32x16 2x32x16", "2x8x16", "attention causal",
         (0.7, 0.5 * 3, 5, 1.2 * 4, 0, 0)),
    Case("attention", "aten::back", {"grad": True}, "2x8x64 2x8x16 2x32x16 2x32x64", "2x8x16", "attention gradient",
         (0.7, 0.5 * 3, 5, 1.2 * 4, 0, 0)),
    Case("attention", "aten::back", {"grad": True}, "2x8x64 2x8x16 2x32x16 2x32x64 8x32", "2x8x16",
         "attention gradient masked", (0.7, 0.5 * 3, 5, 1.2 * 4, 0, 0)),
    Case("attention", "aten::sdpa", {}, "2x8x16 2x32x16", "2x8x16", "attention",
         (moves(256, 1024, 256), 0.3 * 4, 0, 0.4, 0)),
    # what only moves memory
    Case("elementwise", "aten::mul_", {"fn": "mul"}, "8x8 8x8", "8x8", "elementwise", (moves(3 * 64), 0)),
    Case("elementwise", "aten::gelu", {"fn": "gelu"}, "8x8", "8x8", "elementwise", (moves(2 * 64), 1.5)),
    Case("elementwise", "aten::silu_", {"fn": "silu"}, "8x8", "8x8", "elementwise", (moves(2 * 64), 1.5)),
    Case("elementwise", "aten::mul", {"fn": "mul", "strided": True}, "8x8 8x8:float32", "8x8:float32",
         "elementwise strided mixed", (log2((2 + 4 + 4) * 64), 0)),
    Case("elementwise", "aten::mul", {"fn": "mul"}, "4x8 8", "4x8", "elementwise broadcast",
         (moves(32, 8, 32), 0.3 * 3, 0, 0.4 * 2, 0)),
    Case("elementwise", "merged", {"fn": "merged", "strided": True}, "4x8 8", "4x8", "elementwise", (moves(32, 8, 32), 0)),
    Case("softmax", "aten::_softmax", {"fn": "softmax"}, "4x8x16", "4x8x16", "softmax softmax", (5, 4)),
    Case("softmax", "aten::_safe_softmax", {"fn": "softmax"}, "4x8x16", "4x8x16", "softmax softmax safe", (5, 4)),
    Case("softmax", "aten::_softmax", {"fn": "log"}, "4x1", "4x1", "softmax log", (2, 0)),
    Case("norm", "aten::layer", {"fn": "layer", "grad": True}, "4x8x16", "4x8x16", "norm layer gradient", (5, 4)),
    Case("norm", "aten::batch", {"fn": "batch", "training": True}, "2x16x4x4", "2x16x4x4", "norm batch training", (1, 4, 4)),
    Case("norm", "aten::batch", {"fn": "batch"}, "1x1x8", "1x1x8", "norm batch", (0, 0, 3)),
    Case("norm", "aten::batch", {"fn": "batch"}, "16", "16", "norm batch", (moves(32), 0.3 * 4, 0, 0.4 * 4, 0)),
    Case("norm", "aten::group", {"fn": "group"}, "2x16x4", "2x16x4 2x4", "norm group", (3, 4)),
    Case("sort", "aten::sort", {"length": 16}, "4x16", "4x16 4x16", "sort", (moves(3 * 64), 0.3 * 4, 0, 0.4 * 2, 0)),
    Case("copy", "aten::cat", {}, "4x16 4x16", "4x32", "copy cat",
         (moves(64, 64, 128), 0.3 * 4, -0.5, 0.4 * 2, 1.5 * 2, 0, 0.5)),
    Case("copy", "aten::constant_pad_nd", {}, "4x16", "4x32", "copy constant_pad_nd",
         (moves(64, 128), 0.3 * 4, -0.5, 0.4 * 2, 1.5 * 2, 3, 0)),
    Case("copy", "aten::constant_pad_nd", {}, "4x16", "4x16", "copy constant_pad_nd",
         (moves(64, 64), 0.3 * 4, 0, 0.4 * 2, 1.5 * 2, 0, 0)),
    Case("copy", "aten::clone", {"strided": True, "turned": True}, "-", "-", "copy clone turned", (2, 0, 0, 0, 0, 0, 0)),
    Case("pool", "aten::max_pool2d", {"fn": "max", "window": 4}, "1x8x16", "1x8x4", "pool max",
         (moves(128, 32), 0.3 * 4, 0.5 * 2, 2)),
    Case("pool", "aten::pool", {"fn": "max"}, "1x8x16", "1x8x4", "pool max", (moves(128, 32), 0.3 * 4, 0.5 * 2, 0)),
    Case("reduce", "aten::sum", {"fn": "sum"}, "8x32", "1x32", "reduce sum columns", (0.35 * moves(256, 32), 0.7 * 3, 0.7 * 5)),
    Case("copy", "aten::clone", {"expanded": True}, "2x8", "2x8", "copy clone expanded",
         (moves(16, 16), 0.3 * 3, 0, 0.4 * 1, 1.5 * 2, 0, 0)),
    Case("reduce", "aten::mean", {"fn": "mean"}, "2x8x4x16", "2x1x4x16", "reduce mean columns",
         (0.35 * moves(1024, 128), 0.7 * 3, 0.7 * 6)),
    Case("reduce", "aten::mean", {"fn": "mean"}, "2x8x4x8", "2x8", "reduce mean", (0.35 * moves(512, 16), 0.7 * 5, 0.05 * 3)),
    Case("reduce", "aten::sum", {"fn": "sum"}, "8x32", "8x1", "reduce sum", (0.35 * moves(256, 8), 0.7 * 5, 0.05 * 5)),
    Case("reduce", "aten::sum", {"fn": "sum"}, "8x1", "1", "reduce sum", (0.35 * moves(8, 1), 0.7 * 3, 0)),
    Case("reduce", "aten::sum", {"fn": "sum"}, "8x32 8x32", "1x32", "reduce sum",
         (0.35 * moves(256, 256, 32), 0.7 * 3, 0.05 * 5)),
    Case("resize", "aten::up", {"fn": "nearest"}, "1x2x4", "1x2x8", "resize nearest", (1, 3, -1)),
    Case("create", "aten::zeros", {}, "", "4x16", "create", (moves(64), 0, -0.5 * 6, 0, 0)),
    Case("sort", "aten::sort", {"length": 16}, "4x16", "", "sort", (moves(64), 0.3 * 4, 0.5 * 6, 0.4 * 2, 0)),
    Case("lookup", "aten::empty", {}, "0x4", "0x4", "lookup", (0, 0.3 * 2, 0, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{case.family}-{number}" for number, case in enumerate(CASES)])
def test_an_operator_has_a_place_in_its_family(case: Case) -> None:
    ins, outs = tensors(case.ins), tensors(case.outs)
    work = work_of(case.kind, case.raw, case.attrs, ins, outs, Cost(7, 14, 1, 2))
    assert work.family == case.family
    assert work.place == pytest.approx(case.place)
    assert work.nbytes == sum(spec.nbytes for spec in (*ins, *outs) if spec.known)
    calculates = case.kind in PRODUCTS and case.place[0] != moves(work.nbytes // 2) and "decode" not in case.family
    assert work.flops == (14 if calculates else 0)


def test_the_type_is_that_of_the_first_floats_and_without_a_cost_nothing_is_calculated() -> None:
    ins, out = tensors("4:int64 8x4:float16 4x4"), tensors("8x4")
    assert work_of("matmul", "aten::mm", DEPTH, ins, out, None)[1:3] == ("float16", 0)
    assert work_of("index", "aten::index", {}, tensors("4:int64"), (), None).dtype == "float32"


@pytest.mark.parametrize(
    ("kind", "raw", "cost", "nbytes"),
    [
        ("scatter", "aten::index_put_", Cost(0, 0, 24, 16), 24 + 16),
        ("scatter", "aten::index_put_", None, 2 * (64 + 4 + 64)),
        ("scatter", "aten::index_put", Cost(0, 0, 24, 16), 2 * (64 + 4 + 64)),
        ("elementwise", "aten::mul_", Cost(0, 0, 24, 16), 2 * (64 + 4 + 64)),
    ],
)
def test_only_what_is_written_in_place_is_touched(kind: str, raw: str, cost: Cost | None, nbytes: int) -> None:
    assert work_of(kind, raw, {}, tensors("64 4"), tensors("64"), cost).nbytes == nbytes


@pytest.mark.parametrize(("taken", "nbytes"), [(4, 2 * (4 + 4) + 4 * 8), (64, 2 * (1024 + 64) + 64 * 8)])
def test_of_a_much_larger_tensor_only_what_is_taken_is_touched(taken: int, nbytes: int) -> None:
    """A label's logit of each token, or some rows of a table; with more of it taken most of its memory lines are read."""
    ins, out = tensors(f"1024 {taken}:int64"), tensors(f"{taken}")
    work = work_of("gather", "aten::gather", {}, ins, out, Cost(0, 0, 2 * taken + 8 * taken, 2 * taken))
    assert work.nbytes == nbytes


@pytest.mark.parametrize(
    ("attrs", "ins", "is_added"),
    [
        ({}, "1x8x4x4 16x8x1x1 16", True),
        ({}, "1x8x4x4 16x8x1x1", False),
        ({}, "1x8x4x4 8x1x1x1 8", False),
    ],
)
def test_a_kernel_of_its_own_adds_the_bias_of_a_dense_convolution(attrs: Any, ins: str, is_added: bool) -> None:
    work = work_of("conv", CONV, attrs, tensors(ins), tensors("1x16x4x4"), None)
    moved = 2 * (256 + 16 + 256)  # the result twice, and the bias
    add = Work("elementwise broadcast", "bfloat16", 0, moved, (log2(moved), 0.3 * 2, 0.0, 0.0, 0.0))
    assert work.bias == (add if is_added else None)


def test_a_kernel_of_its_own_sums_the_gradient_of_a_bias() -> None:
    given, made = tensors("2x16x4x4 2x8x4x4 16x8x1x1"), tensors("2x8x4x4 16x8x1x1 16")
    work = work_of("conv", BACK, ALL, given, made, None)
    moved = 2 * (512 + 16)  # the gradient, and a sum for each channel
    place = 0.35 * log2(moved), 0.7 * log2(512 / 16), 0.7 * 0  # its images are apart: along rows of pixels
    assert work.bias == Work("reduce sum", "bfloat16", 0, moved, (place[0], place[1], 0.05 * log2(4)))
    assert work_of("conv", BACK, {"grads": ("weight",)}, given, made, None).bias is None


@pytest.mark.parametrize(
    ("attrs", "channels", "idle"),
    [({"training": True}, 16, 132 / 16), ({"grad": True}, 16, 132 / 16), ({"training": True}, 256, 1.0), ({}, 16, 1.0)],
)
def test_of_few_channels_a_batch_norm_uses_a_part_of_the_device(attrs: Any, channels: int, idle: float) -> None:
    """A block of threads goes through one channel, so that its memory takes that many times as long."""
    given = tensors(f"2x{channels}x4x4")
    work = work_of("norm", "aten::batch", {"fn": "batch", **attrs}, given, given, None)
    assert work.idle == idle
    law = Law(1_000, 0.5, 0.25, 0.0, Neighbours())
    assert _base_ns(law, work, 1e12, H200.bandwidth)[0] == pytest.approx(
        1_000 + work.nbytes * idle / (0.25 * 4.8e12) * 1e9
    )


@pytest.mark.parametrize(
    ("family", "tried"),
    [
        ("conv dense channels-last", ["conv dense channels-last", "conv dense"]),
        ("copy cat turned", ["copy cat turned", "copy cat"]),
        ("elementwise strided broadcast mixed",
         ["elementwise strided broadcast mixed", "elementwise broadcast mixed", "elementwise broadcast"]),
        ("reduce mean columns", ["reduce mean columns", "reduce mean columns", "reduce sum columns"]),
        ("attention decode masked",
         ["attention decode masked", "attention decode masked", "attention decode", "attention masked"]),
        ("copy clone expanded", ["copy clone expanded", "copy clone"]),
        ("mm _int_mm", ["mm _int_mm", "mm _int_mm", "mm"]),
        ("softmax softmax", ["softmax softmax", "softmax softmax"]),
        ("scatter index_add", ["scatter index_add", "scatter index_add", "scatter index_put"]),
        ("gather take", ["gather take", "gather take", "gather index"]),
    ],
)  # fmt: skip
def test_a_family_that_was_not_timed_is_taken_for_the_nearest(family: str, tried: list[str]) -> None:
    assert list(families(Work(family, "float32", 0, 0, ()))) == tried


def test_a_family_with_other_weights_has_the_same_operator_at_another_place() -> None:
    ins, outs = tensors("1x8x4x4 8x8x1x1"), tensors("1x8x4x4")
    beside, usual = (work_of("conv", CONV, attrs, ins, outs, None) for attrs in ({"channels_last": True}, {}))
    assert beside.place != usual.place
    assert place_in(beside, usual.family) == pytest.approx(usual.place)
    assert place_in(beside, beside.family) == beside.place


# -- laws ----------------------------------------------------------------------------------------------------------------


def law(*near: tuple[float, float], start: float = 1_000) -> Law:
    return Law(start, 0.5, 0.25, 0.0, Neighbours(Near((place,), ratio) for place, ratio in near))


@pytest.mark.parametrize(
    ("flops", "nbytes", "longer", "bound"),
    [
        (8e6, 0, 8e6 / (0.5 * 1e12) * 1e9, "compute"),  # 16,000 ns
        (0, 4e6, 4e6 / (0.25 * 4.8e12) * 1e9, "memory"),  # 3,333 ns
        (8e6, 4e6, 16_000, "compute"), (1e6, 4e6, 4e6 / 1.2e12 * 1e9, "memory"), (2.5e5, 1.2e5, 500, "launch"),
        (5e5, 6e5, 1_000, "compute"),  # as long as the start
        (6e5, 1.44e6, 1_200, "memory"),  # both take as long
        (0, 0, 0, "launch"),
    ],
)  # fmt: skip
def test_a_law_takes_the_longer_of_two_after_its_start(flops: float, nbytes: float, longer: float, bound: str) -> None:
    taken, seen = _base_ns(law(), Work("", "", round(flops), round(nbytes), ()), 1e12, H200.bandwidth)
    assert (taken, seen) == (pytest.approx(1_000 + longer), bound)


@pytest.mark.parametrize(
    ("near", "ratio"),
    [
        (((0.0, 2.0), (1.0, 3.0), (2.0, 5.0)), 2.0),  # one at the very place weighs more than all others
        (((1.0, 2.0), (1.0, 9.0), (1.0, 3.0)), 3.0),  # as far: the middle one, and not their mean
        (((0.5, 4.0), (1.0, 2.0), (-1.0, 3.0)), 4.0),  # 1 / 0.6**2 is more than 2 / 1.1**2
        (
            ((1.0, 1.0), (1.0, 2.0), (1.0, 3.0), (1.0, 4.0), (1.0, 5.0), (9.0, 100.0), (9.0, 100.0)),
            3.0,
        ),  # the nearest five
    ],
)
def test_the_nearest_tell_by_how_much_a_law_is_missed(near: tuple[tuple[float, float], ...], ratio: float) -> None:
    found = _ratio(law(*near), (0.0,))
    assert found == (ratio, min(abs(place) for place, _ in near))


def timed(*rows: Measured, name: str = "h200", other: Any = None, **meta: str) -> Speeds:
    return Speeds(fit_laws(Calibration(device=name, meta=meta, position=0, rows=rows), default_rules()), other)


def relu(elements: int, taken: int, dtype: str = "bfloat16") -> Measured:
    x = TensorSpec((elements,), dtype)
    return Measured("elementwise", "aten::relu", {"fn": "relu"}, (x,), (x,), taken)


def mm(size: int, taken: int, dtype: str = "bfloat16") -> Measured:
    x = TensorSpec((size, size), dtype)
    return Measured("matmul", "aten::mm", {"depth": size}, (x, x), (x,), taken)


def test_a_law_starts_like_the_quickest_and_reaches_what_all_but_the_best_reach() -> None:
    short = [1_000 * i for i in range(3, 104)]  # of 101 rows the third is the start, less a tenth
    long = [1_000_000 * i for i in range(1, 102)]
    start = 0.9 * 5_000
    rows = [relu(64, taken) for taken in short] + [relu(2**26, taken) for taken in long]
    found = timed(*rows).laws["elementwise", "bfloat16"]
    assert found.start_ns == pytest.approx(start)
    # of 202 twenty-one reach more bytes, eleven more FLOPs
    assert found.memory == pytest.approx(4 * 2**26 / (22_000_000 - start / 2) * 1e9 / H200.bandwidth)
    assert found.compute == 1.0
    rows = [mm(32, taken) for taken in short] + [mm(8192, taken) for taken in long]
    found = timed(*rows).laws["mm", "bfloat16"]
    peak = H200.peak_flops("bfloat16")
    assert peak
    assert found.compute == pytest.approx(2 * 8192**3 / (12_000_000 - start / 2) * 1e9 / peak)
    assert found.memory == pytest.approx(3 * 2 * 8192**2 / (22_000_000 - start / 2) * 1e9 / H200.bandwidth)


def reached(nbytes: int, taken: int, start: float) -> float:
    """The share of the bandwidth by one row: of one that takes little longer than its start it is 0.3 for the most part."""
    ideal = nbytes / H200.bandwidth * 1e9
    trust = min(1, ideal / start)
    return (ideal / max(1, taken - start / 2)) ** trust * 0.3 ** (1 - trust)


def test_of_short_rows_alone_little_is_known_of_long_ones() -> None:
    """64 KiB in 3 µs are 0.9 % of the bandwidth if half of that is the start, and all of it could be."""
    found = timed(relu(2**14, 3_000))
    law = found.laws["elementwise", "bfloat16"]
    assert law.memory == pytest.approx(reached(2**16, 3_000, 2_700))
    assert 0.29 < law.memory < 0.3
    large = found.time(work(relu(2**28, 0)))
    ratio = 3_000 / (2_700 + 2**16 / (law.memory * H200.bandwidth) * 1e9)
    assert large.device_ns == pytest.approx(ratio * (2_700 + 4 * 2**28 / (law.memory * H200.bandwidth) * 1e9))


def test_of_long_rows_alone_the_start_is_as_usual() -> None:
    found = timed(relu(2**24, 50_000)).laws["elementwise", "bfloat16"]  # at the bandwidth it would be 14 µs
    assert found.start_ns == 5_000
    assert found.memory == pytest.approx(4 * 2**24 / (50_000 - 2_500) * 1e9 / H200.bandwidth)


def test_a_law_misses_each_of_its_rows_by_a_ratio() -> None:
    found = timed(relu(2**20, 10_000)).laws["elementwise", "bfloat16"]
    moved = 4 * 2**20
    assert found.memory == pytest.approx(reached(moved, 10_000, 9_000))
    ((place, ratio),) = found.near
    assert place == (22.0, 0.0)
    assert ratio == pytest.approx(10_000 / (9_000 + moved / (found.memory * H200.bandwidth) * 1e9))


def test_what_takes_no_time_takes_a_nanosecond() -> None:
    for taken in (0, 1):
        found = timed(relu(1, taken)).laws["elementwise", "bfloat16"]
        assert found.start_ns == 0.9
        assert found.memory == pytest.approx(reached(4, 1, 0.9))


def test_a_spread_is_the_usual_miss_of_the_nearest_of_a_sample() -> None:
    # Threes: the first has a neighbour that misses by another tenth; the others have each other, who miss alike.
    near = [
        Near((100.0 * i + place,), ratio)
        for i in range(16)
        for place, ratio in ((0.0, 1.0), (2.0, exp(0.1)), (2.5, exp(0.1)))
    ]
    assert _spread(tuple(near)) == pytest.approx(1.5 * 0.1)
    assert _spread(tuple(near[:2])) == pytest.approx(1.5 * 0.1)
    assert _spread(tuple(near[:1])) == 0.5


@pytest.mark.parametrize(("added", "alone"), [(4_000, 6_000), (9_000, 2_500)])
def test_the_bias_is_taken_off_a_convolution_and_put_on_again(added: int, alone: int) -> None:
    """A kernel that adds the bias itself leaves at least a quarter."""
    ins, out = tensors("1x8x16x16 16x8x1x1 16"), tensors("1x16x16x16")
    conv = Measured("conv", CONV, {}, ins, out, 10_000)
    add = Measured("elementwise", "aten::add_", {"fn": "add"}, (*out, ins[2]), out, added)
    speeds = timed(conv, add)
    for given, taken in ((ins[:2], alone), (ins, alone + added)):
        work = work_of("conv", CONV, conv.attrs, given, out, Cost(1, 2, 0, 0))
        assert speeds.time(work).device_ns == pytest.approx(taken, rel=0.005)


@pytest.mark.parametrize(
    ("kind", "switch", "peak"),
    [
        ("matmul", {}, "float32"), ("matmul", {"tf32_products": "on"}, "tf32"), ("matmul", {"tf32_convolutions": "on"},
            "float32"),
        ("conv", {}, "float32"), ("conv", {"tf32_convolutions": "on"}, "tf32"), ("conv", {"tf32_products": "on"}, "float32"),
    ],
)  # fmt: skip
def test_products_of_float32_run_at_the_rate_of_the_switch(kind: str, switch: dict[str, str], peak: str) -> None:
    ins, outs = tensors("1x8x4x4 16x8x1x1", "float32"), tensors("1x16x4x4", "float32")
    found = timed(**switch).time(work_of(kind, "", {"depth": 8}, ins, outs, Cost(10**9, 0, 0, 0)))
    assert found.ideal_ns == pytest.approx(2e9 / H200.flops[peak] * 1e9)


def test_a_type_without_a_peak_runs_like_float32() -> None:
    ins, outs = tensors("8x8 8x8", "float4_e2m1fn_x2"), tensors("8x8", "float4_e2m1fn_x2")
    found = timed().time(work_of("matmul", "aten::mm", {"depth": 8}, ins, outs, Cost(10**9, 0, 0, 0)))
    assert found.ideal_ns == pytest.approx(2e9 / H200.flops["float32"] * 1e9)


def test_without_any_peak_a_tera_is_taken() -> None:
    """A processor of which only what moves memory was timed."""
    found = timed(relu(1000, 2_000), name=HOST)
    product = work_of("matmul", "aten::mm", {"depth": 8}, tensors("8x8 8x8"), tensors("8x8"), Cost(10**9, 0, 0, 0))
    assert found.time(product).ideal_ns == pytest.approx(2e9 / 1e12 * 1e9)


def test_a_processor_has_the_best_peaks_that_were_seen() -> None:
    found = timed(relu(1000, 2_000), relu(3000, 4_000), mm(64, 2 * 64), mm(64, 4 * 64), name=HOST).device
    assert (found.name, found.bandwidth, found.flops["float32"]) == (HOST, 6 * 64 * 64 * 10**9 // 128, 64 * 64 * 10**9)
    assert timed(name=HOST).device.bandwidth == timed(name=HOST).device.flops["float32"] == 10**9


# -- what was never timed --------------------------------------------------------------------------------------------------


def copy(name: str, taken: int, dtype: str = "bfloat16", **attrs: bool) -> Measured:
    x = TensorSpec((64, 64), dtype)
    return Measured("copy", f"aten::{name}", attrs, (x,), (x,), taken)


def work(row: Measured) -> Work:
    return work_of(row.kind, row.raw, row.attrs, row.ins, row.outs, None)


@pytest.mark.parametrize(
    ("rows", "wanted", "start"),
    [
        # of the same kind, the same type; a word in common is worth more than the type
        ([copy("a", 2_000, "float32"), copy("a", 4_000)], copy("b", 0), 4_000),
        ([copy("a", 4_000), copy("a", 2_000, "float32")], copy("b", 0), 4_000),
        ([copy("a", 4_000), copy("c", 2_000)], copy("b", 0), 4_000),
        ([relu(4, 2_000), copy("a", 4_000, "float32")], copy("b", 0), 4_000),
        ([copy("a", 4_000, "float32", strided=True), copy("c", 2_000)], copy("b", 0, strided=True), 4_000),
        ([copy("c", 2_000), copy("a", 4_000, "float32", strided=True)], copy("b", 0, strided=True), 4_000),
        # else what only moves memory, in the same type or in float32
        ([relu(4, 2_000, "float32"), relu(4, 4_000)], copy("b", 0), 4_000),
        ([relu(4, 4_000, "float32"), copy("a", 2_000, "float64")], mm(4, 0, "float64"), 4_000),
    ],
)
def test_what_was_never_timed_starts_like_the_family_with_most_words_in_common(
    rows: list[Measured], wanted: Measured, start: int
) -> None:
    found = timed(*rows).time(work(wanted))
    assert not found.known
    assert found.spread == 0.5
    moved = work(wanted).nbytes
    near = next(row for row in rows if row.device_ns == start)
    share = reached(work(near).nbytes, start, 0.9 * start)
    assert found.device_ns == pytest.approx(0.9 * start + moved / (share * H200.bandwidth) * 1e9)
    assert found.ideal_ns == pytest.approx(moved / H200.bandwidth * 1e9)


def test_where_nothing_was_timed_the_peaks_are_taken() -> None:
    found = timed().time(work(relu(2**20, 0)))
    assert found == (pytest.approx(4 * 2**20 / H200.bandwidth * 1e9), 0.5, "memory", found.device_ns, False, 1.0)


def test_halves_run_like_bfloat16_and_others_like_none() -> None:
    speeds = timed(relu(64, 5_000))
    assert speeds.time(work(relu(64, 0, "float16"))).known
    assert speeds.time(work(relu(64, 0, "float16"))).device_ns == pytest.approx(5_000)
    assert not speeds.time(work(relu(64, 0, "float32"))).known


# -- what a compiler makes one kernel of -------------------------------------------------------------------------------

SIZES = {"a": 16, "b": 16, "c": 16, "d": 16, "e": 16, "f": 16, "g": 16, "L": 64, "M": 64}


def made(number: int, said: str, **more: Any) -> Row:
    """`add a b > c` reads two values of 16 elements of four bytes and writes one; capitals have 64 elements."""
    name, *rest = said.split()
    ins, outs = (list(part.split()) for part in " ".join(rest).split(">"))
    kind = {"mm": "matmul", "view": "view", "sum": "reduce", "embed": "gather"}.get(name, "elementwise")
    spec = {value: TensorSpec((size,)) for value, size in SIZES.items()}
    cost = None if more.pop("unknown", False) else Cost(0, 10, 0, 0)
    op = Op(number, kind, f"aten::{name}", tuple(map(ord, ins)), tuple(map(ord, outs)), {}, **more)
    return Row(op, tuple(spec[value] for value in ins), tuple(spec[value] for value in outs), cost, "")


def of(*said: str, **more: Any) -> list[Row]:
    return [made(number, each, **more) for number, each in enumerate(said)]


@pytest.mark.parametrize(
    ("rows", "results", "kernels"),
    [
        # kernels: the name, bytes read, bytes written, FLOPs
        (of("relu a > b", "add b > c"), "c", [("merged relu, add", 64, 64, 20)]),
        (of("relu a > b", "add b > c"), "bc", [("merged relu, add", 64, 128, 20)]),
        (of("relu a > b", "relu b > c"), "c", [("merged relu", 64, 64, 20)]),
        (of("relu a > b"), "b", [("aten::relu", 64, 64, 10)]),
        (of("a a > b", "b b > c", "c c > d"), "d", [("merged a, b, c", 64, 64, 30)]),
        (of("a a > b", "b b > c", "c c > d", "d d > e"), "e", [("merged a, b, c and 1 more", 64, 64, 40)]),
        (of("a a > b", "view b > c", "b c > d"), "d", [("merged a, b", 64, 64, 20)]),
        (of("a a > b", "view b > c", "b b > d"), "cd", [("merged a, b", 64, 128, 20)]),
        # what is calculated from few is calculated again where it is read
        (of("a a > b", "b b L > M"), "M", [("merged a, b", 64 + 256, 256, 20)]),
        (of("a a > b", "b b L > M", "mm b > c"), "Mc", [("merged a, b", 320, 256, 20), ("aten::a", 64, 64, 10), ("aten::mm",
            0, 0, 0)]),
        (of("a a > b", "mm b > c", "b b L > M"), "Mc", [("aten::a", 64, 64, 10), ("aten::mm", 0, 0, 0), ("aten::b", 320, 256,
            10)]),
        (of("a L > b", "b b > c"), "c", [("merged a, b", 256, 64, 20)]),
        (of("a a > b", "mm b > c", "b c > d"), "d", [("aten::a", 64, 64, 10), ("aten::mm", 0, 0, 0), ("aten::b", 64, 64, 10)]),
        (of("a a > b", "embed b > c"), "c", [("merged a, embed", 64, 64, 20)]),
        # the last of those that it reads of
        (of("a a > b", "mm b > e", "b e > c", "c b c > d"), "d",
         [("aten::a", 64, 64, 10), ("aten::mm", 0, 0, 0), ("merged b, c", 128, 64, 20)]),
        # other phases and numbers of repetitions stay apart, and so does what never runs
        ([made(0, "a a > b"), made(1, "b b > c", phase="backward")], "c", [("aten::a", 64, 64, 10), ("aten::b", 64, 64, 10)]),
        ([made(0, "a a > b"), made(1, "b b > c", repeat=2)], "c", [("aten::a", 64, 64, 10), ("aten::b", 64, 64, 10)]),
        ([made(0, "a a > b"), made(1, "b b L > M", repeat=2)], "M", [("aten::a", 64, 64, 10), ("aten::b", 320, 256, 10)]),
        (of("a a > b", "b b > c", repeat=0), "c", []),
        (of("a a > b", "b b > c", repeat=3), "c", [("merged a, b", 64, 64, 20)]),
        ([made(0, "a a > b", unknown=True), made(1, "b b > c")], "c", [("merged a, b", 64, 64, 10)]),
        (of("a > b", "b > c"), "bc", [("aten::a", 0, 64, 10), ("aten::b", 0, 64, 10)]),
        (of("a a >", "b a > c"), "c", [("aten::b", 64, 64, 10)]),
        (of("view a > b", "view b > c", "a c > d", "b b > e"), "de", [("merged a, b", 64, 128, 20)]),
    ],
)  # fmt: skip
def test_chains_are_one_kernel(rows: list[Row], results: str, kernels: list[tuple[str, int, int, int]]) -> None:
    found = merged(rows, {ord(value) for value in results})
    kept = [row for row in found if row.rule != "merged"]
    assert all(row in rows for row in kept)
    works = [
        (row.op.raw, row.cost.bytes_read, row.cost.bytes_written, row.cost.flops) if row.rule == "merged" and row.cost
        else (row.op.raw, 0, 0, 0) for row in found
    ]  # fmt: skip
    assert works == kernels


def convolution(image: str, weight: str, out: str, **attrs: Any) -> Row:
    specs = tensors(f"{image} {weight} 8")
    return Row(Op(0, "conv", CONV, (0, 1, 2), (3,), attrs), specs, tensors(out), None, "")


@pytest.mark.parametrize(
    ("row", "is_laid_out", "inputs"),
    [
        (convolution("1x64x8x8", "64x64x3x3", "1x64x6x6"), True, 2),
        (convolution("1x3x8x8", "65x3x3x3", "1x65x6x6"), True, 2),
        (convolution("1x65x8x8", "8x65x3x3", "1x8x6x6"), True, 2),
        (convolution("1x96x8x8", "96x2x3x3", "1x96x6x6"), False, 2),  # in groups
        (convolution("1x96x8x8", "96x1x3x3", "1x96x6x6"), True, 2),  # each channel for itself
        (convolution("1x96x8x8", "96x96x3x3", "1x96x6x6", transposed=True), False, 3),
        (convolution("1x96x8x8", "96x96x3x3", "1x96x6x6", grads=("weight",)), False, 3),
        (convolution("1x96x8", "96x96x3", "1x96x6"), False, 3),
        (convolution("?", "96x96x3x3", "1x96x6x6"), False, 3),
        (convolution("1x96x8x8", "96x96", "1x96x6x6"), False, 3),
    ],
)
def test_convolutions_without_groups_have_channels_side_by_side(row: Row, is_laid_out: bool, inputs: int) -> None:
    (found,) = (each for each in merged([row], {3}) if each.op.kind == "conv")
    assert (bool(found.op.attrs.get("channels_last")), len(found.ins)) == (is_laid_out, inputs)


@pytest.mark.parametrize(("distance", "known"), [(0.0, True), (1.0, True), (3.0, True), (3.1, False)])
def test_what_is_far_from_all_that_was_timed_is_less_sure(distance: float, known: bool) -> None:
    row = relu(2**20, 9_000)
    speeds = timed(row, row)
    (law,) = speeds.laws.values()
    at = work(row)
    found = speeds.time(at._replace(place=(at.place[0] + distance, *at.place[1:])))
    assert found.known == known
    assert found.spread == pytest.approx(law.spread + 0.08 * distance if known else 0.5)
