"""Shape arithmetic against NumPy, and against PyTorch on tensors without data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.nn import functional as nn

from opcost.core.shapes import (
    Mismatch,
    broadcast,
    concat,
    diagonal,
    dot,
    einsum,
    even_parts,
    expanded,
    explicit,
    gathered,
    inserted,
    matmul,
    padded,
    permuted,
    reduced,
    repeated,
    reshaped,
    slice_length,
    spread,
    squeezed,
    stack,
    swapped,
    tensordot,
    tiled,
    windows,
)

EXTENTS = st.integers(0, 5)
SHAPES = st.lists(EXTENTS, max_size=4).map(tuple)


def meta(shape: Any) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def zeros(shape: Any) -> Any:
    return np.broadcast_to(np.float32(0), shape)


def alike(ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
    """Both give the same shape, or both refuse."""
    try:
        expected = theirs()
    except (RuntimeError, IndexError, ValueError):
        with pytest.raises(Mismatch):
            ours()
    else:
        assert ours() == tuple(expected.shape)


@given(st.lists(st.lists(st.sampled_from([0, 1, 1, 3]), max_size=3).map(tuple), min_size=1, max_size=3))
def test_broadcasting(shapes: list[tuple[int, ...]]) -> None:
    alike(lambda: broadcast(shapes), lambda: np.empty(np.broadcast_shapes(*shapes)))


@given(st.lists(st.sampled_from([1, 3]), max_size=3).map(tuple), st.lists(st.sampled_from([1, 3]), max_size=3))
def test_stretching(shape: tuple[int, ...], target: list[int]) -> None:
    alike(lambda: expanded(shape, target), lambda: np.broadcast_to(zeros(shape), target))


@given(
    extent=st.integers(1, 12), size=st.integers(1, 5), stride=st.integers(1, 4), before=st.integers(0, 3),
    behind=st.integers(0, 3), dilation=st.integers(1, 3),
)  # fmt: skip
def test_windows_of_a_convolution(extent: int, size: int, stride: int, before: int, behind: int, dilation: int) -> None:
    x = nn.pad(meta((1, 1, extent)), (before, behind))
    alike(
        lambda: (1, 1, windows(extent, size, stride=stride, padding=(before, behind), dilation=dilation)),
        lambda: nn.conv1d(x, meta((1, 1, size)), stride=stride, dilation=dilation),
    )


@given(
    extent=st.integers(1, 12), size=st.integers(1, 6), stride=st.integers(1, 6), share=st.floats(0, 0.5),
    dilation=st.integers(1, 3), ceil_mode=st.booleans(),
)  # fmt: skip
def test_windows_of_a_pool(extent: int, size: int, stride: int, share: float, dilation: int, ceil_mode: bool) -> None:
    pad = int(share * size)  # PyTorch pads at most half a window
    assume(extent + 2 * pad >= dilation * (size - 1) + 1)
    count = windows(
        extent, size, stride=stride, padding=(pad, pad), dilation=dilation, last="begun" if ceil_mode else "whole"
    )
    y = nn.max_pool1d(meta((1, 1, extent)), size, stride, pad, dilation, ceil_mode)
    assert y.shape == (1, 1, count)


@given(
    extent=st.integers(1, 8), size=st.integers(1, 5), stride=st.integers(1, 4), pad=st.integers(0, 3),
    dilation=st.integers(1, 3), extra=st.integers(0, 3),
)  # fmt: skip
def test_spread_of_a_transposed_convolution(
    extent: int, size: int, stride: int, pad: int, dilation: int, extra: int
) -> None:
    assume(extra < max(stride, dilation))  # PyTorch refuses more
    alike(
        lambda: (1, 1, spread(extent, size, stride=stride, padding=(pad, pad), dilation=dilation, extra=extra)),
        lambda: nn.conv_transpose1d(
            meta((1, 1, extent)), meta((1, 1, size)), None, stride, pad, extra, dilation=dilation
        ),
    )


@given(SHAPES, st.sets(st.integers(-4, 3), max_size=3), st.booleans())
def test_reductions(shape: tuple[int, ...], axes: set[int], keepdims: bool) -> None:
    assume(len({axis % len(shape) for axis in axes if shape}) == len(axes))  # NumPy refuses an axis named twice
    alike(
        lambda: reduced(shape, axes, keepdims=keepdims),
        lambda: zeros(shape).sum(axis=tuple(axes), keepdims=keepdims),
    )


@given(SHAPES, st.integers(-6, 5))
def test_axes_added_and_dropped(shape: tuple[int, ...], axis: int) -> None:
    alike(lambda: inserted(shape, axis), lambda: np.expand_dims(zeros(shape), axis))
    assume(shape)  # NumPy lets the one axis of a scalar be dropped
    alike(lambda: squeezed(shape, [axis]), lambda: np.squeeze(zeros(shape), axis))


@given(SHAPES.filter(bool), st.data())
def test_axes_in_another_order(shape: tuple[int, ...], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    first, second = data.draw(st.tuples(st.integers(-5, 4), st.integers(-5, 4)))
    alike(lambda: permuted(shape, order), lambda: zeros(shape).transpose(order))
    alike(lambda: swapped(shape, first, second), lambda: zeros(shape).swapaxes(first, second))


@given(SHAPES, st.lists(st.integers(-1, 6), max_size=3))
def test_reshapes(shape: tuple[int, ...], target: list[int]) -> None:
    assume(-1 not in target or 0 not in (*shape, *target))  # then nothing says what -1 is, and NumPy refuses
    alike(lambda: reshaped(shape, target), lambda: zeros(shape).reshape(target))


@given(
    st.lists(st.lists(st.sampled_from([2, 2, 2, 3]), max_size=3).map(tuple), min_size=1, max_size=3), st.integers(-4, 3)
)
def test_joins(shapes: list[tuple[int, ...]], axis: int) -> None:
    alike(lambda: concat(shapes, axis), lambda: np.concatenate([zeros(shape) for shape in shapes], axis))
    alike(lambda: stack(shapes, axis), lambda: np.stack([zeros(shape) for shape in shapes], axis))


@given(st.integers(0, 20), st.integers(1, 6))
def test_even_parts(extent: int, count: int) -> None:
    assert even_parts(extent, count) == [len(part) for part in np.array_split(np.arange(extent), count)]


_PLACES = st.none() | st.integers(-12, 12)


@given(st.integers(0, 10), _PLACES, _PLACES, st.none() | st.integers(-4, 4).filter(bool))
def test_slices(extent: int, begin: int | None, end: int | None, step: int | None) -> None:
    assert slice_length(extent, begin, end, step) == len(np.arange(extent)[begin:end:step])


@given(SHAPES.filter(bool), st.data())
def test_elements_added_and_repeated(shape: tuple[int, ...], data: st.DataObject) -> None:
    widths = data.draw(st.lists(st.tuples(EXTENTS, EXTENTS), min_size=len(shape), max_size=len(shape)))
    many = data.draw(st.lists(EXTENTS, min_size=1, max_size=4))
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    alike(lambda: padded(shape, widths), lambda: np.pad(zeros(shape), widths))
    alike(lambda: tiled(shape, many), lambda: np.tile(zeros(shape), many))
    alike(lambda: repeated(shape, many[0], axis), lambda: np.repeat(zeros(shape), many[0], axis))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.lists(st.integers(0, 3), max_size=2), st.integers(-4, 3))
def test_gathers(shape: list[int], indices: list[int], axis: int) -> None:
    alike(lambda: gathered(shape, indices, axis), lambda: np.take(zeros(shape), np.zeros(indices, int), axis))


@given(st.integers(0, 5), st.integers(0, 5), st.integers(-6, 6))
def test_diagonals(rows: int, columns: int, offset: int) -> None:
    assert diagonal(rows, columns, offset) == len(np.diagonal(zeros((rows, columns)), offset))


_MATRICES = st.lists(st.sampled_from([1, 2, 2, 2, 3]), max_size=4).map(tuple)


@given(_MATRICES, _MATRICES)
def test_products(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    alike(lambda: matmul(a, b), lambda: zeros(a) @ zeros(b))
    alike(lambda: dot(a, b), lambda: np.dot(zeros(a), zeros(b)))
    axes = ((-1,), (0,))
    alike(lambda: tensordot(a, b, *axes), lambda: np.tensordot(zeros(a), zeros(b), axes))


@given(
    st.sampled_from(["ij,jk", "ij,jk->ki", "...ij,...jk->...ik", "ii->i", "ij,kj,i->k", "...,...", "i...->..."]),
    st.lists(st.lists(st.sampled_from([1, 2, 2, 2, 3]), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3),
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    assume("ii" not in equation or len(set(shapes[0])) == 1)  # NumPy does not stretch within one operand
    alike(
        lambda: einsum(explicit(equation, [len(shape) for shape in shapes]), shapes),
        lambda: np.einsum(equation, *map(zeros, shapes)),
    )
