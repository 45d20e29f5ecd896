"""Parameters and layers that forward itself makes: counted as the model has them after a run, and gone from it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

import opcost

B, X, Y = 4, 6, 8
"""A batch, and the widths of what goes in and comes out."""


class Assigned(nn.Module):
    """Puts a parameter over one that has no shape yet."""

    def __init__(self) -> None:
        super().__init__()
        self.weight: nn.Parameter = UninitializedParameter()

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.weight, UninitializedParameter):
            self.weight = nn.Parameter(torch.randn(x.shape[-1], Y))
        return x @ self.weight


class Materialized(Assigned):
    """Gives a shape to the one that has none."""

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.weight, UninitializedParameter):
            with torch.no_grad():
                self.weight.materialize((x.shape[-1], Y))
                self.weight.normal_()
        return x @ self.weight


class Registered(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "weight"):
            self.register_parameter("weight", nn.Parameter(torch.zeros(x.shape[-1], Y)))
        return x @ self.weight


class Built(nn.Module):
    """Makes a layer when it sees the first input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer: nn.Module | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.layer is None:
            self.layer = nn.Linear(x.shape[-1], Y, bias=False)
        return self.layer(x)


class Appended(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList()

    def forward(self, x: Tensor) -> Tensor:
        if not self.layers:
            self.layers.append(nn.Linear(x.shape[-1], Y, bias=False))
        return self.layers[0](x)


MADE: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "assigned": (Assigned, "weight"),
    "materialized": (Materialized, "weight"),
    "registered": (Registered, "weight"),
    "built": (Built, "layer.weight"),
    "appended": (Appended, "layers.0.weight"),
    "lazy": (lambda: nn.LazyLinear(Y, bias=False), "weight"),
}


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("name", MADE)
def test_what_forward_makes_is_counted_as_after_a_run_and_the_model_is_as_before(
    count: Any, name: str, real: bool
) -> None:
    make, parameter = MADE[name]
    ran, model = make(), make()
    ran(torch.ones(B, X))
    parameters, modules = dict(model.named_parameters()), list(model.modules())
    report = count(model, torch.ones(B, X), backward=True, real=real)
    assert [p.name for p in report.parameters] == [parameter] == [name for name, _ in ran.named_parameters()]
    assert report.totals.params == report.totals.trainable_params == X * Y
    assert report.unused == ()
    assert report.phases["forward"].macs == B * X * Y
    assert report.phases["backward"].macs == B * X * Y  # of the weight; the input's gradient is not requested
    assert dict(model.named_parameters()).keys() == parameters.keys()
    assert all(after is parameters[name] for name, after in model.named_parameters())
    assert list(model.modules()) == modules


def test_an_optimizer_updates_what_forward_made(count: Any) -> None:
    report = count(Built(), torch.ones(B, X), optimizer="SGD")
    assert report.phases["update"].flops == 2 * X * Y  # w - rate * grad


def test_a_layer_that_is_made_and_never_called_is_counted_as_well(count: Any) -> None:
    class Forgets(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.spare = nn.Linear(X, Y)
            return x + 1

    report = count(Forgets(), torch.ones(B, X))
    assert report.totals.params == X * Y + Y
    assert report.module("spare").calls == 0


class Named(nn.Module):
    """Children put into `_modules` under any names, run one after the other."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            self._modules[name] = nn.Linear(X, X, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for child in list(self._modules.values()):
            x = child(x)
        return x


@pytest.mark.parametrize("names", [("a.b",), ("a.b", "a"), ("a..b", ".c", "d."), ("",)])
def test_module_names_with_dots_are_counted(names: tuple[str, ...]) -> None:
    report = opcost.count(Named(*names), torch.ones(B, X))
    assert report.totals.macs == len(names) * B * X * X
    assert report.totals.params == len(names) * X * X
    assert sum(module.own.macs for module in report.modules) == report.totals.macs
    assert len({module.path for module in report.modules}) == len(report.modules)
    assert {module.path for module in report.modules} >= set(names)


def test_two_modules_whose_names_make_one_path_are_distinguished() -> None:
    net = Named("a.b")
    net._modules["a"] = Named("b")
    report = opcost.count(net, torch.ones(B, X))
    assert [(module.path, module.own.macs) for module in report.modules] == [
        ("", 0), ("a", 0), ("a.b", B * X * X), ("a.b<2>", B * X * X)
    ]  # fmt: skip


def test_a_parameter_s_name_with_a_dot_leaves_it_with_its_module() -> None:
    class Dotted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(X, X, bias=False)
            self.inner._parameters["p.q"] = nn.Parameter(torch.ones(X))

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + self.inner._parameters["p.q"]

    assert opcost.count(Dotted(), torch.ones(B, X)).module("inner").own.params == X * X + X


def test_a_layer_that_forward_replaces_is_added_up_once() -> None:
    class Replaces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(X, X, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            self.layer = nn.Linear(X, X, bias=False)
            return self.layer(x)

    report = opcost.count(Replaces(), torch.ones(B, X))
    assert report.totals.params == sum(module.own.params for module in report.modules) == 2 * X * X
    assert report.totals.unused_params == X * X
