"""What single operators of Core ML's programs cost, and what comes out of them: one row for every operator."""

from __future__ import annotations

from typing import Any

import pytest
from node_rows import P, Q, R, Row, S, Tensor, c, check, check_refused, check_with_less, missing, n, w, x

from opcost.frontends.coreml.walk import TABLE

N, C = P * Q, 4
XY, CUBE = x(P, Q), x(P, Q, R)
ALL = P * Q * R
TRUTH = x(P, Q, dtype="bool")


def ints(*values: int) -> Tensor:
    return c(*values, dtype="int32")


def row(op: str, ins: dict[str, Any], *outs: Tensor, attrs: dict[str, Any] | None = None, **costs: Any) -> Row:
    """An operator whose arguments have names; several tensors under one name are a list. `read` are names here."""
    tensors: list[Tensor] = []
    places: dict[str, tuple[int, ...]] = {}
    for name, given in ins.items():
        several = given if isinstance(given, list) else [given]
        places[name] = tuple(range(len(tensors), len(tensors) + len(several)))
        tensors += several
    if "read" in costs:
        costs["read"] = [place for name in costs["read"].split() for place in places[name]]
    return Row(op, tensors, outs, {"@": places, **(attrs or {})}, **costs)


UNARY = {
    1: "abs acos asin atan ceil cos erf exp exp2 floor log relu round rsqrt sign sin sqrt square tan inverse neg",
    2: "relu6 threshold thresholded_relu clip clamped_relu linear_activation", 3: "leaky_relu softsign",
    4: "cosh sinh elu sigmoid sigmoid_hard", 5: "silu softplus softplus_parametric tanh scaled_tanh atanh asinh acosh",
}  # fmt: skip
BINARY = {1: "add sub mul real_div pow maximum minimum", 2: "floor_div", 4: "mod"}
TRUTHS = "logical_and logical_or logical_xor equal not_equal greater greater_equal less less_equal"
CONTENTS = {
    "maximum": (7, 3), "minimum": (2, 2), "add": (9, 5), "real_div": (3, 1), "floor_div": (3, 1), "not_equal": (1, 1),
        "greater_equal": (1, 1),
    "less_equal": (0, 0), "logical_and": (1, 1), "logical_or": (1, 1),
}  # fmt: skip
"""What comes out of 7 and 3 with 2, element by element."""

ELEMENTS = [
    *(row(op, {"x": XY}, XY, flops=each * N) for each, names in UNARY.items() for op in names.split()),
    row("logical_not", {"x": TRUTH}, TRUTH, flops=N),
    *(row(op, {"x": XY, "y": x(Q)}, XY, flops=each * N) for each, names in BINARY.items() for op in names.split()),
    *(row(op, {"x": x(P, 1), "y": x(Q)}, TRUTH, flops=N) for op in TRUTHS.split()),
    *(row(op, {"x": ints(7, 3), "y": ints(2)}, c(*found, dtype="bool" if max(found) < 2 else "int32"),
        flops=2 * (2 if op == "floor_div" else 1))
      for op, found in CONTENTS.items()),
    *(row("gelu", {"x": XY}, XY, attrs=mode, flops=each * N) for mode, each in (
        ({}, 5), ({"mode": "EXACT"}, 5), ({"mode": "TANH_APPROXIMATION"}, 13), ({"mode": "SIGMOID_APPROXIMATION"}, 6))),
    row("prelu", {"x": x(P, C, Q), "alpha": w(C)}, x(P, C, Q), flops=3 * P * C * Q),
    row("select", {"cond": x(P, 1, dtype="bool"), "a": x(Q), "b": XY}, XY, flops=N),
    row("select", {"cond": ints(1, 0), "a": ints(5, 6), "b": ints(7, 8)}, ints(5, 8), flops=2),
    row("cast", {"x": XY}, x(P, Q, dtype="float16")),
    *(row(op, {"x": XY}, XY, flops=5 * N) for op in ("softmax", "log_softmax")),
    row("quantize", {"input": XY, "scale": x(), "zero_point": x(dtype="int8")}, x(P, Q, dtype="int8"), flops=5 * N),
    row("dequantize", {"input": x(P, Q, dtype="int8"), "scale": x()}, XY, flops=2 * N),
]  # fmt: skip

ONE = {"strides": (2, 1), "dilations": (1, 2), "pad_type": "custom", "pad": (1, 0, 0, 1)}
"""Of 7 x 5 by 3 x 2: (7 + 1 - 3) // 2 + 1 = 3 by 5 + 1 - 3 + 1 = 4."""
IMAGE, MAP = x(2, C, R, Q), x(2, S, 3, 4)
SWEPT = 2 * S * 12


def cell(op: str, gates: int, each: int, ways: int = 1, biases: int = 0, **attrs: Any) -> Row:
    """Q steps of 2 sequences of R features, S units; one bias for every gate."""
    ins: dict[str, Any] = {"x": x(Q, 2, R), "weight_ih": w(gates * S, R), "weight_hh": w(gates * S, S)}
    names = ("bias", "bias_back", "input_bias")[:biases]
    ins |= {name: w(gates * S) for name in names}
    first = Q if attrs.get("output_sequence") else 1
    outs = [x(first, 2, ways * S), *[x(2, ways * S)] * (2 if op == "lstm" else 1)]
    if ways == 2:
        attrs["direction"] = "bidirectional"
    return row(
        op,
        ins,
        *outs,
        attrs=attrs,
        macs=ways * Q * 2 * gates * S * (R + S),
        flops=Q * 2 * S * (ways * each + biases * gates),
    )


PRODUCTS = [
    row("conv", {"x": IMAGE, "weight": w(S, C, 3, 2), "bias": w(S)}, MAP, attrs=ONE, macs=SWEPT * C * 6, flops=SWEPT),
    row("conv", {"x": x(C, R, Q), "weight": w(S, 2, 3, 2)}, x(S, 4, Q), attrs={**ONE, "pad_type": "same"},
    macs=S * 4 * Q * 2 * 6),
    row("conv", {"x": x(2, C, R), "weight": w(S, C, 3)}, x(2, S, 5), attrs={"pad": (9, 9)}, macs=2 * S * 5 * C * 3),
    # each element of the input meets the kernel: (7 - 1) · 2 + 3 - 1 by (5 - 1) + 2 · (2 - 1) + 1 - 1
    row("conv_transpose", {"x": IMAGE, "weight": w(C, S, 3, 2), "bias": w(S)}, x(2, 2 * S, 14, 6), attrs={**ONE, "groups": 2},
    macs=2 * C * R * Q * S * 6,
        flops=2 * 2 * S * 14 * 6),
    row("conv_transpose", {"x": IMAGE, "weight": w(C, S, 3, 2)}, x(2, S, 15, 6), attrs={**ONE, "output_shape": (2, S, 15, 6)},
    macs=2 * C * R * Q * S * 6),
    row("linear", {"x": x(2, P, Q), "weight": w(S, Q), "bias": w(S)}, x(2, P, S), macs=2 * P * Q * S, flops=2 * P * S),
    row("linear", {"x": x(P, Q, 1, 1), "weight": w(S, Q)}, x(P, S, 1, 1), macs=P * Q * S),
    row("linear", {"x": x(P, 1, 1, 1), "weight": w(S, 1)}, x(P, 1, 1, S), macs=P * S),
    row("linear", {"x": x(1, 1), "weight": w(S, 1)}, x(1, S), macs=S),
    row("linear", {"x": x(Q, 1, 1), "weight": w(S, Q)}, x(S, 1, 1), macs=Q * S),
    # an extent that is not known is that of the weight, unless the features may be before it
    *(row("linear", {"x": x(2, other, None), "weight": w(S, Q)}, x(2, other, S), open=True) for other in (1, P)),
    row("linear", {"x": x(2, Q, 1, None), "weight": w(S, Q)}, Tensor(None), open=True),
    *(row("matmul", {"x": x(2, *a), "y": x(2, *b)}, x(2, P, R), attrs=turned, macs=2 * P * Q * R) for a, b, turned in (
        ((P, Q), (Q, R), {}), ((Q, P), (Q, R), {"transpose_x": 1}), ((P, Q), (R, Q), {"transpose_y": 1}))),
    row("matmul", {"x": x(Q), "y": x(Q, R)}, x(R), attrs={"transpose_x": 1}, macs=Q * R),
    row("matmul", {"x": x(Q, P), "y": x(Q, R)}, x(P, R), attrs={"transpose_x": 1}, macs=P * Q * R),
    row("conv", {"x": IMAGE, "weight": w(S, C, 3, 2)}, x(2, S, 5, 4), macs=2 * S * 20 * C * 6),
    row("matmul", {"x": x(P, Q), "y": w(Q, R), "bias": w(R)}, x(P, R), macs=P * Q * R, flops=P * R),
    row("einsum", {"values": [x(2, P, Q), x(2, Q, R)]}, x(2, P, R), attrs={"equation": "bij,bjk->bik"}, macs=2 * P * Q * R),
    row("einsum", {"values": [x(P, Q)]}, x(P), attrs={"equation": "ij->i"}, flops=N),
    row("scaled_dot_product_attention", {"query": x(2, C, Q, 6), "key": x(2, C, R, 6), "value": x(2, C, R, 3),
    "attn_mask": x(Q, R)}, x(2, C, Q, 3),
        macs=2 * C * Q * R * 9, flops=2 * C * Q * R * 7),
    row("scaled_dot_product_attention", {"query": x(2, C, Q, 6), "key": x(2, C, R, 6), "value": x(2, C, R, 3)}, x(2, C, Q, 3),
        macs=2 * C * Q * R * 9, flops=2 * C * Q * R * 6),
    cell("lstm", 4, 30), cell("lstm", 4, 30, 2, output_sequence=1), cell("lstm", 4, 30, biases=1, output_sequence=1),
    cell("lstm", 4, 30, 2, biases=2),
    # in neural networks all tensors have five axes
    row("lstm", {"x": x(Q, 2, R, 1, 1), "weight_ih": w(4 * S, R), "weight_hh": w(4 * S, S)}, x(1, 2, S, 1, 1),
        *[x(1, 2, S, 1, 1)] * 2, macs=Q * 2 * 4 * S * (R + S), flops=Q * 2 * S * 30),
    cell("gru", 3, 21), cell("gru", 3, 21, biases=3, output_sequence=1), cell("rnn", 1, 6), cell("rnn", 1, 2, biases=1,
    activation="relu"),
]  # fmt: skip

MOVES = [
    *(row(op, {name: XY}, XY, moved=0) for op in ("identity", "read_state") for name in ("x", "input")),
    *(row(op, {"state": XY, "value": XY}, XY, read="value") for op in ("coreml_update_state", "write_state")),
    row("reshape", {"x": CUBE, "shape": ints(0, -1)}, x(P, Q * R), moved=0),
    row("reshape_like", {"x": CUBE}, Tensor(None), moved=0),
    row("flatten2d", {"x": CUBE}, x(P, Q * R), moved=0),
    row("flatten2d", {"x": CUBE}, x(N, R), attrs={"axis": 2}, moved=0),
    row("flatten2d", {"x": CUBE}, x(N, R), attrs={"axis": -1}, moved=0),
    row("squeeze", {"x": x(1, P, 1)}, x(P), moved=0),
    row("squeeze", {"x": x(1, P, 1), "axes": ints(-1)}, x(1, P), moved=0),
    row("expand_dims", {"x": XY, "axes": ints(0, -1)}, x(1, P, Q, 1), moved=0),
    row("transpose", {"x": CUBE, "perm": ints(1, -1, 0)}, x(Q, R, P), read="x"),
    row("concat", {"values": [XY, x(P, R)]}, x(P, Q + R), attrs={"axis": -1}),
    row("concat_image", {"values": [x(C, R, Q), x(S, R, Q)]}, x(C + S, R, Q), attrs={"axis": -5}),
    row("stack", {"values": [XY, XY]}, x(P, 2, Q), attrs={"axis": 1}),
    row("concat_image", {"values": [x(C, R, Q)]}, x(C, R, Q), attrs={"axis": -5}),
    row("stack", {"values": [n(3, "int32"), n(4, "int32")]}, ints(3, 4), attrs={"axis": 0}),
    row("stack", {"values": [n(3, "int32")]}, ints(3), attrs={"axis": 0}),
    row("split", {"x": x(P, 10)}, x(P, 5), x(P, 5), attrs={"axis": 1, "num_splits": 2}),
    row("split", {"x": x(P, 10)}, x(P, 10), attrs={"axis": 1, "num_splits": 1}),
    row("split", {"x": x(P, 10), "split_sizes": ints(3, 7)}, x(P, 3), x(P, 7), attrs={"axis": -1}, read="x"),
    # x[1:, :, 2]; every second from behind; places that are masked
    row("slice_by_index", {"x": CUBE, "begin": ints(1, 0, 2), "end": ints(0, 0, 3)}, x(2, Q),
        attrs={"end_mask": (1, 1, 0), "squeeze_mask": (0, 0, 1)}, read="x"),
    row("slice_by_index", {"x": CUBE, "begin": ints(9, 4, 0), "end": ints(2, 0, 3)}, x(2, 2, 2), attrs={"begin_mask": (1, 0,
    0), "stride": (1, -2, 2)}, read="x"),
    row("slice_by_index", {"x": ints(2, 3, 5), "begin": ints(1), "end": ints(2)}, n(3, "int32"), attrs={"squeeze_mask": (1,)},
    read="x"),
    row("slice_by_index", {"x": CUBE, "begin": x(3, dtype="int32"), "end": ints(2, 3, 4)}, x(None, None, None), open=True),
    row("slice_by_index", {"x": CUBE, "begin": x(3, dtype="int32"), "end": ints(2, 3, 4)}, x(Q, R), attrs={"begin_mask": (0, 1,
    1), "end_mask": (0, 1, 1), "squeeze_mask": (1, 0, 0)}, read="x"),
    row("slice_by_size", {"x": CUBE, "begin": ints(1, 0, 2), "size": ints(2, -1, 3)}, x(2, Q, 3), read="x"),
    row("slice_by_size", {"x": CUBE, "begin": ints(1, 2, 2), "size": ints(-1, -1, 3)}, x(2, 3, 3), read="x"),
    row("slice_image", {"x": x(8, R, Q)}, x(3, R, Q), attrs={"axis": -3, "begin": 1, "end": -1, "stride": 3}),
    row("slice_image", {"x": x(8, R, Q)}, x(2, R, Q), attrs={"axis": -4, "begin": 1, "end": 3}),
    row("slice_update", {"x": CUBE, "update": x(2, Q, R), "begin": ints(0, 0, 0)}, CUBE),
    row("pad", {"x": CUBE, "pad": ints(1, 2, 0, 3)}, x(P, Q + 3, R + 3), read="x"),
    row("tile", {"x": XY, "reps": ints(2, 3)}, x(2 * P, 3 * Q), read="x"),
    *(row(op, {"x": x(2, 12, R, Q)}, x(2, 3, 2 * R, 2 * Q), attrs=size) for op in ("depth_to_space", "pixel_shuffle")
      for size in ({"block_size": 2}, {"upscale_factor": 2})),
    *(row(op, {"x": x(2, C, 6, 4)}, x(2, 4 * C, 3, 2), attrs=size) for op in ("space_to_depth", "pixel_unshuffle")
      for size in ({"block_size": 2}, {"downscale_factor": 2})),
    *(row(op, {"x": CUBE}, Tensor(None), open=True) for op in ("space_to_batch", "batch_to_space", "sliding_windows",
        "permute_sequences")),
    *(row(op, {"x": CUBE}, CUBE) for op in ("reverse", "reverse_sequence", "band_part")),
    row("crop", {"x": x(2, C, R, Q)}, x(2, C, R, 4), attrs={"crop_width": (0, 1)}),
    row("slice_by_index", {"x": CUBE, "end": ints(2, 3, 4)}, x(2, 3, 4), read="x"),
    row("fill", {"shape": ints(2)}, ints(0, 0), read=""),
    row("slice_update", {"x": CUBE, "update": x(1, 1, 2), "begin": ints(0, 0, 0)}, CUBE),
    row("crop", {"x": x(2, C, R, Q)}, x(2, C, 4, 4), attrs={"crop_height": (1, 2), "crop_width": (0, 1)}),
    row("gather", {"x": CUBE, "indices": x(2, dtype="int32")}, x(P, 2, R), attrs={"axis": 1}, moved=4 * 2 * P * 2 * R + 8),
    row("gather", {"x": CUBE, "indices": x(P, 2, dtype="int32")}, x(P, 2, R), attrs={"axis": 1, "batch_dims": 1},
    moved=4 * 2 * P * 2 * R + 8 * P),
    row("gather_along_axis", {"x": CUBE, "indices": x(P, 2, R, dtype="int32")}, x(P, 2, R), moved=4 * 3 * P * 2 * R),
    row("gather_nd", {"x": CUBE, "indices": x(4, 2, dtype="int32")}, x(4, R), moved=4 * 2 * 4 * R + 4 * 8),
    row("gather_nd", {"x": CUBE, "indices": x(P, 1, dtype="int32")}, x(P, R), attrs={"batch_dims": 1},
    moved=4 * 2 * P * R + 4 * P),
    *(row(op, {"data": CUBE, "indices": x(2, dtype="int32"), "updates": x(2, Q, R)}, CUBE, attrs={"mode": mode},
        flops=each * 2 * Q * R)
      for op in ("scatter", "scatter_along_axis", "scatter_nd")
      for mode, each in (("add", 1), ("sub", 1), ("mul", 1), ("div", 1), ("max", 1), ("min", 1), ("update", 0))),
    row("non_zero", {"x": XY}, x(None, 2, dtype="int32"), open=True),
    row("one_hot", {"indices": x(P, 2, dtype="int32"), "one_hot_vector_size": n(Q, "int32")}, x(P, 2, Q), read=""),
    row("one_hot", {"indices": x(P, 2, dtype="int32"), "one_hot_vector_size": n(Q, "int32")}, x(P, Q, 2), attrs={"axis": 1},
    read=""),
    row("one_hot", {"indices": x(P, 2, dtype="int32"), "one_hot_vector_size": Tensor((), "int32", (None,))}, x(P, 2, None),
        open=True),
    row("shape", {"x": CUBE}, ints(P, Q, R), read=""),
    row("fill", {"shape": ints(2), "value": n(9, "int32")}, ints(9, 9), read=""),
    row("fill_like", {"ref_tensor": XY}, XY, read=""),
    row("range_1d", {"start": n(1, "int32"), "end": n(9, "int32"), "step": n(3, "int32")}, ints(1, 4, 7), read=""),
    row("broadcast_to", {"x": x(P, 1), "shape": ints(2, 1, Q)}, x(2, P, Q), read="x"),
    *(row(op, {"ls": XY}, Tensor(None), open=True) for op in ("make_list", "list_read", "list_write", "list_gather",
        "list_scatter", "list_length")),
    row("reshape_image", {"x": x(2, C, R, Q)}, x(2, C * R * Q, 1, 1), attrs={"shape": (-1, 1, 1)}, moved=0),
    row("reshape_image", {"x": x(2, C, R, Q)}, x(1, 2, C, R * Q), attrs={"shape": (1, 2, C, R * Q)}, moved=0),
    row("reshape_image", {"x": x(C, R, Q)}, x(C * R * Q, 1, 1), attrs={"shape": (-1, 1, 1)}, moved=0),
    row("transpose_image", {"x": x(C, R, Q)}, x(R, Q, C), attrs={"perm": (1, 2, 0)}),
    row("transpose_image", {"x": x(2, C, R, Q)}, x(2, R, Q, C), attrs={"perm": (1, 2, 0)}),
    row("embed", {"x": w(S, Q), "indices": x(P, 1, dtype="int32")}, x(P, Q), moved=4 * 2 * N + 4 * P),
    row("embed", {"x": w(S, Q), "indices": x(P, 2, dtype="int32")}, x(P, 2, Q), moved=4 * 2 * 2 * N + 8 * P),
    row("embed", {"x": w(S, Q), "indices": x(P, 1, 1, 1, dtype="int32")}, x(P, Q, 1, 1), moved=4 * 2 * N + 4 * P),
]  # fmt: skip

REDUCED = {
    (1, 0): "sum max min prod log_sum", (1, 1): "mean", (2, 1): "l1_norm l2_norm sum_square", (4, 2): "log_sum_exp",
}  # fmt: skip
V, E4 = x(2, C, R, Q), 2 * C * R * Q
REDUCTIONS = [
    *(row(f"reduce_{name}", {"x": CUBE, "axes": ints(1)}, x(P, R), flops=each * ALL + last * P * R, read="x")
      for (each, last), names in REDUCED.items() for name in names.split()),
    row("reduce_sum", {"x": CUBE}, x(1, 1, 1), attrs={"keep_dims": 1}, flops=ALL),
    *(row(op, {"x": CUBE}, x(P, Q, dtype="int32"), flops=ALL) for op in ("reduce_argmax", "reduce_argmin")),
    row("reduce_argmax", {"x": CUBE}, x(1, Q, R, dtype="int32"), attrs={"axis": 0, "keep_dims": 1}, flops=ALL),
    row("cumsum", {"x": CUBE}, CUBE, flops=ALL),
    row("batch_norm", {"x": V, "gamma": w(C), "beta": w(C), "mean": w(C), "variance": w(C)}, V, flops=4 * E4),
    row("batch_norm", {"x": V, "mean": w(C), "variance": w(C)}, V, flops=2 * E4),
    row("instance_norm", {"x": V, "gamma": w(C), "beta": w(C)}, V, flops=8 * E4),
    row("layer_norm", {"x": V, "gamma": w(Q)}, V, flops=7 * E4),
    row("rms_norm", {"x": V, "gamma": w(Q)}, V, flops=4 * E4),
    row("l2_norm", {"x": V}, V, flops=3 * E4),
    row("local_response_norm", {"x": V}, V, flops=(1 + 5) * E4),
    row("local_response_norm", {"x": V}, V, attrs={"size": 5}, flops=(5 + 5) * E4),
    *(row(op, {"x": V}, x(2, C, 3, 4), attrs={**ONE, "kernel_sizes": (3, 2)}, flops=2 * C * 12 * each)
      for op, each in (("max_pool", 6), ("avg_pool", 6), ("l2_pool", 13))),
    row("max_pool", {"x": V}, x(2, C, 4, 4), attrs={"kernel_sizes": (2, 2), "strides": (2, 1), "ceil_mode": 1},
    flops=2 * C * 16 * 4),
    *(row(op, {"x": V}, x(2, C, 1, 1), attrs={"kernel_sizes": (1, 1), "global": 1}, flops=2 * C * R * Q) for op in ("max_pool",
        "avg_pool")),
    row("upsample_nearest_neighbor", {"x": V}, x(2, C, 2 * R, 3 * Q), attrs={"scale_factor_height": (2,),
    "scale_factor_width": (3,)}),
    row("upsample_bilinear", {"x": V}, x(2, C, 2 * R, Q), attrs={"scale_factor_height": (2.0,)}, flops=9 * 2 * E4),
    *(row(op, {"x": V}, x(2, C, 3, 4), attrs={"target_size_height": 3, "target_size_width": 4}, flops=each * 2 * C * 12)
      for op, each in (("resize_nearest_neighbor", 0), ("resize_bilinear", 9))),
    *(row("resize", {"x": V, "shape": ints(3, 4)}, x(2, C, 3, 4), attrs={"interpolation_mode": mode}, flops=each * 2 * C * 12,
        read="x")
      for mode, each in (("LINEAR", 9), ("NEAREST_NEIGHBOR", 0))),
    *(row(op, {"x": V, name: x(2, 3)}, Tensor(None), open=True) for op, name in (("crop_resize", "roi"), ("resample",
        "coordinates"), ("affine", "transform_matrix"))),
    # four elements under each place, a product and an addition of each
    row("resample", {"x": V, "coordinates": x(2, 3, 2)}, x(2, C, 3, 1), declared=True, flops=2 * 4 * 2 * C * 3,
        moved=4 * (min(4 * 2 * C * 3, E4) + 12 + 2 * C * 3)),
    row("topk", {"x": CUBE}, x(P, Q, 3), x(P, Q, 3, dtype="int32"), attrs={"k": 3}, flops=2 * ALL),
    row("topk", {"x": CUBE}, x(1, Q, R), x(1, Q, R, dtype="int32"), attrs={"axis": 0}, flops=ALL),
    row("argsort", {"x": CUBE}, x(P, Q, R, dtype="int32"), flops=3 * ALL),
    *(row("argsort", {"x": x(P, length)}, x(P, length, dtype="int32")) for length in (0, 1)),
    *(row("non_maximum_suppression", {"boxes": x(2, boxes, 4), "scores": x(2, boxes, Q)}, x(2, 3, 4), x(2, 3, Q), declared=True,
          flops=each * 2 * boxes * Q) for boxes, each in ((0, 0), (1, 0), (S, 4))),
    row("non_maximum_suppression", {"boxes": x(2, S, 4), "scores": x(2, S, Q)}, Tensor(None), open=True),
    *(row(op, {"shape": ints(P, Q)}, XY, flops=N, read="") for op in ("random_normal", "random_uniform", "random_bernoulli",
        "random_categorical")),
    row("random_normal", {"shape": x(2, dtype="int32")}, Tensor(None), open=True),
    row("classify", {"probabilities": x(S)}, x(dtype="uint8"), x(S), flops=S),
]  # fmt: skip

ROWS = [*ELEMENTS, *PRODUCTS, *MOVES, *REDUCTIONS]


@pytest.mark.parametrize("row", ROWS, ids=[f"{at}-{row.op}" for at, row in enumerate(ROWS)])
def test_an_operator_costs_what_it_computes(row: Row) -> None:
    check(row, TABLE, typed=True)
    check_with_less(row, TABLE, typed=True)


FAULTS = [
    (row("split", {"x": x(P, 10)}, x(P, 5), attrs={"axis": 1, "num_splits": 2}), "it is split into 2, and has 1 results"),
    (row("split", {"x": x(P, 10)}, x(P, 5), attrs={"axis": 1, "num_splits": 0}), "it is split into 0, and has 1 results"),
    (row("linear", {"x": XY, "weight": w(S, R)}, x(P, S)), f"rows of ({Q},) elements do not fit a weight of {R}"),
    (row("pixel_shuffle", {"x": V}, V), "its attributes do not fit its inputs"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "message"), FAULTS, ids=[row.op for row, _ in FAULTS])
def test_an_operator_refuses_what_does_not_fit(row: Row, message: str) -> None:
    check_refused(row, TABLE, message, typed=True)


def test_every_operator_has_a_row() -> None:
    assert missing(ROWS, TABLE, {}) == set()
