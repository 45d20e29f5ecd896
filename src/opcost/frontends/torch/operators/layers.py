"""Operators that are recorded as a whole or by their parts: packed sequences, recurrent layers, nested tensors, control flow."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from opcost.errors import DataDependent
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.recorder_state import RecorderState
from opcost.frontends.torch.ledger.tensors import Recorded
from opcost.frontends.torch.operators.calls import META, DispatchedCall, Trial, describe, record
from opcost.frontends.torch.operators.closed_form import overloads
from opcost.frontends.torch.tree import tensors_in

_own = private.functions._pad_packed_sequence  # type: ignore[attr-defined]


def pad_packed(data: torch.Tensor, batch_sizes: torch.Tensor, *how: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What `pad_packed_sequence` calls; its own code asks for a new tensor and writes the lengths to its memory.

    PyTorch makes one copy for each stretch of steps in which equally many sequences run, and so does this.
    """
    if type(data) is not Recorded:
        return _own(data, batch_sizes, *how)  # type: ignore[no-any-return]
    batch_first, padding_value, total_length = how
    sizes = batch_sizes.tolist()
    padded = data.new_full((max(len(sizes), total_length), sizes[0], *data.shape[1:]), padding_value)
    lengths: list[int] = []
    begin = done = 0
    for end, size in enumerate((*sizes[1:], 0), start=1):
        running = sizes[begin]
        if size != running:
            stretch = data[done : done + running * (end - begin)]
            padded[begin:end, :running] = stretch.view(end - begin, running, *data.shape[1:])
            done += running * (end - begin)
            begin = end
            lengths = [end] * (running - size) + lengths
    return padded.transpose(0, 1) if batch_first else padded, torch.tensor(lengths)


# -- recurrent: Recurrent layers as one operator each, instead of hundreds of small ones for every time step.

_LAYERS = {name: overloads(f"{name}.input {name}.data") for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")}


class whole_layers(TorchFunctionMode):  # noqa: N801 - used as a context manager
    """Catches the call that `nn.LSTM`, `nn.GRU` and `nn.RNN` make, before PyTorch takes it apart into time steps.

    With `apart` it does take it apart, so that every step has its gradient; then it must read the batch sizes itself.
    """

    def __init__(self, ledger: RecorderState, *, apart: bool = False) -> None:
        super().__init__()
        self._ledger = ledger
        self._apart = apart

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        overloads = _LAYERS.get(getattr(func, "__name__", ""))
        if overloads is None or kwargs:
            return func(*args, **(kwargs or {}))
        # The packed form has the batch sizes as its second argument, and so one tensor more before the weights.
        packed = isinstance(args[3], (list, tuple)) and isinstance(args[3][0], torch.Tensor)
        if self._apart:
            sizes = args[1].content if packed and type(args[1]) is Recorded else None
            return func(*args) if sizes is None else func(args[0], sizes, *args[2:])
        overload = overloads[1] if packed else overloads[0]
        with private.NoDispatch():  # type: ignore[attr-defined]
            return self._ledger.__torch_dispatch__(overload, (), args)


def whole_layer(call: DispatchedCall) -> Any:
    """Record a whole stack of layers. Its results have the shapes of its inputs and states, so no step is run.

    PyTorch has no kernel for the stack: running it without data would take it apart into time steps.
    """
    trial = call.on_meta()
    given = _by_name(call, trial)
    hidden = given["hx"] if isinstance(given["hx"], (list, tuple)) else [given["hx"]]
    x = given["input"] if "input" in given else given["data"]
    width = hidden[0].shape[-1] * (2 if given["bidirectional"] else 1)
    if given.get("batch_first"):  # the steps are made one after another and then seen with the batch first
        batch, steps = x.shape[:2]
        y = x.new_empty((steps, batch, width)).transpose(0, 1)
    else:
        y = x.new_empty((*x.shape[:-1], width))
    return record(call, trial, (y, *[torch.empty_like(state) for state in hidden]))


def cudnn(call: DispatchedCall) -> Any:
    """cuDNN's whole stack. Weights that lie apart are put into one memory, which the gradient asks for."""
    trial = call.on_meta()
    *made, together = call.func(*trial.args)
    if together is None:
        weights = trial.args[1]
        together = weights[0].new_empty(sum(weight.numel() for weight in weights))
    return record(call, trial, (*made, together))


def cudnn_gradient(call: DispatchedCall) -> Any:
    """The gradients of cuDNN's whole stack, as large as what they are taken of; PyTorch has no kernel that says so."""
    trial = call.on_meta()
    given = _by_name(call, trial)
    of_states = [None if given[name] is None else torch.empty_like(given[name]) for name in ("hx", "cx")]
    of_weights = [torch.empty_like(weight) for weight in given["weight"]] if given["output_mask"][3] else []
    return record(call, trial, (torch.empty_like(given["input"]), *of_states, of_weights))


def _by_name(call: DispatchedCall, trial: Trial) -> dict[str, Any]:
    return dict(zip([argument.name for argument in call.func._schema.arguments], trial.args, strict=True))


# -- jagged: Nested tensors that a model makes, and padded ones taken apart again: their lengths are known, their numbers are not.

STRIDED = (
    "nested tensors of the strided layout are counted in the jagged layout: the same products, component by component"
)
"""What a report says of them: compiled code takes them apart, unseen."""


def from_list(call: DispatchedCall) -> Any:
    """A nested tensor of the strided layout from its components; it is made in the jagged one."""
    components, dtype, device = (call.argument(name) for name in ("list", "dtype", "device"))
    call.ledger.note("nested", STRIDED)
    with call.ledger:
        return torch.nested.as_nested_tensor(list(components), dtype=dtype, device=device, layout=torch.jagged)


def from_padded(call: DispatchedCall) -> Any:
    """The components out of a padded tensor, laid end to end: as long as the offsets say."""
    dense, offsets = call.states[0], call.states[1]
    total = call.argument("total_L")
    if total is None:
        if not call.ledger.knows(offsets):
            raise call.ledger.unknown("the length of the components of a nested tensor")
        assert offsets.content is not None
        total = offsets.content[-1].item()
    made = torch.empty((int(total), *dense.sig.shape[2:]), dtype=dense.sig.dtype, device=META)
    return record(call, call.on_meta(), made)


# -- higher_order: Control flow as operators: `torch.cond`, `while_loop`, `map`, `scan`, and flex attention.


def run(ledger: RecorderState, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Record a higher-order operator by running its parts."""
    name = _name(func)
    handler = _HANDLERS.get(name)
    if handler is None:
        fault = f"the higher-order operator {name} cannot be taken apart without data"
        raise DataDependent(fault, module=ledger.where())
    return handler(ledger, func, *args, **kwargs)


def is_control_flow(func: Any) -> bool:
    """Whether an operator runs functions that it is given, so that a real run must be seen from inside."""
    return not isinstance(func, private.OpOverload) and _name(func) in _CONTROL_FLOW


def _name(func: Any) -> str:
    name = str(func.name())
    return name.rpartition("::")[2]


def _truth(ledger: RecorderState, value: Any) -> bool | None:
    """What a condition says, or None where only data could tell."""
    content = ledger.content_of(value) if isinstance(value, torch.Tensor) else value
    return None if content is None else bool(content)


def _cond(ledger: RecorderState, func: Any, pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    chosen = _truth(ledger, pred)
    if chosen is None:
        taken = "the true branch is counted; real=True takes the branch that the data takes"
        ledger.note("branch", f"torch.cond depends on data: {taken}")
    with ledger:
        return (false_fn if chosen is False else true_fn)(*operands)


def _while(ledger: RecorderState, func: Any, cond_fn: Any, body_fn: Any, carried: Any, additional: Any = ()) -> Any:
    carried = tuple(carried)
    while True:
        with ledger:
            more = _truth(ledger, cond_fn(*carried, *additional))
        if more is None:
            raise ledger.unknown("the number of turns of a while_loop")
        if not more:
            return carried
        with ledger:
            carried = tuple(body_fn(*carried, *additional))


def _map(ledger: RecorderState, func: Any, f: Any, xs: Any, args: Any = ()) -> Any:
    with ledger:
        turns = [f(*[x[i] for x in xs], *args) for i in range(tensors_in(xs)[0].shape[0])]
        return private.pytree.tree_map(lambda *parts: torch.stack(parts), *turns)


def _scan(ledger: RecorderState, func: Any, combine: Any, init: Any, xs: Any, additional: Any = (), **_: Any) -> Any:
    carry = list(init)
    collected = []
    with ledger:
        for i in range(tensors_in(xs)[0].shape[0]):
            made = combine(*carry, *[x[i] for x in xs], *additional)
            carry, out = list(made[: len(carry)]), made[len(carry) :]
            collected.append(out)
        return (*carry, *[torch.stack(parts) for parts in zip(*collected, strict=True)])


def _flex_attention(
    ledger: RecorderState, func: Any, query: Any, key: Any, value: Any, score_mod: Any, block_mask: Any, *_: Any, **__: Any
) -> Any:  # fmt: skip
    """One fused attention, over the pairs in the blocks that its mask leaves."""
    queries, values = ledger.state(query).sig, ledger.state(value).sig
    out = torch.empty((*queries.shape[:-1], values.shape[-1]), dtype=queries.dtype, device=META)
    extra = [torch.empty(queries.shape[:-1], dtype=torch.float32, device=META) for _ in range(2)]
    return _flex(ledger, func, (query, key, value), block_mask, (out, *extra))


def _flex_attention_backward(
    ledger: RecorderState, func: Any, query: Any, key: Any, value: Any, out: Any, sums: Any, grad_out: Any, grad_sums: Any,
    score_mod: Any, joint: Any, block_mask: Any, *_: Any, **__: Any,
) -> Any:  # fmt: skip
    """Its gradient, without that of what the score function reads."""
    made = [ledger.state(tensor).sig.meta() for tensor in (query, key, value)]
    return _flex(ledger, func, (query, key, value, out, sums, grad_out), block_mask, (*made, ()))


def _flex(ledger: RecorderState, func: Any, args: tuple[Any, ...], block_mask: Any, made: Any) -> Any:
    call = DispatchedCall(ledger, func, args, {}, [ledger.state(tensor) for tensor in args])
    entry = describe(call, call.on_meta(), made)
    query, key = call.states[0].sig.shape, call.states[1].sig.shape
    pairs, counted = math.prod(query[:-1]) * key[-2], "over the full square of queries and keys"
    share = _share_of_blocks(ledger, block_mask, key[-2])
    if share is None:
        counted += ", because its mask is not known without data"
    elif share < 1:
        entry = entry._replace(attrs={**entry.attrs, "pairs": round(pairs * share)})
        counted = f"over the blocks that its mask leaves, {float(share):.0%} of the square"
    fused = "as the one kernel that torch.compile makes of it, which does not keep the scores"
    ledger.note("flex", f"flex_attention is counted {counted}, {fused}; its score function is not counted")
    return ledger.emit(entry, call.states, None)


def _share_of_blocks(ledger: RecorderState, block_mask: Any, keys: int) -> Fraction | None:
    """Of all blocks of queries and keys those that a mask leaves; None where only data could tell.

    The first tensor of a mask has how many blocks of keys each block of queries meets in part, the second after it how many as a
    whole. Before its last item, the function, are the sizes of blocks.
    """
    first = next(place for place, item in enumerate(block_mask) if isinstance(item, torch.Tensor))
    parts = [ledger.content_of(item) for item in block_mask[first : first + 3 : 2] if item is not None]
    if any(part is None for part in parts):
        return None
    blocks = sum(int(part.sum()) for part in parts if part is not None)
    return Fraction(blocks, block_mask[first].numel() * -(-keys // block_mask[-2]))


_CONTROL_FLOW: dict[str, Callable[..., Any]] = {
    "cond": _cond, "while_loop": _while, "map_impl": _map, "map": _map, "scan": _scan,
}  # fmt: skip
_HANDLERS: dict[str, Callable[..., Any]] = {
    **_CONTROL_FLOW, "flex_attention": _flex_attention, "flex_attention_backward": _flex_attention_backward,
}  # fmt: skip
