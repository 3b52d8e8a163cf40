"""Times of collectives: closed forms, monotonicity, measured curves.

Measured: ``shared/data/collectives.csv``, public nccl-tests and PyTorch runs, each row with its source.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from meshwright.costmodel.comm_graph import nic_share_gbps
from meshwright.costmodel.communication import collective_time_s, point_to_point_time_s
from meshwright.formula import Ledger
from meshwright.specs.hardware import Cluster
from tests.costmodel.machines import FITTED, MIB, NEUTRAL, make_cluster, make_constants, total_gbps


def test_rows_equal_single_calls() -> None:
    cluster = make_cluster("H100", 64)
    size = np.array([1e4, 1e6, 1e8, 1e9])
    group, ranks, groups = np.array([8, 16, 64, 2]), np.array([8, 8, 1, 2]), np.array([1, 1, 8, 4])
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        constants = make_constants(FITTED)
        together = collective_time_s(collective, size, cluster, group, ranks, groups, constants)
        alone = [
            collective_time_s(collective, *row, constants)
            for row in zip(size, [cluster] * 4, group, ranks, groups, strict=True)
        ]
        assert together == pytest.approx(np.array(alone), rel=1e-12)


def test_formulas_are_recorded_in_a_ledger() -> None:
    ledger = Ledger()
    with ledger.recording():
        collective_time_s("all_reduce", 1e9, make_cluster("A100"), 8, 8, 1, make_constants(FITTED))
    assert ledger.find("tuning_time_s")
    assert ledger.find("ramp_factor")
    assert float(ledger.find("bus_factor")[0].result) == pytest.approx(1.75)


@pytest.mark.parametrize(("gpu", "n"), [("A100", 2), ("A100", 8), ("V100", 8)])
def test_large_all_reduce_is_two_n_minus_one_over_n_of_the_bytes(gpu: str, n: int) -> None:
    size = 1e14
    seconds = collective_time_s("all_reduce", size, make_cluster(gpu), n, n, 1, make_constants(NEUTRAL))
    assert float(seconds) == pytest.approx(2 * (n - 1) / n * size / (total_gbps(gpu, n) * 1e9), rel=1e-3)


@pytest.mark.parametrize(("nodes", "ranks"), [(1, 8), (4, 8), (1, 4)])
def test_all_gather_plus_reduce_scatter_is_all_reduce_when_large(nodes: int, ranks: int) -> None:
    cluster, constants = make_cluster("A100", nodes), make_constants(NEUTRAL)
    gather, scatter, reduce = (
        float(collective_time_s(name, 1e13, cluster, nodes * ranks, ranks, 1, constants))
        for name in ("all_gather", "reduce_scatter", "all_reduce")
    )
    assert gather + scatter == pytest.approx(reduce, rel=1e-2)
    assert gather == pytest.approx(scatter, rel=1e-9)


def test_a_group_of_one_and_an_empty_message_are_free() -> None:
    constants = make_constants(FITTED)
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        for gpu in ("A100", "H100"):
            cluster = make_cluster(gpu, 4)
            assert float(collective_time_s(collective, 1e9, cluster, 1, 1, 8, constants)) == 0.0
            assert float(collective_time_s(collective, 0.0, cluster, 16, 8, 1, constants)) == 0.0
    assert float(point_to_point_time_s(0.0, make_cluster("A100"), False, 1, constants)) == 0.0


GROUPS = [(2, 2, 4), (8, 8, 1), (16, 8, 1), (64, 8, 1), (8, 1, 8), (128, 1, 8), (1024, 8, 1), (32, 4, 2)]


@pytest.mark.parametrize("gpu", ["A100", "H100", "B200"])
@pytest.mark.parametrize("group", GROUPS)
def test_time_grows_with_bytes(gpu: str, group: tuple[int, int, int]) -> None:
    # Each candidate but the trees is latency + bytes / bandwidth, so the least of them grows too.
    size, cluster = 2.0 ** np.arange(6, 34, 0.05), make_cluster(gpu, 128, nic_bytes_per_s=25e9)
    for collective in ("all_gather", "reduce_scatter", "all_to_all"):
        seconds = collective_time_s(collective, size, cluster, *group, make_constants(NEUTRAL))
        assert np.all(np.diff(seconds) >= 0)
    # NCCL's own steps of tree bandwidth (x0.5 to x0.6 at 4 MiB) make a tree all-reduce drop by up to a fifth there. The
    # ramp acts after NCCL's choice: where the choice moves to LL or to a faster algorithm the time may drop a little.
    for constants, collective, drop in (
        (NEUTRAL, "all_reduce", 0.20),
        (FITTED, "all_reduce", 0.26),
        (FITTED, "all_gather", 0.08),
    ):
        seconds = collective_time_s(collective, size, cluster, *group, make_constants(constants))
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
                now = collective_time_s(collective, size, cluster, *group, make_constants(NEUTRAL))
                assert np.all(now <= before * (1 + 1e-9)), (collective, group, rate)
                before = now


def test_sharing_adapters_never_helps() -> None:
    cluster, constants = make_cluster("A100", 8, nics=4, nic_bytes_per_s=25e9), make_constants(FITTED)
    seconds = [float(collective_time_s("all_gather", 1e9, cluster, 8, 1, groups, constants)) for groups in (1, 2, 4, 8)]
    assert seconds == sorted(seconds)
    assert seconds[-1] > 1.9 * seconds[0]  # eight groups on four adapters: half an adapter each


def test_efficiency_of_the_network_goes_by_the_kind_of_adapter() -> None:
    constants = make_constants({**NEUTRAL, "network_efficiency_ratio.omni-path": 0.5})
    clusters = [make_cluster("A100", 4, nic_bytes_per_s=12.5e9, kind=kind) for kind in ("infiniband", "omni-path")]
    seconds = [float(collective_time_s("all_gather", 1e11, cluster, 32, 8, 1, constants)) for cluster in clusters]
    assert seconds[1] == pytest.approx(2 * seconds[0], rel=1e-3)


def test_point_to_point_over_link_and_adapter() -> None:
    cluster = make_cluster("A100", 4, nics=4, nic_bytes_per_s=25e9)
    near, alone, crowded = point_to_point_time_s(1e10, cluster, np.array([False, True, True]), np.array([1, 1, 8]))
    assert near == pytest.approx(1e10 / 240e9, rel=1e-3)
    assert alone == pytest.approx(1e10 / 25e9, rel=1e-3)
    assert crowded == pytest.approx(1e10 / 12.5e9, rel=1e-3)
    small = point_to_point_time_s(8.0, cluster, np.array([False, True]), 1)
    assert small == pytest.approx([11.8e-6, 22.4e-6], rel=1e-3)  # base 8.4 us + ring hop 3.4 or 14 us


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
        [float(collective_time_s(r.collective, r.size, r.cluster, r.n, r.ranks_per_node, 1, constants)) for r in rows]
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
    ours = [float(nic_share_gbps(cluster, ranks, 1)) for ranks in (1, 2)]
    assert ours == pytest.approx(measured[:2], rel=0.05)


@pytest.mark.parametrize("gpu", ["A100", "H100", "B200"])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("nodes", [2, 3, 16])
def test_no_all_reduce_is_faster_than_its_bytes_over_the_adapters(gpu: str, ranks: int, nodes: int) -> None:
    """Each of N nodes sends 2 (N - 1) / N of the buffer through its part of the adapters, whatever the algorithm."""
    cluster = make_cluster(gpu, 16)
    for groups in {1, 8 // ranks}:
        share = float(nic_share_gbps(cluster, ranks, groups)) * 1e9
        seconds = collective_time_s("all_reduce", 1e11, cluster, nodes * ranks, ranks, groups, make_constants(NEUTRAL))
        assert float(seconds) >= 2 * (nodes - 1) / nodes * 1e11 / share
