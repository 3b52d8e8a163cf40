"""Where groups sit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel.mesh import place
from meshwright.specs.layout import Layout, LayoutBatch

CLUSTER = catalog.cluster("4x8 A100-80GB")[0]


def _brute_force(axes: tuple[str, ...], order: str, degrees: dict[str, int], per_node: int) -> tuple[int, int]:
    """Ranks of rank 0's group on its node, and groups of the axes on that node, by listing every rank."""
    names = order.split("-")
    n = int(np.prod(list(degrees.values())))
    coordinates = []
    for rank in range(n):
        rest, place_of = rank, {}
        for name in names:
            place_of[name] = rest % degrees[name]
            rest //= degrees[name]
        coordinates.append(place_of)
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, where in enumerate(coordinates):
        groups.setdefault(tuple(where[name] for name in names if name not in axes), []).append(rank)
    of_zero = next(members for members in groups.values() if 0 in members)
    on_node = sum(1 for members in groups.values() if any(rank < per_node for rank in members))
    return sum(1 for rank in of_zero if rank < per_node), on_node


def _check(group: str, rows: LayoutBatch, axes: tuple[str, ...], order: str, degrees: dict[str, int]) -> None:
    found = place(group, CLUSTER, rows)
    assert int(found.size[0]) == np.prod([degrees[axis] for axis in axes])
    expected = _brute_force(axes, order, degrees, 8)
    assert (int(found.ranks_per_node[0]), int(found.groups_per_node[0])) == expected, (order, degrees, group)


@pytest.mark.parametrize("order", ["tp-cp-dp-pp", "tp-cp-pp-dp", "dp-tp-pp-cp"])
def test_placement_equals_listing_every_rank(order: str) -> None:
    for tp, cp, pp in itertools.product((1, 2, 4, 8, 16), (1, 2, 4), (1, 2, 4)):
        if 32 % (tp * cp * pp):
            continue
        degrees = {"tp": tp, "cp": cp, "dp": 32 // (tp * cp * pp), "pp": pp}
        rows = LayoutBatch.of([Layout(**degrees, rank_order=order)])
        for axis in ("tp", "cp", "pp"):
            _check(axis, rows, (axis,), order, degrees)
        _check("dp", rows, ("cp", "dp"), order, degrees)


@pytest.mark.parametrize("order", ["tp-cp-dp-pp", "tp-cp-pp-dp"])
def test_shards_replicas_and_experts_sit_where_listing_puts_them(order: str) -> None:
    for tp, pp, replicate, ep, etp in itertools.product((1, 2, 4), (1, 2), (1, 2, 4), (1, 2, 4, 8), (1, 2)):
        dp = 32 // (tp * pp)
        if dp % replicate or (tp * dp) % (ep * etp * replicate):
            continue
        layout = Layout(dp=dp, tp=tp, pp=pp, dp_replicate=replicate, ep=ep, etp=etp, rank_order=order)
        rows = LayoutBatch.of([layout])
        # Shards are inside replicas, and experts have a mesh of their own over the same ranks.
        dense = {"tp": tp, "cp": 1, "shard": dp // replicate, "replicate": replicate, "pp": pp}
        names = order.replace("dp", "shard-replicate")
        _check("shard", rows, ("cp", "shard"), names, dense)
        _check("replicate", rows, ("replicate",), names, dense)
        expert_dp = tp * dp // (ep * etp)
        experts = {"etp": etp, "ep": ep, "shard": expert_dp // replicate, "replicate": replicate, "pp": pp}
        names = order.replace("tp", "etp").replace("cp", "ep").replace("dp", "shard-replicate")
        for group, axis in (("ep", "ep"), ("etp", "etp"), ("expert_shard", "shard"), ("expert_replicate", "replicate")):
            _check(group, rows, (axis,), names, experts)
