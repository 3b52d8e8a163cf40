"""Placement: every coordinate once, groups where the cost model says they sit, experts as Megatron folds them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from meshwright.costmodel.mesh import experts_share_pipelines, place
from meshwright.plan.placement import COLUMNS, placement
from meshwright.specs.hardware import Cluster
from meshwright.specs.layout import Layout, LayoutBatch

LAYOUTS = [
    Layout(dp=4, tp=4, pp=2),
    Layout(dp=4, tp=4, pp=2, rank_order="tp-cp-pp-dp"),
    Layout(dp=2, tp=2, cp=2, pp=4),
    Layout(dp=8, tp=2, cp=1, pp=2, ep=4, etp=2),
    Layout(dp=16, tp=1, pp=2, ep=8),
    Layout(dp=8, tp=1, cp=2, pp=2, ep=4, dp_replicate=2, zero_stage=3),
    Layout(dp=4, tp=2, cp=2, pp=2, ep=2, etp=2, dp_replicate=2, zero_stage=1, rank_order="tp-cp-pp-dp"),
    Layout(dp=4, tp=2, cp=2, pp=2, ep=4, rank_order="dp-tp-cp-pp"),
    Layout(dp=4, tp=2, cp=2, pp=2, ep=8, rank_order="cp-dp-tp-pp"),
]
#: group of the cost model -> the columns and parts of columns in which its ranks agree
AGREE = {
    "tp": ("pp", "dp", "cp"),
    "cp": ("pp", "dp", "tp"),
    "pp": ("dp", "cp", "tp"),
    "dp": ("pp", "tp"),
    "shard": ("pp", "tp", "replica"),
    "replicate": ("pp", "tp", "cp", "shard"),
    "expert_all": ("pp", "ep", "etp"),
}


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
    columns["replica"], columns["shard"] = np.divmod(columns["dp"], layout.dp_shard)
    for group, agree in AGREE.items():
        if "etp" in agree and layout.etp > 1:
            continue
        ranks = np.flatnonzero(np.all([columns[name] == 0 for name in agree if name != "etp"], axis=0))
        found = place(group, where, LayoutBatch.of([layout]))
        assert len(ranks) == found.size[0], group
        assert np.bincount(columns["node"][ranks]).max() == found.ranks_per_node[0], group


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout.ep > 1], ids=str)
def test_a_stage_holds_every_expert_equally_often(cluster: Callable[..., Cluster], layout: Layout) -> None:
    columns = table(cluster("4x8 A100-80GB"), layout)
    places, counts = np.unique(np.stack([columns["pp"], columns["ep"]]), axis=1, return_counts=True)
    assert places.shape[1] == layout.pp * layout.ep
    assert set(counts.tolist()) == {32 // (layout.pp * layout.ep)}


def test_ranks_hold_experts_of_their_own_stage() -> None:
    """Megatron-LM: unless pp is last, the data-parallel size of attention and experts must be the same."""
    rows = [
        Layout(dp=4, tp=2, pp=2, ep=8),
        Layout(dp=4, tp=2, pp=2, ep=2, rank_order="tp-cp-pp-dp"),
        Layout(dp=4, tp=2, pp=2, etp=2, rank_order="tp-cp-pp-dp"),
        Layout(dp=4, tp=2, pp=2, ep=8, rank_order="tp-cp-pp-dp"),
        Layout(dp=4, tp=2, pp=2, rank_order="tp-cp-pp-dp"),
        Layout(dp=8, tp=2, pp=1, ep=8, rank_order="tp-cp-pp-dp"),
    ]
    assert experts_share_pipelines(LayoutBatch.of(rows)).tolist() == [True, True, True, False, False, True]


def test_experts_are_folded_into_a_stage(cluster: Callable[..., Cluster]) -> None:
    columns = table(cluster("4x8 A100-80GB"), Layout(dp=8, tp=2, pp=2, ep=4, etp=2))
    # Sixteen ranks a stage: expert tensor parallelism fastest, then the experts, then their replicas.
    assert columns["ep"].tolist() == [rank // 2 % 4 for rank in range(32)]
