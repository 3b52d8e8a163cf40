"""NVLS inside each node and a tree between them: all-reduce over several nodes of Hopper and later."""

from __future__ import annotations

import numpy as np

from meshwright.costmodel.collective.nvls import head_gbps
from meshwright.costmodel.nccl import (
    NVLS_TREE_CHANNEL_GBPS,
    SIMPLE,
    BoolArray,
    CommGraph,
    FloatArray,
    tree_correction,
)

NAME = "nvls_tree"
COLLECTIVES = ("all_reduce",)
SPEAKS = (SIMPLE,)
#: On Blackwell with x86 hosts NCCL corrects this tree too, below 64 B << 24.
_CORRECTED = 24


def available(graph: CommGraph, collective: str) -> bool | BoolArray:
    """More than one node, two heads or more, Hopper or later."""
    if graph.compute_capability < 90:
        return False
    return (graph.nvls_channels >= 2) & graph.crosses


def cost(
    collective: str, protocol: int, size_bytes: FloatArray, graph: CommGraph
) -> tuple[FloatArray | float, FloatArray]:
    """(latency_us, bandwidth_gbps), (n,). Source: NCCL 2.30.7 src/graph/tuning.cc ncclTopoTuneModel."""
    ranks = graph.n_ranks
    # Between two nodes root and leaf each use their adapters one way only.
    between = graph.nvls_bw_inter * np.where(graph.n_nodes <= 2, 2.0, 1.0)
    head = np.minimum(np.minimum(head_gbps(collective, graph), between), graph.ceiling(NVLS_TREE_CHANNEL_GBPS))
    gbps = graph.nvls_channels * head * ranks / (2.0 * (ranks - 1.0))
    if graph.compute_capability >= 100 and graph.cpu_vendor in ("intel", "amd"):
        gbps = gbps * tree_correction(protocol, size_bytes, _CORRECTED)
    latency_us = graph.base_us(NAME, protocol) + graph.hop_us(NAME, protocol)
    return latency_us + 2.0 * graph.log2_nodes * graph.net_hop_us(NAME, protocol), gbps
