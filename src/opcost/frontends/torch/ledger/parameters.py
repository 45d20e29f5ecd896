"""What parameters consist of: tensors inside subclasses, values of few bits, packages of quantized modules, shared memory.

A subclass that answers operators itself takes an operator apart into operators on the tensors inside, and those are recorded.
So the parameter is what is inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def has_data(tensor: torch.Tensor) -> bool:
    """Whether a tensor's numbers are there: not on the meta device, nor in a fake tensor."""
    return tensor.device.type != "meta" and type(tensor) is not private.FakeTensor


def laid_out(tensor: torch.Tensor) -> torch.Tensor | None:
    """What is there of a tensor that has no one shape here: the elements of all components, or this rank's shard."""
    if not is_foreign(tensor) or not hasattr(tensor, "__tensor_flatten__"):
        return None
    inside = [getattr(tensor, attribute) for attribute in tensor.__tensor_flatten__()[0]]
    tensors = [part for part in inside if isinstance(part, torch.Tensor)]
    return tensors[0] if tensor.is_nested or len(tensors) == 1 else None


def parts(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """The plain tensors that a parameter consists of, with names; for a plain one, itself."""
    if is_foreign(tensor) and hasattr(tensor, "__tensor_flatten__"):
        inside = {attribute: getattr(tensor, attribute) for attribute in tensor.__tensor_flatten__()[0]}
        tensors = {attribute: part for attribute, part in inside.items() if isinstance(part, torch.Tensor)}
        for attribute, part in tensors.items():
            # What lies alone beside no other tensor, as the shard of a distributed one, is what the parameter is here.
            yield from parts(name if len(tensors) == 1 < len(inside) else f"{name}_{attribute}", part)
    else:
        yield name, tensor


def rebuilt(tensor: Any, change: Callable[[torch.Tensor, str], torch.Tensor]) -> torch.Tensor:
    """A tensor of the same class around changed parts."""
    inside, rest = tensor.__tensor_flatten__()
    parts = {attribute: getattr(tensor, attribute) for attribute in inside}
    changed = {
        attribute: change(part, attribute) if isinstance(part, torch.Tensor) else part
        for attribute, part in parts.items()
    }
    return type(tensor).__tensor_unflatten__(changed, rest, tensor.size(), tensor.stride())  # type: ignore[no-any-return]


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


class _Span(NamedTuple):
    """The stretch of a storage that a tensor covers."""

    start: int
    end: int
    dense: bool  # Every element in between is the tensor's
    vid: int


class Memory:
    """Finds the value whose memory a tensor shares."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[torch.Tensor, int]] = {}
        """The first tensor in each storage; nearly always the only one, so its extent is worked out when there is another."""
        self._same: dict[tuple[int, int, int], int] = {}
        self._spans: dict[int, list[_Span]] = {}

    def place(self, tensor: torch.Tensor, vid: int) -> tuple[int, tuple[int, ...]]:
        """The value in whose memory a new value lies, itself where it has its own, and the values that lie in its."""
        if tensor.layout is not torch.strided:
            return vid, ()
        try:
            storage = _untyped_storage(tensor)._cdata
        except (NotImplementedError, RuntimeError):  # there is no plain storage to ask
            return vid, ()
        first = self._first.setdefault(storage, (tensor, vid))
        if first[1] == vid:
            return vid, ()
        others = self._spans.get(storage)
        if others is None:
            others = self._spans[storage] = [_span(*first)]
            self._same[_key(storage, first[0])] = first[1]
        key = _key(storage, tensor)
        if (same := self._same.get(key)) is not None:
            return same, ()
        span = _span(tensor, vid)
        for other in others:
            if _covers(other, span):
                self._same[key] = other.vid
                return other.vid, ()
        self._same[key] = vid
        inside = tuple(other.vid for other in others if _covers(span, other))
        others.append(span)
        return vid, inside


def _key(storage: int, tensor: torch.Tensor) -> tuple[int, int, int]:
    """What tensors have in common that are the same elements, however they are laid out."""
    return storage, tensor.storage_offset(), tensor.numel()


def _span(tensor: torch.Tensor, vid: int) -> _Span:
    start, numel = tensor.storage_offset(), tensor.numel()
    end = start + (
        1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) if numel else 0
    )
    return _Span(start, end, end - start == numel, vid)


def _covers(outer: _Span, inner: _Span) -> bool:
    return outer.dense and outer.start <= inner.start and inner.end <= outer.end


# -- packages of quantized modules: objects that only their own operators read, opened here to be counted

_RANKS = "__torch__.torch.classes.c10d."
"""Groups of ranks and what is under way between them arrive as such objects too, and hold no tensors."""

_Content = tuple[tuple[str, torch.Tensor], ...]


class _Package:
    """A package of some module: what lies in it, and how often an operator read it."""

    __slots__ = ("path", "reads", "shapes", "vids")

    def __init__(self, path: str, content: _Content, vids: tuple[int, ...]) -> None:
        self.path = path
        self.shapes = _shapes(content)
        self.vids = vids
        self.reads = 0


class Packages:
    """The packages of a model's modules."""

    def __init__(self) -> None:
        self._all: list[_Package] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def register(
        self, path: str, module: nn.Module, parameter: Callable[[torch.Tensor, str], int]
    ) -> list[tuple[str, int]]:
        """Make parameters of what lies in a module's packages; their names inside the module, and values.

        `parameter` makes a value of a tensor, under a name.
        """
        registered: list[tuple[str, int]] = []
        for attribute, value in vars(module).items():
            if type(value) is torch.ScriptObject and (content := tuple(_open(value))):
                taken = {name for name, _ in registered}
                named = [(f"{attribute}_{name}" if name in taken else name, tensor) for name, tensor in content]
                stem = f"{path}." if path else ""
                found = [(name, parameter(tensor, stem + name)) for name, tensor in named]
                self._all.append(_Package(path, content, tuple(vid for _, vid in found)))
                registered += found
        return registered

    def read_by(self, args: Any, running: str) -> tuple[int, ...]:
        """The values in the packages among the arguments of an operator that runs in a module.

        A package arrives as a new object, so it is known again by its shapes and by the module that holds it.
        """
        vids: list[int] = []
        for package in _packages_in(args):
            shapes = _shapes(_open(package))
            fitting = [known for known in self._all if known.shapes == shapes and _below(known.path, running)]
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


def _shapes(content: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(tensor.shape) for _, tensor in content)


def _below(path: str, running: str) -> bool:
    return not running or path == running or path.startswith(f"{running}.")
