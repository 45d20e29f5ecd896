"""The primitive operators into which exported programs may have been taken apart; most share aten's names."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Translation, always, on

_SAME = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "div", "neg": "neg", "abs": "abs", "sign": "sign",
    "signbit": "sign", "reciprocal": "reciprocal", "sqrt": "sqrt", "rsqrt": "rsqrt", "cbrt": "cbrt", "pow": "pow",
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "atan2": "atan2",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh",
    "erf": "erf", "erfc": "erfc", "erfcx": "erfcx", "erf_inv": "erfinv", "lgamma": "lgamma", "digamma": "digamma",
    "igamma": "gammainc", "igammac": "gammaincc", "zeta": "zeta", "ndtri": "ndtri", "hypot": "hypot",
    "bessel_i0": "bessel", "bessel_i0e": "bessel", "bessel_i1": "bessel", "bessel_i1e": "bessel", "bessel_j0": "bessel",
    "bessel_j1": "bessel", "spherical_bessel_j0": "bessel",
    "floor": "floor", "ceil": "ceil", "round": "round", "trunc": "trunc", "fmod": "remainder",
    "remainder": "remainder", "frexp": "frexp", "gcd": "gcd", "nextafter": "nextafter",
    "maximum": "max", "minimum": "min", "fmax": "max", "fmin": "min", "where": "where", "isfinite": "nan_check",
    "eq": "compare", "ne": "compare", "lt": "compare", "le": "compare", "gt": "compare", "ge": "compare",
    "bitwise_and": "bitwise", "bitwise_or": "bitwise", "bitwise_xor": "bitwise", "bitwise_not": "bitwise",
    "shift_left": "shift", "shift_right_arithmetic": "shift", "conj_physical": "conj",
}  # fmt: skip

for _name, _fn in _SAME.items():
    always("elementwise", [f"prims::{_name}"], fn=_fn)

for _name, _fn in {"sum": "sum", "xor_sum": "sum", "prod": "prod", "amax": "max", "amin": "min", "var": "var"}.items():
    always("reduce", [f"prims::{_name}"], fn=_fn)

always(
    "copy",
    [
        f"prims::{name}"
        for name in (
            "cat", "clone", "convert_element_type", "device_put", "rev", "reshape", "as_strided_scatter", "collapse",
            "copy_to", "copy_strided",
        )
    ],
)  # fmt: skip
always("create", [f"prims::{name}" for name in ("full", "full_like", "fill", "iota", "scalar_tensor")])
always("random", [f"prims::{name}" for name in ("normal", "uniform")])
always(
    "view",
    [
        f"prims::{name}"
        for name in (
            "as_strided", "empty", "empty_strided", "empty_permuted", "item", "resize", "minimum_value", "maximum_value",
            "_make_token", "_sink_tokens",
        )
    ],
)  # fmt: skip
always("linalg", ["prims::svd"], fn="svd")


@on("prims::fft_c2c", "prims::fft_r2c", "prims::fft_c2r")
def _fft(call: Call) -> Translation:
    """The real side holds the whole length of the last axis."""
    x = call.outs[0] if call.base == "fft_c2r" else call["self"]
    attrs: dict[str, Attr] = {"lengths": tuple(x.shape[d] for d in call["dim"])}
    if call.base != "fft_c2c":
        attrs["real"] = True
    return Translation("fft", attrs)
