"""Kinds by name alone are those that the front end gives to the same operator of MXNet's."""

from __future__ import annotations

from typing import Any

from opcost.frontends.mxnet.ops import all_operators
from opcost.traces.named_kinds import named_kind

MEASURED_AS_COPIES = {"_copy", "_copyto", "identity"}
"""In a graph they are the same tensor again; where one of them took time, it did copy."""
SEEN_IN_TRACES_ONLY = {"_sg_mkldnn_conv", "_sg_mkldnn_fully_connected"}
"""What oneDNN fuses: the name tells the main part, and a graph needs all of them."""


def test_a_name_has_the_kind_that_the_front_end_gives_it() -> None:
    nothing: Any = None
    compared = 0
    for name, operator in all_operators().items():
        kind = named_kind(name)
        if not kind or name in MEASURED_AS_COPIES | SEEN_IN_TRACES_ONLY:
            continue
        try:
            translated = operator.translate(nothing)
        except (AttributeError, TypeError):  # it depends on the call
            continue
        compared += 1
        assert kind == translated.kind, name
    assert compared >= 70


def test_a_gradient_has_the_kind_of_its_operator() -> None:
    assert named_kind("_backward_Convolution") == named_kind("Convolution") == "conv"
    assert named_kind("nobody's") == ""
