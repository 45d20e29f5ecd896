"""How one rank of a mesh is counted: which rank, and how the parts of the model are spread."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opcost.distributed.mesh import AXES, Mesh
from opcost.errors import InputError, UnknownName

STYLES: dict[str, str] = {
    "colwise": "rows of the weight, so parts of the output",
    "rowwise": "columns of the weight; the parts of the sum are added up over the ranks",
    "colwise_gather_output": "as colwise, and the whole output is gathered",
    "rowwise_split_input": "as rowwise, from an input that every rank has whole",
    "embedding_rowwise": "rows of a table of embeddings",
    "replicate": "nothing",
    "sequence_parallel": "of a norm: parts of the sequence, and the weights on every rank",
    "loss_parallel": "of the layer that makes logits: as colwise, and the loss is computed on the parts of the vocabulary",
}
"""Styles of tensor parallelism by the names that transformers gives them, and what each spreads."""
COUNTED = ("replicate", "fsdp", "tp")


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """One rank of a mesh, and the choices of each axis."""

    mesh: Mesh
    rank: int = 0
    reshard: bool = True
    """Gathered parameters of a block are freed after forward, and gathered again for backward."""
    reduce_dtype: str | None = None
    """In which element type gradients are summed; None: float32 in mixed precision, else their own."""
    plan: Mapping[str, str] = field(default_factory=dict)
    """Styles of tensor parallelism by the pattern of a module's path, in place of the model's own plan."""
    sequence: bool = False
    """Beside tensor parallelism, norms, dropout and residuals are on parts of the sequence."""
    loss: bool = False
    """Beside tensor parallelism, the loss is computed on parts of the vocabulary."""

    def __post_init__(self) -> None:
        self.mesh.check_rank(self.rank)
        for axis in self.mesh.shape:
            if axis not in COUNTED:
                hint = f"axes that are counted: {', '.join(COUNTED)}"
                raise InputError(f"{AXES[axis].partition(':')[0]} ({axis}) is not counted yet", hint=hint)
        if self.replicates_whole and self.mesh.tp > 1:
            hint = "use fsdp in its place, or add it for copies of a sharded model (HSDP)"
            raise InputError("DistributedDataParallel (replicate without fsdp) takes no tensor parallelism", hint=hint)
        about_tp = {
            "a plan of tensor parallelism": self.plan,
            "sequence parallelism": self.sequence,
            "loss parallelism": self.loss,
        }
        if self.mesh.tp == 1 and (given := [what for what, value in about_tp.items() if value]):
            raise InputError(f"{given[0]} is given, and the mesh has no axis tp", hint="mesh='tp=8'")

    @property
    def replicates_whole(self) -> bool:
        """Whether every rank has the whole model (DistributedDataParallel)."""
        return self.mesh.replicate > 1 and self.mesh.fsdp == 1

    @property
    def splits_sequence(self) -> bool:
        """Whether tensor parallelism leaves parts of the sequence where it does not split features."""
        return self.sequence or "sequence_parallel" in self.plan.values()

    @property
    def splits_loss(self) -> bool:
        """Whether the loss is computed on parts of the vocabulary."""
        return self.loss or "loss_parallel" in self.plan.values()

    @property
    def gathers(self) -> bool:
        """Whether parameters are sharded and gathered for use."""
        return self.mesh.fsdp > 1


def plan_of(given: Any) -> dict[str, str]:
    """Styles by pattern, from a mapping or from the JSON file that a path names."""
    if given is None:
        return {}
    if isinstance(given, (str, Path)):
        try:
            given = json.loads(Path(given).read_text("utf-8"))
        except (OSError, ValueError) as exc:
            hint = 'a JSON file such as {"layers.*.wq": "colwise", "layers.*.wo": "rowwise"}'
            raise InputError(f"the plan {given} cannot be read: {exc}", hint=hint) from exc
    if not isinstance(given, Mapping) or not given:
        hint = 'styles by pattern: {"layers.*.wq": "colwise", "layers.*.wo": "rowwise"}'
        raise InputError(f"tp_plan is {given!r}, which names no style", hint=hint)
    for style in given.values():
        if style not in STYLES:
            raise UnknownName("style of tensor parallelism", str(style), STYLES)
    return {str(pattern): style for pattern, style in given.items()}
