"""NCCL's tuning model: which algorithm and protocol it would choose, and how long it thinks they take.

``tuning_time_s`` is NCCL's own estimate, minimum over algorithm and protocol (``src/graph/tuning.cc``, NCCL 2.30.7).
Each algorithm is a file of ``costmodel/collective``; this module holds what they share. ``comm_graph`` finds the graph
of a cluster's communicators, ``communication`` corrects the estimate by the physical constants.

**Bytes.** ``size_bytes`` is what NCCL calls nBytes: the largest buffer of one rank. That is the buffer for all_reduce
and all_to_all, the *gathered* (full) buffer for all_gather, and the full input for reduce_scatter.

Units in this module, ``comm_graph`` and ``costmodel/collective`` are NCCL's: microseconds and GB/s (1e9 bytes/s);
everything that leaves them is SI.
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
