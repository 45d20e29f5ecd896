"""Layers of few bits: as many parameters as the layer has, the bytes that are stored, the products of the dequantized layer.

The layers of bitsandbytes and torchao are imitated where these are not installed; their own are counted where they are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import opcost
from opcost.frontends.aten.call import HANDLERS

B, SIDE, BLOCK = 4, 64, 64
WEIGHT = SIDE * SIDE
MACS = B * SIDE * SIDE
X = torch.ones(B, SIDE)

SCHEMAS = {
    "bitsandbytes::gemm_4bit": "(Tensor A, Tensor B, int[] shapeB, Tensor absmax, int blocksize, str quant_type, "
    "Tensor? bias=None, Tensor? absmax_8bit=None, Tensor? absmax_code=None, Tensor? absmax_offset=None) -> Tensor",
    "bitsandbytes::dequantize_4bit": "(Tensor A, Tensor absmax, int blocksize, str quant_type, int[] shape, "
    "ScalarType dtype) -> Tensor",
    "bitsandbytes::quantize_4bit": "(Tensor A, int blocksize, str quant_type, ScalarType quant_storage) -> (Tensor, Tensor)",
    "bitsandbytes::int8_linear_matmul": "(Tensor A, Tensor B) -> Tensor",
    "torchao::da8w4_linear_cpu": "(Tensor input, Tensor input_scales, Tensor input_qzeros, Tensor weight, Tensor weight_scales, "
    "Tensor weight_qzeros, Tensor compensation, Tensor? bias, ScalarType output_dtype) -> Tensor",
}
MADE = {
    "bitsandbytes::gemm_4bit": lambda a, b, shape, *_: a.new_empty((*a.shape[:-1], shape[0])),
    "bitsandbytes::dequantize_4bit": lambda a, absmax, blocksize, kind, shape, dtype: a.new_empty(shape, dtype=dtype),
    "bitsandbytes::quantize_4bit": lambda a, blocksize, kind, storage: (
        a.new_empty((a.numel() // 2, 1), dtype=storage),
        a.new_empty(a.numel() // blocksize, dtype=torch.float32),
    ),
    "bitsandbytes::int8_linear_matmul": lambda a, b: a.new_empty((*a.shape[:-1], b.shape[0]), dtype=torch.int32),
    "torchao::da8w4_linear_cpu": lambda x, s, z, w, ws, wz, c, bias, dtype: x.new_empty(
        (*x.shape[:-1], w.shape[0] * w.shape[-1]), dtype=dtype
    ),
}


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    """The operators of the libraries, imitated where they are not there."""
    for package in ("bitsandbytes", "torchao.quantization"):
        with suppress(ImportError):
            import_module(package)
    imitated = []
    for name, schema in SCHEMAS.items():
        library, _, base = name.partition("::")
        if hasattr(getattr(torch.ops, library), base):
            continue
        made = torch.library.Library(library, "FRAGMENT")
        made.define(base + schema)
        made.impl(base, MADE[name], "Meta")
        imitated.append(made)
    yield
    for made in imitated:
        made._destroy()


class Packed(nn.Parameter):
    """Two values of four bits in each byte, with the shape and the scales beside, as bitsandbytes keeps them."""

    def __new__(cls) -> Any:
        made = torch.Tensor._make_subclass(cls, torch.zeros(WEIGHT // 2, 1, dtype=torch.uint8))
        made.quant_state = SimpleNamespace(
            shape=torch.Size([SIDE, SIDE]), absmax=torch.ones(WEIGHT // BLOCK), code=torch.ones(16), state2=None
        )
        return made


class Linear4bit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = Packed()
        self.bias = nn.Parameter(torch.zeros(SIDE))

    def forward(self, x: Tensor) -> Tensor:
        state = self.weight.quant_state
        return torch.ops.bitsandbytes.gemm_4bit(x, self.weight, state.shape, state.absmax, BLOCK, "nf4", self.bias)


class Int8Tensor(torch.Tensor):
    """A weight in eight bits with a scale for each row, in a tensor of the layer's own type, as torchao wraps them."""

    qdata: Tensor
    scale: Tensor

    def __new__(cls, qdata: Tensor, scale: Tensor, dtype: torch.dtype) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, qdata.shape, dtype=dtype)

    def __init__(self, qdata: Tensor, scale: Tensor, dtype: torch.dtype) -> None:
        self.qdata, self.scale = qdata, scale

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["qdata", "scale"], self.dtype

    @classmethod
    def __tensor_unflatten__(cls, inside: dict[str, Tensor], dtype: Any, *_: Any) -> Int8Tensor:
        return cls(inside["qdata"], inside["scale"], dtype)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            x, weight, bias = args
            return torch.mm(x, weight.qdata.to(x.dtype).t()) * weight.scale + bias
        return super().__torch_function__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].qdata, args[0].scale, args[0].dtype)
        raise NotImplementedError(func)


def linear_int8() -> nn.Module:
    layer = nn.Linear(SIDE, SIDE)
    wrapped = Int8Tensor(torch.ones(SIDE, SIDE, dtype=torch.int8), torch.ones(SIDE), torch.float32)
    layer.weight = nn.Parameter(wrapped, requires_grad=False)
    return layer


def test_a_weight_of_four_bits_is_as_many_parameters_as_the_layer_has() -> None:
    report = opcost.count(Linear4bit(), X)
    assert report.coverage.complete
    assert report.totals.params == WEIGHT + SIDE
    assert report.totals.param_bytes == WEIGHT // 2 + 4 * SIDE
    assert report.totals.unused_params == 0
    weight = report.parameters[0]
    assert (weight.name, str(weight.spec), weight.spec.dtype) == ("weight", f"{SIDE}x{SIDE}", "uint4")
    assert report.totals.buffer_bytes == 4 * (WEIGHT // BLOCK + 16)  # the scales of the blocks, and the table of values
    assert report.totals.macs == MACS
    assert report.totals.flops == 2 * MACS + B * SIDE
    (row,) = [row for row in report.rows if row.op.kind == "matmul"]
    assert row.cost
    assert row.cost.bytes_read == 4 * B * SIDE + WEIGHT // 2 + 4 * SIDE + 4 * WEIGHT // BLOCK


def test_a_wrapped_weight_of_eight_bits_has_its_scales_as_buffers() -> None:
    report = opcost.count(linear_int8(), X)
    assert report.coverage.complete
    assert report.totals.params == WEIGHT + SIDE
    assert report.totals.param_bytes == WEIGHT + 4 * SIDE
    assert report.totals.buffers == SIDE
    assert report.totals.buffer_bytes == 4 * SIDE
    assert {p.name: p.spec.dtype for p in report.parameters} == {
        "weight": "int8",
        "weight_scale": "float32",
        "bias": "float32",
    }
    assert report.totals.macs == MACS


def test_quantizing_and_back_count_each_value_and_not_each_byte() -> None:
    there = opcost.count(
        lambda x: torch.ops.bitsandbytes.quantize_4bit(x, BLOCK, "nf4", torch.uint8), torch.ones(SIDE, SIDE)
    )
    assert there.totals.flops == 5 * WEIGHT
    back = opcost.count(
        lambda q, s: torch.ops.bitsandbytes.dequantize_4bit(q, s, BLOCK, "nf4", [SIDE, SIDE], torch.float32),
        (torch.zeros(WEIGHT // 2, 1, dtype=torch.uint8), torch.ones(WEIGHT // BLOCK)),
    )
    assert back.totals.flops == 2 * WEIGHT


def zeros(*shape: int, dtype: torch.dtype = torch.int8) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("multiply", "operands"),
    [
        (torch._int_mm, (zeros(B, SIDE), zeros(SIDE, 2 * SIDE))),
        (
            torch._weight_int8pack_mm,
            (zeros(B, SIDE, dtype=torch.bfloat16), zeros(2 * SIDE, SIDE), zeros(2 * SIDE, dtype=torch.bfloat16)),
        ),
        (
            torch._weight_int4pack_mm_for_cpu,
            (
                zeros(B, SIDE, dtype=torch.bfloat16),
                zeros(2 * SIDE, SIDE // 2, dtype=torch.uint8),
                32,
                zeros(SIDE // 32, 2 * SIDE, 2, dtype=torch.bfloat16),
            ),
        ),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_products_of_packed_weights_are_those_of_the_layer(multiply: Any, operands: tuple[Any, ...]) -> None:
    assert opcost.count(multiply, operands).totals.macs == B * SIDE * 2 * SIDE


def test_known_numbers_are_not_computed_where_there_is_no_kernel_for_them() -> None:
    """Integers are known, and this operator has a kernel only on other devices."""

    def multiply(a: Tensor, b: Tensor) -> Tensor:
        return torch.ops.bitsandbytes.int8_linear_matmul(a, b)

    report = opcost.count(multiply, (zeros(B, SIDE), zeros(2 * SIDE, SIDE)))
    assert report.totals.macs == B * SIDE * 2 * SIDE


def test_a_prepacked_layer_of_torchao_is_the_layer() -> None:
    if find_spec("torchao") is not None:
        pytest.skip("its own operator has a kernel only on some machines")
    tiles, scales = zeros(2, SIDE, SIDE, dtype=torch.uint8), torch.ones(SIDE)  # two tiles of as many columns each

    def forward(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
        return torch.ops.torchao.da8w4_linear_cpu(x, s, s, w, s, s, s, None, torch.float32)

    report = opcost.count(forward, (X, tiles, scales))
    assert report.coverage.complete
    assert report.totals.macs == B * SIDE * 2 * SIDE


def test_every_operator_of_bitsandbytes_is_known() -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    names = {
        name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("bitsandbytes::")
    }
    assert bitsandbytes
    assert names <= set(HANDLERS)


@pytest.mark.parametrize("options", [{}, {"quant_type": "nf4"}, {"compress_statistics": False}])
def test_four_bits_of_bitsandbytes(options: dict[str, Any]) -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    layer = bitsandbytes.nn.Linear4bit(SIDE, SIDE, **options).to("cpu")
    expected = layer(X)
    report = opcost.count(layer, X.clone().requires_grad_(), backward=True)
    assert report.coverage.complete
    assert report.totals.params == WEIGHT + SIDE
    assert report.totals.param_bytes == WEIGHT // 2 + 4 * SIDE
    assert report.totals.macs == 2 * MACS  # the weight takes no gradient
    assert torch.equal(layer(X), expected)


@pytest.mark.parametrize("kept", [False, True])
def test_eight_bits_of_bitsandbytes(kept: bool) -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    layer = bitsandbytes.nn.Linear8bitLt(SIDE, SIDE, has_fp16_weights=kept).to("cpu")
    report = opcost.count(layer, X)
    assert report.coverage.complete
    assert report.totals.params == WEIGHT + SIDE
    assert report.totals.macs == MACS


@pytest.mark.parametrize(
    "way", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig", "Float8WeightOnlyConfig"]
)
def test_eight_bits_of_torchao(way: str) -> None:
    quantization = pytest.importorskip("torchao.quantization")
    model = nn.Sequential(nn.Linear(SIDE, SIDE))
    quantization.quantize_(model, getattr(quantization, way)())
    report = opcost.count(model, X)
    assert report.coverage.complete
    assert report.totals.params == WEIGHT + SIDE
    assert report.totals.param_bytes == WEIGHT + 4 * SIDE
    assert report.totals.macs == MACS


def test_a_deep_copy_in_forward_is_a_copy() -> None:
    class Copies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.ones(SIDE))

        def forward(self, x: Tensor) -> Tensor:
            return x + copy.deepcopy(self.table)

    report = opcost.count(Copies(), X)
    assert [row.op.raw for row in report.rows if row.op.kind == "copy"] == ["aten::clone"]
    assert report.totals.flops == B * SIDE


def test_a_parameter_of_a_class_of_its_own_may_be_made_in_forward() -> None:
    class Kept(nn.Parameter):
        def __new__(cls, data: Tensor) -> Any:
            return torch.Tensor._make_subclass(cls, data, require_grad=False)

    assert opcost.count(lambda x: Kept(x * 2) + 1, X).totals.flops == 2 * B * SIDE
