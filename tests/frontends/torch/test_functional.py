"""Contractions that no module shows: functions, operators, methods, `out=` and in-place forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import opcost

B, M, K, N = 2, 7, 5, 11
"""A batch, and the sides of a product (M, K) × (K, N)."""


def t(*shape: int) -> Tensor:
    return torch.empty(shape)


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], int]] = {
    "F.linear": (F.linear, (t(B, M, K), t(N, K)), B * M * K * N),
    "F.linear of a vector": (F.linear, (t(K), t(N, K)), K * N),
    "torch.matmul": (torch.matmul, (t(M, K), t(K, N)), M * K * N),
    "@": (lambda a, b: a @ b, (t(M, K), t(K, N)), M * K * N),
    "Tensor.matmul": (lambda a, b: a.matmul(b), (t(M, K), t(K, N)), M * K * N),
    "Tensor.__rmatmul__": (lambda a, b: Tensor.__rmatmul__(b, a), (t(M, K), t(K, N)), M * K * N),
    "mm": (torch.mm, (t(M, K), t(K, N)), M * K * N),
    "batch @ matrix": (torch.matmul, (t(B, M, K), t(K, N)), B * M * K * N),
    "matrix @ batch": (torch.matmul, (t(M, K), t(B, K, N)), B * M * K * N),
    "batch @ batch": (torch.matmul, (t(B, M, K), t(B, K, N)), B * M * K * N),
    "broadcast batches": (torch.matmul, (t(3, 1, M, K), t(B, K, N)), 3 * B * M * K * N),
    "batch @ vector": (torch.matmul, (t(B, M, K), t(K)), B * M * K),
    "vector @ matrix": (torch.matmul, (t(K), t(K, N)), K * N),
    "vector @ batch": (torch.matmul, (t(K), t(B, K, N)), B * K * N),
    "vector @ vector": (torch.matmul, (t(K), t(K)), K),
    "torch.linalg.matmul": (torch.linalg.matmul, (t(B, M, K), t(B, K, N)), B * M * K * N),
    "mv": (torch.mv, (t(M, K), t(K)), M * K),
    "dot": (torch.dot, (t(K), t(K)), K),
    "vdot": (torch.vdot, (t(K), t(K)), K),
    "inner": (torch.inner, (t(M, K), t(N, K)), M * K * N),
    "bmm": (torch.bmm, (t(B, M, K), t(B, K, N)), B * M * K * N),
    "tensordot": (
        lambda a, b: torch.tensordot(a, b, dims=([1, 2], [0, 1])),
        (t(M, 3, 4), t(3, 4, N)),
        M * (3 * 4) * N,
    ),
    "tensordot over the last axes": (lambda a, b: torch.tensordot(a, b, dims=1), (t(B, M, K), t(K, N)), B * M * K * N),
    "matrix_power": (lambda a: torch.linalg.matrix_power(a, 3), (t(M, M),), 2 * M**3),
    "einsum": (lambda a, b: torch.einsum("ik,kj->ij", a, b), (t(M, K), t(K, N)), M * K * N),
    "einsum with a batch": (lambda a, b: torch.einsum("bik,bkj->bij", a, b), (t(B, M, K), t(B, K, N)), B * M * K * N),
    "einsum without an arrow": (lambda a, b: torch.einsum("ik,kj", a, b), (t(M, K), t(K, N)), M * K * N),
    "einsum with an ellipsis": (
        lambda a, b: torch.einsum("...ik,...kj->...ij", a, b),
        (t(3, B, M, K), t(3, B, K, N)),
        3 * B * M * K * N,
    ),
    "einsum over two labels": (lambda a, b: torch.einsum("ihk,hkj->ij", a, b), (t(M, 3, K), t(3, K, N)), M * 3 * K * N),
    "einsum to a number": (lambda a, b: torch.einsum("ij,ij->", a, b), (t(M, N), t(M, N)), M * N),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_is_counted_in_every_spelling(name: str, count: Any) -> None:
    function, inputs, macs = PRODUCTS[name]
    report = count(function, *inputs)
    assert report.totals.macs == macs
    assert report.totals.flops == 2 * macs
    assert report.totals.params == 0


ADDED: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], int, int]] = {
    "F.linear": (F.linear, (t(B, M, K), t(N, K), t(N)), B * M * K * N, B * M * N),
    "addmm": (torch.addmm, (t(N), t(M, K), t(K, N)), M * K * N, M * N),
    "addmv": (torch.addmv, (t(M), t(M, K), t(K)), M * K, M),
    "addbmm": (torch.addbmm, (t(M, N), t(B, M, K), t(B, K, N)), B * M * K * N, M * N),
    "baddbmm": (torch.baddbmm, (t(B, M, N), t(B, M, K), t(B, K, N)), B * M * K * N, B * M * N),
    "addmm_": (lambda c, a, b: c.addmm_(a, b), (t(M, N), t(M, K), t(K, N)), M * K * N, M * N),
    "addmv_": (lambda c, a, b: c.addmv_(a, b), (t(M), t(M, K), t(K)), M * K, M),
    "addbmm_": (lambda c, a, b: c.addbmm_(a, b), (t(M, N), t(B, M, K), t(B, K, N)), B * M * K * N, M * N),
    "baddbmm_": (lambda c, a, b: c.baddbmm_(a, b), (t(B, M, N), t(B, M, K), t(B, K, N)), B * M * K * N, B * M * N),
}


@pytest.mark.parametrize("name", ADDED)
def test_what_is_added_to_a_product_is_one_flop_for_each_output(name: str, count: Any) -> None:
    function, inputs, macs, outputs = ADDED[name]
    totals = count(function, *inputs).totals
    assert (totals.macs, totals.flops) == (macs, 2 * macs + outputs)


OUT: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], int]] = {
    "mm": (lambda a, b: torch.mm(a, b, out=t(M, N)), (t(M, K), t(K, N)), M * K * N),
    "mv": (lambda a, b: torch.mv(a, b, out=t(M)), (t(M, K), t(K)), M * K),
    "dot": (lambda a, b: torch.dot(a, b, out=t()), (t(K), t(K)), K),
    "bmm": (lambda a, b: torch.bmm(a, b, out=t(B, M, N)), (t(B, M, K), t(B, K, N)), B * M * K * N),
    "addmm": (lambda a, b: torch.addmm(t(N), a, b, out=t(M, N)), (t(M, K), t(K, N)), M * K * N),
    "matmul": (lambda a, b: torch.matmul(a, b, out=t(B, M, N)), (t(B, M, K), t(B, K, N)), B * M * K * N),
    "matmul of a folded batch": (
        lambda a, b: torch.matmul(a, b, out=t(B, M, N)).add_(t(B, M, N)),
        (t(B, M, K), t(K, N)),
        B * M * K * N,
    ),
    "an empty out that grows": (
        lambda a, b: torch.mm(a, b, out=t(0)) @ t(N, 3),
        (t(M, K), t(K, N)),
        M * K * N + M * N * 3,
    ),
}


@pytest.mark.parametrize("name", OUT)
def test_a_product_written_to_out_is_counted(name: str, count: Any) -> None:
    function, inputs, macs = OUT[name]
    assert count(function, *inputs).totals.macs == macs


IN_PLACE: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "t_": (lambda x: x.clone().t_(), (K, M)),
    "transpose_": (lambda x: x.clone().transpose_(0, 1), (K, M)),
    "swapaxes_": (lambda x: x.clone().swapaxes_(0, 1), (K, M)),
    "unsqueeze_": (lambda x: x.clone().unsqueeze_(0)[0].t(), (K, M)),
    "squeeze_": (lambda x: x.clone()[None].squeeze_(0).t(), (K, M)),
    "resize_": (lambda x: x.clone().resize_(K, M), (K, M)),
    "set_": (lambda x: torch.empty(0).set_(x.clone(), 0, (K, M), (M, 1)), (K, M)),
    "as_strided_": (lambda x: x.clone().as_strided_((K, M), (1, K)), (K, M)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_shape_changed_in_place_is_seen_by_what_follows(name: str, count: Any) -> None:
    function, shape = IN_PLACE[name]
    report = count(lambda x: function(x) @ t(M, N), t(M, K))
    assert report.totals.macs == K * M * N
    product = next(row for row in report.rows if row.op.kind == "matmul")
    assert product.ins[0].shape == shape


def test_a_constant_reshaped_in_place_is_as_before_afterwards(calls: Any) -> None:
    constant = t(M, K)
    report = opcost.count(calls(lambda x: x @ constant.t_()), (t(N, K),))
    assert report.totals.macs == N * K * M
    assert constant.shape == (M, K)


def test_arithmetic_in_place_costs_as_much_as_out_of_place(count: Any) -> None:
    plain = count(lambda x, y: ((x + y) * y).relu(), t(M, K), t(M, K))
    in_place = count(lambda x, y: x.add_(y).mul_(y).relu_(), t(M, K), t(M, K))
    assert plain.totals.flops == in_place.totals.flops == 3 * M * K
    assert plain.totals.activations == 3 * M * K
    assert in_place.totals.activations == 0  # nothing new is made


def test_a_hypernetwork_counts_the_weights_it_computes_and_the_convolution(count: Any) -> None:
    cin, cout, k, side, code = 3, 8, 3, 16, 10

    def hyper(image: Tensor, z: Tensor, table: Tensor) -> Tensor:
        kernel = (z @ table).view(cout, cin, k, k)
        return F.conv2d(image, kernel, padding=1)

    report = count(hyper, t(1, cin, side, side), t(1, code), t(code, cout * cin * k * k))
    made = code * cout * cin * k * k
    assert report.totals.macs == made + cout * side * side * cin * k * k


def test_a_chain_is_multiplied_in_its_cheapest_order(count: Any) -> None:
    a, b, c, d = t(10, 100), t(100, 5), t(5, 50), t(50, 3)
    cheapest_of_three = min(10 * 100 * 5 + 10 * 5 * 50, 100 * 5 * 50 + 10 * 100 * 50)
    assert count(torch.chain_matmul, a, b, c).totals.macs == cheapest_of_three
    assert count(lambda *m: torch.linalg.multi_dot(m), a, b, c).totals.macs == cheapest_of_three
    # (A (B (C D))) comes first among the five orders of four matrices.
    assert (
        count(lambda *m: torch.linalg.multi_dot(m), a, b, c, d).totals.macs == 5 * 50 * 3 + 100 * 5 * 3 + 10 * 100 * 3
    )


def test_multi_dot_of_vectors_at_the_ends(count: Any) -> None:
    report = count(lambda *m: torch.linalg.multi_dot(m), t(100), t(100, 5), t(5))
    assert report.totals.macs == 100 * 5 + 5


def test_einsum_of_three_operands_contracts_pair_by_pair(count: Any) -> None:
    # Each order from left to right is also the cheapest, so a planner would choose it as well.
    report = count(lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), t(2, 6), t(6, 4), t(4, 8))
    assert report.totals.macs == 2 * 6 * 4 + 2 * 4 * 8
    bilinear = count(lambda x, w, y: torch.einsum("bi,oij,bj->bo", x, w, y), t(4, M), t(3, M, K), t(4, K))
    assert bilinear.totals.macs == 4 * M * 3 * K + 4 * 3 * K
    attention = count(lambda q, k, v: torch.einsum("bqd,bkd,bkv->bqv", q, k, v), t(B, 2, 8), t(B, 4, 8), t(B, 4, 9))
    assert attention.totals.macs == B * 2 * 4 * 8 + B * 2 * 4 * 9


def test_a_label_summed_alone_is_additions_before_the_product(count: Any) -> None:
    totals = count(lambda a, b: torch.einsum("ij,jk->k", a, b), t(M, K), t(K, N)).totals
    assert totals.macs == K * N
    assert totals.flops == M * K + 2 * K * N


NO_SUM: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], int]] = {
    "outer": (torch.outer, (t(M), t(N)), M * N),
    "ger": (torch.ger, (t(M), t(N)), M * N),
    "einsum": (lambda a, b: torch.einsum("i,j->ij", a, b), (t(M), t(N)), M * N),
    "einsum elementwise": (lambda a, b: torch.einsum("ij,ij->ij", a, b), (t(M, N), t(M, N)), M * N),
    "kron": (torch.kron, (t(2, 3), t(4, 5)), 2 * 3 * 4 * 5),
    "*": (lambda a, b: a * b, (t(M, N), t(M, N)), M * N),
}


@pytest.mark.parametrize("name", NO_SUM)
def test_products_without_a_sum_have_no_macs(name: str, count: Any) -> None:
    function, inputs, flops = NO_SUM[name]
    totals = count(function, *inputs).totals
    assert (totals.macs, totals.flops) == (0, flops)


def test_addr_multiplies_scales_and_adds(count: Any) -> None:
    totals = count(torch.addr, t(M, N), t(M), t(N)).totals
    assert (totals.macs, totals.flops) == (0, 3 * M * N)


@pytest.mark.parametrize("name", ["F.linear", "broadcast batches", "tensordot", "einsum with a batch"])
def test_inference_mode_hides_nothing(name: str, count: Any) -> None:
    function, inputs, macs = PRODUCTS[name]
    plain, hidden = count(function, *inputs), count(torch.inference_mode()(function), *inputs)
    assert hidden.totals.macs == macs
    assert [row.op.raw for row in hidden.rows] == [row.op.raw for row in plain.rows]


def test_inference_mode_is_itself_again_after_a_count(count: Any) -> None:
    count(torch.inference_mode()(torch.mm), t(M, K), t(K, N))
    with torch.inference_mode():
        assert torch.is_inference_mode_enabled()
        assert torch.ones(1).is_inference()


def test_a_product_under_no_grad_and_one_with_keyword_arguments_are_counted(count: Any) -> None:
    def under_no_grad(a: Tensor, b: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.matmul(input=a, other=b)

    assert count(under_no_grad, t(M, K), t(K, N)).totals.macs == M * K * N
    named = count(torch.matmul, kwargs={"input": t(M, K), "other": t(K, N)})
    assert named.totals.macs == M * K * N


def test_a_tensor_whose_data_is_replaced_is_the_other_one_from_there_on(count: Any) -> None:
    def replaced(x: Tensor, weight: Tensor) -> Tensor:
        x = x.clone()
        x.data = torch.zeros(M, K)
        first = x @ weight
        x.data = weight
        return first.sum() + (x.t() @ x).sum()

    assert count(replaced, t(2, 3), t(K, N)).totals.macs == M * K * N + N * K * N


@pytest.mark.parametrize("sum_", [torch.add, torch.sub])
def test_a_number_to_which_a_multiple_of_a_tensor_is_added_is_no_tensor(sum_: Any) -> None:
    class Shifted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return sum_(1e-6, x, alpha=0.5)

    report = opcost.count(Shifted(), shapes=(3, 4))
    assert report.coverage.complete
    assert report.totals.flops == opcost.count(Doubled(), shapes=(3, 4)).totals.flops == 2 * 3 * 4


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, x, alpha=0.5)
