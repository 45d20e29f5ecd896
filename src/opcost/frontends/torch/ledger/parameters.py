"""What parameters consist of: tensors inside subclasses, values of few bits, packages of quantized modules, shared memory.

A subclass that answers operators itself takes an operator apart into operators on the tensors inside, and those are recorded.
So the parameter is what is inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn

from opcost.core.graph import Role, TensorSpec
from opcost.frontends.torch import private

_OWN_DISPATCH = torch.Tensor.__torch_dispatch__


def is_foreign(tensor: torch.Tensor) -> bool:
    """Whether a tensor's class answers operators itself; a fake one represents a plain tensor and is taken as that."""
    cls = type(tensor)
    return cls.__torch_dispatch__ is not _OWN_DISPATCH and cls is not private.FakeTensor


class ForeignTensor(Exception):
    """An argument is a tensor subclass with its own dispatch: it must take its turn first."""


def has_data(tensor: torch.Tensor) -> bool:
    """Whether a tensor's numbers are there: not on the meta device, nor in a fake tensor."""
    return tensor.device.type != "meta" and type(tensor) is not private.FakeTensor


def laid_out(tensor: torch.Tensor) -> torch.Tensor | None:
    """What is there of a tensor that has no one shape here: the elements of all components, or this rank's shard."""
    tensors = [part for part in _attributes(tensor).values() if isinstance(part, torch.Tensor)]
    return tensors[0] if tensors and (tensor.is_nested or len(tensors) == 1) else None


def _attributes(tensor: Any) -> dict[str, Any]:
    """What a tensor consists of whose class answers operators itself, by attribute; nothing for a plain one."""
    if not is_foreign(tensor) or not hasattr(tensor, "__tensor_flatten__"):
        return {}
    return {attribute: getattr(tensor, attribute) for attribute in tensor.__tensor_flatten__()[0]}


def parts(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """The plain tensors that a parameter consists of, with names; for a plain one, itself."""
    inside = _attributes(tensor)
    tensors = {attribute: part for attribute, part in inside.items() if isinstance(part, torch.Tensor)}
    for attribute, part in tensors.items():
        # What is alone beside no other tensor, as the shard of a distributed one, is what the parameter is here.
        yield from parts(name if len(tensors) == 1 < len(inside) else f"{name}_{attribute}", part)
    if not inside:
        yield name, tensor


def rebuilt(tensor: Any, change: Callable[[torch.Tensor, str], torch.Tensor], name: str = "") -> torch.Tensor:
    """A tensor with the plain ones that it consists of changed, by themselves and their names."""
    inside = _attributes(tensor)
    if not inside:
        return change(tensor, name)
    for attribute, part in inside.items():
        if isinstance(part, torch.Tensor):
            inside[attribute] = rebuilt(part, change, f"{name}.{attribute}")
    rest = tensor.__tensor_flatten__()[1]
    return type(tensor).__tensor_unflatten__(inside, rest, tensor.size(), tensor.stride())  # type: ignore[no-any-return]


# -- parameters of few bits: as many parameters as the layer has, in the bytes that are stored
#
# torchao wraps the stored values and their scales in a tensor of the layer's shape; bitsandbytes stores packed values and keeps
# the shape and the scales beside them.

_WIDTHS = (1, 2, 4, 8)


class ParameterPart(NamedTuple):
    """A plain tensor that a parameter consists of."""

    name: str
    tensor: torch.Tensor
    role: Role
    spec: TensorSpec | None = None  # What it represents, where that is not what it looks like


def parts_of_parameter(name: str, parameter: torch.Tensor) -> Iterator[ParameterPart]:
    """The plain tensors that a parameter consists of: itself, its parts, or few-bit values and their scales."""
    inside = list(parts(name, parameter))
    if len(inside) == 1:
        yield from _packed(*inside[0])
        return
    values_name, values = max(inside, key=lambda part: part[1].nbytes)
    spec = _few_bits(values, tuple(parameter.shape)) if parameter.dtype.is_floating_point else None
    for part_name, part in inside:
        if spec is None:
            yield ParameterPart(part_name, part, "param")
        elif part_name == values_name:
            yield ParameterPart(name, part, "param", spec)
        else:
            yield ParameterPart(part_name, part, "buffer")


def _packed(name: str, tensor: Any) -> Iterator[ParameterPart]:
    """A parameter as it is; one of bitsandbytes' of four bits has its shape, and its scales, in its state."""
    state = getattr(tensor, "quant_state", None)
    shape = getattr(state, "shape", None)
    if shape is None or (spec := _few_bits(tensor, tuple(shape))) is None:
        yield ParameterPart(name, tensor, "param")
        return
    yield ParameterPart(name, tensor, "param", spec)
    for stem, scales in ((name, state), (f"{name}_nested", getattr(state, "state2", None))):
        for attribute in ("absmax", "code", "offset"):
            if isinstance(part := getattr(scales, attribute, None), torch.Tensor):
                yield ParameterPart(f"{stem}_{attribute}", part, "buffer")


def _few_bits(values: torch.Tensor, shape: tuple[int, ...]) -> TensorSpec | None:
    """What stored values are in a shape of their own: each of the bits that they have; None where these do not fit in."""
    numel = prod(shape)
    width, odd = divmod(8 * values.nbytes, numel) if numel else (0, 0)
    whole = values.dtype.itemsize == 1 or not values.dtype.is_floating_point
    if numel % 2 and width == 4 and odd == 4:
        odd = 0  # the last byte holds one value of four bits
    if odd or width not in _WIDTHS or not (whole or width < 8):
        return None
    stored = str(values.dtype).removeprefix("torch.")
    return TensorSpec(
        shape, stored if width == 8 * values.dtype.itemsize else f"{'' if stored.startswith('int') else 'u'}int{width}"
    )


# -- tensors in the same memory: tied weights, transposed views, flat parameters and views into them

_untyped_storage = torch.Tensor.untyped_storage  # itself, not what replaces it during a count


class _StorageSpan(NamedTuple):
    """The stretch of a storage that a tensor covers."""

    start: int
    end: int
    numel: int
    vid: int

    def covers(self, other: _StorageSpan) -> bool:
        """Whether every element of the other is one of this."""
        return self.end - self.start == self.numel and self.start <= other.start and other.end <= self.end


class SharedMemory:
    """Finds the value whose memory a tensor shares."""

    def __init__(self) -> None:
        self._spans: dict[int, list[_StorageSpan]] = {}

    def place(self, tensor: torch.Tensor, vid: int) -> tuple[int, tuple[int, ...]]:
        """The value in whose memory a new value is, itself where it has its own, and the values that are in its."""
        if tensor.layout is not torch.strided:
            return vid, ()
        try:
            storage = _untyped_storage(tensor)._cdata
        except (NotImplementedError, RuntimeError):  # there is no plain storage to ask
            return vid, ()
        start, numel = tensor.storage_offset(), tensor.numel()
        extent = numel
        if numel and not tensor.is_contiguous():
            extent = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        span = _StorageSpan(start, start + extent, numel, vid)
        others = self._spans.setdefault(storage, [])
        for other in others:
            # The same elements, however they are laid out, or a part of them
            if (other.start, other.numel) == (start, numel) or other.covers(span):
                return other.vid, ()
        inside = tuple(other.vid for other in others if span.covers(other))
        others.append(span)
        return vid, inside


# -- packages of quantized modules: objects that only their own operators read, opened here to be counted

_RANKS = "__torch__.torch.classes.c10d."
"""Groups of ranks and what is under way between them arrive as such objects too, and hold no tensors."""


@dataclass(slots=True)
class _Package:
    """A package of a module: what is in it, and how often an operator read it."""

    path: str
    shapes: list[torch.Size]
    vids: list[int]
    reads: int = 0


class Packages:
    """The packages of a model's modules."""

    def __init__(self) -> None:
        self._all: list[_Package] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def register(self, path: str, module: nn.Module, leaf: Callable[..., Any]) -> list[tuple[str, int]]:
        """Make parameters of what is in a module's packages; their names inside the module, and values.

        `leaf` makes a record of a tensor, under a name and in a role.
        """
        registered: list[tuple[str, int]] = []
        for attribute, value in vars(module).items():
            if type(value) is torch.ScriptObject and (content := tuple(_open(value))):
                taken = {name for name, _ in registered}
                named = [(f"{attribute}_{name}" if name in taken else name, tensor) for name, tensor in content]
                stem = f"{path}." if path else ""
                found = [(name, leaf(tensor, stem + name, "param").origin) for name, tensor in named]
                self._all.append(_Package(path, [t.shape for _, t in content], [vid for _, vid in found]))
                registered += found
        return registered

    def read_by(self, args: Any, running: str) -> tuple[int, ...]:
        """The values in the packages among the arguments of an operator that runs in a module.

        A package arrives as a new object, so it is known again by its shapes and by the module that holds it.
        """
        vids: list[int] = []
        for package in _packages_in(args):
            shapes = [tensor.shape for _, tensor in _open(package)]
            within = f"{running}." if running else ""
            fitting = [one for one in self._all if one.shapes == shapes and f"{one.path}.".startswith(within)]
            if fitting:
                chosen = min(fitting, key=lambda known: known.reads)
                chosen.reads += 1
                vids += chosen.vids
        return tuple(vids)


def has_package(args: Any) -> bool:
    """Whether some argument is a package."""
    return next(_packages_in(args), None) is not None


def _packages_in(args: Any) -> Iterator[Any]:
    for arg in args:
        if isinstance(arg, torch.ScriptObject):
            if not arg._type().qualified_name().startswith(_RANKS):
                yield arg
        elif isinstance(arg, (list, tuple)):
            yield from _packages_in(arg)


def _open(package: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in a package by name; nothing where it cannot be opened."""
    if package._has_method("unpack"):  # linear, convolution: weight and bias; embedding: the table
        content = package.unpack()
        for name, tensor in zip(
            ("weight", "bias"), content if isinstance(content, tuple) else (content,), strict=False
        ):
            if tensor is not None:
                yield name, tensor
    elif package._type().qualified_name().endswith("rnn.CellParamsBase"):
        _, biases, _, _, parts = package.__getstate__()[0]
        for side, part in zip(("ih", "hh"), parts, strict=False):
            yield f"weight_{side}", part.unpack()[0]
        for side, bias in zip(("ih", "hh"), biases, strict=False):
            yield f"bias_{side}", bias
