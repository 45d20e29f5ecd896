"""How long a collective takes in a cluster: latency and bandwidth of NCCL's algorithms and protocols, the fastest of which runs.

A ring sends `(g-1)/g` of the payload from each of g ranks, twice for an all_reduce, which adds up on the first round and copies
on the second. Trees send the whole payload up and down. The constants are those with which NCCL itself chooses between them
(src/graph/tuning.cc of version 2.28: baseLatencies, hwLatencies, and the shares of the bandwidth): latencies of NVLink within a
node, of the network between nodes. Reductions in switches (NVLS, SHARP) are not among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log2
from typing import NamedTuple

from opcost.distributed.clusters import DIRECT, Cluster


class Protocol(NamedTuple):
    """How data and flags are sent: its latencies in microseconds, and the share of the bandwidth that it leaves for data."""

    base: float
    within: float  # of a step between two ranks of a node
    between: float  # of a step between two nodes
    share: float


RING: Mapping[str, Protocol] = {
    "LL": Protocol(6.6, 0.6, 2.7, 0.5),
    "LL128": Protocol(14.0, 1.9, 4.0, 0.92),
    "Simple": Protocol(8.4, 3.4, 14.0, 1.0),
}
TREE: Mapping[str, Protocol] = {
    "LL": Protocol(6.8, 0.6, 5.0, 0.9 / 3.8),
    "LL128": Protocol(14.0, 1.25, 8.5, 0.9 * 0.915),
    "Simple": Protocol(8.4, 4.0, 14.0, 0.9),
}
ROUNDS: Mapping[str, int] = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""How often a payload goes around the ring."""
KINDS = frozenset({*ROUNDS, *DIRECT, "broadcast", "reduce", "send", "recv", "send_recv"})
"""Types of which the time is known."""


def collective_ns(kind: str, payload: int, ranks: int, nodes: int, cluster: Cluster) -> float:
    """The time of a collective of `ranks` on `nodes`; the payload is the larger of what a rank hands in and what it gets."""
    if ranks < 2:
        return 0.0
    bandwidth = cluster.bandwidth(ranks, nodes)
    if kind in DIRECT:
        return _direct_ns(payload, ranks, nodes, cluster)
    # A broadcast, a reduce or a message is passed on piece by piece along the ranks.
    steps, part = ranks - 1, 1.0
    if kind in ROUNDS:
        steps, part = ROUNDS[kind] * (ranks - 1), ROUNDS[kind] * (ranks - 1) / ranks
    across = ROUNDS.get(kind, 1) * (nodes - 1)
    times = [
        1e3 * (each.base + (steps - across) * each.within + across * each.between)
        + 1e9 * payload * part / (bandwidth * each.share)
        for each in RING.values()
    ]
    if kind == "all_reduce":
        times += [
            1e3 * (each.base + 2 * ((ranks / nodes - 1) * each.within + log2(nodes) * each.between))
            + 1e9 * payload * 2 / (bandwidth * each.share)
            for each in TREE.values()
        ]
    return min(times)


def _direct_ns(payload: int, ranks: int, nodes: int, cluster: Cluster) -> float:
    """Parts for the same node and for others are sent at once, each over its own links."""
    simple, own = RING["Simple"], max(1, ranks // nodes)
    inside = 1e9 * payload * (own - 1) / ranks / cluster.bandwidth(own, 1)
    outside = 1e9 * payload * (ranks - own) / ranks / cluster.bandwidth(nodes, nodes)
    return 1e3 * (simple.base + (simple.between if nodes > 1 else simple.within)) + max(inside, outside)
