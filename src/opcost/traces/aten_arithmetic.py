"""Arithmetic without contractions, and its gradients, as PyTorch's traces name it."""

from __future__ import annotations

from math import prod

from opcost.core.graph import TensorSpec
from opcost.traces.aten_call import Argument, Meaning, Told, Translator, broadcast, numbers, of, tensor


def _norm(fn: str, *, weight: int, training: int | None = None) -> Translator:
    def translate(arguments: list[Argument], values: list[str]) -> Meaning:
        x = tensor(arguments, 0)
        others = tuple(found for found in arguments[1:] if found is not None)
        applied = [found for found in arguments[weight : weight + 2] if found is not None]
        attrs: dict[str, str | bool | int] = {"fn": fn, "affine": len(applied)}
        if training is not None and values[training] == "True":
            attrs["training"] = True
        return Meaning("norm", (x, *others), (x,), attrs)

    return translate


def _norm_backward(
    fn: str, *, weight: int, grad_y: int = 0, x: int = 1, training: int | bool | None = None, masked: bool = True
) -> Translator:
    def translate(arguments: list[Argument], values: list[str]) -> Meaning:
        first = tensor(arguments, grad_y), tensor(arguments, x)
        others = (found for place, found in enumerate(arguments) if place not in (grad_y, x) and found is not None)
        asked = [word == "True" for word in values[-1].strip("[]").split(", ")][1:] if masked else [True, True]
        affine = arguments[weight]
        made = [affine] * sum(asked) if affine is not None else []
        attrs: dict[str, str | bool | int] = {"fn": fn, "grad": True, "affine": sum(asked)}
        if training is not None and (training is True or values[training] == "True"):
            attrs["training"] = True
        return Meaning("norm", (*first, *others), (first[1], *made), attrs)

    return translate


def _softmax(fn: str) -> Translator:
    return lambda arguments, values: Meaning("softmax", (tensor(arguments, 0),), (tensor(arguments, 0),), {"fn": fn})


def _softmax_backward(fn: str) -> Translator:
    def translate(arguments: list[Argument], values: list[str]) -> Meaning:
        grad_y, y = tensor(arguments, 0), tensor(arguments, 1)
        return Meaning("softmax", (grad_y, y), (y,), {"fn": fn, "grad": True})

    return translate


def _elementwise(fn: str) -> Translator:
    def translate(arguments: list[Argument], values: list[str]) -> Meaning:
        tensors = tuple(argument for argument in arguments if argument is not None)
        shape: tuple[int, ...] = ()
        for each in tensors:
            shape = broadcast(shape, each.dims)
        return Meaning("elementwise", tensors, (TensorSpec(shape, tensors[0].dtype),), {"fn": fn})

    return translate


def _pool(fn: str, axes: int, *, dilated: bool = False) -> Translator:
    """Arguments: x, kernel, stride, padding, [dilation], ceil_mode; the largest elements come with their places."""

    def translate(arguments: list[Argument], values: list[str]) -> Meaning:
        x = tensor(arguments, 0)
        kernel = numbers(values, 1, axes)
        stride, padding = numbers(values, 2, axes) or kernel, numbers(values, 3, axes)
        dilation = numbers(values, 4, axes) if dilated else [1] * axes
        up = values[5 if dilated else 4] == "True"
        extents = []
        for n, k, s, p, d in zip(x.dims[-axes:], kernel, stride, padding, dilation, strict=True):
            steps = n + 2 * p - d * (k - 1) - 1
            extent = (-(-steps // s) if up else steps // s) + 1
            # A window that begins in the padding behind the input is left out.
            extents.append(extent - 1 if up and (extent - 1) * s >= n + p else extent)
        y = TensorSpec((*x.dims[:-axes], *extents), x.dtype)
        outs = (y, TensorSpec(y.shape, "int64")) if fn == "max" else (y,)
        return Meaning("pool", (x,), outs, {"fn": fn, "window": prod(kernel)})

    return translate


def _pool_backward(fn: str, axes: int) -> Translator:
    def translate(arguments: list[Argument], values: list[str]) -> Meaning:
        tensors = tuple(argument for argument in arguments if argument is not None)
        attrs: dict[str, str | bool | int] = {"fn": fn, "window": prod(numbers(values, 2, axes)), "grad": True}
        return Meaning("pool", tensors, (tensor(arguments, 1),), attrs)

    return translate


def _adaptive(arguments: list[Argument], values: list[str]) -> Meaning:
    x = tensor(arguments, 0)
    extents = numbers(values, 1, 2)
    y = TensorSpec((*x.dims[:-2], *extents), x.dtype)
    return Meaning("pool", (x,), (y,), {"fn": "adaptive_avg", "window": _mean_window(x, y)})


def _adaptive_backward(arguments: list[Argument], values: list[str]) -> Meaning:
    grad_y, x = tensor(arguments, 0), tensor(arguments, 1)
    attrs: dict[str, str | bool | int] = {"fn": "adaptive_avg", "window": _mean_window(x, grad_y), "grad": True}
    return Meaning("pool", (grad_y, x), (x,), attrs)


def _mean_window(x: TensorSpec, y: TensorSpec) -> int:
    return prod(-(-n // m) for n, m in zip(x.dims[-2:], y.dims[-2:], strict=True) if m)


def _reduce(fn: str) -> Translator:
    """Arguments: x, axes, keepdim, dtype; or x, dtype for all axes."""

    def translate(arguments: list[Argument], values: list[str]) -> Meaning:
        x = tensor(arguments, 0)
        if not values:
            raise ValueError("an older trace does not tell the axes")
        everything = set(range(len(x.dims)))
        listed = len(values) > 2 and values[1] not in ("", "[]")
        axes = {axis % len(x.dims) for axis in numbers(values, 1, 1)} if listed and x.dims else everything
        keep = len(values) > 2 and values[2] == "True"
        shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.dims) if keep or axis not in axes)
        return Meaning("reduce", (x,), (TensorSpec(shape, x.dtype),), {"fn": fn})

    return translate


def _nll(arguments: list[Argument], values: list[str]) -> Meaning:
    x, target = tensor(arguments, 0), tensor(arguments, 1)
    one = TensorSpec((), x.dtype)
    return Meaning("loss", (x, target), (one, one), {"fn": "nll"})


def _nll_backward(arguments: list[Argument], values: list[str]) -> Meaning:
    tensors = tuple(argument for argument in arguments if argument is not None)
    return Meaning("loss", tensors, (tensor(arguments, 1),), {"fn": "nll", "grad": True})


_ACTIVATIONS = "gelu silu sigmoid tanh leaky_relu hardtanh elu softplus mish hardswish hardsigmoid".split()
_FUNCTIONS = (
    "add sub mul div relu exp log sqrt rsqrt neg abs pow reciprocal erf sin cos floor ceil round addcmul addcdiv lerp where "
    "masked_fill clamp"
).split()

VALUED: dict[str, Told] = {
    **of(
        "norm",
        {
            "native_batch_norm": _norm("batch", weight=1, training=5),
            "cudnn_batch_norm": _norm("batch", weight=1, training=5),
            "miopen_batch_norm": _norm("batch", weight=1, training=5),
            "native_batch_norm_backward": _norm_backward("batch", weight=2, training=7),
            "native_layer_norm_backward": _norm_backward("layer", weight=5),
        },
    ),
    **of(
        "pool",
        {
            "max_pool2d_with_indices": _pool("max", 2, dilated=True),
            "max_pool3d_with_indices": _pool("max", 3, dilated=True),
            "avg_pool2d": _pool("avg", 2),
            "avg_pool3d": _pool("avg", 3),
            "max_pool2d_with_indices_backward": _pool_backward("max", 2),
            "max_pool3d_with_indices_backward": _pool_backward("max", 3),
            "avg_pool2d_backward": _pool_backward("avg", 2),
            "avg_pool3d_backward": _pool_backward("avg", 3),
            "_adaptive_avg_pool2d": _adaptive,
        },
    ),
    **of(
        "reduce",
        {
            "sum": _reduce("sum"),
            "mean": _reduce("mean"),
        },
    ),
}

PLAIN: dict[str, Told] = {
    **of(
        "norm",
        {
            "native_layer_norm": _norm("layer", weight=2),
            "native_group_norm": _norm("group", weight=1),
            "cudnn_batch_norm_backward": _norm_backward("batch", weight=2, grad_y=1, x=0, training=True, masked=False),
            "miopen_batch_norm_backward": _norm_backward("batch", weight=2, grad_y=1, x=0, training=True, masked=False),
        },
    ),
    **of(
        "softmax",
        {
            "_softmax": _softmax("softmax"),
            "_log_softmax": _softmax("log_softmax"),
            "_softmax_backward_data": _softmax_backward("softmax"),
            "_log_softmax_backward_data": _softmax_backward("log_softmax"),
        },
    ),
    **of("pool", {"_adaptive_avg_pool2d_backward": _adaptive_backward}),
    **of(
        "loss",
        {
            "nll_loss_forward": _nll,
            "nll_loss_backward": _nll_backward,
        },
    ),
    **of(
        "elementwise",
        {
            "threshold_backward": _elementwise("relu_grad"),
            "native_dropout_backward": _elementwise("dropout_grad"),
            **{f"{name}_backward": _elementwise(f"{name}_grad") for name in _ACTIVATIONS},
            **{f"{name}{ending}": _elementwise(name) for name in (*_ACTIVATIONS, *_FUNCTIONS) for ending in ("", "_")},
        },
    ),
}
