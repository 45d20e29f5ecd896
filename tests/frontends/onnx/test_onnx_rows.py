"""What single nodes of ONNX and ONNX Runtime cost, and what comes out of them: one row for every operator."""

from __future__ import annotations

import pytest
from node_rows import P, Q, R, Row, S, T, Tensor, c, check, check_refused, check_with_less, missing, n, w, walked, x
from onnx_making import BOOL, INT64, Written, helper, integers, tensor, weight

import opcost
from opcost.frontends.nodes.meaning import Content, StoredValue
from opcost.frontends.onnx.walk import NCHWC, TABLE

M = "com.microsoft::"
N, C, D = P * Q, 4, 6
"""Elements of a small matrix; channels; features of a head."""
XY = x(P, Q)
SCALE, ZERO = x(), x(dtype="uint8")


def bytes_(*shape: int) -> object:
    return x(*shape, dtype="uint8")


UNARY = {
    1: "Abs Acos Asin Atan Ceil Cos Erf Exp Floor Log Neg Reciprocal Relu Round Sign Sin Sqrt Tan BitwiseNot",
    2: "ThresholdedRelu", 3: "Softsign LeakyRelu", 4: "Sinh Cosh Sigmoid HardSigmoid Elu",
    5: "Acosh Asinh Atanh Celu Selu Softplus ParametricSoftplus Tanh ScaledTanh HardSwish Swish", 8: "Mish",
}  # fmt: skip
"""Functions of one tensor by their FLOPs for each element."""
BINARY = {1: "Add Sub Mul Div Pow BitShift BitwiseAnd BitwiseOr BitwiseXor", 3: "PRelu", 4: "Mod"}
TRUTHS = "And Or Xor Equal Greater Less GreaterOrEqual LessOrEqual"

ELEMENTS = [
    *(Row(op, [XY], [XY], flops=each * N) for each, names in UNARY.items() for op in names.split()),
    *(Row(op, [XY, x(Q)], [XY], flops=each * N) for each, names in BINARY.items() for op in names.split()),
    *(Row(op, [x(P, 1), x(Q)], [x(P, Q, dtype="bool")], flops=N) for op in TRUTHS.split()),
    *(Row(op, [XY], [x(P, Q, dtype="bool")], flops=N) for op in ("Not", "IsNaN", "IsInf")),
    Row("Clip", [XY, n(0), n(6)], [XY], flops=2 * N, read=(0,)),
    Row("Gelu", [XY], [XY], flops=5 * N),
    Row("Gelu", [XY], [XY], {"approximate": "tanh"}, flops=13 * N),
    Row(M + "Gelu", [XY], [XY], flops=5 * N),
    Row(M + "QuickGelu", [XY], [XY], flops=6 * N),
    Row(M + "FastGelu", [XY], [XY], flops=13 * N),
    Row(M + "FastGelu", [XY, x(Q)], [XY], flops=(1 + 13) * N, between=[N]),
    Row(M + "BiasGelu", [XY, x(Q)], [XY], flops=(1 + 5) * N, between=[N]),
    Row(M + "BiasAdd", [x(P, S, Q), x(Q), x(P, S, Q)], [x(P, S, Q)], flops=P * S * Q),
    # a bias on both halves, one of them through gelu, their product; both are read twice
    Row(M + "BiasSplitGelu", [x(P, 10), x(10)], [x(P, 5)], flops=P * 10 + P * 5 * (5 + 1),
        moved=4 * (P * 10 + 10 + 3 * P * 10 + 3 * P * 5)),
    *(Row(op, [x(P, C, Q), x(P, Q, dtype="int64"), x(S, 2), x(S, 2)], [x(P, C, Q)], flops=3 * P * C * Q)
      for op in ("RotaryEmbedding", M + "RotaryEmbedding", M + "MRotaryEmbedding")),
    # of three tensors two pairs meet; the mean is divided by their number
    *(Row(op, [XY, XY, x(Q)], [XY], flops=each * N) for op, each in (("Max", 2), ("Min", 2), ("Sum", 2), ("Mean", 3))),
    Row("Sum", [XY], [XY], moved=0),
    *(Row("Sum", [less, XY], [found], open=True) for less, found in ((x(None, Q), XY), (Tensor(None), Tensor(None)))),
    Row("Sum", [x(None, Q), x(None, Q)], [x(None, Q)], open=True),
    Row(M + "BiasAdd", [XY], [XY], flops=N),
    Row("LogSoftmax", [XY], [XY], flops=5 * N, says={"fn": "log_softmax"}),
    Row("Softmax", [XY], [XY], flops=5 * N, says={"fn": "softmax"}),
    Row("SwiGLU", [x(P, 1), XY], [XY], flops=5 * P + N, moved=4 * (P + P + P + N + N)),
    Row(M + "QLinearWhere", [x(P, 1, dtype="bool"), bytes_(Q), SCALE, ZERO, bytes_(Q), SCALE, ZERO, SCALE, ZERO], [bytes_(P, Q)],
        flops=N),
    Row("Clip", [c(-3, 4, 9)], [c(-3, 4, 6)], {"max": 6.0}, flops=6),
    Row("Div", [c(7, -7, 7, 0), c(2, 2, -2, 2)], [c(3, -3, -3, 0)], flops=4),
    Row("Pow", [c(1, -1, 2, 2), c(99, 99, 2, 64)], [c(1, -1, 4, None)], flops=4),
    Row("Greater", [c(1, 3), c(2)], [c(False, True, dtype="bool")], flops=2),
    Row("Transpose", [c(1, 2, 3)._replace(shape=(1, 3))], [c(1, 2, 3)._replace(shape=(3, 1))]),
    Row("Sign", [c(2, 0, -2, 1)], [c(1, 0, -1, 1)], flops=4),
    Row("Cast", [c(2.5, float("inf"), dtype="float32")], [c(2, None)], {"to": 7}),
    Row("Max", [c(3, 8), c(5, 2)], [c(5, 8)], flops=2),
    Row("Sum", [c(3, 8), c(5, 2)], [c(8, 10)], flops=2),
    Row("Where", [x(P, Q, dtype="bool"), x(Q), x(P, 1)], [XY], flops=N),
    Row("Where", [c(1, 0), c(5, 6), c(7, 8)], [c(5, 8)], flops=2),
    # what models compute shapes with, element by element
    *(Row(op, [c(7, -7), c(2)], [c(*found)], flops=2 * each) for op, found, each in (
        ("Add", (9, -5), 1), ("Sub", (5, -9), 1), ("Mul", (14, -14), 1), ("Div", (3, -3), 1), ("Mod", (1, 1), 4), ("Pow", (49,
        49), 1))),
    *(Row(op, [c(7, 2), c(2)], [c(*found, dtype="bool")], flops=2) for op, found in (
        ("Equal", (False, True)), ("Greater", (True, False)), ("Less", (False, False)), ("GreaterOrEqual", (True, True)),
        ("LessOrEqual", (False, True)), ("And", (True, True)), ("Or", (True, True)))),
    Row("And", [c(1, 0), c(1)], [c(True, False, dtype="bool")], flops=2),
    Row("Or", [c(1, 0), c(0)], [c(True, False, dtype="bool")], flops=2),
    Row("Not", [c(1, 0)], [c(False, True, dtype="bool")], flops=2),
    *(Row(op, [c(2.5, -1.5, dtype="float32")], [c(*found, dtype="float32")], flops=2) for op, found in (
        ("Ceil", (3.0, -1.0)), ("Floor", (2.0, -2.0)), ("Round", (2.0, -2.0)), ("Neg", (-2.5, 1.5)), ("Abs", (2.5, 1.5)),
        ("Sign", (1, -1)))),
    Row("Div", [c(7.0, dtype="float32"), c(2)], [c(3.5, dtype="float32")], flops=1),
    Row("Sqrt", [c(9.0, dtype="float32")], [c(3.0, dtype="float32")], flops=1),
    Row("Min", [c(3, 8), c(5, 2)], [c(3, 2)], flops=2),
    Row("Clip", [c(-3, 4, 9), n(0), n(6)], [c(0, 4, 6)], flops=6, read=(0,)),
    Row("Clip", [c(-3, 4, 9), None, n(6)], [c(-3, 4, 6)], flops=6, read=(0,)),
    Row("Clip", [c(-3, 4, 9)], [c(0, 4, 9)], {"min": 0.0}, flops=6),
    Row("Transpose", [c(1, 2, 3, 4, 5, 6)._replace(shape=(2, 3))], [c(1, 4, 2, 5, 3, 6)._replace(shape=(3, 2))]),
    Row("Gather", [c(1, 2, 3, 4, 5, 6)._replace(shape=(2, 3)), c(2, 0)], [c(3, 1, 6, 4)._replace(shape=(2, 2))], {"axis": 1},
        moved=8 * 10),
    Row("Slice", [c(1, 2, 3, 4, 5, 6)._replace(shape=(2, 3)), c(1), c(3), c(1)], [c(2, 3, 5, 6)._replace(shape=(2, 2))],
        read=(0,)),
    Row("Gather", [c(*range(8))._replace(shape=(2, 2, 2)), c(1)], [c(2, 3, 6, 7)._replace(shape=(2, 1, 2))], {"axis": 1},
        moved=8 * 9),
    Row("Slice", [c(*range(8))._replace(shape=(2, 2, 2)), c(1), c(2), c(1)], [c(2, 3, 6, 7)._replace(shape=(2, 1, 2))],
        read=(0,)),
    Row("Concat", [c(1, 2)._replace(shape=(2, 1)), c(3, 4)._replace(shape=(2, 1))], [c(1, 3, 2, 4)._replace(shape=(2, 2))],
        {"axis": 1}),
    Row("Expand", [c(1, 2)._replace(shape=(2, 1)), c(2, 3)], [c(1, 1, 1, 2, 2, 2)._replace(shape=(2, 3))], read=(0,)),
    Row("Add", [c(1, 2)._replace(shape=(2, 1)), c(10, 20, 30)], [c(11, 21, 31, 12, 22, 32)._replace(shape=(2, 3))], flops=6),
    Row("Cast", [c(0, 3)], [c(False, True, dtype="bool")], {"to": 9}),
    Row("Split", [c(1, 2, 3, 4)._replace(shape=(2, 2))], [c(1, 3)._replace(shape=(2, 1)), c(2, 4)._replace(shape=(2, 1))],
        {"axis": 1}),
    Row("Range", [n(5), n(1), n(-2)], [c(5, 3)], read=()),
    Row("Range", [n(5), n(1), n(2)], [x(0, dtype="int64")], read=()),
    Row("ConstantOfShape", [c(0)], [x(0)], read=()),
    Row("Shrink", [XY], [XY], {"bias": 0.5}, flops=4 * N),
    Row("Shrink", [XY], [XY], flops=3 * N),
    Row("Cast", [XY], [x(P, Q, dtype="float16")], {"to": 10}),
    Row("Cast", [c(2.5, dtype="float32")], [c(2)], {"to": 7}),
    Row("BitCast", [XY], [x(P, Q, dtype="int32")], {"to": 6}),
    Row("CastLike", [XY, x(2, dtype="float64")], [x(P, Q, dtype="float64")], read=(0,)),
    Row("SwiGLU", [XY, XY], [XY], flops=(5 + 1) * N, between=[N]),
    Row("SwiGLU", [XY, XY], [XY], {"alpha": 1.7}, flops=(6 + 1) * N, between=[N]),
    *(Row(op, [XY], [XY], flops=5 * N) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    Row(M + "QLinearSoftmax", [bytes_(P, Q), SCALE, ZERO, SCALE, ZERO], [bytes_(P, Q)], flops=5 * N),
    *(Row(M + op, [bytes_(P, Q), SCALE, ZERO, bytes_(Q), SCALE, ZERO, SCALE, ZERO], [bytes_(P, Q)], flops=N)
      for op in ("QLinearAdd", "QLinearMul")),
    Row(M + "QLinearSigmoid", [bytes_(P, Q), SCALE, ZERO, SCALE, ZERO], [bytes_(P, Q)], flops=4 * N),
    Row(M + "QLinearLeakyRelu", [bytes_(P, Q), SCALE, ZERO, SCALE, ZERO], [bytes_(P, Q)], flops=3 * N),
    Row(M + "QLinearWhere", [x(1, dtype="bool"), bytes_(P, Q), SCALE, ZERO, bytes_(1), SCALE, ZERO, SCALE, ZERO], [bytes_(P,
        Q)], flops=N),
    Row(M + "QLinearWhere", [x(P, 1, dtype="bool"), bytes_(Q), SCALE, ZERO, bytes_(P, Q), SCALE, ZERO, SCALE, ZERO], [bytes_(P,
        Q)],
        flops=N),
    *(row for domain in ("", M) for row in (
        # divide, add, round, clamp (2); back: subtract, multiply
        Row(domain + "QuantizeLinear", [XY, SCALE, x(dtype="int8")], [x(P, Q, dtype="int8")], flops=5 * N),
        Row(domain + "QuantizeLinear", [XY, SCALE], [bytes_(P, Q)], flops=5 * N),
        Row(domain + "QuantizeLinear", [XY, SCALE], [x(P, Q, dtype="int8")], {"output_dtype": 3}, flops=5 * N),
        Row(domain + "DequantizeLinear", [bytes_(P, Q), x(dtype="float16"), ZERO], [x(P, Q, dtype="float16")], flops=2 * N),
        Row(domain + "DynamicQuantizeLinear", [XY], [bytes_(P, Q), SCALE, ZERO], flops=5 * N),
    )),
    Row(M + "BiasSoftmax", [XY, x(1, Q)], [XY], {"axis": 1}, flops=(1 + 5) * N, between=[N]),
    Row(M + "BiasDropout", [XY, x(Q), XY], [XY, x(P, Q, dtype="bool")], flops=2 * N, between=[N]),
    Row(M + "BiasDropout", [XY, x(Q)], [XY], flops=N),
    Row(M + "BitmaskBiasDropout", [XY, x(Q)], [XY, x(1, dtype="uint32")], flops=N),
    Row(M + "BitmaskBiasDropout", [x(P, S), x(S)], [x(P, S), x(2, dtype="uint32")], flops=P * S),  # 33 bits in words of 32
    Row(M + "BitmaskDropout", [XY], [XY, x(1, dtype="uint32")], moved=0),
    *(Row(M + op, [x(P, 2), x(P, 2)], [x(P, 2)], flops=3 * P * 2) for op in ("ComplexMul", "ComplexMulConj")),
    Row(M + "GatedAdd", [XY, XY, x(P, 1)], [XY], flops=2 * N),
    Row(M + "MulInteger", [bytes_(P, Q), ZERO, bytes_(Q), ZERO], [x(P, Q, dtype="int32")], flops=N + Q + N,
        moved=2 * (N + Q) + 2 + N + Q + 4 * N),
    Row(M + "MulInteger", [bytes_(P, Q), None, bytes_(Q)], [x(P, Q, dtype="int32")], flops=N),
    Row(M + "ScaledSiLU", [XY], [XY], flops=6 * N),
    Row(M + "QOrderedGelu", [x(P, Q, dtype="int8"), SCALE, SCALE], [x(P, Q, dtype="int8")], flops=5 * N),
    # sine and cosine of the angles, then three operations for each element of queries and keys
    Row(M + "GemmaRotaryEmbedding", [XY, x(P, C, Q), x(P, C, Q), x(P, C, Q), x(P, C, Q)], [x(P, C, Q)] * 2,
        flops=2 * N + 2 * 3 * P * C * Q,
        moved=4 * (4 * N + 2 * N + 6 * P * C * Q)),
    Row(M + "QuantizeWithOrder", [XY, SCALE], [x(P, Q, dtype="int8")], flops=5 * N),
    Row(M + "DequantizeWithOrder", [x(P, Q, dtype="int8"), SCALE], [XY], flops=2 * N),
    Row(M + "DequantizeWithOrder", [x(P, Q, dtype="int8"), SCALE], [x(P, Q, dtype="float16")], {"to": 10}, flops=2 * N),
    Row(M + "IsAllFinite", [XY, x(R)], [x(dtype="bool")], flops=N + R),
]  # fmt: skip

ONE = {"kernel_shape": (3, 2), "strides": (2, 1), "dilations": (1, 2), "pads": (1, 0, 0, 1)}
"""Of 7 x 5: (7 + 1 - 3) // 2 + 1 = 3 by 5 + 1 - 3 + 1 = 4."""
IMAGE, KERNEL, MAP = x(2, C, R, Q), w(S, C, 3, 2), x(2, S, 3, 4)
SWEPT = 2 * S * 3 * 4
GATES = {"LSTM": (4, 30), "GRU": (3, 21), "RNN": (1, 6)}
"""Gates, and the operations of one unit after its products."""

PRODUCTS = [
    Row("MatMul", [x(2, P, Q), x(Q, R)], [x(2, P, R)], macs=2 * P * Q * R),
    Row("MatMul", [x(Q), x(P, Q, R)], [x(P, R)], macs=P * Q * R),
    Row("MatMul", [x(P, Q), x(Q)], [x(P)], macs=P * Q),
    Row(M + "FusedMatMul", [x(Q, P), x(R, Q)], [x(P, R)], {"transA": 1, "transB": 1}, macs=P * Q * R),
    Row(M + "FusedMatMul", [x(Q), x(Q, R)], [x(R)], {"transA": 1}, macs=Q * R),
    # the rows of all matrices come first, the batch between
    Row(M + "FusedMatMul", [x(P, 2, S, Q), x(2, S, Q, R)], [x(2, S, P, R)], {"transBatchA": 1}, macs=2 * S * P * Q * R),
    Row(M + "FusedMatMul", [x(2, P, Q), x(Q, 2, R)], [x(2, P, R)], {"transBatchB": 1}, macs=2 * P * Q * R),
    Row("MatMul", [x(P, None), x(Q, R)], [x(P, R)], open=True),
    Row(M + "TransposeMatMul", [x(Q, P), x(Q, R)], [x(P, R)], {"transA": 1}, macs=P * Q * R),
    Row(M + "FusedMatMulActivation", [x(P, Q), x(R, Q)], [x(P, R)], {"transB": 1, "activation": "Relu"}, macs=P * Q * R,
        flops=P * R),
    Row("Gemm", [x(P, Q), x(Q, R), x(R)], [x(P, R)], macs=P * Q * R, flops=P * R),
    Row("Gemm", [x(P, Q), x(Q, R), x(R)], [x(P, R)], {"beta": 0.0}, macs=P * Q * R),
    Row("Gemm", [x(Q, P), x(R, Q)], [x(P, R)], {"transA": 1, "transB": 1}, macs=P * Q * R),
    *(Row(M + "FusedGemm", [x(P, Q), x(Q, R), x(R)], [x(P, R)], {"activation": fn}, macs=P * Q * R, flops=(1 + each) * P * R)
      for fn, each in (("Relu", 1), ("Tanh", 5), ("Sigmoid", 4), ("LeakyRelu", 3), ("HardSigmoid", 4), ("Clip", 2),
      ("HardSwish", 5),
                       ("Gelu", 5))),
    Row(M + "GemmFastGelu", [x(P, Q), x(Q, R), x(R)], [x(P, R)], macs=P * Q * R, flops=(1 + 13) * P * R),
    Row(M + "GemmFloat8", [x(P, Q, dtype="float8_e4m3fn"), x(R, Q, dtype="float8_e4m3fn"), x(R)], [x(P, R, dtype="float16")],
        {"transB": 1, "dtype": 10, "activation": "GELU"}, macs=P * Q * R, flops=5 * P * R),
    Row(M + "GemmFloat8", [x(P, Q, dtype="float8_e4m3fn"), x(Q, R, dtype="float8_e4m3fn"), x(R)], [x(P, R)],
        {"beta": 1.0, "activation": "RELU"}, macs=P * Q * R, flops=(1 + 1) * P * R),
    Row("MatMulInteger", [bytes_(P, Q), bytes_(Q, R), ZERO, ZERO], [x(P, R, dtype="int32")], macs=P * Q * R),
    Row(M + "MatMulInteger16", [x(P, Q, dtype="int16"), x(Q, R, dtype="int16")], [x(P, R, dtype="int32")], macs=P * Q * R),
    Row(M + "MatMulIntegerToFloat", [bytes_(P, Q), bytes_(Q, R), x(dtype="float16"), SCALE, None, None, x(R)], [x(P, R,
        dtype="float16")],
        macs=P * Q * R, flops=P * R),
    Row(M + "MatMulIntegerToFloat", [bytes_(P, Q), bytes_(Q, R), SCALE, SCALE, ZERO, ZERO], [x(P, R)], macs=P * Q * R),
    Row(M + "DynamicQuantizeMatMul", [x(P, Q), bytes_(Q, R), SCALE, ZERO, x(R)], [x(P, R)], macs=P * Q * R, flops=5 * N + P * R,
        moved=4 * N + 2 * N + Q * R + 4 + 1 + 4 * R + 4 * P * R),
    *(Row(domain + "QLinearMatMul", [bytes_(P, Q), SCALE, ZERO, x(Q, R, dtype="int8"), SCALE, ZERO, SCALE, x(dtype="int8")],
          [x(P, R, dtype="int8")], macs=P * Q * R) for domain in ("", M)),
    Row(M + "QGemm", [bytes_(Q, P), SCALE, ZERO, bytes_(R, Q), SCALE, ZERO, x(R, dtype="int32"), SCALE, x(dtype="int8")],
        [x(P, R, dtype="int8")], {"transA": 1, "transB": 1}, macs=P * Q * R, flops=P * R),
    Row(M + "QGemm", [bytes_(P, Q), SCALE, ZERO, bytes_(Q, R), SCALE, ZERO], [x(P, R)], macs=P * Q * R),
    Row(M + "QGemm", [bytes_(P, Q), SCALE, ZERO, bytes_(Q, R), SCALE, ZERO, None, SCALE, ZERO], [bytes_(P, R)], macs=P * Q * R),
    Row(M + "MatMulNBits", [x(P, 32), bytes_(R, 1, 16), x(R)], [x(P, R)], {"K": 32, "N": R, "bits": 4}, macs=P * 32 * R),
    Row(M + "MatMulNBits", [x(P, 32), bytes_(R, 1, 16), x(R), None, None, x(R)], [x(P, R)], {"K": 32, "N": R}, macs=P * 32 * R,
        flops=P * R),
    Row(M + "MatMulBnb4", [x(P, 32), bytes_(16 * R), x(R)], [x(P, R)], {"K": 32, "N": R}, macs=P * 32 * R),
    Row("Einsum", [x(2, P, Q), x(2, Q, R)], [x(2, P, R)], {"equation": "bij,bjk->bik"}, macs=2 * P * Q * R),
    Row("Einsum", [x(P, Q)], [x(P)], {"equation": "ij->i"}, flops=N),
    Row("Einsum", [x(P, Q), x(Q, R)], [x(P, R)], {"equation": "ij, jk"}, macs=P * Q * R),
    # two bytes of four bits, one of eight, whose first operand then comes down to eight bits
    Row(M + "MatMulBlockQuantizedFp4Weight", [x(P, 10), bytes_(R, 5), x(R), x(1), None, x(R)], [x(P, R)], macs=P * 10 * R,
        flops=P * R),
    Row(M + "MatMulBlockQuantizedFp4Weight", [x(P, 10), bytes_(R, 5), x(R), x(1)], [x(P, R)], macs=P * 10 * R),
    Row(M + "MatMulBlockQuantizedFp8Weight", [x(P, Q), bytes_(R, Q), x(R), x(1), x(R)], [x(P, R)], macs=P * Q * R,
        flops=5 * N + P * R,
        moved=4 * N + 4 + 2 * N + R * Q + 4 * R + 4 * R + 4 * P * R),
    Row(M + "MatMulBlockQuantizedFp8Weight", [x(P, Q), bytes_(R, Q), x(R)], [x(P, R)], macs=P * Q * R),
    Row(M + "MatMulFpQ4", [x(P, Q), bytes_(40), c(Q, R)], [x(P, R)], macs=P * Q * R, read=(0, 1)),
    Row(M + "QOrderedMatMul", [x(P, Q, dtype="int8"), SCALE, x(R, Q, dtype="int8"), SCALE, SCALE, x(R), x(P, R, dtype="int8"),
        SCALE],
        [x(P, R, dtype="int8")], macs=P * Q * R, flops=(1 + 2) * P * R),
    Row(M + "QOrderedMatMul", [x(P, Q, dtype="int8"), SCALE, x(R, Q, dtype="int8"), SCALE, SCALE], [x(P, R, dtype="int8")],
        macs=P * Q * R),
    Row(M + "QOrderedMatMul", [x(P, Q, dtype="int8"), SCALE, x(R, Q, dtype="int8"), SCALE, SCALE, x(R)], [x(P, R, dtype="int8")],
        macs=P * Q * R, flops=P * R),
    Row(M + "QOrderedMatMul",
        [x(P, Q, dtype="int8"), SCALE, x(R, Q, dtype="int8"), SCALE, SCALE, None, x(P, R, dtype="int8"), SCALE],
        [x(P, R, dtype="int8")], macs=P * Q * R, flops=2 * P * R),
    # a sum, an rms norm (4), gate and up, silu of the gate, their product
    Row(M + "MatMulNBitsMlp", [x(P, Q), x(P, Q), x(Q), bytes_(40), x(R), None, bytes_(40), x(R), x(R)], [x(P, R), x(P, Q)],
        {"K": Q, "N": R}, macs=2 * P * Q * R, flops=(1 + 4) * N + P * R + (5 + 1) * P * R,
        moved=4 * (2 * N + N) + 4 * (N + Q + N) + 2 * (4 * N + 40 + 4 * R + 4 * P * R) + 4 * R
        + 4 * 2 * P * R + 4 * 3 * P * R + 4 * N),
    *(Row(M + "MatMulNBitsMlp", [x(P, Q), None, None, bytes_(40), x(R), None, bytes_(40), x(R)], [x(P, R)], {"K": Q, "N": R,
        "activation": fn},
          macs=2 * P * Q * R, flops=(each + 1) * P * R, moved=2 * (4 * N + 40 + 4 * R + 4 * P * R) + 4 * 5 * P * R)
      for fn, each in (("Gelu", 5), ("relu", 1), ("silu", 5))),
    Row(M + "MatMulNBitsQkv", [x(P, Q), None, x(Q), bytes_(40), x(R), None, bytes_(20), x(S), x(S), bytes_(20), x(S)],
        [x(P, R), x(P, S), x(P, S)], {"K": Q, "Nq": R, "Nkv": S}, macs=P * Q * (R + 2 * S), flops=4 * N + P * S,
        moved=4 * (2 * N + Q) + 3 * 4 * N + 80 + 4 * (R + 2 * S) + 4 * S + 4 * P * (R + 2 * S)),
    # streams are added up with weights; after a block they are mixed, and its result is added through a gate
    Row(M + "HyperConnectionPreMix", [x(P, C, Q), x(C)], [x(P, Q)], macs=P * Q * C),
    Row(M + "HyperConnectionPreMix", [x(P, C * Q), x(C)], [x(P, Q)], {"num_branches": C, "reduction_scale": 0.5},
        macs=P * Q * C, flops=N),
    Row(M + "HyperConnectionPostMix", [x(P, C, Q), x(P, Q), x(C), x(C, C)], [x(P, C, Q)], macs=P * C * Q * C,
        flops=2 * P * C * Q,
        between=[P * C * Q]),
    Row(M + "HyperConnectionPostMix", [x(P, C * Q), x(P, Q), x(C)], [x(P, C * Q)], {"num_branches": C}, flops=2 * P * C * Q),
    # -- convolutions
    Row("Conv", [IMAGE, KERNEL, w(S)], [MAP], ONE, macs=SWEPT * C * 6, flops=SWEPT,
        says={"kernel": (3, 2), "stride": (2, 1), "dilation": (1, 2)}),
    # the kernel is that of the weight: 7 - 3 + 1 by 5 - 2 + 1
    Row("Conv", [IMAGE, KERNEL], [x(2, S, 5, 4)], macs=2 * S * 20 * C * 6),
    Row(M + "NhwcConv", [x(2, R, Q, C), KERNEL], [x(2, 5, 4, S)], macs=2 * S * 20 * C * 6),
    Row("ConvInteger", [bytes_(2, C, R, Q), bytes_(S, C, 3, 2)], [x(2, S, 5, 4, dtype="int32")], macs=2 * S * 20 * C * 6),
    Row("DeformConv", [IMAGE, KERNEL, x(2, 12, 5, 4)], [x(2, S, 5, 4)], macs=2 * S * 20 * C * 6, flops=2 * 20 * C * 6 * 4 * 2),
    Row("ConvTranspose", [IMAGE, w(C, S, 3, 2)], [x(2, S, R + 2, Q + 1)], macs=2 * C * R * Q * S * 6),
    Row("ConvTranspose", [IMAGE, w(C, S, 3, 2)], [x(2, S, 15, 10)], {"output_shape": (2, S, 15, 10), "strides": (2, 2)},
        macs=2 * C * R * Q * S * 6),
    Row("Conv", [x(2, C, R), w(C, 1, 3)], [x(2, C, R)], {"auto_pad": "SAME_UPPER", "group": C, "pads": (9, 9)},
        macs=2 * C * R * 3),
    Row("Conv", [x(2, C, R), w(S, C, 3)], [x(2, S, 3)], {"auto_pad": "VALID", "strides": (2,), "pads": (9, 9)},
        macs=2 * S * 3 * C * 3),
    *(Row(M + "FusedConv", [IMAGE, KERNEL, w(S)], [MAP], {**ONE, "activation": fn}, macs=SWEPT * C * 6, flops=(1 + each) * SWEPT)
      for fn, each in (("Relu", 1), ("LeakyRelu", 3), ("HardSwish", 5))),
    Row(M + "FusedConv", [IMAGE, KERNEL, w(S), MAP], [MAP], {**ONE, "activation": "Relu"}, macs=SWEPT * C * 6, flops=3 * SWEPT),
    Row(M + "FusedConv", [IMAGE, KERNEL, None, MAP], [MAP], {**ONE, "activation": "Relu"}, macs=SWEPT * C * 6, flops=2 * SWEPT),
    *(Row(op, [x(2, R, Q, C), KERNEL, w(S)], [x(2, 3, 4, S)], {**ONE, **more}, macs=SWEPT * C * 6, flops=(1 + each) * SWEPT)
      for op, more, each in ((M + "NhwcConv", {}, 0), (M + "NhwcFusedConv", {"activation": "Relu"}, 1),
      ("com.ms.internal.nhwc::Conv", {}, 0),
                             ("com.ms.internal.nhwc::NhwcConv", {}, 0), ("com.ms.internal.nhwc::NhwcFusedConv",
                             {"activation": "Tanh"}, 5))),
    *(row for domain in ("", M) for row in (
        Row(domain + "ConvInteger", [bytes_(2, C, R, Q), bytes_(S, C, 3, 2), ZERO, ZERO], [x(2, S, 3, 4, dtype="int32")], ONE,
            macs=SWEPT * C * 6),
        Row(domain + "QLinearConv", [bytes_(2, C, R, Q), SCALE, ZERO, bytes_(S, C, 3, 2), SCALE, ZERO, SCALE, x(dtype="int8"),
                                     x(S, dtype="int32")], [x(2, S, 3, 4, dtype="int8")], ONE, macs=SWEPT * C * 6, flops=SWEPT),
        Row(domain + "QLinearConv", [bytes_(2, R, Q, C), SCALE, ZERO, bytes_(S, C, 3, 2), SCALE, ZERO, SCALE, ZERO],
            [bytes_(2, 3, 4, S)], {**ONE, "channels_last": 1}, macs=SWEPT * C * 6))),
    # each element of the input meets the kernel: (7 - 1) · 2 + 3 - 1 + 1 by (5 - 1) + 2 · (2 - 1) + 1 - 1
    Row("ConvTranspose", [IMAGE, w(C, S, 3, 2), w(S)], [x(2, S, 15, 6)], {**ONE, "output_padding": (1, 0)},
        macs=2 * C * R * Q * S * 6,
        flops=2 * S * 15 * 6),
    Row("ConvTranspose", [x(2, C, R), w(C, S, 3)], [x(2, 2 * S, 14)], {"group": 2, "output_shape": (14,), "strides": (2,)},
        macs=2 * C * R * S * 3),
    Row("ConvTranspose", [x(2, C, R), w(C, S, 3)], [x(2, S, 14)], {"auto_pad": "SAME_LOWER", "strides": (2,)},
        macs=2 * C * R * S * 3),
    Row("DeformConv", [IMAGE, KERNEL, x(2, 12, 3, 4), w(S), x(2, 6, 3, 4)], [MAP], ONE, macs=SWEPT * C * 6,
        flops=SWEPT + 2 * 3 * 4 * C * 6 * 4 * 2),
    # -- recurrent layers: Q steps of 2 sequences
    *(Row(op, [x(Q, 2, R), w(ways, gates * S, R), w(ways, gates * S, S), *bias], [x(Q, ways, 2, S), *[x(ways, 2,
        S)] * (2 if op == "LSTM" else 1)],
          {"hidden_size": S, **way}, macs=ways * Q * 2 * gates * S * (R + S),
          flops=ways * Q * 2 * S * (each + len(bias) * 2 * gates))
      for op, (gates, each) in GATES.items()
      for ways, way in ((1, {}), (1, {"direction": "reverse"}), (2, {"direction": "bidirectional"}))
      for bias in ([], [w(ways, 2 * gates * S)])),
    Row("RNN", [x(Q, 2, R), w(1, S, R), w(1, S, S)], [x(Q, 1, 2, S), x(1, 2, S)], {"activations": ("Relu",)},
        macs=Q * 2 * S * (R + S),
        flops=Q * 2 * S * 2),
    Row("LSTM", [x(2, Q, R), w(1, 4 * S, R), w(1, 4 * S, S)], [x(2, Q, 1, S), x(2, 1, S), x(2, 1, S)], {"layout": 1},
        macs=Q * 2 * 4 * S * (R + S), flops=Q * 2 * S * 30),
    # peepholes: a product and an addition for three gates of each unit
    Row("LSTM", [x(Q, 2, R), w(1, 4 * S, R), w(1, 4 * S, S), None, None, None, None, w(1, 3 * S)], [x(Q, 1, 2, S), x(1, 2, S),
        x(1, 2, S)],
        macs=Q * 2 * 4 * S * (R + S), flops=Q * 2 * S * (30 + 3 * 2),
        moved=4 * (Q * 2 * R + 4 * S * (R + S) + 2 * 3 * S + 3 * Q * 2 * S + Q * 2 * S + 4 * S)),
    Row(M + "DynamicQuantizeLSTM", [x(Q, 2, R), w(1, R, 4 * S, dtype="int8"), w(1, S, 4 * S, dtype="int8"), w(1, 8 * S)],
        [x(Q, 1, 2, S), x(1, 2, S), x(1, 2, S)], {"hidden_size": S}, macs=Q * 2 * 4 * S * (R + S), flops=Q * 2 * S * (30 + 8)),
]  # fmt: skip

HEADS, GROUPS = 4, 2
B, L, K = 2, Q, R
"""Sequences, queries, and keys of earlier steps."""
WIDE = HEADS * D
SQUARE = B * HEADS * L * L
LONG = B * HEADS * L * (K + L)
CACHE = x(B, HEADS, K, D)
GROWN = x(B, HEADS, K + L, D)
SPLIT = {"num_heads": HEADS}


def attended(scores: int, deep: int = D, wide: int = D, mask: int = 0) -> dict[str, int]:
    """Scores and what is read by them; scale, softmax, and maybe a mask."""
    return {"macs": scores * (deep + wide), "flops": scores * (1 + 5 + mask)}


def moved(*elements: int) -> dict[str, int]:
    return {"moved": 4 * sum(elements)}


NARROW = x(B, HEADS, K, 3)


def continued(groups: int, around: int) -> dict[str, int]:
    """What is moved where D features of keys and 3 of values are joined to those of earlier steps, then read."""
    return moved(around, B * groups * (D + 3) * (K + L + 2 * (K + L)))


E, INNER, TOKENS = 8, 10, 2 * Q
"""Experts, their inner width, tokens."""


def experts(k: int, act: int, *, gate: int = 0, biases: int = 0) -> dict[str, int]:
    """Every token through `k` experts: up (twice as wide with a gate), the activation, down; maybe with biases."""
    rows = TOKENS * k
    up = rows * INNER * (1 + gate)
    return {"macs": rows * R * INNER * (1 + gate) + rows * INNER * R, "flops": act * rows * INNER + biases * (up + TOKENS * R),
            **moved(TOKENS * R, E * R * INNER * (1 + gate), TOKENS * E, up, up, rows * INNER, rows * INNER, E * INNER * R,
            TOKENS * R,
                    biases * (E * INNER * (1 + gate) + E * R))}  # fmt: skip


ATTENTION = [
    Row("Attention", [x(B, HEADS, L, D), x(B, GROUPS, K, D), x(B, GROUPS, K, 3)], [x(B, HEADS, L, 3)], {"q_num_heads": HEADS},
        **attended(B * HEADS * L * K, D, 3)),
    Row("Attention", [x(B, L, WIDE), x(B, K, GROUPS * D), x(B, K, GROUPS * 3), x(L, K)], [x(B, L, HEADS * 3)],
        {"q_num_heads": HEADS, "kv_num_heads": GROUPS}, **attended(B * HEADS * L * K, D, 3, mask=1)),
    Row("Attention", [x(B, L, WIDE), x(B, L, WIDE), x(B, L, WIDE), None, CACHE, CACHE], [x(B, L, WIDE), GROWN, GROWN, x(B,
        HEADS, L, K + L)],
        {"q_num_heads": HEADS, "kv_num_heads": HEADS, "is_causal": 1}, **attended(LONG),
        **moved(2 * (B * HEADS * K * D + B * L * WIDE + B * HEADS * (K + L) * D), B * L * WIDE, 2 * 2 * B * HEADS * (K + L) * D,
                B * L * WIDE, LONG)),
    # keys and values of earlier steps, the values of three features
    Row("Attention", [x(B, L, WIDE), x(B, L, WIDE), x(B, L, HEADS * 3), None, CACHE, NARROW], [x(B, L, HEADS * 3)],
        {"q_num_heads": HEADS, "kv_num_heads": HEADS}, **attended(LONG, D, 3), **continued(HEADS, B * L * HEADS * (D + 3))),
    Row(M + "MultiHeadAttention", [x(B, L, WIDE), x(B, L, WIDE), x(B, L, HEADS * 3), None, None, None, CACHE, NARROW],
        [x(B, L, HEADS * 3)], SPLIT, **attended(LONG, D, 3), **continued(HEADS, B * L * HEADS * (D + 3))),
    Row(M + "DecoderMaskedMultiHeadAttention",
        [x(B, L, WIDE), x(B, L, WIDE), x(B, L, HEADS * 3), None, None, CACHE, NARROW], [x(B, L, HEADS * 3)], SPLIT,
        **attended(LONG, D, 3), **continued(HEADS, B * L * HEADS * (D + 3))),
    Row(M + "GroupQueryAttention",
        [x(B, L, WIDE), x(B, L, GROUPS * D), x(B, L, GROUPS * 3), x(B, GROUPS, K, D), x(B, GROUPS, K, 3)], [x(B, L, HEADS * 3)],
        {**SPLIT, "kv_num_heads": GROUPS}, **attended(LONG, D, 3), **continued(GROUPS, B * L * HEADS * (D + 3))),
    # a mask of three axes is added to the scores, one of two is not
    *(Row(M + "Attention", [x(B, L, R), w(R, 3 * WIDE), w(3 * WIDE), mask], [x(B, L, WIDE)], SPLIT,
          macs=B * L * R * 3 * WIDE + SQUARE * 2 * D, flops=B * L * 3 * WIDE + SQUARE * (6 + added),
          **moved(B * L * R, (R + 1) * 3 * WIDE, 2 * B * L * 3 * WIDE, B * L * WIDE, added * B * L * L))
      for mask, added in ((x(B, L), 0), (x(B, L, L), 1))),
    Row(M + "QAttention", [bytes_(B, L, R), w(R, 3 * WIDE, dtype="int8"), w(3 * WIDE), SCALE, SCALE, x(B, L, K + L), None, None,
                           x(2, B, HEADS, K, D)],
        [x(B, L, WIDE), x(2, B, HEADS, K + L, D)], SPLIT, macs=B * L * R * 3 * WIDE + LONG * 2 * D,
        flops=B * L * 3 * WIDE + LONG * 7,
        moved=B * L * R + R * 3 * WIDE + 4 * (3 * WIDE + B * L * 3 * WIDE + 2 * B * HEADS * K * D + 2 * B * L * WIDE
                                              + B * L * WIDE + 4 * B * HEADS * (K + L) * D + B * L * (K + L) + B * L * WIDE
                                              + 2 * B * HEADS * (K + L) * D)),
    Row(M + "PackedMultiHeadAttention", [x(12, WIDE)] * 3 + [None, x(P, None, dtype="int32")], [x(12, WIDE)], SPLIT,
        **attended(P * HEADS * 16), read=(0, 1, 2)),
    Row(M + "MoE", [x(2, Q, R), x(TOKENS, E), w(E, R, INNER), None, w(E, INNER, R)], [x(2, Q, R)], **experts(1, 1)),
    Row("ai.onnx.preview::FlexAttention", [x(B, HEADS, L, D), x(B, GROUPS, K, D), x(B, GROUPS, K, 3)], [x(B, HEADS, L, 3)],
        **attended(B * HEADS * L * K, D, 3)),
    # the product with the weights of all three comes first, with a bias
    Row(M + "Attention", [x(B, L, R), w(R, 3 * WIDE), w(3 * WIDE)], [x(B, L, WIDE)], SPLIT,
        macs=B * L * R * 3 * WIDE + SQUARE * 2 * D, flops=B * L * 3 * WIDE + SQUARE * 6,
        **moved(B * L * R, R * 3 * WIDE, 3 * WIDE, B * L * 3 * WIDE, B * L * 3 * WIDE, B * L * WIDE)),
    Row(M + "Attention", [x(B, L, R), w(R, 2 * WIDE + 3 * HEADS), None, x(B, 1, L, L + K), x(2, B, HEADS, K, D)],
        [x(B, L, 3 * HEADS), x(2, B, HEADS, K + L, D)], {**SPLIT, "qkv_hidden_sizes": (WIDE, WIDE, 3 * HEADS),
        "unidirectional": 1},
        macs=B * L * R * (2 * WIDE + 3 * HEADS) + LONG * (D + 3), flops=LONG * 7,
        **moved(B * L * R, R * (2 * WIDE + 3 * HEADS), B * L * (2 * WIDE + 3 * HEADS), B * L * WIDE,
                2 * B * HEADS * K * D, B * L * WIDE, B * L * 3 * HEADS, B * HEADS * (K + L) * (D + 3),
                B * HEADS * (K + L) * (D + 3), B * (L + K) * L, B * L * 3 * HEADS, 2 * B * HEADS * (K + L) * D)),
    Row(M + "QAttention", [bytes_(B, L, R), w(R, 3 * WIDE, dtype="int8"), w(3 * WIDE), SCALE, SCALE, x(B, dtype="int32")],
        [x(B, L, WIDE)], SPLIT,
        macs=B * L * R * 3 * WIDE + SQUARE * 2 * D, flops=B * L * 3 * WIDE + SQUARE * 6,
        moved=B * L * R + R * 3 * WIDE + 4 * (3 * WIDE + 2 * B * L * 3 * WIDE + B * L * WIDE)),
    Row(M + "MultiHeadAttention", [x(B, L, WIDE), x(B, K, WIDE), x(B, K, 3 * HEADS)], [x(B, L, 3 * HEADS)], SPLIT,
        **attended(B * HEADS * L * K, D, 3)),
    Row(M + "MultiHeadAttention", [x(B, L, HEADS, 3, D)], [x(B, L, WIDE)], SPLIT, **attended(SQUARE),
        **moved(3 * B * L * WIDE, B * L * WIDE)),
    # a bias on each of the three; keys and values of earlier steps; a bias on the scores
    Row(M + "MultiHeadAttention", [x(B, L, WIDE), x(B, L, WIDE), x(B, L, WIDE), w(3 * WIDE), None, x(B, HEADS, L, K + L),
        CACHE, CACHE],
        [x(B, L, WIDE), GROWN, GROWN], SPLIT, macs=LONG * 2 * D, flops=3 * B * L * WIDE + LONG * 7,
        **moved(3 * (2 * B * L * WIDE + 3 * WIDE), 2 * (B * HEADS * K * D + B * L * WIDE + B * HEADS * (K + L) * D),
                B * L * WIDE, 2 * B * HEADS * (K + L) * D, LONG, B * L * WIDE, 2 * B * HEADS * (K + L) * D)),
    # for one token, with its inputs in another order: lengths, a bias on the scores, the cache, and last the bias
    Row(M + "DecoderMaskedMultiHeadAttention",
        [x(B, 1, WIDE)] * 3 + [x(B, K + 1, dtype="int32"), x(B, HEADS, 1, K + 1), CACHE, CACHE, None, None, None, w(3 * WIDE)],
        [x(B, 1, WIDE)], SPLIT,
        macs=B * HEADS * (K + 1) * 2 * D, flops=3 * B * WIDE + B * HEADS * (K + 1) * 7,
        **moved(3 * (2 * B * WIDE + 3 * WIDE), 2 * (B * HEADS * K * D + B * WIDE + B * HEADS * (K + 1) * D),
                B * WIDE, 2 * B * HEADS * (K + 1) * D, B * HEADS * (K + 1), B * WIDE)),
    Row(M + "PackedAttention", [x(12, R), w(R, 3 * WIDE), w(3 * WIDE), x(P, 6, dtype="int32"), x(P + 1, dtype="int32")], [x(12,
        WIDE)], SPLIT,
        macs=12 * R * 3 * WIDE + P * HEADS * 4 * 4 * 2 * D, flops=12 * 3 * WIDE + P * HEADS * 16 * 6,
        **moved(12 * R, R * 3 * WIDE, 3 * WIDE, 2 * 12 * 3 * WIDE, 12 * WIDE)),
    Row(M + "PackedAttention", [x(12, R), w(R, 2 * WIDE + 3 * HEADS), w(2 * WIDE + 3 * HEADS), x(P, 6, dtype="int32"), x(P + 1,
        dtype="int32"),
                                x(P, HEADS, 4, 4)],
        [x(12, 3 * HEADS)], {**SPLIT, "qkv_hidden_sizes": (WIDE, WIDE, 3 * HEADS)},
        macs=12 * R * (2 * WIDE + 3 * HEADS) + P * HEADS * 16 * (D + 3), flops=12 * (2 * WIDE + 3 * HEADS) + P * HEADS * 16 * 7,
        **moved(12 * R, (R + 1) * (2 * WIDE + 3 * HEADS), 2 * 12 * (2 * WIDE + 3 * HEADS), P * HEADS * 16, 12 * 3 * HEADS)),
    Row(M + "PackedMultiHeadAttention", [x(12, WIDE)] * 3 + [None, x(P, 6, dtype="int32"), x(P + 1, dtype="int32"), x(P, HEADS,
        4, 4)], [x(12, WIDE)],
        SPLIT, **attended(P * HEADS * 16, mask=1), read=(0, 1, 2, 6)),
    Row(M + "PackedMultiHeadAttention", [x(12, HEADS, 3, D), None, None, w(D), x(P, 6, dtype="int32"), x(P + 1,
        dtype="int32")], [x(12, WIDE)],
        SPLIT, macs=P * HEADS * 16 * 2 * D, flops=P * HEADS * 16 * 6 + 3 * 12 * WIDE,
        **moved(3 * (2 * 12 * WIDE + D), 3 * 12 * WIDE, 12 * WIDE)),
    Row(M + "GroupQueryAttention", [x(B, L, WIDE), x(B, L, GROUPS * D), x(B, L, GROUPS * D), x(B, GROUPS, K, D), x(B, GROUPS,
        K, D)],
        [x(B, L, WIDE), x(B, GROUPS, K + L, D), x(B, GROUPS, K + L, D)], {**SPLIT, "kv_num_heads": GROUPS}, **attended(LONG),
        **moved(2 * (B * GROUPS * K * D + B * L * GROUPS * D + B * GROUPS * (K + L) * D), B * L * WIDE,
        2 * B * GROUPS * (K + L) * D,
                B * L * WIDE, 2 * B * GROUPS * (K + L) * D)),
    # packed, and turned by angles: three operations for each element of queries and keys
    Row(M + "GroupQueryAttention", [x(B, L, (HEADS + 2 * GROUPS) * D), None, None, None, None, None, None, x(S, 3), x(S, 3)],
        [x(B, L, WIDE)],
        {**SPLIT, "kv_num_heads": GROUPS, "do_rotary": 1}, macs=SQUARE * 2 * D,
        flops=SQUARE * 6 + 3 * B * L * (HEADS + GROUPS) * D,
        **moved(2 * 2 * S * 3, 2 * B * L * (HEADS + GROUPS) * D, B * L * (HEADS + GROUPS) * D, B * L * GROUPS * D,
        B * L * WIDE)),
    *(Row(M + "MoE", [x(2, Q, R), x(TOKENS, E), w(E, R, INNER), None, w(E, INNER, R)], [x(2, Q, R)], {"k": k,
        "activation_type": fn},
        **experts(k, each))
      for k, fn, each in ((1, "relu", 1), (3, "gelu", 5), (2, "silu", 5))),
    # newer files have the weights as (out, in); a gate of its own, or beside the other half; biases
    Row(M + "MoE", [x(2, Q, R), x(TOKENS, E), w(E, INNER, R), w(E, INNER), w(E, R, INNER), w(E, R)], [x(2, Q, R)], {"k": 2},
        **experts(2,
        1, biases=1)),
    Row(M + "MoE", [x(2, Q, R), x(TOKENS, E), w(E, 2 * INNER, R), None, w(E, R, INNER)], [x(2, Q, R)], {"k": 2,
        "activation_type": "swiglu"},
        **experts(2, 5 + 1, gate=1)),
    *(Row(M + "MoE", [x(2, Q, R), x(TOKENS, E), w(E, R, INNER), None, w(E, INNER, R), None, w(E, R, INNER)], [x(2, Q, R)],
        {"k": 2,
        "activation_type": fn},
          **experts(2, each + 1, gate=1)) for fn, each in (("relu", 1), ("gelu", 5), ("silu", 5))),
    *(Row(M + "QMoE", [x(2, Q, R), x(TOKENS, E), bytes_(E, INNER, 4), w(E, INNER), None, bytes_(E, R, INNER * bits // 8), w(E,
        R)], [x(2,
        Q, R)],
          {"k": 2, **more}, macs=2 * TOKENS * 2 * R * INNER, flops=TOKENS * 2 * INNER,
          moved=4 * TOKENS * R + E * INNER * 4 + 4 * TOKENS * E + 4 * 4 * TOKENS * 2 * INNER
          + E * R * INNER * bits // 8 + 4 * TOKENS * R)
      for bits, more in ((4, {}), (8, {"expert_weight_bits": 8}))),
    Row(M + "QMoE", [x(2, Q, R), x(TOKENS, E), bytes_(E, INNER, 4), w(E, INNER), w(E, INNER), bytes_(E, R, INNER // 2), w(E,
        R), w(E, R),
        bytes_(E, INNER, 4)],
        [x(2, Q, R)], {"k": 2}, macs=3 * TOKENS * 2 * R * INNER,
        flops=TOKENS * 2 * INNER * (1 + 1) + TOKENS * 2 * INNER * 2 + TOKENS * R,
        moved=4 * TOKENS * R + 2 * E * INNER * 4 + 4 * E * INNER + 4 * TOKENS * E
        + 4 * 2 * 3 * TOKENS * 2 * INNER + E * R * INNER // 2 + 4 * E * R + 4 * TOKENS * R),
]  # fmt: skip

Y = Q * GROUPS * R
DELTA = [
    x(B, Q, HEADS * D),
    x(B, Q, GROUPS * D),
    x(B, Q, GROUPS * R),
    x(B, GROUPS, D, R),
    x(B, Q, GROUPS),
    x(B, Q, GROUPS),
]
CELLS = B * Q * GROUPS * D * R
"""Elements of the states after each token."""
VALUES = B * Q * GROUPS * R
STATE = B * GROUPS * D * R
READ = B * Q * HEADS * D * R
LINEAR = {"q_num_heads": HEADS, "kv_num_heads": GROUPS}
QUERIES, KEYS, RATES = B * Q * HEADS * D, B * Q * GROUPS * D, B * Q * GROUPS


def recurrence(rule: str) -> dict[str, int]:
    """Outer products into the state, from which queries read; a fading state; what it holds for the key is subtracted."""
    gated, delta = rule.startswith("gated"), rule.endswith("delta")
    elements = [KEYS + VALUES + STATE + STATE, QUERIES + STATE + B * Q * HEADS * R + STATE]
    elements += [2 * RATES, RATES + 2 * STATE] * gated + [KEYS + STATE + VALUES, 3 * VALUES, 2 * VALUES + RATES] * delta
    return {"macs": (1 + delta) * CELLS + READ, "flops": gated * (RATES + CELLS) + delta * 2 * VALUES + B * Q * HEADS * R,
    **moved(*elements)}  # fmt: skip


def optimized(op: str, states: int, each: int, more: int = 0, **attrs: object) -> Row:
    """A step for two parameters: all of them, then their gradients, then their states; `more`: FLOPs of another pass."""
    both = [x(3, 4), x(5)]
    outs = both * (1 + states)
    return Row(f"ai.onnx.preview.training::{op}", [x(), x(dtype="int64"), *both * (2 + states)], outs, attrs,
               flops=17 * (each + more),
               moved=4 + 8 + 4 * 17 * (2 + states) + 4 * 17 * (1 + states) + 2 * 4 * 17 * bool(more))  # fmt: skip


STATES = [
    *(Row(domain + "LinearAttention", DELTA, [x(B, Q, HEADS * R), x(B, GROUPS, D, R)], {**LINEAR, "update_rule": rule},
        **recurrence(rule))
      for domain in ("", M) for rule in ("linear", "gated", "delta", "gated_delta")),
    Row(M + "LinearAttention", DELTA, [x(B, Q, HEADS * R), x(S, B, GROUPS, D, R)], {**LINEAR, "update_rule": "linear",
        "state_window": S},
        macs=CELLS + READ, flops=B * Q * HEADS * R, **moved(KEYS + VALUES + 2 * STATE,
        QUERIES + STATE + B * Q * HEADS * R + S * STATE)),
    # more groups than queries: as many results as groups
    Row("LinearAttention", [x(B, Q, 2 * D), x(B, Q, 3 * D), x(B, Q, 3 * R)], [x(B, Q, 3 * R)], {"q_num_heads": 2,
        "kv_num_heads": 3, "update_rule": "linear"},
        macs=2 * B * Q * 3 * D * R, flops=B * Q * 3 * R,
        **moved(B * Q * 3 * D, B * Q * 3 * R, B * 3 * D * R, B * Q * 2 * D, B * 3 * D * R, B * Q * 3 * R)),
    Row(M + "GatedDeltaNet", [x(S, 2, D), x(S, 2, D), x(S, 4, R), x(B + 1, dtype="int32"), x(S, 4), x(S, 4), None, x(4), x(4)],
        [x(S, 4, R), x(B, 4, R, D), x(B, 13 * (4 + 2 * D + 4 * R))],
        {"gate_activation": "qwen", "beta_activation": "sigmoid", "qk_l2_norm": 1, "state_update_capacity": 13},
        macs=3 * S * 4 * D * R,
        flops=S * 4 * (1 + 5 + 1) + 4 * S * 4 + 2 * 3 * S * 2 * D + S * 4 + S * 4 * D * R + 2 * S * 4 * R + S * 4 * R,
        **moved(2 * S * 4 + 4, 2 * S * 4, 2 * S * 4 + 4, 2 * S * 4, 4 * S * 2 * D, 2 * S * 4, S * 4 + B * 4 * R * D,
                S * 2 * D + B * 4 * R * D + S * 4 * R, 3 * S * 4 * R, 2 * S * 4 * R + S * 4,
                S * 2 * D + S * 4 * R + 2 * B * 4 * R * D,
                S * 2 * D + B * 4 * R * D + S * 4 * R + B * 4 * R * D, B * 13 * (4 + 2 * D + 4 * R))),
    Row(M + "GatedDeltaNet", [x(S, 2, D), x(S, 2, D), x(S, 2, R)], [x(S, 2, R), x(1, 2, R, D)], {"update_rule": "linear"},
        macs=2 * S * 2 * D * R, flops=S * 2 * R, **moved(S * 2 * D, S * 2 * R, 2 * R * D, S * 2 * D, 2 * R * D, S * 2 * R,
        2 * R * D)),
    # the rate of each feature of a key; gates as they are given
    Row(M + "LinearAttention", [*DELTA[:4], x(B, Q, GROUPS * D), DELTA[5]], [x(B, Q, HEADS * R), x(B, GROUPS, D, R)],
        {**LINEAR, "update_rule": "gated"}, macs=CELLS + READ, flops=KEYS + CELLS + B * Q * HEADS * R,
        **moved(2 * KEYS, KEYS + 2 * STATE, KEYS + VALUES + 2 * STATE, QUERIES + STATE + B * Q * HEADS * R + STATE)),
    Row(M + "GatedDeltaNet", [x(S, 4, D), x(S, 2, D), x(S, 2, R), None, x(S, 2), x(S, 2), x(P, 2, R, D)],
        [x(S, 4, R), x(P, 2, R, D)], {"update_rule": "gated"}, macs=S * 2 * D * R + S * 4 * D * R,
        flops=S * 2 + S * 2 * D * R + S * 4 * R,
        **moved(2 * S * 2, S * 2 + 2 * P * 2 * R * D, S * 2 * D + S * 2 * R + 2 * P * 2 * R * D,
                S * 4 * D + P * 2 * R * D + S * 4 * R + P * 2 * R * D)),
    Row(M + "GatedDeltaNet", [x(B, S, 2, D), x(B, S, 2, D), x(B, S, 2, R)], [x(B, S, 2, R), x(B, 2, R, D)],
        {"update_rule": "linear"}, macs=2 * B * S * 2 * D * R, flops=B * S * 2 * R,
        **moved(B * S * 2 * D, B * S * 2 * R, B * 2 * R * D, B * S * 2 * D, B * 2 * R * D, B * S * 2 * R, B * 2 * R * D)),
    Row(M + "LinearAttentionGate", [x(P, Q, C), x(C), x(C), x(P, Q, C)], [x(P, Q, C)] * 2, flops=N * C * (1 + 5 + 1 + 4),
        **moved(2 * N * C + C, 2 * N * C, 2 * N * C + C, 2 * N * C, 2 * N * C)),
    Row(M + "LinearAttentionGate", [x(P, Q, C), x(C), x(C)], [x(P, Q, C)], flops=N * C * (1 + 5 + 1),
        **moved(2 * N * C + C, 2 * N * C, 2 * N * C + C)),
    *(Row(domain + "CausalConvWithState", [x(B, C, T), w(C, 1, 3), w(C), x(B, C, 2)], [x(B, C, T), x(B, C, 2)],
        {"activation": fn},
          macs=B * C * T * 3, flops=B * C * T * (1 + each), **moved(B * C * T + 2 * B * C * 2,
          B * C * T + 4 * C + B * C * T + B * C * 2))
      for domain in ("", M) for fn, each in (("none", 0), ("silu", 5))),
    Row(M + "CausalConvWithState", [x(B, T, C), w(C, 1, 3)], [x(B, T, C), x(2, B, 8, C)], {"channels_last": 1, "dilation": 4,
        "state_window": 2},
        macs=B * C * T * 3, **moved(B * C * T + 2 * B * 8 * C, B * C * T + 3 * C + B * C * T + 2 * B * 8 * C)),
    Row(M + "VarlenCausalConvWithState", [x(T, C), w(C, 1, 3), x(B + 1, dtype="int32"), w(C), x(B, C, 2)], [x(T, C), x(B, C,
        2), x(B, R, C)],
        {"state_update_capacity": R}, macs=C * T * 3, flops=C * T, **moved(C * T + 2 * B * C * 2,
        C * T + 4 * C + C * T + B * C * 2 + B * R * C)),
    Row(M + "GatedDeltaNet", [x(B, S, 2 * D)], [Tensor(None)], open=True),
    optimized("Adagrad", 1, 6),
    optimized("Adam", 2, 14, beta=0.9),
    optimized("Adam", 2, 14, more=2, norm_coefficient=0.1),
    optimized("Adam", 2, 14, more=1, norm_coefficient_post=0.1),
    optimized("Momentum", 1, 4, more=1, beta=0.5),
    optimized("Momentum", 1, 4, more=2, beta=1.0, mode="nesterov"),
    optimized("Adam", 2, 14),
    optimized("Momentum", 1, 4, beta=1.0, mode="standard", norm_coefficient=0.0),
]  # fmt: skip

SMALL = x(P, Q, R)
MOVES = [
    # -- the same memory
    *(Row(op, [SMALL], [SMALL], moved=0) for op in ("Identity", M + "Identity", M + "MemcpyFromHost", M + "MemcpyToHost",
        "Dropout")),
    Row("Dropout", [SMALL], [SMALL, x(P, Q, R, dtype="bool")], moved=0),
    *(Row("Reshape", [SMALL, c(*to)], [x(*shape)], attrs, moved=0) for to, shape, attrs in (
        ((-1, R), (N, R), {}), ((0, 0, 1, -1), (P, Q, 1, R), {}), ((Q, -1), (Q, P * R), {"allowzero": 1}))),
    Row("Reshape", [x(0, Q), c(0, R)], [x(0, R)], {"allowzero": 1}, moved=0),
    # what is written out of a shape is known, whatever x is
    Row("Reshape", [Tensor(None), c(2, -1, 0, 1, R)], [x(2, None, None, 1, R)], moved=0),
    Row("Reshape", [Tensor(None), c(2, -1, 0)], [x(2, None, 0)], {"allowzero": 1}, moved=0),
    Row("Reshape", [Tensor(None), Tensor((2,), "int64", (None, Q))], [x(None, Q)], moved=0),
    # channels in blocks of 8: filled up ones are left out, so that 12 are not split
    *(Row("Reshape", [x(*shape), c(0, -1, 0, 0, 8)], [x(*found)], moved=0, chosen=True) for shape, found in (
        ((1, 12, 3, 5), (1, 12, 3, 5)), ((1, 16, 3, 5), (1, 2, 3, 5, 8)), ((1, 12, 3, 5, 16), (1, 24, 3, 5, 8)),
        ((1, None, 3, 5), (1, None, 3, 5, 8)))),
    Row("Reshape", [x(1, 12, 3, 5), c(0, 2, 6, 3, 5)], [x(1, 2, 6, 3, 5)], moved=0),
    Row("Reshape", [x(1, 12, 3, 5), c(0, -1, 0, 0)], [x(1, 12, 3, 5)], moved=0),
    Row("Flatten", [SMALL], [x(P, Q * R)], moved=0),
    Row("Flatten", [SMALL], [x(N, R)], {"axis": -1}, moved=0),
    Row("Flatten", [SMALL], [x(1, N * R)], {"axis": 0}, moved=0),
    Row("Squeeze", [x(1, P, 1)], [x(P)], moved=0),
    Row("Squeeze", [x(1, P, 1), c(-1)], [x(1, P)], moved=0),
    Row("Unsqueeze", [XY, c(0, -1)], [x(1, P, Q, 1)], moved=0),
    Row("Unsqueeze", [XY], [x(P, 1, Q)], {"axes": (1,)}, moved=0, version=11),
    Row(M + "ExpandDims", [XY, c(1)], [x(P, 1, Q)], moved=0),
    Row("Optional", [SMALL], [SMALL], moved=0),
    Row("OptionalGetElement", [SMALL], [SMALL], moved=0),
    Row("OptionalHasElement", [SMALL], [x(dtype="bool")], read=()),
    # -- copies
    Row("Transpose", [SMALL], [x(R, Q, P)]),
    Row("Transpose", [SMALL], [x(Q, R, P)], {"perm": (1, 2, 0)}),
    Row("Concat", [XY, x(P, R)], [x(P, Q + R)], {"axis": -1}),
    Row("Concat", [c(2, 3), c(4)], [c(2, 3, 4)], {"axis": 0}),
    Row(M + "QLinearConcat", [SCALE, ZERO, bytes_(P, Q), SCALE, ZERO, bytes_(P, R), SCALE, ZERO], [bytes_(P, Q + R)],
        {"axis": 1}, read=(2, 5)),
    Row("Split", [x(P, 10)], [x(P, 4), x(P, 4), x(P, 2)], {"axis": 1}),
    Row("Split", [x(P, 10), c(3, 7)], [x(P, 3), x(P, 7)], {"axis": -1}, read=(0,)),
    Row("Split", [x(P, 10)], [x(P, 5), x(P, 5)], {"axis": 1, "num_outputs": 2}),
    Row("Split", [c(2, 3, 5)], [c(2), c(3), c(5)]),
    Row("Concat", [XY], [XY], {"axis": -1}),
    Row("Concat", [c(2, 3)], [c(2, 3)], {"axis": 0}),
    Row("Concat", [c(1, 2)._replace(shape=(1, 2)), c(3, 4)._replace(shape=(1, 2))], [c(1, 2, 3, 4)._replace(shape=(2, 2))],
        {"axis": 0}),
    Row("Expand", [c(1), Tensor((1,), "int64", (None,))], [x(None, dtype="int64")], open=True),
    Row("Concat", [Tensor(None)], [Tensor(None)], {"axis": -1}, open=True),
    Row("Concat", [c(2, 3), x(1, dtype="int64")], [c(2, 3, None)], {"axis": 0}),
    Row("Concat", [c(*range(6))._replace(shape=(2, 3)), c(6, 7)._replace(shape=(2, 1))],
        [c(0, 1, 2, 6, 3, 4, 5, 7)._replace(shape=(2, 4))], {"axis": 1}),
    *(Row("SplitToSequence", [x(extent), *size], [Tensor(None)], moved=2 * 4 * extent) for extent, size in ((4096, []),
        (8192, [n(2)]))),
    *(Row("SplitToSequence", [x(extent), *size], [Tensor(None)], open=True) for extent, size in ((4097, []), (8194, [n(2)]))),
    Row("Slice", [SMALL, c(1, 1), c(3, -1), c(1, 2), c(1, 2)], [x(P, 2, 3)], read=(0,)),
    Row("Slice", [SMALL, c(-1), c(-99), c(2), c(-2)], [x(P, Q, 4)], read=(0,)),
    Row("Slice", [SMALL, c(-1), c(-R), c(2), c(-1)], [x(P, Q, R - 1)], read=(0,)),
    Row("Slice", [x(P, None), c(-1), c(-99), c(1), c(-1)], [x(P, None)], open=True),
    Row("Slice", [SMALL], [x(2, Q, R)], {"starts": (1,), "ends": (9,)}, version=9),
    Row("Slice", [c(2, 3, 5, 7), c(-1), c(-9), c(0), c(-2)], [c(7, 3)], read=(0,)),
    Row("Expand", [x(P, 1), c(2, 1, Q)], [x(2, P, Q)], read=(0,)),
    Row("Tile", [XY, c(2, 3)], [x(2 * P, 3 * Q)], read=(0,)),
    *(Row(domain + "Pad", [XY, c(1, 2, 0, 3)], [x(P + 1, Q + 5)], read=(0,)) for domain in ("", M)),
    Row("Pad", [XY, c(1, 2), None, c(-1)], [x(P, Q + 3)], read=(0,)),
    Row("CenterCropPad", [SMALL, c(2, 9)], [x(2, Q, 9)], {"axes": (0, 2)}, read=(0,)),
    Row("DepthToSpace", [x(P, 12, Q, R)], [x(P, 3, 2 * Q, 2 * R)], {"blocksize": 2}),
    Row("SpaceToDepth", [x(P, Q, 4, 6)], [x(P, 4 * Q, 2, 3)], {"blocksize": 2}),
    Row("ReverseSequence", [XY, x(Q, dtype="int64")], [XY], read=(0,)),
    Row("Trilu", [XY], [XY]),
    Row(M + "Trilu", [XY], [XY]),
    Row("Col2Im", [x(P, Q * 6, 8), c(4, 3), c(3, 2)], [x(P, Q, 4, 3)], flops=P * Q * 6 * 8, read=(0,)),
    Row(M + "UnfoldTensor", [x(P, 9)], [x(P, 3, 5)], {"size": 5, "step": 2}),
    Row(M + "UnfoldTensor", [x(P, 9)], [x(P, 9, 1)]),
    Row(M + "UnfoldTensor", [x(9, P)], [x(5, P, 5)], {"size": 5, "dim": 0}),
    Row("StringConcat", [bytes_(P, 1), bytes_(Q)], [bytes_(P, Q)]),
    Row("RegexFullMatch", [bytes_(P)], [x(P, dtype="bool")]),
    # -- by index: what is picked, the indices, and the result
    Row("Gather", [SMALL, x(2, S, dtype="int64")], [x(P, 2, S, R)], {"axis": 1},
        moved=4 * N * R + 8 * 2 * S + 4 * P * 2 * S * R),
    Row("Gather", [w(S, Q), x(2, dtype="int64")], [x(2, Q)], moved=4 * 2 * Q + 8 * 2 + 4 * 2 * Q, says={"kind": "embedding"}),
    Row("Gather", [c(2, 3, 5), n(-1)], [n(5)], moved=8 * 3),
    Row(M + "GatherBlockQuantized", [bytes_(S, Q), x(2, dtype="int64"), x(S, 1)], [x(2, Q)],
        moved=2 * Q + 8 * 2 + 4 * S + 4 * 2 * Q),
    Row(M + "GatherBlockQuantized", [bytes_(S, Q), x(2, dtype="int64"), x(S, 1)], [x(2, Q)], {"gather_axis": -2},
        moved=2 * Q + 8 * 2 + 4 * S + 4 * 2 * Q),
    *(Row("GatherND", [SMALL, x(P, 4, 2, dtype="int64")], [x(P, 4, *rest)], {"batch_dims": first},
          moved=8 * P * 8 + 2 * 4 * P * 4 * elements) for first, rest, elements in ((0, (R,), R), (1, (), 1))),
    Row("Gather", [w(S), x(2, dtype="int64")], [x(2)], moved=4 * 2 + 8 * 2 + 4 * 2, says={"kind": "gather"}),
    Row(M + "TorchEmbedding", [x(S, Q), x(P, 2, dtype="int64")], [x(P, 2, Q)], moved=4 * 6 * Q + 8 * 6 + 4 * 6 * Q),
    Row("GatherElements", [SMALL, x(P, 2, R, dtype="int64")], [x(P, 2, R)], {"axis": 1}, moved=(4 + 8 + 4) * P * 2 * R),
    *(Row(domain + "GatherND", [x(P, Q, R, S), x(P, 2, 2, dtype="int64")], [x(P, 2, *rest)], {"batch_dims": first},
          moved=8 * P * 4 + 2 * 4 * P * 2 * elements)
      for domain in ("", M) for first, rest, elements in ((0, (R, S), R * S), (1, (S,), S))),
    *(Row(op, [SMALL, x(2, Q, R, dtype="int64"), x(2, Q, R)], [SMALL], {"reduction": how}, flops=each * 2 * Q * R)
      for op in ("Scatter", "ScatterElements") for how, each in (("none", 0), ("add", 1), ("max", 1))),
    Row("ScatterND", [SMALL, x(2, 1, dtype="int64"), x(2, Q, R)], [SMALL], {"reduction": "mul"}, flops=2 * Q * R),
    Row("TensorScatter", [SMALL, x(P, 2, R), x(P, dtype="int64")], [SMALL], {"mode": "circular"}),
    Row("Compress", [SMALL, x(2, dtype="bool")], [x(P, None, R)], {"axis": 1}, open=True),
    Row("Compress", [SMALL, x(2, dtype="bool")], [x(None)], open=True),
    Row("NonZero", [XY], [x(2, None, dtype="int64")], open=True),
    Row("NonZero", [c(0, 5, 7)], [c(1, 2)._replace(shape=(1, 2))], moved=8 * 2 + 8 * 2),
    Row(M + "RestorePadding", [x(S, Q), x(P, R, dtype="int32")], [x(P, R, Q)]),
    Row(M + "NGramRepeatBlock", [x(P, Q, dtype="int64"), x(P, S)], [x(P, S)]),
    # -- from nothing
    Row("Shape", [SMALL], [c(P, Q, R)], read=()),
    Row("Shape", [SMALL], [c(Q)], {"start": 1, "end": -1}, read=()),
    Row("Size", [SMALL], [n(N * R)], read=()),
    Row("ConstantOfShape", [c(P, Q)], [XY], read=()),
    Row("ConstantOfShape", [c(2)], [c(0, 0, dtype="float32")], read=()),
    *(Row("ConstantOfShape", [c(length)], [x(length)], read=()) for length in (1024, 1025)),
    Row("ConstantOfShape", [Tensor((2,), "int64", (None, Q))], [x(None, Q)], open=True),
    Row("ConstantOfShape", [c(2)], [c(9, 9)], {"value": StoredValue("", (1,), "int64", Content((1,), (9,)))}, read=()),
    Row("Range", [n(1), n(9), n(3)], [c(1, 4, 7)], read=()),
    *(Row(M + "Range", [n(4), n(7), *step], [c(4, 5, 6)], read=()) for step in ([], [n(1)])),
    Row("MelWeightMatrix", [n(8), n(16), n(8000), n(0), n(4000)], [x(9, 8, dtype="float16")], {"output_datatype": 10}, read=()),
    Row("MelWeightMatrix", [n(8), n(16), n(8000), n(0), n(4000)], [x(9, 8)], read=()),
    Row("OneHot", [x(P, 2, dtype="int64"), n(Q), x(2)], [x(P, 2, Q)], read=()),
    Row("Multinomial", [XY], [x(P, 1, dtype="int32")], flops=P),
    Row("EyeLike", [XY], [XY], read=()),
    Row("EyeLike", [XY], [x(P, Q, dtype="int64")], {"dtype": 7}, read=()),
    Row("OneHot", [x(P, 2, dtype="int64"), n(Q), x(2)], [x(P, Q, 2)], {"axis": 1}, read=()),
    *(Row(op, [XY], [XY], flops=N, read=read) for op, read in (("RandomNormalLike", ()), ("RandomUniformLike", ()),
        ("Bernoulli", (0,)))),
    *(Row(op, [], [x(P, Q, dtype="float16")], {"shape": (P, Q), "dtype": 10}, flops=N) for op in ("RandomNormal",
        "RandomUniform")),
    Row("Multinomial", [XY], [x(P, S, dtype="int32")], {"sample_size": S}, flops=P * S),
]  # fmt: skip

REDUCED = {
    (1, 0): "ReduceSum ReduceMax ReduceMin ReduceProd ReduceLogSum", (1, 1): "ReduceMean", (2,
    1): "ReduceL1 ReduceL2 ReduceSumSquare",
    (4, 2): "ReduceLogSumExp",
}  # fmt: skip
"""Reductions by their FLOPs for each element and for each result."""
NORMS = {"InstanceNormalization": 8, "GroupNormalization": 8, "LayerNormalization": 8, "GroupNorm": 8}
V = x(2, C, R, Q)
E4 = 2 * C * R * Q
LAST = x(2, Q, R)

REDUCTIONS = [
    *(Row(op, [SMALL, c(1)], [x(P, 1, R)], flops=each * N * R + last * P * R, read=(0,)) for (each, last),
        names in REDUCED.items()
      for op in names.split()),
    Row("ReduceSum", [SMALL], [x()], {"keepdims": 0}, flops=N * R),
    Row("ReduceSum", [SMALL], [SMALL], {"noop_with_empty_axes": 1}, moved=0),
    Row("ReduceMean", [SMALL], [x(R)], {"axes": (0, 1), "keepdims": 0}, flops=N * R + R, version=13),
    *(Row(op, [c(2, 3, 7)], [n(each)], {"keepdims": 0}, flops=3) for op, each in (("ReduceProd", 42), ("ReduceSum", 12),
        ("ReduceMax", 7),
                                                                                 ("ReduceMin", 2))),
    Row("ReduceMean", [c(2, 3, 7)], [x(dtype="int64")], {"keepdims": 0}, flops=3 + 1),
    Row("ReduceMax", [c()], [x(dtype="int64")], {"keepdims": 0}),
    *(Row(domain + "ReduceSumInteger", [bytes_(P, Q)], [x(P, 1, dtype="int32")], {"axes": (1,)}, flops=N) for domain in ("", M)),
    *(Row(domain + "QLinearReduceMean", [bytes_(P, Q)], [bytes_(P, 1)], {"axes": (1,)}, flops=N + P) for domain in ("", M)),
    *(Row(op, [SMALL], [x(P, R, dtype="int64")], {"axis": 1, "keepdims": 0}, flops=N * R) for op in ("ArgMax", "ArgMin")),
    *(Row(op, [SMALL, n(1)], [SMALL], flops=N * R, read=(0,)) for op in ("CumSum", "CumProd")),
    # -- normalizations: stored statistics, a product and an addition; with weight and bias
    Row("BatchNormalization", [V, w(C), w(C), w(C), w(C)], [V], flops=4 * E4),
    Row("BatchNormalization", [V, w(C), w(C), w(C), w(C)], [V, x(C), x(C)], {"training_mode": 1}, flops=8 * E4),
    *(Row(domain + op, [V, w(C), w(C)], [V], flops=each * E4) for domain in ("", M) for op, each in NORMS.items()),
    *(Row(domain + op, [V, w(Q)], [V], flops=4 * E4) for domain in ("", M) for op in ("RMSNormalization",
        "SimplifiedLayerNormalization")),
    *(Row(domain + "LpNormalization", [V], [V], flops=3 * E4) for domain in ("", M)),
    *(Row(domain + "LRN", [V], [V], {"size": 5}, flops=(5 + 5) * E4) for domain in ("", M)),
    Row("LRN", [V], [V], {"size": 3}, flops=(3 + 5) * E4),
    *(Row(domain + "MeanVarianceNormalization", [V], [V], flops=6 * E4) for domain in ("", M)),
    Row("LayerNormalization", [LAST, w(R)], [LAST, x(2, Q, 1), x(2, Q, 1)], flops=7 * 2 * Q * R),
    Row("LayerNormalization", [LAST, w(Q, R), w(Q, R)], [LAST, x(2, 1, 1)], {"axis": 1}, flops=8 * 2 * Q * R),
    # two tensors and a bias are added, then normalized; the sum is the fourth result
    Row(M + "SkipLayerNormalization", [LAST, LAST, w(R), w(R), w(R)], [LAST, x(2, Q, 1), x(2, Q, 1), LAST],
        flops=(2 + 8) * 2 * Q * R,
        **moved(3 * 2 * Q * R + R, 3 * 2 * Q * R + 2 * R, 2 * 2 * Q)),
    Row(M + "SkipLayerNormalization", [LAST, LAST, w(R)], [LAST], flops=(1 + 7) * 2 * Q * R, between=[2 * Q * R]),
    Row(M + "SkipLayerNormalization", [LAST, LAST, w(R), None, w(R)], [LAST], flops=(2 + 7) * 2 * Q * R, between=[2 * Q * R]),
    Row(M + "SkipLayerNormalization", [x(None, R), x(None, R), w(R), w(R), w(R)], [x(None, R)], open=True),
    Row(M + "SkipSimplifiedLayerNormalization", [LAST, LAST, w(R), w(R)], [LAST], flops=(2 + 4) * 2 * Q * R,
        between=[2 * Q * R]),
    Row(M + "SkipSimplifiedLayerNormalization", [LAST, LAST, w(R)], [LAST], flops=(1 + 4) * 2 * Q * R, between=[2 * Q * R]),
    # a table of fewer rows than are looked up is read once; without segments and positions nothing is added
    Row(M + "EmbedLayerNormalization", [x(2, Q, dtype="int32"), None, w(P, R), w(T, R), w(2, R), w(R), w(R)], [LAST],
        flops=(1 + 8) * 2 * Q * R,
        **moved(P * R + 2 * Q + 2 * Q * R, 2 * 2 * Q * R + 2 * Q, 3 * 2 * Q * R, 2 * 2 * Q * R + 2 * R)),
    Row(M + "EmbedLayerNormalization", [x(2, Q, dtype="int32"), None, w(P, R), None, None, w(R), w(R)], [LAST],
        flops=8 * 2 * Q * R, **moved(P * R + 2 * Q + 2 * Q * R, 2 * 2 * Q * R, 2 * 2 * Q * R + 2 * R)),
    # rows of three tables, two additions, a norm with weight and bias
    Row(M + "EmbedLayerNormalization", [x(2, Q, dtype="int32"), x(2, Q, dtype="int32"), w(S, R), w(T, R), w(2, R), w(R), w(R)],
        [LAST, x(2, dtype="int32")], flops=(2 + 8) * 2 * Q * R,
        **moved(2 * 2 * Q * R + 2 * Q, 2 * 2 * Q * R + 2 * Q, 2 * R + 2 * Q + 2 * Q * R, 4 * 2 * Q * R,
        2 * 2 * Q * R + 2 * R + 2)),
    Row(M + "EmbedLayerNormalization", [x(2, Q, dtype="int32"), None, w(S, R), w(T, R), None, w(R), w(R)],
        [LAST, x(2, dtype="int32"), LAST], flops=(1 + 8) * 2 * Q * R,
        **moved(2 * (2 * 2 * Q * R + 2 * Q), 3 * 2 * Q * R, 2 * 2 * Q * R + 2 * R + 2 + 2 * Q * R)),
    Row(M + "GatedRMSNorm", [XY, w(Q), XY], [XY], flops=(4 + 5 + 1) * N, between=[N, N]),
    Row(M + "GatedRMSNorm", [XY, w(Q), XY], [XY], {"activation": "sigmoid"}, flops=(4 + 4 + 1) * N, between=[N, N]),
    Row(M + "BranchwiseRMSNorm", [XY, w(Q)], [XY], flops=4 * N),
    Row(M + "QOrderedLayerNormalization", [x(P, Q, dtype="int8"), SCALE, w(Q), w(Q), SCALE], [x(P, Q, dtype="int8")],
        flops=8 * N),
    Row(M + "QOrderedLayerNormalization", [x(P, Q, dtype="int8"), SCALE, w(Q), None, SCALE], [x(P, Q, dtype="int8")],
        flops=7 * N),
    Row(M + "SkipGroupNorm", [V, w(C), w(C), V, w(C)], [V, V], {"activation": 1}, flops=(1 + 1 + 8 + 5) * E4,
        **moved(3 * E4, 2 * E4 + C, 2 * E4 + 2 * C, 3 * E4)),
    Row(M + "SkipGroupNorm", [V, w(C), w(C), V], [V, V], flops=(1 + 8) * E4, **moved(3 * E4, 2 * E4 + 2 * C)),
    Row(M + "SkipGroupNorm", [V, w(C), w(C), V], [V], flops=(1 + 8) * E4, **moved(3 * E4, 2 * E4 + 2 * C)),
    # -- windows
    *(Row(domain + op, [V], [x(2, C, 3, 4)], ONE, flops=2 * C * 12 * each)
      for domain in ("", M) for op, each in (("MaxPool", 6), ("AveragePool", 6), ("LpPool", 2 * 6 + 1))),
    Row("MaxPool", [V], [x(2, C, 4, 4), x(2, C, 4, 4, dtype="int64")], {"kernel_shape": (2, 2), "strides": (2, 1),
        "ceil_mode": 1},
        flops=2 * C * 16 * 4),
    # only the stride shortens an axis; a last window begins inside, never in the padding behind
    *(Row("AveragePool", [V], [x(2, C, 4, Q)], {"kernel_shape": (3, 2), "strides": (2, 1), "auto_pad": how},
        flops=2 * C * 4 * Q * 6)
      for how in ("SAME_UPPER", "SAME_LOWER")),
    Row("MaxPool", [V], [x(2, C, 3, 4)], {"kernel_shape": (3, 2), "strides": (2, 1), "auto_pad": "VALID"}, flops=2 * C * 12 * 6),
    *(Row("MaxPool", [x(2, C, 6)], [x(2, C, places)], {"kernel_shape": (2,), "strides": (3,), "pads": (1, 1), "ceil_mode": ceil},
          flops=2 * C * places * 2) for ceil, places in ((0, 3), (1, 3))),
    Row("MaxPool", [x(2, C, 4, 5, 6)], [x(2, C, 3, 4, 4)], {"kernel_shape": (2, 2, 2), "dilations": (1, 1, 2)},
        flops=2 * C * 48 * 8),
    *(Row(domain + "QLinearAveragePool", [bytes_(2, R, Q, C), SCALE, ZERO, SCALE, ZERO], [bytes_(2, 3, 4, C)], {**ONE,
        "channels_last": 1},
          flops=2 * C * 12 * 6, read=(0,)) for domain in ("", M)),
    *(Row(domain + "NhwcMaxPool", [bytes_(2, R, Q, C)], [bytes_(2, 3, 4, C)], ONE, flops=2 * C * 12 * 6) for domain in ("", M)),
    *(Row(op, [V], [x(2, C, 1, 1)], flops=each * 2 * C) for op, each in (("GlobalAveragePool", R * Q), ("GlobalMaxPool", R * Q),
                                                                        ("GlobalLpPool", 2 * R * Q + 1))),
    Row(M + "QLinearGlobalAveragePool", [bytes_(2, R, Q, C), SCALE, ZERO, SCALE, ZERO], [bytes_(2, 1, 1, C)],
        {"channels_last": 1},
        flops=2 * C * R * Q, read=(0,)),
    Row("MaxUnpool", [x(P, C, 3, 2), x(P, C, 3, 2, dtype="int64")], [x(P, C, 5, 3)], {"kernel_shape": (3, 3), "strides": (2,
        2), "pads": (1, 1, 1, 1)}),
    Row("MaxUnpool", [x(P, C, 3, 2), x(P, C, 3, 2, dtype="int64")], [x(P, C, 5, 3)], {"kernel_shape": (3, 2)}),
    Row("MaxUnpool", [x(P, C, 3), x(P, C, 3, dtype="int64"), c(P, C, R)], [x(P, C, R)], {"kernel_shape": (2,),
        "strides": (2,)}, read=(0, 1)),
    Row("RoiAlign", [V, x(S, 4), x(S, dtype="int64")], [x(S, C, 3, 2)], {"output_height": 3, "output_width": 2,
        "sampling_ratio": 2},
        flops=S * C * 6 * 16 * 2),
    Row("RoiAlign", [x(2, C, 99, 99), x(S, 4), x(S, dtype="int64")], [x(S, C, 1, 1)], flops=S * C * 4 * 2,
        moved=4 * S * C * 4 + 4 * 4 * S + 8 * S + 4 * S * C),
    *(Row(domain + "GridSample", [V, x(2, 3, 4, 2)], [x(2, C, 3, 4)], {"mode": mode}, flops=2 * C * 12 * taps * 2,
          moved=4 * (min(2 * C * 12 * taps, E4) + 2 * 12 * 2 + 2 * C * 12))
      for domain in ("", M) for mode, taps in (("linear", 4), ("nearest", 1), ("cubic", 16), ("bicubic", 16))),
    Row("GridSample", [x(2, C, 3, 3, 3), x(2, 2, 2, 2, 3)], [x(2, C, 2, 2, 2)], flops=2 * C * 8 * 8 * 2),
    Row("AffineGrid", [x(2, 2, 3), c(2, C, R, Q)], [x(2, R, Q, 2)], macs=2 * R * Q * 2 * 3, read=(0,)),
    Row("AffineGrid", [x(2, 3, 4), c(2, C, P, R, Q)], [x(2, P, R, Q, 3)], macs=2 * P * R * Q * 3 * 4, read=(0,)),
    *(Row("Resize", [x(2, C, *[3] * rank), None, None, c(2, C, *[7] * rank)], [x(2, C, *[7] * rank)], {"mode": mode},
          flops=each * 2 * C * 7**rank, read=(0,))
      for rank, mode, each in ((2, "nearest", 0), (1, "linear", 3), (2, "linear", 9), (3, "linear", 21), (2, "cubic", 35))),
    Row("Resize", [x(2, C, 3), None, c(1.0, 1.0, 2.5, dtype="float32")], [x(2, C, 7)], read=(0,)),
    Row("Resize", [x(2, C, 3), c(1.0, 1.0, 2.0, dtype="float32")], [x(2, C, 6)], read=(0,), version=10),
    Row("Resize", [x(2, C, 3), None, c(1.0, 1.0, 2.0, dtype="float32")], [x(2, C, 6)], read=(0,), version=11),
    *(Row("Resize", [x(2, C, 4, 8), None, None, c(8, 8)], [x(2, C, *to)], {"axes": (2, 3), "keep_aspect_ratio_policy": how},
        read=(0,))
      for how, to in (("not_larger", (4, 8)), ("not_smaller", (8, 16)))),
    Row("Upsample", [x(2, C, 3, 4), c(1.0, 1.0, 2.0, 3.0, dtype="float32")], [x(2, C, 6, 12)], {"mode": "linear"},
        flops=9 * 2 * C * 72, read=(0,)),
    Row("Resize", [x(2, C, 3), None, None, c(2, C, 3)], [x(2, C, 3)], {"mode": "linear"}, flops=3 * 2 * C * 3, read=(0,)),
    Row("Resize", [x(2, C, 3), None, c(1.0, 1.0, 2.0, dtype="float32"), c()], [x(2, C, 6)], read=(0,)),
    Row("Upsample", [x(2, C, 3)], [x(2, C, 6)], {"scales": (1.0, 1.0, 2.0)}, version=7),
    # -- the rest: ceil(log2 of 7) comparisons for each element, or of the k that are kept
    Row("TopK", [SMALL, c(5)], [x(P, Q, 5), x(P, Q, 5, dtype="int64")], flops=3 * N * R, read=(0,)),
    Row("TopK", [SMALL, c(2)], [x(P, 2, R), x(P, 2, R, dtype="int64")], {"axis": 1}, flops=N * R, read=(0,)),
    Row("TopK", [SMALL], [x(2, Q, R), x(2, Q, R, dtype="int64")], {"axis": 0, "k": 2}, flops=N * R, version=1),
    *(Row(domain + "Unique", [XY], [x(None), x(None, dtype="int64")], open=True) for domain in ("", M)),
    Row("Unique", [XY], [x(P, None)], {"axis": 1}, open=True),
    *(Row("Unique", [x(length)], [x(2)], declared=True, flops=each * length) for length, each in ((0, 0), (1, 0), (S, 4))),
    Row("Det", [x(2, R, R)], [x(2)], flops=2 * 2 * R**3 // 3),
    Row(M + "Inverse", [x(2, R, R)], [x(2, R, R)], flops=2 * 2 * R**3),
    Row(M + "CDist", [x(P, Q), x(R, Q)], [x(P, R)], flops=P * R * (3 * Q + 1)),
    # 5 N log2 N of complex numbers, half of it where one side is real
    Row("DFT", [x(P, 16, 2)], [x(P, 16, 2)], {"axis": 1}, flops=P * 5 * 16 * 4),
    Row("DFT", [x(P, 16, 1)], [x(P, 9, 2)], {"axis": 1, "onesided": 1}, flops=P * 5 * 16 * 4 // 2),
    Row("DFT", [x(P, 16, 1), n(8), n(-2)], [x(P, 8, 2)], flops=P * 5 * 16 * 3 // 2, moved=4 * P * (16 + 16)),
    Row("DFT", [x(P, 9, 2)], [x(P, 16, 1)], {"axis": 1, "onesided": 1, "inverse": 1}, flops=P * 5 * 16 * 4 // 2),
    Row("DFT", [x(P, 16, 2)], [x(P, 16, 2)], flops=P * 5 * 16 * 4),
    Row("DFT", [x(P, 3, 16, 2), None, n(2)], [x(P, 3, 16, 2)], flops=P * 3 * 5 * 16 * 4, read=(0,)),
    Row("DFT", [x(P, 16, 1), n(32)], [x(P, 32, 2)], flops=P * 5 * 32 * 5 // 2, moved=4 * P * (16 + 64)),
    Row("DFT", [x(P, 9, 2), n(16)], [x(P, 16, 1)], {"onesided": 1, "inverse": 1}, flops=P * 5 * 16 * 4 // 2, read=(0,)),
    # (32 - 8) // 4 + 1 frames, each multiplied by the window
    Row("STFT", [x(P, 32, 1), n(4), x(8)], [x(P, 7, 5, 2)], flops=P * 7 * 8 + P * 7 * 5 * 8 * 3 // 2,
        moved=4 * (P * 32 + 8 + 2 * P * 56 + P * 70)),
    Row("STFT", [x(P, 32, 1), n(4), None, n(8)], [x(P, 7, 8, 2)], {"onesided": 0}, flops=P * 7 * 8 + P * 7 * 5 * 8 * 3 // 2,
        moved=4 * (P * 32 + 2 * P * 56 + 2 * P * 56)),
    Row(M + "Rfft", [x(P, 16)], [x(P, 9, 2)], {"signal_ndim": 1}, flops=P * 5 * 16 * 4 // 2),
    Row(M + "Irfft", [x(P, 9, 2)], [x(P, 16)], flops=P * 5 * 16 * 4 // 2),
    *(Row(op, [n(S)], [x(S)], flops=S, read=()) for op in ("HannWindow", "HammingWindow", "BlackmanWindow")),
    Row("SoftmaxCrossEntropyLoss", [XY, x(P, dtype="int64")], [x(), XY], flops=(5 + 1) * N),
    Row("SoftmaxCrossEntropyLoss", [XY, x(P, dtype="int64")], [x(P)], {"reduction": "none"}, flops=(5 + 1) * N),
    Row("NegativeLogLikelihoodLoss", [XY, x(P, dtype="int64")], [x()], flops=(2 + 1) * P),
    Row("NonMaxSuppression", [x(2, S, 4), x(2, Q, S)], [x(None, 3, dtype="int64")], open=True),
    *(Row("NonMaxSuppression", [x(2, boxes, 4), x(2, Q, boxes)], [x(R, 3, dtype="int64")], declared=True,
          flops=each * 2 * Q * boxes) for boxes, each in ((0, 0), (1, 0), (S, 4))),
    Row("MaxRoiPool", [V, x(S, 5)], [x(S, C, 3, 2)], {"pooled_shape": (3, 2)}, open=True),
]  # fmt: skip

ROWS = [*ELEMENTS, *PRODUCTS, *ATTENTION, *STATES, *MOVES, *REDUCTIONS]


@pytest.mark.parametrize("row", ROWS, ids=[f"{at}-{row.op}" for at, row in enumerate(ROWS)])
def test_a_node_costs_what_it_computes(row: Row) -> None:
    check(row, TABLE)
    check_with_less(row, TABLE)


FAULTS = [
    (Row("Conv", [IMAGE, KERNEL], [MAP], {"strides": (2, 0)}), "its strides are (2, 0)"),
    (Row("Conv", [IMAGE, KERNEL], [MAP], {"strides": (2,)}), "do not have the same number of axes"),
    (Row("Conv", [x(2, P, C, R, Q), KERNEL], [MAP]), "a kernel of 2 axes does not fit an image of 5"),
    (Row("Reshape", [x(1, 13, 3, 5), c(0, -1, 0, 0, 0)], [MAP]), "1x13x3x5 has too few axes for the new shape"),
    *((Row("Slice", [SMALL], [SMALL], {given: (1,)}), "its starts or ends are missing") for given in ("starts", "ends")),
    (Row("Slice", [SMALL, c(0), c(1), c(0), c(0)], [SMALL]), "a slice has the step 0"),
    (Row("SpaceToDepth", [V], [V]), "its attributes do not fit its inputs"),
    (Row("ConstantOfShape", [c(2, -1)], [XY]), "its shape would be (2, -1)"),
    (Row(M + "MultiHeadAttention", [x(B, L, WIDE)] * 3, [x(B, L, WIDE)]), "its attributes do not fit its inputs"),
    (Row("ai.onnx.preview.training::Adam", [x(), x(dtype="int64"), *[XY] * 5], [XY]), "it has 5 tensors, and 4 belong to each"),
    (Row("ai.onnx.preview.training::Adam", [x(), x(dtype="int64"), None, *[XY] * 3], [XY]), "it has 4 tensors, and 4"),
    (Row(M + "LinearAttention", DELTA, [XY], {**LINEAR, "update_rule": "other"}), "its update rule is 'other'"),
    (Row("CausalConvWithState", [x(B, C, T), w(C, 1)], [XY]), "its weight has no kernel"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "message"), FAULTS, ids=[row.op for row, _ in FAULTS])
def test_an_operator_refuses_what_does_not_fit(row: Row, message: str) -> None:
    check_refused(row, TABLE, message)


@pytest.mark.parametrize(
    ("row", "known"),
    [
        (Row("Concat", [XY, XY], [x(2 * P, Q)]), False),
        *((row, not more) for more in (0, 1) for row in (
            Row("Neg", [c(*range(1024 + more))], [x(1024 + more)]), Row("Expand", [c(1), c(1024 + more)], [x(1024 + more)]),
            Row("ConstantOfShape", [c(1024 + more)], [x(1024 + more)]),
            Row("Range", [n(0), n(1024 + more), n(1)], [x(1024 + more)]),
            Row("Concat", [c(*range(4095)), c(*range(1 + more))], [x(4096 + more)]),
            Row("Gather", [c(1), Tensor((4096 + more,), "int64", (0,) * (4096 + more))], [x(4096 + more)]),
        )),
    ],
)  # fmt: skip
def test_elements_of_small_tensors_are_known(row: Row, known: bool) -> None:
    assert (walked(row, TABLE)[0][0].content is not None) == known


SEQUENCES = {
    "SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SequenceAt", "SequenceLength",
    "ConcatFromSequence",
}  # fmt: skip
"""Operators on lists of tensors, of which the test below makes a chain."""


def test_every_operator_has_a_row() -> None:
    in_blocks = {f"{domain}::{op}" for domain, op in TABLE if domain == NCHWC}  # test_onnx_optimised has them
    assert missing(ROWS, TABLE, {}) - in_blocks == SEQUENCES


def test_lists_of_tensors_are_followed(written: Written) -> None:
    """Pieces of 2, 2 and 1 rows; the last is put first, the first of the others taken out, and what is left joined."""
    node = helper.make_node
    nodes = [
        node("SplitToSequence", ["x", "two"], ["pieces"], axis=0),
        node("SequenceAt", ["pieces", "last"], ["one"]),
        node("SequenceInsert", ["pieces", "one", "first"], ["four"]),
        node("SequenceErase", ["four", "second"], ["three"]),
        node("ConcatFromSequence", ["three"], ["joined"], axis=0),
        node("SequenceEmpty", [], ["none"]),
        node("SequenceInsert", ["none", "joined"], ["single"]),
        node("SequenceConstruct", ["x", "x"], ["pair"]),
        node("ConcatFromSequence", ["pair"], ["stacked"], axis=0, new_axis=1),
        node("SequenceAt", ["single", "first"], ["found"]),
        node("SequenceLength", ["pair"], ["count"]),
        node("ConstantOfShape", ["count"], ["y"]),
        node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=0),
        node("SequenceErase", ["rows"], ["fewer"]),
        node("SequenceAt", ["fewer", "last"], ["row"]),
        node("SplitToSequence", ["x", "sizes"], ["uneven"], axis=0),
        node("SequenceAt", ["uneven", "first"], ["four_rows"]),
    ]
    stored = [
        integers("two", 2),
        integers("sizes", 4, 1),
        *(integers(name, value) for name, value in (("first", 0), ("second", 1), ("last", -1))),
    ]
    for each in stored:
        if each.name != "sizes":
            each.dims[:] = []
    ends = [
        helper.make_empty_tensor_value_info(name) for name in ("joined", "stacked", "found", "y", "row", "four_rows")
    ]
    report = opcost.count(written(nodes, [tensor("x", 5, 7)], stored, ends))
    assert [each.shape for each in report.outputs] == [(4, 7), (2, 5, 7), (4, 7), (2,), (7,), (4, 7)]
    copies = [row for row in report.rows if row.op.kind == "copy"]
    elements = [35 + 35, 28 + 28, 35 + 70, 35 + 35, 35 + 35]
    assert [row.cost.bytes_read + row.cost.bytes_written for row in copies if row.cost] == [
        4 * each for each in elements
    ]


def test_numbers_that_nodes_hold_are_known(written: Written) -> None:
    node = helper.make_node
    nodes = [
        node("Constant", [], ["two"], value_int=2),
        node("Constant", [], ["shape"], value_ints=[5, -1]),
        node("Constant", [], ["half"], value_float=0.5),
        node("Constant", [], ["scales"], value_floats=[1.0, 1.0, 2.0]),
        node("Constant", [], ["axis"], value=helper.make_tensor("", INT64, [1], [1])),
        node("Constant", [], ["text"], value_string="a"),
        node("Gather", ["x", "two"], ["row"]),
        node("Reshape", ["x", "shape"], ["turned"]),
        node("Unsqueeze", ["row", "axis"], ["column"]),
        node("Unsqueeze", ["x", "axis"], ["image"]),
        node("Resize", ["image", "", "scales"], ["wide"]),
    ]
    names = ("two", "half", "scales", "text", "row", "turned", "column", "wide")
    ends = [helper.make_empty_tensor_value_info(name) for name in names]
    report = opcost.count(written(nodes, [tensor("x", 10, 7)], (), ends))
    found = {name: (each.shape, each.dtype) for name, each in zip(names, report.outputs, strict=True)}
    assert found == {
        "two": ((), "int64"), "half": ((), "float32"), "scales": ((3,), "float32"), "text": ((), "uint8"), "row": ((7,),
            "float32"),
        "turned": ((5, 14), "float32"), "column": ((7, 1), "float32"), "wide": ((10, 1, 14), "float32"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("axes", "shape"), [({}, (5, 2, 3)), ({"scan_input_axes": [1]}, (2, 5, 3)), ({"scan_input_axes": [-2]}, (2, 5, 3))]
)
def test_a_scan_runs_its_graph_for_every_step(
    written: Written, axes: dict[str, object], shape: tuple[int, ...]
) -> None:
    """Five steps of 2 x 3 times 3 x 4, added to a state that each hands to the next; all products are stacked."""
    node = helper.make_node
    body = helper.make_graph(
        [
            node("MatMul", ["item", "w"], ["product"]),
            node("Add", ["state", "product"], ["next"]),
            node("Relu", ["product"], ["seen"]),
        ],
        "body",
        [tensor("state", 2, 4), tensor("item", 2, 3)],
        [tensor("next", 2, 4), tensor("seen", 2, 4)],
    )
    scan = node("Scan", ["start", "x"], ["last", "all"], body=body, num_scan_inputs=1, **axes)
    ends = [helper.make_empty_tensor_value_info(name) for name in ("last", "all")]
    stored = [weight("w", 3, 4)]
    report = opcost.count(written([scan], [tensor("start", 2, 4), tensor("x", *shape)], stored, ends))
    assert [each.shape for each in report.outputs] == [(2, 4), (5, 2, 4)]
    assert report.totals.macs == 5 * 2 * 3 * 4
    assert report.totals.flops == 2 * report.totals.macs + 5 * 2 * (2 * 4)


@pytest.mark.parametrize(("opset", "turns"), [(8, 0), (9, 5)])
def test_a_scan_of_the_first_version_is_not_counted(written: Written, opset: int, turns: int) -> None:
    """It has a batch in front, and other inputs."""
    body = helper.make_graph([helper.make_node("Relu", ["item"], ["y"])], "body", [tensor("item", 2)], [tensor("y", 2)])
    scan = helper.make_node("Scan", ["x"], ["all"], body=body, num_scan_inputs=1)
    report = opcost.count(written([scan], [tensor("x", 5, 2)], opset=opset))
    assert (report.totals.flops, bool(report.coverage.uncounted)) == (turns * 2, not turns)


@pytest.mark.parametrize(
    ("limit", "turns", "noted"), [(7, 7, False), (0, 0, False), (1 << 40, 1, True), (None, 1, True)]
)
def test_a_loop_turns_as_often_as_its_limit_says(written: Written, limit: int | None, turns: int, noted: bool) -> None:
    node = helper.make_node
    body = helper.make_graph(
        [
            node("MatMul", ["state", "w"], ["next"]),
            node("Identity", ["going"], ["goes_on"]),
            node("Relu", ["next"], ["seen"]),
        ],
        "body",
        [tensor("turn", kind=INT64), tensor("going", kind=BOOL), tensor("state", 2, 3)],
        [tensor("goes_on", kind=BOOL), tensor("next", 2, 3), tensor("seen", 2, 3)],
    )
    stored = [weight("w", 3, 3)]
    if limit is not None:
        stored.append(integers("limit", limit))
        stored[-1].dims[:] = []
    loop = node("Loop", ["limit" if limit is not None else "", "", "x"], ["last", "all"], body=body)
    ends = [helper.make_empty_tensor_value_info(name) for name in ("last", "all")]
    report = opcost.count(written([loop], [tensor("x", 2, 3)], stored, ends))
    assert report.totals.macs == turns * 2 * 3 * 3
    assert report.totals.flops == 2 * report.totals.macs + turns * 6
    assert any("one turn is counted" in note.text for note in report.notes) == noted
    assert [each.shape for each in report.outputs] == [(2, 3), (None if noted else turns, 2, 3)]


@pytest.mark.parametrize(
    ("op", "attrs", "causal"),
    [
        ("Attention", {"is_causal": 1}, True), ("Attention", {}, False), (M + "MultiHeadAttention", {"unidirectional": 1}, True),
        (M + "MultiHeadAttention", {}, False), (M + "GroupQueryAttention", {"kv_num_heads": HEADS}, True),
    ],
)  # fmt: skip
def test_a_query_sees_all_keys_or_those_before_it(op: str, attrs: dict[str, object], causal: bool) -> None:
    heads = {"num_heads": HEADS, "q_num_heads": HEADS, "kv_num_heads": HEADS}
    _, maker = walked(Row(op, [x(B, L, WIDE)] * 3, [x(B, L, WIDE)], {**heads, **attrs}), TABLE)
    assert maker.ops[-1].attrs == ({"causal": True} if causal else {})
