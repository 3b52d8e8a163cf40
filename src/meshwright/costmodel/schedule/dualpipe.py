"""DualPipe: micro-batches enter at both ends; every rank holds the stage from either end and so twice the parameters.

Order: DeepSeek-V3 technical report, arXiv 2412.19437, section 3.2.1, and github.com/deepseek-ai/DualPipe. Ranks r and
pp - 1 - r mirror each other, so the schedule is DualPipeV on half of the ranks with half of the micro-batches, and one
hop more where its V turns. Bubble of the report: (pp / 2 - 1) (F&B + B - 3 W), B a whole backward; activations pp + 1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.pipeline import FloatArray, PipelineProfile, Task, in_blocks
from meshwright.costmodel.schedule import Ints, dualpipev
from meshwright.costmodel.schedule._v_shape import Work

NAME = "dualpipe"
SPLITS_BACKWARD = True
HIDES_EXPERT_TRAFFIC = True
PARAMETER_COPIES = 2


def stages_of_rank(rank: int, pp: int, vpp: int) -> tuple[int, ...]:
    """Chunk 0 serves the micro-batches that enter at rank 0, chunk 1 those that enter at the last rank."""
    return rank, pp - 1 - rank


def legal(pp: Ints, vpp: Ints, n_micro_batches: Ints) -> npt.NDArray[np.bool_]:
    """An even number of ranks, and an even number of micro-batches, two or more for each."""
    ranks, m = np.asarray(pp), np.asarray(n_micro_batches, np.int64)
    return np.asarray((ranks >= 2) & (np.asarray(vpp) == 1) & (ranks % 2 == 0) & (m % 2 == 0) & (m >= 2 * ranks))


def order(rank: int, pp: int, vpp: int, n_micro_batches: int) -> list[Task]:
    """What DualPipeV does; the second half of the ranks with chunks and directions exchanged."""
    half = n_micro_batches // 2
    second = rank >= pp // 2
    tasks = dualpipev.order(min(rank, pp - 1 - rank), pp // 2, 2, half)
    return [Task(t.phase, t.micro_batch + half * (t.chunk ^ second), t.chunk ^ second, t.joined) for t in tasks]


def in_flight(pp: Ints, vpp: Ints, n_micro_batches: Ints, rank: Ints) -> npt.NDArray[np.int64]:
    """pp + 1 stages on every rank (arXiv 2412.19437, table 2)."""
    shape = np.broadcast_shapes(*(np.shape(column) for column in (pp, vpp, n_micro_batches, rank)))
    return np.array(np.broadcast_to(np.asarray(pp, np.int64) + 1, shape))


def pipeline_time_s(profile: PipelineProfile) -> FloatArray:
    """Seconds from the first forward to the last weight gradient, (n,); as DualPipeV's."""
    return in_blocks(_time_s, profile)


def _time_s(profile: PipelineProfile) -> FloatArray:
    ranks = np.ascontiguousarray(profile.multiplicity.T, np.float64)
    before = np.cumsum(ranks, axis=0) - ranks
    first_half = np.clip(profile.pp / 2.0 - before, 0.0, ranks)
    work = Work.of(profile)._asdict()
    in_half = first_half.any(axis=1)
    work |= {name: column[in_half] for name, column in work.items() if column.ndim == 2}
    return dualpipev.dual_pipe_time_s(
        ranks=first_half[in_half], n_micro_batches=profile.n_micro_batches / 2.0, turn_hop_s=profile.hop_s, **work
    )
