"""Where groups sit."""

from __future__ import annotations

import numpy as np

from meshwright import catalog
from meshwright.costmodel.mesh import place
from meshwright.specs.layout import Layout, LayoutBatch


def _brute_force(axis: str, order: str, degrees: dict[str, int], per_node: int) -> tuple[int, int]:
    """Ranks of rank 0's group on its node, and groups of the axis on that node, by listing every rank."""
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
        groups.setdefault(tuple(where[name] for name in names if name != axis), []).append(rank)
    of_zero = next(members for members in groups.values() if 0 in members)
    on_node = sum(1 for members in groups.values() if any(rank < per_node for rank in members))
    return sum(1 for rank in of_zero if rank < per_node), on_node


def test_placement_equals_listing_every_rank() -> None:
    cluster = catalog.cluster("4x8 A100-80GB")[0]
    for order in ("tp-cp-dp-pp", "tp-cp-pp-dp", "dp-tp-pp"):
        for tp in (1, 2, 4, 8, 16):
            for pp in (1, 2, 4):
                if 32 % (tp * pp):
                    continue
                degrees = {"tp": tp, "dp": 32 // (tp * pp), "pp": pp}
                rows = LayoutBatch.of([Layout(**degrees, rank_order=order)])
                for axis in ("tp", "dp", "pp"):
                    found = place(axis, cluster, rows)
                    expected = _brute_force(axis, order, degrees, 8)
                    assert (int(found.ranks_per_node[0]), int(found.groups_per_node[0])) == expected, (
                        order,
                        degrees,
                        axis,
                    )
