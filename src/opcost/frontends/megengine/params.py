"""The parameters of operators as the file stores them: which table holds which fields, in the order of their slots.

A field is written `name:type=default`; types are u (uint32), i (int32), q (uint64), f, d (floats), b (bool), t (element
type) and the name of an enumeration below. Enumerations travel as uint32 and are shown by name.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

from opcost.core.graph import Attr
from opcost.frontends.megengine.dtypes import name_of, read_dtype
from opcost.frontends.megengine.flatbuffer import F32, F64, I8, I32, U8, U32, U64, Table

_CONV_FORMATS = (
    "NCHW NHWC NHWCD4 NCHW4 NCHW8 NCHW32 NCHW88 NCHW44 NCHW44_DOT NCHW4_NCHW32 NCHW32_NCHW4 NCHW4_NCHW NHWC_NCHW "
    "NHWC_NCHW4_IC_SMALL NCHW_NCHW4_IC_SMALL CHWN4 NCHW64 NCHW4_NHWC"
)
_ELEMWISE = (
    "RELU ABS ACOS ASIN CEIL COS EXP EXPM1 FLOOR LOG LOG1P NEGATE SIGMOID SIN TANH ABS_GRAD ADD FLOOR_DIV MAX MIN MOD MUL "
    "POW SIGMOID_GRAD SUB SWITCH_GT0 TANH_GRAD TRUE_DIV LOG_SUM_EXP LT LEQ EQ SHL SHR COND_LEQ_MOV FUSE_MUL_ADD3 "
    "FUSE_MUL_ADD4 FUSE_ADD_RELU FUSE_ADD_SIGMOID FUSE_ADD_TANH FAST_TANH FAST_TANH_GRAD ROUND RMULH ATAN2 ERF ERFINV "
    "ERFC ERFCINV H_SWISH H_SWISH_GRAD FUSE_ADD_H_SWISH NOT AND OR XOR SILU SILU_GRAD GELU GELU_GRAD COND_LT_MOV NEQ "
    "ISNAN ISINF SINH COSH ASINH ACOSH ATANH TAN ASINH_GRAD ACOSH_GRAD ATANH_GRAD PRELU CLIP PRELU_GRAD SOFTPLUS "
    "SOFTPLUS_GRAD RELU6 RELU6_GRAD HSIGMOID HSIGMOID_GRAD LOGSIGMOID SQRT SQUARE SIGN"
)
_MULTI_TYPE = (
    "FUSE_MUL_ADD3_INT16x32x32x32 FUSE_MUL_ADD3_IXxF32xF32xI8 ROUND_SHR_SATURATE_IXxI8xI8 "
    "FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT16x16x16x8 FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT32x32x32x8 "
    "ROUND_SHR_SATURATE_IXxI8xI16 QADD QFUSE_ADD_RELU QMUL QMIN QMAX QSUB QTRUE_DIV QFUSE_ADD_SIGMOID QFUSE_ADD_TANH "
    "QRELU QABS QSIGMOID QEXP QTANH QFUSE_MUL_ADD3 QFAST_TANH QNEGATE QACOS QASIN QCEIL QCOS QEXPM1 QFLOOR QLOG QLOG1P "
    "QSIN QROUND QERF QERFINV QERFC QERFCINV QABS_GRAD QFLOOR_DIV QMOD QSIGMOID_GRAD QSWITCH_GT0 QTANH_GRAD QLT QLEQ QEQ "
    "QPOW QLOG_SUM_EXP QFAST_TANH_GRAD QATAN2 QCOND_LEQ_MOV QH_SWISH QFUSE_ADD_H_SWISH QH_SWISH_GRAD "
    "FUSE_MUL_ADD3_INT16xF32xF32xF32 MUL_INT16xF32xF32 FUSE_MUL_ADD3_UINT8xF32xF32xF32 QCOND_LT_MOV EQ NEQ LT LEQ ISNAN "
    "ISINF"
)
_RELAYOUT = (
    "NHWC_NHWCD4 NHWCD4_NHWC NHWC_NHWCD4I NCHW_NHWCD4 NCHW_NHWCD4I NHWCD4I_NCHW NHWCD4_NCHW INTER_WEIGHT_DENSE "
    "INTER_WEIGHT_DENSEI INTER_WEIGHT_GROUP INTER_WEIGHT_GROUPI INTER_WEIGHT_CHAN INTER_WEIGHT_CHANI "
    "INTER_WEIGHT_DENSEI_DOT INTER_WEIGHT_GROUPI_DOT NCHW4_CHWN4 CHWN4_NCHW4 NCHW_NCHW88_CONV_DENSE_WEIGHT "
    "NCHW_NCHW88_CONV_CHAN_WEIGHT NCHW_NCHW88_CONV_GROUP_WEIGHT NCHW_NCHW88 NCHW88_NCHW NCHW_NCHW4_IC_SMALL "
    "NCHW_NCHW4_IC_SMALL_CONV_DENSE_WEIGHT NCHW_NCHW4 NCHW4_NCHW NCHW_NCHW4_WEIGHT NCHW_NCHW64 NCHW64_NCHW NCHW_NHWC "
    "NHWC_NCHW NHWCD4I_NHWC"
)

ENUMS: dict[str, tuple[str, ...]] = {
    name: tuple(members.split())
    for name, members in {
        "ConvMode": "CROSS_CORRELATION CONVOLUTION",
        "Sparse": "DENSE GROUP",
        "Format": _CONV_FORMATS,
        "Format3D": "NCDHW NDHWC",
        "Compute": "DEFAULT FLOAT32",
        "Nonlinear": "IDENTITY RELU SIGMOID H_SWISH",
        "Pool": "MAX AVERAGE AVERAGE_COUNT_EXCLUDE_PADDING",
        "RoiPool": "MAX AVERAGE",
        "BnDim": "DIM_11HW DIM_1CHW DIM_1C11 DIM_111C",
        "Forward": "TRAINING INFERENCE",
        "Interpolation": "NEAREST LINEAR AREA CUBIC LANCZOS4",
        "Border": "REPLICATE REFLECT REFLECT_101 WRAP CONSTANT TRANSPARENT ISOLATED",
        "Elemwise": _ELEMWISE,
        "MultiType": _MULTI_TYPE,
        "MatrixFormat": "DEFAULT MK4 MK8 MK4_DOT N32K4_DOT",
        "Reduce": "SUM SUM_SQR PRODUCT MIN MAX MEAN",
        "ReduceType": "DEFAULT FLOAT_IO16xC32 FLOAT_O32xC32 FLOAT_O16xC32 QUINT_I8xO32 QINT_I8xO32",
        "Condition": "EQ NEQ LT LEQ GT GEQ",
        "Order": "ASCENDING DESCENDING",
        "TopK": "KTH_ONLY VALUE_IDX_NOSORT VALUE_IDX_SORTED",
        "Relayout": _RELAYOUT,
        "Padding": "REPLICATE REFLECT CONSTANT",
        "Cell": "IDENTITY RELU TANH",
        "Mask": "NO_MASK DEFAULT_MASK CUDNN_STYLE_MASK USER_DEFINED_MASK",
        "Tensors": "NONE ONLY_MASK ONLY_BIASKV ALL",
        "Collective": "REDUCE_SUM BROADCAST ALL_GATHER REDUCE_SCATTER_SUM ALL_REDUCE_SUM ALL_REDUCE_MAX ALL_REDUCE_MIN "
        "ALL_REDUCE_PROD GATHER SCATTER ALL_TO_ALL",
    }.items()
}

NO_AXIS = 2147483647
"""Stands where an axis is not given (Reduce, Cumsum)."""

_PLANE = "pad_h:u=0 pad_w:u=0 stride_h:u=1 stride_w:u=1"
_DILATED = f"{_PLANE} dilate_h:u=1 dilate_w:u=1"
_WINDOW = f"{_DILATED} window_h:u=3 window_w:u=3"
_QUANTIZED_RANGE = "qmin:i=-2147483648 qmax:i=2147483647"
_IMAGE = "imode:Interpolation=1"
_OFFSETS = " ".join(f"{side}_offset_dim{axis}:u=0" for side in ("front", "back") for axis in range(7))

_TABLES: dict[int, tuple[str, str]] = {
    1: ("Empty", ""),
    2: ("Axis", "axis:i=0"),
    3: ("Convolution", f"mode:ConvMode=0 {_DILATED} sparse:Sparse=0 format:Format=0 compute_mode:Compute=0"),
    4: ("MaskPropagate", f"{_PLANE} kernel_h:u=1 kernel_w:u=1 dilate_h:u=1 dilate_w:u=1"),
    6: (
        "ConvBias",
        f"nonlineMode:Nonlinear=0 mode:ConvMode=0 sparse:Sparse=0 format:Format=0 {_DILATED} compute_mode:Compute=0",
    ),
    8: ("Images2Neibs", _WINDOW),
    9: (
        "Pooling",
        "mode:Pool=0 pad_h:u=0 pad_w:u=0 stride_h:u=2 stride_w:u=2 window_h:u=2 window_w:u=2 format:Format=0",
    ),
    10: ("LRN", "n:u=5 k:f=2 alpha:f=1e-4 beta:f=0.75"),
    11: ("BN", "param_dim:BnDim=0 fwd_mode:Forward=0 epsilon:d=1e-4 avg_factor:d=1 scale:f=1 bias:f=0"),
    12: ("ROIPooling", "mode:RoiPool=0 scale:f=1"),
    13: ("WarpPerspective", f"{_IMAGE} bmode:Border=0 format:Format=0 border_val:f=0"),
    17: ("Elemwise", "mode:Elemwise=0"),
    18: ("ElemwiseMultiType", "mode:MultiType=0"),
    19: ("PowC", "exp:f=0"),
    20: ("MatrixMul", "transposeA:b=0 transposeB:b=0 compute_mode:Compute=0 format:MatrixFormat=0"),
    22: ("SVD", "full_matrices:b=0 compute_uv:b=1"),
    23: ("Reduce", f"mode:Reduce=0 axis:i={NO_AXIS} data_type:ReduceType=0"),
    24: ("Cumsum", f"axis:i={NO_AXIS} exclusive:b=1 reverse:b=0"),
    25: ("CondTake", "mode:Condition=0 val:f=0 eps:f=1e-6"),
    26: ("Argsort", "order:Order=0"),
    27: ("IndexingRemap", "is_non_overlapping:b=0"),
    28: ("Sleep", "device:b=1 host:b=0 seconds:d=0"),
    29: ("Linspace", "endpoint:b=1"),
    30: ("LinspaceFull", "start:d=0 stop:d=1 endpoint:b=1"),
    31: ("Eye", "k:i=0 dtype:t=0"),
    32: ("UniformRNG", "seed:q=0 dtype:t=0"),
    33: ("GaussianRNG", "seed:q=0 mean:f=0 std:f=1 dtype:t=0"),
    34: ("Flip", "vertical:b=0 horizontal:b=0"),
    35: ("Rotate", "clockwise:b=1"),
    37: ("CvtColor", "mode:u=0"),
    38: ("WarpAffine", f"{_IMAGE} border_mode:Border=0 border_val:f=0 format:Format=1"),
    39: ("GaussianBlur", "border_mode:Border=0 kernel_height:u=0 kernel_width:u=0 sigma_x:f=0 sigma_y:f=0"),
    40: ("Resize", f"{_IMAGE} format:Format=1"),
    41: (
        "Convolution3D",
        (
            "mode:ConvMode=0 pad_d:u=0 pad_h:u=0 pad_w:u=0 stride_d:u=1 stride_h:u=1 stride_w:u=1 dilate_d:u=1 dilate_h:u=1 "
            "dilate_w:u=1 sparse:Sparse=0 data_type:u=0 format:Format3D=0"
        ),
    ),
    44: ("TopK", "mode:TopK=0"),
    45: ("RelayoutFormat", "mode:Relayout=0 oc:u=0 group:u=1"),
    47: (
        "LocalShare",
        (
            f"mode:ConvMode=0 {_DILATED} spatial_groups_h:u=1 spatial_groups_w:u=1 sparse:Sparse=0 format:Format=0 "
            "computeMode:Compute=0"
        ),
    ),
    48: (
        "ROIAlign",
        (
            "mode:RoiPool=0 format:Format=0 spatial_scale:f=1 offset:f=0 pooled_height:u=1 pooled_width:u=1 sample_height:u=2 "
            "sample_width:u=2"
        ),
    ),
    49: (
        "DeformablePSROIPooling",
        "no_trans:b=1 spatial_scale:f=1 trans_std:f=1 pooled_h:u=1 pooled_w:u=1 part_size:u=1 sample_per_part:u=1",
    ),
    50: (
        "BatchConvBias",
        f"nonlineMode:Nonlinear=0 mode:ConvMode=0 {_DILATED} sparse:Sparse=0 format:Format=0 compute_mode:Compute=0",
    ),
    51: ("DType", "dtype:t=8"),
    52: ("PersistentOutputStorage", "share_key:i=-1"),
    53: ("OptionalAxis", "axis:i=-1"),
    54: ("OptionalAxisV1", "axis:i=7"),
    55: ("ExecutionPolicy", "strategy:u=1 workspace_limit:q=18446744073709551615"),
    56: ("AssertEqual", "maxerr:f=1e-4 verbose:b=0"),
    58: ("CollectiveComm", "mode:Collective=0"),
    59: ("CondExecPred", "mode:u=0 eps:f=1e-4"),
    60: ("CondExecPredLogical", "mode:u=0"),
    61: ("CondExecMark", "grad_mode:u=0 static_infer:u=0"),
    62: ("CondExecMerge", "nr_output:u=1 mode:u=0"),
    63: ("Host2DeviceCopy", "enable_value_infer:b=1 dump_default_value:b=0 allow_cpu_mem_fwd:b=1"),
    68: ("Remap", f"{_IMAGE} border_type:Border=0 format:Format=1 scalar:f=0"),
    69: ("NMSKeep", "iou_thresh:f=0 max_output:u=0"),
    70: ("AdaptivePooling", "mode:Pool=0 format:Format=0"),
    71: ("NvOf", "precision:u=1"),
    72: ("DctChannelSelect", "format:Format=0 fastImpl:u=0 dct_block_size:i=8"),
    73: ("FakeQuant", _QUANTIZED_RANGE),
    74: ("TQT", _QUANTIZED_RANGE),
    75: (
        "Correlation",
        "format:u=0 kernel_size:u=1 max_displacement:u=1 stride1:u=1 stride2:u=1 pad_size:u=0 is_multiply:b=1",
    ),
    76: ("LSQ", _QUANTIZED_RANGE),
    77: ("GammaRNG", "seed:q=0"),
    78: ("PoissonRNG", "seed:q=0"),
    79: ("PermutationRNG", "seed:q=0 dtype:t=4"),
    80: ("BetaRNG", "seed:q=0"),
    81: ("SlidingWindowTranspose", f"out_h:u=0 out_w:u=0 {_WINDOW}"),
    82: ("Padding", f"{_OFFSETS} padding_val:f=0 padding_mode:Padding=2"),
    83: ("ShuffleRNG", "seed:q=0"),
    84: ("CheckNonFinite", "scale:f=1"),
    85: ("LayerNorm", "affine:b=1 eps:f=1e-5 normalized_dim:q=1 normalized_size:q=1"),
    86: ("Dropout", "drop_prob:f=0 seed:q=0"),
    87: ("RNNCell", "nonlineMode:Cell=0"),
    88: (
        "RNN",
        "num_layers:u=1 bidirectional:b=0 bias:b=1 hidden_size:u=128 dropout:f=0 nonlineMode:Cell=0 fwd_mode:Forward=0",
    ),
    89: (
        "LSTM",
        "num_layers:u=1 bidirectional:b=0 bias:b=1 hidden_size:u=128 proj_size:u=0 dropout:f=0 fwd_mode:Forward=0",
    ),
    90: ("Softmax", "axis:i=-1"),
    91: ("Diag", "k:i=0"),
    92: ("GroupNorm", "affine:b=1 eps:f=1e-5 group:u=1 format:Format=0"),
    93: ("Fill", "value:f=0"),
    94: ("GeneralNorm", "affine:b=1 eps:f=1e-5 axis_start:q=0 axis_end:q=0"),
    95: (
        "MultiHeadAttn",
        (
            "num_heads:u=1 embeding_size:u=0 k_size:u=0 v_size:u=0 qproj_size:u=0 kproj_size:u=0 vproj_size:u=0 oproj_size:u=0 "
            "qbias:b=0 kbias:b=0 vbias:b=0 obias:b=0 sm_scaler:f=1 input_order:u=0 attn_mask_type:Mask=0 "
            "tensor_combination_type:Tensors=0 add_zero_attn:b=0 need_weights:b=0 reslink:b=0 training:b=1 seed:q=0 "
            "attn_prob:f=0 out_prob:f=0"
        ),
    ),
    96: ("Resize3D", f"{_IMAGE} format:Format3D=1 align_corners:b=0"),
    97: ("Cross", "axisa:i=-1 axisb:i=-1 axisc:i=-1"),
    98: ("ExponentialRNG", "seed:q=0"),
    99: ("MultinomialRNG", "seed:q=0 num_samples:q=1 replacement:b=0"),
}
"""Tables with plain fields by their tag in the union; the others have functions of their own below."""

_DIMSHUFFLE, _AXIS_ADD_REMOVE, _INDEX_MASK, _SERIALIZED_DTYPE = 64, 65, 66, 67
_MODIFY_ADD, _MODIFY_REMOVE = "add", "remove"


class Param(NamedTuple):
    """The parameters of an operator: the table's name and its fields."""

    table: str
    fields: dict[str, Attr]


class _Field(NamedTuple):
    name: str
    form: struct.Struct
    default: float
    members: tuple[str, ...] | None
    kind: str


_FORMS = {"u": U32, "i": I32, "q": U64, "f": F32, "d": F64, "b": U8, "t": I8}


@cache
def _fields(tag: int) -> tuple[_Field, ...]:
    found = []
    for text in _TABLES[tag][1].split():
        name, _, rest = text.partition(":")
        kind, _, default = rest.partition("=")
        members = ENUMS.get(kind)
        number = float(default) if kind in ("f", "d") else int(default)
        found.append(_Field(name, U32 if members else _FORMS[kind], number, members, kind))
    return tuple(found)


def read_param(tag: int, table: Table) -> Param:
    """The fields of a parameter table; a table that is not known has none, and its name says which it was."""
    if tag == _DIMSHUFFLE:
        return Param("Dimshuffle", {"pattern": table.numbers(0, "i", 4), "ndim": table.number(1, U32)})
    if tag == _AXIS_ADD_REMOVE:
        return Param("AxisAddRemove", {"desc": _axis_changes(table)})
    if tag == _INDEX_MASK:
        return Param("IndexDescMaskDump", {"items": _index_masks(table)})
    if tag == _SERIALIZED_DTYPE:
        found = read_dtype(table)
        return Param("DType", {"dtype": found.name, "scale": found.scale} if found else {})
    if tag not in _TABLES:
        return Param(f"tag{tag}", {})
    return Param(_TABLES[tag][0], {field.name: _value(field, slot, table) for slot, field in enumerate(_fields(tag))})


def _value(field: _Field, slot: int, table: Table) -> Attr:
    if field.kind in ("f", "d"):
        return table.real(slot, field.form, field.default)
    number = table.number(slot, field.form, int(field.default))
    if field.members is not None:
        return field.members[number] if number < len(field.members) else f"mode{number}"
    if field.kind == "b":
        return number != 0
    return name_of(number, table) if field.kind == "t" else number


def _axis_changes(table: Table) -> tuple[tuple[str, int], ...]:
    """Axes that are added or removed one after the other: structs of a method, three bytes of padding and an axis."""
    found = table.vector(0, 8)
    if found is None:
        return ()
    at, count = found
    buffer = table.buffer
    return tuple(
        (_MODIFY_REMOVE if buffer.number(I8, at + 8 * i) else _MODIFY_ADD, buffer.number(I32, at + 8 * i + 4))
        for i in range(count)
    )


_MASK = struct.Struct("<b4B")


def _index_masks(table: Table) -> tuple[tuple[int, bool, bool, bool, bool], ...]:
    """For each indexed axis: the axis, and whether begin, end, step and an index come as inputs."""
    found = table.vector(0, 5)
    if found is None:
        return ()
    at, count = found
    buffer = table.buffer
    masks = []
    for start in range(at, at + 5 * count, 5):
        axis, begin, end, step, index = buffer.data.unpack(_MASK, buffer.check(start, 5))
        masks.append((axis, begin != 0, end != 0, step != 0, index != 0))
    return tuple(masks)
