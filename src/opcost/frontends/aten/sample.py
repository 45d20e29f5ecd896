"""Values at computed positions: resizing, grids, distances between points, transforms."""

from __future__ import annotations

from math import ceil, prod

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Translation, on, per_axis
from opcost.frontends.aten.tensor import Tensor, type_name

_SUPPORT = {"bilinear": 1, "bicubic": 2, "lanczos": 3}
"""Half the width of an interpolation kernel, in source elements."""


def _resize(call: Call) -> Translation:
    """`upsample_bilinear2d` and its relatives; the method stands in the name."""
    method = call.base.removeprefix("_").removeprefix("upsample_")
    grad = method.endswith("_backward")
    method = method.removesuffix("_backward")
    attrs: dict[str, Attr] = {"fn": next(m for m in _METHODS if method.startswith(m))}
    if grad:
        attrs["grad"] = True
    if method.endswith("_aa"):
        attrs["taps"] = _antialiased_taps(call, str(attrs["fn"]), grad=grad)
    return Translation("resize", attrs)


_METHODS = ("nearest", "linear", "bilinear", "trilinear", "bicubic", "lanczos")

on(
    *(
        f"{name}{gradient}"
        for name in (
            "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
            "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
            "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa",
        )
        for gradient in ("", "_backward")
    )
)(_resize)  # fmt: skip


def _antialiased_taps(call: Call, method: str, *, grad: bool) -> int:
    """Source elements under the kernel, which widens with the reduction."""
    if grad:
        small, large = call["grad_output"].shape[-2:], call["input_size"][-2:]
    else:
        small, large = call.outs[0].shape[-2:], call.get("self", "input").shape[-2:]
    return prod(ceil(2 * _SUPPORT[method] * max(1.0, n / m)) for n, m in zip(large, small, strict=True))


_TAPS = {0: {2: 4, 3: 8}, 1: {2: 1, 3: 1}, 2: {2: 16, 3: 64}}
"""Source elements per value by interpolation mode (linear, nearest, cubic) and rank."""


@on(
    "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "_grid_sampler_2d_cpu_fallback",
    "grid_sampler_2d_backward", "grid_sampler_3d_backward", "_grid_sampler_2d_cpu_fallback_backward",
)  # fmt: skip
def _grid_sampler(call: Call) -> Translation:
    grid: Tensor = call["grid"]
    return _sample(call, taps=_TAPS[call["interpolation_mode"]][grid.shape[-1]])


@on("cudnn_grid_sampler", "cudnn_grid_sampler_backward")
def _cudnn_grid_sampler(call: Call) -> Translation:
    return _sample(call, taps=4)


def _sample(call: Call, *, taps: int) -> Translation:
    attrs: dict[str, Attr] = {"taps": taps}
    if call.base.endswith("_backward"):
        attrs["grad"] = True
        return Translation("sample", attrs, call.tensors("grad_output", "input", "self", "grid"))
    return Translation("sample", attrs)


@on("_fft_c2c", "_fft_r2c")
def _fft(call: Call) -> Translation:
    x: Tensor = call["self"]
    attrs: dict[str, Attr] = {"lengths": tuple(x.shape[d] for d in call["dim"])}
    if call.base == "_fft_r2c":
        attrs["real"] = True
    return Translation("fft", attrs)


@on("_fft_c2r")
def _fft_to_real(call: Call) -> Translation:
    """The last transformed axis holds only half of the spectrum; its length is that of the result."""
    x: Tensor = call["self"]
    *dims, _ = call["dim"]
    return Translation("fft", {"lengths": (*(x.shape[d] for d in dims), call["last_dim_size"]), "real": True})


@on(*(f"fft_{kind}{suffix}" for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for suffix in ("", "2", "n")))
def _fft_public(call: Call) -> Translation:
    """The public functions pad or cut the axes to the lengths asked for, then transform them."""
    name = call.base.removeprefix("fft_")
    x: Tensor = call["self"]
    y = call.outs[0]
    wanted, dims = call.get("n", "s"), call["dim"]
    if dims is None:
        dims = tuple(range(-len(wanted), 0)) if wanted is not None else tuple(range(x.dim()))
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    to_real = name.rstrip("2n") in ("irfft", "hfft")
    whole = y if to_real else x
    lengths = tuple(whole.shape[d] for d in dims) if wanted is None else per_axis(wanted, len(dims))
    attrs: dict[str, Attr] = {"lengths": lengths}
    if to_real or name.rstrip("2n") in ("rfft", "ihfft"):
        attrs["real"] = True
    return Translation("fft", attrs)


@on("stft")
def _stft(call: Call) -> Translation:
    """Frames of the signal, each transformed; a real signal has half of a spectrum."""
    attrs: dict[str, Attr] = {"lengths": (call["n_fft"],)}
    if not type_name(call["self"]).startswith("complex"):
        attrs["real"] = True
    return Translation("fft", attrs)


@on("istft")
def _istft(call: Call) -> Translation:
    return Translation("fft", {"lengths": (call["n_fft"],), "real": True})
