"""What NCCL would choose and how long it takes: its tuning model, the graph it would find, and our few corrections.

Three layers, each usable alone:

* ``tuning_time_s``: NCCL's own estimate, minimum over algorithm and protocol (``src/graph/tuning.cc``, NCCL 2.30.7).
  Each algorithm is a file of ``costmodel/collective``; this module holds what they share.
* ``comm_graph``: channels and bandwidths of a communicator from the hardware nouns, where NCCL searches a topology.
* ``collective_time_s`` / ``point_to_point_time_s``: the estimate corrected by the physical ``Constants``.

**Bytes.** ``size_bytes`` is what NCCL calls nBytes: the largest buffer of one rank. That is the buffer for all_reduce
and all_to_all, the *gathered* (full) buffer for all_gather, and the full input for reduce_scatter.

Units inside this room and ``costmodel/collective`` are NCCL's: microseconds and GB/s (1e9 bytes/s); everything that
leaves it is SI.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from meshwright.discovery import modules
from meshwright.errors import InputError, did_you_mean
from meshwright.formula import formula
from meshwright.i18n import _
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Rows = npt.ArrayLike

# --------------------------------------------------------------------------------------------------------------------
# Constants of NCCL 2.30.7, src/graph/tuning.cc unless said otherwise. They belong to that release of the algorithm:
# the tuner's own fit, not physical constants of ours.

PROTOCOLS = ("ll", "ll128", "simple")
LL, LL128, SIMPLE = range(3)
#: What an algorithm pays once, microseconds, by protocol (``baseLatencies``).
BASE_LATENCY_US = {
    "tree": (6.8, 14.0, 8.4),
    "ring": (6.6, 14.0, 8.4),
    "nvls": (0.0, 0.0, 0.0),
    "nvls_tree": (0.0, 0.0, 0.0),
    "pat": (8.0, 8.0, 8.0),
}
#: What one hop pays, microseconds, by link, algorithm and protocol (``hwLatencies``).
HOP_LATENCY_US: dict[str, dict[str, tuple[float, float, float]]] = {
    "nvlink": {
        "tree": (0.6, 1.25, 4.0),
        "ring": (0.6, 1.9, 3.4),
        "nvls": (0, 0, 25.0),
        "nvls_tree": (0, 0, 25.0),
        "pat": (0, 0, 4.0),
    },
    "pci": {
        "tree": (1.0, 1.9, 4.0),
        "ring": (1.0, 2.5, 5.7),
        "nvls": (0, 0, 0),
        "nvls_tree": (0, 0, 0),
        "pat": (0, 0, 4.0),
    },
    "net": {
        "tree": (5.0, 8.5, 14.0),
        "ring": (2.7, 4.0, 14.0),
        "nvls": (0, 0, 18.0),
        "nvls_tree": (0, 0, 20.9),
        "pat": (0, 0, 14.0),
    },
}
# Ceilings in GB/s. Rows: Volta, Ampere, Hopper, Blackwell; columns: one node, two nodes, more.
# The LL row is the GPU generation inside one node, but the CPU vendor across nodes: 0 Intel and others, 1 AMD.
LL_MAX_GBPS = np.array([[39.0, 39.0, 20.4], [87.7, 22.5, 19.0], [141.0, 45.0, 35.0], [282.0, 90.0, 70.0]])
RING_LL128_CHANNEL_GBPS = np.array([[20.0] * 3, [20.0] * 3, [36.7] * 3, [40.0] * 3])
TREE_LL128_CHANNEL_GBPS = np.array([[20.0] * 3, [20.0] * 3, [36.7, 36.7, 29.0], [55.6, 31.67, 20.0]])
TREE_CHANNEL_GBPS = np.array([[26.5, 18.5, 10.0], [24.0, 23.6, 17.8], [38.7, 41.4, 36.0], [70.0, 42.8, 24.0]])
NVLS_TREE_CHANNEL_GBPS = np.array([[26.5, 18.5, 10.0], [24.0, 23.6, 17.8], [0.0, 57.7, 45.5], [0.0, 96.0, 80.0]])
#: Share of the link rate that NVSwitch multicast reaches, by generation (``nvlsEfficiency``).
NVLS_EFFICIENCY = (0.0, 0.0, 0.85, 0.74)
#: Posting one network operation costs the CPU this, microseconds; three times that for Simple (``getNetOverhead``).
NET_OVERHEAD_US = {"intel": 1.0, "amd": 2.0, "other": 1.0}
#: Latency that the plugin of an AWS adapter states, microseconds, for 400 Gb/s adapters (p5en and later) and older ones
#: (aws-ofi-nccl, src/platform-aws.cpp). InfiniBand, RoCE and sockets state none (transport/net_ib/init.cc).
EFA_LATENCY_US, EFA_OLD_LATENCY_US = 35.0, 75.0
#: Measured tree bandwidth over the model's, by floor(log2(bytes / 64)); NCCL uses it below 64 B x 2^23.
TREE_CORRECTION = np.array(
    [
        [1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1],
        [
            0.9,
            0.9,
            0.9,
            0.9,
            0.9,
            0.9,
            0.9,
            0.8,
            0.7,
            0.6,
            0.6,
            0.5,
            0.5,
            0.5,
            0.5,
            0.6,
            0.7,
            0.8,
            0.7,
            0.7,
            0.8,
            0.9,
            0.9,
            0.9,
        ],
    ]
)
#: NVLS reduces at most this many ranks of a node except for all_reduce (``NCCL_MAX_NVLS_ARITY``, device.h).
NVLS_MAX_ARITY = 32
#: One NVLink by smallest compute capability: (capability, GB/s that NCCL counts, nominal GB/s one way). Source of the
#: counts: topo.h, ncclTopoNVLinkBw. Other vendors' links (0): NCCL's default share, 64 GB/s as AMD states for xGMI.
NVLINK_COUNTED = (
    (100, 40.1, 50.0),
    (90, 20.6, 25.0),
    (86, 12.0, 14.0625),
    (70, 20.0, 25.0),
    (60, 18.0, 20.0),
    (0, 51.2, 64.0),
)
#: What NCCL counts of PCIe x16 (topo.h: 12 of 16 GB/s for Gen3, doubling), then what P2P through a CPU's root
#: complex leaves of it (``INTEL_P2P_OVERHEAD``: 6/5 more traffic; without it the search speeds give the same 20 GB/s).
PCI_COUNTED_RATIO = 0.75
PCI_P2P_OVERHEAD = 1.2
#: GPU to GPU across sockets, GB/s (topo.h: AMD_BW, SKL_QPI_BW, ARM_BW; SRP_QPI_BW on hosts with PCIe Gen5).
SOCKET_GBPS = {"amd": 16.0, "intel": 10.0, "other": 6.0}
SOCKET_GEN5_GBPS = 22.0
#: Graph search (search.cc, ``ncclTopoDupChannels``): channels at least this fast are split in two.
SPLIT_CHANNEL_GBPS = 25.0
SPLIT_CHANNEL_HOPPER_GBPS = 50.0


# --------------------------------------------------------------------------------------------------------------------
# The communicator


def _zero() -> FloatArray:
    return np.zeros(())


_NUMERIC = (
    "n_nodes",
    "n_ranks",
    "channels",
    "bw_intra",
    "bw_inter",
    "nvls_channels",
    "nvls_bw_intra",
    "nvls_bw_inter",
    "p2p_bw_intra",
    "p2p_bw_inter",
)


@dataclass(slots=True)
class CommGraph:
    """Communicators as NCCL's tuner sees them, one a row; numeric fields are arrays of shape (n,) or () (numbers are
    converted).

    ``n_nodes`` and ``n_ranks`` count nodes and ranks; ``channels`` rings or trees run side by side at ``bw_intra``
    (one or two nodes) or ``bw_inter`` (more) GB/s each. ``nvls_channels`` is 0 where NVSwitch multicast is missing.
    ``p2p_bw_intra`` / ``p2p_bw_inter`` are GB/s of one rank to all its peers in its node / outside it, for pairwise
    algorithms. ``intra_link`` is what joins GPUs in a node.
    """

    compute_capability: int
    cpu_vendor: Literal["intel", "amd", "other"]
    intra_link: Literal["nvlink", "pci"]
    n_nodes: FloatArray
    n_ranks: FloatArray
    channels: FloatArray
    bw_intra: FloatArray
    bw_inter: FloatArray
    nvls_channels: FloatArray = field(default_factory=_zero)
    nvls_bw_intra: FloatArray = field(default_factory=_zero)
    nvls_bw_inter: FloatArray = field(default_factory=_zero)
    p2p_bw_intra: FloatArray = field(default_factory=_zero)
    p2p_bw_inter: FloatArray = field(default_factory=_zero)
    #: what the network plugin states as its own latency (``latencyInter``): 0 for InfiniBand and sockets
    net_latency_us: float = 0.0
    #: ranks of one node, (n,)
    ranks_per_node: FloatArray = field(init=False)
    #: more than one node, (n,)
    crosses: BoolArray = field(init=False)
    #: bandwidth of one channel, (n,)
    channel_gbps: FloatArray = field(init=False)
    #: floor(log2(n_nodes)), (n,)
    log2_nodes: FloatArray = field(init=False)
    #: row and columns of the ceiling tables
    generation: int = field(init=False)
    _column: IntArray = field(init=False)

    def __post_init__(self) -> None:
        for name in _NUMERIC:
            setattr(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        nodes = self.n_nodes
        self.ranks_per_node = self.n_ranks / nodes
        self.crosses = nodes > 1
        # NCCL reads bwIntra up to two nodes: there a tree's root and leaf share the link.
        self.channel_gbps = np.where(nodes <= 2, self.bw_intra, self.bw_inter)
        self.log2_nodes = floor_log2(nodes)
        cc = self.compute_capability
        self.generation = 3 if cc >= 100 else 2 if cc >= 90 else 1 if cc >= 80 else 0
        self._column = np.minimum(nodes, 3.0).astype(np.int64) - 1

    def ceiling(self, table: FloatArray) -> FloatArray:
        """The (n,) entries of a ceiling table for this GPU generation and these node counts, GB/s."""
        return np.asarray(table[self.generation][self._column])

    def ll_ceiling(self) -> FloatArray:
        """The (n,) LL ceilings, GB/s: by GPU generation in one node, by CPU vendor across nodes."""
        across = LL_MAX_GBPS[1 if self.cpu_vendor == "amd" else 0]
        return np.where(self.crosses, across[self._column], float(LL_MAX_GBPS[self.generation, 0]))

    def hop_us(self, algorithm: str, protocol: int) -> FloatArray | float:
        """Latency of one hop inside a node, microseconds; a lone rank has no NVLink path and counts as PCI."""
        nvlink = HOP_LATENCY_US["nvlink"][algorithm][protocol]
        pci = HOP_LATENCY_US["pci"][algorithm][protocol]
        if self.intra_link == "pci" or nvlink == pci:
            return pci
        return np.where(self.ranks_per_node > 1, nvlink, pci)

    def net_hop_us(self, algorithm: str, protocol: int) -> FloatArray | float:
        """Latency of one hop between nodes, microseconds; fully exposed (the tree's) with one rank a node."""
        # Simple also waits for the flush of what arrived.
        plugin = self.net_latency_us * (2.0 if protocol == SIMPLE else 1.0)
        shared = HOP_LATENCY_US["net"][algorithm][protocol] + plugin
        alone = HOP_LATENCY_US["net"]["tree"][protocol] + plugin
        return shared if shared == alone else np.where(self.ranks_per_node == 1, alone, shared)

    def base_us(self, algorithm: str, protocol: int) -> float:
        """Latency that every call of the algorithm pays, microseconds."""
        return BASE_LATENCY_US[algorithm][protocol]


def floor_log2(value: Rows) -> FloatArray:
    """floor(log2(value)) of positive values, exact at powers of two; shape of ``value``."""
    return np.frexp(np.asarray(value, dtype=np.float64))[1].astype(np.float64) - 1.0


def tree_correction(protocol: int, size_bytes: FloatArray, last: int) -> FloatArray:
    """NCCL's static correction of tree bandwidth, 1 above ``64 B << last``; shape of ``size_bytes``."""
    step = floor_log2(np.maximum(size_bytes, 64.0)) - 6.0
    table = np.append(TREE_CORRECTION[protocol][:last], 1.0)
    return np.asarray(table[np.minimum(step, float(last)).astype(np.int64)])


# --------------------------------------------------------------------------------------------------------------------
# The choice


class Algorithm(Protocol):
    """What a file of ``costmodel/collective`` provides (module attributes; a user's file joins by lying there).

    ``NAME``; ``COLLECTIVES`` it can run; ``SPEAKS``, its protocols as indices into ``PROTOCOLS``. ``available``
    answers whether a row can use it (a bool or (n,) bools). ``cost`` returns latency in microseconds and algorithm
    bandwidth in GB/s (bytes of ``size_bytes`` per time), broadcastable to (n,); bandwidth 0 or less: not allowed. It
    runs with numpy's division warnings off, as a group of one takes no steps.
    """

    NAME: str
    COLLECTIVES: Sequence[str]
    SPEAKS: Sequence[int]

    def available(self, graph: CommGraph, collective: str) -> bool | BoolArray:
        """Whether the algorithm may run ``collective`` on each row."""

    def cost(
        self, collective: str, protocol: int, size_bytes: FloatArray, graph: CommGraph
    ) -> tuple[FloatArray | float, FloatArray]:
        """(latency_us, bandwidth_gbps) of each row."""


class Tuned(NamedTuple):
    """NCCL's choice for n rows: ``time_s = latency_s + size_bytes / bytes_per_s``.

    ``choice`` (n,) indexes ``names``, text such as ``ring/ll128``; -1 where nothing is allowed (time is then inf).
    ``buffered`` (n,) marks rows of LL128 and Simple, which move chunks through buffers; LL flags every 8 bytes.
    """

    time_s: FloatArray
    choice: IntArray
    names: tuple[str, ...]
    latency_s: FloatArray
    bytes_per_s: FloatArray
    buffered: BoolArray


@functools.cache
def _algorithms(collective: str, _path: str) -> tuple[Algorithm, ...]:
    found = [cast(Algorithm, module) for module in modules("costmodel/collective")]
    chosen = tuple(algorithm for algorithm in found if collective in algorithm.COLLECTIVES)
    if not chosen:
        known = sorted({name for algorithm in found for name in algorithm.COLLECTIVES})
        raise InputError(
            "MW-E310",
            _("'{name}' is not a collective.").format(name=collective),
            nearest=did_you_mean(collective, known),
        )
    return chosen


def algorithms(collective: str) -> tuple[Algorithm, ...]:
    """The algorithms that can run ``collective``. Raises InputError (MW-E310) for an unknown one."""
    return _algorithms(collective, os.environ.get("MESHWRIGHT_PATH", ""))


@formula(source="NCCL 2.30.7 src/graph/tuning.cc ncclTopoGetAlgoTime, src/enqueue.cc topoGetAlgoInfo", unit="s")
def tuning_time_s(collective: str, size_bytes: Rows, graph: CommGraph) -> Tuned:
    """The least of latency + bytes / bandwidth over all allowed algorithms and protocols.

    ``size_bytes`` (n,) in NCCL's convention (see the module). Raises InputError (MW-E310) for an unknown collective.
    """
    size = np.asarray(size_bytes, dtype=np.float64)
    shape = np.broadcast_shapes(size.shape, graph.channel_gbps.shape)
    size = np.broadcast_to(size, shape)
    best = np.full(shape, np.inf)
    latency = np.zeros(shape)
    bandwidth = np.zeros(shape)
    choice = np.full(shape, -1.0)
    names: list[str] = []
    for algorithm in algorithms(collective):
        allowed = algorithm.available(graph, collective)
        if not np.any(allowed):
            continue
        for protocol in algorithm.SPEAKS:
            # LL128 needs stores that stay whole on the way: NVLink inside the node (tuning.cc, typeIntra <= PATH_NVB).
            if protocol == LL128 and (graph.intra_link != "nvlink" or graph.compute_capability < 70):
                continue
            # A group of one divides by zero steps; the caller prices it.
            with np.errstate(divide="ignore", invalid="ignore"):
                latency_us, gbps = algorithm.cost(collective, protocol, size, graph)
                time_us = size / (1e3 * gbps) + latency_us
            better = (time_us < best) & (gbps > 0) & allowed
            # np.where, as masked copies are several times slower.
            best = np.where(better, time_us, best)
            latency = np.where(better, latency_us, latency)
            bandwidth = np.where(better, gbps, bandwidth)
            choice = np.where(better, float(len(names)), choice)
            names.append(f"{algorithm.NAME}/{PROTOCOLS[protocol]}")
    chosen = choice.astype(np.int64)
    buffered = np.array([*(not name.endswith("/ll") for name in names), False])[chosen]
    return Tuned(best * 1e-6, chosen, tuple(names), latency * 1e-6, bandwidth * 1e9, buffered)


# --------------------------------------------------------------------------------------------------------------------
# The graph of a cluster


def nvlink_gbps(cluster: Cluster, ranks_per_node: Rows) -> FloatArray:
    """GB/s one way that NCCL counts between the GPUs of a group inside a node, all NVLinks of one GPU; (n,).

    A switch gives every group all links. In a mesh a group owns the links to its own members: an equal share to each
    peer where there are enough links for all, else the dimensions of a hypercube (DGX-1V: 6 links, 8 GPUs).
    """
    ranks = np.asarray(ranks_per_node, dtype=np.float64)
    gpu = cluster.gpu
    nominal, counted = _counted_link_gbps(cluster)
    total = gpu.scale_up_bytes_per_s / 1e9 * counted / nominal
    if cluster.scale_up != "nvlink-mesh":
        return np.broadcast_to(np.float64(total), ranks.shape)
    peers = max(cluster.gpus_per_node - 1, 1)
    if gpu.scale_up_bytes_per_s / 1e9 / nominal >= peers:
        return total * np.minimum(1.0, np.maximum(ranks - 1.0, 1.0) / peers)
    dimensions = np.log2(np.maximum(ranks, 2.0)) / np.log2(cluster.gpus_per_node)
    return np.asarray(total * np.minimum(1.0, dimensions))


def _counted_link_gbps(cluster: Cluster) -> tuple[float, float]:
    """(nominal, counted) GB/s of one NVLink of the cluster's GPU."""
    capability = cluster.gpu.compute_capability
    return next((nominal, counted) for least, counted, nominal in NVLINK_COUNTED if capability >= least)


def pci_gbps(cluster: Cluster, ranks_per_node: Rows) -> FloatArray:
    """GB/s one way between GPUs of a node without NVLink, as NCCL counts it; (n,).

    A group larger than half of the node crosses the sockets. Without peer access ("none") each byte is written to
    host memory and read back, which the one link per GPU carries in opposite directions but the root complex carries
    twice: half of the rate.
    """
    ranks = np.asarray(ranks_per_node, dtype=np.float64)
    rate = cluster.gpu.pcie_bytes_per_s / 1e9 * PCI_COUNTED_RATIO / PCI_P2P_OVERHEAD
    gen5 = cluster.gpu.pcie_bytes_per_s >= 60e9
    socket = SOCKET_GEN5_GBPS if gen5 else SOCKET_GBPS[cluster.cpu_vendor]
    rates = np.where(ranks > max(1, cluster.gpus_per_node // 2), min(rate, socket), rate)
    return rates * 0.5 if cluster.scale_up == "none" else rates


def _has_nvlink(cluster: Cluster) -> bool:
    return cluster.scale_up in ("nvswitch", "nvlink-mesh") and cluster.gpu.scale_up_bytes_per_s > 0


def intra_gbps(cluster: Cluster, ranks_per_node: Rows) -> FloatArray:
    """GB/s one way of one GPU to its peers in the node; (n,)."""
    return (nvlink_gbps if _has_nvlink(cluster) else pci_gbps)(cluster, ranks_per_node)


def reachable_nics(cluster: Cluster, ranks_per_node: Rows) -> FloatArray:
    """Adapters near enough to serve a communicator of so many ranks in a node; (n,), one or more a rank, all at most.

    With fewer adapters than GPUs neighbours share one; NCCL uses a rank's closest ones (``ncclTopoGetLocalNet``).
    """
    per_rank = max(1.0, cluster.nics_per_node / cluster.gpus_per_node)
    return np.minimum(np.asarray(ranks_per_node, dtype=np.float64) * per_rank, float(cluster.nics_per_node))


def nic_share_gbps(cluster: Cluster, ranks_per_node: Rows, groups_per_node: Rows) -> FloatArray:
    """GB/s one way that one communicator gets out of a node while ``groups_per_node`` equal ones are active; (n,).

    The least of: an equal share of all adapters, the adapters its ranks reach, and its ranks' own PCIe links.
    """
    ranks = np.asarray(ranks_per_node, dtype=np.float64)
    total = cluster.nic_bytes_per_s / 1e9
    reached = reachable_nics(cluster, ranks) * (total / cluster.nics_per_node)
    pci = ranks * (cluster.gpu.pcie_bytes_per_s / 1e9)
    return np.minimum(np.minimum(total / np.maximum(groups_per_node, 1.0), reached), pci)


def comm_graph(cluster: Cluster, group_size: Rows, ranks_per_node: Rows, groups_per_node: Rows) -> CommGraph:
    """The graph NCCL's search would find for communicators of ``cluster``; all rows (n,).

    ``group_size`` ranks, ``ranks_per_node`` of them in each node, ``groups_per_node`` such communicators of a node
    active at once. Bandwidth is continuous where NCCL's search takes steps (its 48 of a 50 GB/s adapter): the
    efficiency constants carry the difference. Sources: NCCL 2.30.7 src/graph/topo.h, search.cc.
    """
    size, ranks, groups = np.broadcast_arrays(
        *(np.asarray(rows, dtype=np.float64) for rows in (group_size, ranks_per_node, groups_per_node))
    )
    size = np.maximum(size, 1.0)
    ranks = np.clip(ranks, 1.0, size)
    nodes = np.ceil(size / ranks)
    crosses = nodes > 1
    inside = intra_gbps(cluster, ranks)
    share = nic_share_gbps(cluster, ranks, groups)
    across = np.where(ranks > 1, np.minimum(inside, share), share)
    total = np.where(crosses, across, inside)
    channels = _channels(cluster, ranks, crosses, total)
    channel = total / channels
    heads, nvls_intra, nvls_inter = _nvls(cluster, ranks, crosses, share)
    return CommGraph(
        compute_capability=cluster.gpu.compute_capability,
        cpu_vendor=cluster.cpu_vendor,
        intra_link="nvlink" if _has_nvlink(cluster) else "pci",
        n_nodes=nodes,
        n_ranks=size,
        channels=channels,
        bw_intra=channel,
        bw_inter=channel,
        nvls_channels=heads,
        nvls_bw_intra=nvls_intra,
        nvls_bw_inter=nvls_inter,
        p2p_bw_intra=inside,
        p2p_bw_inter=share / ranks,
        net_latency_us=_plugin_latency_us(cluster),
    )


def _plugin_latency_us(cluster: Cluster) -> float:
    if cluster.nic.kind != "efa":
        return 0.0
    return EFA_LATENCY_US if cluster.nic.bytes_per_s >= 50e9 else EFA_OLD_LATENCY_US


def _channels(cluster: Cluster, ranks: FloatArray, crosses: BoolArray, total: FloatArray) -> FloatArray:
    """One channel an NVLink inside a node, one an adapter across; split in two where a channel would be fast."""
    link = _counted_link_gbps(cluster)[1] if _has_nvlink(cluster) else SPLIT_CHANNEL_GBPS
    inside = np.maximum(1.0, np.round(total / link))
    nics = np.maximum(1.0, np.floor(reachable_nics(cluster, ranks)))
    hopper = cluster.gpu.compute_capability > 80
    fast = np.where((nics > 4) & hopper, SPLIT_CHANNEL_HOPPER_GBPS, SPLIT_CHANNEL_GBPS)
    # Strictly faster: NCCL counts 24 of a 25 GB/s adapter and 48 of a 50 GB/s one, and does not split those.
    return np.where(crosses, np.where(total / nics > fast, 2.0 * nics, nics), inside)


def _nvls(
    cluster: Cluster, ranks: FloatArray, crosses: BoolArray, share: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Heads and per-head bandwidths of NVSwitch multicast, zeros where there is none.

    One head a GPU. In one node the ceiling follows from what each link carries for S bytes over n ranks: its own S
    read by the switch and S/n multicast back, S (1 + 1/n) each way, so bus bandwidth is 2 (n-1)/(n+1) of the link.
    Across nodes a head owns its part of the adapters.
    """
    none = np.zeros_like(ranks)
    if cluster.scale_up != "nvswitch" or cluster.gpu.compute_capability < 90:
        return none, none, none
    heads = np.where(ranks >= 2, np.minimum(ranks, float(NVLS_MAX_ARITY)), 0.0)
    link = nvlink_gbps(cluster, ranks)
    efficiency = NVLS_EFFICIENCY[3 if cluster.gpu.compute_capability >= 100 else 2]
    at_least_one = np.maximum(heads, 1.0)
    switch = link * efficiency * 2.0 * (ranks - 1.0) / (ranks + 1.0)
    # A tree does not close its loop, so the search fits n/(n-1) of the link into n heads.
    intra = link / np.maximum(ranks - 1.0, 1.0) * (ranks / at_least_one)
    return heads, intra, np.where(crosses, share, switch) / at_least_one


# --------------------------------------------------------------------------------------------------------------------
# Time on a cluster


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
    with np.errstate(invalid="ignore"):
        transfer_s = size / (tuned.bytes_per_s * efficiency)
    ramp_bytes = get("collective_ramp_bytes") * (graph.channels / RAMP_CHANNELS)
    slower = np.where(tuned.buffered, ramp_factor(size, ramp_bytes), 1.0)
    time_s = tuned.latency_s + get("collective_overhead_s") + transfer_s * slower
    return np.where((graph.n_ranks > 1) & (size > 0), time_s, 0.0)


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
    link = "nvlink" if _has_nvlink(cluster) else "pci"
    base_us = BASE_LATENCY_US["ring"][SIMPLE]
    far_us = HOP_LATENCY_US["net"]["ring"][SIMPLE] + 2.0 * _plugin_latency_us(cluster)
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
