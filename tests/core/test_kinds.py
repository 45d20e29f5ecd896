"""What an operator of a kind has to be, and what is refused."""

from __future__ import annotations

import pytest

from opcost.core.graph import Attrs
from opcost.core.kinds import KINDS, NAMES, check_operator
from opcost.errors import GraphError
from opcost.rules import algorithms, contractions, elementwise, movement

CONV: Attrs = {"transposed": True, "stride": (2, 2), "dilation": (1, 1), "then": ("relu",)}
LSTM: Attrs = {"cell": "lstm", "steps": 6, "layers": ((3, 4, 4), (4, 4, 2)), "bias": True}


@pytest.mark.parametrize(
    ("kind", "attrs", "ins", "outs"),
    [
        ("conv", CONV, 3, 1),
        ("conv", {"grads": ()}, 3, 0),
        ("conv", {"macs": 0}, 1, 1),
        ("conv", {"sampled": 4}, 5, 1),
        ("matmul", {"macs": 0}, 0, 1),
        ("recurrent", LSTM, 1, 2),
        ("attention", {"grad": True, "products": 4}, 4, 3),
        ("attention", {"grad": False}, 3, 1),
        ("unknown", {"whatever": None}, 0, 9),
    ],
)
def test_what_fits_its_kind_passes(kind: str, attrs: Attrs, ins: int, outs: int) -> None:
    check_operator(kind, "lib::op", attrs, ins, outs)


@pytest.mark.parametrize(
    ("kind", "attrs", "ins", "outs", "fault"),
    [
        ("cnv", {}, 2, 1, "unknown kind 'cnv'; did you mean 'conv'"),
        ("conv", {"transposd": True}, 2, 1, "unknown attribute 'transposd'; did you mean 'transposed'?"),
        (
            "conv",
            {"format": "NCHW"},
            2,
            1,
            "unknown attribute 'format'; known: bias, channels_last, copied, dilation, ",
        ),
        ("conv", {"transposed": 1}, 2, 1, "the attribute 'transposed' is 1, not true or false"),
        ("conv", {"macs": True}, 1, 1, "the attribute 'macs' is True, not a whole number"),
        ("conv", {"macs": -1}, 1, 1, "the attribute 'macs' is -1, not a whole number"),
        ("conv", {"stride": 2}, 2, 1, "the attribute 'stride' is 2, not whole numbers"),
        ("conv", {"stride": (2, 2.0)}, 2, 1, r"the attribute 'stride' is \(2, 2.0\), not whole numbers"),
        ("conv", {"then": "relu"}, 2, 1, "the attribute 'then' is 'relu', not names"),
        ("conv", {"then": ("relu", "rleu")}, 2, 1, "unknown then 'rleu'; did you mean 'relu'"),
        ("conv", {"grads": ("inputs",)}, 3, 1, "unknown grads 'inputs'; did you mean 'input'"),
        ("conv", {"grads": (["input"],)}, 3, 1, "the attribute 'grads' is .*, not names"),
        ("conv", {}, 1, 1, r"it has 1 input instead of x, weight, \[bias\]"),
        ("conv", {}, 4, 1, r"it has 4 inputs instead of x, weight, \[bias\]"),
        ("conv", {}, 2, 0, "it has no outputs instead of y"),
        ("conv", {"grads": ("input",)}, 2, 1, "it has 2 inputs instead of grad_y, x, weight"),
        ("matmul", {}, 2, 1, "the attribute 'depth' is missing, a whole number: products summed into one output"),
        ("matmul", {"depth": 3.0}, 2, 1, "the attribute 'depth' is 3.0, not a whole number"),
        ("matmul", {"depth": 3}, 0, 1, r"it has no inputs instead of a, \[b\], \[added\]"),
        ("attention", {}, 2, 1, r"it has 2 inputs instead of q, k, v, \[mask\]"),
        ("attention", {"grad": True}, 3, 3, "it has 3 inputs instead of grad_y, q, k, v"),
        ("attention", {"grad": True, "products": 3}, 4, 3, "the attribute 'products' is 3, not 4 or 5"),
        ("recurrent", {**LSTM, "cell": "ltsm"}, 1, 1, "unknown cell 'ltsm'; did you mean 'lstm'"),
        ("recurrent", {**LSTM, "layers": ()}, 1, 1, "the attribute 'layers' is .*, not triples of whole numbers"),
        (
            "recurrent",
            {**LSTM, "layers": ((3, 4),)},
            1,
            1,
            "the attribute 'layers' is .*, not triples of whole numbers",
        ),
        (
            "recurrent",
            {**LSTM, "layers": (3, 4, 5)},
            1,
            1,
            "the attribute 'layers' is .*, not triples of whole numbers",
        ),
        ("einsum", {}, 2, 1, "the attribute 'equation' is missing, a text"),
        ("einsum", {"equation": 3}, 2, 1, "the attribute 'equation' is 3, not a text"),
        ("elementwise", {"fn": "sigmiod"}, 1, 1, "unknown fn 'sigmiod'; did you mean 'sigmoid'"),
        ("elementwise", {"fn": None}, 1, 1, "the attribute 'fn' is None, not one name"),
        ("fft", {"lengths": ("4",)}, 1, 1, "the attribute 'lengths' is .*, not whole numbers"),
        ("bilinear", {"bias": True}, 3, 1, "unknown attribute 'bias'; known: none"),
    ],
)
def test_what_does_not_fit_is_refused(kind: str, attrs: Attrs, ins: int, outs: int, fault: str) -> None:
    with pytest.raises(GraphError, match=f"operator lib::op: {fault}"):
        check_operator(kind, "lib::op", attrs, ins, outs)


def test_a_refusal_says_where_the_contract_is_shown() -> None:
    with pytest.raises(GraphError, match="conv operator lib::op") as caught:
        check_operator("conv", "lib::op", {"transposd": True}, 2, 1)
    assert "opcost rules conv" in caught.value.hint


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_form_speaks_of_attributes_that_its_kind_has(kind: str) -> None:
    found = KINDS[kind]
    assert found.forms[0].marked_by == ""
    for form in found.forms:
        assert {*form.needs, *filter(None, [form.marked_by])} <= set(found.attributes)


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("elementwise", elementwise.FLOPS_PER_ELEMENT),
        ("reductions", elementwise.REDUCTIONS),
        ("losses", elementwise.LOSSES),
        ("factorizations", algorithms.THIRDS),
        ("norms", {*elementwise.NORMS, "local_response"}),
        ("pools", elementwise.POOLS),
        ("resizes", {*movement.RESIZES, "area", "lanczos"}),
        ("cells", contractions.CELLS),
        ("scatters", movement.SCATTERS),
        ("bags", movement.BAGS),
    ],
)
def test_every_name_that_may_be_chosen_has_a_cost_and_no_other(name: str, table: object) -> None:
    known = NAMES[name]
    assert len(known) == len(set(known))
    assert set(known) == set(table)  # type: ignore[call-overload]
