"""How tensors are laid out in memory and of which type results are, compared with PyTorch's tensors without data."""

from __future__ import annotations

from itertools import permutations, product
from math import prod

import torch

from opcost.frontends.aten.tensor import (
    Described,
    complex_of,
    floating,
    is_contiguous,
    is_integer,
    real_of,
    row_major,
    seen_as,
    summed,
)

EXTENTS = (0, 1, 2, 3)
SHAPES = [shape for rank in range(4) for shape in product(EXTENTS, repeat=rank)]
TYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex32", "complex64",
    "complex128",
)  # fmt: skip


def tensors() -> list[torch.Tensor]:
    """All small shapes in every order of their axes, with gaps, and repeated along an axis."""
    found = []
    for shape in SHAPES:
        x = torch.empty(shape, device="meta")
        found += [x.permute(order) for order in permutations(range(x.dim()))]
        if x.dim():
            found += [torch.empty((*shape[:-1], 2 * shape[-1]), device="meta")[..., ::2]]
            found += [torch.empty((*shape[:-1], shape[-1] + 1), device="meta")[..., 1:]]
        if x.dim() and shape[0]:
            found += [x[:1].expand(2, *shape[1:])]
    return found


def test_a_new_tensor_is_stored_row_by_row() -> None:
    assert [row_major(shape) for shape in SHAPES] == [torch.empty(shape, device="meta").stride() for shape in SHAPES]


def test_memory_is_seen_with_another_shape_where_pytorch_sees_it_so() -> None:
    targets = {
        count: [
            shape for rank in range(4) for shape in product((0, 1, 2, 3, 4, 6, 9), repeat=rank) if prod(shape) == count
        ]
        for count in {prod(shape) for shape in SHAPES} | {4}
    }
    views = refusals = 0
    for x in tensors():
        described = Described(tuple(x.shape), x.stride(), "float32")
        assert is_contiguous(described) == x.is_contiguous()
        for shape in targets.get(x.numel(), []) if x.numel() else [(0,), (0, 2), (1, 0)]:
            try:
                expected = x.view(shape).stride()
            except RuntimeError:
                refusals += 1
                assert seen_as(described, shape) is None, (x.shape, x.stride(), shape)
                continue
            views += 1
            found = seen_as(described, shape)
            assert found is not None, (x.shape, x.stride(), shape)
            if x.numel():  # the strides of axes of one element are a matter of taste
                assert [s for s, n in zip(found, shape, strict=True) if n != 1] == [
                    s for s, n in zip(expected, shape, strict=True) if n != 1
                ], (x.shape, x.stride(), shape)
    assert views > 1000
    assert refusals > 300


def test_memory_is_not_seen_with_more_or_fewer_elements() -> None:
    assert seen_as(Described((2, 3), (3, 1), "float32"), (5,)) is None
    assert seen_as(Described((2, 3), (3, 1), "float32"), (2, 3, 2)) is None
    assert seen_as(Described((), (), "float32"), (2,)) is None
    assert seen_as(Described((0, 3), (3, 1), "float32"), (1,)) is None


def test_types_of_parts_sums_and_functions() -> None:
    for name in TYPES:
        dtype = getattr(torch, name)
        x = torch.ones(2, dtype=dtype)
        assert real_of(name) == (str(dtype.to_real())[6:] if dtype.is_complex else name)
        assert (
            complex_of(name)
            == str(dtype.to_complex() if dtype.is_floating_point or dtype.is_complex else torch.complex64)[6:]
        )
        if name != "complex32":  # of which the CPU has few functions
            assert floating(name) == str(x.sqrt().dtype)[6:]
            assert summed(name) == str(x.sum().dtype)[6:]
        assert is_integer(name) is (not dtype.is_floating_point and not dtype.is_complex)
