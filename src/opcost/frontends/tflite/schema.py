"""The words of TensorFlow Lite's schema: operators and element types by their numbers, and the fields of operators' options."""

from __future__ import annotations

import struct
from typing import Any

from opcost.frontends.flatbuffer import F32, I8, I32, U8, Table

DTYPES = dict(
    enumerate(
        """
        float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 complex128 uint64 resource variant uint32
        uint16 int4 bfloat16 int2 uint4 float8_e4m3fn float8_e5m2
        """.split()
    )
)

OPERATORS = dict(
    enumerate(
        """
        ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
        FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM
        MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS
        SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
        SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN
        EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2
        GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG
        SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT
        UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU
        SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE
        MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND
        SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL
        COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE
        READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU
        DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
        UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE
        STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
        STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS
        STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE
        STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH
        STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE
        STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE
        STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE
        STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
        """.split()
    )
)

_FIELDS = """
ADD SUB MUL DIV L2_NORMALIZATION: fused
CONCATENATION: axis fused
CONV_2D: padding stride_w stride_h fused dilation_w=1 dilation_h=1
DEPTHWISE_CONV_2D: padding stride_w stride_h multiplier fused dilation_w=1 dilation_h=1
TRANSPOSE_CONV: padding stride_w stride_h fused
CONV_3D CONV_3D_TRANSPOSE: padding stride_d stride_w stride_h fused dilation_d=1 dilation_w=1 dilation_h=1
AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D: padding stride_w stride_h filter_w filter_h fused
FULLY_CONNECTED: fused format keep_num_dims?
BATCH_MATMUL: adj_x? adj_y?
LSTM: fused cell_clip/f proj_clip/f kernel
UNIDIRECTIONAL_SEQUENCE_LSTM: fused cell_clip/f proj_clip/f time_major? asymmetric? diagonal?
BIDIRECTIONAL_SEQUENCE_LSTM: fused cell_clip/f proj_clip/f merge_outputs? time_major?=1
RNN: fused
UNIDIRECTIONAL_SEQUENCE_RNN: time_major? fused
BIDIRECTIONAL_SEQUENCE_RNN: time_major? fused merge_outputs?
SVDF: rank fused
LOCAL_RESPONSE_NORMALIZATION: radius
EMBEDDING_LOOKUP_SPARSE: combiner
RESHAPE: new_shape/I
SQUEEZE: squeeze_dims/I
GATHER: axis batch_dims
MEAN SUM REDUCE_PROD REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL: keep_dims?
SPLIT SPLIT_V: num_splits
STRIDED_SLICE: begin_mask end_mask ellipsis_mask new_axis_mask shrink_axis_mask offset?
CAST: from to
SPACE_TO_DEPTH DEPTH_TO_SPACE: block_size
PACK: count axis
UNPACK: num axis
ONE_HOT: axis
GELU: approximate?
REVERSE_SEQUENCE: seq_dim batch_dim
BUCKETIZE: boundaries/I
VAR_HANDLE: container/s shared_name/s
CALL: subgraph
IF: then else
WHILE STABLEHLO_WHILE: cond body
CALL_ONCE: init
REDUCE_WINDOW: function
STABLEHLO_COMPOSITE: name/s subgraph
STABLEHLO_CASE: branches/I
STABLEHLO_TRANSPOSE: permutation/L
STABLEHLO_CONCATENATE STABLEHLO_IOTA: axis/l
STABLEHLO_BROADCAST_IN_DIM: dims/L
STABLEHLO_SLICE: begins/L ends/L steps/L
STABLEHLO_DYNAMIC_SLICE: sizes/L
STABLEHLO_PAD: low/L high/L interior/L
STABLEHLO_REDUCE: dims/L body
STABLEHLO_REDUCE_WINDOW: window/L strides/L base/L dilations/L padding/L body
STABLEHLO_SORT: axis/l stable? comparator
STABLEHLO_DOT_GENERAL: batch_a/L batch_b/L summed_a/L summed_b/L
STABLEHLO_GATHER: offset_dims/L collapsed/L index_map/L index_axis/l sizes/L
STABLEHLO_SCATTER: sorted? window_dims/L inserted/L dims/L index_axis/l unique? body
STABLEHLO_CONVOLUTION: strides/L padding/L spread/L dilations/L reversal/? in_batch/l in_channels/l in_space/L kernel_in/l
    kernel_out/l kernel_space/L out_batch/l out_channels/l out_space/L groups/l batch_groups/l
"""
"""The fields of operators' options in the order of their slots: `name` a number, `name?` a flag, `name/form` something else."""

_BYTES = ("padding", "fused", "format", "kernel", "combiner", "from", "to", "merge_outputs", "time_major")
"""Numbers of one byte."""
_I64 = struct.Struct("<q")


def _parsed() -> dict[str, tuple[tuple[str, str, int], ...]]:
    found: dict[str, tuple[tuple[str, str, int], ...]] = {}
    for line in _FIELDS.replace("\n    ", " ").strip().splitlines():
        names, _, fields = line.partition(":")
        parsed = []
        for field in fields.split():
            described, _, default = field.partition("=")
            name, _, form = described.partition("/")
            form = "?" if name.endswith("?") else form or ("b" if name in _BYTES else "i")
            parsed.append((name.rstrip("?"), form, int(default or 0)))
        found.update(dict.fromkeys(names.split(), tuple(parsed)))
    return found


FIELDS = _parsed()


def options_of(op: str, table: Table | None) -> dict[str, Any]:
    """What the options of an operator say; where a field is not stored, its default."""
    fields = FIELDS.get(op, ())
    if table is None:
        return {name: default for name, form, default in fields if form in "bi?l"}
    return {name: _value(table, slot, form, default) for slot, (name, form, default) in enumerate(fields)}


def _value(table: Table, slot: int, form: str, default: int) -> Any:
    match form:
        case "?":
            return bool(table.number(slot, U8, default))
        case "b":
            return table.number(slot, I8, default)
        case "l":
            return table.number(slot, _I64, default)
        case "f":
            return table.real(slot, F32, default)
        case "s":
            return table.text(slot)
        case "I" | "L":
            return table.numbers(slot, "i" if form == "I" else "q", 4 if form == "I" else 8)
    return table.number(slot, I32, default)
