"""Seconds of a collective or a send on a cluster: NCCL's own estimate, corrected by the physical constants."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.comm_graph import comm_graph, has_nvlink, intra_gbps, nic_share_gbps, plugin_latency_us
from meshwright.costmodel.nccl import (
    BASE_LATENCY_US,
    HOP_LATENCY_US,
    SIMPLE,
    CommGraph,
    FloatArray,
    Rows,
    tuning_time_s,
)
from meshwright.formula import formula
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster

#: Channels that ``collective_ramp_bytes`` is stated for: one for each NVLink of an H100 or B200. What is in flight
#: grows with the channels: one ramp a channel fits the curves of one and several nodes better than one a message.
RAMP_CHANNELS = 18.0


@formula(source="our form; ramp fitted to the measured all-reduce curves named in the constants", unit="ratio")
def ramp_factor(size_bytes: FloatArray, ramp_bytes: FloatArray) -> FloatArray:
    """How much longer the bandwidth part takes while the pipeline of chunks fills: 2 when small, 1 when large.

    Chunks in flight grow with the message until they reach the buffer size, so the fill costs as much as the transfer
    for small messages and a constant time for large ones: 1 + ramp / (size + ramp). Shapes (n,), bytes.
    """
    return 1.0 + ramp_bytes / (size_bytes + ramp_bytes)


def collective_time_s(
    collective: str,
    size_bytes: Rows,
    cluster: Cluster,
    group_size: Rows,
    ranks_per_node: Rows,
    groups_per_node: Rows,
    constants: Constants,
) -> FloatArray:
    """Seconds of one collective call, (n,): NCCL's choice and estimate, corrected by the physical constants.

    ``size_bytes`` as in the module; see ``comm_graph`` for the group. A group of one, or no bytes, costs exactly 0.
    Constants, by GPU architecture: ``collective_overhead_s``; ``nvlink_efficiency_ratio`` inside a node with NVLink;
    ``network_efficiency_ratio`` across nodes, by the adapter's kind first; ``collective_ramp_bytes``, which fills
    ``RAMP_CHANNELS`` channels and in proportion those that a communicator has. Raises InputError (MW-E310) for an
    unknown collective.
    """
    size = np.asarray(size_bytes, dtype=np.float64)
    graph = comm_graph(cluster, group_size, ranks_per_node, groups_per_node)
    tuned = tuning_time_s(collective, size, graph)
    get = functools.partial(_constant, constants, cluster)
    inside = get("nvlink_efficiency_ratio") if graph.intra_link == "nvlink" else 1.0
    efficiency = np.where(graph.crosses, _network_efficiency(constants, cluster), inside)
    rate = tuned.bytes_per_s
    if collective == "all_reduce" and graph.crosses.any():
        rate = np.minimum(rate, _wire_bytes_per_s(graph))
    with np.errstate(invalid="ignore"):
        transfer_s = size / (rate * efficiency)
    ramp_bytes = get("collective_ramp_bytes") * (graph.channels / RAMP_CHANNELS)
    slower = np.where(tuned.buffered, ramp_factor(size, ramp_bytes), 1.0)
    time_s = tuned.latency_s + get("collective_overhead_s") + transfer_s * slower
    return np.where((graph.n_ranks > 1) & (size > 0), time_s, 0.0)


def _wire_bytes_per_s(graph: CommGraph) -> FloatArray:
    """What adapters let an all-reduce across nodes move at most, bytes/s; (n,), infinite inside a node.

    Each of N nodes sends 2 (N - 1) / N of the buffer. NCCL's estimate for NVLS trees between two nodes is above that.
    """
    nodes = np.where(graph.crosses, graph.n_nodes, np.inf)
    share = graph.p2p_bw_inter * graph.ranks_per_node * 1e9
    return np.where(graph.crosses, share / (2.0 * (1.0 - 1.0 / nodes)), np.inf)


def point_to_point_time_s(
    size_bytes: Rows,
    cluster: Cluster,
    crosses_node: npt.ArrayLike,
    senders_per_node: Rows,
    constants: Constants | None = None,
) -> FloatArray:
    """Seconds of one send with its receive, (n,): latency + bytes over the link, or over the sender's NIC share.

    ``crosses_node`` (n,) bools; ``senders_per_node`` GPUs of a node that send out at once. Latency is NCCL's for one
    Simple step over that link. With ``constants`` their efficiencies and ``collective_overhead_s`` act as in
    ``collective_time_s``. No bytes cost exactly 0.
    """
    size = np.asarray(size_bytes, dtype=np.float64)
    across = np.asarray(crosses_node, dtype=np.bool_)
    link = "nvlink" if has_nvlink(cluster) else "pci"
    base_us = BASE_LATENCY_US["ring"][SIMPLE]
    far_us = HOP_LATENCY_US["net"]["ring"][SIMPLE] + 2.0 * plugin_latency_us(cluster)
    latency_us = base_us + np.where(across, far_us, HOP_LATENCY_US[link]["ring"][SIMPLE])
    near, far, overhead_s = 1.0, 1.0, 0.0
    if constants is not None:
        near = _constant(constants, cluster, "nvlink_efficiency_ratio") if link == "nvlink" else 1.0
        far = _network_efficiency(constants, cluster)
        overhead_s = _constant(constants, cluster, "collective_overhead_s")
    # One pair: in a mesh only the links between the two, on PCIe no more than one socket.
    inside = intra_gbps(cluster, np.float64(2.0 if link == "nvlink" else 1.0))
    outside = nic_share_gbps(cluster, np.float64(1.0), senders_per_node)
    gbps = np.where(across, outside * far, inside * near)
    return np.where(size > 0, latency_us * 1e-6 + overhead_s + size / (gbps * 1e9), 0.0)


def _constant(constants: Constants, cluster: Cluster, name: str) -> float:
    return constants.get(name, cluster.nic.kind, cluster.gpu.architecture)


def _network_efficiency(constants: Constants, cluster: Cluster) -> float:
    return constants.get("network_efficiency_ratio", cluster.nic.kind, cluster.gpu.architecture)
