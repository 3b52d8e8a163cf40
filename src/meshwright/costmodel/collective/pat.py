"""PAT (parallel aggregated trees): gathers with one rank a node, latency partly logarithmic."""

from __future__ import annotations

from meshwright.costmodel.nccl import SIMPLE, BoolArray, CommGraph, FloatArray

NAME = "pat"
COLLECTIVES = ("all_gather", "reduce_scatter")
SPEAKS = (SIMPLE,)


def available(graph: CommGraph, collective: str) -> bool | BoolArray:
    """One rank a node, several nodes (tuning.cc ncclPatEnable)."""
    return (graph.ranks_per_node == 1) & graph.crosses if graph.compute_capability >= 60 else False


def cost(
    collective: str, protocol: int, size_bytes: FloatArray, graph: CommGraph
) -> tuple[FloatArray | float, FloatArray]:
    """(latency_us, bandwidth_gbps), (n,). Source: NCCL 2.30.7 src/graph/tuning.cc ncclTopoTuneModel."""
    latency_us = (
        graph.base_us(NAME, protocol) + graph.log2_nodes * graph.net_hop_us(NAME, protocol) / 3.5 + graph.n_ranks * 2.8
    )
    return latency_us, 0.75 * graph.channels * graph.channel_gbps
