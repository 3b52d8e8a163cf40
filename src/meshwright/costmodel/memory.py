"""Memory of one pipeline rank by class, for the class of ranks that is worst, per phase of a run.

States after Rajbhandari et al., arXiv 1910.02054; activations after Korthikanti et al., arXiv 2205.05198; in-flight
micro-batches from the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshwright.formula import formula
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster

FloatArray = npt.NDArray[np.float64]
#: fp32 master weight, first and second moment of Adam.
ADAM_STATE_BYTES = 12


@formula("mixed-precision Adam, arXiv 1910.02054 section 3.1: 2 + 2 + 12 bytes a parameter in fp16", "bytes")
def state_bytes(parameters: FloatArray, element_bytes: int, grad_bytes: int, optimizer_shards: FloatArray) -> tuple[
    FloatArray, FloatArray, FloatArray
]:
    """Weights, gradients and optimizer state of ``parameters`` elements a rank; the last divided by ZeRO-1."""
    return element_bytes * parameters, grad_bytes * parameters, ADAM_STATE_BYTES * parameters / optimizer_shards


@dataclass(slots=True)
class RankMemory:
    """Bytes of each rank class, (n, C), as the step gathers them."""

    weights: FloatArray
    gradients: FloatArray
    optimizer: FloatArray
    activations: FloatArray
    logits: FloatArray
    gather: FloatArray

    def steady(self) -> FloatArray:
        """Sum over the classes of memory, (n, C)."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits + self.gather


@dataclass(slots=True)
class Overheads:
    """What a process holds besides tensors: communicator buffers (n,) and the CUDA context, bytes."""

    buffers: FloatArray
    context: float
    reserved_ratio: float
    capacity_bytes: float

    @classmethod
    def of(cls, n_communicators: FloatArray, cluster: Cluster, constants: Constants) -> Overheads:
        """Buffers for each communicator a rank belongs to, context, and the allocator's margin."""
        return cls(
            buffers=n_communicators * constants.get("communicator_buffer_bytes") + constants.get("workspace_bytes"),
            context=constants.get("context_bytes"),
            reserved_ratio=constants.get("fragmentation_ratio"),
            capacity_bytes=cluster.gpu.memory_bytes * constants.get("usable_memory_ratio"),
        )


@formula("allocator slack over what is allocated, measured 3-9 %", "bytes")
def reserved_bytes(allocated_bytes: FloatArray, outside_bytes: FloatArray, fragmentation_ratio: float) -> FloatArray:
    """What the caching allocator reserves for ``allocated_bytes``, plus what lies outside it."""
    return np.asarray((allocated_bytes - outside_bytes) * (1.0 + fragmentation_ratio) + outside_bytes)


def host_bytes(cluster: Cluster, constants: Constants) -> float:
    """Host memory of a node: one Python process with pinned staging for each GPU."""
    return cluster.gpus_per_node * constants.get("host_bytes_per_process")
