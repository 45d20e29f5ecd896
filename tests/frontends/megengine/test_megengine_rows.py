"""What single operators of MegEngine cost, by hand: every function of an element, and rows for what no other test derives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from opcost.frontends.megengine.operators import ROWS as KNOWN
from opcost.frontends.megengine.schema import ENUMS

P, Q, R, S, C = 3, 5, 7, 11, 8
N = P * Q

FUNCTIONS = {
    1: """RELU ABS ACOS ASIN CEIL COS EXP EXPM1 FLOOR LOG LOG1P NEGATE SIN ADD MAX MIN MUL POW SUB TRUE_DIV LT LEQ EQ SHL SHR
          ROUND ATAN2 ERF ERFINV ERFC ERFCINV NOT AND OR XOR NEQ ISNAN ISINF TAN SQRT SQUARE SIGN""",
    2: "ABS_GRAD FLOOR_DIV SWITCH_GT0 COND_LEQ_MOV FUSE_MUL_ADD3 FUSE_ADD_RELU RMULH COND_LT_MOV CLIP RELU6",
    3: "SIGMOID_GRAD TANH_GRAD FUSE_MUL_ADD4 FAST_TANH_GRAD ATANH_GRAD PRELU PRELU_GRAD RELU6_GRAD",
    4: "SIGMOID MOD SINH COSH ASINH_GRAD ACOSH_GRAD HSIGMOID HSIGMOID_GRAD",
    5: "TANH FUSE_ADD_SIGMOID FAST_TANH H_SWISH SILU GELU ASINH ACOSH ATANH SOFTPLUS",
    6: "LOG_SUM_EXP FUSE_ADD_TANH H_SWISH_GRAD FUSE_ADD_H_SWISH SOFTPLUS_GRAD LOGSIGMOID",
    9: "SILU_GRAD",
    11: "GELU_GRAD",
}  # fmt: skip
"""Functions by their FLOPs for each element."""
FLOPS = {name: number for number, names in FUNCTIONS.items() for name in names.split()}
TYPED = {
    "FUSE_MUL_ADD3_INT16x32x32x32": 2, "FUSE_MUL_ADD3_IXxF32xF32xI8": 2, "FUSE_MUL_ADD3_INT16xF32xF32xF32": 2,
    "FUSE_MUL_ADD3_UINT8xF32xF32xF32": 2, "MUL_INT16xF32xF32": 1,
    # round, shift, two limits; with an addition and the upper half of a product before
    "ROUND_SHR_SATURATE_IXxI8xI8": 4, "ROUND_SHR_SATURATE_IXxI8xI16": 4,
    "FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT16x16x16x8": 7, "FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT32x32x32x8": 7,
}  # fmt: skip
"""Those whose types are in their names; others are a plain function, on quantized numbers after a Q."""


@pytest.mark.parametrize(
    ("kind", "modes"), [("Elemwise", ENUMS["Elemwise"]), ("ElemwiseMultiType", ENUMS["MultiType"])]
)
def test_a_function_of_each_element_costs_its_operations(kind: str, modes: Sequence[str], apply: Any) -> None:
    for mode in modes:
        row = apply(kind, (P, 1), (1, Q), table=kind, mode=mode)
        each = TYPED.get(mode) or FLOPS.get(mode) or FLOPS[mode.removeprefix("Q")]
        assert (mode, row.outs[0].shape, row.cost.flops) == (mode, (P, Q), each * N)


class Row(NamedTuple):
    """One operator: shapes of its inputs, or numbers that the file stores; its first result and its costs."""

    op: str
    ins: Sequence[tuple[int, ...] | list[int]]
    out: tuple[int | None, ...]
    fields: Mapping[str, Any] = {}
    macs: int = 0
    flops: int = 0
    results: int = 1
    moved: int | None = None
    """Bytes; of all inputs and the first result unless given."""
    dtypes: Sequence[str] = ()


X = (2, C, R, Q)
CONV = {"table": "Convolution", "stride_h": 2, "stride_w": 1, "pad_h": 1, "pad_w": 0, "dilate_h": 1, "dilate_w": 2}
"""Of 7 x 5 by 3 x 2: (7 + 2 - 3) // 2 + 1 = 4 by 5 - 3 + 1 = 3."""
PICK = ((0, False, False, False, True),)
IMAGE = (2, R, Q, 3)

ROWS = [
    # the gradient of a weight pairs what the convolution pairs
    Row("ConvolutionBackwardFilter", [X, (2, S, 4, 3), (S, C, 3, 2)], (S, C, 3, 2), CONV, macs=2 * S * 12 * C * 6),
    Row("Convolution3DBackwardFilter", [(2, C, P, R, Q), (2, S, 2, 5, 4), (S, C, 2, 3, 2)], (S, C, 2, 3, 2),
        {"table": "Convolution3D"},
        macs=2 * S * 40 * C * 12),
    Row("LocalShare", [X, (2, 2, C, 3, 2, S)], (2, S, 4, 3), {**CONV, "table": "LocalShare"}, macs=2 * S * 12 * C * 6),
    *(Row(op, [X, (S, C, 3, 2), (4, 3)], (2, S, 4, 3), CONV, macs=2 * S * 12 * C * 6) for op in ("MaskConvolution",)),
    Row("RegionRestrictedConvolution", [X, (S, C, 3, 2), (2, R, Q), (2, 4, 3)], (2, S, 4, 3), CONV, macs=2 * S * 12 * C * 6),
    # numbers from nothing: one operation for each
    Row("PermutationRNG", [[P, Q]], (P, Q), {"table": "PermutationRNG"}, flops=N),
    *(Row(op, [(P, Q), (P, Q)], (P, Q), {"table": op}, flops=N) for op in ("GammaRNG", "BetaRNG")),
    *(Row(op, [(P, Q)], (P, Q), {"table": op}, flops=N) for op in ("PoissonRNG", "ExponentialRNG")),
    # functions
    Row("PowC", [(P, Q)], (P, Q), {"table": "PowC"}, flops=N),
    Row("AddUpdate", [(P, Q), (P, Q)], (P, Q), {"table": "AddUpdate"}, flops=3 * N),
    Row("AffineInt", [(P, Q), (1,), (1,)], (P, Q), flops=2 * N),
    Row("LSQ", [(P, Q), (1,), (1,), (1,)], (P, Q), {"table": "LSQ"}, flops=7 * N),
    Row("FakeQuantBackward", [(P, Q), (P, Q), (1,), (1,)], (P, Q), {"table": "FakeQuant"}, flops=3 * N),
    # matrices
    Row("MatrixInverse", [(2, R, R)], (2, R, R), flops=2 * 2 * R**3),
    Row("SVD", [(2, P, R)], (2, P), {"table": "SVD", "compute_uv": False}, flops=2 * (4 * R * P**2 - 4 * P**3 // 3)),
    Row("SVD", [(2, P, R)], (2, P, P), {"table": "SVD", "compute_uv": True}, flops=2 * (14 * R * P**2 + 8 * P**3), results=3),
    Row("SVD", [(2, P, R)], (2, P, P), {"table": "SVD", "compute_uv": True, "full_matrices": True},
        flops=2 * (14 * R * P**2 + 8 * P**3), results=3),
    Row("Cross", [(P, Q), (P, Q)], (P, Q), {"table": "Cross", "axisa": 0, "axisb": 0, "axisc": 0}, flops=3 * N),
    # gradients
    Row("SoftmaxBackward", [(P, Q), (P, Q)], (P, Q), {"table": "Softmax"}, flops=4 * N),
    Row("PoolingBackward", [X, (2, C, 3, 2), (2, C, 3, 2)], X, {"table": "Pooling", "mode": "MAX"}, flops=2 * C * 6),
    Row("PoolingBackward", [X, (2, C, 3, 2), (2, C, 3, 2)], X, {"table": "Pooling", "mode": "AVERAGE", "window_h": 3,
        "window_w": 2},
        flops=2 * C * 6 * (6 + 1)),
    # images
    *(Row("Resize3D", [(2, C, P, R, Q), [2, 3, 4]], (2, C, 2, 3, 4), {"table": "Resize3D", "imode": mode},
        flops=each * 2 * C * 24)
      for mode, each in (("LINEAR", 21), ("NEAREST", 0))),
    Row("DeformablePSROIPooling", [X, (S, 5), (S, 2, 3, 4)], (S, C, 3, 4), {"table": "DeformablePSROIPooling", "pooled_h": 3,
        "pooled_w": 4,
        "sample_per_part": 3}, flops=S * C * 12 * 4 * 9 * 2, results=2),
    Row("MaskPropagate", [(R, Q)], (4, 3), {**CONV, "table": "MaskPropagate", "kernel_h": 3, "kernel_w": 2}, flops=12 * 6),
    Row("Correlation", [X, X], (2, 9, 3, 1), {"table": "Correlation", "kernel_size": 3, "max_displacement": 1, "stride1": 1,
        "stride2": 1},
        macs=2 * 9 * 3 * C * 9),
    Row("Correlation", [X, X], (2, 9, 3, 2), {"table": "Correlation", "kernel_size": 1, "max_displacement": 2, "stride1": 2,
        "stride2": 2, "pad_size": 1},
        macs=2 * 9 * 6 * C),
    *(Row("CvtColor", [IMAGE], (2, R, Q, 1), {"table": "CvtColor", "mode": mode}, flops=5 * 2 * R * Q) for mode in (0, 8)),
    *(Row("CvtColor", [IMAGE], (2, R, Q, 3), {"table": "CvtColor", "mode": mode}, flops=5 * 2 * R * Q * 3) for mode in (1, 2,
        22, 23, 11, 12)),
    *(Row("CvtColor", [IMAGE], (2, R, Q, 3), {"table": "CvtColor", "mode": mode}) for mode in (7, 9)),
    Row("CvtColor", [(2, R, Q, 1)], (2, R, Q, 3), {"table": "CvtColor", "mode": 3}),
    *(Row("CvtColor", [(2, R, Q, 4)], (2, R, Q, 3), {"table": "CvtColor", "mode": mode}) for mode in (4, 5)),
    Row("CvtColor", [(2, R, Q, 4)], (2, R, Q, 1), {"table": "CvtColor", "mode": 6}, flops=5 * 2 * R * Q),
    *(Row("CvtColor", [(2, 6, Q, 1)], (2, 4, Q, 1), {"table": "CvtColor", "mode": mode}) for mode in (10, 13, 16, 19)),
    *(Row("CvtColor", [(2, 6, Q, 1)], (2, 4, Q, 3), {"table": "CvtColor", "mode": mode},
        flops=5 * 2 * 4 * Q * 3) for mode in (14, 17)),
    Row("Flip", [IMAGE], IMAGE, {"table": "Flip"}),
    Row("Rotate", [IMAGE], (2, Q, R, 3), {"table": "Rotate"}),
    Row("GaussianBlur", [IMAGE], IMAGE, {"table": "GaussianBlur", "kernel_height": 3, "kernel_width": 5},
        flops=2 * R * Q * 3 * (3 + 5) * 2),
    # parts of tensors
    *(Row(op, [(P, Q), (4, Q), (4,)], (P, Q), {"items": PICK}, flops=each * 4 * Q)
      for op, each in (("IndexingSetMultiAxisVec", 0), ("SetMeshIndexing", 0), ("BatchedSetMeshIndexing", 0),
      ("IncrMeshIndexing", 1),
                       ("BatchedIncrMeshIndexing", 1))),
    Row("BatchedMeshIndexing", [(P, Q), (4,)], (4, Q), {"items": PICK}),
    Row("IndexingRemap", [(P, Q), (4, S, 2)], (4, S), {"table": "IndexingRemap"}),
    Row("Copy", [(P, Q)], (P, Q)),
    # what is read, what is kept beside the result, and in which type
    Row("ShuffleRNG", [(P, Q)], (P, Q), {"table": "ShuffleRNG"}, results=2, dtypes=["float32", "int32"], moved=4 * (2 * N + P)),
    Row("Dropout", [(P, Q)], (P, Q), {"table": "Dropout"}, flops=4 * N, results=2, moved=4 * 2 * N + N),
    Row("MultinomialRNG", [(P, Q)], (P, 4), {"table": "MultinomialRNG", "num_samples": 4}, flops=4 * P, dtypes=["int32"],
        moved=4 * (N + 4 * P)),
    Row("UniformRNG", [[P, Q]], (P, Q), {"table": "UniformRNG"}, flops=N, moved=4 * N),
    Row("Alloc", [[P, Q]], (P, Q), {"table": "DType"}, moved=N),
    Row("Eye", [[P]], (P, P), {"table": "Eye"}, moved=4 * P * P),
    *(Row("ElemwiseMultiType", [(P, Q), (P, Q)], (P, Q), {"table": "ElemwiseMultiType", "mode": mode}, flops=each * N,
        dtypes=[dtype])
      for mode, each, dtype in (("LT", 1, "bool"), ("ISNAN", 1, "bool"), ("QADD", 1, "float32"), ("MUL_INT16xF32xF32", 1,
      "float32"),
                                ("ROUND_SHR_SATURATE_IXxI8xI8", 4, "int8"), ("ROUND_SHR_SATURATE_IXxI8xI16", 4, "int16"),
                                ("FUSE_MUL_ADD3_INT16x32x32x32", 2, "int32"))),
    Row("ROIPooling", [(2, C, 8, 6), (S, 5), [4, 3]], (S, C, 4, 3), {"table": "ROIPooling", "mode": "MAX"},
        flops=S * C * 12 * 4, results=2,
        dtypes=["float32", "int32"], moved=4 * (2 * C * 48 + S * 5 + 2 * S * C * 12)),
    Row("WarpPerspective", [X, (2, 3, 3), [4, 5]], (2, C, 4, 5), {"table": "WarpPerspective"}, flops=2 * C * 20 * 4 * 2,
        moved=4 * (2 * C * R * Q + 18 + 2 * C * 20)),
    Row("AdaptivePooling", [(2, C, 8, 6), [2, 3]], (2, C, 2, 3), {"table": "AdaptivePooling", "mode": "MAX"},
        flops=2 * C * 6 * 8,
        moved=4 * 2 * C * (48 + 6)),
    Row("DctChannelSelect", [(2, 1, 16, 24)], (2, 64, 2, 3), {"table": "DctChannelSelect", "dct_block_size": 8},
        macs=2 * 64 * 6 * 64,
        dtypes=["float32"]),
    Row("DctChannelSelect", [(2, 1, 16, 24), (2,), (5,)], (2, 5, 2, 3), {"table": "DctChannelSelect", "dct_block_size": 8},
        macs=2 * 5 * 6 * 64),
    # elements in packs of four or eight: (m/p, k/p, p, p) times (k/p, n, p)
    *(Row("MatrixMul", [(P, Q, pack, pack), (Q, R, pack)], (P, R, pack), {"table": "MatrixMul", "format": form},
        macs=P * pack * R * Q * pack)
      for form, pack in (("MK4", 4), ("MK8", 8), ("MK4_DOT", 4))),
    *(Row("BatchedMatrixMul", [(2, *a), (2, *b)], (2, P, R), {"table": "MatrixMul", "transposeA": left, "transposeB": right},
        macs=2 * P * Q * R)
      for a, b, left, right in (((P, Q), (Q, R), False, False), ((Q, P), (Q, R), True, False), ((P, Q), (R, Q), False, True))),
    # channels last, in three dimensions
    Row("Convolution3D", [(2, P, R, Q, C), (S, 2, 3, 2, C)], (2, 2, 5, 4, S), {"table": "Convolution3D", "format": "NDHWC"},
        macs=2 * 40 * S * C * 12),
    Row("Convolution3DBackwardData", [(C, S, 2, 3, 2), (2, C, P, R, Q)], (2, S, 4, 9, 6), {"table": "Convolution3D"},
        macs=2 * C * P * R * Q * S * 12),
    Row("ConvolutionBackwardData", [(C, S, 3, 2), X], (2, S, 13, 7), CONV, macs=2 * C * R * Q * S * 6),
    Row("ConvolutionBackwardFilter", [X, (2, S, 4, 3), (S, C, 3, 2)], (S, C, 3, 2), CONV, macs=2 * S * 12 * C * 6,
        moved=4 * (2 * C * R * Q + 2 * S * 12 + S * C * 6)),
    # what a CPU keeps for a backward pass: the bytes of every state
    *(Row("LSTM", [(Q, 2, R), (layers * ways, 2, S), (layers * ways, 2, S), (100,)], (Q, 2, ways * S),
          {"table": "LSTM", "num_layers": layers, "hidden_size": S, "bidirectional": ways == 2, "bias": True}, results=4,
          macs=2 * Q * sum(4 * S * (size + S) for size in [R] * ways + [ways * S] * ways * (layers - 1)),
          flops=2 * Q * S * ways * layers * (30 + 8)) for layers, ways in ((1, 1), (1, 2), (3, 1), (2, 2))),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[f"{at}-{row.op}" for at, row in enumerate(ROWS)])
def test_an_operator_costs_what_it_computes(row: Row, apply: Any) -> None:
    found = apply(row.op, *row.ins, outputs=row.results, **row.fields)
    assert found.outs[0].shape == row.out
    assert (found.cost.macs, found.cost.flops) == (row.macs, 2 * row.macs + row.flops)
    if row.dtypes:
        assert [spec.dtype for spec in found.outs] == list(row.dtypes)
    if row.moved is not None:
        assert found.cost.bytes_read + found.cost.bytes_written == row.moved


def test_an_update_moves_its_tensors(apply: Any) -> None:
    """All inputs are read, and the results written; a view moves nothing."""
    cost = apply("AddUpdate", (P, Q), (P, Q), table="AddUpdate").cost
    assert (cost.bytes_read, cost.bytes_written) == (2 * 4 * N, 4 * N)
    cost = apply("Copy", (P, Q)).cost
    assert (cost.bytes_read, cost.bytes_written) == (4 * N, 4 * N)


def test_heads_of_attention_have_all_their_products(apply: Any) -> None:
    """Projections of queries, keys and values, scores, what they weigh, and the way out; one key more for a stored bias."""
    given = ((2, Q, 12), (2, R, 12), (2, R, 12), (100,))
    table: dict[str, Any] = {"table": "MultiHeadAttn", "num_heads": 4}
    plain = apply("MultiHeadAttn", *given, outputs=4, read=1, **table)
    assert plain.cost.macs == 2 * Q * R * (12 + 12)
    sizes = {"qproj_size": 8, "kproj_size": 8, "vproj_size": 16, "oproj_size": 20}
    whole = apply("MultiHeadAttn", *given, outputs=4, read=1, **table, **sizes)
    assert whole.outs[0].shape == (2, Q, 20)
    assert whole.cost.macs == 2 * (Q * R * (8 + 16) + Q * 12 * 8 + R * 12 * 8 + R * 12 * 16 + Q * 16 * 20)
    longer = apply(
        "MultiHeadAttn", *given, outputs=4, read=1, **table, tensor_combination_type="ALL", add_zero_attn=True
    )
    assert longer.cost.macs == 2 * Q * (R + 2) * (12 + 12)


NO_COST = {
    "CondExecMark", "CondExecMarkIfNeed", "CondExecPred", "CondExecPredLogical", "CondExecMerge", "Loop", "ExternCOprRunner",
    "TensorRTRuntimeOpr", "AtlasRuntimeOpr", "CambriconRuntimeOpr", "MagicMindRuntimeOpr", "NvOf", "PersistentOutputStorage",
        "VirtualDep",
    "AssertEqual", "Sleep", "AdaptivePoolingBackward", "ResizeBackward", "ShuffleRNG", "CheckNonFinite", "DctChannelSelect",
}  # fmt: skip
"""What steers others, runs what the file does not describe, or has rows in the dumps of MegEngine's own operators."""
DERIVED = {
    # in test_operators.py
    "Elemwise", "ElemwiseMultiType", "TypeCvt", "FakeQuant", "TQT", "Where", "MaskedFill", "BatchNorm", "LayerNorm",
        "GroupNorm", "InstanceNorm",
    "GeneralNorm", "LRN", "Softmax", "Pooling", "AdaptivePooling", "Reduce", "Argmax", "Argmin", "Cumsum", "Argsort", "TopK",
        "CondTake", "NonZero",
    "NMSKeepMGB", "Subtensor", "IndexingMultiAxisVec", "MeshIndexing", "SetSubtensor", "IncrSubtensor",
        "IndexingIncrMultiAxisVec", "IndexingOneHot",
    "IndexingSetOneHot", "Diag", "Reshape", "Broadcast", "Dimshuffle", "AxisAddRemove", "Identity", "MarkDynamicVar",
        "MarkNoBroadcastElemwise",
    "Concat", "Split", "Padding", "GetVarShape", "RelayoutFormat", "Resize", "WarpPerspective", "WarpAffine", "Remap",
        "ROIAlign", "ROIPooling",
    "Images2Neibs", "SlidingWindowTranspose", "Linspace", "Alloc", "Eye", "UniformRNG", "GaussianRNG", "MultinomialRNG",
        "Dropout",
    # in test_contractions.py
    "Convolution", "ConvBias", "ConvolutionBackwardData", "Convolution3D", "Convolution3DBackwardData", "DeformableConv",
        "BatchConvBias", "Local",
    "GroupLocal", "MatrixMul", "BatchedMatrixMul", "Dot", "RNN", "LSTM", "RNNCell", "LSTMCell", "MultiHeadAttn",
}  # fmt: skip


def test_every_operator_is_derived() -> None:
    assert KNOWN.keys() - {row.op for row in ROWS} - DERIVED - NO_COST == set()
    assert KNOWN.keys() >= DERIVED | NO_COST
