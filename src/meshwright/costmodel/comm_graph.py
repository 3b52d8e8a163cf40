"""The graph that NCCL's search would find for a communicator of a cluster: channels and bandwidths from the nouns.

NCCL measures a topology and searches it; here one rule for each kind of link gives what that search finds on the usual
machines. Sources: NCCL 2.30.7 src/graph/topo.h, search.cc. Units as in ``nccl``: GB/s (1e9 bytes/s).

A *node* here is what NCCL calls one: the GPUs that scale-up links join. That is the server, or the whole NVLink domain
where links leave it (NCCL's MNNVL cliques, src/init.cc), with the adapters of all its servers. RCCL, HCCL and HCL are
priced by the same model as an approximation: their links stand in for NVLink, they have no multicast, and their
ceilings are those of the oldest generation of the tables.
"""

from __future__ import annotations

import numpy as np

from meshwright.costmodel.nccl import NVLS_EFFICIENCY, NVLS_MAX_ARITY, BoolArray, CommGraph, FloatArray, Rows
from meshwright.specs.hardware import Cluster

#: Latency that the plugin of an AWS adapter states, microseconds, for 400 Gb/s adapters (p5en and later) and older ones
#: (aws-ofi-nccl, src/platform-aws.cpp). InfiniBand, RoCE and sockets state none (transport/net_ib/init.cc).
EFA_LATENCY_US, EFA_OLD_LATENCY_US = 35.0, 75.0
#: One NVLink by smallest compute capability: (capability, GB/s that NCCL counts, nominal GB/s one way). Source of the
#: counts: topo.h, ncclTopoNVLinkBw. Other makers' links (0): what RCCL gets of the 64 GB/s AMD states for xGMI, 48 with
#: one link and 313 with seven (stas00/ml-engineering, network/README.md), over ``nvlink_efficiency_ratio``; Huawei's
#: own simulator takes the same 0.7 for HCCS (Ascend/msmodeling, tensor_cast/device.py).
NVLINK_COUNTED = (
    (100, 40.1, 50.0),
    (90, 20.6, 25.0),
    (86, 12.0, 14.0625),
    (70, 20.0, 25.0),
    (60, 18.0, 20.0),
    (0, 47.0, 64.0),
)
#: Meshes that join every pair of a node, whatever one link carries (HCCS: 28 GB/s; Gaudi: 37.5 or 75 GB/s of Ethernet).
FULL_MESHES = ("hccs-mesh", "ethernet-mesh")
MESHES = ("nvlink-mesh", "xgmi-mesh", *FULL_MESHES)
SWITCHES = ("nvswitch", "hccs-switch")
#: Nodes on one set of leaf switches of a rail-optimised fabric: traffic among them stays below the spine. 32 of the 64
#: ports of a leaf go down (NVIDIA DGX SuperPOD reference architecture, scalable unit of 32 nodes of DGX H100).
RAIL_NODES = 32
#: Ranks beyond which multicast gains nothing more: 8 GPUs of a B200 node and 72 of a GB200 rack reach the same 838 GB/s
#: of bus bandwidth (stas00/ml-engineering, network/README.md; coreweave/nccl-tests, pull request 43).
NVLS_SATURATING_RANKS = 8.0
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


def nvlink_gbps(cluster: Cluster, ranks_per_node: Rows) -> FloatArray:
    """GB/s one way that NCCL counts between the GPUs of a group inside a node, all NVLinks of one GPU; (n,).

    A switch gives every group all links. In a mesh a group owns the links to its own members: an equal share to each
    peer where there are enough links for all, else the dimensions of a hypercube (DGX-1V: 6 links, 8 GPUs; a node of
    MI250X: 3 links that leave a package, 8 dies).
    """
    ranks = np.asarray(ranks_per_node, dtype=np.float64)
    gpu = cluster.gpu
    nominal, counted = _counted_link_gbps(cluster)
    total = gpu.scale_up_bytes_per_s / 1e9 * counted / nominal
    if cluster.scale_up not in MESHES:
        return np.broadcast_to(np.float64(total), ranks.shape)
    peers = max(cluster.gpus_per_node - 1, 1)
    if cluster.scale_up in FULL_MESHES or gpu.scale_up_bytes_per_s / 1e9 / nominal >= peers:
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


def has_nvlink(cluster: Cluster) -> bool:
    """Whether scale-up links join the GPUs (NVLink, or what stands in its place with other makers)."""
    return cluster.scale_up in (*SWITCHES, *MESHES) and cluster.gpu.scale_up_bytes_per_s > 0


def intra_gbps(cluster: Cluster, ranks_per_node: Rows) -> FloatArray:
    """GB/s one way of one GPU to its peers in the node; (n,)."""
    return (nvlink_gbps if has_nvlink(cluster) else pci_gbps)(cluster, ranks_per_node)


def reachable_nics(cluster: Cluster, ranks_per_node: Rows) -> FloatArray:
    """Adapters near enough to serve a communicator of so many ranks in a node; (n,), one or more a rank, all at most.

    With fewer adapters than GPUs neighbours share one; NCCL uses a rank's closest ones (``ncclTopoGetLocalNet``).
    """
    per_rank = max(1.0, cluster.nics_per_node / cluster.gpus_per_node)
    return np.minimum(np.asarray(ranks_per_node, dtype=np.float64) * per_rank, float(cluster.nics_per_domain))


def nic_share_gbps(cluster: Cluster, ranks_per_node: Rows, groups_per_node: Rows, n_nodes: Rows = 2) -> FloatArray:
    """GB/s one way that one communicator gets out of a node while ``groups_per_node`` equal ones are active; (n,).

    The least of: an equal share of all adapters, the adapters its ranks reach, and its ranks' own PCIe links. The
    spine's oversubscription counts, unless the fabric is rail-optimised and the communicator's ``n_nodes`` servers
    fit below one set of leaf switches, which pass their traffic on (NCCL keeps rings and trees on their rails).
    """
    ranks = np.asarray(ranks_per_node, dtype=np.float64)
    spared = (cluster.fabric == "rail-optimised") & (np.asarray(n_nodes) <= RAIL_NODES)
    adapter = cluster.nic.bytes_per_s / 1e9 / np.where(spared, 1.0, cluster.oversubscription)
    total = adapter * cluster.nics_per_domain
    reached = reachable_nics(cluster, ranks) * adapter
    share = np.minimum(total / np.maximum(groups_per_node, 1.0), reached)
    if cluster.scale_up == "ethernet-mesh":
        # These chips have the ports on their own die.
        return share
    return np.minimum(share, ranks * (cluster.gpu.pcie_bytes_per_s / 1e9))


def comm_graph(cluster: Cluster, group_size: Rows, ranks_per_node: Rows, groups_per_node: Rows) -> CommGraph:
    """The graph NCCL's search would find for communicators of ``cluster``; all rows (n,).

    ``group_size`` ranks, ``ranks_per_node`` of them in each node (scale-up domain), ``groups_per_node`` such
    communicators of a node active at once. Bandwidth is continuous where NCCL's search takes steps (its 48 of a
    50 GB/s adapter): the efficiency constants carry the difference. Sources: NCCL 2.30.7 src/graph/topo.h, search.cc.
    """
    size, ranks, groups = np.broadcast_arrays(
        *(np.asarray(rows, dtype=np.float64) for rows in (group_size, ranks_per_node, groups_per_node))
    )
    size = np.maximum(size, 1.0)
    ranks = np.clip(ranks, 1.0, size)
    nodes = np.ceil(size / ranks)
    crosses = nodes > 1
    inside = intra_gbps(cluster, ranks)
    share = nic_share_gbps(cluster, ranks, groups, nodes * (cluster.domain_gpus // cluster.gpus_per_node))
    across = np.where(ranks > 1, np.minimum(inside, share), share)
    total = np.where(crosses, across, inside)
    channels = _channels(cluster, ranks, crosses, total)
    channel = total / channels
    heads, nvls_intra, nvls_inter = _nvls(cluster, ranks, crosses, share)
    return CommGraph(
        compute_capability=cluster.gpu.compute_capability,
        cpu_vendor=cluster.cpu_vendor,
        intra_link="nvlink" if has_nvlink(cluster) else "pci",
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
        net_latency_us=plugin_latency_us(cluster),
    )


def plugin_latency_us(cluster: Cluster) -> float:
    if cluster.nic.kind != "efa":
        return 0.0
    return EFA_LATENCY_US if cluster.nic.bytes_per_s >= 50e9 else EFA_OLD_LATENCY_US


def _channels(cluster: Cluster, ranks: FloatArray, crosses: BoolArray, total: FloatArray) -> FloatArray:
    """One channel an NVLink inside a node, one an adapter across; split in two where a channel would be fast."""
    link = _counted_link_gbps(cluster)[1] if has_nvlink(cluster) else SPLIT_CHANNEL_GBPS
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
    read by the switch and S/n multicast back, S (1 + 1/n) each way, so bus bandwidth is 2 (n-1)/(n+1) of the link, up
    to ``NVLS_SATURATING_RANKS``. Across nodes a head owns its part of the adapters, as far as the switch keeps up.
    """
    none = np.zeros_like(ranks)
    if cluster.scale_up != "nvswitch" or cluster.gpu.compute_capability < 90:
        return none, none, none
    heads = np.where(ranks >= 2, np.minimum(ranks, float(NVLS_MAX_ARITY)), 0.0)
    link = nvlink_gbps(cluster, ranks)
    efficiency = NVLS_EFFICIENCY[3 if cluster.gpu.compute_capability >= 100 else 2]
    at_least_one = np.maximum(heads, 1.0)
    counted = np.minimum(ranks, NVLS_SATURATING_RANKS)
    switch = link * efficiency * 2.0 * (counted - 1.0) / (counted + 1.0)
    # A tree does not close its loop, so the search fits n/(n-1) of the link into n heads.
    intra = link / np.maximum(ranks - 1.0, 1.0) * (ranks / at_least_one)
    return heads, intra, np.where(crosses, np.minimum(share, switch), switch) / at_least_one
