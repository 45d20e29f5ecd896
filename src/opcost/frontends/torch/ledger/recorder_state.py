"""The state of a run: which values there are, in whose memory they are, what is known of them, and which operators ran."""

import sys
from collections.abc import Callable, Mapping
from threading import RLock, current_thread, get_ident, local
from typing import Any
from weakref import ref

import torch

from opcost.core.graph import ASSUMED, Note, Op, Phase, Role, TensorSpec
from opcost.errors import DataDependent, ForwardError
from opcost.frontends.aten.tensor import row_major
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.parameters import (
    ForeignTensor,
    Packages,
    SharedMemory,
    has_data,
    is_foreign,
    laid_out,
)
from opcost.frontends.torch.ledger.tensors import (
    SMALL,
    KnownOperators,
    OperatorEntry,
    Recorded,
    Signature,
    State,
    StorageLife,
    StorageLives,
    TensorRecord,
    recorded,
)

ASSUMPTIONS = {
    "balanced": "which elements win a topk, sort or argmax depends on data: every candidate is taken to win equally often, "
    "so each expert of a mixture sees the same share of the tokens",
    "drawn": "a random number decides what runs (dropped layers): the middle of its range is taken, so the likelier way "
    "is counted",
    ASSUMED: "which elements win a topk, sort or argmax decides what runs, and was assumed, so a run may cost more or less; a "
    "loop that ends at a certain index (an end-of-text token) is counted at full length: give weights to count what runs",
}
"""What a report says where an assumed content decides what runs."""

_RAWEST = ("chosen", "compared", "drawn", "balanced")
"""How contents are assumed. An index of a winner is chosen; what a comparison of it with a number says is compared; what
shares the tokens among all candidates (their numbers, a table of ones, the order of experts) is balanced."""

NOT_KNOWN = ", for which the model asks, depends on values that a count without data does not have"

_SPARSE = frozenset({torch.sparse_coo, torch.sparse_csr, torch.sparse_csc})
"""The sparse layouts whose stored values are single numbers."""

READ_UNKNOWN = "unknown-value"  # The code of the note about a model that goes on without a value that it has read


class _Here(local):
    """What is a matter of each thread."""

    path = ""  # Of the running module
    enter: Callable[..., Any] | None = None  # Takes the calls of modules
    counted_by: int | None = None  # The thread that counts what runs here: the one whose forward started this one


here = _Here()


def counting_thread() -> int:
    """The thread that counts what runs here, which may be this one itself."""
    return here.counted_by or get_ident()


_SENDING = frozenset(
    f"_c10d_functional::{name}" for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")
)
"""Collectives that return while they are sending; those on process groups have handles, which the program keeps."""
_WITHOUT_WAITING = frozenset({"aten::view", "_c10d_functional::_wrap_tensor_autograd"})
"""All other operators wait for what a collective fills."""


class Choice:
    """The winners of a topk, sort or argmax of unknown numbers, and what they were compared with."""

    __slots__ = ("candidates", "compared", "won")

    def __init__(self, candidates: int) -> None:
        self.candidates = candidates
        self.compared: set[int] = set()
        self.won = False  # A comparison was true

    def is_in_turn(self) -> bool:
        """Whether it was compared with the first candidates so far, as a loop over experts does."""
        return self.compared == set(range(len(self.compared)))


class RecorderState(private.DispatchMode):
    """What is written down while operators run; `where` returns the running module's path.

    How an operator is answered is the matter of the classes below. It is their dispatch mode already, because operators
    that run functions they are given (`torch.cond`) turn it on again for those.
    """

    supports_higher_order_operators = True

    def __init__(self, device: torch.device, known: KnownOperators | None = None) -> None:
        super().__init__()
        self.known = KnownOperators() if known is None else known
        self.device = device  # Where tensors without data claim to be if the model's own are nowhere
        default = torch.get_default_device()
        self.default_device = device if default.type == "meta" else default
        self.mark = ref(self)
        self._references = sys.getrefcount(self.mark)
        self.lock = RLock()  # Threads that forward starts take turns, operator by operator
        self.thread: int | None = None  # The thread that counts, while forward runs
        self.stranger: ForwardError | None = None  # Of an operator that ran in a thread of which nothing is seen
        self.where: Callable[[], str] = str
        self.phase: Phase = "forward"
        self.marker_calls: dict[Any, Callable[..., None]] = {}
        """Called for the operators that only mark what runs (see `module_calls`)."""
        self.ops: list[Op] = []
        self.lives = StorageLives(self.ops)
        self.specs: list[TensorSpec] = []
        self.storages: list[int] = []
        self.leaves: dict[int, tuple[str, Role, bool]] = {}
        """Name, role and trainability of the values that are not activations."""
        self.notes: dict[Note, None] = {}
        self.signature = self.known.signature
        self.leaf_of: dict[int, TensorRecord] = {}  # The tensors of the user's that were seen so far
        self._memory = SharedMemory()
        self._unknown_storages: set[int] = set()
        self._assumed_storages: dict[int, tuple[str, Choice | None]] = {}
        self._deciding: list[tuple[Choice, str]] = []
        """The choices that decide what runs by comparisons, and in which module."""
        self.avoided: dict[int, set[int]] = {}  # Indices that are assumed never to win, by the number of candidates
        self.together = False  # All choose the last candidates, and not each candidate equally often
        self.can_run_real: Callable[[], bool] = bool  # Whether the model could be run on its weights instead
        self.shared: dict[int, torch.Tensor] = {}
        """The known contents, by storage, that were handed out as memory: to NumPy, or as an address."""
        self._reshaped: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.packages = Packages()
        self.axes: Mapping[str, str] = {}  # Dimensions of the model's mesh by the names of their process groups
        self._in_flight: dict[int, list[State]] = {}
        """What collectives are sending, by the storages that they are filling: kept until these are waited for."""

    # -- values -------------------------------------------------------------------------------------------------

    def new_value(self, spec: TensorSpec, storage: int | None = None) -> int:
        vid = len(self.specs)
        self.specs.append(spec)
        self.storages.append(vid if storage is None else storage)
        return vid

    def signature_of(self, tensor: torch.Tensor, device: torch.device) -> Signature:
        """The signature of a tensor as if it lay on `device`."""
        if tensor.is_nested:
            raise ForwardError(
                "a nested tensor of the strided layout has no shape, and what compiled code does to its components is not seen",
                hint="make it with layout=torch.jagged",
            )
        shape = tuple(tensor.shape)
        if tensor.layout is torch.strided:
            return self.signature(shape, tensor.stride(), tensor.dtype, device)
        if tensor.layout not in _SPARSE or tensor.dense_dim() or tensor.sparse_dim() < len(shape):
            return self.signature(shape, row_major(shape), tensor.dtype, device)
        return self.signature(shape, (), tensor.dtype, device, tensor.layout, tensor._nnz())

    def leaf(
        self, tensor: torch.Tensor, name: str = "", role: Role = "const", *, trainable: bool = False
    ) -> TensorRecord:
        """The record of a tensor of the user's; tensors that are the same memory share a storage."""
        if type(tensor) is Recorded:
            if role != "const":  # a parameter that forward itself made: an operator's result, which the model keeps
                self.leaves[tensor.vid] = name, role, trainable
            return TensorRecord(tensor, tensor.sig, tensor.vid, None)
        found = self.leaf_of.get(id(tensor))
        if found is not None:
            if role != "const" and self.leaves[found.origin][1] == "const":  # seen before the model registered it
                self.leaves[found.origin] = (name, role, trainable)
            return found
        sig = self.signature_of(tensor, self.device if tensor.device.type == "meta" else tensor.device)
        vid = len(self.specs)
        storage, inside = self._memory.place(tensor, vid)
        self.new_value(sig.spec, storage)
        if inside:
            self.storages = [vid if at in inside else at for at in self.storages]
        self.leaves[vid] = (name, role, trainable)
        leaf = TensorRecord(tensor, sig, vid, _content(tensor, role))
        self.leaf_of[id(tensor)] = leaf
        return leaf

    def stand_in(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """The tensor without data that takes the place of an input of the user's."""
        if tensor.layout is not torch.strided:
            alias = tensor.detach()
            self.leaf(alias, name, "input")
            return alias.requires_grad_() if tensor.requires_grad else alias
        leaf = self.leaf(tensor, name, "input")
        stand_in = recorded(leaf.sig, leaf.vid, self.mark, StorageLife(self.lives, leaf.vid), leaf.content)
        return stand_in.requires_grad_() if tensor.requires_grad else stand_in

    def released(self) -> frozenset[int]:
        """The storages of inputs, and of what was received, of which no tensor is left."""
        before = {vid for vid, (_, role, _) in self.leaves.items() if role in ("input", "const")}
        freed = before.intersection(self.lives)
        kept = {self.storages[vid] for vid in self.leaves if vid not in freed}
        return frozenset(self.storages[vid] for vid in freed) - kept

    def _reshape(self, state: State, sig: Signature) -> None:
        """Give a tensor another shape in place, as `t_`, `unsqueeze_` and `resize_` do, and operators to their `out`."""
        if type(state) is Recorded:
            with private.NoDispatch():
                torch.Tensor.data.__set__(state, recorded(sig, state.vid, state.mark, state.life))  # type: ignore[attr-defined]
        else:
            self._reshaped.append((state.tensor, state.tensor.detach()))
            state.tensor.data = torch.empty_strided(sig.shape, sig.stride, dtype=sig.dtype, device=state.tensor.device)
        state.sig = sig

    def state(self, tensor: torch.Tensor) -> State:
        if type(tensor) is Recorded:
            return tensor
        found = self.leaf_of.get(id(tensor))
        if found is not None:
            return found
        if is_foreign(tensor):
            raise ForeignTensor
        return self.leaf(tensor)

    def spec(self, tensor: torch.Tensor) -> TensorSpec:
        """Shape and type of any tensor that passes by."""
        if type(tensor) is Recorded:
            return tensor.sig.spec
        found = self.leaf_of.get(id(tensor))
        if found is not None:
            return found.sig.spec
        inner = laid_out(tensor)
        return self.signature_of(tensor, self.device).spec if inner is None else self.spec(inner)

    def twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor for the same value as a leaf: what an optimizer may write to."""
        leaf = self.leaf(tensor)
        return self.of_value(tensor, leaf.sig, leaf.vid)

    def before_run(self, tensor: torch.Tensor, name: str, storage: int | None = None) -> torch.Tensor:
        """A tensor as large as a leaf that is there before the run: a gradient of earlier passes."""
        sig = self.leaf(tensor).sig
        return self.of_value(tensor, sig, self.value_before_run(sig.spec, name, storage), zeros=True)

    def value_before_run(self, spec: TensorSpec, name: str, storage: int | None = None) -> int:
        """A value that is there before the run, in memory of its own or in that of another."""
        vid = self.new_value(spec, storage)
        self.leaves[vid] = (name, "const", False)
        return vid

    def of_value(self, like: torch.Tensor, sig: Signature, vid: int, *, zeros: bool = False) -> torch.Tensor:
        """A tensor for a value; in a run for real it has the numbers of another, or zeros."""
        return recorded(sig, vid, self.mark, None)

    def knows(self, state: State) -> bool:
        """Whether the content of this tensor is known and still true."""
        return state.content is not None and self.storages[state.vid] not in self._unknown_storages

    def content_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """What a tensor holds, where that is known."""
        state = self.state(tensor)
        return state.content if self.knows(state) else None

    def real_content(self, state: State, func: Any = None, *, shares: bool = False) -> torch.Tensor:
        """What a tensor holds, for the model's own code to decide by; with `shares` it gets access to the memory."""
        if not self.knows(state):
            if not isinstance(state, TensorRecord) or not has_data(state.tensor) or not state.untouched:
                raise self.unknown(f"the content of a {state.sig.spec} {state.sig.spec.dtype} tensor", func)
            with private.no_modes():
                state.content = state.tensor.detach().to("cpu", copy=True)
        self.decides(state)
        assert state.content is not None
        if shares:
            self.shared[self.storages[state.vid]] = state.content
        return state.content

    def assume(self, tensor: torch.Tensor, how: str, choice: Choice | None = None) -> None:
        """Mark a content that was not computed but assumed; `how` is one of `_RAWEST`."""
        self._assumed_storages[self.storages[self.state(tensor).vid]] = how, choice

    def assumed(self, states: list[State]) -> tuple[str, Choice | None] | None:
        """How the content of some of these was assumed, if it was; of several the one that says most of a winner."""
        if not self._assumed_storages:
            return None
        found = [how for state in states if (how := self._assumed_storages.get(self.storages[state.vid])) is not None]
        return min(found, key=lambda how: _RAWEST.index(how[0])) if found else None

    def decides(self, state: State) -> None:
        """An assumed content decides what runs: say so, or leave it to a run on real values where it must not be assumed."""
        if (found := self.assumed([state])) is None:
            return
        how, choice = found
        if how == "compared" and choice is not None:
            self._deciding.append((choice, self.where()))
            if choice.is_in_turn():
                return  # it may be a loop over experts, which `check_choices` sees
        if how in ("chosen", "compared"):
            self._must_be_real()
            how = ASSUMED
        self.note(how, ASSUMPTIONS[how])

    def _must_be_real(self) -> None:
        if self.can_run_real():
            raise self.unknown("which element wins a topk, sort or argmax")

    def check_choices(self) -> bool:
        """Once all has run: a choice that was not compared with all candidates is no routing among experts.

        Says whether an index that was assumed to win had better not: a loop ended there that may go on.
        """
        early = False
        for choice, where in self._deciding:
            how = "balanced"
            if len(choice.compared) < choice.candidates:
                self._must_be_real()
                self.avoided.setdefault(choice.candidates, set()).update(choice.compared)
                early, how = early or choice.won, ASSUMED
            self.notes[Note(how, ASSUMPTIONS[how], where)] = None
        return early

    def note(self, code: str, text: str) -> None:
        self.notes[Note(code, text, self.where())] = None

    def unknown(self, what: str, func: Any = None) -> DataDependent:
        """The error for a value that only data have, and which an operator needs."""
        by = "" if func is None else f" ({func._schema.name})"
        said = f"{what}{by}{NOT_KNOWN}"
        # The note is read only where the model itself catches the error and goes on.
        self.note(READ_UNKNOWN, f"{said}; the model caught the error that says so, and what it did then is counted")
        return DataDependent(said, module=self.where())

    def runs_elsewhere(self) -> bool:
        """Whether the run is on, in other threads than this one."""
        return self.thread is not None and self.thread != counting_thread()

    def refused(self, what: str) -> ForwardError:
        """The error for what gets a tensor of this run in a thread that forward did not start."""
        self.stranger = ForwardError(
            f"{what} ran in the thread {current_thread().name!r}, which forward did not start, so it is not counted",
            hint="start the thread in forward, give the work to a ThreadPoolExecutor, or call the layer in forward itself",
        )
        return self.stranger

    def has_survivors(self) -> bool:
        """Whether a tensor without data that was made here is still alive: each of them holds the mark."""
        return sys.getrefcount(self.mark) > self._references

    def restore(self) -> None:
        """Put back what the run changed of the user's tensors: shapes, because no content is written to."""
        self._in_flight.clear()
        for tensor, before in reversed(self._reshaped):
            tensor.data = before

    # -- operators ----------------------------------------------------------------------------------------------

    def emit(self, entry: OperatorEntry, states: list[State], contents: list[torch.Tensor | None] | None = None) -> Any:
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
            elif sig.stored is not None:  # it has memory, because there are no sparse tensors without
                outputs.append(sparse := sig.zeros())
                self.leaf_of[id(sparse)] = TensorRecord(sparse, sig, vid, None)
            else:
                life = StorageLife(self.lives, vid) if base < 0 else states[base].life
                outputs.append(recorded(sig, vid, self.mark, life, None if contents is None else contents[vid - first]))
            vid += 1
        if entry.written and contents is None:
            for index in entry.written:
                storage = self.storages[vids[index]]
                if storage in self.shared:
                    raise self.unknown(f"what {entry.raw} writes to memory that NumPy or an address shares")
                self._unknown_storages.add(storage)
                states[index].untouched = False  # type: ignore[union-attr]
        inputs = tuple(vids) if entry.order is None else tuple([vids[i] for i in entry.order])
        if self._in_flight and entry.raw not in _WITHOUT_WAITING:
            for value in inputs:
                self._in_flight.pop(storages[value], None)
        self.add(entry, inputs, tuple(range(first, vid)))
        if entry.raw in _SENDING:
            self._in_flight[first] = [*states]
        return outputs[0] if entry.pack is None else entry.pack(outputs)

    def add(self, entry: OperatorEntry, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        """An operator ran, here and now."""
        kind, raw, attrs, *_ = entry
        self.ops.append(Op(len(self.ops), kind, raw, inputs, outputs, attrs, self.where(), 1, self.phase))

    def maker_of(self, vid: int) -> Op | None:
        """The operator that made a value."""
        return next((op for op in reversed(self.ops) if vid in op.outputs), None)

    def add_packed(self, args: Any) -> None:
        """Let the operator recorded last read what is in the packages among its arguments."""
        op = self.ops[-1]
        if found := self.packages.read_by(args, op.module):
            self.ops[-1] = op._replace(inputs=op.inputs + found)


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
