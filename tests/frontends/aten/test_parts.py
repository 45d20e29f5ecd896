"""An operator consists of what PyTorch runs in its place: the parts that are worked out are compared with a run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from opcost.core.graph import TensorSpec
from opcost.frontends.aten.call import AtenCall, flat
from opcost.frontends.aten.composite import COMPOSITES, taken_apart
from opcost.frontends.aten.schema import plan_of, shipped, translate
from opcost.frontends.aten.tensor import Described
from opcost.rules import default_rules
from opcost.rules.registry import OpView

aten = torch.ops.aten
RULES = default_rules()


def x(*shape: int, dtype: torch.dtype = torch.float32, learns: bool = False) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype).requires_grad_(learns)


def turned(*shape: int) -> torch.Tensor:
    """The last two axes are in memory the other way round."""
    return x(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)


def whole(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


GATES = (x(2, 5), [x(2, 3), x(2, 3)])
CALLS: list[tuple[Any, ...]] = [
    # linear layers: with what is added in one step, or after a product of an input that is not laid out row by row
    (aten.linear.default, x(2, 5), x(7, 5), x(7)), (aten.linear.default, x(2, 5), x(7, 5)),
    (aten.linear.default, x(2, 3, 5), x(7, 5), x(7)), (aten.linear.default, x(2, 3, 5), x(7, 5)),
    (aten.linear.default, turned(2, 3, 5), x(7, 5), x(7)), (aten.linear.default, turned(2, 3, 5), x(7, 5)),
    (aten.linear.default, turned(2, 3, 5), x(7, 5, learns=True), x(7)), (aten.linear.default, x(2, 5), x(5)),
    # products by the ranks of their operands
    (aten.matmul.default, x(5), x(5)), (aten.matmul.default, x(3, 5), x(5)), (aten.matmul.default, x(5), x(5, 7)),
    (aten.matmul.default, x(3, 5), x(5, 7)), (aten.matmul.default, x(2, 3, 5), x(5, 7)), (aten.matmul.default, x(2, 3, 5), x(5)),
    (aten.matmul.default, turned(2, 3, 5), x(5, 7)), (aten.matmul.default, turned(2, 3, 5), x(5)),
    (aten.matmul.default, turned(2, 3, 5), x(5, 7, learns=True)), (aten.matmul.default, x(0, 3, 5), x(5, 7)),
    (aten.matmul.default, x(3, 5), x(2, 5, 7)), (aten.matmul.default, x(3, 5), turned(2, 5, 7)),
    (aten.matmul.default, x(3, 5, learns=True), x(2, 5, 7)), (aten.matmul.default, x(3, 5, learns=True), turned(2, 5, 7)),
    (aten.matmul.default, x(3, 5), x(2, 5, 7, learns=True)), (aten.matmul.default, x(5, learns=True), x(2, 5, 7)),
    (aten.matmul.default, x(5), x(2, 5, 7)),
    (aten.matmul.default, x(5), turned(2, 5, 7)), (aten.matmul.default, x(2, 3, 5), x(2, 5, 7)),
    (aten.matmul.default, x(11, 2, 3, 5), x(2, 5, 7)), (aten.matmul.default, x(11, 1, 3, 5), x(2, 5, 7)),
    (aten.matmul.default, x(2, 3, 5), x(11, 2, 5, 7)), (aten.matmul.default, x(11, 2, 3, 5), x(1, 2, 5, 7)),
    (aten.matmul.default, x(1, 1, 3, 5), x(11, 2, 5, 7)), (aten.linalg_matmul.default, x(3, 5), x(5, 7)),
    # sums of products by letters
    (aten.einsum.default, "ij,jk->ik", [x(2, 3), x(3, 5)]), (aten.einsum.default, "bij,bjk->bik", [x(2, 3, 5), x(2, 5, 7)]),
    (aten.einsum.default, "bij,bjk", [x(2, 3, 5), x(2, 5, 7)]), (aten.einsum.default, "ij->ji", [x(2, 3)]),
    (aten.einsum.default, "ij->i", [x(2, 3)]), (aten.einsum.default, "ij,ij->ij", [x(2, 3), x(2, 3)]),
    (aten.einsum.default, "ii->i", [x(3, 3)]), (aten.einsum.default, "ij,kj->ki", [x(2, 3), x(5, 3)]),
    (aten.einsum.default, "ijl,jk->ik", [x(2, 3, 7), x(3, 5)]), (aten.einsum.default, "ij,jkl->ik", [x(2, 3), x(3, 5, 7)]),
    (aten.einsum.default, "ij,jk,kl->il", [x(2, 3), x(3, 5), x(5, 7)]), (aten.einsum.default, "i,j->ij", [x(2), x(3)]),
    (aten.einsum.default, "bhid,bhjd->bhij", [x(2, 3, 5, 7), x(2, 3, 11, 7)]),
    (aten.einsum.default, "bid,bjd->bij", [x(2, 3, 5), x(1, 7, 5)]),
    (aten.einsum.default, "bid,bjd->bij", [x(1, 3, 5), x(2, 7, 5)]),
    (aten.einsum.default, "iij,jk->ik", [x(3, 3, 5), x(5, 7)]), (aten.einsum.default, "ijk,ijk->", [x(2, 3, 5), x(2, 3, 5)]),
    (aten.tensordot.default, x(2, 3, 5), x(5, 3, 7), [1, 2], [1, 0]), (aten.tensordot.default, x(2, 3, 5), x(5, 7), [2], [0]),
    (aten.tensordot.default, x(2, 3, 5), x(3, 2, 7), [-2, 0], [0, -2]),
    # attention
    (aten.scaled_dot_product_attention.default, x(2, 3, 5, 7), x(2, 3, 11, 7), x(2, 3, 11, 7)),
    (aten.scaled_dot_product_attention.default, x(2, 3, 5, 7), x(2, 3, 5, 7), x(2, 3, 5, 7), None, 0.0, True),
    (aten.scaled_dot_product_attention.default, x(2, 3, 5, 7), x(2, 3, 11, 7), x(2, 3, 11, 7), x(5, 11)),
    (aten.scaled_dot_product_attention.default, x(2, 3, 5, 7), x(2, 3, 11, 7), x(2, 3, 11, 7), x(5, 11, dtype=torch.bool)),
    (aten.scaled_dot_product_attention.default, x(3, 5, 7), x(3, 11, 7), x(3, 11, 7)),
    (aten.scaled_dot_product_attention.default, x(3, 5, 7), x(3, 11, 7), x(3, 11, 7), x(5, 11, dtype=torch.bool)),
    (aten.scaled_dot_product_attention.default, x(3, 5, 7), x(3, 5, 7), x(3, 5, 7), None, 0.0, True),
    (aten.scaled_dot_product_attention.default, x(2, 3, 5, 7), x(2, 3, 11, 7), x(2, 3, 11, 13)),
    (aten.scaled_dot_product_attention.default, x(2, 3, 5, 7), x(2, 3, 11, 7), x(2, 3, 11, 7), None, 0.5),
    (aten.scaled_dot_product_attention.default, *[x(2, 3, 5, 7, dtype=torch.float64)] * 3),
    (aten.dropout.default, x(2, 3), 0.5, True),
    # cells, with biases and without
    (aten.lstm_cell.default, *GATES, x(12, 5), x(12, 3), x(12), x(12)), (aten.lstm_cell.default, *GATES, x(12, 5), x(12, 3)),
    (aten.gru_cell.default, x(2, 5), x(2, 3), x(9, 5), x(9, 3), x(9), x(9)),
    (aten.gru_cell.default, x(2, 5), x(2, 3), x(9, 5), x(9, 3)),
    (aten.rnn_tanh_cell.default, x(2, 5), x(2, 3), x(3, 5), x(3, 3), x(3), x(3)),
    (aten.rnn_relu_cell.default, x(2, 5), x(2, 3), x(3, 5), x(3, 3)),
    # norms
    (aten.batch_norm.default, x(2, 3, 5), x(3), x(3), x(3), x(3), True, 0.1, 1e-5, False),
    (aten.batch_norm.default, x(2, 3, 5), x(3), x(3), x(3), x(3), False, 0.1, 1e-5, False),
    (aten.layer_norm.default, x(2, 3, 5), [5], x(5), x(5)), (aten.layer_norm.default, x(2, 3, 5), [3, 5], None, None),
    (aten.group_norm.default, x(2, 6, 5, 7), 3, x(6), x(6)), (aten.group_norm.default, turned(2, 6, 5, 7), 3, x(6), x(6)),
    (aten.group_norm.default, x(2, 6, 5, 7).to(memory_format=torch.channels_last), 3, x(6), x(6)),
    (aten.group_norm.default, x(2, 6, 3, 5, 7).to(memory_format=torch.channels_last_3d), 3, x(6), x(6)),
    (aten.group_norm.default, turned(2, 6, 5), 3, x(6), x(6)),
    (aten.instance_norm.default, x(2, 3, 5, 7), x(3), x(3), None, None, True, 0.1, 1e-5, False),
    (aten.instance_norm.default, x(2, 3, 5), None, None, None, None, True, 0.1, 1e-5, False),
    (aten.rms_norm.default, x(2, 3, 5), [5], x(5)), (aten.rms_norm.default, x(2, 3, 5), [3, 5]),
    (aten.rms_norm.default, x(2, 5, dtype=torch.bfloat16), [5], x(5, dtype=torch.bfloat16)),
    (aten.rms_norm.default, x(2, 5, dtype=torch.float16), [5]), (aten._weight_norm.default, x(5, 3), x(5, 1)),
    # pools
    (aten.max_pool1d.default, x(2, 3, 11, learns=True), 2),
    (aten.max_pool1d.default, x(2, 3, 11, learns=True), [3], [2], [1], [2]),
    (aten.max_pool2d.default, x(2, 3, 11, 7), [2, 3]), (aten.max_pool3d.default, x(2, 3, 11, 7, 5), [2, 3, 2], [1, 2, 1]),
    (aten.adaptive_avg_pool1d.default, x(2, 3, 11), 1), (aten.adaptive_avg_pool2d.default, x(2, 3, 11, 7), [1, 1]),
    (aten.adaptive_avg_pool2d.default, x(2, 3, 11, 7), [1, 2]), (aten.adaptive_avg_pool3d.default, x(2, 3, 11, 7, 5), [1, 1, 1]),
    # losses, each value, their mean and their sum
    *((aten.l1_loss.default, x(2, 3), x(2, 3), reduction) for reduction in range(3)),
    *((aten.kl_div.default, x(2, 3), x(2, 3), reduction) for reduction in range(3)),
    *((aten.nll_loss.default, x(5, 3), whole(5), None, reduction) for reduction in range(3)),
    *((aten.cross_entropy_loss.default, x(5, 3), whole(5), x(3), reduction) for reduction in range(3)),
    (aten.cross_entropy_loss.default, x(3), whole()), (aten.nll_loss2d.default, x(5, 3, 2, 7), whole(5, 2, 7)),
    (aten.nll_loss_nd.default, x(5, 3), whole(5)),
    (aten.cosine_similarity.default, x(2, 3, 5), x(2, 3, 5)), (aten.cosine_similarity.default, x(2, 3, 5), x(2, 3, 5), -1),
    (aten.pairwise_distance.default, x(2, 3), x(2, 3)), (aten.pairwise_distance.default, x(2, 3), x(1, 3)),
    # small ones
    (aten.selu.default, x(2, 3)), (aten.log_sigmoid.default, x(2, 3)), (aten.rrelu.default, x(2, 3), 0.1, 0.3, True),
    (aten.one_hot.default, whole(2, 3).to("meta"), 5),  # with data it looks at them, without, as in a count, it compares
    (aten.isfinite.default, x(2, 3)),
    (aten.diff.default, x(2, 3)), (aten.diff.default, x(2, 3), 1, 0, x(5, 3), x(7, 3)),
    (aten.diff.default, x(2, 3, dtype=torch.bool)),
    (aten.diff.default, x(2, 3), 1, -1, x(2, 5)), (aten.where.ScalarSelf, x(2, 3, dtype=torch.bool), 1.0, x(2, 3)),
    (aten.where.ScalarOther, x(2, 3, dtype=torch.bool), x(2, 3), 1.0), (aten.where.Scalar, x(2, 3, dtype=torch.bool), 1.0, 2.0),
    (aten.where.self, x(2, 3, dtype=torch.bool), x(2, 3), x(2, 3)), (aten.repeat_interleave.self_int, x(2, 3), 5, 1),
    (aten.meshgrid.default, [x(2), x(3)]), (aten.bilinear.default, x(2, 3), x(2, 5), x(7, 3, 5), x(7)),
]  # fmt: skip

WHOLE = {
    "aten::_adaptive_avg_pool2d": "aten::adaptive_avg_pool2d",
    "aten::nll_loss2d_forward": "aten::nll_loss_forward",
    "aten::_trilinear": "aten::bilinear",
}
"""Operators that are counted under another name, with the same cost."""


class Catch(TorchDispatchMode):
    """Notes every operator, with what it returned."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.steps.append(
            (func._schema.name, func._schema.overload_name, *tree_map(described, (args, kwargs or {}, result)))
        )
        return result


def described(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return str(value)[6:]
    if not isinstance(value, torch.Tensor):
        return value
    dtype = str(value.dtype)[6:]
    return Described(tuple(value.shape), value.stride(), dtype, requires_grad=value.requires_grad)


def called(name: str, overload: str, args: tuple[Any, ...], kwargs: dict[str, Any], outs: Any) -> tuple[Any, AtenCall]:
    schema = shipped(name, overload)
    assert schema is not None, (name, overload)
    plan = plan_of(schema)
    return plan, plan.call(plan.named(args, kwargs), tuple(flat([outs])))


def cost(plan: Any, call: AtenCall) -> tuple[Any, ...]:
    """Kind and cost of a call. The layout of its tensors costs nothing, and parts are given row by row."""
    found = translate(plan, call)
    ins = tuple(flat(call.args.values())) if found.ins is None else found.ins
    outs = call.outs if found.outs is None else found.outs
    specs = [tuple(TensorSpec(tuple(t.shape), str(t.dtype)) for t in group) for group in (ins, outs)]
    counted = RULES[found.kind](OpView(found.kind, plan.name, specs[0], specs[1], found.attrs))
    attrs = {name: value for name, value in found.attrs.items() if name not in ("strided", "turned", "expanded")}
    return found.kind, WHOLE.get(plan.name, plan.name), tuple(sorted(attrs.items(), key=str)), counted


def parts(func: Any, args: tuple[Any, ...], outs: Any) -> list[tuple[Any, ...]]:
    plan, call = called(
        func._schema.name, func._schema.overload_name, tree_map(described, args), {}, tree_map(described, outs)
    )
    steps = taken_apart(call)
    if steps is None:
        return [cost(plan, call)]
    return [cost(*step) for step in steps]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call[0]))
def test_parts_are_what_runs(call: tuple[Any, ...]) -> None:
    func, *args = call
    with Catch() as catch:
        outs = func(*args)
    ran = [cost(*called(*step)) for step in catch.steps]
    costs = [
        Counter(each for each in side if each[0] not in ("view", "create", "random"))
        for side in (parts(func, args, outs), ran)
    ]
    assert costs[0] == costs[1]


def test_every_operator_that_has_parts_is_run() -> None:
    assert {*COMPOSITES} == {call[0]._schema.name for call in CALLS}
