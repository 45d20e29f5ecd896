"""Clusters: how many GPUs a node has, and how fast they are connected within nodes and between them.

`clusters.json` has the named ones. Bandwidths are those of one GPU in one direction, as the maker prints them, in GB/s; `reached`
is the share of the bandwidth within a node that NCCL, or RCCL, uses at best.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from opcost.core.parsing import packaged_table
from opcost.core.units import parse_bytes
from opcost.distributed.mesh import Mesh
from opcost.errors import InputError, UnknownName, shortened

GIGA = 10**9
REACHED = 0.8
"""The share of the bandwidth within a node that is reached where it is not known: that of A100 and B200."""
REACHED_BETWEEN = 0.97
"""The share of the bandwidth between nodes: of 400 Gb/s RDMA transfers reach 3,108 of 3,200 Gb/s on a p5.48xlarge
(Perplexity, High-Performance GPU Memory Transfer on AWS)."""
DIRECT = frozenset({"all_to_all", "gather", "scatter"})
"""Collectives in which each rank sends its part to each other rank, without steps in between."""
_EXAMPLE = "8 per node, nvlink 450GB/s, network 50GB/s per gpu"
_WITHIN, _BETWEEN = ("nvlink", "xgmi", "pcie", "within"), ("network", "between")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Equal nodes of GPUs; bandwidths are those of one GPU in one direction, in bytes per second."""

    name: str
    gpus: int
    """GPUs of a node."""
    within: float
    between: float
    reached: float = REACHED
    devices: tuple[str, ...] = ()
    """The GPUs of which it is the usual cluster."""
    source: str = "as given"
    reached_source: str = "assumed"

    @classmethod
    def of(cls, given: Any) -> Cluster:
        """The cluster of a name, or the one that a text describes; a cluster is itself."""
        if isinstance(given, Cluster):
            return given
        if not isinstance(given, str):
            raise InputError(f"cluster is {given!r}, which describes no cluster", hint=f"a name, or {_EXAMPLE!r}")
        if re.search(r"[,\s]", given.strip()):
            return _described(given)
        named = CLUSTERS.get(given.strip().casefold())
        if named is None:
            raise UnknownName("cluster", given, CLUSTERS, hint=f"or describe one: {_EXAMPLE!r}")
        return named

    def nodes(self, mesh: Mesh | None, rank: int, axis: str, ranks: int) -> int:
        """The nodes on which the ranks of a group are: those of an axis of a mesh, else neighbours."""
        group = range(ranks)
        if mesh is not None and 1 < ranks == mesh.along(axis):
            group = mesh.group(rank, axis)
        return self.nodes_of(group)

    def nodes_of(self, members: Iterable[int]) -> int:
        """The nodes on which some ranks are, which are numbered node by node."""
        return len({member // self.gpus for member in members})

    def link(self, kind: str, ranks: int, nodes: int) -> float:
        """Bytes per second of the links that a collective is bound by, as they are printed: NVLink, or network cards."""
        cards = 1 if kind in DIRECT else max(1, ranks // nodes)  # of the node that it uses at once
        return self.within if nodes == 1 else min(self.within, self.between * cards)

    def bandwidth(self, ranks: int, nodes: int) -> float:
        """Bytes per second that leave each rank of a group at best, where all of them send to a neighbour at once.

        Between two nodes each of a node's ranks sends a part over its own network card.
        """
        inside = self.within * self.reached
        return inside if nodes == 1 else min(inside, self.between * REACHED_BETWEEN * max(1, ranks // nodes))


def _read(entry: dict[str, Any]) -> Cluster:
    speeds = {name: entry.pop(name) * GIGA for name in ("within", "between")}
    return Cluster(devices=tuple(entry.pop("devices", ())), **entry, **speeds)


CLUSTERS: Mapping[str, Cluster] = {
    entry["name"]: _read(entry) for entry in packaged_table(__package__, "clusters.json")
}


def usual_cluster(device: str) -> Cluster | None:
    """What GPUs of this name are usually connected by, where that is known."""
    return next((cluster for cluster in CLUSTERS.values() if device in cluster.devices), None)


def _described(text: str) -> Cluster:
    """`8 per node, nvlink 450GB/s, network 50GB/s per gpu` as a cluster."""
    found: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        count = re.fullmatch(r"(\d+)\s*(?:gpus?\s+)?per\s+node", part, re.IGNORECASE)
        speed = re.fullmatch(r"(\w+)\s+([\d.]+\s*[KMGT]i?B)/s(?:\s+per\s+gpu)?", part, re.IGNORECASE)
        link = speed[1].casefold() if speed else ""
        name = "gpus" if count else "within" if link in _WITHIN else "between" if link in _BETWEEN else ""
        if not name or name in found:
            raise InputError(
                f"{shortened(repr(part))} of a cluster is not understood", hint=f"write it as {_EXAMPLE!r}"
            )
        found[name] = int(count[1]) if count else parse_bytes(speed[2]) if speed else 0
    missing = [name for name in ("gpus", "within", "between") if not found.get(name)]
    if missing:
        words = {"gpus": "GPUs per node", "within": "bandwidth within a node", "between": "bandwidth between nodes"}
        raise InputError(f"the cluster has no {words[missing[0]]}", hint=f"write it as {_EXAMPLE!r}")
    return Cluster(name=" ".join(text.split()), **found)
