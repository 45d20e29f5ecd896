"""The common operators of PyTorch, as a trace names them, in our words: kind, tensors in the order of `core.kinds`, attributes.

A trace has the inputs' shapes and types and the values of plain arguments, but no outputs; these follow from the inputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from opcost.core.graph import NO_ATTRS, Attrs, TensorSpec

DTYPES: dict[str, str] = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "bool": "bool",
    "int": "int32", "long int": "int64", "long": "int64", "long long": "int64", "short": "int16", "short int": "int16",
    "signed char": "int8", "char": "int8", "unsigned char": "uint8", "unsigned short": "uint16", "unsigned int": "uint32",
    "unsigned long": "uint64", "__int64": "int64",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2", "c10::Float8_e4m3fnuz": "float8_e4m3fnuz",
    "c10::Float8_e5m2fnuz": "float8_e5m2fnuz", "c10::Float8_e8m0fnu": "float8_e8m0fnu",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::complex<c10::Half>": "complex32",
    "c10::qint8": "qint8", "c10::quint8": "quint8", "c10::qint32": "qint32",
}  # fmt: skip
"""The C++ names of element types, as the profiler writes them."""


class Meaning(NamedTuple):
    """An operator in our words; without a kind, only its tensors are known."""

    kind: str
    ins: tuple[TensorSpec, ...]
    outs: tuple[TensorSpec, ...] = ()
    attrs: Attrs = NO_ATTRS


Argument: TypeAlias = "TensorSpec | None"
Translator: TypeAlias = Callable[[list[Argument], list[str]], "Meaning | None"]


def meaning(name: str, dims: bytes, types: bytes, concrete: bytes) -> Meaning:
    """What an operator did, as far as the trace tells."""
    arguments = _arguments(dims, types)
    tensors = tuple(argument for argument in arguments if argument is not None)
    translator = _TRANSLATORS.get(name)
    if translator is not None and tensors:
        try:
            found = translator(arguments, _values(concrete))
        except (IndexError, ValueError, TypeError):  # a schema of another version: the tensors are still right
            found = None
        if found is not None:
            return found
    return Meaning("", tensors)


def _arguments(dims: bytes, types: bytes) -> list[Argument]:
    """Each argument's tensor, None where it is none; lists of tensors are spread out, their type is not recorded."""
    try:
        shapes, names = json.loads(dims or b"[]"), json.loads(types or b"[]")
    except ValueError:
        return []
    if not isinstance(shapes, list) or not isinstance(names, list):
        return []
    found: list[Argument] = []
    for place, shape in enumerate(shapes):
        word = names[place] if place < len(names) else ""
        if not isinstance(shape, list):
            found.append(None)
        elif shape and isinstance(shape[0], list):
            found.extend(TensorSpec(tuple(each), "") for each in shape if _is_shape(each))
        elif not _is_shape(shape):
            found.append(None)
        elif shape or word in DTYPES:
            found.append(TensorSpec(tuple(shape), DTYPES.get(word, "")))
        else:
            found.append(None)
    return found


def _is_shape(shape: object) -> bool:
    return isinstance(shape, list) and all(type(extent) is int and 0 <= extent < 2**63 for extent in shape)


def _values(concrete: bytes) -> list[str]:
    found = json.loads(concrete or b"[]")
    return found if isinstance(found, list) else []


# -- contractions ----------------------------------------------------------------------------------------------------


def _product(a: TensorSpec, b: TensorSpec, added: Argument = None) -> Meaning:
    """A matrix product, perhaps of batches that broadcast."""
    depth = a.dims[-1]
    batch = _broadcast(a.dims[:-2], b.dims[:-2])
    shape = batch + a.dims[-2:-1] + (b.dims[-1:] if len(b.dims) > 1 else ())
    attrs: dict[str, int | bool] = {"depth": depth}
    if added is not None:
        attrs["bias"] = True
    return Meaning("matmul", (a, b) if added is None else (a, b, added), (TensorSpec(shape, a.dtype),), attrs)


def _plain_product(arguments: list[Argument], values: list[str]) -> Meaning:
    return _product(_tensor(arguments, 0), _tensor(arguments, 1))


def _added_product(arguments: list[Argument], values: list[str]) -> Meaning:
    return _product(_tensor(arguments, 1), _tensor(arguments, 2), _tensor(arguments, 0))


def _linear(arguments: list[Argument], values: list[str]) -> Meaning:
    x, weight = _tensor(arguments, 0), _tensor(arguments, 1)
    bias = arguments[2] if len(arguments) > 2 else None
    y = TensorSpec(x.dims[:-1] + weight.dims[:1], x.dtype)
    attrs: dict[str, int | bool] = {"depth": weight.dims[-1]}
    if bias is not None:
        attrs["bias"] = True
    return Meaning("matmul", (x, weight) if bias is None else (x, weight, bias), (y,), attrs)


class _Places(NamedTuple):
    """Where a convolution's arguments stand; None where it has no such argument."""

    bias: int | None
    stride: int
    padding: int
    dilation: int | None = None
    transposed: int | bool | None = None
    output_padding: int | None = None
    groups: int | None = None


def _convolution(places: _Places) -> Translator:
    def translate(arguments: list[Argument], values: list[str]) -> Meaning:
        x, weight = _tensor(arguments, 0), _tensor(arguments, 1)
        bias = None if places.bias is None else arguments[places.bias]
        rank = len(weight.dims) - 2
        turned = places.transposed
        transposed = turned if isinstance(turned, bool) else turned is not None and values[turned] == "True"
        stride, padding = _numbers(values, places.stride, rank), _numbers(values, places.padding, rank)
        dilation = _numbers(values, places.dilation, rank) if places.dilation is not None else [1] * rank
        groups = int(values[places.groups]) if places.groups is not None else 1
        sizes = zip(x.dims[-rank:], weight.dims[2:], stride, padding, dilation, strict=True)
        if transposed:
            extra = _numbers(values, places.output_padding, rank) if places.output_padding is not None else [0] * rank
            spatial = [
                (n - 1) * s - 2 * p + d * (k - 1) + 1 + e for (n, k, s, p, d), e in zip(sizes, extra, strict=True)
            ]
            channels = weight.dims[1] * groups
        else:
            spatial = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes]
            channels = weight.dims[0]
        y = TensorSpec((*x.dims[: -rank - 1], channels, *spatial), x.dtype)
        attrs: Attrs = {"transposed": True} if transposed else NO_ATTRS
        return Meaning("conv", (x, weight) if bias is None else (x, weight, bias), (y,), attrs)

    return translate


def _convolution_backward(arguments: list[Argument], values: list[str]) -> Meaning:
    grad_y, x, weight = (_tensor(arguments, place) for place in range(3))
    mask = json.loads(values[-1].lower())
    grads = tuple(name for name, wanted in zip(("input", "weight", "bias"), mask, strict=True) if wanted)
    made = {"input": x, "weight": weight, "bias": TensorSpec(grad_y.dims[1:2], grad_y.dtype)}
    attrs: dict[str, bool | tuple[str, ...]] = {"grads": grads}
    if values[7] == "True":
        attrs["transposed"] = True
    return Meaning("conv", (grad_y, x, weight), tuple(made[name] for name in grads), attrs)


def _attention(mask: int | None, causal: int, *, heads_last: bool = False, yes: str = "True") -> Translator:
    def translate(arguments: list[Argument], values: list[str]) -> Meaning:
        q, k, v = (_tensor(arguments, place) for place in range(3))
        masked = arguments[mask] if mask is not None else None
        attrs = {}
        if values[causal] == yes:
            attrs["causal"] = True
        if heads_last:
            attrs["heads_last"] = True
        y = TensorSpec(q.dims[:-1] + v.dims[-1:], q.dtype)
        return Meaning("attention", (q, k, v) if masked is None else (q, k, v, masked), (y,), attrs)

    return translate


# -- the rest --------------------------------------------------------------------------------------------------------


def _norm(fn: str, *, weight: int, training: int | None = None) -> Translator:
    def translate(arguments: list[Argument], values: list[str]) -> Meaning:
        x = _tensor(arguments, 0)
        applied = tuple(found for found in arguments[weight : weight + 2] if found is not None)
        attrs: dict[str, str | bool] = {"fn": fn}
        if training is not None and values[training] == "True":
            attrs["training"] = True
        return Meaning("norm", (x, *applied), (x,), attrs)

    return translate


def _softmax(fn: str) -> Translator:
    return lambda arguments, values: Meaning("softmax", (_tensor(arguments, 0),), (_tensor(arguments, 0),), {"fn": fn})


def _elementwise(fn: str) -> Translator:
    def translate(arguments: list[Argument], values: list[str]) -> Meaning:
        tensors = tuple(argument for argument in arguments if argument is not None)
        shape: tuple[int, ...] = ()
        for tensor in tensors:
            shape = _broadcast(shape, tensor.dims)
        return Meaning("elementwise", tensors, (TensorSpec(shape, tensors[0].dtype),), {"fn": fn})

    return translate


def _copy(arguments: list[Argument], values: list[str]) -> Meaning:
    target, source = _tensor(arguments, 0), _tensor(arguments, 1)
    return Meaning("copy", (target, source), (target,), {"overwrites": True})


def _tensor(arguments: list[Argument], place: int) -> TensorSpec:
    found = arguments[place]
    if found is None:
        raise ValueError("no tensor stands here")
    return found


def _numbers(values: list[str], place: int, rank: int) -> list[int]:
    """A list argument such as "[2, 2]"; one number stands for all axes."""
    found = json.loads(values[place])
    numbers = found if isinstance(found, list) else [found]
    return numbers * rank if len(numbers) == 1 else numbers


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    length = max(len(a), len(b))
    padded = zip((1,) * (length - len(a)) + a, (1,) * (length - len(b)) + b, strict=True)
    return tuple(n if m == 1 else m for m, n in padded)


_VALUED: dict[str, Translator] = {
    "aten::conv1d": _convolution(_Places(2, 3, 4, 5, groups=6)),
    "aten::conv2d": _convolution(_Places(2, 3, 4, 5, groups=6)),
    "aten::conv3d": _convolution(_Places(2, 3, 4, 5, groups=6)),
    "aten::convolution": _convolution(_Places(2, 3, 4, 5, 6, 7, 8)),
    "aten::_convolution": _convolution(_Places(2, 3, 4, 5, 6, 7, 8)),
    "aten::convolution_overrideable": _convolution(_Places(2, 3, 4, 5, 6, 7, 8)),
    "aten::mkldnn_convolution": _convolution(_Places(2, 4, 3, 5, groups=6)),
    "aten::miopen_convolution": _convolution(_Places(2, 4, 3, 5, groups=6)),
    "aten::cudnn_convolution": _convolution(_Places(None, 3, 2, 4, groups=5)),
    "aten::cudnn_convolution_relu": _convolution(_Places(2, 3, 4, 5, groups=6)),
    "aten::cudnn_convolution_transpose": _convolution(_Places(None, 4, 2, 5, True, 3, 6)),  # noqa: FBT003
    "aten::_slow_conv2d_forward": _convolution(_Places(3, 4, 5)),
    "aten::thnn_conv2d": _convolution(_Places(3, 4, 5)),
    "aten::_conv_depthwise2d": _convolution(_Places(3, 4, 5, 6)),
    "aten::slow_conv_dilated2d": _convolution(_Places(3, 4, 5, 6)),
    "aten::convolution_backward": _convolution_backward,
    "aten::scaled_dot_product_attention": _attention(3, 5),
    "aten::_scaled_dot_product_flash_attention": _attention(None, 4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention(None, 4),
    "aten::_scaled_dot_product_efficient_attention": _attention(3, 6),
    "aten::_scaled_dot_product_cudnn_attention": _attention(3, 6),
    "aten::_cudnn_attention_forward": _attention(3, 10),
    "aten::_flash_attention_forward": _attention(None, 8, heads_last=True),
    "aten::_efficient_attention_forward": _attention(3, 9, heads_last=True, yes="1"),
    "aten::native_batch_norm": _norm("batch", weight=1, training=5),
    "aten::cudnn_batch_norm": _norm("batch", weight=1, training=5),
    "aten::miopen_batch_norm": _norm("batch", weight=1, training=5),
}

USES_VALUES = frozenset(_VALUED)
"""Operators whose meaning needs the values of plain arguments; of the others these are not kept."""

_TRANSLATORS: dict[str, Translator] = {
    **_VALUED,
    "aten::mm": _plain_product,
    "aten::bmm": _plain_product,
    "aten::mv": _plain_product,
    "aten::_scaled_mm": _plain_product,
    "aten::addmm": _added_product,
    "aten::_addmm_activation": _added_product,
    "aten::baddbmm": _added_product,
    "aten::addmv": _added_product,
    "aten::linear": _linear,
    "aten::mkldnn_linear": _linear,
    "aten::native_layer_norm": _norm("layer", weight=2),
    "aten::native_group_norm": _norm("group", weight=1),
    "aten::_softmax": _softmax("softmax"),
    "aten::_log_softmax": _softmax("log_softmax"),
    "aten::copy_": _copy,
    **{
        f"aten::{name}{ending}": _elementwise(name)
        for name in (
            "add sub mul div relu gelu silu sigmoid tanh exp log sqrt rsqrt neg abs pow reciprocal hardtanh leaky_relu elu "
            "softplus mish erf sin cos floor ceil round addcmul addcdiv lerp where masked_fill clamp"
        ).split()
        for ending in ("", "_")
    },
}
