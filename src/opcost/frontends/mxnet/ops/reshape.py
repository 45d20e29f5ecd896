"""Other looks at the same elements: reshaping, flattening, dropping and adding axes, handing on."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.core.shapes import (
    Extent,
    Mismatch,
    Shape,
    axis_of,
    complete,
    filled,
    flattened,
    inserted,
    product,
    replaced,
    squeezed,
    text,
)
from opcost.frontends.mxnet.attribute import AttributeFault
from opcost.frontends.mxnet.ops.elementwise import like_first
from opcost.frontends.mxnet.ops.join import at_least
from opcost.frontends.mxnet.ops.table import VIEW, Call, Infer, Operator, define, register, types_of

COPY, INFER, REST, MERGE, SPLIT = 0, -1, -2, -3, -4
"""Codes in the target of a reshape."""


def _reshape(call: Call) -> None:
    x = call.dims(0)
    target = call.attrs.integers("shape", ())
    legacy = call.attrs.integers("target_shape", ())
    if target:
        _settle(call, _coded(target, x, reverse=call.attrs.flag("reverse")))
    elif legacy:
        _settle(call, _by_target(legacy, x, keep_highest=call.attrs.flag("keep_highest")))
    else:
        _settle(call, call.outs[0])


def _settle(call: Call, shape: Shape) -> None:
    """The output's shape, and an unknown extent of the input from the number of elements."""
    call.put_out(0, shape)
    x, y = call.ins[0], call.outs[0]
    if x is not None and y is not None:
        call.put_in(0, filled(x, product(y)))
        call.put_out(0, filled(y, product(x)))


def _coded(target: Sequence[int], x: Sequence[Extent], *, reverse: bool) -> Shape:
    """MXNet's reshape: 0 copies an extent, -1 is worked out, -2 copies the rest, -3 merges two, -4 splits one.

    An extent that is worked out is put where its code stands in the target, which after -2, -3 or -4 is not where it
    belongs: so does MXNet.
    """
    source = list(reversed(x)) if reverse else list(x)
    codes = list(reversed(target)) if reverse else list(target)
    found: list[Extent] = []
    inferred = -1
    at = place = 0
    while place < len(codes):
        code = codes[place]
        if code == COPY:
            found.append(_take(source, at))
            at += 1
        elif code == INFER:
            if inferred >= 0:
                raise AttributeFault("more than one extent of the new shape is to be worked out")
            inferred = place
            found.append(1)
            at += 1
        elif code == REST:
            found.extend(source[at:])
            at = max(at, len(source))
        elif code == MERGE:
            found.append(product((_take(source, at), _take(source, at + 1))))
            at += 2
        elif code == SPLIT:
            found.extend(_split(_take(source, at), codes[place + 1 : place + 3]))
            at += 1
            place += 2
        elif code > 0:
            found.append(code)
            at += 1
        else:
            raise AttributeFault(f"{code} is not a code of a new shape")
        place += 1
    if 0 <= inferred < len(found):
        found[inferred] = _left_over(product(x), product(found))
    if reverse:
        found.reverse()
    return tuple(found)


def _left_over(elements: Extent, taken: Extent) -> Extent:
    return None if taken is None or elements is None else elements // taken if taken else 0


def _take(source: Sequence[Extent], at: int) -> Extent:
    if at >= len(source):
        raise Mismatch(f"{text(tuple(source))} has too few axes for the new shape")
    return source[at]


def _split(extent: Extent, parts: Sequence[int]) -> tuple[Extent, Extent]:
    if len(parts) != 2 or parts[0] == parts[1] == INFER or 0 in parts:
        raise AttributeFault("a split needs two extents, of which one may be worked out")
    left, right = parts
    if extent is None:
        return (None if left == INFER else left, None if right == INFER else right)
    left = extent // right if left == INFER else left
    right = extent // left if right == INFER and left else right
    if left * right != extent:
        raise Mismatch(f"{extent} cannot be split into {left} and {right}")
    return left, right


def _by_target(target: Sequence[int], x: Sequence[Extent], *, keep_highest: bool) -> Shape:
    """The reshape of the oldest files: 0 is worked out, and the first extent may be kept."""
    found: list[Extent] = list(target)
    if keep_highest:
        found[0] = x[0] if x else None
    free = [index for index in range(1 if keep_highest else 0, len(found)) if found[index] == 0]
    if len(free) == 1:
        found[free[0]] = 1
        found[free[0]] = _left_over(product(x), product(found))
    return tuple(None if extent == 0 else extent for extent in found)


def _numpy_reshape(call: Call) -> None:
    """NumPy's reshape: -1 is worked out, nothing else."""
    target = call.attrs.integers("newshape", call.attrs.integers("shape", ()))
    if any(extent < -1 for extent in target) or target.count(-1) > 1:
        raise AttributeFault("the new shape has a code that NumPy does not know")
    _settle(call, tuple(None if extent == -1 else extent for extent in target))


def _coded_numpy_reshape(call: Call) -> None:
    """`npx.reshape`: -1 is worked out, -2 copies, -3 drops an axis of extent 1, -4 copies the rest, -5 merges, -6 splits."""
    x = call.dims(0)
    target = call.attrs.integers("newshape")
    if all(extent >= 0 for extent in target):
        _settle(call, target)
        return
    reverse = call.attrs.flag("reverse")
    source = list(reversed(x)) if reverse else list(x)
    codes = list(reversed(target)) if reverse else list(target)
    found: list[Extent] = []
    at = place = 0
    while place < len(codes):
        code = codes[place]
        if code == -2:
            found.append(_take(source, at))
        elif code == -3:
            if _take(source, at) not in (1, None):
                raise Mismatch(f"only an axis of extent 1 can be dropped, not one of {source[at]}")
        elif code == -4:
            found.extend(source[at:])
            at = max(at, len(source)) - 1
        elif code == -5:
            found.append(product((_take(source, at), _take(source, at + 1))))
            at += 1
        elif code == -6:
            found.extend(_split(_take(source, at), codes[place + 1 : place + 3]))
            place += 2
        elif code >= -1:
            found.append(None if code == -1 else code)
        else:
            raise AttributeFault(f"{code} is not a code of a new shape")
        at += 1
        place += 1
    _settle(call, tuple(reversed(found)) if reverse else tuple(found))


def _reshape_like(call: Call) -> None:
    """The shape of another tensor, or only some of its axes."""
    x, like = call.every()
    lhs = _range(call, "lhs", len(x))
    rhs = _range(call, "rhs", len(like))
    _settle(call, (*x[: lhs[0]], *like[rhs[0] : rhs[1]], *x[lhs[1] :]))


def _range(call: Call, side: str, rank: int) -> tuple[int, int]:
    begin, end = call.attrs.maybe_integer(f"{side}_begin"), call.attrs.maybe_integer(f"{side}_end")
    first = 0 if begin is None else begin + rank if begin < 0 else begin
    last = rank if end is None else end + rank if end < 0 else end
    if not 0 <= first <= last <= rank:
        raise AttributeFault(f"{side}_begin and {side}_end do not fit {rank} axes")
    return first, last


def _flatten(call: Call) -> None:
    x = call.dims(0)
    if not x:
        raise Mismatch("the data is a scalar")
    call.put_out(0, flattened(x))
    if call.outs[0] is not None:
        call.put_in(0, (call.outs[0][0], *(None,) * (len(x) - 1)))


def _expand_dims(call: Call) -> None:
    axis, x = call.attrs.integer("axis"), call.ins[0]
    if x is not None:
        call.put_out(0, inserted(x, axis))
    y = call.outs[0]
    if y is not None:
        call.put_in(0, replaced(y, axis_of(axis, len(y))))


def _squeeze(least: tuple[int, ...]) -> Infer:
    """Axes of extent 1 go away; where all of them do, a tensor of the shape `least` is left."""
    return lambda call: _squeezed(call, least)


def _squeezed(call: Call, least: tuple[int, ...]) -> None:
    x = call.dims(0)
    named = call.attrs.maybe_integers("axis")
    if named is None:
        if complete(x):
            call.put_out(0, tuple(extent for extent in x if extent != 1) or least)
        return
    call.put_out(0, squeezed(x, named) or least)


def _at_least(rank: int) -> Operator:
    """`atleast_1d` and its relatives."""

    def infer(call: Call) -> None:
        for index, x in enumerate(call.ins):
            if x is not None:
                call.put_out(index, at_least(rank, x))

    return Operator(infer, VIEW, outputs=lambda attrs: attrs.integer("num_args", 1))


def _with_average(call: Call) -> None:
    """Handed on, while a running average of every unit is kept."""
    like_first(call)
    x = call.dims(0)
    if len(x) > 1:
        call.put_in(1, (x[1],))


_VIEW = VIEW

define("Reshape reshape", _reshape, _VIEW)
define("_np_reshape", _numpy_reshape, _VIEW)
define("_npx_reshape _npi_reshape", _coded_numpy_reshape, _VIEW)
define("reshape_like _npx_reshape_like", _reshape_like, _VIEW, types_of(0), slots="lhs like")
define("Flatten flatten _npx_batch_flatten", _flatten, _VIEW)
define("expand_dims _npi_expand_dims", _expand_dims, _VIEW)
define("squeeze", _squeeze((1,)), _VIEW)
define("_np_squeeze _npi_squeeze", _squeeze(()), _VIEW)
define(
    (
        "_copy identity _copyto _npi_copyto _np_copy _npi_copy BlockGrad stop_gradient _sparse_stop_gradient "
        "_npx_stop_gradient MakeLoss make_loss _sparse_make_loss _CrossDeviceCopy _contrib_gradientmultiplier "
        "_npx_constraint_check cast_storage _sparse_cast_storage"
    ),
    like_first,
    _VIEW,
)
define("IdentityAttachKLSparseReg", _with_average, _VIEW, types_of(0), slots="x moving_avg")
define("_identity_with_attr_like_rhs", like_first, _VIEW, types_of(0), slots="lhs like")
for _rank in (1, 2, 3):
    register((f"_np_atleast_{_rank}d", f"_npi_atleast_{_rank}d"), _at_least(_rank))
