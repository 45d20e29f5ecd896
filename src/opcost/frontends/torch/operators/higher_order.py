"""Control flow as operators: `torch.cond`, `while_loop`, `map`, `scan`, and flex attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from opcost.errors import DataDependent
from opcost.frontends.torch.ledger.ledger import Ledger
from opcost.frontends.torch.operators.call import META, Call
from opcost.frontends.torch.operators.describe import record
from opcost.frontends.torch.tree import tensors_in


def run(ledger: Ledger, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Record a higher-order operator by running its parts."""
    name = _name(func)
    handler = _HANDLERS.get(name)
    if handler is None:
        raise DataDependent(
            f"the higher-order operator {name} cannot be taken apart without data", module=ledger.where()
        )
    return handler(ledger, func, *args, **kwargs)


def is_control_flow(func: Any) -> bool:
    """Whether an operator runs functions that it is given, so that a real run must be seen from inside."""
    return not isinstance(func, torch._ops.OpOverload) and _name(func) in _CONTROL_FLOW


def _name(func: Any) -> str:
    name = str(func.name())
    return name.rpartition("::")[2]


def _truth(ledger: Ledger, value: Any) -> bool | None:
    """What a condition says, or None where only data could tell."""
    content = ledger.content_of(value) if isinstance(value, torch.Tensor) else value
    return None if content is None else bool(content)


def _cond(ledger: Ledger, func: Any, pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    chosen = _truth(ledger, pred)
    if chosen is None:
        ledger.note(
            "branch",
            "torch.cond depends on data: the true branch is counted; real=True takes the branch that the data takes",
        )
    with ledger:
        return (false_fn if chosen is False else true_fn)(*operands)


def _while(ledger: Ledger, func: Any, cond_fn: Any, body_fn: Any, carried: Any, additional: Any = ()) -> Any:
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


def _map(ledger: Ledger, func: Any, f: Any, xs: Any, args: Any = ()) -> Any:
    with ledger:
        turns = [f(*[x[i] for x in xs], *args) for i in range(tensors_in(xs)[0].shape[0])]
        return pytree.tree_map(lambda *parts: torch.stack(parts), *turns)


def _scan(ledger: Ledger, func: Any, combine: Any, init: Any, xs: Any, additional: Any = (), **_: Any) -> Any:
    carry = list(init)
    collected = []
    with ledger:
        for i in range(tensors_in(xs)[0].shape[0]):
            made = combine(*carry, *[x[i] for x in xs], *additional)
            carry, out = list(made[: len(carry)]), made[len(carry) :]
            collected.append(out)
        return (*carry, *[torch.stack(parts) for parts in zip(*collected, strict=True)])


def _flex_attention(ledger: Ledger, func: Any, query: Any, key: Any, value: Any, *rest: Any, **kwargs: Any) -> Any:
    """One attention over the full square: a block mask skips work that depends on the mask's own function."""
    args = (query, key, value)
    call = Call(ledger, func, args, {}, [ledger.state(tensor) for tensor in args])
    queries, values = call.states[0].sig, call.states[2].sig
    out = torch.empty((*queries.shape[:-1], values.shape[-1]), dtype=queries.dtype, device=META)
    extra = [torch.empty(queries.shape[:-1], dtype=torch.float32, device=META) for _ in range(2)]
    ledger.note(
        "flex", "flex_attention is counted over the full square of queries and keys; its score function is not counted"
    )
    return record(call, call.on_meta(), (out, *extra))


_CONTROL_FLOW: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while,
    "map_impl": _map,
    "map": _map,
    "scan": _scan,
}
_HANDLERS: dict[str, Callable[..., Any]] = {**_CONTROL_FLOW, "flex_attention": _flex_attention}
