"""A cluster is read from a name or a text, and says which ranks share a node and how fast they reach each other."""

from typing import Any

import pytest

from opcost.distributed.clusters import CLUSTERS, REACHED, REACHED_BETWEEN, Cluster
from opcost.distributed.mesh import Mesh
from opcost.errors import InputError, UnknownName


def test_a_text_describes_a_cluster() -> None:
    found = Cluster.of("8 per node, nvlink 450GB/s, network 50GB/s per gpu")
    assert (found.gpus, found.within, found.between, found.reached) == (8, 450e9, 50e9, REACHED)
    assert Cluster.of("4 GPUs per node, xgmi 64 GB/s, between 12.5 GB/s").between == 12.5e9
    assert Cluster.of(found) is found


def test_every_named_cluster_has_its_sources() -> None:
    for name, found in CLUSTERS.items():
        assert Cluster.of(name.upper()) is found
        assert found.source
        assert found.reached_source
        assert found.between < found.within
        assert 0.5 < found.reached < 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("8 per node, nvlink 450GB/s", "no bandwidth between nodes"),
        ("nvlink 450GB/s, network 50GB/s", "no GPUs per node"),
        ("8 per node, nvlink 450", "'nvlink 450' of a cluster is not understood"),
        ("8 per node, 4 per node", "'4 per node' of a cluster is not understood"),
        (8, "describes no cluster"),
    ],
)
def test_what_describes_no_cluster_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Cluster.of(given)


def test_a_name_that_is_not_known_is_refused() -> None:
    with pytest.raises(UnknownName, match="dgx-h100"):
        Cluster.of("dgx-h10")


def test_the_last_axis_of_a_mesh_lies_within_a_node() -> None:
    cluster, mesh = CLUSTERS["dgx-h100"], Mesh(replicate=2, fsdp=4, tp=4)
    assert cluster.nodes(mesh, 0, "tp", 4) == 1  # ranks 0 to 3
    assert cluster.nodes(mesh, 0, "fsdp", 4) == 2  # ranks 0, 4, 8, 12 on nodes of 8
    assert cluster.nodes(mesh, 0, "replicate", 2) == 2  # ranks 0 and 16
    assert cluster.nodes(None, 0, "", 24) == 3  # neighbours


def test_ranks_of_a_node_share_the_network_cards_of_their_node() -> None:
    cluster = Cluster(name="two links", gpus=8, within=400e9, between=50e9)
    assert cluster.bandwidth(8, 1) == 400e9 * REACHED
    assert cluster.bandwidth(2, 2) == 50e9 * REACHED_BETWEEN  # one card of each node
    assert cluster.bandwidth(8, 2) == 4 * 50e9 * REACHED_BETWEEN  # four
    assert cluster.bandwidth(16, 2) == 400e9 * REACHED  # 8 cards carry 388 GB/s, more than the links within a node
