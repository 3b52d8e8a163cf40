"""NCCL's tuning model against the real one.

Golden rows: NCCL 2.30.7's own tuning.cc, compiled and run (``shared/data/ops/nccl_model_golden.csv``).
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from meshwright.costmodel import nccl
from meshwright.costmodel.comm_graph import comm_graph
from meshwright.errors import InputError
from tests.costmodel.machines import make_cluster

COLLECTIVE = {"AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter"}
ALGORITHM = {"Ring": "ring", "Tree": "tree", "NVLS": "nvls", "NVLSTree": "nvls_tree"}


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


def test_ll128_needs_nvlink_and_multicast_needs_hopper() -> None:
    size = 2.0 ** np.arange(8, 32)
    pci = nccl.tuning_time_s("all_reduce", size, comm_graph(make_cluster("A100-PCIe", scale_up="pcie"), 4, 4, 1))
    assert not [name for name in pci.names if "ll128" in name]
    ampere = nccl.tuning_time_s("all_reduce", size, comm_graph(make_cluster("A100"), 8, 8, 1))
    assert not [name for name in ampere.names if "nvls" in name]
    hopper = nccl.tuning_time_s("all_reduce", size, comm_graph(make_cluster("H100"), 8, 8, 1))
    assert hopper.names[hopper.choice[-1]] == "nvls/simple"


def test_unknown_collective_names_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        nccl.tuning_time_s("all_reduced", 1.0, comm_graph(make_cluster("A100"), 8, 8, 1))
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
    graph = comm_graph(make_cluster("A100"), 8, 8, 1)
    tuned = nccl.tuning_time_s("all_reduce", 1e9, graph)
    assert tuned.names[int(tuned.choice)] == "teleport/simple"
    assert float(tuned.time_s) == pytest.approx(1e-6 + 1e9 / 1e15)
