"""Offload: optimizer state and weights in host memory or on NVMe, and what fetching them costs.

Ren et al., arXiv 2101.06840 (ZeRO-Offload: the CPU takes the optimizer's step); Rajbhandari et al., arXiv 2104.07857
(ZeRO-Infinity: states and weights on NVMe).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.optimizer import (
    orthogonalising_time_s,
    state_bytes_per_parameter,
    streamed_bytes_per_parameter,
)
from meshwright.formula import formula
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob

FloatArray = npt.NDArray[np.float64]


@formula("ZeRO-Offload, arXiv 2101.06840 section 4: gradients go down, the CPU updates, weights come up", "s")
def offloaded_step_s(
    job: TrainingJob, parameters: FloatArray, cluster: Cluster, constants: Constants, where: str
) -> FloatArray:
    """Optimizer step of ``parameters`` elements a rank whose states are in host memory ("cpu") or on "nvme"; (n,).

    The CPUs of a node stream the states of all its GPUs; from NVMe they are read and written back beside that. Muon
    orthogonalises on the GPU, which has the gradients anyway.
    """
    memory_bytes_per_s = constants.get("host_memory_bytes_per_s") / cluster.gpus_per_node
    link = parameters * (job.grad_bytes + job.element_bytes) / cluster.gpu.host_bytes_per_s
    update = parameters * streamed_bytes_per_parameter(job) / memory_bytes_per_s
    if where == "nvme":
        disk_bytes_per_s = constants.get("nvme_bytes_per_s") / cluster.gpus_per_node
        update = np.maximum(update, 2.0 * parameters * state_bytes_per_parameter(job).optimizer / disk_bytes_per_s)
    if job.optimizer == "muon":
        update = update + orthogonalising_time_s(job, parameters, cluster.gpu, constants)
    return np.asarray(link + update + constants.get("step_fixed_s"))


@formula("ZeRO-Infinity, arXiv 2104.07857 section 5: each rank fetches its shard over its own link to the host", "s")
def fetch_s(size_bytes: FloatArray, cluster: Cluster, constants: Constants, where: str) -> FloatArray:
    """Time to bring ``size_bytes`` of a rank's weight shard from host memory or NVMe to the GPU, (n,)."""
    rate = cluster.gpu.host_bytes_per_s
    if where == "nvme":
        rate = min(rate, constants.get("nvme_bytes_per_s") / cluster.gpus_per_node)
    return np.asarray(size_bytes / rate)
