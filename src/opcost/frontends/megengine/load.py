"""From a file to a graph."""

from __future__ import annotations

from pathlib import Path

from opcost.core.graph import Graph
from opcost.errors import InputError
from opcost.frontends.megengine.graph import build_graph
from opcost.frontends.megengine.model import read_model
from opcost.frontends.options import CountOptions


def load(source: str | Path, options: CountOptions) -> Graph:
    """Read a dump and make it ready to be counted."""
    for asked, what in (
        (options.backward or options.optimizer, "a backward pass"),
        (options.mode == "train", "a training mode"),
        (options.real, "a run on real weights"),
    ):
        if asked:
            raise InputError(
                f"{source} is a dump of the forward pass; {what} cannot be counted from it",
                hint="count it without that option",
            )
    return build_graph(read_model(source), options)
