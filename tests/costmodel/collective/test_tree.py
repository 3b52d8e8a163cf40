"""Tree: logarithmic latency, corrected bandwidth."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.costmodel.collective import ring, tree
from meshwright.costmodel.nccl import LL, SIMPLE, CommGraph


def over(nodes: int, ranks_per_node: int = 8) -> CommGraph:
    return CommGraph(80, "intel", "nvlink", nodes, nodes * ranks_per_node, 4, 24.0, 24.0)


def test_latency_grows_by_one_hop_up_and_down_for_twice_the_nodes() -> None:
    latency = [float(tree.cost("all_reduce", LL, np.float64(64.0), over(nodes))[0]) for nodes in (4, 8, 16, 31)]
    assert np.diff(latency[:3]) == pytest.approx([10.0, 10.0])  # 2 x 5 us
    assert latency[3] == latency[2]  # floor of the logarithm


def test_a_tree_beats_the_ring_for_small_messages_on_many_nodes() -> None:
    size = np.float64(4096.0)
    times = []
    for algorithm in (tree, ring):
        latency_us, gbps = algorithm.cost("all_reduce", LL, size, over(64))
        times.append(float(latency_us + size / (1e3 * gbps)))
    assert times[0] < times[1] / 5


def test_bandwidth_steps_follow_the_correction_table() -> None:
    size = 64.0 * 2.0 ** np.arange(25)
    gbps = np.asarray(tree.cost("all_reduce", SIMPLE, size, over(2))[1])
    plain = 0.5 * min(4 * 24 * 0.92, 4 * 23.6)
    assert gbps[[0, 11, 22, 23, 24]] == pytest.approx(plain * np.array([0.9, 0.5, 0.9, 1.0, 1.0]))


def test_one_rank_a_node_has_no_balanced_tree() -> None:
    many, single = (float(tree.cost("all_reduce", SIMPLE, np.float64(1e9), over(4, n))[1]) for n in (8, 1))
    assert single == pytest.approx(0.85 * many)
