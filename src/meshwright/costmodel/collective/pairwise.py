"""Pairwise exchange: all-to-all as grouped sends and receives, the only way NCCL has.

NCCL's tuner has no model of it. Each rank sends 1/n of its buffer to each peer; the parts for its node and for other
nodes travel at the same time over different links, and the slower of the two decides.
"""

from __future__ import annotations

import numpy as np

from meshwright.costmodel.nccl import SIMPLE, CommGraph, FloatArray

NAME = "pairwise"
COLLECTIVES = ("all_to_all",)
SPEAKS = (SIMPLE,)
#: Peers that one fused kernel serves side by side (NCCL 2.30.7 NCCL_MAX_DEV_WORK_P2P_PER_BATCH, src/include/device.h).
_PEERS_AT_ONCE = 8.0
#: NVLink bandwidth of pairwise copies over that of a ring, measured at 256 MiB and more: 0.84 to 0.89 on 4 and 8 A100
#: (Hetu-Galvatron sp_time_1nodes_8gpus_per_node.json), 0.89 on B200 (SimuMax b200_bf16_ceperm.json, all2all over
#: all_gather).
_LINK_SHARE = 0.87


def available(graph: CommGraph, collective: str) -> bool:
    """Wherever ranks can reach each other."""
    return True


def cost(
    collective: str, protocol: int, size_bytes: FloatArray, graph: CommGraph
) -> tuple[FloatArray | float, FloatArray]:
    """(latency_us, bandwidth_gbps), (n,). Source: conservation of bytes on each link; latencies NCCL's ring steps."""
    ranks, ppn = graph.n_ranks, graph.ranks_per_node
    inside = np.where(ppn > 1, _LINK_SHARE * graph.p2p_bw_intra * ranks / np.maximum(ppn - 1.0, 1.0), np.inf)
    outside = np.where(graph.crosses, graph.p2p_bw_inter * ranks / np.maximum(ranks - ppn, 1.0), np.inf)
    rounds_inside = np.ceil((ppn - 1.0) / _PEERS_AT_ONCE)
    rounds_outside = np.ceil((ranks - ppn) / _PEERS_AT_ONCE)
    latency_us = (
        graph.base_us("ring", protocol)
        + rounds_inside * graph.hop_us("ring", protocol)
        + rounds_outside * graph.net_hop_us("ring", protocol)
    )
    return latency_us, np.minimum(inside, outside)
