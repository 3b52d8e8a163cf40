"""Zero bubble, ZB-H1: 1F1B whose later ranks put weight gradients off until there is nothing better to do.

Order: Qi et al., arXiv 2401.10241, section 2.3, as torch.distributed.pipelining's ScheduleInterleavedZeroBubble writes
it down for one stage a rank: rank r runs the weight gradient of micro-batch i after the input's gradient of micro-batch
i + r. Peak activations are those of 1F1B's first rank, now on every rank. The paper's bubble, (pp - 1) (T_F + T_B -
T_W), calls the input's gradient alone B; with B the whole backward it is (pp - 1) (F + B - 2 W).

Time: the longest path through the graph of tasks, in closed form over classes of equal ranks; F, I and W are forward,
input gradient and weight gradient. Two families of paths:

*Stay*: a path comes to a rank, does all that the rank does, and leaves for the end. It comes with micro-batch 0 on its
way down, or back from a turn at the last rank or (if the forwards before it are slow) at an earlier one, or once more
down after such a turn. It leaves with the last input gradient on its way up and ends on a rank that has weight
gradients left, s + 1 of them on rank s.

*Loop*: the paths of 1F1B (see there) with I as the backward. A loop that starts and ends on rank s takes one weight
gradient of that rank along, but for the first s micro-batches, after which there is none yet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.pipeline import FloatArray, IntArray, PipelineProfile, Task, in_blocks
from meshwright.costmodel.schedule import Ints
from meshwright.formula import formula

NAME = "zb-h1"
SPLITS_BACKWARD = True


def legal(pp: Ints, vpp: Ints, n_micro_batches: Ints) -> npt.NDArray[np.bool_]:
    """One chunk a rank and at least one micro-batch."""
    return np.asarray((np.asarray(pp) >= 1) & (np.asarray(vpp) == 1) & (np.asarray(n_micro_batches, np.int64) >= 1))


def in_flight(pp: Ints, vpp: Ints, n_micro_batches: Ints, rank: Ints) -> npt.NDArray[np.int64]:
    """min(pp, m) on every rank: pp - rank as in 1F1B, and ``rank`` that wait for their weight gradient."""
    shape = np.broadcast_shapes(*(np.shape(column) for column in (pp, vpp, n_micro_batches, rank)))
    return np.array(np.broadcast_to(np.minimum(np.asarray(pp, np.int64), n_micro_batches), shape))


def order(rank: int, pp: int, vpp: int, n_micro_batches: int) -> list[Task]:
    """1F1B with input gradients as backwards; the weight gradient of micro-batch i follows backward i + rank."""
    warm = min(pp - 1 - rank, n_micro_batches)
    tasks = [Task("forward", i, 0) for i in range(warm)]
    for i in range(n_micro_batches):
        if warm + i < n_micro_batches:
            tasks.append(Task("forward", warm + i, 0))
        tasks.append(Task("backward", i, 0))
        if i >= rank:
            tasks.append(Task("weight", i - rank, 0))
    return tasks + [Task("weight", i, 0) for i in range(max(n_micro_batches - rank, 0), n_micro_batches)]


def pipeline_time_s(profile: PipelineProfile) -> FloatArray:
    """Seconds from the first forward to the last weight gradient, (n,); exact for even splits but for rare mixes."""
    return in_blocks(_time_s, profile)


def _time_s(profile: PipelineProfile) -> FloatArray:
    return zb_h1_time_s(
        profile.multiplicity,
        profile.forward_s,
        profile.backward_s,
        profile.weight_s,
        profile.hop_s,
        profile.n_micro_batches,
    )


class _Classes(NamedTuple):
    """Columns of the rank classes, class first so that each is contiguous, (C, n); and of the pipeline, (n,)."""

    ranks: FloatArray
    before: FloatArray
    forward: FloatArray
    gradient: FloatArray
    weight: FloatArray
    slowest_forward: FloatArray
    hop: FloatArray
    pp: FloatArray
    m: FloatArray

    def step(self, j: int) -> FloatArray:
        """Down through a rank of class ``j`` and up again, two hops included."""
        return np.asarray(self.forward[j] + self.gradient[j] + 2.0 * self.hop)


class _Place(NamedTuple):
    """The first or the last rank of class ``j``: its number, and the way down to it and up from it, hops included."""

    j: int
    rank: FloatArray
    down: FloatArray
    up: FloatArray


@formula("longest path through the ZB-H1 order of arXiv 2401.10241 section 2.3, closed form over rank classes", "s")
def zb_h1_time_s(
    multiplicity: IntArray,
    forward_s: FloatArray,
    backward_s: FloatArray,
    weight_s: FloatArray,
    hop_s: FloatArray,
    n_micro_batches: IntArray,
) -> FloatArray:
    """Time of a ZB-H1 pipeline: the longest path that stays on one rank, or that loops through several.

    ``multiplicity``, ``forward_s``, ``backward_s`` (whole) and of it ``weight_s`` (n, C) in pipeline order, ``hop_s``
    and ``n_micro_batches`` (n,).
    """
    ranks = np.ascontiguousarray(multiplicity.T, np.float64)
    # Padding may hold anything; as zeros it can neither win a maximum nor add to a sum.
    forward, weight = np.where(ranks > 0, forward_s.T, 0.0), np.where(ranks > 0, weight_s.T, 0.0)
    gradient = np.where(ranks > 0, backward_s.T, 0.0) - weight
    pp = ranks.sum(axis=0)
    classes = _Classes(
        ranks,
        np.cumsum(ranks, axis=0) - ranks,
        forward,
        gradient,
        weight,
        np.maximum.accumulate(forward, axis=0),
        np.where(pp > 1, hop_s, 0.0),
        pp,
        n_micro_batches.astype(float),
    )
    stay, ends = _stay_s(classes)
    return np.asarray(np.maximum(stay, _loop_s(classes, ends)))


def _places(classes: _Classes) -> list[_Place]:
    down = up = np.zeros_like(classes.pp)
    found = []
    for j, ranks in enumerate(classes.ranks):
        one_down, one_up = classes.forward[j] + classes.hop, classes.gradient[j] + classes.hop
        found.append(_Place(j, classes.before[j], down, up))
        if (ranks > 1).any():
            more = np.maximum(ranks - 1.0, 0.0)
            found.append(_Place(j, classes.before[j] + more, down + more * one_down, up + more * one_up))
        down, up = down + ranks * one_down, up + ranks * one_up
    return found


def _stay_s(classes: _Classes) -> tuple[FloatArray, list[FloatArray]]:
    """The longest path that stays on one rank, (n,); and by class the best end of a path that comes up from below it.

    An end is what the weight gradients of the rank where a path ends exceed the rest of the way up by.
    """
    pp, m, hop = classes.pp, classes.m, classes.hop
    places = _places(classes)
    round_trip = (classes.ranks * (classes.forward + classes.gradient + 2.0 * hop)).sum(axis=0) - 2.0 * hop
    # How late micro-batch 0 may be back on rank 0, from a turn at this rank or a later one.
    turned = round_trip
    entries = []
    for j, rank, down, up in reversed(places):
        forward, gradient = classes.forward[j], classes.gradient[j]
        turn = down + forward + np.minimum(pp - 1.0 - rank, m - 1.0) * classes.slowest_forward[j] + up + gradient
        turned = np.where(classes.ranks[j] > 0, np.maximum(turned, turn), turned)
        entry = np.maximum(down, turned - up - gradient - np.minimum(pp - rank, m) * forward)
        skipped = (pp + 1.0) * forward + (rank + 1.0) * gradient + classes.weight[j]
        again = round_trip + classes.weight[0] + down + forward - skipped
        entries.append(np.where(m > pp, np.maximum(entry, again), entry))
    longest, end = np.zeros_like(hop), np.full_like(hop, -np.inf)
    ends: list[FloatArray] = [end] * len(classes.ranks)
    slowest, slowest_gradient = np.zeros_like(hop), np.zeros_like(hop)
    for (j, rank, _down, up), entry in zip(places, reversed(entries), strict=True):
        used, left = classes.ranks[j] > 0, np.minimum(rank + 1.0, m) * classes.weight[j]
        backward = classes.gradient[j] + classes.weight[j]
        end = np.where(used, np.maximum(end, left - up), end)
        ends[j] = end
        # The last backwards, when forwards are over, may be those of a slower rank above.
        slowest, slowest_gradient = np.maximum(slowest, backward), np.maximum(slowest_gradient, classes.gradient[j])
        slower = np.where(m >= pp, slowest, np.maximum(slowest_gradient, backward)) - backward
        cooling = np.minimum(pp - 1.0 - rank, m - 1.0) * slower
        path = entry + m * (classes.forward[j] + backward) - left + up + end + cooling
        longest = np.where(used, np.maximum(longest, path), longest)
    return longest, ends


def _loop_s(classes: _Classes, ends: list[FloatArray]) -> FloatArray:
    """The longest path that goes down to the last rank and up, with loops: 1F1B's with input gradients as backwards."""
    two_hops, visits = 2.0 * classes.hop, classes.m - 1.0
    trunk = (classes.ranks * (classes.forward + classes.gradient + two_hops)).sum(axis=0) - two_hops
    dearest = closing = ends[-1]
    ranks_after = steps_after = np.zeros_like(trunk)
    for j in range(len(ends) - 1, -1, -1):
        forward = classes.slowest_forward[j]
        # Spent in warm-up or cool-down; or in both, and then the path never goes beyond this class.
        spent = np.minimum(visits, ranks_after)
        cooling = _cool_s(classes, j, spent)
        ended = np.maximum(cooling, spent * forward + cooling - steps_after) + ends[j]
        closed = np.maximum(spent * forward + ends[-1], ended)
        closing = np.where(visits > ranks_after, np.maximum(closing, closed), closed)
        dearest = np.maximum(dearest, closing + _loops_s(classes, j, visits - spent))
        # All visits in both, turning at the rank of this class that has as many ranks after it as there are visits.
        beyond = visits - ranks_after
        turning = visits * forward + _cool_s(classes, j, visits) - steps_after - beyond * classes.step(j) + ends[j]
        dearest = np.where((beyond > 0) & (beyond < classes.ranks[j]), np.maximum(dearest, turning), dearest)
        steps = classes.ranks[j] * classes.step(j)
        ranks_after, steps_after, closing = ranks_after + classes.ranks[j], steps_after + steps, closing + steps
    return np.asarray(trunk + dearest)


def _cool_s(classes: _Classes, last: int, visits: FloatArray) -> FloatArray:
    """The dearest backwards of the last ``visits`` micro-batches on one rank of classes 0..``last``."""
    dearest = np.zeros_like(visits)
    for i in range(last + 1):
        weights = np.minimum(visits, np.maximum(classes.m - 1.0 - classes.before[i], 0.0))
        dearest = np.maximum(dearest, visits * classes.gradient[i] + weights * classes.weight[i])
    return dearest


def _loops_s(classes: _Classes, last: int, visits: FloatArray) -> FloatArray:
    """The dearest way to spend ``visits`` on loops that end with class ``last``, one kind of loop at a time.

    As in 1F1B, with the weight gradients that whole loops and single ranks take along.
    """
    two_hops, full_cycles = 2.0 * classes.hop, np.maximum(classes.m - classes.pp, 0.0)
    best = steps = length = slowest = weight = without = np.zeros_like(visits)
    for i in range(last, -1, -1):
        step, work = classes.step(i), classes.forward[i] + classes.gradient[i]
        longer, more_steps = length + classes.ranks[i], steps + classes.ranks[i] * step
        slower = work + classes.weight[i] > slowest + weight
        slowest = np.where(slower, work, slowest)
        weight = np.where(slower, classes.weight[i], weight)
        without = np.where(slower, classes.before[i], without)
        divisor = np.maximum(longer, 1.0)
        whole = np.floor(visits / divisor)
        left = visits - whole * longer
        weights = np.maximum(whole - np.ceil(classes.before[i] / divisor), 0.0) * classes.weight[i]
        cycles = np.minimum(np.minimum(left, np.maximum(visits - without, 0.0)), full_cycles)
        partial = np.maximum(left * (more_steps / divisor) - two_hops, left * slowest + cycles * weight)
        repeated = whole * (more_steps - two_hops) + weights + np.where(left > 0, partial, 0.0)
        touching = steps + (visits - length) * step - two_hops
        touching = np.where((visits > 0) & (visits >= length), touching, 0.0)
        best = np.maximum(best, np.where(whole > 0, repeated, touching))
        length, steps = longer, more_steps
    return best
