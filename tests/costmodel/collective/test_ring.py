"""Ring: closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.costmodel.collective import ring
from meshwright.costmodel.nccl import LL, LL128, SIMPLE, CommGraph


def one_node(n: int) -> CommGraph:
    return CommGraph(80, "intel", "nvlink", 1, n, 12, 20.0, 20.0)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_all_reduce_moves_each_byte_twice_but_for_the_own_part(n: int) -> None:
    latency_us, gbps = ring.cost("all_reduce", SIMPLE, np.float64(1e9), one_node(n))
    assert float(gbps) == pytest.approx(240 * n / (2 * (n - 1)))
    assert float(latency_us) == pytest.approx(8.4 + 2 * (n - 1) * 3.4)


@pytest.mark.parametrize("protocol", [LL, LL128, SIMPLE])
def test_a_gather_is_half_of_an_all_reduce(protocol: int) -> None:
    base = one_node(8).base_us("ring", protocol)
    whole, whole_gbps = ring.cost("all_reduce", protocol, np.float64(1e6), one_node(8))
    half, half_gbps = ring.cost("all_gather", protocol, np.float64(1e6), one_node(8))
    assert float(half_gbps) == pytest.approx(2 * float(whole_gbps))
    assert float(half) - base == pytest.approx((float(whole) - base) / 2)


def test_protocols_trade_bandwidth_for_latency() -> None:
    (ll, ll_gbps), (ll128, ll128_gbps), (simple, simple_gbps) = (
        ring.cost("all_reduce", protocol, np.float64(1e6), one_node(8)) for protocol in (LL, LL128, SIMPLE)
    )
    assert ll < ll128 < simple
    assert ll_gbps < ll128_gbps < simple_gbps


def test_the_processor_caps_ll_across_nodes_and_posts_slower_on_amd() -> None:
    def across(vendor: str) -> tuple[float, float]:
        graph = CommGraph(90, vendor, "nvlink", 4, 32, 8, 50.0, 50.0)
        latency_us, gbps = ring.cost("all_gather", LL, np.float64(1e4), graph)
        return float(latency_us), float(gbps) * 31 / 32

    assert across("intel")[1] == pytest.approx(20.4)
    assert across("amd")[1] == pytest.approx(19.0)
    # 31 steps of which 3 cross nodes; the others cost at least one network post: 1 us on Intel, 2 us on AMD.
    assert across("amd")[0] - across("intel")[0] == pytest.approx(28.0)


def test_plateau_of_a_ring_over_nodes_starts_at_64_bytes_a_channel_and_rank() -> None:
    graph = CommGraph(80, "intel", "nvlink", 2, 16, 4, 24.0, 24.0)
    below, above = (ring.cost("all_reduce", SIMPLE, np.float64(size), graph)[0] for size in (64 * 64 - 1, 64 * 64))
    assert float(above) == pytest.approx(1.4 * float(below))
