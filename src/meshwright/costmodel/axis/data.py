"""Data parallelism, with the optimizer state sharded (ZeRO-1) or not. Rajbhandari et al., arXiv 1910.02054."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from meshwright.costmodel.axis import BoolArray, FloatArray, Traffic
from meshwright.i18n import N_
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import LayoutBatch

NAME = "dp"
RULES = {
    "gpus_match": N_("dp x tp x pp must equal the number of GPUs"),
    "batch_divides": N_("dp x micro_batch must divide the global batch"),
}


def legal(job: TrainingJob, cluster: Cluster, layouts: LayoutBatch) -> Mapping[str, BoolArray]:
    """Degrees multiply to the GPUs; the global batch splits evenly into micro-batches."""
    return {
        "gpus_match": layouts.dp.astype(np.int64) * layouts.tp * layouts.pp != cluster.n_gpus,
        "batch_divides": job.global_batch % (layouts.dp.astype(np.int64) * layouts.micro_batch) != 0,
    }


def divides(tensor_kind: str, layouts: LayoutBatch) -> FloatArray:
    """ZeRO-1 divides the optimizer state over the data-parallel ranks."""
    if tensor_kind == "optimizer_state":
        return np.where(layouts.zero_stage >= 1, layouts.dp, 1).astype(float)
    return np.ones(len(layouts))


def sends(job: TrainingJob, parameters: FloatArray) -> list[Traffic]:
    """Gradient traffic of ``parameters`` elements a rank, (n,).

    Without ZeRO one all-reduce of the gradients (the first); with ZeRO-1 a reduce-scatter of the gradients and an
    all-gather of the updated weights (the other two): the same volume in all.
    """
    backward: Literal["backward"] | None = "backward" if job.overlap_grad_reduce else None
    forward: Literal["forward"] | None = "forward" if job.overlap_param_gather else None
    return [
        Traffic(NAME, "all_reduce", job.grad_bytes * parameters, 1, "step", backward),
        Traffic(NAME, "reduce_scatter", job.grad_bytes * parameters, 1, "step", backward),
        Traffic(NAME, "all_gather", job.element_bytes * parameters, 1, "step", forward),
    ]
