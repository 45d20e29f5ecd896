"""Which counted operator is which recorded one: the same module, phase, operator and shapes, in the same order.

The recorded run names more operators than the count (`aten::linear` around `aten::addmm`, `aten::expand` inside it), and a
device may choose another of the same family (`aten::cudnn_batch_norm`). A family is what one translation serves.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

from opcost.core.report import Row
from opcost.frontends.torch.aten.resolve import _spellings
from opcost.recorders.torch.nesting import Node

NOT_A_TENSOR = frozenset({"", "Scalar", "ScalarList", "TensorList", "GenericList"})
_REGION = ("Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledFunction")
"""Inside these, operators of all modules below run without a call of the modules."""
_Key = tuple[str, str]
