"""What a case is in our own words: the operator that it runs, as a count would write it down."""

from __future__ import annotations

from typing import Any

import torch

from opcost.core.graph import Op, TensorSpec
from opcost.frontends.options import CountOptions
from opcost.frontends.torch import FRONTEND
from opcost.recorders.calibration.cases import Case


def describe(case: Case) -> tuple[Op, tuple[TensorSpec, ...], tuple[TensorSpec, ...]] | None:
    """The last operator that does something, with what it reads and makes; None where on these sizes nothing is to do."""
    given = tuple(torch.empty(tensor.shape, dtype=tensor.dtype, device="meta") for tensor in case.tensors)

    def run(*tensors: torch.Tensor) -> Any:
        return case.run(*(tensors if case.prepare is None else case.prepare(*tensors)))

    graph = FRONTEND.load(run, CountOptions(inputs=given))
    op = next((op for op in reversed(graph.ops) if op.kind != "view"), None)
    if op is None:
        return None
    return op, tuple(graph.values[i].spec for i in op.inputs), tuple(graph.values[i].spec for i in op.outputs)
