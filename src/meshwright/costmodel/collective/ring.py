"""Ring: every byte passes every rank; best for large messages, latency grows with the ranks."""

from __future__ import annotations

import numpy as np

from meshwright.costmodel.nccl import (
    LL,
    LL128,
    NET_OVERHEAD_US,
    RING_LL128_CHANNEL_GBPS,
    SIMPLE,
    CommGraph,
    FloatArray,
)
from meshwright.formula import formula

NAME = "ring"
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
SPEAKS = (LL, LL128, SIMPLE)
#: NCCL's plateau: on several nodes an all-reduce of 64 B a channel and rank or more pays this factor of latency.
_PLATEAU_BYTES = 64.0
_PLATEAU_VOLTA, _PLATEAU = 1.9, 1.4


def available(graph: CommGraph, collective: str) -> bool:
    """Always: the ring is what NCCL falls back to."""
    return True


@formula(source="NCCL 2.30.7 src/graph/tuning.cc (nRanks / nsteps); Thakur et al. 2005 for the ring", unit="ratio")
def bus_factor(collective: str, n_ranks: FloatArray) -> FloatArray:
    """Bytes that each link carries per byte of the buffer: 2(n-1)/n for all_reduce, (n-1)/n otherwise; (n,)."""
    return _passes(collective) * (n_ranks - 1.0) / n_ranks


def _passes(collective: str) -> float:
    # reduce-scatter, then all-gather
    return 2.0 if collective == "all_reduce" else 1.0


def cost(
    collective: str, protocol: int, size_bytes: FloatArray, graph: CommGraph
) -> tuple[FloatArray | float, FloatArray]:
    """(latency_us, bandwidth_gbps), (n,). Source: NCCL 2.30.7 src/graph/tuning.cc ncclTopoTuneModel."""
    channels, ranks = graph.channels, graph.n_ranks
    bus = channels * graph.channel_gbps
    if protocol == LL:  # half of each line is flags
        bus = np.minimum(bus * 0.5, graph.ll_ceiling())
    elif protocol == LL128:  # 120 of 128 bytes are data; NCCL keeps 0.92
        bus = np.minimum(bus * 0.92, channels * graph.ceiling(RING_LL128_CHANNEL_GBPS))
    gbps = bus / bus_factor(collective, ranks)
    return _latency_us(collective, protocol, size_bytes, graph), gbps


def _latency_us(collective: str, protocol: int, size_bytes: FloatArray, graph: CommGraph) -> FloatArray:
    ranks, nodes = graph.n_ranks, graph.n_nodes
    passes = _passes(collective)
    between = passes * (nodes - 1.0)
    # Each step of a ring over several nodes at least posts to the network, three operations for Simple.
    post = NET_OVERHEAD_US[graph.cpu_vendor] * (3.0 if protocol == SIMPLE else 1.0)
    hop = graph.hop_us(NAME, protocol)
    inside = np.where(graph.crosses, np.maximum(hop, post), hop)
    steps = passes * (ranks - 1.0)
    latency = graph.base_us(NAME, protocol) + (steps - between) * inside + between * graph.net_hop_us(NAME, protocol)
    if protocol == SIMPLE and collective == "all_reduce":
        plateau = graph.crosses & (size_bytes >= _PLATEAU_BYTES * graph.channels * ranks)
        latency = latency * np.where(plateau, _PLATEAU_VOLTA if graph.compute_capability < 80 else _PLATEAU, 1.0)
    return latency
