"""Mesh: from rank order and degrees to where a group's ranks sit and who shares the node's adapters with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.schedule import copies
from meshwright.specs.hardware import Cluster
from meshwright.specs.layout import LayoutBatch

IntArray = npt.NDArray[np.int32]

#: The groups that collectives run over, each as the sub-axes that it spans. Data parallelism has its shard groups
#: inside, where links are fast, and the replicas of them outside (HSDP); context-parallel ranks hold equal weights, so
#: they share the sharding, and so do the ranks of one pipeline that hold the same stage (``pp_copies``). Experts have a
#: mesh of their own over the same ranks.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "tp": ("tp",),
    "cp": ("cp",),
    "pp": ("pp",),
    "dp": ("cp", "dp", "pp_copies"),
    "shard": ("cp", "dp_shard", "pp_copies"),
    "replicate": ("dp_replicate",),
    "ep": ("ep",),
    "etp": ("etp",),
    "expert_all": ("edp", "pp_copies"),
    "expert_shard": ("edp_shard", "pp_copies"),
    "expert_replicate": ("edp_replicate",),
}
#: What stands in the place of an axis of the rank order for expert weights (Megatron's expert rank generator).
EXPERT_AXES = {"tp": "etp", "cp": "ep", "dp": "edp", "pp": "pp"}


@dataclass(frozen=True, slots=True)
class GroupPlacement:
    """Where the groups of one axis sit. Arrays (n,). A node here is a scale-up domain: what NVLink or its kin joins.

    ``ranks_per_node`` of a group's ``size`` ranks share a node; ``groups_per_node`` groups of this axis have ranks
    on the same node, so that many share its adapters when they communicate at the same time.
    """

    size: IntArray
    ranks_per_node: IntArray
    groups_per_node: IntArray

    @property
    def crosses_nodes(self) -> npt.NDArray[np.bool_]:
        """Whether a group spans more than one node."""
        return self.size > self.ranks_per_node

    def take(self, index: npt.NDArray[np.intp]) -> GroupPlacement:
        """The rows of ``index``."""
        return GroupPlacement(self.size.take(index), self.ranks_per_node.take(index), self.groups_per_node.take(index))


def expert_dp(layouts: LayoutBatch) -> IntArray:
    """Ranks that hold the same expert shard, (n,): tp x cp x dp over ep x etp."""
    ranks = layouts.tp * layouts.cp * layouts.dp
    return np.asarray(np.maximum(ranks // np.maximum(layouts.ep * layouts.etp, 1), 1), np.int32)


def place(group: str, cluster: Cluster, layouts: LayoutBatch) -> GroupPlacement:
    """Placement of the groups of ``group`` (a key of GROUPS) for each row's rank order, fastest axis first."""
    sub_axes = GROUPS[group]
    experts = group in ("ep", "etp") or group.startswith("expert")
    per_node = cluster.domain_gpus
    size = np.ones(len(layouts), np.int32)
    inside = np.ones(len(layouts), np.int32)
    for name in sub_axes:
        degree, stride = _degree(name, layouts), _stride(name, layouts, experts=experts)
        size = size * degree
        inside = inside * np.clip(per_node // stride, 1, degree)
    ranks_per_node = np.minimum(inside, per_node).astype(np.int32)
    return GroupPlacement(size, ranks_per_node, np.maximum(per_node // ranks_per_node, 1).astype(np.int32))


def experts_share_pipelines(layouts: LayoutBatch) -> npt.NDArray[np.bool_]:
    """Whether every rank is in the same pipeline by the mesh of the experts as by that of the other weights, (n,)."""
    strides = (_stride("pp", layouts, experts=experts) for experts in (False, True))
    return np.asarray((layouts.pp == 1) | np.equal(*strides))


def _degree(name: str, layouts: LayoutBatch) -> IntArray:
    if name == "pp_copies":
        return np.asarray(copies(layouts) * np.ones(len(layouts)), np.int32)
    if name == "edp":
        return expert_dp(layouts)
    if name == "edp_shard":
        return np.asarray(np.maximum(expert_dp(layouts) // layouts.dp_replicate, 1), np.int32)
    if name == "edp_replicate":
        return layouts.dp_replicate
    return np.asarray(getattr(layouts, name), np.int32)


def _stride(name: str, layouts: LayoutBatch, *, experts: bool) -> IntArray:
    """Distance in ranks between neighbours along an axis, (n,)."""
    axis = name.removesuffix("_shard").removesuffix("_replicate").removesuffix("_copies")
    stride = np.ones(len(layouts), np.int32)
    for code, order in enumerate(layouts.rank_orders):
        rows = layouts.rank_order == code if len(layouts.rank_orders) > 1 else slice(None)
        for faster in order.split("-"):
            of_mesh = EXPERT_AXES[faster] if experts else faster
            if of_mesh == axis:
                break
            stride[rows] *= _degree(of_mesh, layouts)[rows]
    if name.endswith("_replicate"):
        stride = stride * _degree(name.removesuffix("_replicate") + "_shard", layouts)
    if name == "pp_copies":
        # Mirrored ranks; those at the ends are the farthest apart.
        stride = stride * np.maximum(layouts.pp - 1, 1)
    return stride
