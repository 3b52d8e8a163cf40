"""Adapters a node and oversubscription, as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import catalog
from meshwright.catalog.fabric import nic_of, parse_fabric
from meshwright.errors import InputError
from meshwright.specs.hardware import Nic

USUAL = catalog.nic("IB-HDR")


@pytest.mark.parametrize(
    ("text", "count", "kind", "gb_per_s"),
    [
        ("4x100Gb OPA", 4, "omni-path", 100),
        ("4 x 100 Gb/s Omni-Path", 4, "omni-path", 100),
        ("8x400Gb IB", 8, "infiniband", 400),
        ("8x400Gbps InfiniBand", 8, "infiniband", 400),
        ("8x200 Gbit/s HDR InfiniBand", 8, "infiniband", 200),
        ("8xNDR", 8, "infiniband", 400),
        ("4x200Gb RoCE", 4, "roce", 200),
        ("2x200G RoCEv2", 2, "roce", 200),
        ("1x25GbE", 1, "ethernet", 25),
        ("1x100G Ethernet", 1, "ethernet", 100),
        ("32x100Gb EFA", 32, "efa", 100),
        ("8x25GB/s IB", 8, "infiniband", 200),
        ("4x0.4Tb/s IB", 4, "infiniband", 400),
        ("8x50Gb RoCE", 8, "roce", 50),
        ("8x400G", 8, "infiniband", 400),
        ("400Gb IB", None, "infiniband", 400),
        ("XDR", None, "infiniband", 800),
        ("ConnectX-8", None, "infiniband", 800),
        ("4xSlingshot", 4, "slingshot", 200),
        ("8x400Gb Omni-Path", 8, "omni-path", 400),
    ],
)
def test_adapters(text: str, count: int | None, kind: str, gb_per_s: float) -> None:
    fabric = parse_fabric([text], USUAL, "--cluster")
    assert fabric.nic is not None
    assert fabric.nics_per_node == count
    assert fabric.nic.kind == kind
    assert fabric.nic.bytes_per_s * 8 / 1e9 == pytest.approx(gb_per_s)
    assert fabric.nic.facts["bytes_per_s"].source


@pytest.mark.parametrize(
    ("text", "ratio"), [("2:1 oversubscribed", 2.0), ("3:2", 1.5), ("1:1", 1.0), ("non-blocking", 1.0)]
)
def test_oversubscription(text: str, ratio: float) -> None:
    fabric = parse_fabric(["4x100Gb OPA", text], USUAL, "--cluster")
    assert fabric.oversubscription == ratio
    assert fabric.nics_per_node == 4


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("4x100Gb FOO", "MW-E213", "RoCE"),
        ("4xNDX", "MW-E213", "NDR?"),
        ("4x400GB IB", "MW-E213", "400Gb"),
        ("4x0Gb IB", "MW-E213", "nothing"),
        ("0x100Gb OPA", "MW-E215", "none"),
        ("1:2", "MW-E214", "2:1"),
        ("0:1", "MW-E214", "2:1"),
    ],
)
def test_what_is_refused(text: str, code: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_fabric([text], USUAL, "--cluster")
    assert caught.value.code == code
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("rail-optimised", "rail-optimised"),
        ("rail optimized fabric", "rail-optimised"),
        ("fat-tree", "fat-tree"),
        ("Leaf-Spine", "fat-tree"),
    ],
)
def test_topologies(text: str, kind: str) -> None:
    fabric = parse_fabric(["8x400Gb IB", text, "2:1"], USUAL, "--cluster")
    assert fabric.kind == kind
    assert fabric.nics_per_node == 8
    assert fabric.oversubscription == 2.0


def test_a_scale_up_domain() -> None:
    assert parse_fabric(["NVL64"], USUAL, "--cluster").scale_up_domain_gpus == 64


def test_two_kinds_of_adapters_are_refused() -> None:
    with pytest.raises(InputError, match="2x25GbE"):
        parse_fabric(["4x100Gb OPA", "2x25GbE"], USUAL, "--cluster")


@given(
    speed=st.integers(1, 3200), words=st.sampled_from([("IB", "infiniband"), ("RoCE", "roce"), ("OPA", "omni-path")])
)
def test_any_speed_is_taken_as_said(speed: int, words: tuple[str, str]) -> None:
    nic = nic_of(f"{speed}Gb {words[0]}", None, "--cluster")
    assert nic.kind == words[1]
    assert nic.bytes_per_s == pytest.approx(speed * 1e9 / 8)


@given(st.text(max_size=20))
def test_nonsense_is_an_input_error(text: str) -> None:
    try:
        found: Nic | InputError = nic_of(text, USUAL, "--cluster")
    except InputError as error:
        found = error
    assert found.bytes_per_s > 0 if isinstance(found, Nic) else found.exit_code == 2
