"""Mesh: from rank order and degrees to where a group's ranks sit and who shares the node's adapters with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshwright.specs.hardware import Cluster
from meshwright.specs.layout import LayoutBatch

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class GroupPlacement:
    """Where the groups of one axis sit. Arrays (n,).

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


def place(axis: str, cluster: Cluster, layouts: LayoutBatch) -> GroupPlacement:
    """Placement of the groups of ``axis`` (tp, dp or pp) for each row's rank order, fastest axis first."""
    size = getattr(layouts, axis)
    stride = np.ones(len(layouts), np.int32)
    for code, order in enumerate(layouts.rank_orders):
        rows = layouts.rank_order == code if len(layouts.rank_orders) > 1 else slice(None)
        for faster in order.split("-"):
            if faster == axis:
                break
            stride[rows] *= getattr(layouts, faster)[rows]
    per_node = cluster.gpus_per_node
    ranks_per_node = np.minimum(np.maximum(per_node // stride, 1), size).astype(np.int32)
    return GroupPlacement(size, ranks_per_node, np.maximum(per_node // ranks_per_node, 1).astype(np.int32))
