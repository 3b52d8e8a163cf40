"""Machines and constants for the tests of communication: data sheets of their own, apart from the catalog."""

from __future__ import annotations

from meshwright.costmodel.comm_graph import comm_graph
from meshwright.specs.constants import Constant, Constants, IntervalSpec
from meshwright.specs.hardware import Cluster, Gpu, Nic

#: Data sheets: architecture, compute capability x 10, NVLink one way, PCIe one way.
GPUS = {
    "V100": ("volta", 70, 150e9, 15.75e9),
    "A100": ("ampere", 80, 300e9, 31.5e9),
    "A100-PCIe": ("ampere", 80, 0.0, 31.5e9),
    "H100": ("hopper", 90, 450e9, 63e9),
    "H200": ("hopper", 90, 450e9, 63e9),
    "B200": ("blackwell", 100, 900e9, 63e9),
    "MI300X": ("cdna3", 0, 448e9, 63e9),
}
#: Fitted to the curves below (soft-L1 on log time, 64 KiB and up, one fixed time a curve): one value a generation.
FITTED = {
    "collective_overhead_s": 20e-6,
    "nvlink_efficiency_ratio": 0.95,
    "nvlink_efficiency_ratio.ampere": 0.91,
    "nvlink_efficiency_ratio.hopper": 0.978,
    "nvlink_efficiency_ratio.blackwell": 0.957,
    "network_efficiency_ratio": 0.973,
    "collective_ramp_bytes": 18e6,
    "collective_ramp_bytes.ampere": 8.2e6,
    "collective_ramp_bytes.hopper": 19.4e6,
    "collective_ramp_bytes.blackwell": 38.7e6,
}
NEUTRAL = {
    "collective_overhead_s": 0.0,
    "nvlink_efficiency_ratio": 1.0,
    "network_efficiency_ratio": 1.0,
    "collective_ramp_bytes": 0.0,
}
MIB = 2.0**20


def make_cluster(
    gpu: str,
    nodes: int = 1,
    *,
    per_node: int = 8,
    nics: int = 8,
    nic_bytes_per_s: float = 50e9,
    scale_up: str = "nvswitch",
    cpu: str = "intel",
    kind: str = "infiniband",
) -> Cluster:
    architecture, capability, scale_up_bytes_per_s, pcie_bytes_per_s = GPUS[gpu]
    return Cluster(
        text=gpu,
        node_name=gpu,
        n_nodes=nodes,
        gpus_per_node=per_node,
        nics_per_node=nics,
        scale_up=scale_up,
        host_memory_bytes=1e12,
        cpu_vendor=cpu,
        nic=Nic(name="nic", kind=kind, bytes_per_s=nic_bytes_per_s),
        gpu=Gpu(
            name=gpu,
            vendor="v",
            architecture=architecture,
            compute_capability=capability,
            memory_bytes=80e9,
            memory_bytes_per_s=2e12,
            peak_flops_per_s={"bf16": 312e12},
            sm_count=108,
            l2_bytes=40e6,
            boost_clock_hz=1.41e9,
            scale_up_bytes_per_s=scale_up_bytes_per_s,
            pcie_bytes_per_s=pcie_bytes_per_s,
            tdp_w=400,
            year=2020,
        ),
    )


def make_constants(values: dict[str, float]) -> Constants:
    return Constants(
        {
            name: Constant(
                value=value,
                unit="",
                prior=value,
                prior_sd_ratio=0.3,
                label="fitted",
                source="test",
                identified_by="",
                what="",
            )
            for name, value in values.items()
        },
        IntervalSpec(
            base_sd=0.1,
            launch_sd=0,
            tp_comm_sd=0,
            network_sd=0,
            unseen_sd={},
            validated_overlap=True,
            validated_schedules=(),
            per_doubling_beyond_scale_sd=0,
            validated_gpus=(),
            validated_attention=(),
            validated_fabrics=(),
            validated_precisions=(),
            validated_blocks=(),
            validated_n_gpus=1,
            source="test",
        ),
    )


def bus_gbps(collective: str, size: float, n: int, seconds: float) -> float:
    return size * (2 if collective == "all_reduce" else 1) * (n - 1) / n / seconds / 1e9


def total_gbps(gpu: str, ranks: int, nodes: int = 1, groups: int = 1, **node: object) -> float:
    graph = comm_graph(make_cluster(gpu, nodes, **node), ranks * nodes, ranks, groups)
    return float(graph.channels * graph.channel_gbps)
