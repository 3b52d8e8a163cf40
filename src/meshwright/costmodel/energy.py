"""Energy: the power of a GPU follows what it does, its server and the building come on top."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from meshwright.formula import formula
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster

FloatArray = npt.NDArray[np.float64]

#: Terms of the step in which the matrix units run; in the optimizer memory does, in traffic the links.
_COMPUTES = ("forward", "backward", "recompute", "contention")
_STREAMS = ("optimizer",)
_SENDS = ("tp_comm", "cp_comm", "ep_comm", "pp_comm", "dp_comm")


@formula("idle power and its distance to the power limit, by how busy the chip is in each term of the step", "W")
def gpu_power_w(
    breakdown_s: Mapping[str, FloatArray], step_time_s: FloatArray, tdp_w: float, constants: Constants
) -> FloatArray:
    """Mean power of one GPU over a step, (n,), between idle and its limit; in terms not named above it idles.

    The terms are those of the critical rank, so the power of ranks that wait for it is somewhat overstated.
    """

    def share(terms: tuple[str, ...]) -> FloatArray:
        return np.asarray(sum((breakdown_s[term] for term in terms), np.zeros(np.shape(step_time_s))) / step_time_s)

    idle = constants.get("idle_power_ratio")
    above = (
        share(_COMPUTES) * (constants.get("compute_power_ratio") - idle)
        + share(_STREAMS) * (constants.get("memory_power_ratio") - idle)
        + share(_SENDS) * (constants.get("communication_power_ratio") - idle)
    )
    return np.asarray(tdp_w * (idle + above))


@formula("(GPUs + the rest of their servers) x power usage effectiveness of the building", "W")
def site_power_w(gpu_power_w: FloatArray, n_gpus: int, host_w_per_gpu: float, pue: float) -> FloatArray:
    """What the site draws for ``n_gpus`` GPUs of this power each, (n,)."""
    return np.asarray(n_gpus * (gpu_power_w + host_w_per_gpu) * pue)


def host_w_per_gpu(cluster: Cluster, constants: Constants) -> float:
    """Processors, memory, adapters, fans and switches, for each GPU; steady, whatever the GPU does."""
    return cluster.gpu.tdp_w * constants.get("host_power_ratio")


def mean_power_w(
    breakdown_s: Mapping[str, FloatArray], step_time_s: FloatArray, cluster: Cluster, pue: float, constants: Constants
) -> FloatArray:
    """Mean power of the whole site over a step, (n,); times the step time it is the energy of a step."""
    power = gpu_power_w(breakdown_s, step_time_s, cluster.gpu.tdp_w, constants)
    return site_power_w(power, cluster.n_gpus, host_w_per_gpu(cluster, constants), pue)


def peak_power_w(cluster: Cluster, pue: float, constants: Constants) -> float:
    """What the site must be able to deliver: every GPU at its limit."""
    limit = np.array([cluster.gpu.tdp_w])
    return float(site_power_w(limit, cluster.n_gpus, host_w_per_gpu(cluster, constants), pue)[0])
