"""Layouts of a number of GPUs: meshes, microbatches, and what is kept for the backward pass; which of them are sensible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from opcost.distributed.clusters import Cluster
from opcost.distributed.mesh import Mesh
from opcost.errors import InputError, counted

CHECKPOINTS: Mapping[str, str] = {
    "none": "all activations are kept",
    "selective": "blocks are recomputed, but for attention and every second product",
    "full": "blocks are recomputed",
}
"""What a layout keeps of the forward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a step is spread over ranks, and divided into passes."""

    mesh: Mesh
    batch: int
    """Samples of one pass on one rank: a microbatch."""
    passes: int
    """Passes before each update, which accumulate gradients."""
    checkpoint: str = "none"
    reshard: bool = True

    def __str__(self) -> str:
        words = [str(self.mesh), f"{self.passes} × {self.batch} samples"]
        words += [f"checkpoint {self.checkpoint}"] if self.checkpoint != "none" else []
        words += [] if self.reshard else ["no reshard"]
        return ", ".join(words)


class Space(NamedTuple):
    """The layouts to look for."""

    gpus: int
    cluster: Cluster
    samples: int
    """Of all ranks in a step: the global batch."""
    checkpoints: Sequence[str] = tuple(CHECKPOINTS)
    fixed: Mapping[str, int] = {}
    """Axes of the mesh with a given number of ranks."""
    batch: int | None = None
    """A given microbatch."""

    @property
    def node(self) -> int:
        """GPUs of a node, or all where these are fewer."""
        return min(self.gpus, self.cluster.gpus)

    @property
    def smaller(self) -> int | None:
        """Half the GPUs, or if these are no whole nodes, one node less; None where that is no cluster of several GPUs."""
        half, rest = divmod(self.gpus, 2)
        if (rest == 0 and half % self.cluster.gpus == 0) or self.gpus <= self.cluster.gpus:
            return half if half > 1 else None
        return self.gpus - self.cluster.gpus


class Rule(NamedTuple):
    """What a mesh must keep to, and what is said of those that do not."""

    said: str
    keeps: Callable[[Mesh, Space], bool]


RULES = (
    Rule("tensor parallelism leaves the node", lambda mesh, space: space.node % mesh.tp == 0),
    Rule(
        "DistributedDataParallel takes no tensor parallelism",
        lambda mesh, _: mesh.replicate == 1 or mesh.fsdp > 0 or mesh.tp == 1,
    ),
    Rule(
        "a copy of the shards is neither whole nodes nor an equal part of one",
        lambda mesh, space: mesh.replicate == 1 or _divides(mesh.size // mesh.replicate, space.cluster.gpus),
    ),
    Rule("the samples are not shared evenly", lambda mesh, space: space.samples % ranks_with_samples(mesh) == 0),
)
"""Rules for meshes, the first of which that is not kept is said."""


def ranks_with_samples(mesh: Mesh) -> int:
    """How many ranks have samples of their own; those of `cp` and `tp` have parts of the same."""
    return mesh.replicate * max(1, mesh.fsdp) * mesh.ep


def _divides(one: int, other: int) -> bool:
    return max(one, other) % min(one, other) == 0


def check_space(space: Space) -> None:
    """Raise for GPUs that are no whole nodes."""
    gpus, node = space.gpus, space.cluster.gpus
    if gpus > node and gpus % node:
        near = gpus // node * node
        fault = f"{gpus} GPUs are not whole nodes of {space.cluster.name}, which have {node}"
        raise InputError(fault, hint=f"gpus={near} or gpus={near + node}")


def layouts(space: Space) -> tuple[list[Layout], list[str]]:
    """All sensible layouts, and how many meshes were left out, and why."""
    check_space(space)
    found: list[Layout] = []
    left_out: Counter[str] = Counter()
    for mesh in _meshes(space):
        broken = next((rule.said for rule in RULES if not rule.keeps(mesh, space)), None)
        if broken is not None:
            left_out[broken] += 1
            continue
        share = space.samples // ranks_with_samples(mesh)
        for batch in divisors(share) if space.batch is None else [space.batch] * (share % space.batch == 0):
            for checkpoint in space.checkpoints:
                for reshard in (True, False) if mesh.fsdp else (True,):
                    passes = share // batch
                    found.append(Layout(mesh=mesh, batch=batch, passes=passes, checkpoint=checkpoint, reshard=reshard))
    return found, [f"{counted(number, 'mesh', 'meshes')} left out: {said}" for said, number in left_out.items()]


def _meshes(space: Space) -> Iterator[Mesh]:
    """Every mesh of all GPUs with the fixed axes, `cp` and `ep` only so; these share parameters, which are sharded then."""
    cp, ep = space.fixed.get("cp", 1), space.fixed.get("ep", 1)
    rest, none = divmod(space.gpus, cp * ep)
    for tp in divisors(rest) if none == 0 else ():
        for fsdp in divisors(rest // tp):
            shards = fsdp if fsdp > 1 or cp * ep > 1 else 0
            mesh = Mesh(replicate=rest // tp // fsdp, fsdp=shards, cp=cp, ep=ep, tp=tp)
            if all(max(1, getattr(mesh, axis)) == ranks for axis, ranks in space.fixed.items()):
                yield mesh


def divisors(number: int) -> list[int]:
    """All numbers that divide one."""
    return [each for each in range(1, number + 1) if number % each == 0]
