"""The time of a collective, by the bytes that each rank sends and the steps that follow one another."""

import pytest

from opcost.distributed.clusters import Cluster
from opcost.distributed.collectives import collective_ns

NODES = Cluster(name="round numbers", gpus=8, within=500e9, between=100 / 0.97 * 1e9, reached=0.8)
WITHIN, BETWEEN = 400, 100  # bytes per nanosecond that a rank sends within a node, and over its network card
GB = 10**9


def test_a_large_gather_within_a_node_sends_all_parts_but_its_own() -> None:
    # Simple: 8.4 µs, then 7 steps of 3.4 µs; 7/8 of 1 GB at 400 GB/s
    expected = 8_400 + 7 * 3_400 + 7 / 8 * GB / WITHIN
    assert collective_ns("all_gather", GB, 8, 1, NODES) == pytest.approx(expected)
    assert collective_ns("reduce_scatter", GB, 8, 1, NODES) == pytest.approx(expected)


def test_an_all_reduce_goes_around_twice() -> None:
    expected = 8_400 + 14 * 3_400 + 2 * 7 / 8 * GB / WITHIN
    assert collective_ns("all_reduce", GB, 8, 1, NODES) == pytest.approx(expected)


def test_a_small_gather_uses_the_protocol_of_low_latency() -> None:
    # LL: 6.6 µs, then 7 steps of 0.6 µs; flags take half of the bandwidth
    expected = 6_600 + 7 * 600 + 7 / 8 * 1024 / (WITHIN / 2)
    assert collective_ns("all_gather", 1024, 8, 1, NODES) == pytest.approx(expected)


def test_across_nodes_one_step_for_each_further_node_is_over_the_network() -> None:
    # 32 ranks on 4 nodes: 8 cards of 100 GB/s each are faster than the links within a node, so 400 GB/s; 3 of 31 steps are
    # between nodes.
    expected = 8_400 + 28 * 3_400 + 3 * 14_000 + 31 / 32 * 10 * GB / WITHIN
    assert collective_ns("all_gather", 10 * GB, 32, 4, NODES) == pytest.approx(expected)


def test_one_rank_of_each_node_has_one_network_card() -> None:
    # LL128 is the fastest: 14 µs and 3 steps of 4 µs at 92 % would be later than Simple's 8.4 µs and 3 of 14 µs at 10 GB
    expected = 8_400 + 3 * 14_000 + 3 / 4 * 10 * GB / BETWEEN
    assert collective_ns("all_gather", 10 * GB, 4, 4, NODES) == pytest.approx(expected)


def test_a_small_all_reduce_of_many_nodes_goes_over_a_tree() -> None:
    # Tree, LL: 6.8 µs; up and down through 7 other ranks of a node (0.6 µs) and log2 64 = 6 levels of nodes (5 µs). A ring of the
    # 512 ranks has 1,022 steps.
    latency = 6_800 + 2 * (7 * 600 + 6 * 5_000)
    expected = latency + 2 * 1024 / (WITHIN * 0.9 / 3.8)
    assert collective_ns("all_reduce", 1024, 512, 64, NODES) == pytest.approx(expected)
    assert expected < 6_600 + 1_022 * 600


def test_a_broadcast_passes_the_whole_payload_on() -> None:
    assert collective_ns("broadcast", GB, 8, 1, NODES) == pytest.approx(8_400 + 7 * 3_400 + GB / WITHIN)


def test_all_to_all_sends_each_part_straight_to_its_rank() -> None:
    # 16 ranks on 2 nodes, 1/16 of 1.6 GB for each: 7 parts within the node at 400 GB/s, 8 parts over the card at 100 GB/s
    expected = 8_400 + 14_000 + 8 * GB / 10 / BETWEEN
    assert collective_ns("all_to_all", 16 * GB // 10, 16, 2, NODES) == pytest.approx(expected)
    alone = 8_400 + 3_400 + 7 / 8 * GB / WITHIN
    assert collective_ns("all_to_all", GB, 8, 1, NODES) == pytest.approx(alone)


def test_one_rank_sends_nothing() -> None:
    assert collective_ns("all_reduce", GB, 1, 1, NODES) == 0
