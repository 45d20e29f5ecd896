"""The backward pass and the update as phases of their own: only what PyTorch computes, and nothing invented."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

import opcost
from opcost.errors import ForwardError, UnknownName

N, K, M, C = 4, 5, 7, 3
"""Rows, and the features of two layers: in, between, out."""


def t(*shape: int, requires_grad: bool = False) -> Tensor:
    return torch.empty(shape, device="meta", requires_grad=requires_grad)


def macs(report: Any, phase: str = "backward") -> int:
    found = sum(row.cost.macs for row in report.rows if row.op.phase == phase)
    assert found == report.phases[phase].macs
    return found


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(K, M), nn.ReLU(), nn.Linear(M, C))


# -- linear layers ---------------------------------------------------------------------------------------------------


def test_the_first_layers_input_gradient_is_not_invented(count: Any) -> None:
    first, second = N * K * M, N * M * C
    report = count(two_layers(), t(N, K), backward=True)
    assert list(report.phases) == ["forward", "backward"]
    assert macs(report, "forward") == first + second
    assert macs(report) == first + 2 * second  # of the first layer only the weight's gradient
    # biases: each gradient is added up over the rows; relu: compare and select
    assert report.phases["backward"].flops == 2 * macs(report) + N * M + N * C + 2 * N * M


def test_gradients_belong_to_the_module_that_ran_forward(count: Any) -> None:
    report = count(two_layers(), t(N, K), backward=True)
    by_module = {path: report.module(path).total.macs for path in ("0", "1", "2")}
    assert by_module == {"0": 2 * N * K * M, "1": 0, "2": 3 * N * M * C}


def test_an_input_that_requires_a_gradient_gets_one(count: Any) -> None:
    report = count(two_layers(), t(N, K, requires_grad=True), backward=True)
    assert macs(report) == 2 * (N * K * M + N * M * C)


def test_a_frozen_first_layer_is_not_differentiated_at_all(count: Any) -> None:
    model = two_layers()
    model[0].requires_grad_(False)
    report = count(model, t(N, K), backward=True)
    assert macs(report) == N * M * C  # the weight's gradient of the second
    assert report.totals.trainable_params == M * C + C


def test_a_frozen_last_layer_still_hands_its_gradient_on(count: Any) -> None:
    model = two_layers()
    model[2].requires_grad_(False)
    assert macs(count(model, t(N, K), backward=True)) == N * M * C + N * K * M


def test_tied_weights_have_both_their_gradients(count: Any) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 6)
            self.head = nn.Linear(6, 10, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.embedding(tokens))

    tokens = torch.zeros(2, 7, dtype=torch.int64)
    report = count(Tied(), tokens, backward=True)
    forward = 2 * 7 * 6 * 10
    assert report.totals.params == 10 * 6
    assert (macs(report, "forward"), macs(report)) == (forward, 2 * forward)
    # the looked-up rows are added into their table, then both gradients into one
    assert report.phases["backward"].flops == 2 * 2 * forward + 2 * 7 * 6 + 10 * 6


def test_einsum_and_bilinear_gradients(count: Any) -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(2, K, M))

        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("nhi,him->nhm", x, self.weight)

    forward = N * 2 * K * M
    assert macs(count(Heads(), t(N, 2, K), backward=True)) == forward
    assert macs(count(Heads(), t(N, 2, K, requires_grad=True), backward=True)) == 2 * forward
    # the weight's gradient of x1ᵀ W x2 is the product g x1 (elementwise) contracted with x2 over the rows
    assert macs(count(nn.Bilinear(K, M, C), t(N, K), t(N, M), backward=True)) == N * C * K * M


# -- convolutions ----------------------------------------------------------------------------------------------------

SIDE = 8
CHANNELS = 4
STEM = N * CHANNELS * CHANNELS * SIDE**2
"""A 1 × 1 convolution in front, so that the one behind it has an input gradient."""


def behind_a_stem(layer: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 1), layer)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_convolutions_gradients_are_as_large_as_the_forward_each(groups: int, count: Any) -> None:
    layer = nn.Conv2d(CHANNELS, 8, 3, groups=groups)
    report = count(behind_a_stem(layer), t(N, CHANNELS, SIDE, SIDE), backward=True)
    outputs = N * 8 * (SIDE - 2) ** 2
    forward = outputs * (CHANNELS // groups) * 3**2
    assert macs(report, "forward") == STEM + forward
    assert macs(report) == STEM + 2 * forward
    # the bias' gradients: every output's gradient is added up
    assert report.phases["backward"].flops == 2 * macs(report) + outputs + N * CHANNELS * SIDE**2


@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolutions_gradients_are_as_large_as_the_forward_each(groups: int, count: Any) -> None:
    layer = nn.ConvTranspose2d(CHANNELS, 6, 3, stride=2, output_padding=1, groups=groups)
    report = count(behind_a_stem(layer), t(N, CHANNELS, SIDE, SIDE), backward=True)
    forward = N * CHANNELS * SIDE**2 * (6 // groups) * 3**2
    assert macs(report, "forward") == STEM + forward
    assert macs(report) == STEM + 2 * forward


@pytest.mark.parametrize("rank", [1, 3])
def test_convolutions_of_other_ranks_have_their_gradients(rank: int, count: Any) -> None:
    kind = {1: nn.Conv1d, 3: nn.Conv3d}[rank]
    report = count(kind(CHANNELS, 6, 3, dilation=2), t(N, CHANNELS, *[SIDE] * rank), backward=True)
    assert macs(report) == macs(report, "forward") == N * 6 * (SIDE - 4) ** rank * CHANNELS * 3**rank


def test_a_trained_block_of_convolution_norm_and_pooling(count: Any) -> None:
    model = nn.Sequential(
        nn.Conv2d(CHANNELS, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 5)
    ).train()  # fmt: skip
    report = count(model, t(N, CHANNELS, SIDE, SIDE), backward=True)
    conv, linear = N * 6 * 6**2 * CHANNELS * 3**2, N * 54 * 5
    assert (macs(report, "forward"), macs(report)) == (conv + linear, conv + 2 * linear)
    elements, pooled = N * 6 * 6**2, N * 6 * 3**2
    # bias of the classifier; each maximum adds once; relu: compare, select; batch norm: 10 for each element
    rest = N * 5 + pooled + 2 * elements + 10 * elements
    assert report.phases["backward"].flops == 2 * macs(report) + rest


# -- recomputation ---------------------------------------------------------------------------------------------------


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.stem = nn.Linear(K, M)
        self.block = nn.Sequential(nn.Linear(M, M), nn.ReLU(), nn.Linear(M, M))
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, self.stem(x), use_reentrant=self.reentrant)


def test_a_recomputed_block_is_counted_in_the_backward_pass(count: Any) -> None:
    stem, layer = N * K * M, N * M * M
    report = count(Checkpointed(reentrant=False), t(N, K), backward=True)
    assert macs(report, "forward") == stem + 2 * layer
    # PyTorch stops recomputing once it has what was saved: the last product is not repeated.
    assert macs(report) == stem + 4 * layer + layer
    assert report.module("block.0").total.macs == layer + layer + 2 * layer
    assert report.module("block.0").calls == 2


def test_reentrant_checkpointing_recomputes_all_of_it(count: Any) -> None:
    stem, layer = N * K * M, N * M * M
    report = count(Checkpointed(reentrant=True), t(N, K), backward=True)
    assert macs(report, "forward") == stem + 2 * layer
    assert macs(report) == stem + 4 * layer + 2 * layer


def test_checkpointing_costs_nothing_without_a_backward_pass(count: Any) -> None:
    for reentrant in (False, True):
        assert count(Checkpointed(reentrant=reentrant), t(N, K)).totals.macs == N * K * M + 2 * N * M * M


def test_no_gradient_is_left_behind(count: Any) -> None:
    for model in (two_layers(), Checkpointed(reentrant=True)):
        kept = torch.ones(M, K)
        first = next(iter(model.parameters()))
        first.grad = kept
        count(model, t(N, K), backward=True, optimizer="adamw")
        assert first.grad is kept
        assert torch.equal(kept, torch.ones(M, K))
        assert all(p.grad is None for p in model.parameters() if p is not first)


# -- attention, recurrent layers, functions of the user's own ----------------------------------------------------------

B, H, L, E = 2, 4, 6, 8


class Attends(nn.Module):
    def __init__(self, backend: SDPBackend, **options: Any) -> None:
        super().__init__()
        self.qkv = nn.Linear(E, 3 * E)
        self.backend = backend
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        with sdpa_kernel(self.backend):
            return F.scaled_dot_product_attention(q, k, v, **self.options)


PROJECTION = B * H * L * E * 3 * E
PRODUCT = B * H * L * L * E


def test_the_fused_attention_gradient_has_five_products_with_the_scores_again(count: Any) -> None:
    report = count(Attends(SDPBackend.FLASH_ATTENTION), t(B, H, L, E), backward=True)
    assert macs(report, "forward") == PROJECTION + 2 * PRODUCT
    assert macs(report) == PROJECTION + 5 * PRODUCT


def test_the_attention_gradient_by_single_operators_has_four_products(count: Any) -> None:
    report = count(Attends(SDPBackend.MATH), t(B, H, L, E), backward=True)
    assert macs(report, "forward") == PROJECTION + 2 * PRODUCT
    assert macs(report) == PROJECTION + 4 * PRODUCT


def test_half_of_a_causal_attention_halves_its_gradient_as_well(count: Any) -> None:
    model = Attends(SDPBackend.FLASH_ATTENTION, is_causal=True)
    pairs = B * H * L * (L + 1) // 2
    report = count(model, t(B, H, L, E), backward=True, causal="half")
    assert macs(report, "forward") == PROJECTION + 2 * pairs * E
    assert macs(report) == PROJECTION + 5 * pairs * E


def test_an_lstm_has_its_gradients(count: Any) -> None:
    steps, hidden = 5, 6
    with torch.backends.mkldnn.flags(enabled=False):
        report = count(nn.LSTM(K, hidden), t(steps, N, K), backward=True)
    forward = steps * N * 4 * hidden * (K + hidden)
    assert macs(report, "forward") == forward
    # not requested: the input's gradient, and that of the state before the first step
    assert macs(report) == 2 * forward - steps * N * 4 * hidden * K - N * 4 * hidden * hidden


class Product(torch.autograd.Function):
    """A product whose gradient multiplies by the weight twice, to distinguish it from the one PyTorch would take."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return (grad @ weight.T) + (grad @ weight.T), x.T @ grad


def test_a_custom_function_is_counted_as_it_is_written(count: Any) -> None:
    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(K, M))

        def forward(self, x: Tensor) -> Tensor:
            return Product.apply(x, self.weight)

    report = count(Custom(), t(N, K), backward=True)
    assert (macs(report, "forward"), macs(report)) == (N * K * M, 3 * N * K * M)


def test_a_loss_computed_by_the_model_is_differentiated(count: Any) -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(K, C)

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"loss": F.cross_entropy(self.head(x), labels)}

    report = count(Loss(), t(N, K), torch.zeros(N, dtype=torch.int64), backward=True)
    assert (macs(report, "forward"), macs(report)) == (N * K * C, N * K * C)
    assert report.meta["loss"] == "its own"


@pytest.mark.parametrize("named", [True, False])
def test_gradients_begin_at_the_loss_and_not_at_what_is_returned_beside_it(count: Any, named: bool) -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.other = nn.Linear(K, C), nn.Linear(K, M)

        def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
            found, beside = self.head(x), self.other(x)
            loss = F.cross_entropy(found, labels)
            return {"loss": loss, "beside": beside} if named else (beside, loss)

    labels = torch.zeros(N, dtype=torch.int64)
    report = opcost.count(Loss(), kwargs={"x": t(N, K), "labels": labels}, backward=True)
    assert macs(report, "forward") == N * K * (C + M)
    assert macs(report) == N * K * C  # the weight of the head alone
    assert report.meta["loss"] == "its own, from labels"


# -- the update ------------------------------------------------------------------------------------------------------

PARAMS = K * M + M


def update(report: Any) -> list[Any]:
    return [row for row in report.rows if row.op.phase == "update"]


def test_an_update_is_a_phase_of_its_own(count: Any) -> None:
    report = count(nn.Linear(K, M), t(N, K), optimizer=True)
    assert list(report.phases) == ["forward", "backward", "update"]
    # plain gradient descent: multiply by the rate, subtract
    assert report.phases["update"].flops == 2 * PARAMS
    assert report.phases["update"].macs == 0
    assert sum(row.cost.flops for row in update(report)) == 2 * PARAMS
    total = sum(phase.flops for phase in report.phases.values())
    assert report.totals.flops == total


def test_adamw_decays_follows_two_moments_and_divides(count: Any) -> None:
    report = count(nn.Linear(K, M), t(N, K), optimizer="adamw")
    assert {row.op.kind for row in update(report)} <= {"create", "elementwise", "view"}
    tensors = 2
    # decay 1; first moment lerp 3; second moment 1 + 3; root, divide, add epsilon 3; step 3; and each tensor's counter
    assert report.phases["update"].flops == 14 * PARAMS + tensors


def test_the_name_of_an_optimizer_may_be_written_anyhow_and_a_function_may_make_one(count: Any) -> None:
    named = count(nn.Linear(K, M), t(N, K), optimizer="AdamW")
    assert named.phases["update"] == count(nn.Linear(K, M), t(N, K), optimizer="adamw").phases["update"]
    made = count(nn.Linear(K, M), t(N, K), optimizer=lambda params: torch.optim.SGD(params, lr=1.0, weight_decay=0.1))
    assert made.phases["update"].flops == 4 * PARAMS  # add the decayed weight; multiply by the rate, subtract


def test_a_frozen_parameter_is_not_updated(count: Any) -> None:
    model = two_layers()
    model[0].requires_grad_(False)
    report = count(model, t(N, K), optimizer=True)
    assert report.phases["update"].flops == 2 * (M * C + C)


def test_an_unknown_optimizer_names_the_nearest(count: Any) -> None:
    with pytest.raises(UnknownName, match="did you mean 'Adam'"):
        count(nn.Linear(K, M), t(N, K), optimizer="adamv")


# -- what a backward pass leaves alone ---------------------------------------------------------------------------------


def test_without_backward_there_is_one_phase(count: Any) -> None:
    assert list(count(two_layers(), t(N, K)).phases) == ["forward"]


def test_the_forward_pass_costs_the_same_with_and_without_a_backward_pass(count: Any) -> None:
    model = nn.Sequential(nn.Conv2d(CHANNELS, 6, 3), nn.GroupNorm(2, 6), nn.GELU(), nn.AdaptiveAvgPool2d(2))
    x = t(N, CHANNELS, SIDE, SIDE)
    alone, trained = count(model, x), count(model, x, backward=True)
    assert trained.phases["forward"] == alone.phases["forward"]
    assert trained.totals.activations == alone.totals.activations


def test_nothing_to_differentiate_is_said(count: Any) -> None:
    with pytest.raises(ForwardError, match="no parameter"):
        count(nn.Linear(K, M).requires_grad_(False), t(N, K), backward=True)


def test_a_model_whose_output_is_detached_has_no_gradient(count: Any) -> None:
    class Detached(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).detach()

    with pytest.raises(ForwardError, match="no output"):
        count(Detached(K, M), t(N, K), backward=True)


# -- gradients that forward itself takes -----------------------------------------------------------------------------


class Forces(nn.Module):
    """An energy of positions, and its gradient, as potentials of atoms have it."""

    def __init__(self, *, bound: bool = False) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(K, M, bias=False), nn.Linear(M, 1, bias=False)
        self.bound = bound

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x.requires_grad_()
        energy = self.last(torch.tanh(self.first(x))).sum()
        return energy, (taken if self.bound else torch.autograd.grad)(energy, x)[0]


taken = torch.autograd.grad


@pytest.mark.parametrize("real", [None, True])
@pytest.mark.parametrize("bound", [False, True])
def test_gradients_that_forward_takes_are_counted_as_its_own(bound: bool, real: bool | None) -> None:
    net, x = Forces(bound=bound), torch.ones(N, K)
    report = opcost.count(net, x, real=real)
    forward = N * K * M + N * M
    assert macs(report, "forward") == report.totals.macs == 2 * forward  # of inputs alone, as much as forward
    assert report.coverage.complete
    assert not x.requires_grad
    assert all(weight.grad is None for weight in net.parameters())


def test_where_the_caller_has_gradients_off_taking_one_fails_as_it_does_without_a_count() -> None:
    with torch.no_grad(), pytest.raises(ForwardError, match="does not require grad"):
        opcost.count(Forces(), torch.ones(N, K))


def test_memory_of_a_forward_pass_does_not_hold_what_a_backward_pass_would_need() -> None:
    net = nn.Sequential(*(nn.Linear(K, K, bias=False) for _ in range(4)))
    with torch.enable_grad():
        report = opcost.count(net, torch.ones(N, K))
    assert report.peak_bytes == 4 * (4 * K * K + 3 * N * K)  # the weights, the input, and a layer's input and output
