"""PAT: gathers with one rank a node."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.costmodel.collective import pat, ring
from meshwright.costmodel.nccl import SIMPLE, CommGraph


def one_a_node(nodes: int) -> CommGraph:
    return CommGraph(80, "intel", "nvlink", nodes, nodes, 1, 24.0, 24.0)


def test_only_one_rank_a_node() -> None:
    assert np.all(pat.available(one_a_node(4), "all_gather"))
    assert not np.any(pat.available(CommGraph(80, "intel", "nvlink", 4, 32, 4, 24.0, 24.0), "all_gather"))
    assert not np.any(pat.available(one_a_node(1), "all_gather"))


def test_latency_is_partly_logarithmic_and_below_the_ring_on_many_nodes() -> None:
    # tuning.cc: 8 + log2(nodes) x 14 / 3.5 + 2.8 ranks
    latency_us, gbps = pat.cost("all_gather", SIMPLE, np.float64(8), one_a_node(64))
    assert float(latency_us) == pytest.approx(8 + 6 * 4 + 64 * 2.8)
    assert float(gbps) == pytest.approx(18.0)
    assert float(latency_us) < float(ring.cost("all_gather", SIMPLE, np.float64(8), one_a_node(64))[0]) / 3
