"""Data parallelism with ZeRO 0 to 3, FSDP and HSDP.

Rajbhandari et al., arXiv 1910.02054; Zhao et al., arXiv 2304.11277.
Context-parallel ranks see other parts of the same sequences with the same weights, so they reduce gradients and share
out states together with the replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from meshwright.costmodel.axis import BoolArray, FloatArray, Traffic
from meshwright.costmodel.mesh import expert_dp
from meshwright.costmodel.schedule import copies
from meshwright.i18n import N_
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import LayoutBatch

NAME = "dp"
RULES = {
    "gpus_match": N_("dp x tp x cp x pp must equal the number of GPUs"),
    "batch_divides": N_("dp x micro_batch must divide the global batch"),
    "shards_make_dp": N_("dp_replicate must divide dp"),
    "replicas_need_zero": N_("dp_replicate above 1 needs ZeRO (zero_stage of at least 1)"),
    "optimizer_offload_needs_zero": N_("offload_optimizer needs ZeRO (zero_stage of at least 1)"),
    "parameter_offload_needs_zero3": N_("offload_parameters needs sharded weights (zero_stage=3)"),
}


def legal(job: TrainingJob, cluster: Cluster, layouts: LayoutBatch) -> Mapping[str, BoolArray]:
    """Degrees multiply to the GPUs; the global batch splits evenly; what is sharded can be."""
    dp = layouts.dp.astype(np.int64)
    return {
        "gpus_match": dp * layouts.tp * layouts.cp * layouts.pp != cluster.n_gpus,
        "batch_divides": job.global_batch % (dp * layouts.micro_batch) != 0,
        "shards_make_dp": dp % layouts.dp_replicate != 0,
        "replicas_need_zero": (layouts.dp_replicate > 1) & (layouts.zero_stage < 1),
        "optimizer_offload_needs_zero": (layouts.offload_optimizer > 0) & (layouts.zero_stage < 1),
        "parameter_offload_needs_zero3": (layouts.offload_parameters > 0) & (layouts.zero_stage < 3),
    }


#: From which ZeRO stage on a kind of state is sharded.
_SHARDED_FROM = {"optimizer_state": 1, "gradients": 2, "weights": 3}


def divides(tensor_kind: str, layouts: LayoutBatch, *, experts: bool = False) -> FloatArray:
    """By how much ZeRO divides ``optimizer_state``, ``gradients`` or ``weights``; expert ones over their own ranks.

    With a pipeline, gradients stay whole until the last micro-batch: they are reduced once a step.
    """
    if tensor_kind not in _SHARDED_FROM:
        return np.ones(len(layouts))
    ranks = expert_dp(layouts) // layouts.dp_replicate if experts else layouts.dp_shard * layouts.cp
    # Ranks of one pipeline that hold the same stage share its states, too.
    ranks = ranks * copies(layouts)
    sharded = layouts.zero_stage >= _SHARDED_FROM[tensor_kind]
    if tensor_kind == "gradients":
        sharded &= layouts.pp == 1
    return np.where(sharded, np.maximum(ranks, 1), 1).astype(float)


def every_micro_batch(phase: str, layouts: LayoutBatch) -> BoolArray:
    """Whether each micro-batch sends what ``sends`` lists under ``phase``, or all of a step together once; (n,).

    ``reduction``: each once gradients are sharded. ``forward``, ``backward``: gathers of
    sharded weights. Resharding after the forward gathers for both passes of every micro-batch. Without it a backward
    finds the weights in place; a pipeline then keeps them for the whole step (arXiv 2407.21783, section 3.3.2).
    """
    if phase == "reduction":
        return np.asarray((layouts.zero_stage >= 2) & (layouts.pp == 1))
    if phase == "forward":
        return np.asarray((layouts.reshard_after_forward != 0) | (layouts.pp == 1))
    return np.full(len(layouts), phase == "backward")


def sends(
    job: TrainingJob, trained: FloatArray, frozen_bytes: FloatArray, layouts: LayoutBatch, *, experts: bool = False
) -> list[Traffic]:
    """Gradient and weight traffic of ``trained`` elements and ``frozen_bytes`` a rank, (n,).

    ``count`` is 1 where a row has the traffic at all; ``every_micro_batch`` says how often. Without ZeRO one
    all-reduce of the gradients; with it a reduce-scatter of the gradients (over replicas of the shards an all-reduce
    of what is left) and an all-gather of the updated weights, which stage 3 does layer by layer in the passes.
    """
    replicas, shards, equals = (
        ("expert_all", "expert_shard", "expert_replicate") if experts else ("dp", "shard", "replicate")
    )
    backward: Literal["backward"] | None = "backward" if job.overlap_grad_reduce else None
    forward: Literal["forward"] | None = "forward" if job.overlap_param_gather else None
    ranks = (expert_dp(layouts) if experts else layouts.dp * layouts.cp) * copies(layouts)
    zero, several = layouts.zero_stage, ranks > 1
    gradients, weights = job.grad_bytes * trained, job.param_gather_bytes * trained
    sharded, whole = several & (zero >= 1), several & (zero >= 3)
    again = whole & (layouts.reshard_after_forward != 0)
    left = gradients / divides("optimizer_state", layouts, experts=experts)

    def where(rows: BoolArray) -> FloatArray:
        return rows.astype(float)

    return [
        Traffic(shards, "all_gather", weights + frozen_bytes, where(whole), "forward", "forward"),
        Traffic(shards, "all_gather", weights + frozen_bytes, where(again), "backward", "backward"),
        Traffic(replicas, "all_reduce", gradients, where(several & (zero == 0)), "step", backward),
        Traffic(shards, "reduce_scatter", gradients, where(sharded), "reduction", backward),
        Traffic(equals, "all_reduce", left, where(sharded & (layouts.dp_replicate > 1)), "reduction", backward),
        Traffic(shards, "all_gather", weights, where(sharded & ~whole), "step", forward),
    ]
