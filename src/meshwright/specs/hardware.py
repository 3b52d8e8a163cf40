"""Hardware nouns: Gpu, Nic, Node, Cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, PositiveInt, TypeAdapter, model_validator

from meshwright.errors import InputError
from meshwright.i18n import _
from meshwright.specs.fact import CatalogEntry, Fact, Noun
from meshwright.specs.limits import GPUS, NICS_PER_NODE, OVERSUBSCRIPTION, at_most
from meshwright.specs.site import Site
from meshwright.units import Bytes, BytesPerS, FlopsPerS, Hertz, Watts

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "nvfp4"]
#: How the GPUs of a scale-up domain reach each other: a switch gives any two all links of a GPU, a mesh those between
#: the two. ``none``: not even peer-to-peer over PCIe.
ScaleUp = Literal["nvswitch", "hccs-switch", "nvlink-mesh", "xgmi-mesh", "hccs-mesh", "ethernet-mesh", "pcie", "none"]
#: What a GPU draws while it waits, as a share of its TDP: 40 to 60 W of 300 to 400 W (V100, A100), 70 of 700 (H100),
#: 140 of 1,000 (B200), as nvidia-smi shows of idle cards with a context.
IDLE_OVER_TDP = 0.13
#: How the adapters meet the switches; ``rail-optimised``: the n-th adapter of every node on the n-th leaf switch.
FabricKind = Literal["fat-tree", "rail-optimised"]
_WATTS: TypeAdapter[float] = TypeAdapter(Watts)


class Gpu(CatalogEntry):
    """One accelerator, as one process sees it, from its data sheet. Peaks are dense, matrix unit only.

    ``nvfp4`` is the rate of 4-bit block-scaled arithmetic: NVFP4 on NVIDIA, MXFP4 elsewhere. ``scale_up_bytes_per_s``
    is one way, all links of one GPU to its neighbours (0: none); ``pcie_bytes_per_s`` one way, and
    ``host_link_bytes_per_s`` where another link than PCIe leads to host memory (NVLink-C2C). ``sm_count``,
    ``l2_bytes`` and ``boost_clock_hz`` are None where nobody publishes them. ``idle_w`` is what a GPU draws while it
    waits; where nothing is written it is ``IDLE_OVER_TDP`` of ``tdp_w`` and labelled so.
    """

    vendor: str
    architecture: str
    compute_capability: int = Field(description="NVIDIA compute capability times ten: 80 for A100; 0 elsewhere")
    memory_bytes: Bytes
    memory_bytes_per_s: BytesPerS
    peak_flops_per_s: Mapping[Precision, FlopsPerS]
    sm_count: PositiveInt | None = None
    l2_bytes: Bytes | None = None
    boost_clock_hz: Hertz | None = None
    scale_up_bytes_per_s: BytesPerS
    pcie_bytes_per_s: BytesPerS
    host_link_bytes_per_s: BytesPerS | None = None
    tdp_w: Watts
    idle_w: Watts
    year: int

    @model_validator(mode="before")
    @classmethod
    def _idle(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or "idle_w" in values or "tdp_w" not in values:
            return values
        idle_w = IDLE_OVER_TDP * _WATTS.validate_python(values["tdp_w"])
        source = f"{IDLE_OVER_TDP:.0%} of tdp_w, between what idle cards of several generations draw"
        fact = Fact(text=f"{idle_w:.3g} W", source=source, label="inferred")
        return {**values, "idle_w": idle_w, "facts": {**values.get("facts", {}), "idle_w": fact}}

    @property
    def host_bytes_per_s(self) -> float:
        """Between the GPU and host memory, one way."""
        return self.pcie_bytes_per_s if self.host_link_bytes_per_s is None else self.host_link_bytes_per_s

    @property
    def is_community(self) -> bool:
        """Whether memory, bandwidth and peaks are known from nobody who answers for them."""
        names = [name for name in self.facts if name.startswith(("memory_bytes", "peak_flops_per_s"))]
        return bool(names) and all(self.facts[name].label == "community" for name in names)


class Nic(CatalogEntry):
    """A network adapter (one port group as one device). ``bytes_per_s`` one way."""

    kind: Literal["infiniband", "roce", "ethernet", "omni-path", "efa", "slingshot", "loopback"]
    bytes_per_s: BytesPerS


class Node(CatalogEntry):
    """A server: GPUs, what joins them, and the adapters that leave it.

    ``scale_up_domain_gpus``: how many GPUs its scale-up links join, where they leave the server (72 in an NVL72 rack
    of trays of 4); None: the server's own.
    """

    gpu: str
    gpus_per_node: PositiveInt
    scale_up: ScaleUp
    scale_up_domain_gpus: PositiveInt | None = None
    nic: str
    nics_per_node: PositiveInt
    host_memory_bytes: Bytes
    cpu_vendor: Literal["intel", "amd", "other"]


class Cluster(Noun):
    """Equal nodes on one fabric: what the cost model sees. Built by ``catalog.cluster`` from text.

    ``oversubscription`` is 1.0 for a full-bisection fabric, 2.0 where the spine carries half of the NICs' sum.
    ``scale_up_domain_gpus`` as in ``Node``, a multiple of ``gpus_per_node``; None: the node's own.
    """

    text: str
    gpu: Gpu
    nic: Nic
    node_name: str
    n_nodes: int = Field(ge=1, le=GPUS)
    gpus_per_node: int = Field(ge=1, le=GPUS)
    nics_per_node: int = Field(ge=1, le=NICS_PER_NODE)
    scale_up: ScaleUp
    scale_up_domain_gpus: int | None = Field(default=None, ge=1, le=GPUS)
    host_memory_bytes: Bytes
    cpu_vendor: Literal["intel", "amd", "other"]
    fabric: FabricKind = "fat-tree"
    oversubscription: float = Field(default=1.0, ge=1.0, le=OVERSUBSCRIPTION, allow_inf_nan=False)
    site: Site = Site()

    @model_validator(mode="after")
    def _size(self) -> Cluster:
        at_most(self.n_gpus, GPUS, "--cluster", "MW-E215")
        domain, per_node = self.scale_up_domain_gpus, self.gpus_per_node
        if domain is not None and domain % per_node:
            near = [n for n in (domain - domain % per_node, domain - domain % per_node + per_node) if n]
            raise InputError(
                "MW-E217",
                _("a scale-up domain of {domain} GPUs is no whole number of nodes of {count}.").format(
                    domain=domain, count=per_node
                ),
                where="cluster.scale_up_domain_gpus",
                nearest=_("Nearest: {counts}.").format(counts=" / ".join(map(str, near))),
            )
        return self

    @property
    def n_gpus(self) -> int:
        """GPUs of the whole cluster."""
        return self.n_nodes * self.gpus_per_node

    @property
    def domain_gpus(self) -> int:
        """GPUs of one scale-up domain: whole nodes, one at least, never more than there are; the last may be partly
        filled."""
        nodes = (self.scale_up_domain_gpus or 0) // self.gpus_per_node
        return self.gpus_per_node * min(max(nodes, 1), self.n_nodes)

    @property
    def nics_per_domain(self) -> int:
        """Adapters of the nodes of one scale-up domain."""
        return self.nics_per_node * (self.domain_gpus // self.gpus_per_node)

    @property
    def nic_bytes_per_s(self) -> float:
        """What all adapters of one node carry one way, after oversubscription."""
        return self.nics_per_node * self.nic.bytes_per_s / self.oversubscription
