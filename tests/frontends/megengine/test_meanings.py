"""What operators of MegEngine make and mean, all of it: shapes, element types, attributes, and what is read and kept.

Extents that depend on data stay open, and what does not fit is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from opcost.core.shapes import Mismatch, Unknown
from opcost.frontends.megengine.operators import ROWS
from opcost.frontends.megengine.operators.table import MegEngineCall
from opcost.frontends.megengine.schema import NO_AXIS
from opcost.frontends.rows import RowOperator


class Meaning(NamedTuple):
    """Kind and attributes, and which inputs and results the kind speaks of, all of them where it says nothing."""

    kind: str
    attrs: Mapping[str, Any] = MappingProxyType({})
    inputs: tuple[int, ...] | None = None
    outputs: tuple[int, ...] | None = None


def meaning_of(row: RowOperator, call: MegEngineCall) -> Meaning:
    kind, attrs = row.meaning(call)
    return Meaning(kind, dict(attrs), None if kind == "unknown" else row.read(call), row.made(call))


class Case(NamedTuple):
    """An operator, its inputs, the shapes of its results, and its meaning."""

    op: str
    ins: Sequence[str | list[int]]
    outs: str
    meaning: Meaning
    fields: Mapping[str, Any] = MappingProxyType({})
    dtypes: str = ""


def conv(inputs: tuple[int, ...] | None = (0, 1), **attrs: Any) -> Meaning:
    return Meaning("conv", attrs, inputs)


def view() -> Meaning:
    return Meaning("view")


CONV = {"table": "Convolution", "stride_h": 2, "stride_w": 1, "pad_h": 1, "pad_w": 0, "dilate_h": 0, "dilate_w": 2}
"""Of 7 x 5 by 3 x 2: (7 + 2 - 3) // 2 + 1 = 4 by 5 - 3 + 1 = 3."""
GEO = {"kernel": (3, 2), "stride": (2, 1), "dilation": (1, 2)}
BIAS = {**CONV, "table": "ConvBias"}
LAST = {**CONV, "format": "NHWC"}
GROUP = {**CONV, "sparse": "GROUP"}
THREE = {"table": "Convolution3D"}
GEO3 = {"kernel": (2, 3, 2), "stride": (1, 1, 1), "dilation": (1, 1, 1)}
EIGHT = 8 * 3 * 2
"""Products for an element of the result, of eight channels under 3 x 2."""
LAYERS = {"table": "LSTM", "num_layers": 3, "hidden_size": 11, "bias": True}
HEADS = {"table": "MultiHeadAttn", "num_heads": 4}
ONE, WEIGHTS = "2x8x7x5", "11x8x3x2"
TOP = {"table": "TopK", "mode": "VALUE_IDX_SORTED"}
SUMS = "qint32"

CASES = [
    # convolutions
    Case("Convolution", [ONE, WEIGHTS], "2x11x4x3", conv(**GEO), CONV, SUMS),
    Case("Convolution", [ONE, WEIGHTS, "11"], "2x11x4x3", conv((0, 1, 2), **GEO), CONV, SUMS),
    Case("Convolution", ["?x8x7x?", WEIGHTS], "?x11x4x?", conv(**GEO), CONV, SUMS),
    Case("Convolution", ["2x?x7x5", WEIGHTS], "2x11x4x3", conv(**GEO), CONV, SUMS),
    Case("Convolution", [ONE, "2x5x4x3x2"], "2x10x4x3", conv(**GEO, grouped=True), GROUP, SUMS),
    Case("Convolution", ["2x7x5x8", "11x3x2x8"], "2x4x3x11", conv(**GEO, macs=2 * 12 * 11 * EIGHT, bias=False), LAST, SUMS),
    Case("Convolution", ["?x7x5x8", "11x3x2x8"], "?x4x3x11", conv(**GEO), LAST, SUMS),
    Case("Convolution", ["2x7x5x8", "0x3x2x8"], "2x4x3x0", conv(**GEO), LAST, SUMS),
    Case("Convolution", ["2x7x5x8", "1x3x2x8"], "2x4x3x1", conv(**GEO, macs=2 * 12 * EIGHT, bias=False), LAST, SUMS),
    Case("Convolution", ["2x7x5x?", "11x3x2x?"], "2x4x3x11", conv(**GEO), LAST, SUMS),
    Case("Convolution", ["2x7x5x8", "?x3x2x8"], "2x4x3x?", conv(**GEO), LAST, SUMS),
    Case("Convolution", ["2x2x7x5x4", "11x1x3x2x4"], "2x3x4x3x4",  # a filter of fewer channels than the packs have
         conv(**GEO, macs=2 * 3 * 12 * 4 * 24, bias=False), {**CONV, "format": "NCHW4"}, SUMS),
    Case("MaskConvolution", [ONE, WEIGHTS, "4x3"], "2x11x4x3", conv(**GEO), CONV),
    Case("RegionRestrictedConvolution", [ONE, WEIGHTS, "2x7x5", "2x4x3"], "2x11x4x3", conv(**GEO), CONV),
    *(Case("ConvBias", [ONE, WEIGHTS, "1x11x1x1"], "2x11x4x3", conv((0, 1, 2), **GEO, **then), {**BIAS, "nonlineMode": mode},
           SUMS) for mode, then in (("IDENTITY", {}), ("RELU", {"then": ("relu",)}), ("SIGMOID", {"then": ("sigmoid",)}),
                                    ("H_SWISH", {"then": ("hardswish",)}))),
    Case("ConvBias", [ONE, WEIGHTS, "1x11x1x1", "2x11x4x3"], "2x11x4x3", conv((0, 1, 2, 3), **GEO, then=("add", "relu")),
         {**BIAS, "nonlineMode": "RELU"}, SUMS),
    Case("ConvBias", ["2x7x5x8", "11x3x2x8", "11"], "2x4x3x11", conv((0, 1, 2), **GEO, macs=2 * 12 * 11 * EIGHT, bias=True),
         {**BIAS, "format": "NHWC", "nonlineMode": "IDENTITY"}, SUMS),
    Case("ConvBias", [ONE, WEIGHTS], "2x11x4x3", Meaning("unknown"), {**BIAS, "nonlineMode": "OTHER"}, SUMS),
    # of 4 x 3, (4 - 1) 2 + 3 - 2 = 7 by (3 - 1) + 3 = 5
    Case("ConvolutionBackwardData", ["8x11x3x2", "2x8x4x3"], "2x11x7x5", conv((1, 0), transposed=True, **GEO), CONV, SUMS),
    Case("ConvolutionBackwardData", ["8x11x3x2", "2x8x4x3", "2x11x8x5"], "2x11x8x5", conv((1, 0), transposed=True, **GEO), CONV,
         SUMS),
    Case("ConvolutionBackwardData", ["2x4x5x3x2", "2x8x4x3"], "2x10x7x5", conv((1, 0), transposed=True, **GEO, grouped=True),
         GROUP, SUMS),
    Case("ConvolutionBackwardData", ["8x3x2x11", "2x4x3x8"], "2x7x5x11",
         conv((1, 0), transposed=True, **GEO, macs=2 * 12 * 8 * 11 * 6), LAST, SUMS),
    Case("ConvolutionBackwardData", ["8x3x2x11", "?x4x3x8"], "?x7x5x11", conv((1, 0), transposed=True, **GEO), LAST, SUMS),
    Case("ConvolutionBackwardData", ["?x3x2x11", "2x4x3x8"], "2x7x5x11", conv((1, 0), transposed=True, **GEO), LAST, SUMS),
    Case("ConvolutionBackwardData", ["8x2x3x2x4", "2x2x4x3x4"], "2x2x7x5x4",
         conv((1, 0), transposed=True, **GEO, macs=2 * 8 * 12 * 8 * 6), {**CONV, "format": "NCHW4"}, SUMS),
    Case("ConvolutionBackwardFilter", [ONE, "2x11x4x3", WEIGHTS], WEIGHTS, conv((1, 0, 2), grads=("weight",)), CONV),
    Case("ConvolutionBackwardFilter", [ONE, "2x11x4x3", WEIGHTS], WEIGHTS, conv((1, 0, 2), grads=("weight",), grouped=True),
         GROUP),
    Case("Convolution3D", ["2x8x3x7x5", "11x8x2x3x2"], "2x11x2x5x4", conv(**GEO3), THREE, SUMS),
    Case("Convolution3D", ["2x?x3x7x5", "11x8x2x3x2"], "2x11x2x5x4", conv(**GEO3), THREE, SUMS),
    Case("Convolution3D", ["2x8x3x7x5", "2x5x4x2x3x2"], "2x10x2x5x4", conv(**GEO3, grouped=True), {**THREE, "sparse": "GROUP"},
         SUMS),
    Case("Convolution3D", ["2x3x7x5x8", "11x2x3x2x8"], "2x2x5x4x11", conv(**GEO3, macs=2 * 40 * 11 * 8 * 12),
         {**THREE, "format": "NDHWC"}, SUMS),
    Case("Convolution3D", ["2x3x7x5x8", "2x5x2x3x2x4"], "2x2x5x4x10", conv(**GEO3, macs=2 * 40 * 10 * 4 * 12),
         {**THREE, "format": "NDHWC", "sparse": "GROUP"}, SUMS),
    *(Case("Convolution3D", [x, w], y, conv(**GEO3), {**THREE, "format": "NDHWC"}, SUMS)
      for x, w, y in (("?x3x7x5x8", "11x2x3x2x8", "?x2x5x4x11"), ("2x3x7x5x8", "?x2x3x2x8", "2x2x5x4x?"),
                      ("2x3x7x5x?", "11x2x3x2x?", "2x2x5x4x11"), ("2x3x7x5x8", "0x2x3x2x8", "2x2x5x4x0"))),
    Case("Convolution3DBackwardData", ["8x11x2x3x2", "2x8x2x5x4"], "2x11x3x7x5", conv((1, 0), transposed=True, **GEO3),
         {**THREE, "format": "NCDHW"}),
    Case("Convolution3DBackwardData", ["8x11x2x3x2", "2x8x2x5x4", "2x11x3x7x6"], "2x11x3x7x6",
         conv((1, 0), transposed=True, **GEO3), {**THREE, "format": "NCDHW"}),
    Case("Convolution3DBackwardFilter", ["2x8x3x7x5", "2x11x2x5x4", "11x8x2x3x2"], "11x8x2x3x2",
         conv((1, 0, 2), grads=("weight",)), THREE),
    Case("DeformableConv", [ONE, WEIGHTS, "2x12x4x3", "2x6x4x3"], "2x11x4x3", conv(sampled=4), CONV),
    Case("DeformableConv", [ONE, "2x5x4x3x2", "2x12x4x3", "2x6x4x3"], "2x10x4x3", conv(sampled=4, grouped=True), GROUP),
    Case("BatchConvBias", [ONE, "2x11x8x3x2"], "2x11x4x3", conv(None, then=(), macs=2 * 11 * 12 * EIGHT, bias=False),
         {**BIAS, "nonlineMode": "IDENTITY"}, SUMS),
    Case("BatchConvBias", ["2x7x5x8", "2x11x3x2x8", "11"], "2x4x3x11",
         conv(None, then=("relu",), macs=2 * 11 * 12 * EIGHT, bias=True), {**BIAS, "format": "NHWC", "nonlineMode": "RELU"},
             SUMS),
    Case("BatchConvBias", ["2x2x7x5x4", "2x12x2x3x2x4"], "2x3x4x3x4", conv(None, then=(), macs=2 * 12 * 12 * EIGHT, bias=False),
         {**BIAS, "format": "NCHW4", "nonlineMode": "IDENTITY"}, SUMS),
    Case("BatchConvBias", ["?x8x7x5", "?x11x8x3x2"], "?x11x4x3", conv(None, then=()), {**BIAS, "nonlineMode": "IDENTITY"}, SUMS),
    Case("BatchConvBias", [ONE, "2x11x?x3x2"], "2x11x4x3", conv(None, then=()), {**BIAS, "nonlineMode": "IDENTITY"}, SUMS),
    Case("BatchConvBias", [ONE, "2x11x8x3x2"], "2x11x4x3", Meaning("unknown"), {**BIAS, "nonlineMode": "OTHER"}, SUMS),
    Case("Local", [ONE, "4x3x8x3x2x11"], "2x11x4x3", conv(macs=2 * 11 * 12 * EIGHT), CONV),
    Case("Local", ["?x8x7x5", "4x3x8x3x2x11"], "?x11x4x3", conv(), CONV),
    Case("Local", [ONE, "4x3x?x3x2x11"], "2x11x4x3", conv(), CONV),
    Case("GroupLocal", [ONE, "2x4x3x4x3x2x5"], "2x10x4x3", conv(macs=2 * 10 * 12 * 24), CONV),
    Case("LocalShare", [ONE, "2x1x8x3x2x11"], "2x11x4x3", conv(macs=2 * 11 * 12 * EIGHT), {**CONV, "table": "LocalShare"}),
    Case("LocalShare", [ONE, "2x3x1x4x3x2x5"], "2x10x4x3", conv(macs=2 * 10 * 12 * 24), {**GROUP, "table": "LocalShare"}),
    # matrices
    Case("MatrixMul", ["3x5", "5x7"], "3x7", Meaning("matmul", {"depth": 5}, (0, 1)), {"table": "MatrixMul"}, SUMS),
    Case("MatrixMul", ["3x?", "5x7"], "3x7", Meaning("matmul", {"depth": 5}, (0, 1)), {"table": "MatrixMul"}, SUMS),
    Case("MatrixMul", ["?x3", "7x5"], "3x7", Meaning("matmul", {"depth": 5}, (0, 1)),
         {"table": "MatrixMul", "transposeA": True, "transposeB": True}, SUMS),
    Case("MatrixMul", ["3x?", "?x7"], "3x7", Meaning("matmul", {}, (0, 1)), {"table": "MatrixMul"}, SUMS),
    Case("MatrixMul", ["3x5x4x4", "5x7x4"], "3x7x4", Meaning("matmul", {"depth": 20}, (0, 1)),
         {"table": "MatrixMul", "format": "MK4"}, SUMS),
    Case("BatchedMatrixMul", ["2x3x5", "2x5x7"], "2x3x7", Meaning("matmul", {"depth": 5}, (0, 1)), {"table": "MatrixMul"}, SUMS),
    *(Case("Dot", [a, b], "1", Meaning("matmul", {"depth": depth}, (0, 1)), {}, SUMS)
      for a, b, depth in (("5", "5", 5), ("1", "5", 5), ("5", "1", 5), ("?", "?", 1), ("5", "?", 5), ("1", "1", 1))),
    Case("MatrixInverse", ["2x7x7"], "2x7x7", Meaning("linalg", {"fn": "inverse"})),
    Case("MatrixInverse", ["7x7"], "7x7", Meaning("linalg", {"fn": "inverse"})),
    Case("MatrixInverse", ["2x?x7"], "2x?x7", Meaning("linalg", {"fn": "inverse"})),
    Case("SVD", ["2x3x7"], "2x3", Meaning("linalg", {"fn": "svd"}), {"table": "SVD", "compute_uv": False}),
    Case("SVD", ["2x7x?"], "2x?", Meaning("linalg", {"fn": "svd"}), {"table": "SVD", "compute_uv": False}),
    Case("SVD", ["2x3x7"], "2x3x3 2x3 2x3x7", Meaning("linalg", {"fn": "svd"}), {"table": "SVD", "compute_uv": True}),
    Case("SVD", ["2x7x3"], "2x7x7 2x3 2x3x3", Meaning("linalg", {"fn": "svd"}),
         {"table": "SVD", "compute_uv": True, "full_matrices": True}),
    Case("Cross", ["3x5", "5x3"], "5x3", Meaning("elementwise", {"fn": "cross"}),
         {"table": "Cross", "axisa": 0, "axisb": 1, "axisc": 1}),
    # recurrent layers: what is kept are the bytes of every state, as many elements
    *(Case("LSTM", ["5x2x7", f"{3 * ways}x2x11", f"{3 * ways}x2x11", "100"],
           f"5x2x{11 * ways} {3 * ways}x2x11 {3 * ways}x2x11 {5 * 2 * 2 * 3 * ways * 11}",
           Meaning("recurrent", {"cell": "lstm", "steps": 10, "bias": True,
                                 "layers": ((7, 11, 11),) * ways + ((11 * ways, 11, 11),) * 2 * ways}, outputs=(0, 1, 2)),
           {**LAYERS, "bidirectional": ways == 2}) for ways in (1, 2)),
    Case("LSTM", ["5x2x7", "1x2x4", "1x2x11", "100"], f"5x2x4 1x2x4 1x2x11 {5 * 2 * 2 * 11}",
         Meaning("recurrent", {"cell": "lstm", "steps": 10, "bias": False, "layers": ((7, 4, 3),)}, outputs=(0, 1, 2)),
         {**LAYERS, "num_layers": 1, "proj_size": 3, "bias": False}),
    *(Case("RNN", ["5x2x7", "1x2x11", "100"], f"5x2x11 1x2x11 {5 * 2 * 11}",
           Meaning("recurrent", {"cell": cell, "steps": 10, "bias": True, "layers": ((7, 11, 11),)}, outputs=(0, 1)),
           {**LAYERS, "table": "RNN", "num_layers": 1, "nonlineMode": mode})
      for mode, cell in (("RELU", "rnn_relu"), ("TANH", "rnn_tanh"))),
    *(Case("LSTM", [x, h, h, "100"], outs, Meaning("recurrent", {"cell": "lstm"}, outputs=(0,)), {**LAYERS, "num_layers": 1})
      for x, h, outs in (("?x2x7", "1x2x11", "?x2x11 1x2x11 1x2x11 ?"), ("5x2x?", "1x2x11", "5x2x11 1x2x11 1x2x11 220"),
                         ("5x2x7", "1x2x?", "5x2x? 1x2x? 1x2x? 220"))),
    Case("RNNCell", ["2x7", "11x7", "11", "2x11", "11x11", "11"], "2x11",
         Meaning("recurrent", {"cell": "rnn_tanh", "steps": 2, "layers": ((7, 11, 11),), "bias": True}),
         {"table": "RNNCell", "nonlineMode": "TANH"}),
    Case("RNNCell", ["2x7", "11x7", "11", "2x11", "11x11", "11"], "2x11",
         Meaning("matmul", {"depth": 7 + 11, "bias": True, "then": ("add", "add")}), {"table": "RNNCell",
             "nonlineMode": "IDENTITY"}),
    Case("LSTMCell", ["2x7", "44x7", "44", "2x11", "44x11", "44", "2x11"], "2x11 2x11 2x44",
         Meaning("recurrent", {"cell": "lstm", "steps": 2, "layers": ((7, 11, 11),), "bias": True})),
    Case("LSTMCell", ["2x7", "44x7", "44", "?x11", "44x11", "44", "2x11"], "?x11 2x11 2x44",
         Meaning("recurrent", {"cell": "lstm", "steps": 2, "layers": ((7, 11, 11),), "bias": True})),
    *(Case("LSTMCell", [x, "44x7", "44", h, "44x11", "44", "2x11"], outs, Meaning("recurrent", {"cell": "lstm"}))
      for x, h, outs in (("?x7", "2x11", "2x11 2x11 ?x44"), ("2x?", "2x11", "2x11 2x11 2x44"), ("2x7", "2x?", "2x? 2x11 2x44"))),
    # normalization
    Case("BatchNorm", [ONE, "1x8x1x1", "1x8x1x1"], "1x8x1x1 1x8x1x1 1x8x1x1 1x8x1x1 0 2x8x7x5",
         Meaning("norm", {"fn": "batch", "affine": 2, "training": True}, outputs=(5,)), {"table": "BN", "fwd_mode": "TRAINING"},
         "float16 float16 float16 float16 uint8 qint8"),
    Case("BatchNorm", [ONE, "1x8x1x1", "8"], "1x8x1x1 1x8x1x1 0 2x8x7x5",
         Meaning("norm", {"fn": "batch", "affine": 2, "training": False}, outputs=(3,)), {"table": "BN", "fwd_mode": "INFERENCE"},
         "float16 float16 uint8 qint8"),
    *(Case(op, [ONE], f"2x8x7x5 {kept} {kept}", Meaning("norm", {"fn": fn, "affine": 2 * affine}, outputs=(0,)),
           {"table": op, "affine": bool(affine), **fields}, "qint8 float32 float32")
      for op, fn, kept, affine, fields in (
          ("LayerNorm", "layer", "2x8", 1, {"normalized_dim": 2}), ("LayerNorm", "layer", "-", 0, {"normalized_dim": 4}),
          ("GeneralNorm", "layer", "2x5", 1, {"axis_start": 1, "axis_end": 3}), ("GroupNorm", "group", "2x4", 0, {"group": 4}),
          ("InstanceNorm", "instance", "2x8", 1, {}))),
    Case("LRN", [ONE], ONE, Meaning("norm", {"fn": "local_response", "window": 5}), {"table": "LRN", "n": 5}),
    Case("SoftmaxBackward", ["3x5", "3x1"], "3x5", Meaning("softmax", {"grad": True}), {"table": "Softmax"}),
    # pooling
    Case("Pooling", [ONE], "2x8x4x3", Meaning("pool", {"fn": "max", "window": 6, "kernel": (2, 3), "stride": (2, 1)}),
         {"table": "Pooling", "mode": "MAX", "window_h": 2, "window_w": 3, "stride_h": 2, "stride_w": 1, "pad_h": 1, "pad_w": 0}),
    Case("Pooling", ["2x7x5x8"], "2x3x3x8", Meaning("pool", {"fn": "avg", "window": 6, "kernel": (2, 3), "stride": (2, 1)}),
         {"table": "Pooling", "mode": "AVERAGE", "format": "NHWC", "window_h": 2, "window_w": 3, "stride_h": 2, "stride_w": 1,
          "pad_h": 0, "pad_w": 0}),
    Case("PoolingBackward", [ONE, "2x8x3x2", "2x8x3x2"], ONE, Meaning("pool", {"fn": "max", "window": 6, "grad": True}, (2, 0,
        1)),
         {"table": "Pooling", "mode": "MAX", "window_h": 2, "window_w": 3}),
    *(Case("AdaptivePooling", [x, to], y, Meaning("pool", {"fn": fn, "window": 4 * 2, "kernel": (4, 2), "stride": (4, 2)}, (0,)),
           {"table": "AdaptivePooling", "mode": mode, **form})
      for x, to, y, fn, mode, form in (
          ("2x8x8x6", [2, 3], "2x8x2x3", "adaptive_max", "MAX", {}), ("2x8x12x6", [3], "2x8x3x3", "adaptive_avg", "AVERAGE", {}),
          ("2x8x6x5", [2, 3], "2x2x3x5", "adaptive_max", "MAX", {"format": "NHWC"}))),
    Case("AdaptivePooling", ["2x8x8x6", "2"], "2x8x?x?", Meaning("pool", {"fn": "adaptive_avg", "window": 1}, (0,)),
         {"table": "AdaptivePooling", "mode": "AVERAGE"}),
    *(Case("ROIPooling", ["2x8x8x6", "11x5", [4, 3]], "11x8x4x3 11x8x4x3", Meaning("pool", {"fn": fn, "window": 4}, (0, 1)),
           {"table": "ROIPooling", "mode": mode}, "qint8 int32") for mode, fn in (("MAX", "adaptive_max"), ("AVERAGE",
               "adaptive_avg"))),
    Case("ROIPooling", ["2x8x8x6", "11x5", [2, 3]], "11x8x2x3 11x8x2x3", Meaning("pool", {"fn": "adaptive_max",
        "window": 4 * 2}, (0, 1)),
         {"table": "ROIPooling", "mode": "MAX"}, "qint8 int32"),
    Case("AdaptivePooling", ["2x2x8x6x4", [2, 3]], "2x2x2x3x4",
         Meaning("pool", {"fn": "adaptive_max", "window": 8, "kernel": (4, 2), "stride": (4, 2)}, (0,)),
         {"table": "AdaptivePooling", "mode": "MAX", "format": "NCHW4"}),
    Case("AdaptivePoolingBackward", [ONE, "2"], ONE, Meaning("unknown"), {"table": "AdaptivePooling"}),
    # sorting and reductions
    Case("Argsort", ["3x5"], "3x5 3x5", Meaning("sort", {"length": 5}), {"table": "Argsort"}, "qint8 int32"),
    Case("Argsort", ["3x?"], "3x? 3x?", Meaning("sort", {"length": 1}), {"table": "Argsort"}, "qint8 int32"),
    *(Case("TopK", ["3x5", [k]], f"3x{kept} 3x{kept}", Meaning("sort", {"length": 5, "selected": abs(k)}, (0,)), TOP,
           "qint8 int32") for k, kept in ((2, 2), (-3, 3), (9, 5))),
    Case("TopK", ["3x5", "1"], "3x? 3x?", Meaning("sort", {"length": 5}, (0,)), TOP, "qint8 int32"),
    Case("TopK", ["3x?", [2]], "3x? 3x?", Meaning("sort", {"length": 1, "selected": 2}, (0,)), TOP, "qint8 int32"),
    Case("TopK", ["3x5", [2]], "3", Meaning("sort", {"length": 5, "selected": 2}, (0,)), {"table": "TopK", "mode": "KTH_ONLY"},
         "qint8"),
    Case("CondTake", ["3x5", "3x5"], "? ?", Meaning("gather"), {}, "qint8 int32"),
    Case("NonZero", ["3x5"], "2x?", Meaning("gather"), {}, "int32"),
    Case("Reduce", ["3x5"], "3x1", Meaning("reduce", {"fn": "dot"}, (0,)), {"table": "Reduce", "mode": "SUM_SQR", "axis": 1},
         "qint8"),
    Case("Reduce", ["3x5", [1, 5]], "1x5", Meaning("reduce", {"fn": "sum"}, (0,)),
         {"table": "Reduce", "mode": "SUM", "axis": 1, "data_type": "QINT_I8xO32"}, "qint32"),
    Case("Reduce", ["3x5"], "1", Meaning("reduce", {"fn": "sum"}, (0,)), {"table": "Reduce", "mode": "SUM", "axis": NO_AXIS}),
    Case("Reduce", ["3x5"], "1x5", Meaning("unknown"), {"table": "Reduce", "mode": "OTHER", "axis": 0,
        "data_type": "FLOAT_O16xC32"},
         "float16"),
    *(Case(op, ["3x5"], "3x1", Meaning("reduce", {"fn": op.lower()}), {"table": "Axis", "axis": 1}, "int32")
      for op in ("Argmax", "Argmin")),
    # images
    *(Case("Resize", [ONE, [4, 6]], "2x8x4x6", Meaning("resize", attrs, (0,)), {"table": "Resize", "imode": mode,
        "format": "NCHW"})
      for mode, attrs in (("LINEAR", {"fn": "bilinear"}), ("NEAREST", {"fn": "nearest"}), ("CUBIC", {"fn": "bicubic"}),
                          ("AREA", {"fn": "area"}), ("LANCZOS4", {"fn": "bicubic", "taps": 64}), ("OTHER", {"fn": "bilinear"}))),
    Case("Resize", ["?x7x5x8", [4, 6]], "?x4x6x8", Meaning("resize", {"fn": "bilinear"}, (0,)),
         {"table": "Resize", "imode": "LINEAR", "format": "NHWC"}),
    Case("Resize", ["2x2x7x5x4", [4, 6]], "2x2x4x6x4", Meaning("resize", {"fn": "bilinear"}, (0,)),
         {"table": "Resize", "imode": "LINEAR", "format": "NCHW4"}),
    Case("ResizeBackward", ["2x8x4x6", ONE], ONE, Meaning("unknown"), {"table": "Resize"}),
    *(Case("Resize3D", ["2x8x3x7x5", [2, 3, 4]], "2x8x2x3x4", Meaning("resize", {"fn": fn}, (0,)), {"table": "Resize3D",
        "imode": mode})
      for mode, fn in (("LINEAR", "trilinear"), ("NEAREST", "nearest"))),
    *(Case("WarpPerspective", ["2x8x7x5", "3x3x3", *which, [4, 6]], "3x8x4x6",
           Meaning("sample", {"taps": taps}, tuple(range(2 + len(which)))), {"table": "WarpPerspective", "imode": mode})
      for which, mode, taps in (([], "LINEAR", 4), (["3"], "NEAREST", 1), ([], "CUBIC", 16), ([], "LANCZOS4", 64), ([],
          "AREA", 4))),
    *(Case("WarpAffine", [x, "3x2x3", [4, 6]], y, Meaning("sample", {"taps": 4}, (0, 1)),
           {"table": "WarpAffine", "imode": "LINEAR", "format": form})
      for form, x, y in (("NCHW4_NCHW", "2x2x7x5x4", "3x8x4x6"), ("NHWC_NCHW", "2x7x5x3", "3x3x4x6"), ("NHWC_NCHW4_IC_SMALL",
          "2x7x5x3", "3x1x4x6x4"),
                         ("NCHW_NCHW4_IC_SMALL", "2x3x7x5", "3x1x4x6x4"), ("NCHW44_DOT", "2x2x7x5x4", "3x2x4x6x4"),
                         ("NHWC", "2x7x5x3", "3x4x6x3"))),
    *(Case("Remap", [ONE, "1x4x6x2"], "2x8x4x6", Meaning("sample", {"taps": taps}), {"table": "Remap", "imode": mode,
        "format": "NCHW"})
      for mode, taps in (("NEAREST", 1), ("LINEAR", 4))),
    *(Case("ROIAlign", [ONE, "11x5"], "11x8x3x4 11x8x3x4", Meaning("sample", {"taps": 4 * max(1, h * w)}, (0, 1), (0,)),
           {"table": "ROIAlign", "pooled_height": 3, "pooled_width": 4, "sample_height": h, "sample_width": w}, "qint8 int32")
      for h, w in ((2, 3), (1, 1), (0, 3))),
    *(Case("DeformablePSROIPooling", [ONE, "11x5", "11x2x3x4"], "11x8x3x4 11x8x3x4",
           Meaning("sample", {"taps": 4 * max(1, part**2)}, (0, 1, 2), (0,)),
           {"table": "DeformablePSROIPooling", "pooled_h": 3, "pooled_w": 4, "sample_per_part": part}) for part in (3, 1, 0)),
    Case("Images2Neibs", [ONE], "2x8x5x4x3x2", Meaning("copy"), {"table": "Images2Neibs", "window_h": 3, "window_w": 2}),
    Case("SlidingWindowTranspose", ["2x8x5x4x3x2"], "2x8x7x5", Meaning("elementwise", {"fn": "add", "elements": 2 * 8 * 20 * 6}),
         {"table": "SlidingWindowTranspose", "out_h": 7, "out_w": 5}),
    Case("SlidingWindowTranspose", ["?x8x5x4x3x2"], "?x8x7x5", Meaning("elementwise", {"fn": "add"}),
         {"table": "SlidingWindowTranspose", "out_h": 7, "out_w": 5}),
    Case("MaskPropagate", ["7x5"], "4x3", Meaning("pool", {"fn": "max", "window": 6}),
         {**CONV, "table": "MaskPropagate", "kernel_h": 3, "kernel_w": 2}),
    # the border of 7 x 5 padded by 1 is 2 + 1 wide: 7 + 2 - 6 by 5 + 2 - 6; 2 // 3 displacements to each side
    Case("Correlation", [ONE, "1x1x1x1"], "2x1x3x1", Meaning("matmul", {"depth": 8 * 9}),
         {"table": "Correlation", "kernel_size": 3, "max_displacement": 2, "stride1": 1, "stride2": 3, "pad_size": 1}),
    Case("Correlation", ["2x?x7x2", "2x?x7x2"], "2x25x3x0", Meaning("matmul"),
         {"table": "Correlation", "kernel_size": 1, "max_displacement": 2, "stride1": 0, "stride2": 0, "pad_size": 0}),
    Case("Correlation", ["2x8x?x5", "2x8x?x5"], "2x25x?x1", Meaning("matmul", {"depth": 8}),
         {"table": "Correlation", "kernel_size": 1, "max_displacement": 2, "stride1": 1, "stride2": 1, "pad_size": 0}),
    Case("CvtColor", ["2x?x5x1"], "2x?x5x1", Meaning("copy"), {"table": "CvtColor", "mode": 10}),
    Case("GaussianBlur", ["2x7x5x3"], "2x7x5x3", Meaning("unknown"), {"table": "GaussianBlur", "kernel_height": 0,
        "kernel_width": 0}),
    Case("DctChannelSelect", ["2x3x16x24"], f"2x{3 * 64}x2x3", Meaning("matmul", {"depth": 64}, (0,)),
         {"table": "DctChannelSelect", "dct_block_size": 8}, "float32"),
    Case("DctChannelSelect", ["2x3x16x?", "2", "5"], "2x2x2x?x4", Meaning("matmul", {"depth": 64}, (0,)),
         {"table": "DctChannelSelect", "dct_block_size": 8, "format": "NCHW4"}, "float32"),
    Case("DctChannelSelect", ["2x3x16x24"], "2x3x16x24", Meaning("matmul", {"depth": 0}, (0,)),
         {"table": "DctChannelSelect", "dct_block_size": 0}, "float32"),
    # attention: keys and values may have other lengths and features
    Case("MultiHeadAttn", ["2x5x12", "2x7x12", "2x7x16", "9"], "2x5x16 8x5x7 ? ?",
         Meaning("matmul", {"macs": 2 * 5 * 7 * (12 + 16), "bias": False}, outputs=(0,)), HEADS),
    Case("MultiHeadAttn", ["2x5x12", "2x7x10", "2x7x16", "9"], "2x5x20 8x5x8 ? ?",
         Meaning("matmul", {"macs": 2 * (5 * 8 * (8 + 4) + 5 * 12 * 8 + 7 * 10 * 8 + 7 * 16 * 4 + 5 * 4 * 20), "bias": True},
                 outputs=(0,)), {**HEADS, "qproj_size": 8, "kproj_size": 8, "vproj_size": 4, "oproj_size": 20, "obias": True,
                                 "tensor_combination_type": "ONLY_BIASKV"}),
    Case("MultiHeadAttn", ["0x5x12", "0x7x12", "0x7x16", "9"], "0x5x16 0x5x7 ? ?",
         Meaning("matmul", {"macs": 0, "bias": False}, outputs=(0,)), HEADS),
    Case("MultiHeadAttn", ["?x5x12", "2x7x12", "2x7x16", "9"], "?x5x16 ?x5x7 ? ?", Meaning("unknown", outputs=(0,)), HEADS),
    # layouts
    *(Case("RelayoutFormat", [x], y, Meaning("copy"), {"table": "RelayoutFormat", "mode": mode, **more})
      for mode, x, y, more in (
          ("NCHW_NCHW4", "2x9x7x5", "2x3x7x5x4", {}), ("NCHW_NCHW4", "2x18x7x5", "2x6x7x5x4", {"group": 3}),
          ("NCHW_NCHW4", "2x?x7x5", "2x?x7x5x4", {"group": 3}), ("NCHW4_NCHW", "2x3x7x5x4", "2x12x7x5", {}),
          ("NCHW4_NCHW", "2x3x7x5x4", "2x9x7x5", {"oc": 9}), ("NCHW64_NCHW", "2x3x7x5x64", "2x130x7x5", {"oc": 130}),
          ("NCHW88_NCHW", "2x3x7x5x8", "2x24x7x5", {"oc": 9}), ("NCHW_NHWC", "2x8x7x5", "2x7x5x8", {}),
          ("CHWN4_NCHW4", "3x7x5x2x4", "2x3x7x5x4", {}), ("NHWC_NHWCD4", "2x7x5x9", "2x7x3x5x4", {}),
          ("NCHW_NCHW4_WEIGHT", "9x9x3x2", "12x3x3x2x4", {}), ("NCHW_NCHW4_WEIGHT", "2x9x9x3x2", "2x12x3x3x2x4", {}),
          ("INTER_WEIGHT_DENSEI", "9x9x3x2", "3x3x2x12x4", {}), ("INTER_WEIGHT_GROUPI", "2x9x7x3x2", "2x3x3x2x7x4", {}),
          ("INTER_WEIGHT_CHANI", "9x1x1x3x2", "3x1x3x2x4", {}), ("INTER_WEIGHT_GROUPI_DOT", "2x9x7x3x2", "2x3x3x2x2x4x4", {}),
          ("NCHW_NCHW88_CONV_CHAN_WEIGHT", "9x1x1x3x2", "2x1x1x3x2x8", {}),
          ("NCHW_NCHW88_CONV_GROUP_WEIGHT", "2x9x17x3x2", "2x2x3x3x2x8x8", {}), ("NCHW_NCHW4", "2x13x7x5", "2x4x7x5x4",
              {"group": 0}),
          ("INTER_WEIGHT_DENSE", "9x9x3x2", "3x3x2x12x4", {}), ("INTER_WEIGHT_GROUP", "2x9x7x3x2", "2x3x3x2x7x4", {}),
          ("INTER_WEIGHT_CHAN", "9x1x1x3x2", "3x1x3x2x4", {}), ("INTER_WEIGHT_DENSEI_DOT", "9x?x3x2", "3x3x2x?x4x4", {}),
          ("NCHW_NCHW88_CONV_DENSE_WEIGHT", "9x17x3x2", "2x3x3x2x8x8", {}),
          ("NCHW_NCHW4_IC_SMALL_CONV_DENSE_WEIGHT", "9x3x3x2", "9x1x3x2x4", {}))),
    # shapes
    Case("Dimshuffle", ["3x5"], "5x1x3", view(), {"pattern": (1, -1, 0)}),
    Case("AxisAddRemove", ["3x1x5"], "1x3x5", view(), {"desc": (("remove", 1), ("add", 0))}),
    Case("AxisAddRemove", ["1"], "1", view(), {"desc": (("remove", 0),)}),
    Case("Split", ["3x5", [2], [3]], "3x2 3x3", view(), {"table": "Axis", "axis": 1}),
    Case("Split", ["3x5", [2], "1"], "3x2 3x?", view(), {"table": "Axis", "axis": -1}),
    Case("Padding", ["3x5"], "6x12", Meaning("copy"), {"table": "Padding", "front_offset_dim0": 1, "back_offset_dim0": 2,
                                                      "front_offset_dim1": 3, "back_offset_dim1": 4}),
    Case("GetVarShape", ["3x5", "4x1x1"], "3", view(), {"table": "OptionalAxisV1", "axis": 7}, "int32"),
    Case("GetVarShape", ["3x5"], "1", view(), {"table": "OptionalAxisV1", "axis": 1}, "int32"),
    Case("Reshape", ["3x5", [0, 5]], "3x5", view(), {"table": "OptionalAxisV1", "axis": 0}),
    Case("Reshape", ["3x5", [-1, 3]], "5x3", view(), {"table": "OptionalAxisV1", "axis": 7}),
    Case("Reshape", ["3x5", [5, 3]], "5x3", view(), {"table": "Axis", "axis": 0}),
    # parts
    Case("Subtensor", ["6x5x7", [1], [6], [2], [3]], "3x5", view(), {"items": ((0, True, True, True, False), (2, False, False,
        False, True))}),
    Case("Subtensor", ["6x5", [1], "1"], "5x?", view(), {"items": ((0, True, False, False, False), (1, False, True, False,
        False))}),
    Case("Subtensor", ["6", [1]], "1", view(), {"items": ((0, False, False, False, True),)}),
    Case("IndexingMultiAxisVec", ["6x5x7", "4", "4"], "4x7", Meaning("gather"),
         {"items": ((0, False, False, False, True), (1, False, False, False, True))}),
    Case("IndexingMultiAxisVec", ["6x5x7", "3x4", "4"], "3x4x5", Meaning("gather"),
         {"items": ((0, False, False, False, True), (2, False, False, False, True))}),
    Case("IndexingMultiAxisVec", ["6x5x7", "4", [2]], "6x4x5", Meaning("gather"),
         {"items": ((1, False, False, False, True), (2, True, False, False, False))}),
    Case("IndexingMultiAxisVec", ["6x5", [2]], "4x5", Meaning("gather"), {"items": ((0, True, False, False, False),)}),
    Case("MeshIndexing", ["6x5x7", "4", "2x3", [2]], "4x3x5", Meaning("gather"),
         {"items": ((0, False, False, False, True), (1, False, False, False, True), (2, True, False, False, False))}),
    *(Case("SetSubtensor", ["6x5", source, [2]], "6x5", Meaning("scatter", {"fn": "copy", **attrs}),
           {"items": ((0, True, False, False, False),)}) for source, attrs in (("4x5", {"elements": 20}), ("4x?", {}), ("*",
               {}))),
    Case("MeshIndexing", ["6x5", "-"], "1x5", Meaning("gather"), {"items": ((0, False, False, False, True),)}),
    Case("SetSubtensor", ["6x5", "4x5"], "6x5", Meaning("scatter", {"fn": "copy", "elements": 20})),
    Case("IncrSubtensor", ["6x5"], "6x5", Meaning("scatter", {"fn": "add"})),
    Case("IndexingOneHot", ["6x5", "6"], "6x1", Meaning("gather"), {"table": "Axis", "axis": 1}),
    Case("IndexingSetOneHot", ["6x5", "6", "6x1"], "6x5", Meaning("scatter", inputs=(0, 1, 2)), {"table": "Axis", "axis": 1}),
    Case("IndexingRemap", ["6x5", "4x3x2"], "4x3", Meaning("gather"), {"table": "IndexingRemap"}),
    *(Case("Diag", [x], y, Meaning("gather"), {"table": "Diag", "k": k})
      for x, y, k in (("5", "5x5", 0), ("5", "7x7", -2), ("3x5", "3", 1), ("3x5", "1", -2), ("5x3", "2", 1))),
    # made of nothing
    Case("Linspace", ["1", "1", [9]], "9", Meaning("create", inputs=()), {}, "float32"),
    Case("Linspace", ["1", "1", "1"], "?", Meaning("create", inputs=()), {}, "float32"),
    Case("Eye", [[3, 5]], "3x5", Meaning("create", inputs=()), {"table": "Eye", "dtype": "int32"}, "int32"),
    Case("Dropout", ["3x5"], "3x5 15", Meaning("random", {"fn": "dropout"}, outputs=(0,)), {"table": "Dropout"}, "qint8 uint8"),
    # others
    Case("Elemwise", ["3x1", "1x5"], "3x5", Meaning("elementwise", {"fn": "add"}), {"table": "Elemwise", "mode": "ADD"}, "qint8"),
    *(Case("Elemwise", ["3x1"], "3x1", Meaning("elementwise", {"fn": "nan_check"}), {"table": "Elemwise", "mode": mode}, "bool")
      for mode in ("ISNAN", "ISINF")),
    Case("Elemwise", ["3x1"], "3x1", Meaning("unknown"), {"table": "Elemwise", "mode": "OTHER"}, "qint8"),
    Case("Where", ["3x1", "1x5", "1"], "3x5", Meaning("elementwise", {"fn": "where"}), {}, "float16"),
    Case("CheckNonFinite", ["3x5", "4"], "3x5 4 1", Meaning("elementwise", {"fn": "nan_check"}), {}, "float32 float32 int32"),
    *(Case(op, ["1", "3x5", "4"], "3x5 4", Meaning("unknown")) for op in ("CondExecMark", "CondExecMarkIfNeed")),
]  # fmt: skip


def shape_of(text: str) -> tuple[int | None, ...]:
    return tuple(None if extent == "?" else int(extent) for extent in text.split("x") if extent != "-")


@pytest.mark.parametrize("case", CASES, ids=[f"{at}-{case.op}" for at, case in enumerate(CASES)])
def test_an_operator_makes_and_means(case: Case, node: Callable[..., MegEngineCall]) -> None:
    row = ROWS[case.op]
    expected = [shape_of(text) for text in case.outs.split()]
    found = node(case.op, case.ins, len(expected), case.fields)
    row.infer(found)
    assert found.outs == expected
    if case.dtypes:
        row.infer_types(found)
        assert found.out_types == case.dtypes.split()
    meaning = meaning_of(row, found)
    if meaning.inputs is None and case.meaning.inputs is not None:
        meaning = meaning._replace(inputs=tuple(range(len(found.ins))))
    assert meaning == case.meaning._replace(attrs=dict(case.meaning.attrs))


REFUSED: list[tuple[str, list[str | list[int]], dict[str, Any]]] = [
    ("Convolution", [ONE, "11x6x3x2"], CONV), ("Convolution", ["8x7x5", WEIGHTS], CONV),
    ("Convolution3D", ["2x8x3x7x5", "11x6x2x3x2"], THREE), ("Convolution3D", [ONE, "11x8x2x3x2"], THREE),
    ("Convolution3D", ["2x3x7x5x8", "11x2x3x2x6"], {**THREE, "format": "NDHWC"}),
    ("Local", [ONE, "2x4x3x8x3x2x11"], CONV), ("GroupLocal", [ONE, "4x3x8x3x2x11"], CONV),
    ("MatrixMul", ["3x5", "5x7x4"], {"table": "MatrixMul", "format": "MK4"}),
    ("MatrixMul", ["3x5x4x4", "5x7"], {"table": "MatrixMul", "format": "MK4"}),
    ("MatrixMul", ["5", "5x7"], {"table": "MatrixMul"}), ("MatrixMul", ["3x5", "5"], {"table": "MatrixMul"}),
    ("MatrixInverse", ["7"], {}), ("MatrixInverse", ["7x7x5"], {}), ("MatrixInverse", ["5x7"], {}), ("MatrixInverse",
        ["?x5x7"], {}),
    ("LSTM", ["2x7", "1x2x11", "1x2x11", "9"], LAYERS), ("LSTM", ["5x2x7", "2x11", "1x2x11", "9"], LAYERS),
    ("RNNCell", ["5x2x7", "11x7"], {}), ("RNNCell", ["2x7", "11"], {}),
    ("LayerNorm", ["3x5"], {"table": "LayerNorm", "normalized_dim": 3}),
    ("AdaptivePooling", [ONE, [1, 2, 3]], {"table": "AdaptivePooling"}), ("ROIPooling", [ONE, "11x5", [1]],
        {"table": "ROIPooling"}),
    ("Resize", [ONE, [1, 2, 3]], {"table": "Resize"}), ("Resize3D", ["2x8x3x7x5", [1, 2]], {"table": "Resize3D"}),
    ("RelayoutFormat", [ONE], {"table": "RelayoutFormat", "mode": "OTHER"}),
    ("RelayoutFormat", [ONE], {"table": "RelayoutFormat", "mode": "NCHW4_NCHW"}),
    ("Dimshuffle", ["3x5"], {"pattern": (0, 2)}), ("Dimshuffle", ["3x5"], {"pattern": ("a", 0)}),
    ("Where", ["3x5", "3x5"], {}), ("Argsort", ["5"], {"table": "Argsort"}), ("TopK", ["3x5"], TOP),
    ("Subtensor", ["6x5", [1]], {"items": ((0, True, True, False, False),)}), ("Diag", ["2x3x4"], {"table": "Diag"}),
    ("MultiHeadAttn", ["2x5x12", "7x12", "2x7x12", "9"], HEADS), ("MultiHeadAttn", ["5x12", "2x7x12", "2x7x12", "9"], HEADS),
]  # fmt: skip


@pytest.mark.parametrize(("op", "ins", "fields"), REFUSED)
def test_what_does_not_fit_is_refused(
    op: str, ins: Any, fields: dict[str, Any], node: Callable[..., MegEngineCall]
) -> None:
    with pytest.raises(Mismatch):
        ROWS[op].infer(node(op, ins, 4, fields))


@pytest.mark.parametrize(
    ("given", "made", "kind"),
    [("float16", "float32", "copy"), ("float32", "qint8", "quantize"), ("qint8", "float32", "quantize")],
)
def test_a_conversion_computes_where_numbers_are_quantized(
    given: str, made: str, kind: str, node: Callable[..., MegEngineCall]
) -> None:
    found = node("TypeCvt", ["3x5"], 1, {"dtype": made})
    found.in_types[0] = given
    row = ROWS["TypeCvt"]
    row.infer_types(found)
    assert found.out_types == [made]
    same = node("TypeCvt", ["3x5", "1"], 1, {})
    row.infer_types(same)
    assert same.out_types == ["qint8"]
    assert row.meaning(found) == (kind, {})


@pytest.mark.parametrize("count", [0, 1 << 10, (1 << 10) + 1])
def test_layers_are_as_many_as_can_be_believed(count: int, node: Callable[..., MegEngineCall]) -> None:
    given = node("LSTM", ["5x2x7", "1x2x11", "1x2x11", "9"], 4, {**LAYERS, "num_layers": count})
    if count == 1 << 10:
        assert len(ROWS["LSTM"].meaning(given)[1]["layers"]) == count  # type: ignore[arg-type]
    else:
        with pytest.raises(Mismatch):
            ROWS["LSTM"].meaning(given)


@pytest.mark.parametrize(
    "op",
    """CondExecPred CondExecPredLogical CondExecMerge Loop ExternCOprRunner TensorRTRuntimeOpr AtlasRuntimeOpr CambriconRuntimeOpr
    MagicMindRuntimeOpr NvOf""".split(),
)
def test_what_only_data_or_other_code_decides_stays_unknown(op: str, node: Callable[..., MegEngineCall]) -> None:
    given = node(op, ["1", "3x5"], 1, {})
    with pytest.raises(Unknown):
        ROWS[op].infer(given)
    assert ROWS[op].meaning(given) == ("unknown", {})
