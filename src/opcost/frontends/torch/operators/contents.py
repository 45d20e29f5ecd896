"""Operators whose results depend on contents, and small tensors whose content is known: indices, masks, lengths, constants.

Decoders ask their masks `bool(mask.all())`, detectors loop over level sizes, packed sequences carry lengths. Such tensors are
small integers and booleans (and constants made from them), so they keep their content beside the tensor without data, and
their operators are computed for real.
"""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import torch

from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.recorder_state import Choice, RecorderState
from opcost.frontends.torch.ledger.tensors import SMALL, OperatorEntry, Signature, State
from opcost.frontends.torch.operators import calls, layers
from opcost.frontends.torch.operators.calls import CPU, META, DispatchedCall, Trial, record
from opcost.frontends.torch.operators.closed_form import overloads
from opcost.frontends.torch.tree import tensors_passed

_aten = torch.ops.aten
_SEEN = 1 << 25  # Elements that a view of small contents may show: to go through them takes hundredths of a second
_SIZED = overloads("zeros ones full empty.memory_format")
_STEPPED = overloads("linspace logspace")
_RANGES = overloads("arange arange.start arange.start_step")
_GRIDS = overloads("eye eye.m tril_indices triu_indices")


def computable(func: Any, args: Any, states: list[State]) -> bool:
    """Whether an operator on known contents has a known result: not where it draws random numbers, or asks other ranks."""
    if torch.Tag.nondeterministic_seeded in func.tags or func.namespace in calls.RANKS:
        return False
    return bool(states) or _is_known_factory(func, args)


def _is_known_factory(func: Any, args: Any) -> bool:
    """Whether an operator without tensor arguments makes a small tensor whose content follows from its arguments."""
    if func in _SIZED:
        return bool(prod(args[0]) <= SMALL)
    if func in _STEPPED:
        return bool(args[2] <= SMALL)
    if func in _RANGES:
        start, end, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
        return bool(step and abs((end - start) / step) <= SMALL)
    if func in _GRIDS:
        return bool(args[0] * (args[1] if len(args) > 1 else args[0]) <= SMALL)
    # Arithmetic on plain numbers (`torch.div(size, 2)`) makes a scalar.
    return torch.Tag.pointwise in func.tags or func is _aten.scalar_tensor.default


def depends_on_content(func: Any) -> bool:
    """Whether what the operator makes, and not only its numbers, depends on content (`nonzero`)."""
    return torch.Tag.dynamic_output_shape in func.tags or torch.Tag.data_dependent_output in func.tags


def is_small(entry: OperatorEntry) -> bool:
    """Whether the results may carry their content: two small tensors can make a very large one (a mask of all pairs).

    A view is as small as what it looks into: a mask of tokens that is expanded to all their features stays known.
    """
    return all(out.sig.spec.numel <= (SMALL if out.base < 0 else _SEEN) for out in entry.outs)


def run(call: DispatchedCall, entry: OperatorEntry | None = None) -> Any:
    """Compute an operator on known contents, and record it; `entry` is what is known of it already."""
    trial = call.on([state.content for state in call.states if state.content is not None], CPU)
    result = call.func(*trial.args, **trial.kwargs)
    flat = tensors_passed(result, [])
    if not flat and not call.func._schema.is_mutable:
        for state in call.states:
            call.ledger.decides(state)
        return result
    if entry is None:
        entry = calls.describe(call, trial, result)
    emitted = call.ledger.emit(entry, call.states, [item if _takes_little(item) else None for item in flat])
    if (found := call.ledger.assumed(call.states)) is not None:
        _pass_assumption_on(call, emitted, *found)
    return emitted


def _takes_little(content: torch.Tensor) -> bool:
    """Whether a content can be kept: few numbers, or a view of few that is not too long to be gone through."""
    if content.numel() <= SMALL:
        return True
    return bool(content.numel() <= _SEEN and content.untyped_storage().nbytes() <= SMALL * content.itemsize)


def _pass_assumption_on(call: DispatchedCall, emitted: Any, how: str, choice: Choice | None) -> None:
    """What is computed from an assumed content is assumed as well."""
    made = tensors_passed(emitted, [])
    if how == "chosen" and choice is not None:
        name = call.func._schema.name.removeprefix("aten::")
        if name in _SPREADING:
            how = "balanced"
        elif name in _COMPARING and (numbers := _compared_with(call)) is not None:
            how = "compared"
            choice.compared.update(number for number in numbers if 0 <= number < choice.candidates)
            contents = map(call.ledger.content_of, made)
            choice.won = choice.won or any(content is not None and bool(content.any()) for content in contents)
    for item in made:
        call.ledger.assume(item, how, choice)
    if torch.Tag.dynamic_output_shape in call.func.tags and call.func is not _aten.index.Tensor:
        call.ledger.decides(call.ledger.state(made[0]))


def _compared_with(call: DispatchedCall) -> list[int] | None:
    """The numbers with which an index is compared; None where they are winners as well."""
    others = [state for state in call.states if call.ledger.assumed([state]) is None]
    if len(call.states) > 1:
        contents = [state.content for state in others if state.content is not None]
        return [int(number) for content in contents for number in content.flatten().tolist()] if others else None
    return [int(call.args[1])] if isinstance(call.args[1], (int, float)) else None


_COMPARING = frozenset({"eq", "ne", "isin"})
_SPREADING = frozenset(
    "scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ index_put index_put_ _index_put_impl_ index_add "
    "index_add_ index_fill index_fill_ bincount histc _unique2 unique_dim unique_consecutive sort argsort topk searchsorted "
    "nonzero".split()
)
"""Operators that make of the indices of winners how many tokens each candidate gets, and in which order."""


def filled(call: DispatchedCall) -> Any:
    """`ones_like`, `new_zeros`: what they make is known, whatever their template holds.

    What an optimizer remembers of each parameter is not followed: gradients, which are unknown, are added to it at once.
    """
    sig = call.states[0].sig
    like = "_like" in call.func._schema.name
    elements = sig.spec.numel if like else prod(call.args[1])
    largest = 1 if call.ledger.phase == "update" else SMALL
    if call.ledger.knows(call.states[0]) or sig.stored is not None or elements > largest:
        return NotImplemented
    template = sig.zeros() if like else torch.zeros((), dtype=sig.dtype)
    trial = Trial([template], (template, *call.args[1:]), calls.substitute(call.kwargs, iter(()), CPU))
    content = call.func(*trial.args, **trial.kwargs)
    return record(call, trial, content, [content])


# -- assumed: Unknown numbers that decide what runs: winners of a comparison, and random draws. They are assumed.
#
# Where such a number does decide something, the report says so (`ASSUMPTIONS`).


def choice(call: DispatchedCall) -> Any:
    """`topk`, `sort`, `argmax` of unknown numbers: which ones win is unknown, so every candidate wins equally often.

    This is what makes a mixture of experts countable: each expert sees the same share of the tokens.
    """
    if call.ledger.knows(call.states[0]):
        return NotImplemented
    entry = calls.work_out(call)
    index = entry.outs[-1].sig
    if index.dtype is not torch.int64 or not index.shape:
        return call.ledger.emit(entry, call.states)
    contents: list[torch.Tensor | None] = [None] * len(entry.outs)
    if index.spec.numel <= SMALL:  # of more only how often each candidate wins is known
        contents[-1] = _in_turn(call, index)
    result = call.ledger.emit(entry, call.states, contents)
    axis = _axis(call, len(call.states[0].sig.shape))
    chosen = Choice(call.states[0].sig.shape[axis])
    call.ledger.assume(result if isinstance(result, torch.Tensor) else result[-1], "chosen", chosen)
    return result


def _in_turn(call: DispatchedCall, index: Signature) -> torch.Tensor:
    """Indices of the winners if the candidates win one after the other."""
    shape = call.states[0].sig.shape
    axis = _axis(call, len(shape))
    keeps_axis = len(index.shape) == len(shape)
    winners = index.shape[axis] if keeps_axis else 1
    candidates = max(shape[axis], 1)
    turns = torch.arange(index.spec.numel) % candidates
    if call.ledger.together:
        turns = candidates - 1 - torch.arange(index.spec.numel) % max(winners, 1)
    if avoided := call.ledger.avoided.get(shape[axis]):
        open_ones = torch.tensor([at for at in range(shape[axis]) if at not in avoided] or [0])
        turns = open_ones[turns % len(open_ones)]
    if not keeps_axis:
        return turns.reshape(index.shape)
    others = [n for i, n in enumerate(index.shape) if i != axis]
    return turns.reshape(*others, winners).movedim(-1, axis).contiguous()


def counted_winners(call: DispatchedCall) -> Any:
    """`scatter_add_` of as many winners as are not followed one by one: each candidate won equally often."""
    counts, index = call.states[:2]
    found = call.ledger.assumed([index])
    if call.ledger.knows(index) or found is None or found[0] != "chosen" or found[1] is None or counts.content is None:
        return NotImplemented
    winners, candidates = index.sig.spec.numel, found[1].candidates
    if counts.sig.shape != (candidates,) or len(index.sig.shape) != 1 or not call.ledger.knows(counts):
        return NotImplemented
    result = call.ledger.emit(calls.work_out(call), call.states, [])
    counts.content = counts.content + torch.bincount(torch.arange(winners) % candidates, minlength=candidates)
    call.ledger.assume(result, "balanced")
    return result


def _axis(call: DispatchedCall, rank: int) -> int:
    dim = call.argument("dim")
    return (rank - 1 if dim is None else int(dim)) % max(rank, 1)


def exchanged(call: DispatchedCall) -> Any:
    """`all_to_all_single` of small numbers, as of tokens for each expert: every rank is taken to send what this one sends."""
    output, given = call.states[:2]
    ranks, rank = (getattr(private.distributed().ProcessGroup.unbox(call.args[2]), name)() for name in ("size", "rank"))
    if not call.ledger.knows(given) or any(call.args[3:5]) or given.content is None or len(given.content) % ranks:
        return NotImplemented
    work = call.ledger.emit(calls.work_out(call), call.states, [])  # what is written is known
    output.content = torch.cat([given.content.chunk(ranks)[rank]] * ranks).reshape(output.sig.shape)
    call.ledger.assume(call.args[0], "balanced")
    return work


def drawn(call: DispatchedCall) -> Any:
    """A single random number gets the middle of its range: whether a layer is dropped is then decided as it mostly is."""
    entry = calls.work_out(call)
    sig = entry.outs[0].sig
    if sig.spec.numel != 1:
        return call.ledger.emit(entry, call.states)
    result = call.ledger.emit(entry, call.states, [torch.full(sig.shape, _middle(call), dtype=sig.dtype)])
    call.ledger.assume(result, "drawn")
    return result


def _middle(call: DispatchedCall) -> float:
    func, args = call.func, call.args
    if func is _aten.randn.default:
        return 0.0
    if func is _aten.randint.default:
        return float(args[0] // 2)
    return float((args[0] + args[1]) // 2) if func is _aten.randint.low else 0.5


# -- handlers of operators that shapes alone do not answer; NotImplemented leaves one to the recorder ------------------------

_MASKS = (torch.bool, torch.uint8)
_PASSES_WHEN = {"aten::lt": False, "aten::le": False, "aten::ge": True, "aten::ne": True, "aten::all": True}
"""How PyTorch's checks of numbers end well, by the operator that makes the flag.

`istft` checks that its overlapping windows do not come near zero, `cov` that weights are not negative and their sum is not
zero, `quantile` that all quantiles lie between 0 and 1.
"""


def equal(call: DispatchedCall) -> Any:
    """`equal` of a flag and a true made from it: so PyTorch's own operators check their numbers, which are taken to be right.

    Any other comparison of unknown numbers is the model's own, and only data could answer it.
    """
    flag, true = call.states
    if call.ledger.knows(flag) or flag.sig.dtype is not torch.bool or flag.sig.shape:
        return NotImplemented
    latest = call.ledger.ops[-1]
    if latest.raw != "aten::new_ones" or latest.inputs != (flag.vid,) or latest.outputs != (true.vid,):
        return NotImplemented
    checked = call.ledger.maker_of(flag.vid)
    return _PASSES_WHEN.get(checked.raw, NotImplemented) if checked else NotImplemented


def by_mask(call: DispatchedCall) -> Any:
    """`x[mask]`: as many elements as the mask has true."""
    masks = [state for state in call.states[1:] if state.sig.dtype in _MASKS]
    if not masks:
        return NotImplemented
    for mask in masks:
        _must_be_known(call, mask)
    if _all_known(call):
        return run(call)
    trial = call.on_meta()
    return record(call, trial, call.func(trial.tensors[0], list(_indices(call, trial.tensors))))


def _indices(call: DispatchedCall, metas: list[torch.Tensor]) -> Iterator[torch.Tensor | None]:
    """The indices of a call, with the places in the place of every mask, which must have the shape of what it chooses from."""
    tensors = iter(zip(call.states[1:], metas[1:], strict=True))
    shape, axis = call.states[0].sig.shape, 0
    for index in call.args[1]:
        if index is None:
            yield None
            axis += 1
            continue
        state, meta = next(tensors)
        if state.sig.dtype not in _MASKS or state.content is None:
            yield meta
            axis += 1
            continue
        mask = state.sig.shape
        if mask != shape[axis : axis + len(mask)]:
            found = f"The shape of the mask {list(mask)} does not match that of the indexed tensor {list(shape)}"
            raise IndexError(found)
        chosen = torch.empty((int(state.content.count_nonzero()),), dtype=torch.int64, device=META)
        yield from [chosen] * len(mask)
        axis += len(mask)


def masked_select(call: DispatchedCall) -> Any:
    """`masked_select`: as many elements as the mask has true, in one row."""
    source, mask = call.states
    if mask.sig.dtype not in _MASKS:
        return NotImplemented
    _must_be_known(call, mask)
    if _all_known(call):
        return run(call)
    assert mask.content is not None
    chosen = int(mask.content.expand(torch.broadcast_shapes(source.sig.shape, mask.sig.shape)).sum())
    return record(call, call.on_meta(), torch.empty((chosen,), dtype=source.sig.dtype, device=META))


def _all_known(call: DispatchedCall) -> bool:
    """Whether the result can be computed, and not only its size."""
    return all(call.ledger.knows(state) for state in call.states)


def _must_be_known(call: DispatchedCall, mask: State) -> None:
    if not call.ledger.knows(mask):
        raise call.ledger.unknown("the number of elements that a mask selects", call.func)
    call.ledger.decides(mask)


def pack_padded(call: DispatchedCall) -> Any:
    """Padded sequences laid end to end. The batch sizes have memory, since layers and gradients look into it."""
    padded, lengths = call.states
    if not call.ledger.knows(lengths):
        raise call.ledger.unknown("the length of packed sequences", call.func)
    assert lengths.content is not None
    numbers = torch.zeros(padded.sig.shape[:2]).unsqueeze(-1)
    _, sizes = call.func(numbers, lengths.content, call.argument("batch_first"))
    data = torch.empty((int(lengths.content.sum()), *padded.sig.shape[2:]), dtype=padded.sig.dtype, device=META)
    return record(call, call.on_meta(), (data, sizes), [None, sizes])[0], sizes


def to_sparse(call: DispatchedCall) -> Any:
    """How many values a sparse tensor stores decides what every operator on it costs."""
    dense = call.states[0]
    if not call.ledger.knows(dense) and dense.sig.stored is None:
        stored = "how many values of a dense tensor are not zero, and stored by a sparse one"
        raise call.ledger.unknown(stored, call.func)
    return NotImplemented


def _grouped(call: DispatchedCall) -> Any:
    """A grouped product counts all tokens, however they are spread over the groups; say how many that is.

    Where it is known that rows behind the last group are in none, as tokens of other ranks' experts, they are left out.
    """
    tokens, weights = call.states[0].sig.shape, call.states[1].sig.shape
    ends = call.states[2] if len(call.states) > 2 else None
    ragged = tokens[0] if len(weights) == 3 else tokens[-1]  # rows, or the depth of the gradient of a weight
    used = ragged
    if ends is not None and ends.content is not None and call.ledger.knows(ends) and 2 in (len(tokens), len(weights)):
        used = min(ragged, int(ends.content.max()))
    if len(tokens) == 2 and len(weights) == 3:
        rows = f"{used} token rows" if used == ragged else f"{used} of {ragged} token rows"
        call.ledger.note(
            "experts",
            f"grouped product: {rows} over {weights[0]} experts, {used / weights[0]:g} each if balanced; "
            "the total does not depend on the spread",
        )
    if used == ragged or len(tokens) == 3:
        return NotImplemented
    entry = calls.work_out(call)
    others = prod(weights[1:]) if len(weights) == 3 else tokens[0] * weights[1]
    return call.ledger.emit(entry._replace(attrs={**entry.attrs, "macs": used * others}), call.states)


def _copy_to_itself(call: DispatchedCall) -> Any:
    """`matmul(..., out=x)` writes to `x.view(...)`, and copies back unless it sees that both are the same memory.

    Of tensors without data it cannot see that.
    """
    target, source = call.states[0], call.states[1]
    storages = call.ledger.storages
    same = storages[target.vid] == storages[source.vid] and target.sig.shape != source.sig.shape
    return call.args[0] if same and target.sig.spec.numel == source.sig.spec.numel else NotImplemented


def _look_at(call: DispatchedCall) -> Any:
    """`set_`: a new tensor looks at memory that is there, as cuDNN's layers do at all their weights in one."""
    sig = call.states[0].sig
    size = call.args[3] if len(call.args) > 3 else (call.args[1].nbytes() // sig.dtype.itemsize,)
    tensor = sig.meta().resize_(size)
    content = _content_of(call.ledger, call.args[1:], sig.dtype, tensor.numel())
    trial = Trial([tensor], (tensor, *call.args[1:]), call.kwargs)
    result = record(call, trial, tensor, None if content is None else [content])
    call.states[0].content = content
    return result


def _content_of(ledger: RecorderState, memory: Any, dtype: torch.dtype, elements: int) -> torch.Tensor | None:
    """Memory that is really there tells what is in it, where that is little: so a tensor that was pickled comes back."""
    try:  # the storage of a tensor without data only says how large it would be
        known = memory[0].device.type == "cpu" and elements <= SMALL and bool(memory[0].data_ptr())
    except RuntimeError:
        return None
    if not known:
        return None
    content = torch.empty(0, dtype=dtype).set_(*memory)
    ours = any(shared.untyped_storage()._cdata == memory[0]._cdata for shared in ledger.shared.values())
    return content if ours else content.clone()


_NAMED: dict[str, Callable[[DispatchedCall], Any]] = {
    # `.item()`, `bool(tensor)`, `int(tensor)`: known contents, or a weight that is really there
    "_local_scalar_dense": lambda call: call.ledger.real_content(call.states[0], call.func).item(),
    "equal": equal,
    "index.Tensor _unsafe_index.Tensor": by_mask,
    "masked_select": masked_select,
    "_pack_padded_sequence": pack_padded,
    "_nested_tensor_from_tensor_list": layers.from_list,
    "_padded_dense_to_jagged_forward": layers.from_padded,
    "_to_sparse _to_sparse.sparse_dim _to_sparse_csr _to_sparse_csc": to_sparse,
    "topk sort sort.stable argmax argmin max.dim min.dim": choice,
    "rand randn randint randint.low": drawn,
    "zeros_like ones_like full_like new_zeros new_ones new_full": filled,
    "lstm.input lstm.data gru.input gru.data rnn_tanh.input rnn_tanh.data rnn_relu.input rnn_relu.data": layers.whole_layer,
    "_cudnn_rnn": layers.cudnn,
    "_cudnn_rnn_backward": layers.cudnn_gradient,
    # worked out anew each time: no argument says which gradients of oneDNN's layer are requested
    "mkldnn_rnn_layer_backward": lambda call: call.ledger.emit(calls.work_out(call), call.states),
    "_grouped_mm": _grouped,
    "scatter_add_": counted_winners,
    "copy_": _copy_to_itself,
    "set_.source_Storage set_.source_Storage_storage_offset": _look_at,
}  # fmt: skip
HANDLERS = {overload: handler for names, handler in _NAMED.items() for overload in overloads(names)}
if torch.distributed.is_available():
    HANDLERS[torch.ops.c10d.alltoall_base_.default] = exchanged
HANDLERS[torch.ops.prim.device.default] = lambda call: call.states[0].sig.device  # of a fake tensor
