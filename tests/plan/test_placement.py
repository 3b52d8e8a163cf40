"""Placement: every coordinate once, groups where the cost model says they sit, experts as Megatron folds them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from meshwright.costmodel.mesh import place
from meshwright.plan.placement import COLUMNS, placement
from meshwright.specs.hardware import Cluster
from meshwright.specs.layout import Layout, LayoutBatch

LAYOUTS = [
    Layout(dp=4, tp=4, pp=2),
    Layout(dp=4, tp=4, pp=2, rank_order="tp-cp-pp-dp"),
    Layout(dp=2, tp=2, cp=2, pp=4),
    Layout(dp=8, tp=2, cp=1, pp=2, ep=4, etp=2),
    Layout(dp=16, tp=1, pp=2, ep=8),
]


def table(cluster: Cluster, layout: Layout) -> dict[str, np.ndarray]:
    found = placement(cluster, layout)
    assert found.columns == COLUMNS
    return dict(zip(COLUMNS, np.array(found.rows).T, strict=True))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_place_is_taken_once(cluster: Callable[..., Cluster], layout: Layout) -> None:
    where = cluster("4x8 A100-80GB, 4x200Gb IB")
    columns = table(where, layout)
    assert columns["rank"].tolist() == list(range(32))
    places = set(zip(*(columns[axis].tolist() for axis in ("pp", "dp", "cp", "tp")), strict=True))
    assert len(places) == 32
    assert set(zip(columns["node"].tolist(), columns["gpu"].tolist(), strict=True)) == {
        (node, gpu) for node in range(4) for gpu in range(8)
    }
    # Four adapters for eight GPUs: neighbours share one.
    assert columns["nic"].tolist() == [gpu // 2 for gpu in range(8)] * 4


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_groups_sit_where_the_mesh_says(cluster: Callable[..., Cluster], layout: Layout) -> None:
    where = cluster("4x8 A100-80GB")
    columns = table(where, layout)
    for axis in ("tp", "pp", "dp"):
        # Gradients are reduced over the replicas of a weight, which context parallelism multiplies.
        along = (axis, "cp") if axis == "dp" else (axis,)
        others = [name for name in ("pp", "dp", "cp", "tp") if name not in along]
        group = np.flatnonzero(np.all([columns[name] == 0 for name in others], axis=0))
        a_node = np.bincount(columns["node"][group]).max()
        assert a_node == place(axis, where, LayoutBatch.of([layout])).ranks_per_node[0]


def test_experts_are_folded_into_a_stage(cluster: Callable[..., Cluster]) -> None:
    columns = table(cluster("4x8 A100-80GB"), Layout(dp=8, tp=2, pp=2, ep=4, etp=2))
    # Sixteen ranks a stage: expert tensor parallelism fastest, then the experts, then their replicas.
    assert columns["ep"].tolist() == [rank // 2 % 4 for rank in range(32)]
