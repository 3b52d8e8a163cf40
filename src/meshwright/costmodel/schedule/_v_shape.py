"""Longest paths through schedules whose ranks hold two chunks of the model, placed as a V.

Chunk 0 of rank r is virtual stage r, chunk 1 is virtual stage 2 pp - 1 - r: forwards run down the ranks through the
first chunks (F0) and up again through the second (F1); gradients of the inputs run down through the second chunks (I1)
and up through the first (I0); weight gradients (W0, W1) wait for nobody.

A path enters a rank, does all that the rank does from there on, and leaves for the end of the step. It enters by the
rank's first F0; or by its first F1 or first I1 once micro-batch 0 has come that far; or by its first I1 from an
earlier rank that was busy until then; or, turned at the last rank, by its first I0 (where forwards and backwards run as
one, as in DualPipe, by the F1 that follows the turn of micro-batch 0). It leaves after its last I0, I1 or F1; after its
last F0 where tasks are joined, elsewhere for a detour by an earlier rank, up with the last I0 before a forward. From
there micro-batch m - 1 goes on through the other ranks, and the rank where it ends has weight gradients left. Time is
the longest of these: what a rank does, plus the best way in and the best way out, each counted as what it gains over
the tasks that it skips.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.pipeline import FloatArray, PipelineProfile
from meshwright.costmodel.schedule.one_f_one_b import dearest_loops_s

BoolArray = npt.NDArray[np.bool_]


def stages_of_rank(rank: int, pp: int, vpp: int) -> tuple[int, ...]:
    """Down with chunk 0, up again with chunk 1."""
    return rank, 2 * pp - 1 - rank


class Rank(NamedTuple):
    """One rank of every row: its number and its seconds, forward, input gradient and weight gradient of both chunks."""

    number: FloatArray
    f0: FloatArray
    f1: FloatArray
    i0: FloatArray
    i1: FloatArray
    w0: FloatArray
    w1: FloatArray

    def all_s(self) -> FloatArray:
        """Both chunks, once."""
        return self.f0 + self.f1 + self.i0 + self.i1 + self.w0 + self.w1


class Skipped(NamedTuple):
    """Seconds of a rank's own work: before the tasks by which a path may enter, after those by which it may leave.

    ``before_return``: before the task by which a path that has turned at the last rank comes up: the first I0, or where
    tasks are joined the F1 that follows the turn. ``after_f0`` is looked at where tasks are joined.
    """

    before_f1: FloatArray
    before_i1: FloatArray
    before_return: FloatArray
    after_i0: FloatArray
    after_i1: FloatArray
    after_f1: FloatArray
    after_f0: FloatArray


class _Passed(NamedTuple):
    """Sums over the ranks before one of them: hops included, one for each rank."""

    f0: FloatArray
    f1: FloatArray
    i0: FloatArray
    i1: FloatArray
    joined_f0: FloatArray
    joined_f1: FloatArray

    def and_(self, rank: Rank, ranks: FloatArray, hop_s: FloatArray) -> _Passed:
        """The same with ``ranks`` more, all like ``rank``."""
        first, second = rank.f0 + rank.i1 + rank.w1, rank.f1 + rank.i0 + rank.w0
        times = (rank.f0, rank.f1, rank.i0, rank.i1, first, second)
        return _Passed(*(sum_s + ranks * (time_s + hop_s) for sum_s, time_s in zip(self, times, strict=True)))


class Work(NamedTuple):
    """What the closed forms of V shapes take of a profile: (C, n) by rank class, (n,) of the ends and of a hop."""

    forward_s: FloatArray
    backward_s: FloatArray
    weight_s: FloatArray
    embedding_forward_s: FloatArray
    embedding_backward_s: FloatArray
    head_forward_s: FloatArray
    head_backward_s: FloatArray
    hop_s: FloatArray

    @classmethod
    def of(cls, profile: PipelineProfile) -> Work:
        """The columns of ``profile``, class first."""
        return cls(*(getattr(profile, name).T for name in cls._fields))

    def classes(self, ranks: FloatArray) -> list[Rank]:
        """The first rank of each class, with two chunks; ``ranks`` (C, n) of each class.

        The two chunks are equal but for what the first and the last virtual stage hold beyond a regular chunk, both on
        rank 0; weight gradients share out like whole backwards.
        """
        found = []
        # A class of more ranks than the first has no ends that differ from the rest.
        alone = ranks[0] == 1
        forward_ends = np.where(alone, self.embedding_forward_s - self.head_forward_s, 0.0) / 2
        backward_ends = np.where(alone, self.embedding_backward_s - self.head_backward_s, 0.0) / 2
        before = np.zeros_like(self.hop_s)
        for j, count in enumerate(ranks):
            f0 = self.forward_s[j] / 2 + (forward_ends if j == 0 else 0.0)
            b0 = self.backward_s[j] / 2 + (backward_ends if j == 0 else 0.0)
            f1, b1 = self.forward_s[j] - f0, self.backward_s[j] - b0
            share = np.divide(b0, self.backward_s[j], out=np.full_like(b0, 0.5), where=self.backward_s[j] > 0)
            w0 = self.weight_s[j] * share
            w1 = self.weight_s[j] - w0
            found.append(Rank(before, f0, f1, b0 - w0, b1 - w1, w0, w1))
            before = before + count
        return found


def longest_path_s(
    work: Work,
    ranks: FloatArray,
    m: FloatArray,
    skipped: Callable[[Rank, FloatArray, FloatArray], Skipped],
    *,
    joined: bool,
    turn: FloatArray,
) -> FloatArray:
    """Seconds of V-shaped pipelines, (n,): ``ranks`` (C, n) of each class make one V for all ``m`` micro-batches.

    ``skipped(rank, pp, m)`` tells the schedule. ``joined``: forwards and backwards run as one in the steady state.
    ``turn``: the hop where the V turns (DualPipe, whose two halves are on different ranks), zero for a V of its own.
    """
    hop, pp, classes = work.hop_s, ranks.sum(axis=0), work.classes(ranks)
    places, every = _places(classes, ranks, skipped, pp, m, hop, turn)
    # Along all ranks the sums have one hop too many; in the last one each F1 and each I0 waits for the turn.
    f0, f1, i0, i1, joined_f0, joined_f1 = (sum_s - hop for sum_s in every)
    f1, i0, joined_f1 = f1 + turn, i0 + turn, joined_f1 + turn

    reach_i1 = f0 + f1
    ending = np.full_like(hop, -np.inf)
    for used, _rank, before, skip in places:
        reach_i1 = np.where(used, np.maximum(reach_i1, before.f0 + skip.before_i1 - before.i1), reach_i1)
        ending = np.where(used, np.maximum(ending, skip.after_i0 - before.i0), ending)
    last_i1 = i1 + i0 + ending
    turned = reach_i1 + i1
    if joined:
        # Rank 0 does its last, the last rank its first I1 as part of a whole backward.
        last_i1 = last_i1 + classes[0].w1
    for rank, count in zip(classes, ranks, strict=True):
        until_return = rank.w1 if joined else rank.w1 + rank.f0
        turned = turned + np.where((count > 0) & (rank.number + count == pp), until_return, 0.0)

    longest = np.zeros_like(hop)
    reached = f0 + f1
    ended = detour = np.full_like(hop, -np.inf)
    for used, rank, before, skip in places:
        wait = np.where(rank.number == pp - 1, turn, 0.0)
        reached = np.maximum(reached, before.f0 + skip.before_i1 - before.i1)
        ended = np.where(used, np.maximum(ended, skip.after_i0 - before.i0), ended)
        enter = np.maximum(before.f0, reached + before.i1 - skip.before_i1)
        enter = np.maximum(enter, f0 + f1 - before.f1 - rank.f1 - skip.before_f1)
        leave = before.i0 + ended - skip.after_i0
        leave = np.maximum(leave, i1 - before.i1 - rank.i1 + i0 + ending - skip.after_i1)
        whole = m * rank.all_s()
        if joined:
            whole = whole - (m - pp) * wait
            up = rank.f1 + rank.i0 + rank.w0 - wait
            enter = np.maximum(enter, turned + joined_f1 - before.joined_f1 - up - skip.before_return)
            leave = np.maximum(leave, before.joined_f1 + last_i1 - skip.after_f1)
            down = rank.f0 + rank.i1 + rank.w1
            rest = joined_f0 - before.joined_f0 - down + joined_f1 + last_i1
            leave = np.maximum(leave, rest - skip.after_f0 + wait)
        else:
            enter = np.maximum(enter, turned + i0 - before.i0 - rank.i0 - skip.before_return)
            leave = np.maximum(leave, before.f1 + last_i1 - skip.after_f1)
            # Up with the last I0 that comes before a forward, and down again with the last I1 from there.
            own = rank.w0 + rank.f1 + np.where(rank.number > 0, rank.w1 + rank.number * (rank.i0 + rank.i1), 0.0)
            detour = np.where(used, np.maximum(detour, own - before.i0 - before.i1), detour)
            rest = before.i0 + detour + i1 + i0 + ending
            leave = np.maximum(leave, rest - (rank.w0 + rank.f1 + skip.after_f1))
        longest = np.where(used, np.maximum(longest, whole + enter + leave), longest)
    if joined:
        ends = turned + joined_f1 + joined_f0 + joined_f1 + last_i1
        longest = np.maximum(longest, _looping_s(classes, ranks, hop, turn, m - 2.0 * pp - 1.0, ends))
    return longest


def _looping_s(
    classes: list[Rank], ranks: FloatArray, hop: FloatArray, turn: FloatArray, visits: FloatArray, ends: FloatArray
) -> FloatArray:
    """The longest path that loops as in 1F1B between the turn of micro-batch 0 and the last forward, (n,); or zero.

    ``ends``: all that comes before and after, if the path comes up to rank 0; ``visits`` is then left for loops. A path
    may loop below the first of some heavier ranks instead, and leave the earlier ones out of its way.
    """
    longest = heaviest = np.zeros_like(hop)
    for j, (rank, count) in enumerate(zip(classes, ranks, strict=True)):
        heavier = (count > 0) & (rank.all_s() > heaviest)
        heaviest = np.maximum(heaviest, rank.all_s())
        if heavier.any():
            left = visits + rank.number
            loops = dearest_loops_s(ranks[j:], [other.all_s() for other in classes[j:]], hop, turn, left)
            longest = np.where(heavier & (left >= 0), np.maximum(longest, ends + loops), longest)
        ends = ends - count * (rank.all_s() + 2.0 * hop)
    return longest


def _places(
    classes: list[Rank],
    ranks: FloatArray,
    skipped: Callable[[Rank, FloatArray, FloatArray], Skipped],
    pp: FloatArray,
    m: FloatArray,
    hop: FloatArray,
    turn: FloatArray,
) -> tuple[list[tuple[BoolArray, Rank, _Passed, Skipped]], _Passed]:
    """Of each class its first and its last rank (all is linear between them), and the sums over all ranks."""
    found = []
    passed = _Passed(*(np.zeros_like(hop),) * 6)
    for rank, count in zip(classes, ranks, strict=True):
        for more in (np.zeros_like(hop), np.maximum(count - 1.0, 0.0))[: 1 + bool((count > 1).any())]:
            place = rank._replace(number=rank.number + more)
            wait = np.where(place.number == pp - 1, turn, 0.0)
            place = place._replace(f1=place.f1 + wait, i0=place.i0 + wait)
            found.append((count > more, place, passed.and_(rank, more, hop), skipped(place, pp, m)))
        passed = passed.and_(rank, count, hop)
    return found, passed
