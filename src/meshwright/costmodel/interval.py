"""Intervals: log-normal, from residuals of left-out rows, wider where a step rests on less certain terms or ground."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.axis.expert import has_experts
from meshwright.costmodel.recompute import parts_of
from meshwright.formula import formula
from meshwright.i18n import N_
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import LayoutBatch

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
#: Two-sided 80 % of a normal distribution.
Z_80 = 1.2815515655446004


@formula("residuals of left-out rows, see the [interval] table of the constants", "1")
def log_sd(
    step_time_s: FloatArray,
    breakdown_s: Mapping[str, FloatArray],
    off_ground_variance: FloatArray,
    constants: Constants,
) -> FloatArray:
    """Standard deviation of log(measured / predicted), (n,): quadrature sum over what makes a prediction uncertain."""
    spec = constants.interval
    launch = breakdown_s["launch"] / step_time_s
    tp_comm = breakdown_s["tp_comm"] / step_time_s
    network = (breakdown_s["dp_comm"] + breakdown_s["pp_comm"]) / step_time_s
    variance = spec.base_sd**2 + (launch * spec.launch_sd) ** 2 + (tp_comm * spec.tp_comm_sd) ** 2
    return np.sqrt(variance + (network * spec.network_sd) ** 2 + off_ground_variance)


#: What a prediction may leave validated ground by, as people read it.
OFF_GROUND = {
    "gpu": N_("this generation of GPUs"),
    "community_gpu": N_("a chip known from community figures only"),
    "attention": N_("this attention kernel"),
    "fabric": N_("this kind of network"),
    "overlap": N_("gradients that are reduced while the backward runs"),
    "schedule": N_("this pipeline schedule"),
    "sharding": N_("sharded gradients or weights (ZeRO-2, ZeRO-3, FSDP)"),
    "context_parallel": N_("context parallelism"),
    "experts": N_("mixtures of experts"),
    "blocks": N_("layers of this kind"),
    "precision": N_("this precision"),
    "adapter": N_("frozen weights and adapters"),
    "offload": N_("offloaded states"),
    "post_training": N_("post-training with several models"),
    "scale": N_("this many GPUs"),
}


def off_ground(job: TrainingJob, cluster: Cluster, layouts: LayoutBatch, constants: Constants) -> dict[str, BoolArray]:
    """Reason (a key of OFF_GROUND) -> rows that leave the ground of every validated row by it, (n,) each.

    ZeRO-1 sends what an all-reduce sends, in the same place: it counts as validated with plain data parallelism.
    """
    spec, n = constants.interval, len(layouts)
    kinds = {block.kind for block in itertools.chain(*parts_of(job))}
    seen = [code for code, name in enumerate(layouts.schedules) if name in spec.validated_schedules]
    everywhere = {
        "gpu": cluster.gpu.architecture not in spec.validated_gpus,
        "community_gpu": cluster.gpu.is_community,
        "attention": job.attention not in spec.validated_attention,
        "fabric": cluster.n_nodes > 1 and cluster.nic.kind not in spec.validated_fabrics,
        "overlap": (job.overlap_grad_reduce or job.overlap_param_gather) and not spec.validated_overlap,
        "experts": has_experts(job),
        "blocks": bool(kinds - {"moe", *spec.validated_blocks}),
        "precision": job.precision not in spec.validated_precisions,
        "adapter": bool(job.lora_rank or job.frozen),
        "post_training": job.kind not in ("pretrain", "sft"),
        "scale": cluster.n_gpus > spec.validated_n_gpus,
    }
    by_row = {
        "schedule": (layouts.pp > 1) & ~np.isin(layouts.schedule, seen),
        "sharding": layouts.zero_stage >= 2,
        "context_parallel": layouts.cp > 1,
        "offload": (layouts.offload_optimizer > 0) | (layouts.offload_parameters > 0),
    }
    found = {reason: np.full(n, holds) for reason, holds in everywhere.items() if holds}
    return found | {reason: rows for reason, rows in by_row.items() if rows.any()}


def off_ground_variance(off: Mapping[str, BoolArray], cluster: Cluster, n: int, constants: Constants) -> FloatArray:
    """Variance that ``off_ground`` adds, (n,)."""
    spec = constants.interval
    variance = np.zeros(n)
    for reason, rows in off.items():
        sd = spec.unseen_sd.get(reason, 0.0)
        if reason == "scale":
            sd = spec.per_doubling_beyond_scale_sd * math.log2(cluster.n_gpus / spec.validated_n_gpus)
        variance += np.where(rows, sd**2, 0.0)
    return variance
