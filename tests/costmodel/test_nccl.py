"""NCCL's tuning model against the real one, the graph of clusters, and times against measured curves.

Golden rows: NCCL 2.30.7's own tuning.cc, compiled and run (``shared/data/ops/nccl_model_golden.csv``). Measured
curves: ``shared/data/collectives.csv``, public nccl-tests and PyTorch runs, each row with its source.
"""

from __future__ import annotations

import csv
import re
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from meshwright.costmodel import nccl
from meshwright.errors import InputError
from meshwright.formula import Ledger
from meshwright.specs.constants import Constant, Constants, IntervalSpec
from meshwright.specs.hardware import Cluster, Gpu, Nic

COLLECTIVE = {"AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter"}
ALGORITHM = {"Ring": "ring", "Tree": "tree", "NVLS": "nvls", "NVLSTree": "nvls_tree"}
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
            unseen_gpu_sd=0,
            unseen_attention_sd=0,
            unseen_fabric_sd=0,
            unseen_schedule_sd=0,
            unseen_overlap_sd=0,
            validated_overlap=True,
            validated_schedules=(),
            per_doubling_beyond_scale_sd=0,
            validated_gpus=(),
            validated_attention=(),
            validated_fabrics=(),
            validated_n_gpus=1,
            source="test",
        ),
    )


def bus_gbps(collective: str, size: float, n: int, seconds: float) -> float:
    return size * (2 if collective == "all_reduce" else 1) * (n - 1) / n / seconds / 1e9


# -- NCCL's own model --------------------------------------------------------------------------------------------------


def golden_rows(shared: Path) -> list[dict[str, str]]:
    with (shared / "data/ops/nccl_model_golden.csv").open() as file:
        return list(csv.DictReader(file))


def golden_graph(row: dict[str, str]) -> nccl.CommGraph:
    return nccl.CommGraph(
        int(row["compcap"]),
        row["cpu"],
        "nvlink",
        int(row["nNodes"]),
        int(row["nRanks"]),
        int(row["ring_tree_channels"]),
        float(row["bwIntra"]),
        float(row["bwInter"]),
        int(row["nvls_channels"]),
        float(row["nvls_bwIntra"]),
        float(row["nvls_bwInter"]),
    )


def test_every_golden_row_within_a_thousandth(shared: Path) -> None:
    rows = golden_rows(shared)
    assert len(rows) >= 618
    for row in rows:
        collective, graph = COLLECTIVE[row["coll"]], golden_graph(row)
        (algorithm,) = [a for a in nccl.algorithms(collective) if ALGORITHM[row["algo"]] == a.NAME]
        protocol = nccl.PROTOCOLS.index(row["proto"].lower())
        assert protocol in algorithm.SPEAKS
        assert np.all(algorithm.available(graph, collective))
        latency_us, gbps = algorithm.cost(collective, protocol, np.float64(row["bytes"]), graph)
        time_us = latency_us + float(row["bytes"]) / (1e3 * gbps)
        # The file keeps three decimals of a microsecond.
        assert time_us == pytest.approx(float(row["time_us"]), rel=1e-3), row


def test_selection_is_the_least_of_the_golden_rows(shared: Path) -> None:
    cases: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for row in golden_rows(shared):
        cases.setdefault((row["config"], row["coll"], row["bytes"]), []).append(row)
    assert len(cases) == 8 * 3 * 6
    for rows in cases.values():
        least = min(rows, key=lambda row: float(row["time_us"]))
        tuned = nccl.tuning_time_s(COLLECTIVE[least["coll"]], float(least["bytes"]), golden_graph(least))
        assert tuned.time_s * 1e6 == pytest.approx(float(least["time_us"]), rel=1e-3)
        chosen = f"{ALGORITHM[least['algo']]}/{least['proto'].lower()}"
        second = sorted(float(row["time_us"]) for row in rows)[1]
        if second > float(least["time_us"]) * 1.001:
            assert tuned.names[int(tuned.choice)] == chosen


def test_rows_equal_single_calls() -> None:
    cluster = make_cluster("H100", 64)
    size = np.array([1e4, 1e6, 1e8, 1e9])
    group, ranks, groups = np.array([8, 16, 64, 2]), np.array([8, 8, 1, 2]), np.array([1, 1, 8, 4])
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        constants = make_constants(FITTED)
        together = nccl.collective_time_s(collective, size, cluster, group, ranks, groups, constants)
        alone = [
            nccl.collective_time_s(collective, *row, constants)
            for row in zip(size, [cluster] * 4, group, ranks, groups, strict=True)
        ]
        assert together == pytest.approx(np.array(alone), rel=1e-12)


def test_ll128_needs_nvlink_and_multicast_needs_hopper() -> None:
    size = 2.0 ** np.arange(8, 32)
    pci = nccl.tuning_time_s("all_reduce", size, nccl.comm_graph(make_cluster("A100-PCIe", scale_up="pcie"), 4, 4, 1))
    assert not [name for name in pci.names if "ll128" in name]
    ampere = nccl.tuning_time_s("all_reduce", size, nccl.comm_graph(make_cluster("A100"), 8, 8, 1))
    assert not [name for name in ampere.names if "nvls" in name]
    hopper = nccl.tuning_time_s("all_reduce", size, nccl.comm_graph(make_cluster("H100"), 8, 8, 1))
    assert hopper.names[hopper.choice[-1]] == "nvls/simple"


def test_unknown_collective_names_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        nccl.tuning_time_s("all_reduced", 1.0, nccl.comm_graph(make_cluster("A100"), 8, 8, 1))
    assert caught.value.code == "MW-E310"
    assert "all_reduce" in str(caught.value.nearest)


def test_a_file_of_the_user_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "costmodel" / "collective"
    folder.mkdir(parents=True)
    (folder / "teleport.py").write_text(
        "import numpy as np\nNAME = 'teleport'\nCOLLECTIVES = ('all_reduce',)\nSPEAKS = (2,)\n"
        "def available(graph, collective):\n    return True\n"
        "def cost(collective, protocol, size_bytes, graph):\n    return 1.0, np.asarray(1e6)\n"
    )
    monkeypatch.setenv("MESHWRIGHT_PATH", str(tmp_path))
    graph = nccl.comm_graph(make_cluster("A100"), 8, 8, 1)
    tuned = nccl.tuning_time_s("all_reduce", 1e9, graph)
    assert tuned.names[int(tuned.choice)] == "teleport/simple"
    assert float(tuned.time_s) == pytest.approx(1e-6 + 1e9 / 1e15)


def test_formulas_are_recorded_in_a_ledger() -> None:
    ledger = Ledger()
    with ledger.recording():
        nccl.collective_time_s("all_reduce", 1e9, make_cluster("A100"), 8, 8, 1, make_constants(FITTED))
    assert ledger.find("tuning_time_s")
    assert ledger.find("ramp_factor")
    assert float(ledger.find("bus_factor")[0].result) == pytest.approx(1.75)


# -- The graph of a cluster --------------------------------------------------------------------------------------------


def total_gbps(gpu: str, ranks: int, nodes: int = 1, groups: int = 1, **node: object) -> float:
    graph = nccl.comm_graph(make_cluster(gpu, nodes, **node), ranks * nodes, ranks, groups)
    return float(graph.channels * graph.channel_gbps)


def test_ring_bandwidth_is_links_times_what_nccl_counts_of_one() -> None:
    # topo.h: 20 GB/s x 12 links, 20.6 x 18, 40.1 x 18
    assert total_gbps("A100", 8) == pytest.approx(240.0)
    assert total_gbps("H100", 8) == pytest.approx(370.8)
    assert total_gbps("B200", 2) == pytest.approx(721.8)


def test_a_mesh_gives_a_group_only_the_links_among_its_members() -> None:
    # DGX-1V: hybrid cube mesh, six links of which two, four and six stay in a pair, a quad, the whole node.
    volta = [total_gbps("V100", ranks, scale_up="nvlink-mesh") for ranks in (2, 4, 8)]
    assert volta == pytest.approx([40.0, 80.0, 120.0])
    # MI300X: seven links, one to each peer; measured bus bandwidths of 2 and 8 GPUs in shared/data/collectives.csv.
    amd = [total_gbps("MI300X", ranks, scale_up="nvlink-mesh") for ranks in (2, 8)]
    assert amd == pytest.approx([47.671, 312.912], rel=0.15)


def test_pcie_nodes_near_the_measured_asymptotes() -> None:
    # SimuMax a100_pcie.json: all-reduce on 2, 4 and 8 GPUs
    node = {"scale_up": "pcie", "cpu": "amd"}
    assert total_gbps("A100-PCIe", 2, **node) == pytest.approx(20.895, rel=0.1)
    assert total_gbps("A100-PCIe", 4, **node) == pytest.approx(20.772, rel=0.1)
    assert total_gbps("A100-PCIe", 8, **node) == pytest.approx(12.528, rel=0.3)
    assert total_gbps("A100-PCIe", 4, scale_up="none") == pytest.approx(total_gbps("A100-PCIe", 4, **node) / 2)


def test_groups_of_a_node_share_its_adapters() -> None:
    assert total_gbps("H100", 8, nodes=4) == pytest.approx(370.8)  # eight adapters carry more than the ring inside
    assert total_gbps("A100", 8, nodes=4, nics=4, nic_bytes_per_s=25e9) == pytest.approx(100.0)
    assert total_gbps("A100", 1, nodes=4, groups=8, nics=4, nic_bytes_per_s=25e9) == pytest.approx(12.5)
    assert total_gbps("A100", 1, nodes=4, groups=1, nics=4, nic_bytes_per_s=25e9) == pytest.approx(25.0)
    # alone in its node a GPU has four adapters, but one PCIe link
    assert total_gbps("H100", 1, nodes=2, per_node=1, nics=4) == pytest.approx(63.0)


def test_oversubscription_halves_the_share() -> None:
    cluster = make_cluster("A100", 4, nics=4, nic_bytes_per_s=25e9).model_copy(update={"oversubscription": 2.0})
    graph = nccl.comm_graph(cluster, 32, 8, 1)
    assert float(graph.channels * graph.channel_gbps) == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("gpu", "n", "measured"),
    [
        # stas00/ml-engineering network/README.md lines 925-941, 8 GiB, NVLS, GB/s of bus bandwidth
        ("H200", 5, 414.2),
        ("H200", 6, 435.6),
        ("H200", 7, 460.0),
        ("H200", 8, 473.1),
        ("B200", 6, 778.2),
        ("B200", 7, 811.2),
        ("B200", 8, 838.0),
    ],
)
def test_multicast_follows_from_counting_link_bytes(gpu: str, n: int, measured: float) -> None:
    graph = nccl.comm_graph(make_cluster(gpu), n, n, 1)
    tuned = nccl.tuning_time_s("all_reduce", 2.0**33, graph)
    assert tuned.names[int(tuned.choice)].startswith("nvls")
    assert bus_gbps("all_reduce", 2.0**33, n, float(tuned.time_s)) == pytest.approx(measured, rel=0.04)


# -- Closed forms and order --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gpu", "n"), [("A100", 2), ("A100", 8), ("V100", 8)])
def test_large_all_reduce_is_two_n_minus_one_over_n_of_the_bytes(gpu: str, n: int) -> None:
    size = 1e14
    seconds = nccl.collective_time_s("all_reduce", size, make_cluster(gpu), n, n, 1, make_constants(NEUTRAL))
    assert float(seconds) == pytest.approx(2 * (n - 1) / n * size / (total_gbps(gpu, n) * 1e9), rel=1e-3)


@pytest.mark.parametrize(("nodes", "ranks"), [(1, 8), (4, 8), (1, 4)])
def test_all_gather_plus_reduce_scatter_is_all_reduce_when_large(nodes: int, ranks: int) -> None:
    cluster, constants = make_cluster("A100", nodes), make_constants(NEUTRAL)
    gather, scatter, reduce = (
        float(nccl.collective_time_s(name, 1e13, cluster, nodes * ranks, ranks, 1, constants))
        for name in ("all_gather", "reduce_scatter", "all_reduce")
    )
    assert gather + scatter == pytest.approx(reduce, rel=1e-2)
    assert gather == pytest.approx(scatter, rel=1e-9)


def test_a_group_of_one_and_an_empty_message_are_free() -> None:
    constants = make_constants(FITTED)
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        for gpu in ("A100", "H100"):
            cluster = make_cluster(gpu, 4)
            assert float(nccl.collective_time_s(collective, 1e9, cluster, 1, 1, 8, constants)) == 0.0
            assert float(nccl.collective_time_s(collective, 0.0, cluster, 16, 8, 1, constants)) == 0.0
    assert float(nccl.point_to_point_time_s(0.0, make_cluster("A100"), False, 1, constants)) == 0.0


GROUPS = [(2, 2, 4), (8, 8, 1), (16, 8, 1), (64, 8, 1), (8, 1, 8), (128, 1, 8), (1024, 8, 1), (32, 4, 2)]


@pytest.mark.parametrize("gpu", ["A100", "H100", "B200"])
@pytest.mark.parametrize("group", GROUPS)
def test_time_grows_with_bytes(gpu: str, group: tuple[int, int, int]) -> None:
    # Each candidate but the trees is latency + bytes / bandwidth, so the least of them grows too.
    size, cluster = 2.0 ** np.arange(6, 34, 0.05), make_cluster(gpu, 128, nic_bytes_per_s=25e9)
    for collective in ("all_gather", "reduce_scatter", "all_to_all"):
        seconds = nccl.collective_time_s(collective, size, cluster, *group, make_constants(NEUTRAL))
        assert np.all(np.diff(seconds) >= 0)
    # NCCL's own steps of tree bandwidth (x0.5 to x0.6 at 4 MiB) make a tree all-reduce drop by up to a fifth there. The
    # ramp acts after NCCL's choice: where the choice moves to LL or to a faster algorithm the time may drop a little.
    for constants, collective, drop in (
        (NEUTRAL, "all_reduce", 0.20),
        (FITTED, "all_reduce", 0.26),
        (FITTED, "all_gather", 0.08),
    ):
        seconds = nccl.collective_time_s(collective, size, cluster, *group, make_constants(constants))
        assert np.min(np.diff(seconds) / seconds[:-1]) > -drop
        assert np.all(seconds[40:] > seconds[:-40])  # four times the bytes always cost more


@pytest.mark.parametrize("gpu", ["A100", "H100", "B200"])
def test_time_falls_with_adapter_bandwidth(gpu: str) -> None:
    size = 2.0 ** np.arange(10, 33)
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        for group in ((16, 8, 1), (64, 8, 1), (64, 1, 8), (32, 4, 2)):
            before = np.full(size.shape, np.inf)
            for rate in (1.25e9, 3e9, 12.5e9, 24e9, 25e9, 26e9, 48e9, 50e9, 52e9, 100e9):
                cluster = make_cluster(gpu, 8, nic_bytes_per_s=rate)
                now = nccl.collective_time_s(collective, size, cluster, *group, make_constants(NEUTRAL))
                assert np.all(now <= before * (1 + 1e-9)), (collective, group, rate)
                before = now


def test_sharing_adapters_never_helps() -> None:
    cluster, constants = make_cluster("A100", 8, nics=4, nic_bytes_per_s=25e9), make_constants(FITTED)
    seconds = [
        float(nccl.collective_time_s("all_gather", 1e9, cluster, 8, 1, groups, constants)) for groups in (1, 2, 4, 8)
    ]
    assert seconds == sorted(seconds)
    assert seconds[-1] > 1.9 * seconds[0]  # eight groups on four adapters: half an adapter each


def test_efficiency_of_the_network_goes_by_the_kind_of_adapter() -> None:
    constants = make_constants({**NEUTRAL, "network_efficiency_ratio.omni-path": 0.5})
    clusters = [make_cluster("A100", 4, nic_bytes_per_s=12.5e9, kind=kind) for kind in ("infiniband", "omni-path")]
    seconds = [float(nccl.collective_time_s("all_gather", 1e11, cluster, 32, 8, 1, constants)) for cluster in clusters]
    assert seconds[1] == pytest.approx(2 * seconds[0], rel=1e-3)


def test_point_to_point_over_link_and_adapter() -> None:
    cluster = make_cluster("A100", 4, nics=4, nic_bytes_per_s=25e9)
    near, alone, crowded = nccl.point_to_point_time_s(1e10, cluster, np.array([False, True, True]), np.array([1, 1, 8]))
    assert near == pytest.approx(1e10 / 240e9, rel=1e-3)
    assert alone == pytest.approx(1e10 / 25e9, rel=1e-3)
    assert crowded == pytest.approx(1e10 / 12.5e9, rel=1e-3)
    small = nccl.point_to_point_time_s(8.0, cluster, np.array([False, True]), 1)
    assert small == pytest.approx([11.8e-6, 22.4e-6], rel=1e-3)  # base 8.4 us + ring hop 3.4 or 14 us


def test_five_thousand_rows_are_quick() -> None:
    rng = np.random.default_rng(1)
    ranks = 2.0 ** rng.integers(0, 4, 5000)
    group, size = ranks * 2.0 ** rng.integers(0, 7, 5000), 10 ** rng.uniform(3, 10, 5000)
    cluster, constants = make_cluster("H100", 128), make_constants(FITTED)
    best = np.inf
    for _repeat in range(10):
        start = time.perf_counter()
        nccl.collective_time_s("all_reduce", size, cluster, group, ranks, 8 / ranks, constants)
        best = min(best, time.perf_counter() - start)
    assert best < 0.02  # about 1.5 ms on an idle core; wide, as the machine is shared


# -- Measured curves ---------------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    curve: str
    collective: str
    size: float
    n: int
    ranks_per_node: int
    cluster: Cluster
    seconds: float


#: What a row's fabric names: text in it -> (fixed ranks a node or None, cluster arguments).
FABRICS: dict[str, tuple[int | None, dict[str, object]]] = {
    "EFA": (8, {"kind": "efa"}),
    "4 NICs of 200": (None, {"nics": 4, "nic_bytes_per_s": 25e9}),
    "4x HDR200": (8, {"nics": 4, "nic_bytes_per_s": 25e9}),
    "8x400G IB": (8, {}),
    "1 GPU per node": (1, {"per_node": 1, "nics": 4}),
}


def fabric(text: str, gpu: str, n: int, nodes: int) -> tuple[Cluster, int] | None:
    """The cluster that a row names and its ranks a node; None where it does not name the adapters."""
    if nodes == 1:
        return make_cluster(gpu), n
    for mark, (ranks, node) in FABRICS.items():
        if mark in text:
            per_node = {"per_node": n // nodes} | node if ranks is None else node
            return make_cluster(gpu, nodes, **per_node), ranks or n // nodes
    return None


@pytest.fixture(scope="module")
def measured(shared: Path) -> list[Measured]:
    rows = []
    with (shared / "data/collectives.csv").open() as file:
        for row in csv.DictReader(file):
            gpu = re.match(r"(H200|H100|B200|A100)", row["gpu"])
            collective = {"alltoall": "all_to_all"}.get(row["collective"], row["collective"])
            skip = row["trust"] not in ("A", "B") or float(row["size_bytes"] or 0) <= 0
            if not gpu or skip or "NVLS off" in row["algo"] or "NVLS_ENABLE=0" in row["algo"]:
                continue
            size, nodes, bus = float(row["size_bytes"]), int(row["n_nodes"]), float(row["busbw_GBps"])
            # An unnamed count follows from bus over algorithm bandwidth, 2(n-1)/n.
            n = int(row["n_gpus"] or round(2 / (2 - bus / float(row["algbw_GBps"]))))
            found = fabric(row["fabric"], gpu[1], n, nodes)
            if found is None:
                continue
            factor = (2 if collective == "all_reduce" else 1) * (n - 1) / n
            seconds = float(row["time_us"]) * 1e-6 if row["time_us"] else size * factor / (bus * 1e9)
            rows.append(
                Measured(
                    f"{gpu[1]} {nodes}x{found[1]} {row['source'][:12]}",
                    collective,
                    size,
                    n,
                    found[1],
                    found[0],
                    seconds,
                )
            )
    assert len(rows) > 150
    return rows


def errors(rows: list[Measured]) -> np.ndarray:
    constants = make_constants(FITTED)
    predicted = np.array(
        [
            float(nccl.collective_time_s(r.collective, r.size, r.cluster, r.n, r.ranks_per_node, 1, constants))
            for r in rows
        ]
    )
    return predicted / np.array([r.seconds for r in rows]) - 1


@pytest.mark.parametrize(
    ("curve", "least_bytes", "bound"),
    [
        # single node, default algorithm; below 1 MiB the launch of each tool dominates (3 us in C, 20-50 us in Python)
        ("A100 1x8 stas00", 16 * MIB, 0.09),
        ("A100 1x8 PKU", 16 * MIB, 0.09),
        ("A100 1x4 PKU", 16 * MIB, 0.09),
        ("A100 1x2 PKU", 16 * MIB, 0.09),
        ("A100 1x8 stas00", 32768, 0.25),
        ("H100 1x8 NVIDIA", MIB, 0.06),
        ("H200 1x8 stas00", 32768, 0.05),
        ("B200 1x8 stas00", MIB, 0.12),
        # several nodes
        ("B200 4x8 stas00", 16 * MIB, 0.10),
        ("A100 2x4", MIB, 0.05),
        ("A100 3x8", MIB, 0.20),
        ("H200 248x8", MIB, 0.16),
        ("H100 2x1", MIB, 0.20),
    ],
)
def test_measured_all_reduce(measured: list[Measured], curve: str, least_bytes: float, bound: float) -> None:
    rows = [r for r in measured if r.curve.startswith(curve) and r.collective == "all_reduce" and r.size >= least_bytes]
    error = errors(rows)
    print(
        f"{curve} from {least_bytes:.0f} B: {len(rows)} rows, median error {np.median(abs(error)):.3f}, "
        f"bias {np.median(error):+.3f}, worst {abs(error).max():.2f}"
    )
    assert rows
    assert np.median(abs(error)) < bound


def test_measured_gathers_that_no_constant_was_fitted_to(measured: list[Measured]) -> None:
    rows = [r for r in measured if r.collective in ("all_gather", "reduce_scatter")]
    assert len(rows) >= 2
    assert abs(errors(rows)).max() < 0.03


def test_measured_all_to_all(measured: list[Measured]) -> None:
    rows = [r for r in measured if r.collective == "all_to_all" and r.size >= 16 * MIB and r.n > 2]
    error = errors(rows)
    print(f"all-to-all on 4 and 8 A100: {len(rows)} rows, median error {np.median(abs(error)):.3f}")
    assert np.median(abs(error)) < 0.15


def test_strided_groups_share_adapters_as_measured() -> None:
    # Hetu-Galvatron, two nodes, 2, 4 and 8 GPUs one of each pair in another node: 8.1, 16.2, 20.8 GB/s of bus
    # bandwidth grow with the ranks that reach adapters. The adapter is not named: about 8.1 GB/s a rank is.
    measured = [8.13007, 16.22, 20.7724]
    cluster = make_cluster("A100", 2, nics=4, nic_bytes_per_s=measured[0] * 1e9)
    ours = [float(nccl.nic_share_gbps(cluster, ranks, 1)) for ranks in (1, 2)]
    assert ours == pytest.approx(measured[:2], rel=0.05)
