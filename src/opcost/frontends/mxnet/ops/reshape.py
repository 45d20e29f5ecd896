"""The same elements in other shapes, other places and other types: reshaped, stretched, sliced, padded, transposed, cast."""

from collections.abc import Callable, Mapping, Sequence

from opcost.core import shapes as sh
from opcost.core.shapes import Dims, Extent, Mismatch, Shape
from opcost.frontends.mxnet.ops.index import at_least
from opcost.frontends.mxnet.ops.table import FUNCTIONS, SymbolCall
from opcost.frontends.mxnet.symbol import AttributeFault, Attributes

# -- reshaping ---------------------------------------------------------------------------------------------------------

_CODES = {0: "copy", -1: "fill", -2: "rest", -3: "merge", -4: "split"}
_NUMPY_CODES = {-1: "open", -2: "copy", -3: "drop", -4: "rest", -5: "merge", -6: "split"}
"""What a number in the target of a reshape means, in MXNet's own dialect and in that of `npx.reshape`.

`copy` takes an extent of the input, `rest` all that are left, `merge` the product of two; `split` makes two of one, `drop`
leaves out one of extent 1; `fill` and `open` are worked out from the number of elements.
"""


def _reshape(call: SymbolCall) -> None:
    x = call.dims(0)
    target = call.attrs.integers("shape", ())
    legacy = call.attrs.integers("target_shape", ())
    if target:
        _settle(call, _coded(target, x, _CODES, reverse=call.attrs.flag("reverse")))
    elif legacy:
        # The reshape of the oldest files: 0 is worked out, and the first extent may be kept
        keep_highest = call.attrs.flag("keep_highest")
        found: list[Extent] = list(legacy)
        if keep_highest:
            found[0] = x[0] if x else None
        free = [index for index in range(1 if keep_highest else 0, len(found)) if found[index] == 0]
        if len(free) == 1:
            found[free[0]] = 1
            found[free[0]] = _left_over(sh.product(x), sh.product(found))
        _settle(call, tuple(None if extent == 0 else extent for extent in found))
    else:
        _settle(call, call.outs[0])


def _settle(call: SymbolCall, shape: Shape) -> None:
    """The output's shape, and an unknown extent of the input from the number of elements."""
    call.put_out(0, shape)
    x, y = call.ins[0], call.outs[0]
    if x is not None and y is not None:
        call.put_in(0, sh.filled(x, sh.product(y)))
        call.put_out(0, sh.filled(y, sh.product(x)))


def _coded(target: Sequence[int], x: Sequence[Extent], meanings: Mapping[int, str], *, reverse: bool) -> Shape:
    """The shape that codes describe.

    An extent that is filled in is put where its code is in the target, which after `rest`, `merge` or `split` is not
    where it belongs: so does MXNet.
    """
    source = list(reversed(x)) if reverse else list(x)
    codes = list(reversed(target)) if reverse else list(target)
    found: list[Extent] = []
    to_fill = -1
    at = place = 0
    while place < len(codes):
        code = codes[place]
        match meanings.get(code, "extent" if code >= 0 else ""):
            case "extent":
                found.append(code)
            case "copy":
                found.append(_extent_at(source, at))
            case "open":
                found.append(None)
            case "fill":
                if to_fill >= 0:
                    raise AttributeFault("more than one extent of the new shape is to be worked out")
                to_fill = place
                found.append(1)
            case "drop":
                if _extent_at(source, at) not in (1, None):
                    raise Mismatch(f"only an axis of extent 1 can be dropped, not one of {source[at]}")
            case "rest":
                found.extend(source[at:])
                at = max(at, len(source)) - 1
            case "merge":
                found.append(sh.product((_extent_at(source, at), _extent_at(source, at + 1))))
                at += 1
            case "split":
                found.extend(_split_extent(_extent_at(source, at), codes[place + 1 : place + 3]))
                place += 2
            case _:
                raise AttributeFault(f"{code} is not a code of a new shape")
        at += 1
        place += 1
    if 0 <= to_fill < len(found):
        found[to_fill] = _left_over(sh.product(x), sh.product(found))
    return tuple(reversed(found)) if reverse else tuple(found)


def _left_over(elements: Extent, taken: Extent) -> Extent:
    return None if taken is None or elements is None else elements // taken if taken else 0


def _extent_at(source: Sequence[Extent], at: int) -> Extent:
    if at >= len(source):
        raise Mismatch(f"{sh.text(tuple(source))} has too few axes for the new shape")
    return source[at]


def _split_extent(extent: Extent, parts: Sequence[int]) -> tuple[Extent, Extent]:
    if len(parts) != 2 or parts[0] == parts[1] == -1 or 0 in parts:
        raise AttributeFault("a split needs two extents, of which one may be worked out")
    left, right = parts
    if extent is None:
        return (None if left == -1 else left, None if right == -1 else right)
    left = extent // right if left == -1 else left
    right = extent // left if right == -1 and left else right
    if left * right != extent:
        raise Mismatch(f"{extent} cannot be split into {left} and {right}")
    return left, right


def _numpy_reshape(call: SymbolCall) -> None:
    """NumPy's reshape: -1 is worked out, nothing else."""
    target = call.attrs.integers("newshape", call.attrs.integers("shape", ()))
    if any(extent < -1 for extent in target) or target.count(-1) > 1:
        raise AttributeFault("the new shape has a code that NumPy does not know")
    _settle(call, tuple(None if extent == -1 else extent for extent in target))


def _coded_numpy_reshape(call: SymbolCall) -> None:
    """`npx.reshape`."""
    x, target = call.dims(0), call.attrs.integers("newshape")
    _settle(call, _coded(target, x, _NUMPY_CODES, reverse=call.attrs.flag("reverse")))


def _reshape_like(call: SymbolCall) -> None:
    """The shape of another tensor, or only some of its axes."""
    x, like = call.every()
    lhs, rhs = _axes_between(call, "lhs", len(x)), _axes_between(call, "rhs", len(like))
    _settle(call, (*x[: lhs[0]], *like[rhs[0] : rhs[1]], *x[lhs[1] :]))


def _axes_between(call: SymbolCall, side: str, rank: int) -> tuple[int, int]:
    begin, end = call.attrs.maybe_integer(f"{side}_begin"), call.attrs.maybe_integer(f"{side}_end")
    first = 0 if begin is None else begin + rank if begin < 0 else begin
    last = rank if end is None else end + rank if end < 0 else end
    if not 0 <= first <= last <= rank:
        raise AttributeFault(f"{side}_begin and {side}_end do not fit {rank} axes")
    return first, last


def _flatten(call: SymbolCall) -> None:
    x = call.dims(0)
    if not x:
        raise Mismatch("the data is a scalar")
    call.put_out(0, sh.flattened(x))
    if call.outs[0] is not None:
        call.put_in(0, (call.outs[0][0], *(None,) * (len(x) - 1)))


def _there_and_back(call: SymbolCall, there: Callable[[Dims], Dims], back: Callable[[Dims], Dims]) -> None:
    """The result follows from the input, and the input from the result."""
    if call.ins[0] is not None:
        call.put_out(0, there(call.ins[0]))
    if call.outs[0] is not None:
        call.put_in(0, back(call.outs[0]))


def _expand_dims(call: SymbolCall) -> None:
    axis = call.attrs.integer("axis")
    _there_and_back(call, lambda x: sh.inserted(x, axis), lambda y: sh.replaced(y, sh.axis_of(axis, len(y))))


def _squeeze(call: SymbolCall, least: int) -> Shape:
    """Axes of extent 1 go away; of at least this many axes one is left."""
    x, named, ones = call.dims(0), call.attrs.maybe_integers("axis"), (1,) * least
    if named is not None:
        return sh.squeezed(x, named) or ones
    return tuple(extent for extent in x if extent != 1) or ones if sh.complete(x) else None


FUNCTIONS.update(each_at_least=lambda call, rank: [None if x is None else at_least(rank, x) for x in call.ins])

# -- elements repeated along axes --------------------------------------------------------------------------------------


def _broadcast_to(call: SymbolCall) -> Shape:
    """0 in the target keeps an extent, but in NumPy's dialect, which aligns the last axes."""
    x = call.dims(0)
    target: Dims = call.attrs.integers("shape", ())
    if len(target) == len(x):
        target = tuple(mine if to == 0 else to for mine, to in zip(x, target, strict=True))
    return sh.expanded(x, target)


def _broadcast_axis(call: SymbolCall) -> Shape:
    y = list(call.dims(0))
    for axis, size in zip(call.attrs.integers("axis", ()), call.attrs.integers("size", ()), strict=True):
        if y[sh.axis_of(axis, len(y))] not in (1, None):
            raise Mismatch(f"axis {axis} of {sh.text(call.ins[0])} is not of extent 1")
        y[axis] = size
    return tuple(y)


def _broadcast_like(call: SymbolCall) -> Shape:
    x, like = call.every()
    mine, other = call.attrs.maybe_integers("lhs_axes"), call.attrs.maybe_integers("rhs_axes")
    if mine is None or other is None:
        return like
    y = list(x)
    for axis, source in zip(sh.axes_of(mine, len(x)), sh.axes_of(other, len(like)), strict=True):
        y[axis] = like[source]
    return tuple(y)


FUNCTIONS.update(
    tile=lambda call: sh.tiled(call.dims(0), call.attrs.integers("reps")),
    repeat=lambda call: sh.repeated(call.dims(0), call.attrs.integer("repeats"), call.attrs.maybe_integer("axis")),
)


# -- elements moved to other places ------------------------------------------------------------------------------------


def _transpose(call: SymbolCall) -> None:
    axes = call.attrs.integers("axes", ())

    def back(y: Dims) -> Dims:
        order = sh.axes_of(axes, len(y))
        return sh.permuted(y, sorted(range(len(order)), key=order.__getitem__))

    _there_and_back(call, lambda x: sh.permuted(x, axes), back)


def _swap_axes(call: SymbolCall) -> None:
    axes = call.attrs.integer("dim1", 0), call.attrs.integer("dim2", 0)
    _there_and_back(call, lambda x: sh.swapped(x, *axes), lambda y: sh.swapped(y, *axes))


def _move_axis(call: SymbolCall) -> Shape:
    x = call.dims(0)
    source, target = (sh.axes_of(call.attrs.integers(name), len(x)) for name in ("source", "destination"))
    order = [axis for axis in range(len(x)) if axis not in source]
    for place, axis in sorted(zip(target, source, strict=True)):
        order.insert(place, axis)
    return sh.permuted(x, order)


def _slice(call: SymbolCall) -> Shape:
    x = call.dims(0)
    begin, end = call.attrs.items("begin"), call.attrs.items("end")
    step = call.attrs.items("step", ()) or (None,) * len(begin)
    if len(begin) != len(end) or len(begin) != len(step) or len(begin) > len(x):
        raise Mismatch(f"begin, end and step do not fit {sh.text(x)}")
    if 0 in step:
        raise AttributeFault("a slice has the step 0")
    cut = [sh.slice_length(n, b, e, s) for n, b, e, s in zip(x, begin, end, step, strict=False)]
    return (*cut, *x[len(begin) :])


def _slice_axis(call: SymbolCall) -> None:
    x = call.dims(0)
    axis = sh.axis_of(call.attrs.integer("axis"), len(x))
    begin, end = call.attrs.integer("begin"), call.attrs.maybe_integer("end")
    extent = x[axis]
    if extent is None:
        length = end - begin if end is not None and (begin < 0) == (end < 0) else None
    else:
        first = begin + extent if begin < 0 else begin
        last = extent if end is None else end + extent if end < 0 else end
        if not 0 <= first <= last <= extent:
            raise Mismatch(f"the slice from {begin} to {end} is not inside {extent}")
        length = last - first
    call.put_out(0, sh.replaced(x, axis, length))
    if call.outs[0] is not None:
        call.put_in(0, sh.replaced(call.outs[0], axis, None))


def _slice_like(call: SymbolCall) -> Shape:
    x, like = call.every()
    axes = sh.axes_of(call.attrs.integers("axes", ()) or None, len(x))
    if any(axis >= len(like) or (like[axis] or 0) > (x[axis] or like[axis] or 0) for axis in axes):
        raise Mismatch(f"{sh.text(x)} cannot be cut like {sh.text(like)}")
    return tuple(like[axis] if axis in axes else extent for axis, extent in enumerate(x))


def _pad(call: SymbolCall) -> Shape:
    """NumPy's dialect puts a pair of brackets around the widths of each axis."""
    plain = call.attrs.text("pad_width").translate(str.maketrans("", "", "()[]"))
    x, width = call.dims(0), Attributes({"pad_width": plain}).integers("pad_width")
    if len(width) != 2 * len(x):
        raise Mismatch(f"pad_width has {len(width)} numbers, and {sh.text(x)} needs {2 * len(x)}")
    return sh.padded(x, list(zip(width[::2], width[1::2], strict=True)))


def image(shape: Dims) -> Dims:
    """A shape of four axes."""
    if len(shape) != 4:
        raise Mismatch(f"the data is {sh.text(shape)}, not batch, channels, height and width")
    return shape


def _crop(call: SymbolCall) -> Shape:
    x = image(call.dims(0))
    return (*x[:2], *(image(call.dims(1))[2:] if len(call.ins) > 1 else call.attrs.integers("h_w", (0, 0))))


def _multicast(call: SymbolCall) -> None:
    for index in range(len(call.ins)):
        call.put_out(index, call.ins[index])
        call.put_in(index, call.outs[index])


def _multicast_types(call: SymbolCall) -> None:
    """All become the widest of the floating types that come in, or the narrowest."""
    ranks = ("float16", "bfloat16", "float32", "float64")
    found = [dtype for dtype in call.in_types if dtype in ranks]
    if len(found) == len(call.in_types):
        pick = min if call.attrs.flag("cast_narrow") else max
        wanted = pick(found, key=ranks.index)
        call.out_types[:] = [dtype or wanted for dtype in call.out_types]


def _rot90(call: SymbolCall) -> Shape:
    turned = call.attrs.integer("k", 1) % 2
    return sh.swapped(call.dims(0), *call.attrs.integers("axes", (0, 1))) if turned else call.dims(0)


FUNCTIONS.update(cast=lambda call: ("view" if call.in_types[0] == call.out_types[0] else "copy", {}))
