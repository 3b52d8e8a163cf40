"""GPipe: every forward, then every backward (Huang et al., arXiv 1811.06965)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.pipeline import FloatArray, IntArray, PipelineProfile, Task
from meshwright.costmodel.schedule import Ints
from meshwright.formula import formula

NAME = "gpipe"


def legal(pp: Ints, vpp: Ints, n_micro_batches: Ints) -> npt.NDArray[np.bool_]:
    """One chunk a rank and at least one micro-batch."""
    return np.asarray((np.asarray(pp) >= 1) & (np.asarray(vpp) == 1) & (np.asarray(n_micro_batches, np.int64) >= 1))


def in_flight(pp: Ints, vpp: Ints, n_micro_batches: Ints, rank: Ints) -> npt.NDArray[np.int64]:
    """Every micro-batch, on every rank."""
    shape = np.broadcast_shapes(*(np.shape(column) for column in (pp, vpp, n_micro_batches, rank)))
    return np.array(np.broadcast_to(np.asarray(n_micro_batches, np.int64), shape))


def order(rank: int, pp: int, vpp: int, n_micro_batches: int) -> list[Task]:
    """The forwards, then the backwards in the same order (as torch.distributed.pipelining and Megatron-LM do)."""
    return [Task(phase, i, 0) for phase in ("forward", "backward") for i in range(n_micro_batches)]


def pipeline_time_s(profile: PipelineProfile) -> FloatArray:
    """Seconds from the first forward to the last backward, (n,); exact."""
    return gpipe_time_s(
        profile.multiplicity, profile.forward_s, profile.backward_s, profile.hop_s, profile.n_micro_batches
    )


@formula("arXiv 1811.06965 section 2.3: two flow shops, (m - 1) visits of the slowest rank each way", "s")
def gpipe_time_s(
    multiplicity: IntArray, forward_s: FloatArray, backward_s: FloatArray, hop_s: FloatArray, n_micro_batches: IntArray
) -> FloatArray:
    """One micro-batch down and up, and the others through the slowest rank of either way.

    ``multiplicity``, ``forward_s``, ``backward_s`` (n, C), ``hop_s`` and ``n_micro_batches`` (n,).
    """
    ranks = np.ascontiguousarray(multiplicity.T, np.float64)
    time = 2.0 * (ranks.sum(axis=0) - 1.0) * hop_s
    for phase_s in (forward_s, backward_s):
        work = np.where(ranks > 0, phase_s.T, 0.0)
        time = time + (ranks * work).sum(axis=0) + (n_micro_batches - 1.0) * work.max(axis=0)
    return np.asarray(time)
