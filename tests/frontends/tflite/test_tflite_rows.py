"""What single operators of TensorFlow Lite cost, and what comes out of them: one row for every operator."""

from __future__ import annotations

import pytest
from node_rows import P, Q, R, Row, S, T, Tensor, c, check, check_refused, check_with_less, missing, n, w, x

from opcost.frontends.nodes import MOST_AXES
from opcost.frontends.tflite.walk import TABLE

N, C = P * Q, 4
XY = x(P, Q)
TRUTH = x(P, Q, dtype="bool")
FUSED = {0: 0, 1: 1, 2: 2, 3: 2, 4: 5, 5: 1}
"""FLOPs of the activation that an operator applies to each result: none, relu, between -1 and 1, relu6, tanh, sign."""
H = "STABLEHLO_"


def ints(*values: int) -> object:
    return c(*values, dtype="int32")


UNARY = {
    1: f"ABS CEIL COS EXP FLOOR LOG NEG RELU ROUND RSQRT SIGN SIN SQRT SQUARE {H}ABS {H}COSINE {H}EXPONENTIAL {H}FLOOR {H}LOG "
       f"{H}NEGATE {H}RSQRT {H}CBRT",
    2: "RELU6 RELU_N1_TO_1 RELU_0_TO_1", 3: "LEAKY_RELU", 4: f"ELU LOGISTIC {H}LOGISTIC", 5: f"TANH HARD_SWISH {H}TANH",
    7: "FAKE_QUANT",
}  # fmt: skip
BINARY = {
    1: f"ADD SUB MUL DIV POW ATAN2 MAXIMUM MINIMUM BITWISE_XOR RIGHT_SHIFT {H}ADD {H}DIVIDE {H}MULTIPLY {H}MAXIMUM {H}MINIMUM "
       f"{H}POWER {H}SUBTRACT {H}SHIFT_LEFT",
    2: "FLOOR_DIV", 3: "PRELU", 4: f"FLOOR_MOD {H}REMAINDER",
}  # fmt: skip
TRUTHS = f"LOGICAL_AND LOGICAL_OR EQUAL NOT_EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL {H}AND {H}OR {H}COMPARE"
CONTENTS = {
    "MAXIMUM": (7, 3), "MINIMUM": (2, 2), "ADD": (9, 5), "SUB": (5, 1), "MUL": (14, 6), "DIV": (3, 1), "FLOOR_DIV": (3, 1),
        "FLOOR_MOD": (1, 1),
    "POW": (49, 9), "NOT_EQUAL": (1, 1), "GREATER": (1, 1), "GREATER_EQUAL": (1, 1), "LESS": (0, 0), "LESS_EQUAL": (0, 0),
        "EQUAL": (0, 0),
    "LOGICAL_AND": (1, 1), "LOGICAL_OR": (1, 1),
}  # fmt: skip
"""What comes out of 7 and 3 with 2, element by element, since models compute shapes so."""

ELEMENTS = [
    *(Row(op, [XY], [XY], flops=each * N) for each, names in UNARY.items() for op in names.split()),
    *(Row(op, [XY, x(Q)], [XY], flops=each * N) for each, names in BINARY.items() for op in names.split()),
    *(Row(op, [x(P, 1), x(Q)], [TRUTH], flops=N) for op in TRUTHS.split()),
    *(Row(op, [ints(7, 3), ints(2)], [c(*found, dtype="bool" if max(found) < 2 else "int32")],
          flops=2 * {"FLOOR_DIV": 2, "FLOOR_MOD": 4}.get(op, 1)) for op, found in CONTENTS.items()),
    *(Row("ADD", [XY, XY], [XY], {"fused": fused}, flops=(1 + each) * N, moved=4 * (3 * N + 2 * N * (fused > 1)))
      for fused, each in FUSED.items()),
    Row("MUL", [XY, XY], [XY], {"fused": 1}, flops=2 * N, moved=4 * 5 * N),
    Row("LOGICAL_NOT", [TRUTH], [TRUTH], flops=N),
    Row("COMPLEX_ABS", [x(P, Q, dtype="complex64")], [XY], flops=4 * N),
    *(Row(op, [x(P, 1, dtype="bool"), x(Q), XY], [XY], flops=N) for op in ("SELECT", "SELECT_V2", H + "SELECT")),
    *(Row(op, [ints(1, 0), ints(5, 6), ints(7, 8)], [ints(5, 8)], flops=2) for op in ("SELECT", "SELECT_V2")),
    Row("GELU", [XY], [XY], flops=5 * N),
    Row("GELU", [XY], [XY], {"approximate": 1}, flops=13 * N),
    Row("SQUARED_DIFFERENCE", [XY, x(Q)], [XY], flops=2 * N),
    Row("ADD_N", [XY, XY, XY, XY], [XY], flops=3 * N),
    Row("ADD_N", [XY], [XY]),
    Row("ADD_N", [x(None, Q), x(None, Q)], [x(None, Q)], open=True),
    Row("ADD_N", [Tensor(None), XY], [Tensor(None)], open=True),
    Row(H + "CLAMP", [x(), XY, x()], [XY], flops=2 * N),
    *(Row(op, [XY], [x(P, Q, dtype="int8")]) for op in ("CAST", H + "CONVERT")),
    *(Row(op, [x(P, Q, dtype="complex64")], [XY]) for op in ("REAL", "IMAG")),
    Row("BITCAST", [XY], [x(None, dtype="int32")._replace(shape=None)], moved=0),
    # divide, add, round, clamp (2); back: subtract, multiply; halves are widened without arithmetic
    Row("QUANTIZE", [XY], [x(P, Q, dtype="int8")], flops=5 * N),
    Row("DEQUANTIZE", [x(P, Q, dtype="int8")], [XY], flops=2 * N),
    *(Row("DEQUANTIZE", [x(P, Q, dtype=dtype)], [XY]) for dtype in ("float16", "bfloat16")),
    *(Row(op, [XY], [XY], flops=5 * N) for op in ("SOFTMAX", "LOG_SOFTMAX")),
]  # fmt: skip

TWO = {"stride_h": 2, "stride_w": 1, "dilation_h": 1, "dilation_w": 2, "padding": 1}
"""Of 7 x 5 by a window of 3 x 2: (7 - 3) // 2 + 1 = 3 by 5 - 3 + 1 = 3."""
IMAGE, MAP = x(2, R, Q, C), x(2, 3, 3, S)
SWEPT = 2 * 3 * 3
DOT = {"batch_a": (0,), "batch_b": (1,), "summed_a": (2,), "summed_b": (0,)}
AXES = {
    "in_batch": 0, "in_space": (1, 2), "in_channels": 3, "kernel_space": (0, 1), "kernel_in": 2, "kernel_out": 3, "out_batch": 0,
    "out_space": (1, 2), "out_channels": 3, "strides": (2, 1), "dilations": (1, 2), "spread": (1, 1), "padding": (1, 0, 0, 1),
}  # fmt: skip

PRODUCTS = [
    *(Row("CONV_2D", [IMAGE, w(S, 3, 2, C), w(S)], [MAP], {**TWO, "fused": fused}, macs=SWEPT * S * 6 * C,
        flops=(1 + each) * SWEPT * S)
      for fused, each in FUSED.items()),
    Row("CONV_2D", [IMAGE, w(S, 3, 2, 2)], [x(2, 4, Q, S)], {**TWO, "padding": 0}, macs=2 * 4 * Q * S * 6 * 2),  # two groups
    Row("CONV_2D", [x(2, R, Q, 0), w(S, 3, 2, 0)], [MAP], TWO),
    Row("DEPTHWISE_CONV_2D", [IMAGE, w(1, 3, 2, 8), w(8)], [x(2, 3, 3, 8)], {**TWO, "fused": 1}, macs=SWEPT * 8 * 6,
        flops=2 * SWEPT * 8),
    Row("DEPTHWISE_CONV_2D", [IMAGE, w(1, 3, 2, 8)], [x(2, R, Q, 8)], macs=2 * R * Q * 8 * 6),
    Row("CONV_3D", [x(2, P, R, Q, C), w(2, 3, 2, C, S), w(S)], [x(2, 2, 3, 3, S)], {**TWO, "fused": 3},
        macs=2 * SWEPT * S * 12 * C,
        flops=3 * 2 * SWEPT * S),
    Row("CONV_3D", [x(2, P, R, Q, C), w(2, 3, 2, C, S)], [x(2, 2, R, Q, S)], {"stride_d": 2}, macs=2 * 2 * R * Q * S * 12 * C),
    # each element of the input meets the kernel
    Row("TRANSPOSE_CONV", [ints(2, 14, 5, S), w(S, 3, 2, C), IMAGE, w(S)], [x(2, 14, 5, S)], {**TWO, "padding": 0, "fused": 1},
        macs=2 * R * Q * C * 6 * S,
        flops=2 * 2 * 14 * 5 * S, read=(1, 2, 3)),
    Row("TRANSPOSE_CONV", [ints(2, 13, 5, S), w(S, 3, 2, C), IMAGE], [x(2, 13, 5, S)], {"stride_h": 2},
        macs=2 * R * Q * C * 6 * S, read=(1, 2), chosen=True),
    Row("TRANSPOSE_CONV", [x(4, dtype="int32"), w(S, 3, 2, C), IMAGE], [x(2, 15, 6, S)], {**TWO}, macs=2 * R * Q * C * 6 * S,
        read=(1, 2)),
    Row("TRANSPOSE_CONV", [x(4, dtype="int32"), w(S, 1, 2, C), IMAGE], [x(2, 14, 6, S)], {**TWO}, macs=2 * R * Q * C * 2 * S,
        read=(1, 2)),
    Row("TRANSPOSE_CONV", [x(4, dtype="int32"), w(S, 3, 2, C), IMAGE], [x(2, 14, 5, S)], {"stride_h": 2},
        macs=2 * R * Q * C * 6 * S, read=(1, 2)),
    Row("CONV_3D_TRANSPOSE", [ints(2, 3, 7, 5, S), w(2, 3, 2, S, C), x(2, P, R, Q, C)], [x(2, 3, 7, 5, S)],
        macs=2 * P * R * Q * C * 12 * S, read=(1, 2)),
    Row("CONV_3D_TRANSPOSE", [x(5, dtype="int32"), w(2, 3, 2, S, C), x(2, P, R, Q, C)], [x(2, 6, 7, 5, S)], {"stride_d": 2},
        macs=2 * P * R * Q * C * 12 * S, read=(1, 2)),
    *(Row("FULLY_CONNECTED", [x(P, 2, Q), w(S, 10), w(S)], [x(P, S)], {"fused": fused}, macs=P * 10 * S,
        flops=(1 + each) * P * S)
      for fused, each in FUSED.items()),
    Row("FULLY_CONNECTED", [x(P, 2, Q), w(S, Q)], [x(P, 2, S)], {"keep_num_dims": 1}, macs=P * 2 * Q * S),
    *(Row("BATCH_MATMUL", [x(2, *a), x(2, *b)], [x(2, P, R)], turned, macs=2 * P * Q * R) for a, b, turned in (
        ((P, Q), (Q, R), {}), ((Q, P), (Q, R), {"adj_x": 1}), ((P, Q), (R, Q), {"adj_y": 1}))),
    Row(H + "DOT_GENERAL", [x(2, P, Q), x(Q, 2, R)], [x(2, P, R)], DOT, macs=2 * P * Q * R),
    Row(H + "DOT_GENERAL", [x(P, Q, R), x(Q, R, S)], [x(P, S)], {"batch_a": (), "batch_b": (), "summed_a": (1, 2),
        "summed_b": (0, 1)}, macs=P * Q * R * S),
    # (7 + 1 - 3) // 2 + 1 by 5 + 1 - 3 + 1; then spread: (13 - 3) // 2 + 1
    Row(H + "CONVOLUTION", [IMAGE, x(3, 2, C, S)], [x(2, 3, 4, S)], AXES, macs=2 * 3 * 4 * S * 6 * C),
    Row(H + "CONVOLUTION", [IMAGE, x(3, 2, C, S)], [x(2, 6, 3, S)], {**AXES, "spread": (2, 1), "padding": ()},
        macs=2 * 6 * 3 * S * 6 * C),
    Row(H + "CONVOLUTION", [IMAGE, x(3, 2, C, S)], [x(2, 5, 4, S)], {**AXES, "strides": (), "dilations": (), "padding": ()},
        macs=2 * 5 * 4 * S * 6 * C),
    Row(H + "CONVOLUTION", [x(2, C, R), x(S, C, 3)], [x(2, S, 5)], {**AXES, "in_space": (2,), "kernel_space": (2,),
        "kernel_in": 1, "kernel_out": 0,
        "out_space": (2,), "out_channels": 1, "strides": (), "dilations": (), "spread": (), "padding": ()},
            macs=2 * S * 5 * C * 3),
]  # fmt: skip


def lstm(
    ways: int = 1,
    *,
    first: bool = True,
    peep: bool = False,
    bias: bool = True,
    project: int = 0,
    bias_out: bool = False,
) -> list[object]:
    """The seventeen inputs of each direction; a cell has S units and takes R features."""
    out = project or S
    one = [w(S, R) if at or first else None for at in range(4)] + [
        w(S, out) if at or first else None for at in range(4)
    ]
    one += [w(S) if peep else None] * 3 + [w(S) if bias else None] * 4
    one += [w(project, S) if project else None, w(project) if bias_out else None]
    return one * ways  # type: ignore[return-value]


STEPS = 2 * Q
WEIGHTS = 4 * (4 * S * R + 4 * S * S)
"""Bytes of the weights of one direction."""


def layer(more: int) -> dict[str, int]:
    return {"macs": STEPS * 4 * S * (R + S), "flops": STEPS * S * (30 + more)}


SEQUENCE = x(2, Q, R)
RNN = [w(S, R), w(S, S), w(S)]
RECURRENT = [
    # a bias for each of four gates
    Row("UNIDIRECTIONAL_SEQUENCE_LSTM", [SEQUENCE, *lstm()], [x(2, Q, S)], **layer(4),
        moved=4 * STEPS * (R + S) + WEIGHTS + 2 * 4 * 4 * S),
    Row("UNIDIRECTIONAL_SEQUENCE_LSTM", [SEQUENCE, *lstm(bias=False)], [x(2, Q, S)], **layer(0),
        moved=4 * STEPS * (R + S) + WEIGHTS),
    # peepholes: a product and an addition for three gates
    Row("UNIDIRECTIONAL_SEQUENCE_LSTM", [SEQUENCE, *lstm(peep=True)], [x(2, Q, S)], **layer(4 + 3 * 2),
        moved=4 * STEPS * (R + S) + WEIGHTS + 2 * 4 * 7 * S),
    # a projection to P: hidden × output more, with a bias
    Row("UNIDIRECTIONAL_SEQUENCE_LSTM", [SEQUENCE, *lstm(project=P, bias_out=True)], [x(2, Q, P)],
        macs=STEPS * (4 * S * (R + P) + S * P),
        flops=STEPS * (S * 34 + P), moved=4 * (STEPS * (R + P) + 4 * S * (R + P) + P * S) + 2 * 4 * (4 * S + P)),
    # gates that are normalized: 4 for statistics, 2 to apply, 1 for the weight
    Row("UNIDIRECTIONAL_SEQUENCE_LSTM", [SEQUENCE, *lstm(), None, None, *[w(S)] * 4], [x(2, Q, S)], **layer(4 + 4 * 7),
        moved=4 * STEPS * (R + S) + WEIGHTS + 2 * 4 * 4 * S + 4 * (STEPS * R + STEPS * S) * 4 + 2 * 4 * 4 * S),
    # the input gate is what the forget gate leaves: three products
    Row("UNIDIRECTIONAL_SEQUENCE_LSTM", [SEQUENCE, *lstm(first=False, bias=False)], [x(2, Q, S)], macs=STEPS * 3 * S * (R + S),
        flops=STEPS * S * 30, moved=4 * STEPS * (R + S) + 3 * WEIGHTS // 4 + 4 * STEPS * R),
    Row("UNIDIRECTIONAL_SEQUENCE_LSTM", [SEQUENCE, *lstm(first=False, bias=False, project=P)], [x(2, Q, P)],
        macs=STEPS * (3 * S * (R + P) + S * P), flops=STEPS * S * 30,
        moved=4 * (2 * STEPS * R + STEPS * P + 3 * S * (R + P) + P * S)),
    Row("BIDIRECTIONAL_SEQUENCE_LSTM", [SEQUENCE, *lstm(2)], [x(2, Q, 2 * S)], {"merge_outputs": 1},
        macs=2 * STEPS * 4 * S * (R + S),
        flops=2 * STEPS * S * 34, moved=4 * STEPS * (R + 2 * S) + 2 * WEIGHTS + 2 * 2 * 4 * 4 * S),
    Row("BIDIRECTIONAL_SEQUENCE_LSTM", [SEQUENCE, *lstm(2)], [x(2, Q, S), x(2, Q, S)], macs=2 * STEPS * 4 * S * (R + S),
        flops=2 * STEPS * S * 34, moved=4 * STEPS * (R + 2 * S) + 2 * WEIGHTS + 2 * 2 * 4 * 4 * S),
    # more features from beside: T of them for each gate
    Row("BIDIRECTIONAL_SEQUENCE_LSTM", [SEQUENCE, *lstm(2, bias=False), *[None] * 5, *[w(S, T)] * 4, *[w(S, T)] * 4], [x(2, Q,
        S), x(2, Q, S)],
        macs=2 * STEPS * 4 * S * (R + T + S), flops=2 * STEPS * S * 30,
        moved=4 * STEPS * (R + 2 * S) + 2 * WEIGHTS + 8 * 4 * S * T),
    # the same without input gates, whose weights are left out
    Row("BIDIRECTIONAL_SEQUENCE_LSTM",
        [SEQUENCE, *lstm(2, first=False, bias=False), *[None] * 5, *[None, *[w(S, T)] * 3] * 2], [x(2, Q, S), x(2, Q, S)],
        macs=2 * STEPS * 3 * S * (R + T + S), flops=2 * STEPS * S * 30,
        moved=4 * STEPS * (2 * R + 2 * S) + 2 * 3 * WEIGHTS // 4 + 6 * 4 * S * T),
    *(Row("UNIDIRECTIONAL_SEQUENCE_RNN", [SEQUENCE, *RNN], [x(2, Q, S)], {"fused": fused}, macs=STEPS * S * (R + S),
        flops=STEPS * S * (1 + each + 1),
          moved=4 * (STEPS * (R + S) + S * (R + S) + 2 * S)) for fused, each in ((4, 5), (1, 1))),
    Row("BIDIRECTIONAL_SEQUENCE_RNN", [SEQUENCE, *RNN, None, *RNN, None, None, w(S, T), w(S, P)], [x(2, Q, 2 * S)],
        {"fused": 4, "merge_outputs": 1},
        macs=STEPS * S * (2 * R + T + P + 2 * S), flops=2 * STEPS * S * (1 + 5 + 1),
        moved=4 * (STEPS * (R + 2 * S) + 2 * S * (R + S) + S * (T + P) + 2 * 2 * S)),
    Row("RNN", [x(2, R), *RNN], [x(2, S)], {"fused": 1}, macs=2 * S * (R + S), flops=2 * S * (1 + 1 + 1),
        moved=4 * (2 * (R + S) + S * (R + S) + 2 * S)),
    Row("RNN", [x(2, None), *RNN], [x(2, S)], {"fused": 1}, open=True),
    Row("LSTM", [x(2, None), *lstm()], [x(2, S)], open=True),
    Row("LSTM", [x(2, R), *lstm(), None, None, *[w(S)] * 4], [x(2, S)], macs=2 * 4 * S * (R + S), flops=2 * S * (34 + 4 * 7),
        moved=4 * 2 * (R + S) + WEIGHTS + 2 * 4 * 4 * S + 4 * (2 * R + 2 * S) * 4 + 2 * 4 * 4 * S),
    Row("LSTM", [x(2, R), *lstm()], [x(2, S)], macs=2 * 4 * S * (R + S), flops=2 * S * 34,
        moved=4 * 2 * (R + S) + WEIGHTS + 2 * 4 * 4 * S),
    # one weight for input and state together
    Row("LSTM", [x(2, R), x(2, S), w(4 * S, R + S), w(4 * S), x(2, S)], [x(2, S), x(2, S), x(2, R + S), x(2, 4 * S)],
        {"kernel": 1},
        macs=2 * 4 * S * (R + S), flops=2 * 4 * S + 2 * S * 30,
        moved=4 * (2 * R + 4 * S * (R + S) + 4 * S + 2 * 4 * S + 2 * 4 * S + 2 * S + 2 * 2 * S + 2 * (R + S) + 2 * 4 * S)),
    # filters: along features, then along the steps that are remembered; two ranks are added
    Row("SVDF", [x(2, R), w(10, R), w(10, T), w(5), x(2, 10 * T)], [x(2, 5)], {"rank": 2, "fused": 1}, macs=2 * 10 * (R + T),
        flops=2 * 5 + 2 * 5 * 2,
        moved=4 * (2 * 2 * R + 10 * (R + T) + 5 + 2 * 10 * T + 2 * 5)),
    Row("SVDF", [x(2, R), w(12, R), w(12, T), None, x(2, 12 * T)], [x(2, 4)], {"rank": 3}, macs=2 * 12 * (R + T), flops=2 * 4 * 2,
        moved=4 * (2 * 2 * R + 12 * (R + T) + 2 * 12 * T + 2 * 4)),
    *(Row("SVDF", [x(2, R), w(10, R), w(10, T)], [x(2, 10)], rank, macs=2 * 10 * (R + T)) for rank in ({"rank": 1}, {})),
]  # fmt: skip

CUBE = x(P, Q, R)
ALL = P * Q * R
MOVES = [
    Row("RESHAPE", [CUBE, ints(-1, R)], [x(N, R)], moved=0),
    Row("RESHAPE", [CUBE], [x(Q, P * R)], {"new_shape": (Q, -1)}, moved=0),
    Row("RESHAPE", [CUBE, x(2, dtype="int32")], [Tensor(None)], {"new_shape": (Q, -1)}, open=True),
    Row(H + "RESHAPE", [CUBE], [x(N, R)], {"new_shape": (N, R)}, moved=0),
    Row("SQUEEZE", [x(1, P, 1)], [x(P)], moved=0),
    Row("SQUEEZE", [x(1, P, 1)], [x(1, P)], {"squeeze_dims": (2,)}, moved=0),
    Row("EXPAND_DIMS", [XY, ints(1)], [x(P, 1, Q)], moved=0),
    Row("TRANSPOSE", [CUBE, ints(1, 2, 0)], [x(Q, R, P)], read=(0,)),
    Row(H + "TRANSPOSE", [CUBE], [x(Q, R, P)], {"permutation": (1, 2, 0)}),
    *(Row(op, [XY, x(P, R)], [x(P, Q + R)], {"axis": 1}) for op in ("CONCATENATION", H + "CONCATENATE")),
    Row("CONCATENATION", [XY, x(P, R)], [x(P, Q + R)], {"axis": 1, "fused": 1}, flops=P * (Q + R), moved=4 * 4 * P * (Q + R)),
    Row("PACK", [XY, XY], [x(P, 2, Q)], {"axis": 1}),
    Row("PACK", [n(3, "int32"), n(4, "int32")], [ints(3, 4)]),
    Row("PACK", [n(3, "int32")], [ints(3)]),
    Row("UNPACK", [x(P, 2, Q)], [XY, XY], {"axis": 1}),
    Row("UNPACK", [ints(5, 7)], [n(5, "int32"), n(7, "int32")]),
    Row("SPLIT", [ints(1), x(P, 10)], [x(P, 5), x(P, 5)], read=(1,)),
    Row("SPLIT_V", [x(P, 10), ints(3, -1), ints(1)], [x(P, 3), x(P, 7)], read=(0,)),
    Row("SPLIT_V", [x(P, 10), ints(6, 4), n(-1, "int32")], [x(P, 6), x(P, 4)], read=(0,)),
    Row("SLICE", [CUBE, ints(1, 0, 2), ints(2, -1, 3)], [x(2, Q, 3)], read=(0,)),
    Row("SLICE", [CUBE, x(3, dtype="int32"), ints(2, 4, 3)], [x(2, 4, 3)], read=(0,)),
    Row("SLICE", [CUBE, x(3, dtype="int32"), ints(2, -1, 0)], [x(2, None, 0)], open=True),
    Row(H + "SLICE", [CUBE], [x(2, 2, 7)], {"begins": (1, 0, 0), "ends": (3, 4, 7), "steps": (1, 2, 1)}),
    Row(H + "DYNAMIC_SLICE", [CUBE, x(), x(), x()], [x(2, 1, 3)], {"sizes": (2, 1, 3)}, read=(0,)),
    # x[1:, ..., None, 2], then with places that are masked, and every second element
    Row("STRIDED_SLICE", [CUBE, ints(1, 0, 0, 2), ints(0, 0, 0, 3), ints(1, 1, 1, 1)], [x(2, Q, 1)],
        {"end_mask": 1, "ellipsis_mask": 2, "new_axis_mask": 4, "shrink_axis_mask": 8}, read=(0,)),
    Row("STRIDED_SLICE", [CUBE, ints(2, 1), ints(1, 3), ints(1, 1)], [x(1, 3, R)], {"begin_mask": 1, "offset": 1}, read=(0,)),
    Row("STRIDED_SLICE", [CUBE, ints(0, 4), ints(0, 0), ints(1, -2)], [x(P, 2, R)], {"end_mask": 1}, read=(0,)),
    Row("STRIDED_SLICE", [CUBE, ints(-1), ints(0), ints(1)], [x(Q, R)], {"shrink_axis_mask": 1}, read=(0,)),
    Row("STRIDED_SLICE", [ints(2, 3, 5), ints(1), ints(2), ints(1)], [n(3, "int32")], {"shrink_axis_mask": 1}, read=(0,)),
    Row("STRIDED_SLICE", [ints(2, 3, 5), ints(0), ints(1), ints(1)], [n(2, "int32")], {"shrink_axis_mask": 1}, read=(0,)),
    Row("STRIDED_SLICE", [ints(2, 3, 5), ints(-1), ints(0), ints(1)], [n(5, "int32")], {"shrink_axis_mask": 1}, read=(0,)),
    Row("STRIDED_SLICE", [ints(2, 3, 5), ints(1), ints(3), ints(1)], [ints(3, 5)], read=(0,)),
    Row("STRIDED_SLICE", [CUBE, x(1, dtype="int32"), ints(2), ints(1)], [x(None, Q, R)], open=True),
    Row("STRIDED_SLICE", [CUBE, ints(0), ints(2), x(1, dtype="int32")], [x(None, Q, R)], open=True),
    Row("STRIDED_SLICE", [CUBE, x(None, dtype="int32"), ints(2), ints(1)], [Tensor(None)], open=True),
    Row("STRIDED_SLICE", [x(*[1] * MOST_AXES), *[ints(*[each] * MOST_AXES) for each in (0, 1, 1)]], [x(*[1] * MOST_AXES)],
        read=(0,)),
    Row("STRIDED_SLICE", [CUBE, x(1, dtype="int32"), ints(2), ints(1)], [x(Q, R)], {"shrink_axis_mask": 1}, read=(0,)),
    *(Row(op, [XY, ints(1, 2, 0, 3)._replace(shape=(2, 2))], [x(P + 3, Q + 3)], read=(0,)) for op in ("PAD", "PADV2",
        "MIRROR_PAD")),
    Row(H + "PAD", [XY, x()], [x(P + 2 * 2 + 1, Q + 3)], {"low": (1, 0), "high": (0, 3), "interior": (2, 0)}, read=(0,)),
    Row(H + "PAD", [x(0, 1), x()], [x(1, 1)], {"low": (1, 0), "high": (0, 0), "interior": (2, 2)}, read=(0,)),
    Row("DILATE", [XY, ints(2, 3), x()], [x(5, 13)], read=(0,)),
    Row("TILE", [XY, ints(2, 3)], [x(2 * P, 3 * Q)], read=(0,)),
    Row("BROADCAST_TO", [x(P, 1), ints(2, 1, Q)], [x(2, P, Q)], read=(0,)),
    Row("SPACE_TO_DEPTH", [x(P, 4, 6, Q)], [x(P, 2, 3, 4 * Q)], {"block_size": 2}),
    Row("DEPTH_TO_SPACE", [x(P, Q, R, 12)], [x(P, 2 * Q, 2 * R, 3)], {"block_size": 2}),
    Row("SPACE_TO_BATCH_ND", [x(P, 7, 4, Q), ints(2, 3), ints(1, 0, 0, 2)], [x(6 * P, 4, 2, Q)], read=(0,)),
    Row("BATCH_TO_SPACE_ND", [x(6 * P, 4, 2, Q), ints(2, 3), ints(1, 0, 0, 2)], [x(P, 7, 4, Q)], read=(0,)),
    *(Row(op, [XY, ints(0)], [XY], read=(0,)) for op in ("REVERSE_V2", "REVERSE_SEQUENCE", "MATRIX_SET_DIAG")),
    Row("DENSIFY", [w(P, Q)], [XY]),
    Row("MATRIX_DIAG", [XY], [x(P, Q, Q)]),
    *(Row(op, [CUBE, x(1, Q, R), ints(0, 0, 0)], [CUBE]) for op in ("DYNAMIC_UPDATE_SLICE", H + "DYNAMIC_UPDATE_SLICE")),
    Row(H + "BROADCAST_IN_DIM", [x(Q), x(2, dtype="int32")], [Tensor(None)], open=True),
    Row(H + "BROADCAST_IN_DIM", [x(Q), ints(P, Q)], [XY], read=(0,)),
    Row(H + "BROADCAST_IN_DIM", [x(Q)], [XY], declared=True),
    # by index: what is picked, the indices, and the result
    Row("GATHER", [CUBE, x(2, dtype="int32")], [x(P, 2, R)], {"axis": 1}, moved=4 * P * 2 * R * 2 + 4 * 2),
    Row("GATHER", [w(S, Q), x(2, dtype="int32")], [x(2, Q)], moved=4 * 2 * Q * 2 + 4 * 2),
    Row("GATHER", [CUBE, x(P, 2, dtype="int32")], [x(P, 2, R)], {"axis": 1, "batch_dims": 1},
        moved=4 * P * 2 * R * 2 + 4 * P * 2),
    Row("GATHER", [ints(2, 3, 5), ints(2, 0)], [ints(5, 2)], moved=4 * 2 * 3),
    Row("SLICE", [CUBE, ints(0, 1, 2), ints(0, 1, 2)], [x(0, 1, 2)], read=(0,)),
    Row("FILL", [ints(0), n(9, "int32")], [x(0, dtype="int32")], read=()),
    Row("GATHER_ND", [CUBE, x(4, 2, dtype="int32")], [x(4, R)], moved=4 * 4 * R * 2 + 4 * 8),
    Row(H + "GATHER", [CUBE, x(4, 1, dtype="int32")], [x(4, Q, 2)], {"sizes": (1, Q, 2), "collapsed": (0,), "index_axis": 1,
        "offset_dims": (1, 2)},
        moved=4 * 4 * Q * 2 * 2 + 4 * 4),
    Row("SCATTER_ND", [x(4, 1, dtype="int32"), x(4, R), ints(S, R)], [x(S, R)], flops=4 * R, read=(0, 1)),
    Row(H + "SCATTER", [CUBE, x(4, 1, dtype="int32"), x(4, Q, R)], [CUBE], flops=4 * Q * R),
    Row("SPARSE_TO_DENSE", [x(4, 2, dtype="int32"), ints(P, Q), x(4), x()], [XY], read=(0, 2)),
    Row("EMBEDDING_LOOKUP", [x(4, dtype="int32"), w(S, Q)], [x(4, Q)], moved=4 * 4 * Q * 2 + 4 * 4),
    Row("HASHTABLE_LOOKUP", [x(4, dtype="int32"), x(S, dtype="int32"), w(S, Q)], [x(4, Q), x(4, dtype="uint8")],
        moved=4 * 4 * Q * 2 + 4 * 4 + 4),
    # rows times weights, added up; a mean also divides
    *(Row("EMBEDDING_LOOKUP_SPARSE", [x(6, dtype="int32"), x(6, 2, dtype="int32"), ints(P, 9), x(6), w(S, Q)], [XY],
        {"combiner": how},
          flops=2 * 6 * Q + how * N, moved=4 * (6 * Q + 6 + 6 + N)) for how in (0, 1)),
    Row("WHERE", [c(1, 0, 1, dtype="bool")], [x(2, 1, dtype="int64")], moved=2 + 8 * 2),
    Row("WHERE", [TRUTH], [x(None, 2, dtype="int64")], open=True),
    Row("HASHTABLE", [], [x(1, dtype="int64")]),
    Row("HASHTABLE_FIND", [x(1, dtype="int64"), x(P, dtype="int32"), x()], [x(P, dtype="int32")], moved=8 + 4 * P + 4 + 4 * P),
    Row("HASHTABLE_IMPORT", [x(1, dtype="int64"), x(P), x(P)], []),
    Row("HASHTABLE_SIZE", [x(1, dtype="int64")], [x(1, dtype="int64")], read=()),
    Row("SHAPE", [CUBE], [ints(P, Q, R)], read=()),
    Row("RANK", [CUBE], [n(3, "int32")], read=()),
    Row("BROADCAST_ARGS", [ints(P, 1), ints(2, 1, Q)], [ints(2, P, Q)], read=()),
    Row("FILL", [ints(2), n(9, "int32")], [ints(9, 9)], read=()),
    Row("ZEROS_LIKE", [ints(1, 2)], [ints(0, 0)], read=()),
    Row("RANGE", [n(1, "int32"), n(9, "int32"), n(3, "int32")], [ints(1, 4, 7)], read=()),
    Row("ONE_HOT", [x(P, 2, dtype="int32"), n(Q, "int32"), x(), x()], [x(P, Q, 2)], {"axis": 1}, read=()),
    Row("ONE_HOT", [x(P, 2, dtype="int32"), n(Q, "int32"), x(), x()], [x(P, 2, Q)], {"axis": -1}, read=()),
    Row(H + "IOTA", [], [x(None, dtype="int32")._replace(shape=None)], open=True),
]  # fmt: skip

WINDOW = {**TWO, "filter_h": 3, "filter_w": 2}
REDUCTIONS = [
    *(Row(op, [CUBE, ints(1)], [x(P, R)], flops=ALL + last * P * R, read=(0,)) for op, last in (
        ("MEAN", 1), ("SUM", 0), ("REDUCE_PROD", 0), ("REDUCE_MAX", 0), ("REDUCE_MIN", 0), ("REDUCE_ANY", 0), ("REDUCE_ALL",
        0))),
    Row("SUM", [CUBE, ints(0, -1)], [x(1, Q, 1)], {"keep_dims": 1}, flops=ALL, read=(0,)),
    *(Row(op, [ints(2, 3, 7), ints(0)], [n(found, "int32")], flops=3, read=(0,)) for op, found in (
        ("REDUCE_PROD", 42), ("SUM", 12), ("REDUCE_MAX", 7), ("REDUCE_MIN", 2), ("REDUCE_ANY", True), ("REDUCE_ALL", True))),
    *(Row(op, [ints(1, 0), ints(0)], [n(found, "int32")], flops=2, read=(0,)) for op, found in (("REDUCE_ANY", True),
        ("REDUCE_ALL", False))),
    *(Row(op, [CUBE, ints(1)], [x(P, R, dtype="int32")], flops=ALL, read=(0,)) for op in ("ARG_MAX", "ARG_MIN")),
    Row("CUMSUM", [CUBE, ints(0)], [CUBE], flops=ALL, read=(0,)),
    Row(H + "REDUCE", [CUBE, x()], [x(P, R)], {"dims": (1,)}, flops=ALL, read=(0,)),
    Row(H + "REDUCE", [CUBE, x(P, Q, R, dtype="int32"), x(), x()], [x(P, R), x(P, R, dtype="int32")], {"dims": (1,)},
        flops=2 * ALL, read=(0, 1)),
    # (5 - 3) // 2 + 1 along one axis, 7 - 2 · (2 - 1) - 1 + 1 along the other
    Row("REDUCE_WINDOW", [x(Q, R), x(), ints(3, 2), ints(2, 1), ints(1, 2)], [x(2, 5)], flops=2 * 5 * 6, read=(0,)),
    Row(H + "REDUCE_WINDOW", [x(Q, R), x()], [x(5, 9)], {"window": (3, 2), "strides": (2, 1), "dilations": (1, 2), "base": (2,
        1), "padding": (2, 0, 1, 3)},
        flops=5 * 9 * 6, read=(0,)),
    Row(H + "REDUCE_WINDOW", [x(Q, R), x()], [x(3, 6)], {"window": (3, 2), "strides": (), "dilations": (), "base": (),
        "padding": ()},
        flops=3 * 6 * 6, read=(0,)),
    Row(H + "REDUCE_WINDOW", [x(Q, R), x()], [x(3, 6)], {"window": (3, 2), "strides": (), "dilations": (1, 1), "base": (1, 1),
        "padding": ()}, flops=3 * 6 * 6, read=(0,)),
    *(Row(op, [IMAGE], [x(2, 3, 4, C)], {**WINDOW, "dilation_w": 1}, flops=2 * 12 * C * each)
      for op, each in (("AVERAGE_POOL_2D", 6), ("MAX_POOL_2D", 6), ("L2_POOL_2D", 13))),
    Row("MAX_POOL_2D", [IMAGE], [x(2, 4, Q, C)], {**WINDOW, "padding": 0, "fused": 1}, flops=2 * 4 * Q * C * 7,
        moved=4 * (2 * R * Q * C + 3 * 2 * 4 * Q * C)),
    *(Row(op, [IMAGE, ints(14, 10)], [x(2, 14, 10, C)], flops=each * 2 * 140 * C, read=(0,))
      for op, each in (("RESIZE_BILINEAR", 9), ("RESIZE_NEAREST_NEIGHBOR", 0))),
    Row("L2_NORMALIZATION", [XY], [XY], flops=3 * N),
    Row("LOCAL_RESPONSE_NORMALIZATION", [XY], [XY], {"radius": 2}, flops=(5 + 5) * N),
    # ceil(log2 of the k that are kept, or of all) comparisons for each element
    Row("TOPK_V2", [CUBE, ints(3)], [x(P, Q, 3), x(P, Q, 3, dtype="int32")], flops=2 * ALL, read=(0,)),
    Row("TOPK_V2", [x(P, None, R), ints(3)], [x(P, None, 3), x(P, None, 3, dtype="int32")], open=True),
    Row(H + "SORT", [CUBE], [CUBE], {"axis": 1}, flops=3 * ALL),
    *(Row(H + "SORT", [x(P, length)], [x(P, length)], {"axis": 1}) for length in (0, 1)),
    *(Row("UNIQUE", [x(length)], [x(2), x(length, dtype="int32")], declared=True, flops=each * length)
      for length, each in ((0, 0), (1, 0), (S, 4))),
    Row("UNIQUE", [x(S)], [x(None), x(S, dtype="int32")], open=True),
    *(Row("BUCKETIZE", [XY], [x(P, Q, dtype="int32")], {"boundaries": ends}) for ends in ((), (1.0,))),
    Row("BUCKETIZE", [XY], [x(P, Q, dtype="int32")], {"boundaries": (1.0, 2.0, 3.0, 4.0, 5.0)}, flops=3 * N),
    Row("NON_MAX_SUPPRESSION_V4", [x(S, 4), x(S), ints(Q), x(), x()], [x(Q, dtype="int32"), x(dtype="int32")], flops=4 * S,
        read=(0, 1)),
    Row("NON_MAX_SUPPRESSION_V5", [x(S, 4), x(S), ints(Q), x(), x(), x()], [x(Q, dtype="int32"), x(Q), x(dtype="int32")],
        flops=4 * S, read=(0, 1)),
    Row("NON_MAX_SUPPRESSION_V4", [x(S, 4), x(S), x(dtype="int32"), x(), x()], [x(None, dtype="int32"), x(dtype="int32")],
        open=True),
    Row("NON_MAX_SUPPRESSION_V4", [x(S, None), x(S), ints(Q), x(), x()], [x(Q, dtype="int32"), x(dtype="int32")], open=True),
    *(Row("NON_MAX_SUPPRESSION_V4", [x(boxes, 4), x(boxes), ints(Q), x(), x()], [x(Q, dtype="int32"), x(dtype="int32")],
          read=(0, 1)) for boxes in (0, 1)),
    Row("RFFT2D", [x(P, 8, 16), ints(8, 16)], [x(P, 8, 9, dtype="complex64")], flops=5 * P * 128 * (3 + 4) // 2, read=(0,)),
    Row("SEGMENT_SUM", [CUBE, ints(0, 0, 1)], [x(2, Q, R)], flops=ALL),
    Row("SEGMENT_SUM", [CUBE, x(P, dtype="int32")], [x(None, Q, R)], open=True),
    *(Row(f"UNSORTED_SEGMENT_{name}", [CUBE, x(P, dtype="int32"), ints(S)], [x(S, Q, R)], flops=ALL, read=(0,
        1)) for name in ("SUM", "PROD", "MAX", "MIN")),
    *(Row(op, [ints(P, Q)], [XY], flops=N, read=()) for op in ("RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM")),
    Row("MULTINOMIAL", [XY, ints(S)], [x(P, S, dtype="int32")], flops=P * S, read=()),
    Row(H + "RNG_BIT_GENERATOR", [x(2, dtype="uint64")], [x(2, dtype="uint64"), x(None, dtype="uint32")._replace(shape=None)],
        open=True),
]  # fmt: skip

ROWS = [*ELEMENTS, *PRODUCTS, *RECURRENT, *MOVES, *REDUCTIONS]


@pytest.mark.parametrize("row", ROWS, ids=[f"{at}-{row.op}" for at, row in enumerate(ROWS)])
def test_an_operator_costs_what_it_computes(row: Row) -> None:
    check(row, TABLE, typed=True)
    check_with_less(row, TABLE, typed=True)


FAULTS = [
    (Row("CONV_2D", [IMAGE, w(S, 3, 2, 3)], [MAP], TWO), "4 channels cannot be divided among 3 of a group"),
    (Row("FULLY_CONNECTED", [XY, w(S, R)], [x(P, S)], {"keep_num_dims": 1}), f"rows of {Q} elements do not fit a weight of {R}"),
    (Row("STRIDED_SLICE", [CUBE, *[ints(*[1] * (MOST_AXES + 1))] * 3], [CUBE]), "it has 65 entries, and a tensor at most 64"),
    (Row("STRIDED_SLICE", [XY, *[ints(1, 1, 1, 1)] * 3], [XY], {"ellipsis_mask": 1}), "it cuts 3 axes, and there are 2"),
    (Row("STRIDED_SLICE", [XY, ints(0), ints(1), ints(0)], [XY]), "a slice has the step 0"),
    (Row("SPACE_TO_DEPTH", [x(P, 4, 6, Q)], [XY]), "its attributes do not fit its inputs"),
    (Row("FILL", [ints(2, -1), n(9, "int32")], [XY]), "its shape would be (2, -1)"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "message"), FAULTS, ids=[row.op for row, _ in FAULTS])
def test_an_operator_refuses_what_does_not_fit(row: Row, message: str) -> None:
    check_refused(row, TABLE, message, typed=True)


def test_every_operator_has_a_row() -> None:
    assert missing(ROWS, TABLE, {}) == set()
