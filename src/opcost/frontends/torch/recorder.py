"""The dispatch mode that sees every operator, and answers it without running it twice.

Each operator arrives below autograd with its real arguments. What it makes (shapes, strides, types, which outputs are views
of which inputs) and what it is (our kind and attributes) depends only on the operator, the signatures of its tensors and
its other arguments, so this is worked out once and remembered. The user's own tensors are only looked at, never run on or
written to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opcost.core.graph import Note, Phase, Role, TensorSpec
from opcost.frontends.torch import higher_order, special, values
from opcost.frontends.torch.entry import SMALL, Entry, ForeignTensor, Leaf, OpRecord, State
from opcost.frontends.torch.memory import Memory
from opcost.frontends.torch.packages import Packages
from opcost.frontends.torch.subclass import has_data, is_foreign
from opcost.frontends.torch.tensor import Recorded, Signature, Signatures, recorded, reshape
from opcost.frontends.torch.without_data import is_composite, work_out

_PLAIN = frozenset(
    {int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)

_HANDLERS = {id(func): handler for func, handler in special.HANDLERS.items()}

ASSUMPTIONS = {
    "balanced": "which elements win a topk, sort or argmax depends on data: every candidate is taken to win equally often, "
    "so each expert of a mixture sees the same share of the tokens",
    "drawn": "a random number decides what runs (dropped layers): the middle of its range is taken, so the likelier way "
    "is counted",
}
"""What a report says where an assumed content decides what runs."""


class Recorder(TorchDispatchMode):
    """Records operators and values while it is on; `where` tells the running module's path."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap every call and make the first operator import torch._dynamo, which takes seconds.
        return False

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        """Where tensors without data claim to lie if the model's own lie nowhere."""
        default = torch.get_default_device()
        self.default_device = device if default.type == "meta" else default
        self.mark = object()
        self._references = sys.getrefcount(self.mark)
        self.where: Callable[[], str] = str
        self.phase: Phase = "forward"
        self.ops: list[OpRecord] = []
        self.specs: list[TensorSpec] = []
        self.storages: list[int] = []
        self.leaves: dict[int, tuple[str, Role, bool]] = {}
        """Name, role and trainability of the values that are not activations."""
        self.notes: dict[Note, None] = {}
        self.signatures = Signatures()
        self._memo: dict[tuple[Any, ...], Entry] = {}
        self._leaf_of: dict[int, Leaf] = {}
        self._memory = Memory()
        self._unknown_storages: set[int] = set()
        self._assumed_storages: dict[int, str] = {}
        self._reshaped: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.packages = Packages()

    # -- values -------------------------------------------------------------------------------------------------

    def new_value(self, spec: TensorSpec, storage: int | None = None) -> int:
        vid = len(self.specs)
        self.specs.append(spec)
        self.storages.append(vid if storage is None else storage)
        return vid

    def leaf(self, tensor: torch.Tensor, name: str = "", role: Role = "const", *, trainable: bool = False) -> Leaf:
        """The record of a tensor of the user's; tensors that are the same memory share a storage."""
        found = self._leaf_of.get(id(tensor))
        if found is not None:
            return found
        sig = self.signatures.of(tensor, self.device if tensor.device.type == "meta" else tensor.device)
        vid = len(self.specs)
        storage, inside = self._memory.place(tensor, vid)
        self.new_value(sig.spec, storage)
        if inside:
            self.storages = [vid if at in inside else at for at in self.storages]
        self.leaves[vid] = (name, role, trainable)
        leaf = Leaf(tensor, sig, vid, _content(tensor, role))
        self._leaf_of[id(tensor)] = leaf
        return leaf

    def stand_in(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """The tensor without data that takes the place of an input of the user's."""
        if tensor.layout is not torch.strided:
            alias = tensor.detach()
            self.leaf(alias, name, "input")
            return alias.requires_grad_() if tensor.requires_grad else alias
        leaf = self.leaf(tensor, name, "input")
        stand_in = recorded(leaf.sig, leaf.vid, self.mark, leaf.content)
        return stand_in.requires_grad_() if tensor.requires_grad else stand_in

    def _sparse(self, sig: Signature, vid: int) -> torch.Tensor:
        """A sparse result. It has memory, because there are no sparse tensors without."""
        tensor = sig.zeros()
        self._leaf_of[id(tensor)] = Leaf(tensor, sig, vid, None)
        return tensor

    def _reshape(self, state: State, sig: Signature) -> None:
        if type(state) is Recorded:
            reshape(state, sig)
            return
        self._reshaped.append((state.tensor, state.tensor.detach()))
        state.tensor.data = torch.empty_strided(sig.shape, sig.stride, dtype=sig.dtype, device=state.tensor.device)
        state.sig = sig

    def state(self, tensor: torch.Tensor) -> State:
        if type(tensor) is Recorded:
            return tensor
        found = self._leaf_of.get(id(tensor))
        if found is not None:
            return found
        if is_foreign(tensor):
            raise ForeignTensor
        return self.leaf(tensor)

    def spec(self, tensor: torch.Tensor) -> TensorSpec:
        """Shape and type of any tensor that passes by."""
        if type(tensor) is Recorded:
            return tensor.sig.spec
        found = self._leaf_of.get(id(tensor))
        return found.sig.spec if found is not None else self.signatures.of(tensor, self.device).spec

    def twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor without data for the same value as a leaf: what an optimizer may write to."""
        leaf = self.leaf(tensor)
        return recorded(leaf.sig, leaf.vid, self.mark)

    def knows(self, state: State) -> bool:
        """Whether the content of this tensor is known and still true."""
        return state.content is not None and self.storages[state.vid] not in self._unknown_storages

    def content_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """What a tensor holds, where that is known."""
        state = self.state(tensor)
        return state.content if self.knows(state) else None

    def assume(self, tensor: torch.Tensor, how: str) -> None:
        """Mark a content that was not computed but assumed; `how` is a key of `ASSUMPTIONS`."""
        self._assumed_storages[self.storages[self.state(tensor).vid]] = how

    def assumed(self, states: list[State]) -> str | None:
        """How the content of some of these was assumed, if it was."""
        found = (self._assumed_storages.get(self.storages[state.vid]) for state in states)
        return next((how for how in found if how is not None), None)

    def decides(self, state: State) -> None:
        """Say so when an assumed content decides what runs."""
        if self._assumed_storages and (how := self.assumed([state])) is not None:
            self.note(how, ASSUMPTIONS[how])

    def note(self, code: str, text: str) -> None:
        self.notes[Note(code, text, self.where())] = None

    def has_survivors(self) -> bool:
        """Whether a tensor without data that was made here is still alive: each of them holds the mark."""
        return sys.getrefcount(self.mark) > self._references

    def restore(self) -> None:
        """Put back what the run changed of the user's tensors: shapes, because no content is written to."""
        for tensor, before in reversed(self._reshaped):
            tensor.data = before

    # -- operators ----------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        states: list[State] = []
        parts: list[Any] = [id(func)]  # operators live as long as the process, and their own hash is slow
        key: list[Any] | None = parts
        try:
            known = self._collect(args, states, parts)
            for name, value in kwargs.items():
                parts.append(name)
                known = self._collect((value,), states, parts) and known
        except ForeignTensor:
            return NotImplemented
        except TypeError:  # an argument that cannot be part of a key: work it out anew each time
            states.clear()
            key = None
            known = self._collect((args, kwargs), states, None)
        return self.answer(func, args, kwargs, states, key, known=known)

    def answer(
        self, func: Any, args: Any, kwargs: dict[str, Any], states: list[State], key: list[Any] | None, *, known: bool
    ) -> Any:
        """Record one operator and return what it would return."""
        if not isinstance(func, torch._ops.OpOverload):
            return higher_order.run(self, func, args, kwargs)
        if (handler := _HANDLERS.get(id(func))) is not None:
            result = handler(self, func, args, kwargs, states)
            if result is not NotImplemented:
                return result
        known = known and values.computable(func, args, states)
        if known and values.depends_on_content(func):
            return values.run(self, func, args, kwargs, states)
        entry = self._memo.get(hashed := tuple(key)) if key is not None else None
        if entry is None:
            if is_composite(func):  # inside control flow operators arrive before autograd has taken them apart
                with self:
                    return func.decompose(*args, **kwargs)
            entry = work_out(self, func, args, kwargs, states)
            if key is not None:
                self._memo[hashed] = entry
        if known and values.is_small(entry):
            return values.run(self, func, args, kwargs, states, entry)
        result = self.emit(entry, states)
        if self.packages:
            self.add_packed(args)
        return result

    def add_packed(self, args: Any) -> None:
        """Let the operator recorded last read what lies in the packages among its arguments."""
        record = self.ops[-1]
        if found := self.packages.read_by(args, record.module):
            self.ops[-1] = record._replace(inputs=record.inputs + found)

    def _collect(self, args: Any, states: list[State], key: list[Any] | None) -> bool:
        """Gather the tensors and the key of some arguments; says whether the content of every tensor is known."""
        known = True
        push = (lambda _: None) if key is None else key.append
        for arg in args:
            kind = type(arg)
            if kind is Recorded:
                states.append(arg)
                push(arg.sig)
                if known and (arg.content is None or not self.knows(arg)):
                    known = False
            elif kind in _PLAIN:
                push(kind)
                push(arg)
            elif isinstance(arg, torch.Tensor):
                leaf = self.state(arg)
                states.append(leaf)
                push(leaf.sig)
                if known and not self.knows(leaf):
                    known = False
            elif kind is list or kind is tuple:
                push(len(arg))
                known = self._collect(arg, states, key) and known
            elif isinstance(arg, dict):
                push(tuple(arg))
                known = self._collect(arg.values(), states, key) and known
            elif key is not None:
                hash(arg)
                key.append(arg)
        return known

    def emit(self, entry: Entry, states: list[State], contents: list[torch.Tensor | None] | None = None) -> Any:
        """Record an operator whose entry is known, and make its outputs."""
        vids = [state.vid for state in states]
        storages = self.storages
        outputs: list[Any] = []
        first = vid = len(storages)
        for sig, base, same in entry.outs:
            self.specs.append(sig.spec)
            storages.append(vid if base < 0 else storages[vids[base]])
            if same:
                state = states[base]
                state.vid = vid
                if sig is not state.sig:
                    self._reshape(state, sig)
                outputs.append(state if type(state) is Recorded else state.tensor)
            elif sig.stored is not None:
                outputs.append(self._sparse(sig, vid))
            else:
                outputs.append(recorded(sig, vid, self.mark, None if contents is None else contents[vid - first]))
            vid += 1
        if entry.written and contents is None:
            for index in entry.written:
                self._unknown_storages.add(self.storages[vids[index]])
                states[index].untouched = False  # type: ignore[union-attr]
        inputs = tuple(vids) if entry.order is None else tuple([vids[i] for i in entry.order])
        self.ops.append(OpRecord(entry, inputs, tuple(range(first, vid)), self.where(), self.phase))
        return outputs[0] if entry.pack is None else entry.pack(outputs)


def _content(tensor: torch.Tensor, role: Role) -> torch.Tensor | None:
    """A copy of a small tensor's content: integers and booleans always, other numbers only of constants.

    Weights and inputs are numbers that no count may depend on; indices, masks and lengths do decide what runs.
    """
    if tensor.numel() > SMALL or not has_data(tensor) or tensor.layout is not torch.strided:
        return None
    if tensor.is_quantized or (
        (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
        and (role != "const" or isinstance(tensor, torch.nn.Parameter))
    ):
        return None
    return tensor.detach().to("cpu", copy=True)
