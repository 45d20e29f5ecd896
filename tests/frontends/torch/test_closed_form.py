"""Outputs worked out by hand are what PyTorch's own kernels make: the same shapes, strides and types."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from opcost.frontends.torch.operators.calls import META, substitute
from opcost.frontends.torch.operators.closed_form import _FORMS, closed_form

aten = torch.ops.aten
extents = st.integers(1, 5)
dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64])
shapes = st.lists(extents, min_size=0, max_size=4).map(tuple)


def tensor(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, *, transposed: bool = False) -> torch.Tensor:
    made = torch.ones(shape, dtype=dtype)
    return made.transpose(0, -1) if transposed and len(shape) > 1 else made


def flat(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result or ())


def real_tensors(args: Any) -> list[torch.Tensor]:
    found = []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            found.append(arg)
        elif isinstance(arg, list):
            found += real_tensors(arg)
    return found


def assert_as_pytorch(func: Any, *args: Any, **kwargs: Any) -> bool:
    """Compare with the real kernel where the closed form answers at all; says whether it did."""
    metas = iter([torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=META) for t in real_tensors(args)])
    answer = closed_form(func, substitute(args, metas, META), kwargs)
    if answer is NotImplemented:
        return False
    for ours, theirs in zip(flat(answer), flat(func(*args, **kwargs)), strict=True):
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert ours.dtype is theirs.dtype
        assert [s for n, s in zip(ours.shape, ours.stride(), strict=True) if n > 1] == [
            s for n, s in zip(theirs.shape, theirs.stride(), strict=True) if n > 1
        ]
    return True


ELEMENTWISE = [func for func in _FORMS if torch.Tag.pointwise in func.tags and "_foreach_" not in func.name()]


@pytest.mark.parametrize("func", ELEMENTWISE, ids=str)
@given(shape=shapes, dtype=dtypes, transposed=st.booleans())
def test_elementwise(func: Any, shape: tuple[int, ...], dtype: torch.dtype, transposed: bool) -> None:
    tensors = sum(str(argument.type) == "Tensor" for argument in func._schema.arguments)
    numbers = [2.0] if tensors == 1 and "Scalar" in func._overloadname else []
    if func is aten.threshold_backward.default:
        numbers = [0]
    args = [tensor(shape, dtype, transposed=transposed) for _ in range(tensors)]
    if dtype is torch.int64 and closed_form(func, [a.to(META) for a in args] + numbers, {}) is NotImplemented:
        return
    if func in (aten.clamp.default, aten.clamp_min.default):
        numbers = [0.5]
    assert_as_pytorch(func, *args, *numbers)


@given(shape=st.lists(extents, min_size=1, max_size=4), steps=st.lists(st.integers(1, 2), min_size=4, max_size=4))
def test_rows_with_gaps_between_them_are_answered_without_a_kernel(shape: list[int], steps: list[int]) -> None:
    """A slice of every second row: strides fall as rows' do, and what is made has no gaps."""
    whole = tensor(tuple([n * step for n, step in zip(shape, steps, strict=False)]))
    gaps = whole[tuple([slice(None, None, step) for step in steps[: len(shape)]])]
    answered = all(outer > inner for outer, inner in pairwise(gaps.stride())) or gaps.is_contiguous()
    for func in (aten.add.Tensor, aten.mul.Tensor):
        assert assert_as_pytorch(func, gaps, tensor(tuple(shape))) == answered
        assert assert_as_pytorch(func, tensor(tuple(shape)), gaps) == answered
    assert assert_as_pytorch(aten.sigmoid.default, gaps) == answered


def test_an_expanded_vector_is_left_to_pytorch_or_answered_as_it_does() -> None:
    assert_as_pytorch(aten.sigmoid.default, tensor((1,)).expand(4))
    assert_as_pytorch(aten.mul.Tensor, tensor((1,)).expand(4), tensor((4,)))


@given(shape=st.lists(extents, min_size=1, max_size=4), data=st.data())
def test_broadcasting(shape: list[int], data: st.DataObject) -> None:
    other = [data.draw(st.sampled_from([1, n])) for n in shape][data.draw(st.integers(0, len(shape) - 1)) :]
    for func in (aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor, aten.div.Tensor):
        assert assert_as_pytorch(func, tensor(tuple(shape)), tensor(tuple(other)))
        assert assert_as_pytorch(func, tensor(tuple(other)), tensor(tuple(shape)))


@given(m=extents, k=extents, n=extents, b=extents)
def test_products(m: int, k: int, n: int, b: int) -> None:
    assert assert_as_pytorch(aten.mm.default, tensor((m, k)), tensor((n, k)).t())
    assert assert_as_pytorch(aten.addmm.default, tensor((n,)), tensor((m, k)), tensor((k, n)))
    assert assert_as_pytorch(aten.bmm.default, tensor((b, m, k)), tensor((b, k, n)))


@given(
    batch=extents,
    groups=st.integers(1, 3),
    channels=st.integers(2, 4),
    size=st.integers(5, 9),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
    rank=st.integers(1, 3),
)
def test_convolution(
    batch: int, groups: int, channels: int, size: int, kernel: int, stride: int, padding: int, dilation: int, rank: int
) -> None:
    x = tensor((batch, channels * groups, *[size] * rank))
    weight = tensor((2 * groups, channels, *[kernel] * rank))
    settings = ([stride] * rank, [padding] * rank, [dilation] * rank, False, [0] * rank, groups)
    assert_as_pytorch(aten.convolution.default, x, weight, tensor((2 * groups,)), *settings)


def test_convolution_answers_the_plain_case() -> None:
    settings = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    assert assert_as_pytorch(aten.convolution.default, tensor((2, 3, 8, 8)), tensor((4, 3, 3, 3)), None, *settings)


FLOATS = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])
"""Element types of what is normalised. Weights are float32: of halves all through, processors keep other statistics than GPUs."""


@pytest.mark.parametrize("training", [True, False])
@given(shape=st.lists(extents, min_size=2, max_size=4).filter(lambda s: s[0] > 1), dtype=FLOATS)
def test_batch_norm(training: bool, shape: list[int], dtype: torch.dtype) -> None:
    x, vectors = tensor(tuple(shape), dtype), [tensor((shape[1],)) for _ in range(4)]
    assert assert_as_pytorch(aten.native_batch_norm.default, x, *vectors, training, 0.1, 1e-5)


@given(shape=st.lists(extents, min_size=2, max_size=4).filter(lambda s: s[0] > 1), dtype=FLOATS)
def test_batch_norm_backward(shape: list[int], dtype: torch.dtype) -> None:
    x, vectors = tensor(tuple(shape), dtype), [tensor((shape[1],)) for _ in range(5)]
    rest = (True, 1e-5, [True] * 3)
    assert assert_as_pytorch(aten.native_batch_norm_backward.default, x, x, *vectors, *rest)
    turned = x.transpose(0, 1).contiguous().transpose(0, 1)
    assert_as_pytorch(aten.native_batch_norm_backward.default, turned, turned, *vectors, *rest)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_statistics_of_halves_are_kept_in_full_as_on_a_gpu(dtype: torch.dtype) -> None:
    x, w = (torch.empty(shape, dtype=dtype, device=META) for shape in ((4, 6, 5), (6,)))
    made = closed_form(aten.native_batch_norm.default, (x, w, w, w, w, True, 0.1, 1e-5), {})
    assert [(tuple(each.shape), each.dtype) for each in made] == [
        ((4, 6, 5), dtype), ((6,), torch.float32), ((6,), torch.float32),
    ]  # fmt: skip
    made = closed_form(aten.native_batch_norm.default, (x, w, w, w, w, False, 0.1, 1e-5), {})
    assert [tuple(each.shape) for each in made] == [(4, 6, 5), (0,), (0,)]  # at inference they are those that are given


FOREACH = [func for func in _FORMS if "_foreach_" in func.name()]


@pytest.mark.parametrize("func", FOREACH, ids=str)
@given(lengths=st.lists(shapes, min_size=1, max_size=3), dtype=dtypes)
def test_an_operator_on_all_parameters_at_once(func: Any, lengths: list[tuple[int, ...]], dtype: torch.dtype) -> None:
    args: list[Any] = []
    for argument in func._schema.arguments:
        if "Tensor" in str(argument.type):
            args.append([tensor(shape, dtype) for shape in lengths])
        elif not argument.has_default_value():
            args.append([2.0] * len(lengths) if "List" in str(argument.type) else 2.0)
    metas = [
        [each.to(META) for each in arg] if isinstance(arg, list) and arg and isinstance(arg[0], torch.Tensor) else arg
        for arg in args
    ]
    answered = closed_form(func, metas, {}) is not NotImplemented
    assert answered == (dtype is not torch.int64)
    if answered:
        assert_as_pytorch(func, *args)


def test_an_update_in_other_types_or_shapes_is_left_to_pytorch() -> None:
    one, other = [tensor((2, 3)).to(META)], [tensor((2, 3), torch.bfloat16).to(META)]
    assert closed_form(aten._foreach_add_.List, (one, other), {}) is NotImplemented
    assert closed_form(aten._foreach_add_.List, (one, [tensor((3,)).to(META)]), {}) is NotImplemented
    assert closed_form(aten._foreach_add_.List, (one, one), {"alpha": 2}) is None


@given(shape=st.lists(extents, min_size=1, max_size=4), tail=st.integers(1, 2), dtype=FLOATS)
def test_layer_norm(shape: list[int], tail: int, dtype: torch.dtype) -> None:
    normalized = shape[-tail:]
    x, vectors = tensor(tuple(shape), dtype), [tensor(tuple(normalized)) for _ in range(2)]
    assert assert_as_pytorch(aten.native_layer_norm.default, x, normalized, *vectors, 1e-5)
    kept = [tensor((*shape[: len(shape) - len(normalized)], *(1 for _ in normalized))) for _ in range(2)]
    backward = aten.native_layer_norm_backward.default
    assert assert_as_pytorch(backward, x, x, normalized, *kept, *vectors, [True] * 3)
    assert not assert_as_pytorch(backward, x, x, normalized, *kept, *vectors, [True, True, False])


@given(shape=st.lists(extents, min_size=1, max_size=4), axis=st.integers(0, 3), keep=st.booleans())
def test_reductions_softmax_and_moves(shape: list[int], axis: int, keep: bool) -> None:
    axis %= len(shape)
    x = tensor(tuple(shape))
    assert assert_as_pytorch(aten.mean.dim, x, [axis], keep)
    assert assert_as_pytorch(aten.sum.dim_IntList, x, [axis - len(shape)], keep)
    assert assert_as_pytorch(aten._softmax.default, x, axis, False)
    assert assert_as_pytorch(aten._log_softmax.default, x, axis, False)
    assert assert_as_pytorch(aten.cat.default, [x, x, x], axis)
    assert assert_as_pytorch(aten.clone.default, x)
    assert assert_as_pytorch(aten.roll.default, x, [1], [axis])


@given(rows=extents, width=extents, shape=shapes)
def test_embedding(rows: int, width: int, shape: tuple[int, ...]) -> None:
    assert assert_as_pytorch(aten.embedding.default, tensor((rows, width)), torch.zeros(shape, dtype=torch.int64))


COLD = """
import sys
import torch
from torch import nn
import opcost

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.linear = nn.Embedding(10, 8), nn.Linear(8, 8)

    def forward(self, x):
        h = self.linear(self.embed(x))
        return torch.softmax(torch.cat([h @ self.linear.weight, h.clone()]), -1)

opcost.count(Net(), (torch.zeros(4, 4, dtype=torch.long),))
print("sympy" in sys.modules)
"""


def test_a_count_of_usual_layers_loads_no_decompositions() -> None:
    """PyTorch's meta kernels in Python import sympy, a second of a fresh process."""
    done = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
