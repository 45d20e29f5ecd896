"""Tensors without data, their signatures and lifetimes, and what is known of an operator with given signatures."""

from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple
from weakref import ref

import torch

from opcost.core.graph import Attrs, TensorSpec
from opcost.frontends.torch import private
from opcost.frontends.torch.private import make_wrapper, mode_count, no_modes, plain_function, refuse_access
from opcost.frontends.torch.tree import tensors_passed


class StorageLives(dict[int, int]):
    """The storages that are gone, in the order in which they went, and how many operators had run by then."""

    def __init__(self, ops: Sized) -> None:
        super().__init__()
        self.ops = ops  # What has run so far; its length is the time
        self.away: dict[int, list[tuple[int, int]]] = {}
        """The storages of gathered parameters, and from when to when each was freed, as it is between two uses."""
        self._freed_since: dict[int, int] = {}
        self._watched: dict[int, ref[torch.UntypedStorage]] = {}
        self._by_address: dict[int, int] = {}

    def free(self, storage: int) -> None:
        """The memory of gathered parameters is freed, and the tensors in it stay."""
        self.away.setdefault(storage, [])
        self._freed_since.setdefault(storage, len(self.ops))

    def allocate(self, storage: int) -> None:
        """Gathered parameters have memory, for the first time or again."""
        intervals = self.away.setdefault(storage, [])
        if self._freed_since.get(storage, now := len(self.ops)) < now:
            intervals.append((self._freed_since[storage], now))
        self._freed_since.pop(storage, None)

    def ended(self) -> dict[int, int]:
        """The storages that are gone by now, and since when, also those of gathered parameters that are freed."""
        return {**self, **self._freed_since}

    def watch(self, tensor: torch.Tensor, storage: int) -> None:
        """Note when the memory of a tensor with data is freed, which it says itself."""
        if tensor.layout is torch.strided:
            memory = tensor.untyped_storage()
            self._watched[storage] = ref(memory, partial(self._freed, storage, memory._cdata))
            self._by_address[memory._cdata] = storage

    def storage_of(self, tensor: torch.Tensor) -> int | None:
        """The storage of a tensor with data, if it is watched."""
        return self._by_address.get(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else None

    def _freed(self, storage: int, address: int, _: object) -> None:
        del self._watched[storage]
        if self._by_address.get(address) == storage:
            del self._by_address[address]
        self[storage] = len(self.ops)


class StorageLife:
    """One storage, kept by every tensor in it; tensors have no other memory."""

    __slots__ = ("_lives", "_storage", "memory")

    def __init__(self, lives: StorageLives, storage: int) -> None:
        self._lives = lives
        self._storage = storage
        self.memory: torch.UntypedStorage | None = None
        """On the meta device, where only its size matters: of gathered parameters, whose code frees and allocates it."""

    def __del__(self) -> None:
        self._lives[self._storage] = len(self._lives.ops)


# -- tensors without data, and the interned signature of shape, strides, type and device

_untyped_storage = torch.Tensor.untyped_storage  # itself, not what replaces it during a count
_storage_offset: Callable[[torch.Tensor], int] = torch.Tensor.storage_offset
QUANTIZED = frozenset({torch.qint8, torch.quint8, torch.qint32})


@dataclass(slots=True, eq=False)
class Signature:
    """Shape, strides, element type and device of a tensor: one object for each combination, compared by identity.

    A sparse tensor also has its layout and how many values it stores, and no strides.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout = torch.strided
    stored: int | None = None
    spec: TensorSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = TensorSpec(self.shape, str(self.dtype).removeprefix("torch."))

    def meta(self) -> torch.Tensor:
        """A fresh tensor of this signature on the meta device."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")

    def zeros(self) -> torch.Tensor:
        """A fresh tensor of this signature on the CPU, for kernels that know no other device.

        Ones would be as good; integers are zero so that they are valid indices. A sparse tensor stores zeros at the first
        places, and again there if there are more.
        """
        if self.stored is not None:
            once = self.stored <= prod(self.shape)
            places = torch.stack(torch.unravel_index(torch.arange(self.stored) % max(prod(self.shape), 1), self.shape))
            values = torch.zeros(self.stored, dtype=self.dtype)
            made = torch.sparse_coo_tensor(places, values, self.shape, is_coalesced=once, check_invariants=False)
            return made if self.layout is torch.sparse_coo else made.to_sparse(layout=self.layout)
        last = sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True))
        extent = 0 if 0 in self.shape else 1 + last
        if self.dtype in QUANTIZED:
            base = private.empty_quantized((extent,), scale=1.0, zero_point=0, dtype=self.dtype)
        else:
            base = torch.zeros(extent, dtype=self.dtype)
        return base.as_strided(self.shape, self.stride)


class Recorded(torch.Tensor):
    """A tensor that has everything but data. It claims to be on the device of the model's own tensors.

    `sig` is its signature, `vid` its value in the graph, `content` its numbers where they are few and known (see
    `operators.contents`), `mark` its recorder's reference to itself, which says whose it is and how many are alive, `life` the
    memory that it would have (None: the user's own, or that of a long run, which is not followed). Of one that was made without
    an operator (see `repeated_calls`), `replayed` says that it went nowhere but where such ones go.
    """

    __slots__ = ("content", "life", "mark", "replayed", "sig", "untouched", "vid")
    sig: Signature
    vid: int
    content: torch.Tensor | None
    life: StorageLife | None
    mark: ref[Any]
    replayed: bool

    __torch_function__ = plain_function

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, torch.Tensor) and kind is not Recorded for kind in types):
            return NotImplemented  # another class knows how to take the operator apart
        given = next((item for item in tensors_passed((args, kwargs), []) if type(item) is Recorded), None)
        if given is not None and (ledger := given.mark()) is not None and ledger.runs_elsewhere():
            raise ledger.refused(func._schema.name)
        raise RuntimeError(
            f"{func} was called on a tensor without data after the count had ended; something kept the tensor alive"
        )

    @property
    def data(self) -> torch.Tensor:
        return torch.Tensor.data.__get__(self)  # type: ignore[attr-defined]

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        """`x.data = y`: from here on x is what y is."""
        source = other if isinstance(other, Recorded) else other.detach()
        torch.Tensor.data.__set__(self, source)  # type: ignore[attr-defined]
        if isinstance(source, Recorded):
            self.sig, self.vid, self.content, self.life = source.sig, source.vid, source.content, source.life

    # What Python reads of a tensor without the dispatcher: a content that is known answers as a real tensor does.

    def tolist(self) -> Any:
        return self.answer(torch.Tensor.tolist)

    def numpy(self, *, force: bool = False) -> Any:
        return self.answer(lambda content: content.numpy(force=force), shares=True)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.answer(lambda content: content.__array__(*args, **kwargs), shares=True)

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.answer(lambda content: content.__dlpack__(**kwargs), shares=True)

    def data_ptr(self) -> int:
        return self.answer(torch.Tensor.data_ptr, shares=True) if self.numel() else 0  # type: ignore[no-any-return]

    def untyped_storage(self) -> torch.UntypedStorage:
        """The memory of a known content; else an object that has a size and an identity, and raises when it is read."""
        if self.life is not None and self.life.memory is not None:
            return self.life.memory
        if self._is_known():
            return self.answer(torch.Tensor.untyped_storage, shares=True)  # type: ignore[no-any-return]
        return _untyped_storage(self)

    def storage_offset(self) -> int:
        return _storage_offset(self if self.content is None else self.content)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.answer(lambda content: content.detach().requires_grad_(self.requires_grad).__reduce_ex__(protocol))

    def __format__(self, spec: str) -> str:
        if self.dim() == 0 and (spec or self._is_known()):
            return str(self.answer(lambda content: format(content, spec)))
        return str(super().__format__(spec))

    def __repr__(self, **kwargs: Any) -> str:  # type: ignore[override]
        if self._is_known():
            return str(self.answer(repr))
        ledger = self.mark()
        if ledger is not None and ledger.can_run_real() and mode_count():
            self.answer(repr)  # raises, so that the numbers are those of a real run
        return f"Recorded({self.sig.spec}, {self.sig.spec.dtype}, {self.sig.device})"

    def __copy__(self) -> torch.Tensor:
        return self.detach().requires_grad_(self.requires_grad)

    def _is_known(self) -> bool:
        ledger = self.mark()
        return ledger is not None and ledger.knows(self)  # type: ignore[no-any-return]

    def answer(self, question: Callable[[torch.Tensor], Any], *, shares: bool = False) -> Any:
        """The answer of the content, which no operator of the run sees; an error where it is not known.

        With `shares` the answer gives access to the memory of the content.
        """
        ledger = self.mark()
        if ledger is None:
            raise RuntimeError("the numbers of a tensor without data were read after the count had ended")
        content = ledger.real_content(self, shares=shares)
        with no_modes():
            return question(content)


def recorded(
    sig: Signature, vid: int, mark: ref[Any], life: StorageLife | None, content: torch.Tensor | None = None
) -> Recorded:
    """A new tensor of this signature."""
    # By position (offset and memory format are left open): to parse names takes a quarter of the call.
    tensor: Recorded = make_wrapper(Recorded, sig.shape, sig.stride, None, None, sig.dtype, torch.strided, sig.device)  # type: ignore[assignment]
    refuse_access(tensor)
    tensor.sig = sig
    tensor.vid = vid
    tensor.mark = mark
    tensor.life = life
    tensor.content = content
    return tensor


# -- entry: What the recorder remembers: the user's tensors, and what an operator is and makes.

SMALL = 1 << 18  # Tensors of at most this many elements may carry their real content (see `operators.contents`)


class TensorRecord:
    """A tensor of the user's: a parameter, a buffer, an input, a constant. Kept so that its id stays its own."""

    __slots__ = ("content", "origin", "sig", "tensor", "untouched", "vid")

    def __init__(self, tensor: torch.Tensor, sig: Signature, vid: int, content: torch.Tensor | None) -> None:
        self.tensor, self.sig = tensor, sig
        self.vid = vid  # The value it holds now; an in-place operator gives it a new one
        self.origin = vid
        self.content = content
        self.untouched = True  # Nothing was written to it, so the user's own tensor still has its content

    life = None  # Its memory is the user's, which is not freed


State = Recorded | TensorRecord


class OutputSignature(NamedTuple):
    """One output of an operator: its signature and the input whose memory it shares (-1: none)."""

    sig: Signature
    base: int
    same: bool  # It is that very input object: an in-place result


class OperatorEntry(NamedTuple):
    """What is known of an operator with given signatures and arguments."""

    kind: str
    raw: str
    attrs: Attrs
    order: tuple[int, ...] | None
    """Which tensor arguments are the inputs, in the order of the kind; None: all, as they come."""
    outs: tuple[OutputSignature, ...]
    pack: Callable[[list[Any]], Any] | None  # Puts outputs into the operator's own structure; None for one plain tensor
    written: tuple[int, ...] = ()  # Tensor arguments that the operator writes to


MOST_KNOWN = 50_000  # Entries that are kept for other counts, of which many sizes need their own


class KnownOperators:
    """What was worked out of operators, by the signatures of their tensors and their other arguments."""

    def __init__(self) -> None:
        self.signature = cache(Signature)  # One object for each combination of arguments
        self.entries: dict[tuple[Any, ...], OperatorEntry] = {}
        self._functions: dict[int, Any] = {}  # By their ids, which are part of the keys and so remain theirs

    def add(self, key: tuple[Any, ...], func: Any, entry: OperatorEntry) -> None:
        """Keep the entry of an operator."""
        self.entries[key] = entry
        self._functions[id(func)] = func

    def limit(self) -> None:
        """Before another count, forget what would grow without end, and collectives: names of groups mean others by then."""
        for key in [key for key, entry in self.entries.items() if entry.kind == "collective"]:
            del self.entries[key]
        if len(self.entries) > MOST_KNOWN:
            self.entries.clear()
            self._functions.clear()
            self.signature.cache_clear()
