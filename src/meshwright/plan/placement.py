"""Where every rank of a layout sits: its node, GPU and adapter, and its place along every axis."""

from __future__ import annotations

import numpy as np

from meshwright.costmodel.mesh import EXPERT_AXES, expert_dp
from meshwright.specs.hardware import Cluster
from meshwright.specs.layout import Layout, LayoutBatch
from meshwright.specs.plan import Placement

COLUMNS = ("rank", "node", "gpu", "nic", "pp", "dp", "cp", "tp", "ep")


def placement(cluster: Cluster, layout: Layout) -> Placement:
    """One row a rank, as launchers number them: node by node, the fastest axis of ``rank_order`` first.

    ``nic`` is the adapter of its node nearest to the GPU: adapters are spread evenly over the GPUs. ``ep`` is
    the place in the mesh of the experts (``costmodel.mesh``).
    """
    rank = np.arange(cluster.n_gpus)
    gpu = rank % cluster.gpus_per_node
    found = {
        "rank": rank,
        "node": rank // cluster.gpus_per_node,
        "gpu": gpu,
        "nic": gpu * cluster.nics_per_node // cluster.gpus_per_node,
    }
    degrees = {name: int(getattr(layout, name)) for name in ("tp", "cp", "dp", "pp", "ep", "etp")}
    degrees["edp"] = int(expert_dp(LayoutBatch.of([layout]))[0])
    axes = layout.rank_order.split("-")
    for mesh in ([EXPERT_AXES[axis] for axis in axes], axes):
        left = rank
        for axis in mesh:
            left, found[axis] = np.divmod(left, degrees[axis])
    rows = np.stack([found[name] for name in COLUMNS], axis=1)
    return Placement(columns=COLUMNS, rows=tuple(map(tuple, rows.tolist())))
