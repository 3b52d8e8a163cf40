"""1F1B: after a warm-up of forwards every rank alternates one forward and one backward (PipeDream-Flush).

Order: Narayanan et al., arXiv 2104.04473, section 2.2.1; warm-up counts as in Megatron-LM's ``pipeline_parallel/
schedules.py``. Time: the longest path through the graph of tasks, in closed form over classes of equal ranks.

A path starts with the first forward of rank 0 and ends with its last backward. The one that follows micro-batch 0
down the pipeline and back up costs the sum of every rank's forward and backward plus 2 (pp - 1) hops; call it the
trunk. Each of the m - 1 other micro-batches adds one *visit*: a path may run down and up again through neighbouring
ranks s..e (a *loop*: e - s + 1 visits, their forwards and backwards, and 2 (e - s) hops), and repeat that. With ``d``
= forward + backward + 2 hops, a loop costs the sum of its ``d`` less 2 hops. Loops that stop short of the last rank
have to close: the last descent reaches the last rank, or a path spends the remaining visits in warm-up forwards
(cool-down backwards) of the slowest rank it passed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.pipeline import FloatArray, IntArray, PipelineProfile, Task, in_blocks
from meshwright.costmodel.schedule import Ints
from meshwright.formula import formula

NAME = "1f1b"


def legal(pp: Ints, vpp: Ints, n_micro_batches: Ints) -> npt.NDArray[np.bool_]:
    """One chunk a rank and at least one micro-batch; fewer micro-batches than ranks are slow but run."""
    return np.asarray((np.asarray(pp) >= 1) & (np.asarray(vpp) == 1) & (np.asarray(n_micro_batches, np.int64) >= 1))


def in_flight(pp: Ints, vpp: Ints, n_micro_batches: Ints, rank: Ints) -> npt.NDArray[np.int64]:
    """min(pp - rank, m): what is warm plus the one that is turning (arXiv 2104.04473, section 2.2.1)."""
    return np.asarray(np.minimum(np.asarray(pp, np.int64) - rank, n_micro_batches))


def order(rank: int, pp: int, vpp: int, n_micro_batches: int) -> list[Task]:
    """min(pp - 1 - rank, m) forwards, then forward and backward in turn, then the backwards that are left."""
    warm = min(pp - 1 - rank, n_micro_batches)
    tasks = [Task("forward", i, 0) for i in range(warm)]
    for i in range(n_micro_batches - warm):
        tasks += (Task("forward", warm + i, 0), Task("backward", i, 0))
    tasks += (Task("backward", i, 0) for i in range(n_micro_batches - warm, n_micro_batches))
    return tasks


def pipeline_time_s(profile: PipelineProfile) -> FloatArray:
    """Seconds from the first forward to the last backward, (n,); exact but for rare mixes of very uneven ranks."""
    return in_blocks(_time_s, profile)


def _time_s(profile: PipelineProfile) -> FloatArray:
    return one_f_one_b_time_s(
        profile.multiplicity,
        profile.forward_s,
        profile.backward_s,
        profile.hop_s,
        profile.n_micro_batches,
    )


class _Classes(NamedTuple):
    """Columns of the rank classes, class first so that each is contiguous: (C, n)."""

    ranks: FloatArray
    work_s: FloatArray
    step_s: FloatArray
    slowest_forward_s: FloatArray
    slowest_backward_s: FloatArray


@formula("longest path through the 1F1B order of arXiv 2104.04473 section 2.2.1, closed form over rank classes", "s")
def one_f_one_b_time_s(
    multiplicity: IntArray, forward_s: FloatArray, backward_s: FloatArray, hop_s: FloatArray, n_micro_batches: IntArray
) -> FloatArray:
    """Time of a 1F1B pipeline: its trunk, and the dearest way to spend one visit on each further micro-batch.

    ``multiplicity``, ``forward_s``, ``backward_s`` (n, C) in pipeline order, ``hop_s`` and ``n_micro_batches`` (n,).
    """
    two_hops = 2.0 * hop_s
    classes = _columns(multiplicity, forward_s, backward_s, two_hops)
    visits = n_micro_batches - 1.0
    trunk = (classes.ranks * classes.step_s).sum(axis=0) - two_hops
    dearest = np.zeros_like(trunk)
    ranks_after = np.zeros_like(trunk)
    steps_after = np.zeros_like(trunk)
    closing = np.zeros_like(trunk)
    for j in range(len(classes.ranks) - 1, -1, -1):
        forward, backward = classes.slowest_forward_s[j], classes.slowest_backward_s[j]
        # Spent in warm-up or cool-down; or in both, and then the path never goes beyond this class.
        spent = np.minimum(visits, ranks_after)
        closed = np.maximum(spent * np.maximum(forward, backward), spent * (forward + backward) - steps_after)
        # With enough visits the path may also go on to a later class, or down to the last rank, and close there.
        closing = np.where(visits > ranks_after, np.maximum(closing, closed), closed)
        dearest = np.maximum(dearest, closing + _loops_s(classes, j, visits - spent, two_hops))
        # All visits in both, turning at the rank of this class that has as many ranks after it as there are visits.
        beyond = visits - ranks_after
        turning = visits * (forward + backward) - steps_after - beyond * classes.step_s[j]
        dearest = np.where((beyond > 0) & (beyond < classes.ranks[j]), np.maximum(dearest, turning), dearest)
        steps = classes.ranks[j] * classes.step_s[j]
        ranks_after = ranks_after + classes.ranks[j]
        steps_after = steps_after + steps
        closing = closing + steps
    return np.asarray(trunk + dearest)


def _columns(multiplicity: IntArray, forward_s: FloatArray, backward_s: FloatArray, two_hops: FloatArray) -> _Classes:
    ranks = np.ascontiguousarray(multiplicity.T, dtype=np.float64)
    # Padding may hold anything; as zeros it can neither win a maximum nor add to a sum.
    forward = np.where(ranks > 0, forward_s.T, 0.0)
    backward = np.where(ranks > 0, backward_s.T, 0.0)
    work = forward + backward
    return _Classes(
        ranks, work, work + two_hops, np.maximum.accumulate(forward, axis=0), np.maximum.accumulate(backward, axis=0)
    )


def _loops_s(classes: _Classes, last: int, visits: FloatArray, two_hops: FloatArray) -> FloatArray:
    """The dearest way to spend ``visits`` on loops that end with class ``last``, one kind of loop at a time.

    Whole loops first. What is left over goes to a part of the loop (as dear as the loop on average, or more) or to
    its slowest rank alone. Less than one loop must touch the loop's end, where the path goes on to close.
    """
    best = np.zeros_like(visits)
    steps = np.zeros_like(visits)
    length = np.zeros_like(visits)
    slowest = np.zeros_like(visits)
    for i in range(last, -1, -1):
        longer = length + classes.ranks[i]
        more_steps = steps + classes.ranks[i] * classes.step_s[i]
        slowest = np.maximum(slowest, classes.work_s[i])
        divisor = np.maximum(longer, 1.0)
        whole = np.floor(visits / divisor)
        left = visits - whole * longer
        partial = np.maximum(left * (more_steps / divisor) - two_hops, left * slowest)
        repeated = whole * (more_steps - two_hops) + np.where(left > 0, partial, 0.0)
        touching = steps + (visits - length) * classes.step_s[i] - two_hops
        touching = np.where((visits > 0) & (visits >= length), touching, 0.0)
        best = np.maximum(best, np.where(whole > 0, repeated, touching))
        length, steps = longer, more_steps
    return best


def dearest_loops_s(
    ranks: FloatArray, work_s: list[FloatArray], hop_s: FloatArray, turn_s: FloatArray, visits: FloatArray
) -> FloatArray:
    """The dearest way to spend ``visits`` on loops through any ranks, (n,), for a path that passes all of them anyway.

    ``ranks`` (C, n) and ``work_s`` (C of (n,)) of the classes; ``turn_s`` is added once where a loop takes in the last.
    """
    two_hops = 2.0 * hop_s
    work = np.where(ranks > 0, np.stack(work_s), 0.0)
    is_last = (ranks > 0) & (np.cumsum(ranks, axis=0) == ranks.sum(axis=0))
    step = work + two_hops + np.where(is_last, turn_s / np.maximum(ranks, 1.0), 0.0)
    classes = _Classes(ranks, work, step, work, work)
    spent = np.maximum(visits, 0.0)
    return np.asarray(np.maximum.reduce([_loops_s(classes, j, spent, two_hops) for j in range(len(ranks))]))
