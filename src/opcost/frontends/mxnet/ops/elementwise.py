"""Elements computed one by one, reduced along axes, sorted, and tensors made of no other."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod

from opcost.core import shapes as sh
from opcost.core.shapes import Dims, Mismatch, Shape
from opcost.frontends.mxnet.ops.table import (
    FIRST,
    FLOAT,
    Call,
    Means,
    Operator,
    always_type,
    broadcasting,
    elements,
    like_first,
    output_type,
    row,
    same_shapes,
    types_of,
)
from opcost.frontends.mxnet.symbol import AttributeFault, Attributes

_BOOL = always_type("bool")

# -- functions of one tensor, of two, of a tensor and a number ---------------------------------------------------------


def functions(text: str) -> dict[str, str]:
    """Words of MXNet and our names of the functions: `name=ours`, or the name alone where both are the same."""
    return {name: fn or name for name, _, fn in (word.partition("=") for word in text.split())}


UNARY = functions("""
    relu sigmoid hard_sigmoid=hardsigmoid softsign tanh log_sigmoid=logsigmoid mish softplus silu gelu exp expm1 log
    log10 log2 log1p sqrt rsqrt cbrt rcbrt=rsqrt square abs absolute=abs sign round rint=round ceil floor trunc
    fix=trunc around=round negative=neg reciprocal sin cos tan arcsin=asin arccos=acos arctan=atan sinh cosh
    arcsinh=asinh arccosh=acosh arctanh=atanh degrees=rad2deg radians=deg2rad rad2deg deg2rad erf erfinv
    gammaln=lgamma digamma logical_not=logical bitwise_not=bitwise invert=bitwise nan_to_num smooth_l1
""")
"""Functions of one tensor by their name without prefix, in the words of our rules."""

TESTS: dict[str, str] = dict.fromkeys(("isnan", "isinf", "isfinite", "isposinf", "isneginf"), "nan_check")
"""Functions that answer true or false, in NumPy's dialect."""

BINARY = functions("""
    add plus=add sub minus=sub subtract=sub mul multiply=mul div true_divide=div floor_divide mod=remainder
    fmod=remainder power=pow maximum=max minimum=min fmax=max fmin=min hypot arctan2=atan2 copysign ldexp lcm=gcd gcd
    logaddexp bitwise_and=bitwise bitwise_or=bitwise bitwise_xor=bitwise bitwise_left_shift=shift
    bitwise_right_shift=shift
""")
"""Functions of two tensors, or of a tensor and a number, by their name without prefix."""

COMPARE = functions("""
    equal=compare not_equal=compare greater=compare greater_equal=compare lesser=compare lesser_equal=compare
    less=compare less_equal=compare logical_and=logical logical_or=logical logical_xor=logical
""")
"""The same with an answer of true or false: a float in MXNet's own operators, a truth value in NumPy's."""


def _functions() -> Iterator[Operator]:
    """The functions under the names of every dialect; some have the same name in several, of which the first counts."""
    taken: set[str] = set()

    def fresh(*names: str) -> list[str]:
        new = [name for name in dict.fromkeys(names) if name not in taken]
        taken.update(new)
        return new

    for name, fn in {**UNARY, **TESTS}.items():
        numpy_types = _BOOL if name in TESTS or fn == "logical" else None
        yield row(fresh(name, f"_sparse_{name}"), same_shapes, f"elementwise {fn}")
        yield row(fresh(f"_npi_{name}", f"_np_{name}", f"_npx_{name}"), same_shapes, f"elementwise {fn}", numpy_types)
    for name, fn in {**BINARY, **COMPARE}.items():
        kind, numpy_types = f"elementwise {fn}", _BOOL if name in COMPARE else None
        same = fresh(f"elemwise_{name}", f"_sparse_elemwise_{name}", f"_{name}")
        yield row(same, same_shapes, kind, slots="lhs rhs")
        yield row(fresh(f"broadcast_{name}", f"_sparse_broadcast_{name}"), broadcasting, kind, slots="lhs rhs")
        yield row(fresh(f"_npi_{name}"), broadcasting, kind, numpy_types, slots="lhs rhs")
        yield row(fresh(f"_{name}_scalar", f"_r{name}_scalar"), same_shapes, kind)
        yield row(fresh(f"_npi_{name}_scalar", f"_npi_r{name}_scalar"), same_shapes, kind, numpy_types)


_ACTIVATIONS = functions("relu sigmoid softrelu=softplus softsign tanh log_sigmoid=logsigmoid mish silu")
_LEAKY = functions("leaky=leaky_relu elu selu gelu gelu_erf=gelu gelu_tanh prelu rrelu")


def activation(name: str, known: dict[str, str]) -> Means:
    """The function of an `act_type`, in the words of our rules."""
    if name not in known:
        raise AttributeFault(f"the act_type {name!r} is not known")
    return "elementwise", {"fn": known[name]}


def _leaky_shapes(call: Call) -> None:
    like_first(call)
    x = call.ins[0]
    if call.attrs.text("act_type", "leaky") == "prelu" and x is not None and len(call.ins) > 1 and call.ins[1] is None:
        # The weight is one for each channel unless its variable says otherwise.
        call.put_in(1, (x[1] if len(x) > 1 else 1,))


def _dropout(call: Call) -> Means:
    """At inference, dropout hands its input on."""
    drawn = call.training or call.attrs.text("mode", "training") == "always"
    return ("random", {"fn": "dropout"}) if drawn and call.attrs.number("p", 0.5) > 0 else ("view", {})


def _where(call: Call) -> None:
    """A condition may be a vector that picks rows."""
    shape = sh.merge(sh.merge(call.ins[1], call.ins[2]), call.outs[0])
    for index in (1, 2):
        call.put_in(index, shape)
    call.put_out(0, shape)
    condition = call.ins[0]
    if shape is not None and (condition is None or len(condition) == len(shape)):
        call.put_in(0, shape)


_COMPUTED = [
    *_functions(),
    row("Activation _npx_activation", same_shapes, lambda c: activation(c.attrs.text("act_type"), _ACTIVATIONS)),
    row("LeakyReLU _npx_leaky_relu", _leaky_shapes, lambda c: activation(c.attrs.text("act_type", "leaky"), _LEAKY),
        outputs=lambda attrs: 2 if attrs.text("act_type", "leaky") == "rrelu" else 1, slots="data gamma"),
    row("clip _npi_clip _sparse_clip", same_shapes, "elementwise clamp"),
    row("_contrib_div_sqrt_dim _npx_div_sqrt_dim", same_shapes, "elementwise div"),
    row("Dropout _npx_dropout", like_first, _dropout),
    row("add_n ElementWiseSum _sparse_ElementWiseSum _sparse_add_n _npx_add_n", same_shapes,
        lambda c: elements("add", (len(c.ins) - 1) * prod(c.y()))),
    row("_grad_add _scatter_elemwise_div _scatter_plus_scalar _scatter_minus_scalar", same_shapes, "elementwise add"),
    row("where _sparse_where", _where, "elementwise where", types_of(1, 2), slots="condition x y"),
    row("_npi_where", broadcasting, "elementwise where", types_of(1, 2), slots="condition x y"),
    row("_npi_where_lscalar _npi_where_rscalar", broadcasting, "elementwise where", types_of(1), slots="condition x"),
    row("_npi_where_scalar2", same_shapes, "elementwise where", always_type("float32")),
    row("_contrib_round_ste _sparse__contrib_round_ste _npx_round_ste", same_shapes, "elementwise round"),
    row("_contrib_sign_ste _sparse__contrib_sign_ste _npx_sign_ste", same_shapes, "elementwise sign"),
    row("gamma _sparse_gamma _npx_gamma", same_shapes, "elementwise lgamma"),
    row("_contrib_quadratic _npx_quadratic", same_shapes, lambda c: elements("fma", 2 * prod(c.y()))),
]  # fmt: skip

# -- reductions along axes, running sums, moments ----------------------------------------------------------------------

LEGACY = functions("""
    sum sum_axis=sum _sparse_sum=sum mean _sparse_mean=mean prod nansum nanprod=nansum max max_axis=max min
    min_axis=min _square_sum=dot
""")
"""MXNet's own reductions over any axes; all of them together leave a tensor of one element."""

NUMPY = functions("sum mean prod product=prod max amax=max min amin=min all any sometrue=any std var")


def _left(call: Call, name: str = "axis") -> Dims:
    """What is left of the first input; no axis named means all of them, and those named may be the ones that stay."""
    x = call.dims(0)
    axes = call.attrs.maybe_integers(name) or None
    if axes and call.attrs.flag("exclude"):
        kept = sh.axes_of(axes, len(x))
        axes = tuple(axis for axis in range(len(x)) if axis not in kept)
    return sh.reduced(x, axes, keepdims=call.attrs.flag("keepdims"))


def _legacy(call: Call) -> Shape:
    return _left(call) or (1,)


def _numpy(call: Call) -> None:
    call.put_all(_left(call))


def _cumulative(call: Call) -> Shape:
    x = call.ins[0]
    if "axis" in call.attrs or (x is not None and len(x) == 1):
        same_shapes(call)
        return None
    return (sh.product(call.dims(0)),)


_REDUCED = [
    *(row(name, _legacy, f"reduce {fn}") for name, fn in LEGACY.items()),
    *(row(f"_np_{name} _npi_{name}", _numpy, f"reduce {fn}", _BOOL if fn in ("all", "any") else output_type("dtype"))
      for name, fn in NUMPY.items()),
    row("norm _sparse_norm _npx_norm", _legacy, "reduce norm", output_type("out_dtype")),
    row("_npi_norm", _numpy, "reduce norm"),
    row("argmax", _legacy, "reduce argmax"),
    row("argmin", _legacy, "reduce argmin"),
    row("_npi_argmax", _numpy, "reduce argmax", always_type("int64")),
    row("_npi_argmin", _numpy, "reduce argmin", always_type("int64")),
    row("argmax_channel", lambda c: c.dims(0)[:-1] or (1,), "reduce argmax"),
    row("moments", lambda c: [_left(c, "axes") or (1,)] * 2, "reduce var_mean", outputs=2),
    row("_np_cumsum cumsum _npi_cumsum", _cumulative, "reduce cumsum", output_type("dtype")),
    row("_npi_average", _numpy, "reduce mean", outputs=lambda attrs: 2 if attrs.flag("returned") else 1,
        slots="a weights"),
]  # fmt: skip

# -- sorts and the largest elements ------------------------------------------------------------------------------------


def _sorted_axis(call: Call, rank: int) -> int | None:
    """The sorted axis; None sorts all elements together."""
    if call.attrs.raw.get("axis") == "None":
        return None
    return sh.axis_of(call.attrs.integer("axis", -1), rank)


def _returns(attrs: Attributes) -> str:
    return attrs.text("ret_typ", "indices")


def _topk_shapes(call: Call) -> None:
    x = call.dims(0)
    if _returns(call.attrs) == "mask":
        like_first(call)
        return
    axis = _sorted_axis(call, len(x))
    length = sh.product(x) if axis is None else x[axis]
    k = call.attrs.integer("k", 1)
    kept = length if k <= 0 else k
    if length is not None and kept is not None and kept > length:
        raise Mismatch(f"the {kept} largest of {length} were requested")
    call.put_all((kept,) if axis is None else sh.replaced(x, axis, kept))


def _topk_types(call: Call) -> None:
    indices = call.attrs.dtype("dtype", "float32")
    if _returns(call.attrs) == "indices":
        call.type_out(0, indices)
    else:
        call.type_out(0, call.in_types[0])
        call.type_out(1, indices)


def _sort_shapes(call: Call) -> Shape:
    x = call.dims(0)
    if _sorted_axis(call, len(x)) is None:
        return (sh.product(x),)
    like_first(call)
    return None


def _sort(call: Call) -> Means:
    x = call.x()
    axis = _sorted_axis(call, len(x))
    return "sort", {"length": prod(x) if axis is None else x[axis]}


def _topk(call: Call) -> Means:
    kind, attrs = _sort(call)
    k = call.attrs.integer("k", 1)
    return kind, {**attrs, "selected": k if k > 0 else attrs["length"]}


_SORTED = [
    row("topk _npx_topk", _topk_shapes, _topk, _topk_types, lambda attrs: 2 if _returns(attrs) == "both" else 1),
    row("sort _npi_sort", _sort_shapes, _sort),
    row("argsort _npi_argsort", _sort_shapes, _sort, FLOAT),
]

# -- tensors made of no other: constants, ranges, random numbers -------------------------------------------------------

_MOST_ELEMENTS = 1 << 62


def _shaped(call: Call) -> Shape:
    """The shape is an attribute; where it is absent or in part unknown, the rest follows from the readers of the tensor."""
    shape = call.attrs.integers("shape") if "shape" in call.attrs else ()
    return call.given(shape) if shape or ("shape" in call.attrs and call.np_shape) else None


def _range(call: Call) -> Shape:
    start, step = call.attrs.number("start"), call.attrs.number("step", 1.0)
    repeat = call.attrs.integer("repeat", 1)
    if step == 0 or repeat < 1:
        raise AttributeFault("a range has the step 0, or is repeated less than once")
    if "stop" in call.attrs:
        stop = call.attrs.number("stop")
    elif call.attrs.flag("infer_range"):
        return None
    else:
        start, stop = 0.0, start
    steps = (stop - start) / step
    if not -_MOST_ELEMENTS < steps < _MOST_ELEMENTS:
        raise AttributeFault(f"a range from {start} to {stop} in steps of {step}")
    return (max(ceil(steps), 0) * repeat,)


def _range_like(call: Call) -> Shape:
    x, axis = call.dims(0), call.attrs.maybe_integer("axis")
    return x if axis is None else (x[sh.axis_of(axis, len(x))],)


def _sampled(call: Call) -> Shape:
    """One draw, or a tensor of them, for every element of the parameters."""
    x = None
    for shape in call.ins:
        x = sh.merge(x, shape)
    for index in range(len(call.ins)):
        call.put_in(index, x)
    return None if x is None else (*x, *call.attrs.integers("shape", ()))


def _multinomial(call: Call) -> None:
    """Draws from distributions along the last axis."""
    x = call.dims(0)
    if x:
        call.put_all((*x[:-1], *call.attrs.integers("shape", ())) or (1,))


def _multinomial_types(call: Call) -> None:
    call.type_out(0, call.attrs.dtype("dtype", "int32"))
    call.type_out(1, call.in_types[0])


def _numpy_drawn(call: Call) -> Shape:
    """`size` wins; without it the parameters' own shape, or a scalar."""
    size = call.attrs.maybe_integers("size")
    if size is not None:
        return size
    return sh.broadcast(call.every()) if call.ins else call.scalar


_DRAWN = ("uniform", "normal", "gamma", "exponential", "poisson", "negative_binomial", "generalized_negative_binomial")

_CREATED = [
    row("_zeros _ones _full _npi_full _npi_zeros _npi_ones _zeros_without_dtype _npi_empty", _shaped, "create", FLOAT),
    row("zeros_like _sparse_zeros_like ones_like _np_zeros_like _np_ones_like _npi_zeros_like _npi_ones_like "
        "_npi_full_like", like_first, "create", output_type("dtype"), slots="like"),
    row("_arange _npi_arange", _range, "create", FLOAT),
    row("_contrib_arange_like _npx_arange_like", _range_like, "create", FIRST, slots="like"),
    row("_linspace _npi_linspace _npi_logspace", lambda c: (c.attrs.integer("num", 50),), "create", FLOAT),
    row("_eye _npi_eye", lambda c: (c.attrs.integer("N"), c.attrs.integer("M", 0) or c.attrs.integer("N")), "create", FLOAT),
    row("_npi_identity", lambda c: (c.attrs.integers("shape") * 2)[:2], "create", FLOAT),
    row("_npi_indices", lambda c: (c.attrs.count("dimensions"), *c.attrs.integers("dimensions")), "create",
        output_type("dtype", "int32")),
    row("_npi_hanning _npi_hamming _npi_blackman", lambda c: (c.attrs.integer("M"),), "create", FLOAT),
    row([*(f"{prefix}random_{base}" for base in _DRAWN for prefix in ("_", "")), "uniform", "normal"], _shaped, "random",
        FLOAT),
    row("_random_randint random_randint _npi_random_randint", _shaped, "random", output_type("dtype", "int32")),
    row([f"_random_{base}_like" for base in _DRAWN], like_first, "random", FIRST, slots="like"),
    row([f"{prefix}sample_{base}" for base in _DRAWN for prefix in ("_", "")], _sampled, "random", FLOAT),
    row("_sample_multinomial sample_multinomial", _multinomial, "random", _multinomial_types,
        lambda attrs: 2 if attrs.flag("get_prob") else 1),
    row("_npi_uniform _npi_normal _npi_gamma _npi_exponential _npi_gumbel _npi_logistic _npi_rayleigh _npi_weibull "
        "_npi_pareto _npi_bernoulli _npi_uniform_n _npi_normal_n", _numpy_drawn, "random", FLOAT),
    row("_shuffle shuffle _npi_shuffle", like_first, "random"),
]  # fmt: skip

ROWS = [*_COMPUTED, *_REDUCED, *_SORTED, *_CREATED]
