"""Whose elements are parameters: distinct storages, counted once, trainable or not, used or not."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

B, IN, OUT = 3, 5, 7
"""A batch, and the sides of most layers here."""
LINEAR = IN * OUT + OUT
"""Parameters of `nn.Linear(IN, OUT)`."""
X = torch.empty(B, IN)


# -- one storage under several names ----------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embed(ids))


def test_tied_weights_count_once_and_are_shown_under_both_names(count: Any) -> None:
    words, width, tokens = 11, 6, 4
    report = count(Tied(words, width), torch.zeros(1, tokens, dtype=torch.int64))
    assert report.totals.params == words * width
    assert report.totals.param_bytes == 4 * words * width
    assert report.totals.macs == tokens * width * words
    assert [parameter.names for parameter in report.shared] == [("embed.weight", "head.weight")]
    assert report.module("embed").own.params == words * width
    assert report.module("head").own.params == 0


def test_one_module_under_two_names_counts_its_parameters_once_and_its_work_per_call(count: Any) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(IN, IN)
            self.second = self.first

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x))

    report = count(Twice(), X)
    assert report.totals.params == IN * IN + IN
    assert report.totals.macs == 2 * B * IN * IN
    assert report.module("second").same_as == "first"
    assert report.module("first").calls + report.module("second").calls == 2


def test_one_module_inside_two_others_is_attributed_to_the_one_that_calls_it(count: Any) -> None:
    shared = nn.Linear(IN, IN)
    report = count(nn.Sequential(nn.Sequential(shared), nn.Sequential(shared, nn.ReLU())), X)
    assert report.totals.params == IN * IN + IN
    assert report.module("0.0").own.macs == report.module("1.0").own.macs == B * IN * IN


def test_a_transposed_view_of_a_parameter_is_the_same_parameter(count: Any) -> None:
    class AutoEncoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Parameter(torch.empty(OUT, IN))
            self.up = nn.Parameter(self.down.detach().t())

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(F.linear(x, self.down), self.up)

    report = count(AutoEncoder(), X)
    assert report.totals.params == IN * OUT
    assert report.totals.macs == 2 * B * IN * OUT


def test_disjoint_views_of_one_storage_are_parameters_of_their_own(count: Any) -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            memory = torch.empty(LINEAR)
            self.weight = nn.Parameter(memory[: IN * OUT].view(OUT, IN))
            self.bias = nn.Parameter(memory[IN * OUT :])

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight, self.bias)

    report = count(Flat(), X)
    assert report.totals.params == LINEAR
    assert [parameter.name for parameter in report.parameters] == ["weight", "bias"]


def test_a_flat_parameter_and_views_into_it_count_once(count: Any) -> None:
    class FlatAndViews(nn.Module):
        def __init__(self, *, flat_first: bool) -> None:
            super().__init__()
            memory = torch.empty(LINEAR)
            parts = {"weight": memory[: IN * OUT].view(OUT, IN), "bias": memory[IN * OUT :]}
            for name, part in ({"flat": memory} | parts if flat_first else parts | {"flat": memory}).items():
                setattr(self, name, nn.Parameter(part))

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight, self.bias)

    for flat_first in (True, False):
        report = count(FlatAndViews(flat_first=flat_first), X)
        assert report.totals.params == LINEAR
        assert report.totals.unused_params == 0


def test_slices_of_one_parameter_are_that_parameter(count: Any) -> None:
    class Sliced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat = nn.Parameter(torch.empty(LINEAR))

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.flat[: IN * OUT].view(OUT, IN), self.flat[IN * OUT :])

    report = count(Sliced(), X)
    assert (report.totals.params, report.totals.unused_params) == (LINEAR, 0)
    assert report.totals.macs == B * IN * OUT


# -- where parameters are kept ----------------------------------------------------------------------------------------


class Kept(nn.Module):
    """Parameters in every kind of container, and one that is never read."""

    def __init__(self) -> None:
        super().__init__()
        self.list = nn.ParameterList([torch.empty(IN, IN) for _ in range(3)])
        self.dict = nn.ParameterDict({"weight": torch.empty(IN, OUT), "bias": nn.Parameter(torch.empty(OUT))})
        self.bare = nn.Parameter(torch.empty(OUT))
        self.forgotten = nn.Parameter(torch.empty(13))

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.list:
            x = x @ weight
        return (x @ self.dict["weight"] + self.dict["bias"]) * self.bare


def test_lists_dicts_and_bare_parameters_are_found(count: Any) -> None:
    report = count(Kept(), X)
    assert report.totals.params == 3 * IN * IN + IN * OUT + OUT + OUT + 13
    assert report.totals.macs == B * (3 * IN * IN + IN * OUT)
    assert report.module("list").own.params == 3 * IN * IN


def test_parameters_that_no_operator_reads_are_counted_and_named(count: Any) -> None:
    report = count(Kept(), X)
    assert report.totals.unused_params == 13
    assert [parameter.name for parameter in report.unused] == ["forgotten"]


def test_a_layer_that_is_never_called_is_named_as_unused(count: Any) -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Linear(IN, OUT)
            self.spare = nn.Linear(IN, OUT)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    report = count(Unused(), X)
    assert report.totals.params == 2 * LINEAR
    assert report.totals.unused_params == LINEAR
    assert [parameter.name for parameter in report.unused] == ["spare.weight", "spare.bias"]
    assert report.module("spare").calls == 0


def test_a_parameter_that_is_returned_unread_counts_as_used(count: Any) -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value = nn.Parameter(torch.empty(OUT))

        def forward(self) -> Tensor:
            return self.value

    assert count(Constant()).totals.unused_params == 0


class PlainList(nn.Module):
    """Modules that PyTorch does not see, because they are in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(IN, IN), nn.BatchNorm1d(IN), nn.Linear(IN, IN)]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_modules_in_a_plain_list_are_counted_below_the_one_that_calls_them(count: Any) -> None:
    report = count(PlainList(), X)
    assert report.totals.params == 2 * (IN * IN + IN) + 2 * IN
    assert report.totals.trainable_params == report.totals.params
    assert report.totals.buffers == 2 * IN + 1
    assert [module.path for module in report.modules] == ["", "<Linear>", "<BatchNorm1d>", "<Linear 2>"]


def test_a_module_in_a_plain_list_that_is_called_twice_is_one_module(count: Any) -> None:
    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(IN, IN)] * 2

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    report = count(Repeated(), X)
    assert report.totals.params == IN * IN + IN
    assert report.totals.macs == 2 * B * IN * IN
    assert report.module("<Linear>").calls == 2


# -- trainable, buffers, none -----------------------------------------------------------------------------------------


def test_frozen_layers_are_parameters_that_are_not_trainable(count: Any) -> None:
    model = nn.Sequential(nn.Linear(IN, OUT), nn.Linear(OUT, IN))
    model[0].requires_grad_(False)
    report = count(model, X)
    assert report.totals.params == LINEAR + (OUT * IN + IN)
    assert report.totals.trainable_params == OUT * IN + IN


def test_buffers_are_not_parameters(count: Any) -> None:
    class Projection(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("matrix", torch.empty(IN, OUT))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.matrix

    totals = count(Projection(), X).totals
    assert (totals.params, totals.buffers, totals.buffer_bytes) == (0, IN * OUT, 4 * IN * OUT)
    assert totals.macs == B * IN * OUT


def test_a_model_without_any_state_has_no_parameters(count: Any, calls: Any) -> None:
    totals = count(calls(lambda x: x @ x.T), X).totals
    assert (totals.params, totals.buffers, totals.macs) == (0, 0, B * IN * B)


# -- lazy modules -----------------------------------------------------------------------------------------------------


def test_lazy_modules_take_their_shapes_from_the_input_and_the_users_stay_lazy(count: Any) -> None:
    hidden, classes, height = 8, 3, 6
    model = nn.Sequential(
        nn.LazyConv2d(hidden, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(classes)
    )
    x = torch.empty(2, 4, height, height)
    report = count(model, x)
    side = height - 2
    assert report.totals.params == (hidden * 4 * 9 + hidden) + 2 * hidden + (hidden * side**2 * classes + classes)
    assert report.totals.trainable_params == report.totals.params
    assert report.totals.buffers == 2 * hidden + 1
    assert report.totals.macs == 2 * hidden * side**2 * (4 * 9) + 2 * hidden * side**2 * classes
    assert isinstance(model[0], nn.LazyConv2d)
    assert isinstance(model[4].weight, nn.parameter.UninitializedParameter)
    assert model(torch.zeros(2, 4, height, height)).shape == (2, classes)


def test_a_partly_lazy_model_shares_the_weights_it_has(count: Any) -> None:
    model = nn.Sequential(nn.Linear(IN, OUT), nn.LazyLinear(IN))
    weight = model[0].weight
    before = weight.detach().clone()
    assert count(model, X).totals.params == LINEAR + OUT * IN + IN
    assert model[0].weight is weight
    assert torch.equal(weight, before)


# -- weights that are computed ----------------------------------------------------------------------------------------


def old_weight_norm() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(nn.Linear(IN, OUT))


@pytest.mark.parametrize("make", [old_weight_norm, lambda: parametrizations.weight_norm(nn.Linear(IN, OUT))])
def test_weight_norm_adds_one_length_per_row(count: Any, make: Any) -> None:
    report = count(make(), X)
    assert report.totals.params == LINEAR + OUT
    assert report.totals.unused_params == 0
    assert report.totals.macs == B * IN * OUT


def test_old_weight_norm_leaves_the_weight_a_real_tensor() -> None:
    import opcost

    model = old_weight_norm()
    weight = model.weight
    opcost.count(model, X)
    assert model.weight is weight
    assert model(torch.ones(B, IN)).isfinite().all()


def test_spectral_norm_counts_its_power_iteration(count: Any) -> None:
    model = parametrizations.spectral_norm(nn.Linear(IN, OUT), n_power_iterations=1)
    evaluated = count(model.eval(), X)
    assert evaluated.totals.params == LINEAR
    assert evaluated.totals.buffers == IN + OUT
    sigma = OUT * IN + OUT  # u · (W v)
    assert evaluated.totals.macs == B * IN * OUT + sigma
    trained = count(model.train(), X)
    assert trained.totals.macs == B * IN * OUT + sigma + 2 * OUT * IN  # W v and Wᵀ u


class LowRank(nn.Module):
    """A weight plus the product of two thin matrices."""

    def __init__(self, rows: int, columns: int, rank: int) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.empty(rows, rank))
        self.right = nn.Parameter(torch.empty(rank, columns))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.left @ self.right


def test_a_low_rank_parametrization_counts_its_product_and_its_trainable_part(count: Any) -> None:
    rank = 2
    model = nn.Linear(IN, OUT)
    parametrize.register_parametrization(model, "weight", LowRank(OUT, IN, rank))
    model.parametrizations.weight.original.requires_grad_(False)
    report = count(model, X)
    thin = rank * (IN + OUT)
    assert report.totals.params == LINEAR + thin
    assert report.totals.trainable_params == thin + OUT
    assert report.totals.macs == OUT * rank * IN + B * IN * OUT
    assert report.module("parametrizations.weight.0").own.macs == OUT * rank * IN


def test_a_parametrization_runs_as_often_as_the_weight_is_read(count: Any) -> None:
    class ReadTwice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(IN, OUT)
            parametrize.register_parametrization(self.layer, "weight", LowRank(OUT, IN, 1))

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + self.layer(x)

    product, use = OUT * 1 * IN, B * IN * OUT
    assert count(ReadTwice(), X).totals.macs == 2 * (product + use)


def test_a_cached_parametrization_runs_once(count: Any) -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(IN, OUT)
            parametrize.register_parametrization(self.layer, "weight", LowRank(OUT, IN, 1))

        def forward(self, x: Tensor) -> Tensor:
            with parametrize.cached():
                return self.layer(x) + self.layer(x)

    assert count(Cached(), X).totals.macs == OUT * 1 * IN + 2 * (B * IN * OUT)
    assert not parametrize._cache


@pytest.mark.parametrize(("many", "said"), [(1000, "(999): Parameter"), (1001, "1001 parameters")])
def test_a_long_list_of_parameters_is_described_by_its_number(many: int, said: str, count: Any) -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.all = nn.ParameterList([nn.Parameter(torch.empty(1)) for _ in range(many)])

        def forward(self, x: Tensor) -> Tensor:
            return x * self.all[0]

    module = next(one for one in count(Listed(), torch.empty(1)).modules if one.path == "all")
    assert said in module.extra
