"""Hardware nouns: Gpu, Nic, Node, Cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from meshwright.specs.fact import CatalogEntry, Noun
from meshwright.specs.limits import GPUS, NICS_PER_NODE, OVERSUBSCRIPTION, at_most
from meshwright.specs.site import Site
from meshwright.units import Bytes, BytesPerS, FlopsPerS, Hertz, Watts

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
#: How the GPUs of a node reach each other.
ScaleUp = Literal["nvswitch", "nvlink-mesh", "pcie", "none"]


class Gpu(CatalogEntry):
    """One accelerator as a data sheet gives it. Peaks are dense, matrix unit only.

    ``scale_up_bytes_per_s`` is NVLink one way, all links of one GPU (0: none); ``pcie_bytes_per_s`` one way.
    """

    vendor: str
    architecture: str
    compute_capability: int = Field(description="NVIDIA compute capability times ten: 80 for A100; 0 elsewhere")
    memory_bytes: Bytes
    memory_bytes_per_s: BytesPerS
    peak_flops_per_s: Mapping[Precision, FlopsPerS]
    sm_count: PositiveInt
    l2_bytes: Bytes
    boost_clock_hz: Hertz
    scale_up_bytes_per_s: BytesPerS
    pcie_bytes_per_s: BytesPerS
    tdp_w: Watts
    year: int


class Nic(CatalogEntry):
    """A network adapter (one port group as one device). ``bytes_per_s`` one way."""

    kind: Literal["infiniband", "roce", "ethernet", "omni-path", "efa", "loopback"]
    bytes_per_s: BytesPerS


class Node(CatalogEntry):
    """A server: GPUs, what joins them, and the adapters that leave it."""

    gpu: str
    gpus_per_node: PositiveInt
    scale_up: ScaleUp
    nic: str
    nics_per_node: PositiveInt
    host_memory_bytes: Bytes
    cpu_vendor: Literal["intel", "amd", "other"]


class Cluster(Noun):
    """Equal nodes on one fabric: what the cost model sees. Built by ``catalog.cluster`` from text.

    ``oversubscription`` is 1.0 for a full-bisection fabric, 2.0 where the spine carries half of the NICs' sum.
    """

    text: str
    gpu: Gpu
    nic: Nic
    node_name: str
    n_nodes: int = Field(ge=1, le=GPUS)
    gpus_per_node: int = Field(ge=1, le=GPUS)
    nics_per_node: int = Field(ge=1, le=NICS_PER_NODE)
    scale_up: ScaleUp
    host_memory_bytes: Bytes
    cpu_vendor: Literal["intel", "amd", "other"]
    oversubscription: float = Field(default=1.0, ge=1.0, le=OVERSUBSCRIPTION, allow_inf_nan=False)
    site: Site = Site()

    @model_validator(mode="after")
    def _size(self) -> Cluster:
        at_most(self.n_gpus, GPUS, "--cluster", "MW-E215")
        return self

    @property
    def n_gpus(self) -> int:
        """GPUs of the whole cluster."""
        return self.n_nodes * self.gpus_per_node

    @property
    def nic_bytes_per_s(self) -> float:
        """What all adapters of one node carry one way, after oversubscription."""
        return self.nics_per_node * self.nic.bytes_per_s / self.oversubscription
