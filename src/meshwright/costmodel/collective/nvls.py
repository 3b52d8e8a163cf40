"""NVLink SHARP inside one node: the NVSwitch reduces and multicasts, Hopper and later."""

from __future__ import annotations

import numpy as np

from meshwright.costmodel.nccl import NVLS_EFFICIENCY, NVLS_MAX_ARITY, SIMPLE, BoolArray, CommGraph, FloatArray

NAME = "nvls"
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
SPEAKS = (SIMPLE,)


def available(graph: CommGraph, collective: str) -> bool | BoolArray:
    """One node, two heads or more; gathers at most 32 ranks of a node (src/enqueue.cc). Across nodes it needs
    CollNet, which clusters rarely have: not modelled."""
    if not NVLS_EFFICIENCY[graph.generation]:
        return False
    allowed = (graph.nvls_channels >= 2) & ~graph.crosses
    return allowed if collective == "all_reduce" else allowed & (graph.ranks_per_node <= NVLS_MAX_ARITY)


def head_gbps(collective: str, graph: CommGraph) -> FloatArray:
    """What the switch carries for one head inside a node, GB/s, (n,)."""
    heads = np.maximum(graph.nvls_channels, 1.0)
    gbps = graph.nvls_bw_intra * NVLS_EFFICIENCY[graph.generation] * (heads - 1.0) / heads
    if collective == "all_reduce":  # reduce and broadcast overlap
        return np.asarray(gbps * 2.0)
    return np.asarray(gbps * (graph.ranks_per_node - 1.0) / graph.ranks_per_node)


def cost(
    collective: str, protocol: int, size_bytes: FloatArray, graph: CommGraph
) -> tuple[FloatArray | float, FloatArray]:
    """(latency_us, bandwidth_gbps), (n,). Source: NCCL 2.30.7 src/graph/tuning.cc ncclTopoTuneModel."""
    ranks = graph.n_ranks
    bus = graph.nvls_channels * np.minimum(head_gbps(collective, graph), graph.nvls_bw_inter)
    if collective == "all_reduce":
        bus = bus * ranks / (2.0 * (ranks - 1.0))
    return graph.hop_us(NAME, protocol), bus
