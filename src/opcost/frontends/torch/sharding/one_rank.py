"""The graph of one rank: recorded, or where a model has many equal blocks, continued from recordings with few of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import torch
from torch import nn

from opcost.core.alignment import NotRepeating
from opcost.core.graph import Graph
from opcost.core.repeating import repeated, same
from opcost.distributed.sharding import Sharding
from opcost.errors import OpcostError
from opcost.frontends.torch import private
from opcost.frontends.torch.models.unwrap import lists_of_blocks
from opcost.frontends.torch.sharding.sharded_copy import copy_on_meta, spread

MANY = 16
"""Blocks from which on two recordings of few take less time than one of all."""
FEWEST = 5, 6, 7
"""How many blocks are recorded: the first and last blocks differ from those between. The third where two are not enough."""


Record: TypeAlias = Callable[[nn.Module], Graph]
"""Records a run of a model."""


def graph_of_rank(
    model: nn.Module,
    record: Record,
    sharding: Sharding | None,
    param_dtype: torch.dtype | None = None,
    forward: Record | None = None,
) -> Graph:
    """What one rank does, of a mesh; without one, or with one rank alone, what the model does.

    With what records the forward pass alone, which must change nothing, few of many equal blocks are enough.
    """
    if sharding is None or not sharding.mesh.shape:
        return record(model)
    with private.forgotten_meshes():
        return _spread_and_recorded(model, record, sharding, param_dtype, forward)


def _spread_and_recorded(
    model: nn.Module, record: Record, sharding: Sharding, param_dtype: torch.dtype | None, forward: Record | None
) -> Graph:
    few = None if forward is None else with_few_blocks(model, forward)
    if few is not None:
        graphs: list[Graph] = []
        for copy in few.copies:
            with spread(copy, sharding, param_dtype) as rank:
                graphs.append(record(rank))
            with suppress(NotRepeating):
                if graphs[1:]:
                    return repeated(graphs[-2], graphs[-1], few.blocks, few.total - FEWEST[len(graphs) - 1])
    with spread(copy_on_meta(model), sharding, param_dtype) as copy:
        return record(copy)


class FewBlocks(NamedTuple):
    """Copies of a model with as many of its equal blocks as `FEWEST` says."""

    blocks: str
    """The path of their list."""
    total: int
    """How many the model has."""
    copies: list[nn.Module]


def with_few_blocks(model: nn.Module, forward: Record) -> FewBlocks | None:
    """Copies with few of many equal blocks, if the forward pass of all follows from theirs; else None."""
    lists = [(path, len([*blocks.children()])) for path, blocks in lists_of_blocks(model)]
    long = [(path, count) for path, count in lists if path and count >= MANY]
    if len(long) != 1:
        return None
    blocks, count = long[0]
    copies = [copy_on_meta(model, blocks, first) for first in FEWEST]
    whole = forward(model)
    with suppress(OpcostError, NotRepeating):  # the first: the model needs all of its blocks
        if same(whole, repeated(forward(copies[0]), forward(copies[1]), blocks, count - FEWEST[1])):
            return FewBlocks(blocks, count, copies)
    return None
