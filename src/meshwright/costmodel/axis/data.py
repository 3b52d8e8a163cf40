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
    sharded = layouts.zero_stage >= _SHARDED_FROM[tensor_kind]
    if tensor_kind == "gradients":
        sharded &= layouts.pp == 1
    return np.where(sharded, np.maximum(ranks, 1), 1).astype(float)


def reductions(layouts: LayoutBatch, n_micro_batches: FloatArray) -> FloatArray:
    """How often a step reduces gradients, (n,): for every micro-batch once gradients are sharded, else once."""
    return np.where((layouts.zero_stage >= 2) & (layouts.pp == 1), n_micro_batches, 1.0)


def gathers(layouts: LayoutBatch, n_micro_batches: FloatArray) -> tuple[FloatArray, FloatArray]:
    """How often a step gathers sharded weights for forwards and for backwards, (n,) each.

    Resharding after the forward gathers for both passes of every micro-batch. Without it a backward finds the weights
    in place; a pipeline then keeps them for the whole step (Llama 3, arXiv 2407.21783, section 3.3.2).
    """
    sharded = layouts.zero_stage >= 3
    reshard = layouts.reshard_after_forward != 0
    forward = np.where(reshard | (layouts.pp == 1), n_micro_batches, 1.0)
    return np.where(sharded, forward, 0.0), np.where(sharded & reshard, n_micro_batches, 0.0)


def sends(
    job: TrainingJob,
    parameters: FloatArray,
    layouts: LayoutBatch,
    n_micro_batches: FloatArray,
    *,
    experts: bool = False,
) -> list[Traffic]:
    """Gradient and weight traffic of ``parameters`` trainable elements a rank, (n,); ``count`` is per step.

    Without ZeRO one all-reduce of the gradients; with it a reduce-scatter of the gradients (over replicas of the
    shards an all-reduce of what is left) and an all-gather of the updated weights, which stage 3 does layer by layer
    in the passes themselves.
    """
    replicas, shards, copies = (
        ("expert_all", "expert_shard", "expert_replicate") if experts else ("dp", "shard", "replicate")
    )
    backward: Literal["backward"] | None = "backward" if job.overlap_grad_reduce else None
    forward: Literal["forward"] | None = "forward" if job.overlap_param_gather else None
    zero = layouts.zero_stage
    times = reductions(layouts, n_micro_batches)
    in_forward, in_backward = gathers(layouts, n_micro_batches)
    gradients, weights = job.grad_bytes * parameters, job.element_bytes * parameters
    shard_ranks = divides("optimizer_state", layouts, experts=experts)
    replicated = times * (layouts.dp_replicate > 1)
    return [
        Traffic(replicas, "all_reduce", gradients, np.where(zero == 0, 1.0, 0.0), "step", backward),
        Traffic(shards, "reduce_scatter", gradients, np.where(zero >= 1, times, 0.0), "step", backward),
        Traffic(copies, "all_reduce", gradients / shard_ranks, np.where(zero >= 1, replicated, 0.0), "step", backward),
        Traffic(shards, "all_gather", weights, np.where((zero == 1) | (zero == 2), 1.0, 0.0), "step", forward),
        Traffic(shards, "all_gather", weights, in_forward, "forward", "forward"),
        Traffic(shards, "all_gather", weights, in_backward, "backward", "backward"),
    ]
