"""Norms, softmax, pooling, losses, resizing, sampling, transforms, sorting and factorisations."""

from __future__ import annotations

from math import log2
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from opcost.rules.elementwise import NORMS

aten = torch.ops.aten


# -- norms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_says_whether_it_fits_and_whether_it_scales(affine: bool, training: bool, record: Any) -> None:
    layer = torch.nn.BatchNorm2d(3, affine=affine).train(training)
    x = torch.randn(2, 3, 4, 4)
    (seen,) = [s for s in record(lambda: layer(x)) if s.kind == "norm"]
    assert seen.attrs == {"fn": "batch", "affine": 2 * affine, "training": training}
    constants = NORMS["batch"]
    assert seen.cost.flops == x.numel() * (constants.apply + constants.statistics * training + 2 * affine)


@pytest.mark.parametrize(
    ("layer", "fn", "affine"),
    [
        (torch.nn.LayerNorm(6), "layer", 2),
        (torch.nn.LayerNorm(6, bias=False), "layer", 1),
        (torch.nn.LayerNorm(6, elementwise_affine=False), "layer", 0),
        (torch.nn.GroupNorm(2, 4), "group", 2),
    ],
    ids=str,
)
def test_a_norm_counts_the_weight_and_bias_it_has(layer: Any, fn: str, affine: int, record: Any) -> None:
    x = torch.randn(2, 4, 6, requires_grad=True)
    forward, backward = [s for s in record(lambda: layer(x).backward(torch.ones(2, 4, 6))) if s.kind == "norm"]
    assert forward.attrs == {"fn": fn, "affine": affine}
    assert backward.attrs == {"fn": fn, "grad": True, "affine": affine}
    assert backward.ins[:2] == ((2, 4, 6), (2, 4, 6)), "the incoming gradient, then x"


def test_a_fused_rms_norm_is_one(translated: Any, meta: Any) -> None:
    seen = translated(aten._fused_rms_norm.default, meta(2, 6), [6], meta(6), 1e-6, outs=((2, 6), (2, 1)))
    assert seen.attrs == {"fn": "rms", "affine": 1}


def test_weight_norm_is_a_norm_of_the_weight(record: Any) -> None:
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 3))
    seen = [s for s in record(lambda: layer(torch.randn(2, 4))) if s.kind == "norm"]
    assert [(s.attrs, s.ins[0]) for s in seen] == [({"fn": "weight"}, (3, 4))]


@pytest.mark.parametrize("fn", ["softmax", "log_softmax"])
def test_softmax_and_its_gradient(fn: str, record: Any) -> None:
    x = torch.randn(2, 5, requires_grad=True)
    seen = [s for s in record(lambda: getattr(F, fn)(x, -1).sum().backward()) if s.kind == "softmax"]
    assert [s.attrs for s in seen] == [{"fn": fn}, {"fn": fn, "grad": True}]


# -- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "fn", "kernel", "stride"),
    [
        (lambda x: F.max_pool2d(x, 3), "max", (3, 3), (3, 3)),
        (lambda x: F.max_pool2d(x, (3, 2), 1), "max", (3, 2), (1, 1)),
        (lambda x: F.avg_pool2d(x, 2), "avg", (2, 2), (2, 2)),
        (lambda x: F.adaptive_avg_pool2d(x, 4), "adaptive_avg", (2, 2), (2, 2)),
        (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), "adaptive_avg", (3, 2), (2, 1)),
        (lambda x: F.adaptive_max_pool2d(x, 2), "adaptive_max", (4, 4), (4, 4)),
    ],
)
def test_a_pooling_knows_its_window_forward_and_backward(
    function: Any, fn: str, kernel: tuple[int, int], stride: tuple[int, int], record: Any
) -> None:
    x = torch.randn(1, 2, 8, 8, requires_grad=True)
    forward, backward = [s for s in record(lambda: function(x).sum().backward()) if s.kind == "pool"]
    expected = {"fn": fn, "window": kernel[0] * kernel[1]}
    dilation = {"dilation": (1, 1)} if fn == "max" else {}
    assert forward.attrs == {**expected, "kernel": kernel, "stride": stride, **dilation}
    assert backward.attrs == {**expected, "grad": True}


def test_pooling_to_one_element_is_a_mean(record: Any, meta: Any) -> None:
    (seen,) = record(lambda: F.adaptive_avg_pool2d(meta(1, 2, 8, 8), 1))
    assert (seen.kind, seen.attrs) == ("reduce", {"fn": "mean"})


# -- losses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "fn"),
    [
        (F.mse_loss, "mse"),
        (F.smooth_l1_loss, "smooth_l1"),
        (F.huber_loss, "huber"),
        (F.soft_margin_loss, "soft_margin"),
        (lambda x, t: F.binary_cross_entropy(x.sigmoid(), t), "bce"),
    ],
)
def test_a_loss_and_its_gradient_have_one_name(function: Any, fn: str, record: Any) -> None:
    x, target = torch.randn(6, requires_grad=True), torch.rand(6)
    seen = [s for s in record(lambda: function(x, target).backward()) if s.kind == "loss"]
    assert [s.attrs for s in seen] == [{"fn": fn}, {"fn": fn, "grad": True}]


def test_the_likelihood_of_classes_costs_its_targets(record: Any) -> None:
    x, target = torch.randn(6, 10, requires_grad=True), torch.zeros(6, dtype=torch.int64)
    forward, backward = [s for s in record(lambda: F.cross_entropy(x, target).backward()) if s.kind == "loss"]
    assert forward.attrs == {"fn": "nll"}
    assert forward.cost.flops < x.numel()
    assert backward.attrs == {"fn": "nll", "grad": True}


# -- positions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "mode", "fn"),
    [
        ((1, 2, 8), "nearest", "nearest"),
        ((1, 2, 8), "linear", "linear"),
        ((1, 2, 8, 8), "nearest-exact", "nearest"),
        ((1, 2, 8, 8), "bilinear", "bilinear"),
        ((1, 2, 8, 8), "bicubic", "bicubic"),
        ((1, 2, 4, 4, 4), "trilinear", "trilinear"),
    ],
)
def test_resizing_names_its_method(shape: tuple[int, ...], mode: str, fn: str, record: Any) -> None:
    x = torch.randn(shape, requires_grad=True)
    seen = [
        s for s in record(lambda: F.interpolate(x, scale_factor=2, mode=mode).sum().backward()) if s.kind == "resize"
    ]
    assert [s.attrs for s in seen] == [{"fn": fn}, {"fn": fn, "grad": True}]


@pytest.mark.parametrize(("mode", "support"), [("bilinear", 1), ("bicubic", 2)])
def test_an_antialiased_filter_widens_with_the_reduction(mode: str, support: int, record: Any) -> None:
    x = torch.randn(1, 2, 12, 8)
    (seen,) = record(lambda: F.interpolate(x, (4, 8), mode=mode, antialias=True))
    assert seen.attrs == {"fn": mode, "taps": (2 * support * 3) * (2 * support)}


@pytest.mark.parametrize(("mode", "taps"), [("bilinear", 4), ("nearest", 1), ("bicubic", 16)])
def test_a_sampled_grid_reads_its_neighbours(mode: str, taps: int, record: Any) -> None:
    x, grid = torch.randn(1, 2, 8, 8, requires_grad=True), torch.zeros(1, 5, 5, 2)
    seen = record(lambda: F.grid_sample(x, grid, mode=mode, align_corners=False).sum().backward())
    forward, backward = [s for s in seen if s.kind == "sample"]
    assert (forward.attrs, forward.ins) == ({"taps": taps}, ((1, 2, 8, 8), (1, 5, 5, 2)))
    assert backward.attrs == {"taps": taps, "grad": True}
    assert backward.ins[0] == (1, 2, 5, 5)


def test_distances_and_their_gradient(record: Any) -> None:
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4)
    forward, *backward = [s for s in record(lambda: torch.cdist(a, b, p=1.0).sum().backward()) if s.kind == "distance"]
    assert forward.cost.flops == 3 * 5 * (3 * 4 + 1)
    assert backward[0].attrs == {"grad": True}


# -- transforms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "lengths", "real"),
    [
        (lambda x: torch.fft.fft(x.to(torch.complex64)), (8,), False),
        (torch.fft.rfft, (8,), True),
        (torch.fft.rfft2, (4, 8), True),
        (lambda x: torch.fft.irfft(x.to(torch.complex64), n=14), (14,), True),
    ],
)
def test_a_transform_lists_its_lengths(function: Any, lengths: tuple[int, ...], real: bool, record: Any) -> None:
    x = torch.randn(4, 8)
    seen = [s for s in record(lambda: function(x)) if s.kind == "fft"]
    assert sorted(n for s in seen for n in s.attrs["lengths"]) == sorted(lengths)
    assert any("real" in s.attrs for s in seen) == real


def test_a_transform_named_by_a_trace_knows_the_requested_length(translated: Any, meta: Any) -> None:
    seen = translated(aten.fft_rfft.default, meta(4, 8), 16, outs=((4, 9),))
    assert seen.attrs == {"lengths": (16,), "real": True}
    windows = translated(aten.stft.center, meta(2, 100), 16, 4, outs=((2, 9, 26),))
    assert windows.attrs == {"lengths": (16,), "real": True}


@pytest.mark.parametrize(
    ("function", "attrs"),
    [
        (lambda x: x.sort(0), {"length": 8}),
        (lambda x: x.topk(2), {"length": 4, "selected": 2}),
        (lambda x: x.kthvalue(3, 0), {"length": 8, "selected": 3}),
        (lambda x: x.median(), {"length": 32}),
        (lambda x: x.median(1), {"length": 4}),
        (lambda x: x.unique(), {"length": 32}),
    ],
)
def test_a_sort_knows_how_many_it_compares(function: Any, attrs: dict[str, int], record: Any) -> None:
    x = torch.randn(8, 4)
    assert [s.attrs for s in record(lambda: function(x)) if s.kind == "sort"] == [attrs]


def test_a_search_costs_the_logarithm_of_what_it_searches(record: Any, meta: Any) -> None:
    (seen,) = record(lambda: torch.searchsorted(meta(64), meta(10)))
    assert seen.ins[0] == (10,), "the values looked for come first"
    assert seen.cost.flops == 10 * log2(64)
    (buckets,) = record(lambda: torch.bucketize(meta(10), meta(64)))
    assert buckets.cost.flops == 10 * log2(64)


@pytest.mark.parametrize(
    ("function", "fn"),
    [
        (lambda x: x.sum(), "sum"),
        (lambda x: x.mean(0), "mean"),
        (lambda x: x.max(), "max"),
        (lambda x: x.max(0), "max"),
        (lambda x: x.argmin(), "argmin"),
        (lambda x: x.var(), "var"),
        (torch.std_mean, "std_mean"),
        (lambda x: x.norm(), "norm"),
        (lambda x: x.cumsum(0), "cumsum"),
        (lambda x: x.logsumexp(0), "logsumexp"),
        (torch.histc, "histogram"),
        (lambda x: (x > 0).any(), "any"),
        (lambda x: torch.equal(x, x.clone()), "equal"),
    ],
)
def test_a_reduction_is_named(function: Any, fn: str, record: Any) -> None:
    x = torch.randn(8, 4)
    assert [s.attrs for s in record(lambda: function(x)) if s.kind == "reduce"] == [{"fn": fn}]


@pytest.mark.parametrize(
    ("function", "fn"),
    [
        (torch.linalg.solve, "solve"),
        (lambda a, b: torch.linalg.inv(a), "inverse"),
        (lambda a, b: torch.linalg.svd(a), "svd"),
        (lambda a, b: torch.linalg.eigh(a), "eigh"),
        (lambda a, b: torch.linalg.qr(a), "qr"),
        (lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), "triangular_solve"),
        (lambda a, b: torch.cholesky_solve(b, a), "factored_solve"),
    ],
)
def test_a_factorisation_has_its_matrix_first(function: Any, fn: str, record: Any) -> None:
    a, b = torch.eye(4), torch.randn(4, 2)
    seen = [s for s in record(lambda: function(a, b)) if s.kind == "linalg"]
    assert [s.attrs["fn"] for s in seen] == [fn]
    assert seen[0].ins[0] == (4, 4)


def test_a_factorised_system_is_two_triangular_ones(translated: Any, meta: Any) -> None:
    matrix, right = meta(4, 4), meta(4, 2)
    one = translated(aten.linalg_solve_triangular.default, matrix, right, upper=True, outs=((4, 2),))
    two = translated(aten.linalg_lu_solve.default, matrix, meta(4, dtype=torch.int32), right, outs=((4, 2),))
    assert two.cost.flops == 2 * one.cost.flops > 0


# -- random -----------------------------------------------------------------------------------------------------------


def test_dropout_draws_only_in_training(translated: Any, meta: Any) -> None:
    assert translated(aten.dropout.default, meta(8), 0.5, True, outs=((8,),)).attrs == {"fn": "dropout"}
    assert translated(aten.dropout.default, meta(8), 0.5, False, outs=((8,),)).kind == "view"
    fused = translated(aten.native_dropout.default, meta(8), 0.5, True, outs=((8,), (8,)))
    assert (fused.kind, fused.attrs) == ("random", {"fn": "dropout"})
