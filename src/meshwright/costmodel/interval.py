"""Intervals: log-normal, from residuals of left-out rows, wider where a step rests on less certain terms or ground."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from meshwright.formula import formula
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import LayoutBatch

FloatArray = npt.NDArray[np.float64]
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


def off_ground_variance(job: TrainingJob, cluster: Cluster, layouts: LayoutBatch, constants: Constants) -> FloatArray:
    """Variance added for leaving validated ground, (n,).

    That is another GPU architecture, attention kernel, kind of network or pipeline schedule than any validated row,
    gradient traffic that overlaps the computation where no validated row's did, or more GPUs.
    """
    spec = constants.interval
    variance = 0.0
    if cluster.gpu.architecture not in spec.validated_gpus:
        variance += spec.unseen_gpu_sd**2
    if job.attention not in spec.validated_attention:
        variance += spec.unseen_attention_sd**2
    if cluster.n_nodes > 1 and cluster.nic.kind not in spec.validated_fabrics:
        variance += spec.unseen_fabric_sd**2
    if (job.overlap_grad_reduce or job.overlap_param_gather) and not spec.validated_overlap:
        variance += spec.unseen_overlap_sd**2
    if cluster.n_gpus > spec.validated_n_gpus:
        variance += (spec.per_doubling_beyond_scale_sd * math.log2(cluster.n_gpus / spec.validated_n_gpus)) ** 2
    seen = [code for code, name in enumerate(layouts.schedules) if name in spec.validated_schedules]
    return np.where(np.isin(layouts.schedule, seen), variance, variance + spec.unseen_schedule_sd**2)
