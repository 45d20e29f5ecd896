from __future__ import annotations

from typing import Any

import pytest
import torch

from opcost.frontends.aten.call import Constant
from opcost.frontends.aten.schema import find_handler, parse
from opcost.rules.elementwise import FLOPS_PER_ELEMENT

aten = torch.ops.aten

NOT_ELEMENTWISE = {"aten.clone.default": "copy", "aten.equal.default": "reduce", "aten.positive.default": "view"}
"""Operators that PyTorch tags as pointwise though they compute no element."""


def _pointwise() -> list[Any]:
    found = []
    for full in torch._C._dispatch_get_all_op_names():
        library, _, rest = full.partition("::")
        base, _, overload = rest.partition(".")
        if library == "aten":
            operator = getattr(getattr(aten, base), overload or "default")
            if torch.Tag.pointwise in operator.tags:
                found.append(operator)
    return found


@pytest.mark.parametrize("operator", _pointwise(), ids=str)
def test_every_pointwise_operator_has_a_known_function(operator: Any, translated: Any, meta: Any) -> None:
    handler = find_handler(parse(str(operator._schema)))[1]
    if isinstance(handler, Constant):
        kind, attrs = handler.kind, handler.attrs
    else:
        arguments = [
            meta(2, 3) if str(argument.type) == "Tensor" else argument.default_value
            for argument in operator._schema.arguments
            if not argument.kwarg_only
        ]
        destinations = {
            argument.name: meta(2, 3)
            for argument in operator._schema.arguments
            if argument.kwarg_only and str(argument.type) == "Tensor"
        }
        seen = translated(operator, *arguments, outs=((2, 3),), **destinations)
        kind, attrs = seen.kind, seen.attrs
    assert kind == NOT_ELEMENTWISE.get(str(operator), "elementwise")
    if kind == "elementwise":
        assert attrs["fn"] in FLOPS_PER_ELEMENT


@pytest.mark.parametrize(
    ("function", "fn"),
    [
        (lambda x: x + x, "add"),
        (lambda x: torch.add(x, x, alpha=2), "fma"),
        (lambda x: x.sub_(x), "sub"),
        (lambda x: torch.mul(x, x, out=x), "mul"),
        (lambda x: x / 2, "div"),
        (lambda x: torch.div(x, x, rounding_mode="floor"), "floor_divide"),
        (lambda x: x**2, "square"),
        (lambda x: x**0.5, "sqrt"),
        (lambda x: x**3, "pow"),
        (lambda x: x.clamp(0, 1), "clamp"),
        (lambda x: x.clamp(min=0), "max"),
        (lambda x: x.clamp(max=0), "min"),
        (lambda x: torch.max(x, x), "max"),
        (lambda x: x > 0, "compare"),
        (lambda x: torch.where(x > 0, x, 0), "where"),
        (torch.nn.functional.gelu, "gelu"),
        (lambda x: torch.nn.functional.gelu(x, approximate="tanh"), "gelu_tanh"),
        (torch.special.i1e, "bessel"),
        (lambda x: torch.special.xlog1py(x, x), "xlogy"),
        (lambda x: x.tril(), "triangle"),
    ],
)
def test_an_operator_is_named_by_what_it_computes(function: Any, fn: str, record: Any, meta: Any) -> None:
    seen = record(lambda: function(meta(2, 3)))[-1]
    assert (seen.kind, seen.attrs) == ("elementwise", {"fn": fn})
    assert seen.cost.flops == 6 * FLOPS_PER_ELEMENT[fn]


@pytest.mark.parametrize(
    ("layer", "fn"),
    [
        (torch.nn.ReLU(), "relu_grad"),
        (torch.nn.SiLU(), "silu_grad"),
        (torch.nn.Tanh(), "tanh_grad"),
        (torch.nn.Sigmoid(), "sigmoid_grad"),
        (torch.nn.GELU("tanh"), "gelu_tanh_grad"),
        (torch.nn.Hardswish(), "hardswish_grad"),
        (torch.nn.LeakyReLU(), "leaky_relu_grad"),
        (torch.nn.Softplus(), "softplus_grad"),
    ],
    ids=str,
)
def test_the_gradient_of_an_activation_has_its_own_name(layer: Any, fn: str, record: Any) -> None:
    x = torch.randn(4, requires_grad=True)
    assert fn in [s.attrs.get("fn") for s in record(lambda: layer(x).sum().backward())]


def test_lists_of_tensors_count_every_tensor(record: Any, meta: Any) -> None:
    tensors = [meta(2, 3), meta(5)]
    elements = 6 + 5
    (made,) = record(lambda: torch._foreach_mul(tensors, 2.0))
    assert (made.attrs, made.cost.flops) == ({"fn": "mul"}, elements)
    (in_place,) = record(lambda: torch._foreach_add_(tensors, tensors, alpha=0.1))
    assert in_place.outs == ((2, 3), (5,)), "what is written is known though nothing is returned"
    assert in_place.cost.flops == elements * FLOPS_PER_ELEMENT["fma"]
    (norms,) = record(lambda: torch._foreach_norm(tensors))
    assert (norms.kind, norms.attrs) == ("reduce", {"fn": "norm", "each": True})
    assert norms.cost.flops == 2 * elements + len(tensors)
