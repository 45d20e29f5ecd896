"""Tensors made from nothing: constants, ranges, random numbers."""

from __future__ import annotations

from math import ceil

from opcost.core.shapes import axis_of, broadcast, merge
from opcost.frontends.mxnet.attribute import AttributeFault, Attributes
from opcost.frontends.mxnet.ops.elementwise import like_first
from opcost.frontends.mxnet.ops.table import (
    Call,
    Infer,
    Translation,
    define,
    output_type,
    types_of,
)

_CREATE = Translation("create")
_RANDOM = Translation("random")
_FLOAT = output_type("dtype", "float32")
_MOST_ELEMENTS = 1 << 62


def _shaped(call: Call) -> None:
    """The shape is an attribute; where it is absent or in part unknown, whoever reads the tensor tells the rest."""
    if "shape" in call.attrs:
        shape = call.attrs.integers("shape")
        if shape or call.np_shape:
            call.put_out(0, call.given(shape))


def _range(call: Call) -> None:
    start, step = call.attrs.number("start"), call.attrs.number("step", 1.0)
    repeat = call.attrs.integer("repeat", 1)
    if step == 0 or repeat < 1:
        raise AttributeFault("a range has the step 0, or is repeated less than once")
    if "stop" not in call.attrs:
        if call.attrs.flag("infer_range"):
            return
        start, stop = 0.0, start
    else:
        stop = call.attrs.number("stop")
    steps = (stop - start) / step
    if not -_MOST_ELEMENTS < steps < _MOST_ELEMENTS:
        raise AttributeFault(f"a range from {start} to {stop} in steps of {step}")
    call.put_out(0, (max(ceil(steps), 0) * repeat,))


def _range_like(call: Call) -> None:
    x = call.dims(0)
    axis = call.attrs.maybe_integer("axis")
    call.put_out(0, x if axis is None else (x[axis_of(axis, len(x))],))


def _spaced(call: Call) -> None:
    call.put_out(0, (call.attrs.integer("num", 50),))


def _eye(call: Call) -> None:
    rows = call.attrs.integer("N")
    columns = call.attrs.integer("M", 0)
    call.put_out(0, (rows, columns or rows))


def _identity(call: Call) -> None:
    shape = call.attrs.integers("shape")
    call.put_out(0, shape if len(shape) == 2 else (shape[0], shape[0]))


def _indices(call: Call) -> None:
    shape = call.attrs.integers("dimensions")
    call.put_out(0, (len(shape), *shape))


def _window(call: Call) -> None:
    call.put_out(0, (call.attrs.integer("M"),))


def _sampled(call: Call) -> None:
    """One draw, or a tensor of them, for every element of the parameters."""
    x = None
    for held in call.ins:
        x = merge(x, held)
    for index in range(len(call.ins)):
        call.put_in(index, x)
    if x is not None:
        call.put_out(0, (*x, *call.attrs.integers("shape", ())))


def _multinomial(call: Call) -> None:
    """Draws from distributions that lie along the last axis."""
    x = call.dims(0)
    if not x:
        return
    shape = call.attrs.integers("shape", ())
    call.put_all((*x[:-1], *shape) or (1,))


def _multinomial_outputs(attrs: Attributes) -> int:
    return 2 if attrs.flag("get_prob") else 1


def _multinomial_types(call: Call) -> None:
    call.type_out(0, call.attrs.dtype("dtype", "int32"))
    call.type_out(1, call.in_types[0])


def _numpy_drawn(call: Call) -> None:
    """`size` wins; without it the parameters' own shape, or a scalar."""
    size = call.attrs.maybe_integers("size")
    if size is not None:
        call.put_out(0, size)
    else:
        call.put_out(0, broadcast(call.every()) if call.ins else call.scalar)


_LIKE: Infer = types_of(0)

define(
    "_zeros _ones _full _npi_full _npi_zeros _npi_ones _zeros_without_dtype _npi_empty",
    _shaped,
    _CREATE,
    _FLOAT,
    slots="",
)
define(
    (
        "zeros_like _sparse_zeros_like ones_like _np_zeros_like _np_ones_like _npi_zeros_like _npi_ones_like _npi_full_like"
    ),
    like_first,
    _CREATE,
    output_type("dtype"),
    slots="like",
)
define("_arange _npi_arange", _range, _CREATE, _FLOAT)
define("_contrib_arange_like _npx_arange_like", _range_like, _CREATE, _LIKE, slots="like")
define("_linspace _npi_linspace _npi_logspace", _spaced, _CREATE, _FLOAT)
define("_eye _npi_eye", _eye, _CREATE, _FLOAT)
define("_npi_identity", _identity, _CREATE, _FLOAT)
define("_npi_indices", _indices, _CREATE, output_type("dtype", "int32"))
define("_npi_hanning _npi_hamming _npi_blackman", _window, _CREATE, _FLOAT)

_PLAIN = ("uniform", "normal", "gamma", "exponential", "poisson", "negative_binomial", "generalized_negative_binomial")
define(
    [name for base in _PLAIN for name in (f"_random_{base}", f"random_{base}")] + ["uniform", "normal"],
    _shaped,
    _RANDOM,
    _FLOAT,
    slots="",
)
define("_random_randint random_randint _npi_random_randint", _shaped, _RANDOM, output_type("dtype", "int32"))
define([f"_random_{base}_like" for base in _PLAIN], like_first, _RANDOM, _LIKE, slots="like")
define(
    [name for base in _PLAIN for name in (f"_sample_{base}", f"sample_{base}")],
    _sampled,
    _RANDOM,
    output_type("dtype", "float32"),
)
define("_sample_multinomial sample_multinomial", _multinomial, _RANDOM, _multinomial_types, _multinomial_outputs)
define(
    (
        "_npi_uniform _npi_normal _npi_gamma _npi_exponential _npi_gumbel _npi_logistic _npi_rayleigh _npi_weibull "
        "_npi_pareto _npi_bernoulli _npi_uniform_n _npi_normal_n"
    ),
    _numpy_drawn,
    _RANDOM,
    _FLOAT,
)
define("_shuffle shuffle _npi_shuffle", like_first, _RANDOM)
