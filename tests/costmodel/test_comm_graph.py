"""The graph of a cluster: links, adapters, sharing."""

from __future__ import annotations

import pytest

from meshwright import catalog
from meshwright.costmodel import nccl
from meshwright.costmodel.comm_graph import comm_graph, nic_share_gbps
from meshwright.specs.hardware import Cluster
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


def _bus(cluster: Cluster, n: int, ranks: int, groups: int = 1, size_bytes: float = 2.0**32) -> float:
    graph = comm_graph(cluster, n, ranks, groups)
    tuned = nccl.tuning_time_s("all_reduce", size_bytes, graph)
    return bus_gbps("all_reduce", size_bytes, n, float(tuned.time_s))


def _nvl72(nodes: int = 18) -> Cluster:
    tray = make_cluster("B200", nodes, per_node=4, nics=4, nic_bytes_per_s=50e9)
    return tray.model_copy(update={"scale_up_domain_gpus": 72})


def test_a_rack_is_one_node_of_72() -> None:
    rack = _nvl72()
    assert rack.domain_gpus == 72
    # GB200 NVL72, 4 GiB: 839 GB/s of bus bandwidth (coreweave/nccl-tests pull 43); NVIDIA's own slide has 850, and 680
    # without multicast (stas00/ml-engineering, network/README.md).
    assert _bus(rack, 72, 72) == pytest.approx(839.0, rel=0.05)
    ring = comm_graph(rack.model_copy(update={"scale_up": "nvlink-mesh"}), 72, 72, 1)
    assert float(ring.channels * ring.channel_gbps) == pytest.approx(680.0, rel=0.1)
    # the same GPUs in servers that no NVLink leaves: the trays' own adapters bound the ring
    trays = rack.model_copy(update={"scale_up_domain_gpus": None})
    assert _bus(trays, 72, 4) == pytest.approx(200.0, rel=0.1)


@pytest.mark.parametrize(
    # GB200 in partitions of 4 and 8 GPUs joined by InfiniBand alone, 16 GiB, ring (NVIDIA/nccl issue 1801)
    ("domain", "n", "measured"),
    [(4, 12, 196.72), (8, 24, 393.66)],
)
def test_a_domain_has_the_adapters_of_all_its_servers(domain: int, n: int, measured: float) -> None:
    cluster = make_cluster("B200", 6, per_node=4, nics=4).model_copy(update={"scale_up_domain_gpus": domain})
    graph = comm_graph(cluster, n, domain, 1)
    assert float(graph.channels * graph.channel_gbps) == pytest.approx(measured, rel=0.03)


def test_groups_of_a_rack_share_the_adapters_of_the_rack() -> None:
    four_racks = _nvl72(72)
    assert four_racks.nics_per_domain == 72
    # 72 groups of one rank a rack: one adapter each; 9 groups of eight ranks: eight adapters each
    assert float(nic_share_gbps(four_racks, 1.0, 72.0)) == pytest.approx(50.0)
    assert float(nic_share_gbps(four_racks, 8.0, 9.0)) == pytest.approx(400.0)
    graph = comm_graph(four_racks, 288, 72, 1)
    # no more than the switch carries, however many adapters there are
    assert float(graph.nvls_channels * graph.nvls_bw_inter) <= 900.0
    assert float(graph.n_nodes) == 4


def test_a_partly_filled_last_rack_counts() -> None:
    # 256 GPUs: three racks of 72 and one of 40
    graph = comm_graph(_nvl72(64), 256, 72, 1)
    assert float(graph.n_nodes) == 4
    assert float(graph.ranks_per_node) == 64.0


def test_rails_spare_the_spine_within_a_scalable_unit() -> None:
    thin = make_cluster("H100", 64).model_copy(update={"oversubscription": 4.0})
    rails = thin.model_copy(update={"fabric": "rail-optimised"})
    for nodes, wanted in ((32, 370.8), (33, 100.0), (64, 100.0)):
        graph = comm_graph(rails, 8 * nodes, 8, 1)
        assert float(graph.channels * graph.channel_gbps) == pytest.approx(wanted), nodes
    fat = comm_graph(thin, 8 * 32, 8, 1)
    assert float(fat.channels * fat.channel_gbps) == pytest.approx(100.0)
    full = rails.model_copy(update={"oversubscription": 1.0})
    assert comm_graph(full, 512, 8, 1).bw_inter == comm_graph(make_cluster("H100", 64), 512, 8, 1).bw_inter


@pytest.mark.parametrize(
    ("text", "ranks", "gbps"),
    [
        # links of the data sheets times the 0.73 that is counted of other makers' (47 of 64 GB/s)
        ("8xMI300X", 8, 448.0 * 0.734),
        ("8xMI300X", 2, 64.0 * 0.734),
        ("8xMI355X", 8, 535.5 * 0.734),
        ("8xGaudi2", 8, 262.5 * 0.734),
        ("8xGaudi3", 2, 75.0 * 0.734),
        ("8xAscend-910B2", 8, 196.0 * 0.734),
        ("8xAscend-910B2", 2, 28.0 * 0.734),
        # three links that leave a package: a hypercube of eight dies
        ("8xMI250X", 2, 50.0 * 0.734),
        ("8xMI250X", 8, 150.0 * 0.734),
        # behind a switch a pair has all links
        ("48 nodes of Atlas-900-A3-node", 2, 196.0 * 0.734),
        ("48 nodes of Atlas-900-A3-node", 768, 196.0 * 0.734),
    ],
)
def test_other_makers_links(text: str, ranks: int, gbps: float) -> None:
    graph = comm_graph(catalog.cluster(text)[0], ranks, ranks, 1)
    assert float(graph.channels * graph.channel_gbps) == pytest.approx(gbps, rel=0.01)
    assert float(graph.nvls_channels) == 0.0


def test_rccl_near_the_measured_asymptotes() -> None:
    # 4 GiB on MI300X (stas00/ml-engineering, network/README.md), with the efficiency that every link is corrected by
    cluster = catalog.cluster("8xMI300X")[0]
    for n, measured in ((2, 47.671), (8, 312.912)):
        assert 0.95 * _bus(cluster, n, n) == pytest.approx(measured, rel=0.08)


def test_ports_on_the_die_do_not_pass_pcie() -> None:
    # Gaudi 3: three ports of 200 Gb/s leave a chip, 75 GB/s, more than its PCIe link carries
    cluster = catalog.cluster("16 nodes of Gaudi3-server")[0]
    assert float(nic_share_gbps(cluster, 1.0, 8.0)) == pytest.approx(75.0)


def test_more_of_anything_is_never_slower() -> None:
    for text in ("64x4 GB200", "16x8 MI300X", "16 nodes of Atlas-800T-A2", "32x8 H100"):
        cluster = catalog.cluster(text)[0]
        domain = cluster.domain_gpus
        for ranks in (1, 2, 4, domain):
            few = nic_share_gbps(cluster, ranks, domain / ranks)
            better = cluster.model_copy(update={"nics_per_node": cluster.nics_per_node * 2})
            assert float(nic_share_gbps(better, ranks, domain / ranks)) >= float(few)
            wider = cluster.model_copy(update={"oversubscription": 2.0})
            assert float(nic_share_gbps(wider, ranks, domain / ranks)) <= float(few)
