"""What a checkpoint holds: its tensors as the model sees them, and as they are stored. Plain data, without a weight."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from opcost.core.graph import Note
from opcost.core.names import natural_order, patterns_of
from opcost.core.rendering import Listed, Rendered, brief, brief_record, brief_repr
from opcost.core.units import format_bytes, format_count

Role: TypeAlias = Literal["weight", "scale", "optimizer", "copy", "constant"]  # `scale`: also zero points and maps
By: TypeAlias = Literal["layer", "module", "type", "tensor"]


@brief_repr
class StoredTensor(NamedTuple):
    """One tensor of a checkpoint."""

    name: str
    shape: tuple[int, ...]  # as the model sees it: a weight of four bits has as many elements as the layer has weights
    dtype: str  # the element type as the model sees it: `bfloat16`, `int4`, `nf4`, `Q4_K`
    params: int  # logical parameters; none where it is no weight, or tied to another one
    bytes: int  # as stored; none where it is stored with the one that it is tied to
    role: Role = "weight"
    scheme: str = ""  # how it is quantized: awq, gptq, compressed-tensors, bitsandbytes, fp8, mxfp4, nvfp4, mlx, gguf
    file: str = ""
    tied_to: str = ""

    @property
    def bits(self) -> float | None:
        """Stored bits per parameter, without scales, which are tensors of their own."""
        return 8 * self.bytes / self.params if self.params else None

    @property
    def type(self) -> str:
        """What it is called by where tensors are grouped by their types."""
        return _type(self.role, self.dtype, self.scheme)


@cache
def _type(role: Role, dtype: str, scheme: str) -> str:
    """Element type, with the scheme where it does not imply it, and with the role where it is no weight."""
    if role != "weight":
        return f"{dtype} ({_ROLES[role]})"
    implied = scheme in ("", "gguf", dtype) or (scheme == "fp8" and "float8" in dtype)
    return dtype if implied else f"{dtype} {scheme}"


_ROLES: dict[Role, str] = {"scale": "scales", "optimizer": "optimizer", "copy": "copy", "constant": "constant"}


class Experts(NamedTuple):
    """A mixture of experts: how many there are, how many a token uses, and what all of them hold."""

    count: int  # type: ignore[assignment]  # a tuple has a method of this name
    per_token: int
    params: int


class Totals(NamedTuple):
    """Sums over all tensors."""

    tensors: int
    params: int  # logical parameters
    bytes: int  # stored, scales and whatever else is there included
    active_params: int | None = None  # of a mixture of experts: those that a token uses
    scale_bytes: int = 0
    other_bytes: int = 0  # of optimizers, copies and constants

    @property
    def bits_per_param(self) -> float | None:
        """Of weights with their scales."""
        return 8 * (self.bytes - self.other_bytes) / self.params if self.params else None


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """Tensors on one line."""

    name: str
    tensors: int
    params: int
    bytes: int
    shape: tuple[int, ...] | None  # none where they have several
    types: tuple[str, ...]  # the one with the most bytes first

    @property
    def bits(self) -> float | None:
        """Stored bits per parameter, with scales."""
        return 8 * self.bytes / self.params if self.params else None

    __repr__ = brief_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(Rendered):
    """A checkpoint: `print` it, ask its totals, group its tensors, `render` or `save` it."""

    kind: ClassVar[str] = "scan"

    source: str
    format: str
    files: tuple[str, ...]
    tensors: tuple[StoredTensor, ...]
    totals: Totals
    experts: Experts | None = None
    ordered: bool = True
    """The order of the tensors has a meaning; else lines are ordered by their names."""
    details: Mapping[str, str] = field(default_factory=dict)
    """What the format says of itself."""
    notes: tuple[Note, ...] = ()

    def by(self, how: By, depth: int | None = None) -> tuple[TensorGroup, ...]:
        """The tensors on lines: one for each layer pattern, module, element type, or tensor."""
        if how == "type":
            return self.by_type()
        if how in ("layer", "module"):
            given = () if depth is None else (depth,)
            return self.by_layer(*given) if how == "layer" else self.by_module(*given)
        return self._in_order(
            TensorGroup(one.name, 1, one.params, one.bytes, one.shape, (one.type,)) for one in self.tensors
        )

    def _in_order(self, groups: Iterable[TensorGroup]) -> tuple[TensorGroup, ...]:
        return Listed(groups if self.ordered else sorted(groups, key=lambda group: natural_order(group.name)))

    def by_layer(self, depth: int = 1) -> tuple[TensorGroup, ...]:
        """Layers that differ by their number on one line: `model.layers.{0..79}.mlp.*`, cut `depth` words after it."""
        patterns = patterns_of([tensor.name for tensor in self.tensors], depth if depth < 99 else None)
        names = {key: str(pattern) for key, pattern in {id(pattern): pattern for pattern in patterns}.items()}
        keys = iter(patterns)
        return self._in_order(_grouped(self.tensors, lambda _: names[id(next(keys))]))

    def by_module(self, depth: int = 2) -> tuple[TensorGroup, ...]:
        """The first `depth` words of the path of a module on one line."""
        found = _grouped(self.tensors, lambda tensor: ".".join(tensor.name.split(".")[:-1][:depth]) or tensor.name)
        return self._in_order(found)

    def by_type(self) -> tuple[TensorGroup, ...]:
        """Element types, the largest first."""
        return Listed(sorted(_grouped(self.tensors, lambda tensor: tensor.type), key=lambda group: -group.bytes))

    def __repr__(self) -> str:
        totals = self.totals
        facts = [f"{totals.tensors:,} tensors", f"{format_count(totals.params)} params", format_bytes(totals.bytes)]
        return brief(self, [self.format, *facts], self.source)


def totals_of(tensors: Iterable[StoredTensor], experts: Experts | None = None) -> Totals:
    """The sums; of a mixture, all but the experts that a token does not use are active."""
    count = params = stored = scales = others = 0
    for _, _, _, elements, size, role, _, _, _ in tensors:
        count += 1
        params += elements
        stored += size
        if role == "scale":
            scales += size
        elif role != "weight":
            others += size
    active = None
    if experts is not None:
        active = params - experts.params + experts.params * experts.per_token // experts.count
    return Totals(count, params, stored, active, scales, others)


def _grouped(tensors: Iterable[StoredTensor], key: Callable[[StoredTensor], str]) -> tuple[TensorGroup, ...]:
    """Sums by a key, in the order in which the keys come."""
    sums: dict[str, list[Any]] = {}
    for tensor in tensors:
        name = key(tensor)
        found = sums.get(name)
        if found is None:
            found = sums[name] = [0, 0, 0, tensor.shape, {}]
        found[0] += 1
        found[1] += tensor.params
        found[2] += tensor.bytes
        if found[3] != tensor.shape:
            found[3] = None
        types, kind = found[4], tensor.type
        types[kind] = types.get(kind, 0) + tensor.bytes
    return tuple(
        TensorGroup(name, count, params, stored, shape, tuple(sorted(types, key=types.__getitem__, reverse=True)))
        for name, (count, params, stored, shape, types) in sums.items()
    )
