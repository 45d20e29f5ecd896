"""Operators with MACs: shapes and counts derived from their settings."""

from __future__ import annotations

from typing import Any

import pytest

from opcost.errors import OpcostError

N, CIN, COUT, SIZE, KERNEL = 2, 8, 16, 9, 3
PADDED = SIZE  # padding 1 keeps the size


def dims(row: Any, output: int = 0) -> tuple[int, ...]:
    return row.outs[output].dims


def test_a_convolution_counts_its_kernel_for_every_result(apply: Any) -> None:
    out = (SIZE + 2 - KERNEL) // 2 + 1
    row = apply(
        "Convolution", (N, CIN, SIZE, SIZE), (COUT, CIN, KERNEL, KERNEL), table="Convolution",
        pad_h=1, pad_w=1, stride_h=2, stride_w=2,
    )  # fmt: skip
    assert row.op.kind == "conv"
    assert dims(row) == (N, COUT, out, out)
    assert row.cost.macs == N * COUT * out * out * CIN * KERNEL * KERNEL


def test_a_dilated_convolution_reaches_farther_and_counts_the_same(apply: Any) -> None:
    out = SIZE - (2 * (KERNEL - 1) + 1) + 1
    row = apply(
        "Convolution", (N, CIN, SIZE, SIZE), (COUT, CIN, KERNEL, KERNEL), table="Convolution", dilate_h=2, dilate_w=2
    )
    assert dims(row) == (N, COUT, out, out)
    assert row.cost.macs == N * COUT * out * out * CIN * KERNEL * KERNEL


@pytest.mark.parametrize("groups", [2, 4, CIN])
def test_a_grouped_convolution_counts_only_its_group(groups: int, apply: Any) -> None:
    weight = (groups, COUT // groups, CIN // groups, KERNEL, KERNEL)
    row = apply("Convolution", (N, CIN, SIZE, SIZE), weight, table="Convolution", sparse="GROUP", pad_h=1, pad_w=1)
    assert dims(row) == (N, COUT, PADDED, PADDED)
    assert row.cost.macs == N * COUT * PADDED**2 * (CIN // groups) * KERNEL**2


PACKED = {
    # format: pack, filter of 8 -> 16 channels, of 4 groups, of one channel each
    "NCHW4": (4, (COUT, CIN // 4, KERNEL, KERNEL, 4), (2, COUT // 2, CIN // 2 // 4, KERNEL, KERNEL, 4), None),
    "NCHW8": (8, (COUT, CIN // 8, KERNEL, KERNEL, 8), None, None),
    "NCHW44": (
        4,
        (COUT // 4, CIN // 4, KERNEL, KERNEL, 4, 4),
        (2, COUT // 2 // 4, CIN // 2 // 4, KERNEL, KERNEL, 4, 4),
        (CIN // 4, 1, 1, KERNEL, KERNEL, 4),
    ),
    "NCHW44_DOT": (4, (COUT // 4, CIN // 4, KERNEL, KERNEL, 4, 4), None, (CIN // 4, 1, 1, KERNEL, KERNEL, 4)),
    "NCHW88": (8, (COUT // 8, CIN // 8, KERNEL, KERNEL, 8, 8), None, (CIN // 8, 1, 1, KERNEL, KERNEL, 8)),
}


@pytest.mark.parametrize("form", PACKED)
def test_a_packed_convolution_counts_what_the_plain_one_counts(form: str, apply: Any) -> None:
    pack, dense, grouped, single = PACKED[form]
    x = (N, CIN // pack, SIZE, SIZE, pack)
    settings = {"table": "Convolution", "format": form, "pad_h": 1, "pad_w": 1}
    row = apply("Convolution", x, dense, **settings)
    assert dims(row) == (N, COUT // pack, PADDED, PADDED, pack)
    assert row.cost.macs == N * COUT * PADDED**2 * CIN * KERNEL**2
    if grouped is not None:
        row = apply("Convolution", x, grouped, sparse="GROUP", **settings)
        assert dims(row) == (N, COUT // pack, PADDED, PADDED, pack)
        assert row.cost.macs == N * COUT * PADDED**2 * (CIN // 2) * KERNEL**2
    if single is not None:
        row = apply("Convolution", x, single, sparse="GROUP", **settings)
        assert dims(row) == (N, CIN // pack, PADDED, PADDED, pack)
        assert row.cost.macs == N * CIN * PADDED**2 * KERNEL**2


@pytest.mark.parametrize(("form", "pack"), [("NCHW44", 4), ("NCHW88", 8)])
def test_the_first_convolution_of_a_packed_net_takes_a_plain_image(form: str, pack: int, apply: Any) -> None:
    row = apply(
        "ConvBias", (N, 3, SIZE, SIZE), (COUT // pack, KERNEL, KERNEL, 3, pack), (1, COUT // pack, 1, 1, pack),
        table="ConvBias", format=form, pad_h=1, pad_w=1, nonlineMode="RELU",
    )  # fmt: skip
    y = N * COUT * PADDED**2
    assert dims(row) == (N, COUT // pack, PADDED, PADDED, pack)
    assert row.cost.macs == y * 3 * KERNEL**2
    assert row.cost.flops == 2 * row.cost.macs + y + y


@pytest.mark.parametrize(
    ("form", "x", "weight", "y"),
    [
        ("NHWC", (N, SIZE, SIZE, CIN), (COUT, KERNEL, KERNEL, CIN), (N, SIZE, SIZE, COUT)),
        ("CHWN4", (CIN // 4, SIZE, SIZE, N, 4), (CIN // 4, KERNEL, KERNEL, COUT, 4), (COUT // 4, SIZE, SIZE, N, 4)),
        ("NHWCD4", (N, SIZE, CIN // 4, SIZE, 4), (COUT // 4, KERNEL, KERNEL, CIN, 4), (N, SIZE, COUT // 4, SIZE, 4)),
        ("NCHW4_NCHW", (N, CIN // 4, SIZE, SIZE, 4), (COUT, CIN // 4, KERNEL, KERNEL, 4), (N, COUT, SIZE, SIZE)),
        ("NCHW4_NHWC", (N, CIN // 4, SIZE, SIZE, 4), (COUT, CIN // 4, KERNEL, KERNEL, 4), (N, SIZE, SIZE, COUT)),
    ],
)
def test_every_layout_of_an_image_counts_the_same(
    form: str, x: tuple[int, ...], weight: tuple[int, ...], y: tuple[int, ...], apply: Any
) -> None:
    row = apply("Convolution", x, weight, table="Convolution", format=form, pad_h=1, pad_w=1)
    assert dims(row) == y
    assert row.cost.macs == N * COUT * SIZE**2 * CIN * KERNEL**2


@pytest.mark.parametrize(("mode", "per_result"), [("IDENTITY", 0), ("RELU", 1), ("SIGMOID", 4), ("H_SWISH", 5)])
def test_a_fused_convolution_adds_bias_shortcut_and_activation(mode: str, per_result: int, apply: Any) -> None:
    y = N * COUT * PADDED**2
    row = apply(
        "ConvBias", (N, CIN, SIZE, SIZE), (COUT, CIN, KERNEL, KERNEL), (1, COUT, 1, 1), (N, COUT, SIZE, SIZE),
        table="ConvBias", nonlineMode=mode, pad_h=1, pad_w=1,
    )  # fmt: skip
    assert row.cost.macs == y * CIN * KERNEL**2
    assert row.cost.flops == 2 * row.cost.macs + y + y + per_result * y


def test_a_transposed_convolution_counts_its_kernel_for_every_input(apply: Any) -> None:
    out = (SIZE - 1) * 2 + 4 - 2
    settings = {"table": "Convolution", "pad_h": 1, "pad_w": 1, "stride_h": 2, "stride_w": 2}
    row = apply("ConvolutionBackwardData", (CIN, COUT, 4, 4), (N, CIN, SIZE, SIZE), **settings)
    assert dims(row) == (N, COUT, out, out)
    assert row.cost.macs == N * CIN * SIZE**2 * COUT * 4 * 4
    grouped = apply(
        "ConvolutionBackwardData", (4, CIN // 4, COUT // 4, 4, 4), (N, CIN, SIZE, SIZE), sparse="GROUP", **settings
    )
    assert dims(grouped) == (N, COUT, out, out)
    assert grouped.cost.macs == N * CIN * SIZE**2 * (COUT // 4) * 4 * 4


def test_a_transposed_convolution_may_be_given_its_shape(apply: Any) -> None:
    row = apply(
        "ConvolutionBackwardData", (CIN, COUT, 3, 3), (N, CIN, SIZE, SIZE), (N, COUT, 18, 18), table="Convolution",
        stride_h=2, stride_w=2, pad_h=1, pad_w=1,
    )  # fmt: skip
    assert dims(row) == (N, COUT, 18, 18)
    assert row.cost.macs == N * CIN * SIZE**2 * COUT * 9


def test_three_dimensions_count_like_two(apply: Any) -> None:
    row = apply("Convolution3D", (N, 4, 5, 6, 7), (8, 4, 3, 3, 3), table="Convolution3D", pad_d=1, pad_h=1, pad_w=1)
    assert dims(row) == (N, 8, 5, 6, 7)
    assert row.cost.macs == N * 8 * 5 * 6 * 7 * 4 * 27
    grouped = apply("Convolution3D", (N, 4, 5, 6, 7), (2, 4, 2, 3, 3, 3), table="Convolution3D", sparse="GROUP")
    assert dims(grouped) == (N, 8, 3, 4, 5)
    assert grouped.cost.macs == N * 8 * 3 * 4 * 5 * 2 * 27
    back = apply(
        "Convolution3DBackwardData", (4, 6, 2, 2, 2), (N, 4, 3, 4, 5), table="Convolution3D",
        stride_d=2, stride_h=2, stride_w=2,
    )  # fmt: skip
    assert dims(back) == (N, 6, 6, 8, 10)
    assert back.cost.macs == N * 4 * 3 * 4 * 5 * 6 * 8


@pytest.mark.parametrize("groups", [1, 2])
def test_weights_that_are_not_shared_count_like_a_convolution(groups: int, apply: Any) -> None:
    weight = (SIZE, SIZE, CIN // groups, KERNEL, KERNEL, COUT // groups)
    kind = "Local" if groups == 1 else "GroupLocal"
    row = apply(kind, (N, CIN, SIZE, SIZE), weight if groups == 1 else (groups, *weight), table="Convolution", pad_h=1)
    assert dims(row) == (N, COUT, SIZE, SIZE)
    assert row.cost.macs == N * COUT * SIZE**2 * (CIN // groups) * KERNEL**2


@pytest.mark.parametrize("groups", [1, 2])
def test_a_deformable_convolution_also_makes_its_samples(groups: int, apply: Any) -> None:
    weight = (COUT, CIN // groups, KERNEL, KERNEL)
    settings: dict[str, Any] = {"table": "Convolution", "pad_h": 1, "pad_w": 1}
    if groups > 1:
        weight = (groups, COUT // groups, CIN // groups, KERNEL, KERNEL)
        settings["sparse"] = "GROUP"
    plane = (N, 2 * KERNEL**2, SIZE, SIZE), (N, KERNEL**2, SIZE, SIZE)
    row = apply("DeformableConv", (N, CIN, SIZE, SIZE), weight, *plane, **settings)
    samples = N * SIZE**2 * CIN * KERNEL**2
    assert dims(row) == (N, COUT, SIZE, SIZE)
    assert row.cost.macs == N * COUT * SIZE**2 * (CIN // groups) * KERNEL**2
    assert row.cost.flops == 2 * row.cost.macs + samples * 4 * 2


def test_a_filter_for_each_image_counts_each_once(apply: Any) -> None:
    row = apply(
        "BatchConvBias", (N, CIN, SIZE, SIZE), (N, COUT, CIN, KERNEL, KERNEL), (1, COUT, 1, 1), table="BatchConvBias",
        pad_h=1, pad_w=1,
    )  # fmt: skip
    assert dims(row) == (N, COUT, SIZE, SIZE)
    assert row.cost.macs == N * COUT * SIZE**2 * CIN * KERNEL**2


def test_quantized_products_are_summed_in_more_bits(apply: Any) -> None:
    settings = {"table": "Convolution", "dtype": "qint8"}
    row = apply("Convolution", (N, CIN, SIZE, SIZE), (COUT, CIN, 1, 1), **settings)
    assert row.outs[0].dtype == "qint32"
    declared = apply("Convolution", (N, CIN, SIZE, SIZE), (COUT, CIN, 1, 1), result="qint8", **settings)
    assert declared.outs[0].dtype == "qint8"
    assert declared.cost.bytes_written == declared.outs[0].numel


# -- matrices ----------------------------------------------------------------------------------------------------------

ROWS, DEPTH, COLUMNS = 3, 5, 7


@pytest.mark.parametrize("flipped_left", [False, True])
@pytest.mark.parametrize("flipped_right", [False, True])
def test_a_matrix_product_honours_both_transposes(flipped_left: bool, flipped_right: bool, apply: Any) -> None:
    left = (DEPTH, ROWS) if flipped_left else (ROWS, DEPTH)
    right = (COLUMNS, DEPTH) if flipped_right else (DEPTH, COLUMNS)
    row = apply("MatrixMul", left, right, table="MatrixMul", transposeA=flipped_left, transposeB=flipped_right)
    assert dims(row) == (ROWS, COLUMNS)
    assert row.cost.macs == ROWS * DEPTH * COLUMNS


def test_a_batched_product_counts_every_matrix(apply: Any) -> None:
    row = apply("BatchedMatrixMul", (4, ROWS, DEPTH), (4, COLUMNS, DEPTH), table="MatrixMul", transposeB=True)
    assert dims(row) == (4, ROWS, COLUMNS)
    assert row.cost.macs == 4 * ROWS * DEPTH * COLUMNS


def test_a_dot_product_is_one_sum(apply: Any) -> None:
    row = apply("Dot", (DEPTH,), (DEPTH,))
    assert dims(row) == (1,)
    assert row.cost.macs == DEPTH


def test_matrices_that_do_not_fit_are_named(apply: Any) -> None:
    with pytest.raises(
        OpcostError,
        match="MatrixMul 'tested' cannot take inputs of 3x5, 4x7: rows of 5 elements do not fit columns of 4",
    ):
        apply("MatrixMul", (ROWS, DEPTH), (4, COLUMNS), table="MatrixMul")


# -- recurrent ---------------------------------------------------------------------------------------------------------

TIME, BATCH, FEATURES, HIDDEN = 5, 3, 6, 4


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("both_ways", [False, True])
def test_an_lstm_counts_every_gate_of_every_step(layers: int, both_ways: bool, apply: Any) -> None:
    directions = 2 if both_ways else 1
    state = (layers * directions, BATCH, HIDDEN)
    row = apply(
        "LSTM", (TIME, BATCH, FEATURES), state, state, (1000,), outputs=4, table="LSTM", num_layers=layers,
        bidirectional=both_ways, hidden_size=HIDDEN, fwd_mode="INFERENCE",
    )  # fmt: skip
    per_step = 0
    for layer in range(layers):
        size = FEATURES if layer == 0 else directions * HIDDEN
        per_step += directions * 4 * HIDDEN * (size + HIDDEN)
    assert [spec.dims for spec in row.outs[:3]] == [(TIME, BATCH, directions * HIDDEN), state, state]
    assert row.cost.macs == TIME * BATCH * per_step


def test_billions_of_layers_are_not_believed(apply: Any) -> None:
    """The number is in the file, and nothing else need be large for it."""
    state = (1, BATCH, HIDDEN)
    row = apply("LSTM", (TIME, BATCH, FEATURES), state, state, (9,), outputs=4, table="LSTM", num_layers=4_000_000_000)
    assert row.cost is None


@pytest.mark.parametrize("mode", ["RELU", "TANH"])
def test_a_plain_recurrent_layer_has_one_gate(mode: str, apply: Any) -> None:
    row = apply(
        "RNN", (TIME, BATCH, FEATURES), (1, BATCH, HIDDEN), (1000,), outputs=3, table="RNN", hidden_size=HIDDEN,
        nonlineMode=mode, fwd_mode="INFERENCE",
    )  # fmt: skip
    assert dims(row) == (TIME, BATCH, HIDDEN)
    assert row.cost.macs == TIME * BATCH * HIDDEN * (FEATURES + HIDDEN)


def test_single_steps_count_as_one(apply: Any) -> None:
    lstm = apply(
        "LSTMCell", (BATCH, FEATURES), (4 * HIDDEN, FEATURES), (4 * HIDDEN,), (BATCH, HIDDEN), (4 * HIDDEN, HIDDEN),
        (4 * HIDDEN,), (BATCH, HIDDEN), outputs=3,
    )  # fmt: skip
    assert [spec.dims for spec in lstm.outs] == [(BATCH, HIDDEN), (BATCH, HIDDEN), (BATCH, 4 * HIDDEN)]
    assert lstm.cost.macs == BATCH * 4 * HIDDEN * (FEATURES + HIDDEN)
    plain = {}
    for mode in ("TANH", "RELU", "IDENTITY"):
        plain[mode] = apply(
            "RNNCell", (BATCH, FEATURES), (HIDDEN, FEATURES), (HIDDEN,), (BATCH, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN,),
            table="RNNCell", nonlineMode=mode,
        )  # fmt: skip
        assert dims(plain[mode]) == (BATCH, HIDDEN)
        assert plain[mode].cost.macs == BATCH * HIDDEN * (FEATURES + HIDDEN)
    # Both biases and the sum of the two products, then nothing, one or five operations of the function.
    units = BATCH * HIDDEN
    additions = {mode: row.cost.flops - 2 * row.cost.macs for mode, row in plain.items()}
    assert additions == {"IDENTITY": 3 * units, "RELU": (3 + 1) * units, "TANH": (3 + 5) * units}


# -- attention ---------------------------------------------------------------------------------------------------------


def test_multi_head_attention_counts_every_projection_and_both_products(apply: Any) -> None:
    batch, length, source, features, heads, projected = 2, 5, 7, 12, 4, 8
    row = apply(
        "MultiHeadAttn", (batch, length, features), (batch, source, features), (batch, source, features), (1000,),
        outputs=4, read=1, table="MultiHeadAttn", num_heads=heads, qproj_size=projected, kproj_size=projected,
        vproj_size=projected, oproj_size=features,
    )  # fmt: skip
    projections = batch * features * projected * (length + 2 * source) + batch * length * projected * features
    assert dims(row) == (batch, length, features)
    assert row.cost.macs == projections + batch * length * source * 2 * projected
