"""Arithmetic element by element, type conversion and quantization."""

from __future__ import annotations

from opcost.core.shapes import Mismatch, Shape
from opcost.frontends.megengine.dtypes import QUANTIZED
from opcost.frontends.megengine.node import Meaning, Node, Rule, alike, means, same, stretched

FUNCTIONS = {
    "RELU": "relu", "ABS": "abs", "ACOS": "acos", "ASIN": "asin", "CEIL": "ceil", "COS": "cos", "EXP": "exp",
    "EXPM1": "expm1", "FLOOR": "floor", "LOG": "log", "LOG1P": "log1p", "NEGATE": "neg", "SIGMOID": "sigmoid",
    "SIN": "sin", "TANH": "tanh", "ABS_GRAD": "abs_grad", "ADD": "add", "FLOOR_DIV": "floor_divide", "MAX": "max",
    "MIN": "min", "MOD": "remainder", "MUL": "mul", "POW": "pow", "SIGMOID_GRAD": "sigmoid_grad", "SUB": "sub",
    "SWITCH_GT0": "relu_grad", "TANH_GRAD": "tanh_grad", "TRUE_DIV": "div", "LOG_SUM_EXP": "logaddexp",
    "LT": "compare", "LEQ": "compare", "EQ": "compare", "NEQ": "compare", "SHL": "shift", "SHR": "shift",
    "COND_LEQ_MOV": "threshold", "COND_LT_MOV": "threshold", "FUSE_MUL_ADD3": "fma", "FUSE_MUL_ADD4": "mul_mul_add",
    "FUSE_ADD_RELU": "add_relu", "FUSE_ADD_SIGMOID": "add_sigmoid", "FUSE_ADD_TANH": "add_tanh",
    "FUSE_ADD_H_SWISH": "add_hardswish", "FAST_TANH": "tanh", "FAST_TANH_GRAD": "tanh_grad", "ROUND": "round",
    "RMULH": "mul_high", "ATAN2": "atan2", "ERF": "erf", "ERFINV": "erfinv", "ERFC": "erfc", "ERFCINV": "erfinv",
    "H_SWISH": "hardswish", "H_SWISH_GRAD": "hardswish_grad", "NOT": "logical", "AND": "logical", "OR": "logical",
    "XOR": "logical", "SILU": "silu", "SILU_GRAD": "silu_grad", "GELU": "gelu", "GELU_GRAD": "gelu_grad",
    "ISNAN": "nan_check", "ISINF": "nan_check", "SINH": "sinh", "COSH": "cosh", "ASINH": "asinh", "ACOSH": "acosh",
    "ATANH": "atanh", "TAN": "tan", "ASINH_GRAD": "asinh_grad", "ACOSH_GRAD": "asinh_grad", "ATANH_GRAD": "atanh_grad",
    "PRELU": "prelu", "CLIP": "clamp", "PRELU_GRAD": "prelu_grad", "SOFTPLUS": "softplus",
    "SOFTPLUS_GRAD": "softplus_grad", "RELU6": "relu6", "RELU6_GRAD": "hardtanh_grad", "HSIGMOID": "hardsigmoid",
    "HSIGMOID_GRAD": "hardsigmoid_grad", "LOGSIGMOID": "logsigmoid", "SQRT": "sqrt", "SQUARE": "square", "SIGN": "sign",
    # Integers with a fixed point.
    "ROUND_SHR_SATURATE": "round_shift_clamp", "FUSE_ADD_RMULH_ROUND_SHR_SATURATE": "add_mul_round_shift_clamp",
}  # fmt: skip
"""MegEngine's modes and our names of functions."""

_BOOLEAN = ("LT", "LEQ", "EQ", "NEQ", "ISNAN", "ISINF", "NOT", "AND", "OR", "XOR")
_RESULTS = {"x32": "int32", "xI8": "int8", "x8": "int8", "xI16": "int16", "xF32": "float32"}
"""The end of a mode that names its types, and the type of its result."""


def _meaning(node: Node) -> Meaning:
    mode = node.word("mode")
    fn = FUNCTIONS.get(mode)
    return Meaning("elementwise", {"fn": fn}) if fn else Meaning("unknown")


def _multi_type_meaning(node: Node) -> Meaning:
    """The quantized form of a function does what the function does; the types at the end of a mode say nothing more."""
    mode = node.word("mode")
    plain = mode if mode in FUNCTIONS else mode[1:] if mode.startswith("Q") else mode.rpartition("_")[0]
    fn = FUNCTIONS.get(plain)
    return Meaning("elementwise", {"fn": fn}) if fn else Meaning("unknown")


def _multi_type_dtypes(node: Node) -> list[str]:
    mode = node.word("mode")
    if mode in _BOOLEAN:
        return ["bool"]
    for end, dtype in _RESULTS.items():
        if mode.endswith(end) and not mode.startswith("Q"):
            return [dtype]
    return [node.dtypes[0]]


def _dtypes(node: Node) -> list[str]:
    if node.word("mode") in ("ISNAN", "ISINF"):
        return ["bool"]
    return [node.dtypes[0]]


# -- types -------------------------------------------------------------------------------------------------------------


def _conversion(node: Node) -> Meaning:
    """Between numbers and their quantized form something is computed, between other types not."""
    quantized = {node.dtypes[0], node.out_dtypes[0]} & QUANTIZED
    return Meaning("quantize") if quantized else Meaning("copy")


def _where_shapes(node: Node) -> list[Shape]:
    if len(node.shapes) < 3:
        raise Mismatch("a mask and two tensors are needed")
    return stretched(node)


def _check_shapes(node: Node) -> list[Shape]:
    """Every input scaled, and one number that says whether all was finite."""
    return [*node.shapes, (1,)]


def _check_dtypes(node: Node) -> list[str]:
    return [*(["float32"] * len(node.shapes)), "int32"]


FAKE_QUANTIZE = means("elementwise", fn="fake_quantize")

RULES = {
    "Elemwise": Rule(stretched, _meaning, _dtypes),
    "ElemwiseMultiType": Rule(stretched, _multi_type_meaning, _multi_type_dtypes),
    "PowC": Rule(same, means("elementwise", fn="pow")),
    "TypeCvt": Rule(same, _conversion, lambda node: [node.word("dtype") or node.dtypes[0]]),
    "AddUpdate": Rule(same, means("elementwise", fn="mul_mul_add")),
    "AffineInt": Rule(stretched, means("elementwise", fn="fma")),
    "FakeQuant": Rule(same, FAKE_QUANTIZE),
    "TQT": Rule(same, FAKE_QUANTIZE),
    "LSQ": Rule(same, FAKE_QUANTIZE),
    "FakeQuantBackward": Rule(alike(1), means("elementwise", fn="fake_quantize_grad")),
    "MaskedFill": Rule(same, means("elementwise", fn="masked_fill")),
    "Where": Rule(_where_shapes, means("elementwise", fn="where"), lambda node: [node.dtypes[1]]),
    "CheckNonFinite": Rule(_check_shapes, means("elementwise", fn="nan_check"), _check_dtypes),
}
