"""One call of an operator, and trials of it: the same call with other tensors in the place of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from opcost.frontends.torch.ledger.entry import State
from opcost.frontends.torch.ledger.ledger import Ledger

META = torch.device("meta")
CPU = torch.device("cpu")


class Trial(NamedTuple):
    """The arguments of a call with stand-ins for its tensors."""

    tensors: list[torch.Tensor]
    args: Any
    kwargs: dict[str, Any]


class Call(NamedTuple):
    """One call of an operator as it reached the recorder."""

    ledger: Ledger
    func: Any
    args: Any
    kwargs: dict[str, Any]
    states: list[State]
    """What is known of the tensors among the arguments, in their order."""

    @property
    def device(self) -> torch.device:
        """Where the results lie: where the operator was told, else where its first tensor that is no mere scalar lies."""
        if (asked := self.kwargs.get("device")) is not None:
            asked = torch.device(asked)
            return self.ledger.device if asked.type == "meta" else asked
        for state in self.states:
            if state.sig.shape:
                return state.sig.device
        return self.states[0].sig.device if self.states else self.ledger.default_device

    def argument(self, name: str) -> Any:
        """An argument by its name in the schema, or its default."""
        for index, argument in enumerate(self.func._schema.arguments):
            if argument.name == name:
                return self.args[index] if index < len(self.args) else self.kwargs.get(name, argument.default_value)
        raise KeyError(name)

    def has(self, name: str) -> bool:
        """Whether the schema knows an argument of this name."""
        return any(argument.name == name for argument in self.func._schema.arguments)

    def on_meta(self) -> Trial:
        """The call on the meta device."""
        return self.on([state.sig.meta() for state in self.states], META)

    def on(self, tensors: list[torch.Tensor], device: torch.device) -> Trial:
        """The call with these tensors, which lie on `device`."""
        feed = iter(tensors)
        return Trial(tensors, substitute(self.args, feed, device), substitute(self.kwargs, feed, device))


def substitute(tree: Any, feed: Iterator[torch.Tensor], device: torch.device) -> Any:
    """The arguments with the next stand-in for every tensor, and `device` for every device."""
    if isinstance(tree, torch.Tensor):
        return next(feed)
    kind = type(tree)
    if kind is list:
        return [substitute(item, feed, device) for item in tree]
    if kind is tuple:
        return tuple([substitute(item, feed, device) for item in tree])
    if isinstance(tree, dict):
        return {name: substitute(value, feed, device) for name, value in tree.items()}
    if kind is torch.device:
        return device
    return tree
