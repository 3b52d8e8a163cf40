"""Double binary tree over the nodes, a chain inside each: latency grows with log2(nodes)."""

from __future__ import annotations

import numpy as np

from meshwright.costmodel.nccl import (
    LL,
    LL128,
    SIMPLE,
    TREE_CHANNEL_GBPS,
    TREE_LL128_CHANNEL_GBPS,
    CommGraph,
    FloatArray,
    tree_correction,
)

NAME = "tree"
COLLECTIVES = ("all_reduce",)
SPEAKS = (LL, LL128, SIMPLE)
#: NCCL corrects tree bandwidth below 64 B << 23.
_CORRECTED = 23


def available(graph: CommGraph, collective: str) -> bool:
    """Always, for all_reduce (NCCL has no tree for gathers)."""
    return True


def cost(
    collective: str, protocol: int, size_bytes: FloatArray, graph: CommGraph
) -> tuple[FloatArray | float, FloatArray]:
    """(latency_us, bandwidth_gbps), (n,). Source: NCCL 2.30.7 src/graph/tuning.cc ncclTopoTuneModel."""
    channels, ppn = graph.channels, graph.ranks_per_node
    bus = np.minimum(channels * graph.channel_gbps * 0.92, channels * graph.ceiling(TREE_CHANNEL_GBPS))
    if protocol == LL:
        bus = np.minimum(bus / 3.8, graph.ll_ceiling())
    elif protocol == LL128:
        data = np.where(graph.crosses, 120.0 / 128.0, 7.0 / 9.0)
        bus = np.minimum(bus * data, channels * graph.ceiling(TREE_LL128_CHANNEL_GBPS))
    # One rank a node leaves no balanced tree (search.cc), which NCCL prices at 0.85.
    bus = np.where(ppn == 1, bus * 0.85, bus)
    hops_inside = np.floor(ppn) - 1.0
    latency_us = graph.base_us(NAME, protocol) + 2.0 * (
        hops_inside * graph.hop_us(NAME, protocol) + graph.log2_nodes * graph.net_hop_us(NAME, protocol)
    )
    # Up and down: the algorithm moves half of the bus bandwidth.
    return latency_us, 0.5 * bus * tree_correction(protocol, size_bytes, _CORRECTED)
