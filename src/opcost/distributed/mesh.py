"""The mesh of ranks over which a model is spread: how many ranks each kind of parallelism has, and where one rank is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import prod
from typing import Any

from opcost.errors import InputError, UnknownName, shortened

AXES: dict[str, str] = {
    "pp": "pipeline parallelism: stages of layers",
    "replicate": "copies of the model that average their gradients (DDP, or HSDP beside fsdp)",
    "fsdp": "data parallelism with sharded parameters (FSDP2)",
    "cp": "context parallelism: parts of the sequence",
    "ep": "expert parallelism: experts of a mixture",
    "tp": "tensor parallelism: parts of each layer",
}
"""The axes in their order: ranks that are neighbours on the last one are neighbours in the cluster."""
OTHER_WORDS = {"dp": "fsdp"}
_EXAMPLE = "fsdp=128,tp=8"


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """Ranks along each axis: `opcost.Mesh(fsdp=128, tp=8)` are 1,024 ranks, of which 8 neighbours share each layer."""

    replicate: int = 1
    fsdp: int = 0
    """0: parameters are not sharded; 1: they are, but over the ranks of `cp` and `ep` alone."""
    pp: int = 1
    ep: int = 1
    cp: int = 1
    tp: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            ranks = getattr(self, field.name)
            if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < (field.name != "fsdp"):
                raise InputError(f"{field.name} of a mesh is {ranks!r}; it must be a whole number above zero")

    @classmethod
    def of(cls, given: Any) -> Mesh:
        """The mesh that a text (`dp=128,tp=8`) or a mapping describes; a mesh is itself."""
        return given if isinstance(given, Mesh) else cls(**ranks_by_axis(given))

    def __str__(self) -> str:
        shards = {"fsdp": 1} if self.fsdp == 1 and self.cp * self.ep > 1 else {}
        return ",".join(f"{axis}={ranks}" for axis, ranks in {**shards, **self.shape}.items()) or "1 rank"

    @property
    def shape(self) -> dict[str, int]:
        """The axes with more than one rank, in order, the outermost first."""
        return {axis: ranks for axis in AXES if (ranks := getattr(self, axis)) > 1}

    @property
    def size(self) -> int:
        """The number of ranks."""
        return prod(self.shape.values())

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a rank is on each axis with more than one rank."""
        self.check_rank(rank)
        found = {}
        for axis, ranks in reversed(self.shape.items()):
            rank, found[axis] = divmod(rank, ranks)
        return dict(reversed(found.items()))

    def along(self, axis: str) -> int:
        """The number of ranks along an axis, or along neighbouring axes that are taken together: `fsdp_cp`."""
        return prod(self.shape.get(name, 1) for name in axis.split("_"))

    def group(self, rank: int, axis: str) -> range:
        """The ranks that differ from this one on one axis alone, or on neighbouring ones, itself among them."""
        sizes, of_rank = self.shape, self.coordinates(rank)
        together = [name for name in sizes if name in axis.split("_")]
        if not together:
            return range(rank, rank + 1)
        names = [*sizes]
        stride = prod(sizes[inner] for inner in names[names.index(together[-1]) + 1 :])
        place = 0
        for name in together:
            place = place * sizes[name] + of_rank[name]
        first = rank - place * stride
        return range(first, first + stride * self.along(axis), stride)

    def check_rank(self, rank: Any) -> None:
        """Raise for a rank that is not in the mesh."""
        if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < self.size:
            raise InputError(f"rank is {rank!r}, and the mesh has {self.size:,} ranks", hint=f"0 to {self.size - 1}")


def ranks_by_axis(given: Any) -> dict[str, Any]:
    """The axes that a text (`dp=128,tp=8`) or a mapping names, and the ranks of each."""
    if not isinstance(given, (str, Mapping)):
        raise InputError(f"mesh is {given!r}, which describes no mesh", hint=f"opcost.Mesh(...), or {_EXAMPLE!r}")
    sizes: dict[str, Any] = {}
    for word, ranks in _assignments(given) if isinstance(given, str) else given.items():
        axis = OTHER_WORDS.get(word, word)
        if axis not in AXES:
            raise UnknownName("axis of a mesh", str(word), [*AXES, *OTHER_WORDS])
        if axis in sizes:
            raise InputError(f"the mesh gives {axis} twice", hint="dp is another word for fsdp")
        sizes[axis] = ranks
    return sizes


def _assignments(text: str) -> list[tuple[str, int]]:
    """`dp=128,tp=8` as pairs."""
    found = []
    for word in filter(None, map(str.strip, text.split(","))):
        axis, equals, ranks = map(str.strip, word.partition("="))
        if not equals or not ranks.isdecimal():
            raise InputError(
                f"mesh is {shortened(repr(text))}, which describes no mesh", hint=f"write it as {_EXAMPLE}"
            )
        found.append((axis, int(ranks)))
    if not found:
        raise InputError("mesh names no axis", hint=f"write it as {_EXAMPLE}")
    return found
