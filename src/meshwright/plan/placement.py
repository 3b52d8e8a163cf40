"""Where every rank of a layout sits: its node, GPU and adapter, and its place along every axis."""

from __future__ import annotations

import numpy as np

from meshwright.specs.hardware import Cluster
from meshwright.specs.layout import Layout
from meshwright.specs.plan import Placement

COLUMNS = ("rank", "node", "gpu", "nic", "pp", "dp", "cp", "tp", "ep")


def placement(cluster: Cluster, layout: Layout) -> Placement:
    """One row a rank, as launchers number them: node by node, the fastest axis of ``rank_order`` first.

    ``nic`` is the adapter of its node nearest to the GPU: adapters are spread evenly over the GPUs. Experts are
    folded into the ranks of a pipeline stage, expert-tensor parallelism fastest.
    """
    rank = np.arange(cluster.n_gpus)
    gpu = rank % cluster.gpus_per_node
    found = {
        "rank": rank,
        "node": rank // cluster.gpus_per_node,
        "gpu": gpu,
        "nic": gpu * cluster.nics_per_node // cluster.gpus_per_node,
    }
    axes = layout.rank_order.split("-")
    left, stride = rank, 1
    in_stage = np.zeros_like(rank)
    for axis in axes:
        degree = getattr(layout, axis)
        left, found[axis] = np.divmod(left, degree)
        if axis != "pp":
            in_stage, stride = in_stage + stride * found[axis], stride * degree
    found["ep"] = in_stage // layout.etp % layout.ep
    rows = np.stack([found[name] for name in COLUMNS], axis=1)
    return Placement(columns=COLUMNS, rows=tuple(map(tuple, rows.tolist())))
