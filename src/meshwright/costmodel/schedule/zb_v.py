"""Zero bubble, ZB-V: each rank holds two chunks of the model, placed as a V, and runs weight gradients apart.

Order: Qi et al., arXiv 2401.10241, section 6, in the variant of torch.distributed.pipelining's ScheduleZBVZeroBubble.
No rank waits between its first task and its last where a forward, an input gradient and a weight gradient take the
same time; the ranks start one after the other, so the step still takes (pp - 1) forwards more than a rank's work.
Activations: 2 pp chunks, as many as the pp stages of 1F1B's first rank.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.pipeline import FloatArray, Phase, PipelineProfile, Task, in_blocks
from meshwright.costmodel.schedule import Ints
from meshwright.costmodel.schedule._v_shape import Rank, Skipped, Work, longest_path_s, stages_of_rank
from meshwright.formula import formula

NAME = "zb-v"
SPLITS_BACKWARD = True
__all__ = ["NAME", "SPLITS_BACKWARD", "in_flight", "legal", "order", "pipeline_time_s", "stages_of_rank"]


def legal(pp: Ints, vpp: Ints, n_micro_batches: Ints) -> npt.NDArray[np.bool_]:
    """Two chunks on two ranks or more, and as many micro-batches as virtual stages, which fill the V.

    PyTorch runs fewer as well, by striking them from a longer order; idle as they leave the ranks, 1F1B serves better.
    """
    ranks, m = np.asarray(pp), np.asarray(n_micro_batches, np.int64)
    return np.asarray((ranks >= 2) & (np.asarray(vpp) == 2) & (m >= 2 * ranks))


def in_flight(pp: Ints, vpp: Ints, n_micro_batches: Ints, rank: Ints) -> npt.NDArray[np.int64]:
    """2 pp chunks on every rank, or as many as there are."""
    shape = np.broadcast_shapes(*(np.shape(column) for column in (pp, vpp, n_micro_batches, rank)))
    return np.array(np.broadcast_to(2 * np.minimum(np.asarray(pp, np.int64), n_micro_batches), shape))


def order(rank: int, pp: int, vpp: int, n_micro_batches: int) -> list[Task]:
    """Down to fill, up and back from the turn, then a forward and both gradients of either chunk, then the rest."""
    tasks: list[Task] = []
    done: dict[tuple[Phase, int], int] = defaultdict(int)

    def run(*kinds: tuple[Phase, int]) -> None:
        for kind in kinds:
            tasks.append(Task(kind[0], done[kind], kind[1]))
            done[kind] += 1

    down: tuple[Phase, int] = ("forward", 0)
    up: tuple[Phase, int] = ("forward", 1)
    turn: tuple[Phase, int] = ("backward", 1)
    back: tuple[Phase, int] = ("backward", 0)
    for _warm in range(2 * (pp - rank) - 1):
        run(down)
    for _warm in range(rank):
        run(up, down)
    for _warm in range(pp - rank):
        run(up, turn, ("weight", 1))
    while done[up] < n_micro_batches:
        if done[down] < n_micro_batches:
            run(down)
        run(back, ("weight", 0), up, turn, ("weight", 1))
    for _cool in range(rank):
        run(back, turn)
    for _cool in range(pp - rank):
        run(back, ("weight", 0))
    for chunk in (1, 0):
        while done["weight", chunk] < n_micro_batches:
            run(("weight", chunk))
    return tasks


def pipeline_time_s(profile: PipelineProfile) -> FloatArray:
    """Seconds from the first forward to the last weight gradient, (n,); exact for even splits but for rare mixes."""
    return in_blocks(_time_s, profile)


def _time_s(profile: PipelineProfile) -> FloatArray:
    ranks, m = np.ascontiguousarray(profile.multiplicity.T, np.float64), profile.n_micro_batches.astype(float)
    return zb_v_time_s(ranks=ranks, n_micro_batches=m, **Work.of(profile)._asdict())


@formula("longest path through the ZB-V order of arXiv 2401.10241 section 6, closed form over rank classes", "s")
def zb_v_time_s(
    *,
    ranks: FloatArray,
    n_micro_batches: FloatArray,
    forward_s: FloatArray,
    backward_s: FloatArray,
    weight_s: FloatArray,
    embedding_forward_s: FloatArray,
    embedding_backward_s: FloatArray,
    head_forward_s: FloatArray,
    head_backward_s: FloatArray,
    hop_s: FloatArray,
) -> FloatArray:
    """Time of a ZB-V pipeline, (n,).

    ``ranks``, ``forward_s``, ``backward_s`` and of it ``weight_s`` (C, n) of rank classes, both chunks; ``embedding_*``
    and ``head_*`` (n,), what the first and the last virtual stage take beyond a regular chunk.
    """
    work = Work(
        forward_s,
        backward_s,
        weight_s,
        embedding_forward_s,
        embedding_backward_s,
        head_forward_s,
        head_backward_s,
        hop_s,
    )
    return longest_path_s(work, ranks, n_micro_batches, _skipped, joined=False, turn=np.zeros_like(hop_s))


def _skipped(rank: Rank, pp: FloatArray, m: FloatArray) -> Skipped:
    r = rank.number
    return Skipped(
        before_f1=(2 * (pp - r) - 1) * rank.f0,
        before_i1=(2 * pp - 1 - r) * rank.f0 + (r + 1) * rank.f1,
        before_return=(2 * pp - r) * rank.f0 + pp * rank.f1 + (pp - r) * (rank.i1 + rank.w1),
        after_i0=(r + 1) * rank.w0 + r * rank.w1,
        after_i1=(pp - r) * rank.i0 + pp * rank.w0 + np.maximum(r, 1) * rank.w1,
        after_f1=pp * (rank.i0 + rank.w0) + (r + 1) * (rank.i1 + rank.w1),
        after_f0=np.zeros_like(pp),
    )
