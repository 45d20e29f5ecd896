"""Arithmetic element by element: each operator's name in the table of FLOPs per element."""

from __future__ import annotations

from opcost.frontends.aten.call import Call, Translation, always, on

_FUNCTIONS: dict[str, tuple[str, ...]] = {
    # arithmetic
    "mul": ("mul", "multiply"),
    "div": ("true_divide",),
    "neg": ("neg", "negative"),
    "abs": ("abs", "absolute"),
    "sign": ("sign", "sgn", "signbit"),
    "copysign": ("copysign",),
    "reciprocal": ("reciprocal",),
    "square": ("square",),
    "sqrt": ("sqrt",),
    "rsqrt": ("rsqrt",),
    "pow": ("float_power",),
    "exp": ("exp",),
    "exp2": ("exp2",),
    "expm1": ("expm1",),
    "log": ("log",),
    "log2": ("log2",),
    "log10": ("log10",),
    "log1p": ("log1p",),
    "frac": ("frac",),
    "frexp": ("frexp",),
    "ldexp": ("ldexp",),
    "floor": ("floor",),
    "ceil": ("ceil",),
    "round": ("round",),
    "trunc": ("trunc", "fix"),
    "floor_divide": ("floor_divide",),
    "remainder": ("remainder", "fmod"),
    "gcd": ("gcd", "lcm"),
    "lerp": ("lerp",),
    "addcmul": ("addcmul",),
    "addcdiv": ("addcdiv",),
    "hypot": ("hypot",),
    "nextafter": ("nextafter",),
    # angles and complex numbers
    "sin": ("sin",),
    "cos": ("cos",),
    "tan": ("tan",),
    "asin": ("asin", "arcsin"),
    "acos": ("acos", "arccos"),
    "atan": ("atan", "arctan"),
    "atan2": ("atan2", "arctan2"),
    "sinh": ("sinh",),
    "cosh": ("cosh",),
    "asinh": ("asinh", "arcsinh"),
    "acosh": ("acosh", "arccosh"),
    "atanh": ("atanh", "arctanh"),
    "sinc": ("sinc",),
    "deg2rad": ("deg2rad",),
    "rad2deg": ("rad2deg",),
    "angle": ("angle",),
    "conj": ("conj_physical", "_conj_physical"),
    "polar": ("polar",),
    # special functions
    "erf": ("erf",),
    "erfc": ("erfc",),
    "erfcx": ("special_erfcx",),
    "erfinv": ("erfinv",),
    "lgamma": ("lgamma", "special_gammaln", "mvlgamma", "special_multigammaln"),
    "digamma": ("digamma", "special_psi", "_standard_gamma_grad", "_dirichlet_grad"),
    "polygamma": ("polygamma",),
    "gammainc": ("igamma", "special_gammainc"),
    "gammaincc": ("igammac", "special_gammaincc"),
    "zeta": ("special_zeta",),
    "ndtri": ("special_ndtri",),
    "log_ndtr": ("special_log_ndtr",),
    "bessel": (
        "i0", "special_i0e", "special_i1", "special_i1e", "special_airy_ai", "special_bessel_j0", "special_bessel_j1",
        "special_bessel_y0", "special_bessel_y1", "special_modified_bessel_i0", "special_modified_bessel_i1",
        "special_modified_bessel_k0", "special_modified_bessel_k1", "special_scaled_modified_bessel_k0",
        "special_scaled_modified_bessel_k1", "special_spherical_bessel_j0",
    ),
    "polynomial": (
        *(f"special_{shift}chebyshev_polynomial_{c}" for shift in ("", "shifted_") for c in "tuvw"),
        "special_hermite_polynomial_h", "special_hermite_polynomial_he", "special_laguerre_polynomial_l",
        "special_legendre_polynomial_p", "_compute_linear_combination",
    ),
    "xlogy": ("xlogy", "special_xlog1py"),
    "entropy": ("special_entr",),
    "logaddexp": ("logaddexp", "logaddexp2"),
    # comparisons and choices
    "compare": (
        "eq", "ne", "lt", "le", "gt", "ge", "less", "less_equal", "greater", "greater_equal", "not_equal",
        "isreal",
    ),
    "logical": ("logical_and", "logical_or", "logical_xor", "logical_not"),
    "bitwise": (
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "__and__", "__or__", "__xor__",
        "__iand__", "__ior__", "__ixor__",
    ),
    "shift": (
        "bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__", "__ilshift__", "__irshift__",
    ),
    "nan_check": ("isnan", "isinf", "isfinite", "isneginf", "isposinf"),
    "max": ("maximum", "fmax"),
    "min": ("minimum", "fmin"),
    "where": ("where",),
    "masked_fill": ("masked_fill",),
    "triangle": ("tril", "triu"),
    "heaviside": ("heaviside",),
    "nan_to_num": ("nan_to_num",),
    # activations
    "relu": ("relu",),
    "relu6": ("relu6", "quantized::relu6"),
    "hardtanh": ("hardtanh",),
    "threshold": ("threshold", "quantized::threshold"),
    "leaky_relu": ("leaky_relu", "quantized::leaky_relu"),
    "prelu": ("prelu", "_prelu_kernel", "quantized::prelu"),
    "rrelu": ("rrelu", "rrelu_with_noise", "rrelu_with_noise_functional"),
    "elu": ("elu", "quantized::elu"),
    "selu": ("selu",),
    "celu": ("celu", "quantized::celu"),
    "sigmoid": ("sigmoid", "special_expit", "quantized::sigmoid"),
    "tanh": ("tanh",),
    "silu": ("silu",),
    "glu": ("glu",),
    "mish": ("mish",),
    "softplus": ("softplus",),
    "logsigmoid": ("log_sigmoid",),
    "hardsigmoid": ("hardsigmoid",),
    "hardswish": ("hardswish", "quantized::hardswish"),
    "hardshrink": ("hardshrink",),
    "softshrink": ("softshrink",),
    "logit": ("logit",),
    # their gradients
    "relu_grad": ("threshold_backward",),
    "hardtanh_grad": ("hardtanh_backward",),
    "hardshrink_grad": ("hardshrink_backward",),
    "softshrink_grad": ("softshrink_backward",),
    "leaky_relu_grad": ("leaky_relu_backward",),
    "prelu_grad": ("_prelu_kernel_backward",),
    "rrelu_grad": ("rrelu_with_noise_backward",),
    "elu_grad": ("elu_backward",),
    "sigmoid_grad": ("sigmoid_backward",),
    "tanh_grad": ("tanh_backward",),
    "silu_grad": ("silu_backward",),
    "glu_grad": ("glu_backward", "glu_jvp", "glu_backward_jvp"),
    "mish_grad": ("mish_backward",),
    "softplus_grad": ("softplus_backward",),
    "logsigmoid_grad": ("log_sigmoid_backward",),
    "hardsigmoid_grad": ("hardsigmoid_backward",),
    "hardswish_grad": ("hardswish_backward",),
    "logit_grad": ("logit_backward",),
    "dropout_grad": ("native_dropout_backward", "_masked_scale"),
    # several steps in one
    "cross": ("cross", "linalg_cross"),
}  # fmt: skip

for _fn, _names in _FUNCTIONS.items():
    always("elementwise", _names, fn=_fn)


def elementwise(fn: str) -> Translation:
    """One function of the table, for each output element."""
    return Translation("elementwise", {"fn": fn})


@on("add", "sub", "rsub", "subtract")
def _add(call: Call) -> Translation:
    """With a factor on the second operand it is a multiplication and an addition."""
    if call.get("alpha") not in (None, 1):
        return elementwise("fma")
    return elementwise("add" if call.base == "add" else "sub")


@on("_add_relu")
def _add_relu(call: Call) -> Translation:
    return elementwise("add_relu")


@on("div", "divide")
def _div(call: Call) -> Translation:
    return elementwise("div" if call.get("rounding_mode") is None else "floor_divide")


@on("pow")
def _pow(call: Call) -> Translation:
    exponent = call["exponent"]
    if isinstance(exponent, (int, float)):
        return elementwise({2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(exponent, "pow"))
    return elementwise("pow")


@on("clamp", "clip", "quantized::clamp")
def _clamp(call: Call) -> Translation:
    if call["min"] is None:
        return elementwise("min")
    return elementwise("max" if call["max"] is None else "clamp")


always("elementwise", ["clamp_min"], fn="max")
always("elementwise", ["clamp_max"], fn="min")


@on("max.other", "max.out")
def _max(call: Call) -> Translation:
    return elementwise("max")


@on("min.other", "min.out")
def _min(call: Call) -> Translation:
    return elementwise("min")


@on("gelu")
def _gelu(call: Call) -> Translation:
    return elementwise("gelu_tanh" if call["approximate"] == "tanh" else "gelu")


@on("gelu_backward")
def _gelu_backward(call: Call) -> Translation:
    return elementwise("gelu_tanh_grad" if call["approximate"] == "tanh" else "gelu_grad")


@on("log_sigmoid_forward")
def _log_sigmoid_forward(call: Call) -> Translation:
    """The second output is a buffer for the gradient, empty on most devices."""
    return Translation("elementwise", {"fn": "logsigmoid", "elements": call.outs[0].numel()})


@on("cosine_similarity", "pairwise_distance")
def _pairs(call: Call) -> Translation:
    return Translation("reduce", {"fn": "dot" if call.base == "cosine_similarity" else "norm"})
