"""The graph of a cluster: links, adapters, sharing."""

from __future__ import annotations

import pytest

from meshwright.costmodel import nccl
from meshwright.costmodel.comm_graph import comm_graph
from tests.costmodel.machines import bus_gbps, make_cluster, total_gbps


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
    graph = comm_graph(cluster, 32, 8, 1)
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
    graph = comm_graph(make_cluster(gpu), n, n, 1)
    tuned = nccl.tuning_time_s("all_reduce", 2.0**33, graph)
    assert tuned.names[int(tuned.choice)].startswith("nvls")
    assert bus_gbps("all_reduce", 2.0**33, n, float(tuned.time_s)) == pytest.approx(measured, rel=0.04)
