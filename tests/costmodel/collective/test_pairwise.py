"""Pairwise all-to-all: bytes conserved on each link."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.costmodel.collective import pairwise
from meshwright.costmodel.nccl import SIMPLE, CommGraph


def graph(nodes: int, ranks_per_node: int, inter: float) -> CommGraph:
    return CommGraph(
        90, "intel", "nvlink", nodes, nodes * ranks_per_node, 8, 48.0, 48.0, p2p_bw_intra=370.0, p2p_bw_inter=inter
    )


def test_inside_a_node_all_but_the_own_part_crosses_the_link() -> None:
    gbps = float(pairwise.cost("all_to_all", SIMPLE, np.float64(1e9), graph(1, 8, 0.0))[1])
    assert 1 / gbps == pytest.approx(7 / 8 / (0.87 * 370.0))


@pytest.mark.parametrize("nodes", [2, 4, 16])
def test_across_nodes_only_what_leaves_the_node_loads_the_adapter(nodes: int) -> None:
    gbps = float(pairwise.cost("all_to_all", SIMPLE, np.float64(1e9), graph(nodes, 8, 50.0))[1])
    assert 1 / gbps == pytest.approx((nodes - 1) / nodes / 50.0)


def test_a_slow_link_inside_decides_when_adapters_are_fast() -> None:
    fast = float(pairwise.cost("all_to_all", SIMPLE, np.float64(1e9), graph(2, 8, 1e6))[1])
    assert 1 / fast == pytest.approx(7 / 16 / (0.87 * 370.0))


def test_latency_grows_with_batches_of_eight_peers() -> None:
    latency = [float(pairwise.cost("all_to_all", SIMPLE, np.float64(8), graph(nodes, 8, 50.0))[0]) for nodes in (2, 3)]
    assert latency[1] - latency[0] == pytest.approx(14.0)
