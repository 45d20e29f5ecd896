"""Element types: half, autocast, quantized in its several forms, packed, sparse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opcost

B, IN, OUT = 4, 32, 16
"""A batch, and the sides of a layer that every packed kernel accepts."""


class With(nn.Module):
    """A function of the inputs and of some buffers."""

    def __init__(self, function: Callable[..., Any], **buffers: Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


# -- half -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_bytes_follow_the_element_type(count: Any, dtype: torch.dtype) -> None:
    report = count(nn.Linear(IN, OUT, dtype=dtype), torch.empty(B, IN, dtype=dtype))
    assert report.totals.macs == B * IN * OUT
    assert report.totals.param_bytes == dtype.itemsize * (IN * OUT + OUT)
    assert report.totals.activation_bytes == dtype.itemsize * B * OUT


def test_an_input_made_from_a_shape_has_the_type_of_the_weights() -> None:
    report = opcost.count(nn.Linear(IN, OUT, dtype=torch.bfloat16), shapes=(B, IN))
    assert report.inputs[0][1].dtype == "bfloat16"
    assert report.outputs[0].dtype == "bfloat16"


# -- autocast ---------------------------------------------------------------------------------------------------------


class Autocast(nn.Module):
    def __init__(self, uses: int = 1) -> None:
        super().__init__()
        self.layer = nn.Linear(IN, IN)
        self.uses = uses

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(self.uses):
                x = self.layer(x)
            return x


def casts(report: opcost.Report) -> int:
    return sum(row.op.raw == "aten::_to_copy" for row in report.rows)


def test_autocast_inside_the_model_casts_weight_bias_and_input(count: Any) -> None:
    report = count(Autocast(), torch.empty(B, IN))
    assert report.outputs[0].dtype == "bfloat16"
    assert report.totals.param_bytes == 4 * (IN * IN + IN)
    assert casts(report) == 3
    assert report.totals.macs == B * IN * IN


def test_autocast_casts_a_weight_once_however_often_it_is_used(count: Any) -> None:
    report = count(Autocast(uses=3), torch.empty(B, IN))
    assert casts(report) == 3
    assert report.totals.macs == 3 * B * IN * IN


def test_autocast_around_the_count_holds_in_it_and_keeps_no_cast() -> None:
    layer = nn.Linear(IN, OUT)
    x = torch.ones(B, IN)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = layer(x)
        report = opcost.count(layer, x)
        again = layer(x)
        assert torch.is_autocast_cache_enabled()
    assert report.outputs[0].dtype == "bfloat16"
    assert type(again) is Tensor
    assert torch.equal(again, expected)
    assert report.totals.macs == B * IN * OUT


def test_counting_under_autocast_finds_the_casts_that_the_cache_already_had() -> None:
    layer = nn.Linear(IN, OUT)
    x = torch.ones(B, IN)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x)
        assert casts(opcost.count(layer, x)) == 3


# -- quantized modules ------------------------------------------------------------------------------------------------


@pytest.fixture
def engine() -> Iterator[None]:
    """A quantization engine that runs on every processor."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "qnnpack" if "qnnpack" in torch.backends.quantized.supported_engines else before
    yield
    torch.backends.quantized.engine = before


def dynamic(model: nn.Module, *kinds: type[nn.Module]) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(model, set(kinds), dtype=torch.qint8)


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")


@pytest.mark.parametrize("real", [False, True])
def test_a_dynamically_quantized_linear_has_int8_parameters_that_are_not_trainable(engine: None, real: bool) -> None:
    report = opcost.count(dynamic(nn.Sequential(nn.Linear(IN, OUT)), nn.Linear), torch.ones(B, IN), real=real)
    assert report.coverage.complete
    assert report.totals.macs == B * IN * OUT
    assert report.totals.params == IN * OUT + OUT
    assert report.totals.trainable_params == 0
    assert report.totals.unused_params == 0
    assert report.totals.param_bytes == IN * OUT + 4 * OUT
    (row,) = [row for row in report.rows if row.op.raw == "quantized::linear_dynamic"]
    assert row.cost is not None
    assert row.cost.bytes_read == 4 * B * IN + IN * OUT + 4 * OUT


def test_a_dynamically_quantized_perceptron_is_counted_with_its_memory(engine: None) -> None:
    batch, wide, inner = 4, 256, 128
    net = nn.Sequential(nn.Linear(wide, inner), nn.ReLU(), nn.Linear(inner, wide)).eval()
    report = opcost.count(dynamic(net, nn.Linear), torch.ones(batch, wide))
    assert report.totals.macs == 2 * batch * wide * inner == 262_144
    weights = 2 * wide * inner + 4 * (inner + wide)
    assert report.peak_bytes == weights + 4 * batch * (wide + inner + wide)  # the second layer's input and output


def test_two_quantized_layers_of_one_shape_each_read_their_own_weight(engine: None) -> None:
    class Forgetful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Linear(IN, IN)
            self.spare = nn.Linear(IN, IN)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    report = opcost.count(dynamic(Forgetful(), nn.Linear), torch.ones(B, IN))
    assert report.totals.params == 2 * (IN * IN + IN)
    assert report.totals.unused_params == IN * IN + IN
    assert all(parameter.name.startswith("spare.") for parameter in report.unused)


def test_a_dynamically_quantized_lstm_keeps_its_gates(engine: None) -> None:
    steps, hidden, gates = 5, 8, 4
    report = opcost.count(dynamic(nn.Sequential(nn.LSTM(IN, hidden)), nn.LSTM), torch.ones(steps, B, IN))
    assert report.coverage.complete
    assert report.totals.macs == steps * B * gates * hidden * (IN + hidden)
    assert report.totals.params == gates * hidden * (IN + hidden) + 2 * gates * hidden
    assert report.totals.param_bytes == gates * hidden * (IN + hidden) + 4 * 2 * gates * hidden
    assert report.totals.unused_params == 0


def test_a_statically_quantized_convolution_is_counted_without_data(engine: None) -> None:
    channels, filters, side = 3, 4, 8
    quantization = torch.ao.quantization
    model = nn.Sequential(quantization.QuantStub(), nn.Conv2d(channels, filters, 3), quantization.DeQuantStub()).eval()
    model.qconfig = quantization.get_default_qconfig("qnnpack")
    quantization.prepare(model, inplace=True)
    model(torch.rand(1, channels, side, side))
    quantization.convert(model, inplace=True)
    report = opcost.count(model, torch.ones(1, channels, side, side))
    assert report.coverage.complete
    assert report.totals.macs == filters * (side - 2) ** 2 * channels * 9
    assert report.totals.params == filters * channels * 9 + filters
    assert report.totals.unused_params == 0
    assert report.outputs[0].dtype == "float32"


# -- products of packed and narrow operands ---------------------------------------------------------------------------


def float8(*shape: int) -> Tensor:
    return torch.zeros(shape).to(torch.float8_e4m3fn)


def int4_for_cpu(rows: int, columns: int) -> Tensor:
    return torch.ops.aten._convert_weight_to_int4pack_for_cpu(torch.zeros(rows, columns, dtype=torch.int32), 2)


def bfloat16(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16)


def half(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float16)


def int16(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int16)


_aten = torch.ops.aten
ROWS = 24
PRODUCTS: dict[str, tuple[nn.Module, Tensor, int]] = {
    "_int_mm": (
        With(lambda m, x: torch._int_mm(x, m.w), w=torch.zeros(IN, OUT, dtype=torch.int8)),
        torch.zeros(ROWS, IN, dtype=torch.int8),
        ROWS * IN * OUT,
    ),
    "_scaled_mm": (
        With(
            lambda m, x: torch._scaled_mm(x, m.w.t(), m.one, m.one, out_dtype=torch.bfloat16),
            w=float8(OUT, IN),
            one=torch.ones(()),
        ),
        float8(ROWS, IN),
        ROWS * IN * OUT,
    ),
    "_weight_int8pack_mm": (
        With(
            lambda m, x: torch._weight_int8pack_mm(x, m.w, m.s),
            w=torch.zeros(OUT, IN, dtype=torch.int8),
            s=bfloat16(OUT),
        ),
        bfloat16(ROWS, IN),
        ROWS * IN * OUT,
    ),
    "_weight_int4pack_mm_for_cpu": (
        With(
            lambda m, x: _aten._weight_int4pack_mm_for_cpu(x, m.w, 32, m.s),
            w=int4_for_cpu(64, 128),
            s=bfloat16(128 // 32, 64, 2),
        ),
        bfloat16(ROWS, 128),
        ROWS * 128 * 64,
    ),
    "_weight_int4pack_mm": (
        With(
            lambda m, x: _aten._weight_int4pack_mm(x, m.w, 32, m.s),
            w=torch.zeros(64 // 8, 128 // 128, 32, 4, dtype=torch.int32),
            s=bfloat16(128 // 32, 64, 2),
        ),
        bfloat16(ROWS, 128),
        ROWS * 128 * 64,
    ),
    # 2:4 sparse: of every four weights two are stored and multiplied.
    "_sparse_semi_structured_mm": (
        With(lambda m, x: _aten._sparse_semi_structured_mm(m.w, m.where, x), w=half(64, 128 // 2), where=int16(64, 8)),
        half(128, ROWS),
        64 * (128 // 2) * ROWS,
    ),
    "_sparse_semi_structured_addmm": (
        With(
            lambda m, x: _aten._sparse_semi_structured_addmm(m.b, m.w, m.where, x),
            w=half(64, 128 // 2),
            where=int16(64, 8),
            b=half(64),
        ),
        half(128, ROWS),
        64 * (128 // 2) * ROWS,
    ),
    "_sparse_semi_structured_linear": (
        With(
            lambda m, x: _aten._sparse_semi_structured_linear(x, m.w, m.where), w=half(64, 128 // 2), where=int16(64, 8)
        ),
        half(ROWS, 128),
        64 * (128 // 2) * ROWS,
    ),
    "_cslt_sparse_mm": (
        With(lambda m, x: _aten._cslt_sparse_mm(m.w, x), w=half(64, 128 * 9 // 16)),
        half(128, ROWS),
        64 * (128 // 2) * ROWS,
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_narrow_types_are_contractions(count: Any, name: str) -> None:
    model, x, macs = PRODUCTS[name]
    report = count(model, x)
    assert report.totals.macs == macs
    assert name in {row.op.raw.removeprefix("aten::") for row in report.rows}


def test_a_grouped_product_counts_every_row_once_and_says_how_many_each_expert_gets(count: Any) -> None:
    experts = 3
    ends = torch.tensor([8, 16, ROWS], dtype=torch.int32)
    report = count(
        With(lambda m, x: torch._grouped_mm(x, m.w, offs=m.ends), w=bfloat16(experts, IN, OUT), ends=ends),
        bfloat16(ROWS, IN),
    )
    assert report.totals.macs == ROWS * IN * OUT
    (note,) = report.notes
    assert note.code == "experts"
    assert f"{ROWS} token rows over {experts} experts" in note.text


def test_a_semi_structured_weight_is_what_it_stores() -> None:
    rows, columns = 64, 128
    packed, where = half(rows, columns // 2), int16(rows, 8)
    weight = torch.sparse.SparseSemiStructuredTensorCUTLASS(
        torch.Size([rows, columns]),
        packed=packed,
        meta=where,
        packed_t=None,
        meta_t=None,
        compressed_swizzled_bitmask=None,
    )
    layer = nn.Linear(columns, rows, dtype=torch.float16)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    report = opcost.count(layer, half(ROWS, columns))
    assert report.coverage.complete
    assert report.totals.macs == ROWS * (columns // 2) * rows
    assert report.totals.params == packed.numel() + where.numel() + rows
    assert report.totals.trainable_params == rows
    assert report.totals.unused_params == 0
    assert report.totals.param_bytes == 2 * report.totals.params


# -- sparse -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_sparse_matrix_multiplies_only_what_it_stores(count: Any, layout: torch.layout) -> None:
    stored = 5
    matrix = torch.eye(stored).to_sparse(layout=layout)
    report = count(With(lambda m, x: m.matrix @ x, matrix=matrix), torch.empty(stored, OUT))
    assert report.totals.macs == stored * OUT
    assert report.outputs[0].shape == (stored, OUT)


def test_a_sparse_input_stays_sparse(count: Any) -> None:
    stored = 5
    report = count(With(lambda m, x: x @ m.w, w=torch.empty(stored, OUT)), torch.eye(stored).to_sparse())
    assert report.totals.macs == stored * OUT


def test_a_nested_tensor_counts_each_sequence_at_its_own_length(count: Any) -> None:
    lengths = (2, 5)
    nested = torch.nested.nested_tensor([torch.ones(n, IN) for n in lengths], layout=torch.jagged)
    assert count(nn.Linear(IN, OUT), nested).totals.macs == sum(lengths) * IN * OUT
