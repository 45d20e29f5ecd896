"""What the recorder remembers: the user's tensors, what an operator is and makes, and that it ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from opcost.core.graph import Attrs, Phase
from opcost.frontends.torch.ledger.tensor import Recorded, Signature

SMALL = 1 << 18
"""Tensors of at most so many elements may carry their real content (see `values`)."""


class Leaf:
    """A tensor of the user's: a parameter, a buffer, an input, a constant. Held so that its id stays its own."""

    __slots__ = ("content", "origin", "sig", "tensor", "untouched", "vid")

    def __init__(self, tensor: torch.Tensor, sig: Signature, vid: int, content: torch.Tensor | None) -> None:
        self.tensor = tensor
        self.sig = sig
        self.vid = vid
        """The value it holds now; an in-place operator gives it a new one."""
        self.origin = vid
        self.content = content
        self.untouched = True
        """Nothing was written to it, so the user's own tensor still tells its content."""

    held = None
    """Its memory is the user's, which nobody lets go."""


State = Recorded | Leaf


class Out(NamedTuple):
    """One output of an operator: its signature and the input whose memory it shares (-1: none)."""

    sig: Signature
    base: int
    same: bool
    """It is that very input object: an in-place result."""


class Entry(NamedTuple):
    """What is known of an operator with given signatures and arguments."""

    kind: str
    raw: str
    attrs: Attrs
    order: tuple[int, ...] | None
    """Which tensor arguments are the inputs, in the order of the kind; None: all, as they come."""
    outs: tuple[Out, ...]
    pack: Callable[[list[Any]], Any] | None
    """Puts outputs into the operator's own structure; None for one plain tensor."""
    written: tuple[int, ...] = ()
    """Tensor arguments that the operator writes to."""


class OpRecord(NamedTuple):
    """One executed operator."""

    entry: Entry
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    module: str
    phase: Phase


class ForeignTensor(Exception):
    """An argument is a tensor subclass with its own dispatch: it must take its turn first."""
