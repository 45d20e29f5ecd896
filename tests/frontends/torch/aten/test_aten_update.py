"""Optimizer steps, quantized layers, collectives and torchvision's operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from opcost.rules.elementwise import FLOPS_PER_ELEMENT

aten = torch.ops.aten


# -- optimizers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "fn", "states"),
    [
        (lambda p: torch.optim.Adam(p, fused=True), "adam_step", 3),
        (lambda p: torch.optim.AdamW(p, fused=True), "adamw_step", 3),
        (lambda p: torch.optim.SGD(p, fused=True), "sgd_step", 1),
        (lambda p: torch.optim.SGD(p, momentum=0.9, fused=True), "momentum_step", 2),
        (lambda p: torch.optim.Adagrad(p, fused=True), "adagrad_step", 2),
    ],
)
def test_a_fused_step_costs_every_parameter_once_and_writes_its_state(
    make: Any, fn: str, states: int, record: Any
) -> None:
    parameters = [torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(5))]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = make(parameters)
    optimizer.step()
    (seen,) = [s for s in record(optimizer.step) if s.attrs.get("fn") == fn]
    elements = 12 + 5
    assert seen.attrs == {"fn": fn, "elements": elements}
    assert seen.cost.flops == elements * FLOPS_PER_ELEMENT[fn]
    assert seen.cost.bytes_written == 4 * states * elements


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam"])
def test_every_part_of_an_optimizer_step_is_known(name: str, foreach: bool, record: Any) -> None:
    parameter = torch.nn.Parameter(torch.randn(3, 4))
    parameter.grad = torch.ones_like(parameter)
    seen = record(getattr(torch.optim, name)([parameter], lr=0.1, foreach=foreach).step)
    assert seen
    assert "unknown" not in {s.kind for s in seen}
    assert sum(s.cost.flops for s in seen) >= 2 * parameter.numel()


# -- quantized --------------------------------------------------------------------------------------------------------


@pytest.fixture
def engine() -> Iterator[None]:
    """A quantized engine that runs on this machine."""
    before = torch.backends.quantized.engine
    for name in ("qnnpack", "onednn", "fbgemm"):
        if name in torch.backends.quantized.supported_engines:
            torch.backends.quantized.engine = name
            break
    yield
    torch.backends.quantized.engine = before


@pytest.mark.usefixtures("engine")
def test_a_dynamically_quantized_linear_layer_keeps_its_macs(record: Any) -> None:
    net = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(8, 16)), {torch.nn.Linear})
    (seen,) = [s for s in record(lambda: net(torch.randn(2, 3, 8))) if s.cost.macs]
    assert (seen.name, seen.kind) == ("quantized::linear_dynamic", "matmul")
    assert seen.attrs == {"depth": 8, "bias": True}
    assert seen.cost.macs == 2 * 3 * 8 * 16


@pytest.mark.usefixtures("engine")
def test_a_dynamically_quantized_lstm_keeps_its_macs(record: Any) -> None:
    net = torch.nn.Sequential(torch.nn.LSTM(8, 16, 2))
    net = torch.ao.quantization.quantize_dynamic(net, {torch.nn.LSTM})
    seen = [s for s in record(lambda: net(torch.randn(5, 3, 8))) if s.cost.macs]
    assert [s.name for s in seen] == ["aten::quantized_lstm"]
    assert seen[0].cost.macs == 5 * 3 * 4 * 16 * ((8 + 16) + (16 + 16))


@pytest.mark.usefixtures("engine")
def test_quantized_convolutions_have_the_macs_of_their_packed_weight(record: Any) -> None:
    scale = {"scale": 0.1, "zero_point": 0}
    x = torch.quantize_per_tensor(torch.randn(1, 4, 8, 8), dtype=torch.quint8, **scale)
    weight = torch.quantize_per_tensor(torch.randn(8, 2, 3, 3), dtype=torch.qint8, **scale)
    packed = torch.ops.quantized.conv2d_prepack(weight, torch.zeros(8), [1, 1], [0, 0], [1, 1], 2)
    (seen,) = record(lambda: torch.ops.quantized.conv2d_relu.new(x, packed, 0.1, 0))
    assert seen.kind == "conv"
    assert seen.cost.macs == 8 * 6 * 6 * 2 * 9
    assert seen.attrs["then"] == ("relu",)
    backwards = torch.quantize_per_tensor(torch.randn(4, 3, 2, 2), dtype=torch.qint8, **scale)
    packed = torch.ops.quantized.conv_transpose2d_prepack(backwards, None, [2, 2], [0, 0], [0, 0], [1, 1], 1)
    (seen,) = record(lambda: torch.ops.quantized.conv_transpose2d(x, packed, 0.1, 0))
    assert seen.attrs["transposed"]
    assert seen.cost.macs == 4 * 8 * 8 * 3 * 4


def test_quantizing_and_back(record: Any) -> None:
    x = torch.randn(6)
    forth, back = record(lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize())
    assert (forth.kind, back.kind) == ("quantize", "quantize")
    assert forth.cost.flops > back.cost.flops > 0
    (fake, *_) = record(lambda: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127))
    assert fake.attrs == {"fn": "fake_quantize", "elements": 6}


# -- collectives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "attrs"),
    [
        ("all_reduce", ("sum", "0"), {"fn": "all_reduce"}),
        ("all_gather_into_tensor", (4, "0"), {"fn": "all_gather", "group": 4}),
        ("reduce_scatter_tensor", ("sum", 4, "0"), {"fn": "reduce_scatter", "group": 4}),
        ("broadcast", (2, "0"), {"fn": "broadcast", "peer": 2}),
        ("wait_tensor", (), {"fn": "wait"}),
    ],
)
def test_functional_collectives(
    name: str, arguments: tuple[Any, ...], attrs: dict[str, Any], translated: Any, meta: Any
) -> None:
    library = getattr(torch.ops, "_c10d_functional", None)
    if not torch.distributed.is_available():
        pytest.skip("this torch has no distributed support")
    seen = translated(getattr(library, name).default, meta(8), *arguments, outs=((8,),))
    assert seen.kind == "collective"
    assert seen.attrs == attrs


def test_collectives_on_process_groups_read_inputs_and_write_outputs(translated: Any, meta: Any) -> None:
    if not torch.distributed.is_available():
        pytest.skip("this torch has no distributed support")
    gathered = translated(torch.ops.c10d._allgather_base_.default, meta(16), meta(4), None, outs=((16,),))
    assert (gathered.attrs, gathered.ins, gathered.outs) == ({"fn": "all_gather"}, ((4,),), ((16,),))
    reduced = translated(torch.ops.c10d.allreduce_.default, [meta(4)], None, None, None, outs=((4,),))
    assert (reduced.attrs, reduced.ins, reduced.outs) == ({"fn": "all_reduce"}, ((4,),), ((4,),))


# -- torchvision ------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,"
    " int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width)"
    " -> (Tensor, Tensor)",
    "deform_conv2d": "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h,"
    " SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups,"
    " SymInt offset_groups, bool use_mask) -> Tensor",
    "_deform_conv2d_backward": "(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias,"
    " SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups,"
    " SymInt offset_groups, bool use_mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
}
"""As torchvision 0.20 and later declare them."""


@pytest.fixture(scope="module")
def vision() -> Iterator[Any]:
    """torchvision's operators by name, declared here where torchvision is not installed."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    existing = set(torch._C._dispatch_get_all_op_names())
    for name, schema in SCHEMAS.items():
        if f"torchvision::{name}" not in existing:
            library.define(name + schema)
    yield torch.ops.torchvision
    library._destroy()


def test_regions_are_sampled(vision: Any, translated: Any, meta: Any) -> None:
    x, boxes = meta(1, 3, 32, 32), meta(5, 5)
    seen = translated(vision.roi_align.default, x, boxes, 1.0, 7, 7, 2, False, outs=((5, 3, 7, 7),))
    assert (seen.kind, seen.attrs) == ("sample", {"taps": 4 * 2 * 2})
    pooled = translated(vision.roi_pool.default, x, boxes, 1.0, 8, 8, outs=((5, 3, 8, 8), (5, 3, 8, 8)))
    assert pooled.attrs == {"fn": "adaptive_max", "window": 16}


def test_a_deformable_convolution_is_a_convolution_over_samples(vision: Any, translated: Any, meta: Any) -> None:
    batch, channels, out, kernel, size = 2, 4, 8, 3, 6
    x, weight, bias = meta(batch, channels, size, size), meta(out, channels, kernel, kernel), meta(out)
    offset, mask = meta(batch, 2 * kernel**2, size, size), meta(batch, kernel**2, size, size)
    y = (batch, out, size, size)
    rest = (1, 1, 1, 1, 1, 1, 1, 1, True)
    seen = translated(vision.deform_conv2d.default, x, weight, offset, mask, bias, *rest, outs=(y,))
    macs = batch * out * size * size * channels * kernel * kernel
    samples = batch * size * size * channels * kernel * kernel
    assert seen.kind == "conv"
    assert seen.cost.macs == macs
    assert seen.cost.flops == 2 * macs + batch * out * size * size + samples * 4 * 2
    backward = translated(
        vision._deform_conv2d_backward.default, meta(*y), x, weight, offset, mask, bias, *rest,
        outs=tuple(tuple(t.shape) for t in (x, weight, offset, mask, bias)),
    )  # fmt: skip
    assert backward.cost.macs == 2 * macs
