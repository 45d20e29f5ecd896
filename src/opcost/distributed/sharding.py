"""How one rank of a mesh is counted: which rank, and how the parts of the model are spread."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from opcost.distributed.mesh import AXES, Mesh
from opcost.distributed.pipelining import Pipelining
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
    ring: bool = False
    """Context parallelism passes keys and values on from rank to rank; else every rank gathers them."""
    experts: tuple[str, ...] = ()
    """Patterns of the paths of experts that send tokens, in place of the model's own plan."""
    pipelining: Pipelining = field(default_factory=Pipelining)
    """How the stages of a pipeline take turns."""

    def __post_init__(self) -> None:
        self.mesh.check_rank(self.rank)
        of_axes = (
            ("tp", "a plan of tensor parallelism", self.plan), ("tp", "sequence parallelism", self.sequence),
            ("tp", "loss parallelism", self.loss), ("cp", "a ring of keys and values", self.ring),
            ("ep", "a pattern of experts", self.experts), ("pp", "a schedule", self.pipelining != Pipelining()),
        )  # fmt: skip
        for axis, what, given in of_axes:
            if given and axis not in self.mesh.shape:
                raise InputError(f"{what} is given, and the mesh has no axis {axis}", hint=f"mesh='{axis}=8'")
        if self.mesh.pp > 1:
            self._check_pipeline()

    def _check_pipeline(self) -> None:
        """Raise for what is not counted in a pipeline."""
        mesh, schedule = self.mesh, self.pipelining.schedule
        for axis in ("cp", "ep"):
            if axis in mesh.shape:
                fault = f"{AXES[axis].partition(':')[0]} ({axis}) is not counted in a pipeline"
                raise InputError(fault, hint=f"leave {axis} or pp out")
        if mesh.replicate > 1 and not self.gathers:
            hint = "use fsdp in its place, or add it for copies of a sharded model (HSDP)"
            raise InputError("DistributedDataParallel (replicate without fsdp) is not counted in a pipeline", hint=hint)
        if self.splits_sequence and schedule.startswith("zero-bubble"):
            fault = f"the schedule {schedule} does not run backward through parts of the sequence"
            raise InputError(fault, hint="another schedule, or no sequence parallelism")
        if self.gathers and self.reshard and schedule.startswith("zero-bubble"):
            fault = f"the schedule {schedule} takes gradients of weights after a stage has freed them"
            raise InputError(fault, hint="keep gathered parameters: reshard=False")

    def check(self, *, trains: bool, caches: bool) -> None:
        """Raise for what is not trained so, or not run with a cache of keys and values."""
        if caches and self.mesh.cp > 1:
            hint = "leave out prefill and decode, or cp"
            raise InputError("context parallelism is not counted with a cache of keys and values", hint=hint)
        if trains and not self.gathers and self.mesh.tp > 1 and self.along("replicate", "cp"):
            fault = "gradients are averaged by DistributedDataParallel, which takes no tensor parallelism"
            raise InputError(fault, hint="shard parameters, if only over the ranks of cp and ep: fsdp=1")

    def along(self, *axes: str) -> str:
        """Those of these neighbouring axes that have more than one rank, as one."""
        return "_".join(axis for axis in axes if axis in self.mesh.shape)

    @property
    def gathers(self) -> bool:
        """Whether parameters are sharded, and gathered for use."""
        mesh = self.mesh
        return mesh.fsdp > 1 or (mesh.fsdp == 1 and mesh.cp * mesh.ep > 1)

    @property
    def splits_sequence(self) -> bool:
        """Whether tensor parallelism leaves parts of the sequence where it does not split features."""
        return self.sequence or "sequence_parallel" in self.plan.values()

    @property
    def splits_loss(self) -> bool:
        """Whether the loss is computed on parts of the vocabulary."""
        return self.loss or "loss_parallel" in self.plan.values()


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


@cache
def path_pattern(key: str) -> re.Pattern[str]:
    """Matches the paths that a pattern of modules describes; a star is one name."""
    return re.compile(re.escape(key).replace(r"\*", r"[^.]+"))
