"""Elements computed one by one, reduced along axes, sorted, and tensors made of no other."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, prod

from opcost.core import shapes as sh
from opcost.core.graph import Attrs
from opcost.core.shapes import Dims, Mismatch, Shape
from opcost.frontends.mxnet.ops.table import FUNCTIONS, SymbolCall
from opcost.frontends.mxnet.symbol import AttributeFault
from opcost.frontends.rows import Means, RowOperator, functions, like_first, same_shapes

# -- functions of one tensor, of two, of a tensor and a number ---------------------------------------------------------


def rows_of_functions(tables: Mapping[str, Sequence[str]]) -> Iterator[RowOperator]:
    """The functions under the names of every dialect; some have the same name in several, of which the first counts.

    What is true or false is a float in MXNet's own operators, a truth value in NumPy's.
    """
    taken: set[str] = set()

    def fresh(*names: str) -> str:
        new = [name for name in dict.fromkeys(names) if name not in taken]
        taken.update(new)
        return " ".join(new)

    unary, tests, binary, compare = (functions(tables[name]) for name in ("unary", "tests", "binary", "compare"))
    for name, fn in {**unary, **tests}.items():
        numpy_types = "=bool" if name in tests or fn == "logical" else ""
        yield FUNCTIONS.row(fresh(name, f"_sparse_{name}"), "same", f"elementwise {fn}")
        yield FUNCTIONS.row(
            fresh(f"_npi_{name}", f"_np_{name}", f"_npx_{name}"), "same", f"elementwise {fn}", numpy_types
        )
    for name, fn in {**binary, **compare}.items():
        kind, numpy_types = f"elementwise {fn}", "=bool" if name in compare else ""
        same = fresh(f"elemwise_{name}", f"_sparse_elemwise_{name}", f"_{name}")
        yield FUNCTIONS.row(same, "same", kind, slots="lhs rhs")
        yield FUNCTIONS.row(fresh(f"broadcast_{name}", f"_sparse_broadcast_{name}"), "broadcast", kind, slots="lhs rhs")
        yield FUNCTIONS.row(fresh(f"_npi_{name}"), "broadcast", kind, numpy_types, slots="lhs rhs")
        yield FUNCTIONS.row(fresh(f"_{name}_scalar", f"_r{name}_scalar"), "same", kind)
        yield FUNCTIONS.row(fresh(f"_npi_{name}_scalar", f"_npi_r{name}_scalar"), "same", kind, numpy_types)


_ACTIVATIONS = functions(["relu sigmoid softrelu=softplus softsign tanh log_sigmoid=logsigmoid mish silu"])
_LEAKY = functions(["leaky=leaky_relu elu selu gelu gelu_erf=gelu gelu_tanh prelu rrelu"])


def _function_of(name: str, known: dict[str, str]) -> Attrs:
    """The function of an `act_type`, in the words of our rules."""
    if name not in known:
        raise AttributeFault(f"the act_type {name!r} is not known")
    return {"fn": known[name]}


def _activation(call: SymbolCall) -> Attrs:
    same_shapes(call)
    return _function_of(call.attrs.text("act_type"), _ACTIVATIONS)


def _leaky(call: SymbolCall) -> Attrs:
    """The weight of `prelu` is one for each channel unless its variable says otherwise."""
    like_first(call)
    x, name = call.ins[0], call.attrs.text("act_type", "leaky")
    if name == "prelu" and x is not None and len(call.ins) > 1 and call.ins[1] is None:
        call.put_in(1, (x[1] if len(x) > 1 else 1,))
    return _function_of(name, _LEAKY)


def _dropout(call: SymbolCall) -> Means:
    """At inference, dropout hands its input on."""
    drawn = call.training or call.attrs.text("mode", "training") == "always"
    return ("random", {"fn": "dropout"}) if drawn and call.attrs.number("p", 0.5) > 0 else ("view", {})


def _add_n(call: SymbolCall) -> Attrs:
    same_shapes(call)
    return {"elements": (len(call.ins) - 1) * prod(call.y())}


def _where(call: SymbolCall) -> None:
    """A condition may be a vector that picks rows."""
    shape = sh.merge(sh.merge(call.ins[1], call.ins[2]), call.outs[0])
    for index in (1, 2):
        call.put_in(index, shape)
    call.put_out(0, shape)
    condition = call.ins[0]
    if shape is not None and (condition is None or len(condition) == len(shape)):
        call.put_in(0, shape)


# -- reductions along axes, running sums, moments ----------------------------------------------------------------------


def _left(call: SymbolCall, name: str = "axis") -> Dims:
    """What is left of the first input; no axis named means all of them, and those named may be the ones that stay."""
    x = call.dims(0)
    axes = call.attrs.maybe_integers(name) or None
    if axes and call.attrs.flag("exclude"):
        kept = sh.axes_of(axes, len(x))
        axes = tuple(axis for axis in range(len(x)) if axis not in kept)
    return sh.reduced(x, axes, keepdims=call.attrs.flag("keepdims"))


FUNCTIONS.update(
    reduced=lambda call: _left(call) or (1,),  # all axes together leave a tensor of one element
    numpy_reduced=lambda call: call.put_all(_left(call)),
    argmax_channel=lambda call: call.dims(0)[:-1] or (1,),
    moments=lambda call: [_left(call, "axes") or (1,)] * 2,
)


def _cumulative(call: SymbolCall) -> Shape:
    x = call.ins[0]
    if "axis" in call.attrs or (x is not None and len(x) == 1):
        same_shapes(call)
        return None
    return (sh.product(call.dims(0)),)


# -- sorts and the largest elements ------------------------------------------------------------------------------------


def _sorted_axis(call: SymbolCall) -> int | None:
    """The sorted axis; None sorts all elements together."""
    if call.attrs.raw.get("axis") == "None":
        return None
    return sh.axis_of(call.attrs.integer("axis", -1), len(call.dims(0)))


def _length(call: SymbolCall, axis: int | None) -> int:
    return prod(call.x()) if axis is None else call.x()[axis]


def _sort(call: SymbolCall) -> Attrs:
    axis = _sorted_axis(call)
    if axis is None:
        call.put_out(0, (sh.product(call.dims(0)),))
    else:
        like_first(call)
    return {"length": _length(call, axis)}


def _topk(call: SymbolCall) -> Attrs:
    x, axis, k = call.dims(0), _sorted_axis(call), call.attrs.integer("k", 1)
    length = sh.product(x) if axis is None else x[axis]
    kept = length if k <= 0 else k
    if call.attrs.text("ret_typ", "indices") == "mask":
        like_first(call)
    elif length is not None and kept is not None and kept > length:
        raise Mismatch(f"the {kept} largest of {length} were requested")
    else:
        call.put_all((kept,) if axis is None else sh.replaced(x, axis, kept))
    length = _length(call, axis)
    return {"length": length, "selected": k if k > 0 else length}


def _topk_types(call: SymbolCall) -> None:
    indices = call.attrs.dtype("dtype", "float32")
    if call.attrs.text("ret_typ", "indices") == "indices":
        call.type_out(0, indices)
    else:
        call.type_out(0, call.in_types[0])
        call.type_out(1, indices)


# -- tensors made of no other: constants, ranges, random numbers -------------------------------------------------------

_MOST_ELEMENTS = 1 << 62

FUNCTIONS.update(
    eye=lambda call: (call.attrs.integer("N"), call.attrs.integer("M", 0) or call.attrs.integer("N")),
    identity=lambda call: (call.attrs.integers("shape") * 2)[:2],
    indices=lambda call: (call.attrs.count("dimensions"), *call.attrs.integers("dimensions")),
)


def _shaped(call: SymbolCall) -> Shape:
    """The shape is an attribute; where it is absent or in part unknown, the rest follows from the readers of the tensor."""
    shape = call.attrs.integers("shape") if "shape" in call.attrs else ()
    return call.given(shape) if shape or ("shape" in call.attrs and call.np_shape) else None


def _range(call: SymbolCall) -> Shape:
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


def _range_like(call: SymbolCall) -> Shape:
    x, axis = call.dims(0), call.attrs.maybe_integer("axis")
    return x if axis is None else (x[sh.axis_of(axis, len(x))],)


def _multinomial(call: SymbolCall) -> None:
    """Draws from distributions along the last axis."""
    x = call.dims(0)
    if x:
        call.put_all((*x[:-1], *call.attrs.integers("shape", ())) or (1,))


def _multinomial_types(call: SymbolCall) -> None:
    call.type_out(0, call.attrs.dtype("dtype", "int32"))
    call.type_out(1, call.in_types[0])


def _numpy_drawn(call: SymbolCall) -> Shape:
    """`size` wins; without it the parameters' own shape, or a scalar."""
    size = call.attrs.maybe_integers("size")
    if size is not None:
        return size
    return sh.broadcast(call.every()) if call.ins else call.scalar
