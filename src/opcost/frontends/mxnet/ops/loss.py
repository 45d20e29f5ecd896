"""Softmax, and the heads that know how they are trained: forward they are an activation or hand their input on."""

from __future__ import annotations

from opcost.core.shapes import Mismatch, Shape, axis_of, merge, product, replaced, text
from opcost.frontends.mxnet.attribute import Attributes
from opcost.frontends.mxnet.ops.elementwise import like_first, same_shapes
from opcost.frontends.mxnet.ops.table import (
    VIEW,
    Call,
    Translation,
    define,
    elementwise,
    output_type,
    types_of,
)

_SLOTS = ("data", "label")
_SOFTMAX = Translation("softmax", {}, (0,))


def _softmax(call: Call) -> None:
    """The second input tells for every row how much of it counts."""
    if len(call.ins) > 1:
        call.type_in(1, "int32")
    like_first(call)
    x = call.dims(0)
    if len(call.ins) > 1:
        call.put_in(1, replaced(x, axis_of(call.attrs.integer("axis", -1), len(x))))


def _softmax_slots(attrs: Attributes) -> tuple[str, ...]:
    return ("data", "length") if attrs.flag("use_length") else ("data",)


def _softmax_output(call: Call) -> None:
    like_first(call)
    x, label = call.ins[0], call.ins[1] if len(call.ins) > 1 else None
    if x is None or len(call.ins) < 2 or (label is not None and label == x):
        return
    if not call.attrs.flag("multi_output"):
        call.put_in(1, x[:-1])
    elif label is None and None not in x and len(x) > 1:
        call.put_in(1, (x[0], product(x[2:])))


def _all_but_last(call: Call) -> None:
    like_first(call)
    x = call.dims(0)
    call.put_in(1, x[:-1])


def _regression(call: Call) -> None:
    """A label like the data, but a plain vector where there is one number for each sample."""
    like_first(call)
    x, label = call.ins[0], call.ins[1]
    if x is None or None in x:
        return
    if label is None:
        call.put_in(1, x[:1] if len(x) == 2 and x[1] == 1 else x)
    elif None not in label and product(label) != product(x):
        raise Mismatch(f"a label of {text(label)} does not fit data of {text(x)}")


def _cross_entropy(call: Call) -> None:
    x = call.ins[0]
    if x is not None and len(x) == 2:
        call.put_in(1, x[:1])
    call.put_out(0, (1,))


def _ctc(call: Call) -> None:
    x, label = call.ins[:2]
    batch: Shape = None
    if x is not None and len(x) == 3:
        batch = (x[1],)
    if label is not None and len(label) == 2:
        batch = merge(batch, (label[0],))
    if batch is not None:
        call.put_in(0, (None, batch[0], None))
        call.put_in(1, (batch[0], None))
        for lengths in range(2, len(call.ins)):
            call.put_in(lengths, batch)
        call.put_out(0, batch)


def _ctc_slots(attrs: Attributes) -> tuple[str, ...]:
    optional = ("data_lengths", "label_lengths")
    return (*_SLOTS, *(name for name in optional if attrs.flag(f"use_{name}")))


for _name in ("softmax", "log_softmax", "softmin"):
    define((_name, f"_npx_{_name}"), _softmax, _SOFTMAX, output_type("dtype"), slots=_softmax_slots)
for _name in ("masked_softmax", "masked_log_softmax"):
    define((_name, f"_npx_{_name}"), like_first, _SOFTMAX, types_of(0), slots="data mask")
define("SoftmaxActivation", same_shapes, _SOFTMAX)
define("SoftmaxOutput", _softmax_output, _SOFTMAX, slots=_SLOTS)
define("SVMOutput", _all_but_last, VIEW, slots=_SLOTS)
define(
    ("LinearRegressionOutput _sparse_LinearRegressionOutput MAERegressionOutput _sparse_MAERegressionOutput"),
    _regression,
    VIEW,
    slots=_SLOTS,
)
define(
    "LogisticRegressionOutput _sparse_LogisticRegressionOutput", _regression, elementwise("sigmoid", (0,)), slots=_SLOTS
)
define(
    "softmax_cross_entropy", _cross_entropy, Translation("loss", {"fn": "cross_entropy"}), types_of(0, 1), slots=_SLOTS
)
define(
    "CTCLoss ctc_loss _contrib_CTCLoss _contrib_ctc_loss _npx_ctc_loss",
    _ctc,
    Translation("loss", {"fn": "ctc"}),
    types_of(0),
    slots=_ctc_slots,
)
