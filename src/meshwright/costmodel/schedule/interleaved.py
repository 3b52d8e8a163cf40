"""Interleaved 1F1B: every rank holds vpp chunks of layers and visits them in groups of pp micro-batches.

Order: Narayanan et al., arXiv 2104.04473, section 2.2.2, with the warm-up counts of Megatron-LM's ``pipeline_parallel/
schedules.py``: 2 (pp - 1 - rank) + (vpp - 1) pp forwards. Number the forwards (and the backwards) of a rank k = 0, 1,
...; number k is chunk (k mod pp vpp) // pp, counted from the back for backwards, of micro-batch k // (pp vpp) * pp +
k mod pp. Time: the longest path through the graph of tasks. With equal chunks every hop to the next virtual stage and
every task on the same rank move a path equally far, so its length depends on where it *lives*: on the last rank (all
its heads, pp - 1 more chunks of work to reach and to leave it), on the last but one (neither head nor embedding), or
on rank 0 (all its embeddings). From rank 0 it may take the heads of the first or the last group of micro-batches along.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.pipeline import FloatArray, IntArray, PipelineProfile, Task
from meshwright.costmodel.schedule import Ints
from meshwright.formula import formula

NAME = "interleaved"


def legal(pp: Ints, vpp: Ints, n_micro_batches: Ints) -> npt.NDArray[np.bool_]:
    """Two chunks or more on two ranks or more, and whole groups of pp micro-batches (arXiv 2104.04473, 2.2.2)."""
    ranks, chunks, micro_batches = np.maximum(pp, 1), np.asarray(vpp), np.asarray(n_micro_batches, np.int64)
    return np.asarray((np.asarray(pp) >= 2) & (chunks >= 2) & (micro_batches >= 1) & (micro_batches % ranks == 0))


def _warm_up(pp: Ints, vpp: Ints, n_micro_batches: Ints, rank: Ints) -> npt.NDArray[np.int64]:
    ranks = np.asarray(pp, np.int64)
    warm = 2 * (ranks - 1 - rank) + (np.asarray(vpp) - 1) * ranks
    return np.asarray(np.minimum(warm, np.asarray(n_micro_batches, np.int64) * vpp))


def in_flight(pp: Ints, vpp: Ints, n_micro_batches: Ints, rank: Ints) -> npt.NDArray[np.int64]:
    """Chunks at the peak: the warm-up and the one that is turning; (vpp + 1) pp - 1 on rank 0 once m > pp."""
    peak = np.minimum(_warm_up(pp, vpp, n_micro_batches, rank) + 1, np.asarray(n_micro_batches, np.int64) * vpp)
    return np.asarray(peak)


def order(rank: int, pp: int, vpp: int, n_micro_batches: int) -> list[Task]:
    """The warm-up's forwards, then forward and backward in turn, then the backwards that are left."""
    total = n_micro_batches * vpp
    places = [(k // (pp * vpp) * pp + k % pp, k % (pp * vpp) // pp) for k in range(total)]
    forwards = [Task("forward", micro_batch, chunk) for micro_batch, chunk in places]
    backwards = [Task("backward", micro_batch, vpp - 1 - chunk) for micro_batch, chunk in places]
    warm = int(_warm_up(pp, vpp, n_micro_batches, rank))
    tasks = forwards[:warm]
    for pair in zip(forwards[warm:], backwards, strict=False):
        tasks += pair
    return tasks + backwards[total - warm :]


def pipeline_time_s(profile: PipelineProfile) -> FloatArray:
    """Seconds from the first forward to the last backward, (n,); exact while a hop is shorter than a chunk's forward.

    Chunks are taken as equal but for the first and the last virtual stage; where they are not, at their mean, and
    never below the work of the busiest rank.
    """
    ranks = profile.multiplicity.astype(np.float64)
    chunks = np.asarray(profile.pp * profile.vpp, np.float64)
    total_forward = (ranks * profile.forward_s).sum(axis=1)
    total_backward = (ranks * profile.backward_s).sum(axis=1)
    time = interleaved_time_s(
        profile.pp,
        profile.vpp,
        profile.n_micro_batches,
        chunk_forward_s=(total_forward - profile.embedding_forward_s - profile.head_forward_s) / chunks,
        chunk_backward_s=(total_backward - profile.embedding_backward_s - profile.head_backward_s) / chunks,
        embedding_forward_s=profile.embedding_forward_s,
        embedding_backward_s=profile.embedding_backward_s,
        head_s=profile.head_forward_s + profile.head_backward_s,
        hop_s=profile.hop_s,
    )
    busiest = np.where(ranks > 0, profile.forward_s + profile.backward_s, 0.0).max(axis=1)
    return np.asarray(np.maximum(time, profile.n_micro_batches * busiest))


class _Row(NamedTuple):
    """Columns (n,) as floats: counts, and seconds of one chunk (forward, backward), its extras and one hop."""

    pp: FloatArray
    vpp: FloatArray
    m: FloatArray
    forward: FloatArray
    backward: FloatArray
    chunk: FloatArray
    embedding_forward: FloatArray
    embedding_backward: FloatArray
    head: FloatArray
    hop: FloatArray

    def rings(self) -> FloatArray:
        """Hops around the ring in the warm-up and again in the cool-down, where they replace tasks on one rank."""
        return 2.0 * (self.vpp - 1.0) * self.pp * self.hop

    def slow_hops(self) -> FloatArray:
        """What going round the ring adds in the steady state, where a hop outlasts the task it replaces."""
        shorter = np.minimum(self.forward, self.backward)
        return (self.m / self.pp - 1.0) * (self.vpp - 1.0) * self.pp * np.maximum(self.hop - shorter, 0.0)

    def turns(self, extra: FloatArray | float) -> FloatArray:
        """What running down the last chunk and up again adds, instead of ``extra`` work on the rank it lives on."""
        many = (self.m / self.pp - 1.0) * (self.pp - 1.0) / 2.0 + np.floor(self.pp / 2.0 - 1.0)
        return np.asarray(many * np.maximum(2.0 * self.hop - self.chunk - 2.0 * extra, 0.0))


@formula("longest path through the interleaved order of arXiv 2104.04473 section 2.2.2, closed form", "s")
def interleaved_time_s(
    pp: IntArray,
    vpp: IntArray,
    n_micro_batches: IntArray,
    *,
    chunk_forward_s: FloatArray,
    chunk_backward_s: FloatArray,
    embedding_forward_s: FloatArray,
    embedding_backward_s: FloatArray,
    head_s: FloatArray,
    hop_s: FloatArray,
) -> FloatArray:
    """Time of an interleaved pipeline: the longest of the paths that live on the last, last but one and first rank.

    All (n,); ``chunk_*`` a regular chunk of one rank, ``embedding_*`` and ``head_s`` (forward and backward) what the
    first and the last virtual stage take beyond it (may be negative).
    """
    row = _Row(
        pp.astype(float),
        vpp.astype(float),
        n_micro_batches.astype(float),
        chunk_forward_s,
        chunk_backward_s,
        chunk_forward_s + chunk_backward_s,
        embedding_forward_s,
        embedding_backward_s,
        head_s,
        hop_s,
    )
    inner = np.where(row.pp > 2, _on_last_but_one_s(row), 0.0)
    return np.maximum(np.maximum(_on_last_s(row), inner), _on_first_s(row))


def _on_last_s(row: _Row) -> FloatArray:
    """Every head, one trip down and up. The embeddings of a whole group may replace hops at either end."""
    reach = _end_s(row, row.embedding_forward, row.pp - 1.0, 1.0)
    leave = _end_s(row, row.embedding_backward, row.pp - 1.0, 1.0)
    work = (row.m * row.vpp + row.pp - 1.0) * row.chunk + row.m * row.head
    return np.asarray(work + reach + leave + row.rings() + row.slow_hops() + row.turns(row.head))


def _on_last_but_one_s(row: _Row) -> FloatArray:
    """No head but, if that pays, the first: the path turns once on the last rank, and its hop back is a backward."""
    reach = _end_s(row, row.embedding_forward, row.pp - 2.0, 2.0)
    first_head = row.backward - row.forward + row.head + _end_s(row, row.embedding_forward, row.pp, 0.0)
    leave = _end_s(row, row.embedding_backward, row.pp - 2.0, 2.0)
    work = (row.m * row.vpp + row.pp - 2.0) * row.chunk
    return np.asarray(work + np.maximum(reach, first_head) + leave + row.rings() + row.slow_hops() + row.turns(0.0))


def _end_s(row: _Row, embedding: FloatArray, hops: FloatArray, fewer: float) -> FloatArray:
    """One embedding and ``hops``; or pp embeddings, which leaves ``fewer`` hops less than none for the trip."""
    return np.asarray(embedding + np.maximum(hops * row.hop, (row.pp - 1.0) * embedding - fewer * row.hop))


def _on_first_s(row: _Row) -> FloatArray:
    """Every embedding; and at either end, if that pays, a group of heads in exchange for embeddings."""
    many = row.m > row.pp
    forward, backward = row.embedding_forward, row.embedding_backward
    ends = np.maximum(np.maximum(_move_s(row, many, row.backward, forward), _turn_s(row, many)), 0.0)
    ends += np.maximum(_move_s(row, many, row.forward, backward), 0.0)
    embedding = forward + backward
    slow = row.slow_hops() + row.turns(embedding)
    # Moving to another rank and going round the ring use the same steps: one or the other.
    return np.asarray(row.m * (row.vpp * row.chunk + embedding) + row.rings() + np.maximum(ends, slow))


def _move_s(row: _Row, many: npt.NDArray[np.bool_], task: FloatArray, embedding: FloatArray) -> FloatArray:
    """Live on the last rank for a group of heads (or on the one before it), then hop round the ring to rank 0.

    Adds ``task`` pp - 2 times; costs the embeddings of that group, or of nearly two groups but for a round of hops.
    """
    pp = row.pp
    heads = np.maximum(pp * row.head, np.where(pp > 2, -2.0 * task, -np.inf))
    lost = np.maximum(-pp * embedding, pp * row.hop - (2.0 * pp - 1.0) * embedding)
    return np.where(many, (pp - 2.0) * task + heads + lost, 0.0)


def _turn_s(row: _Row, many: npt.NDArray[np.bool_]) -> FloatArray:
    """Turn on the last rank, after one head or a group of them, and go up with the backwards to rank 0."""
    pp, embedding = row.pp, row.embedding_forward
    up = (pp - 1.0) * np.where(many, row.backward - row.forward, row.backward)
    heads = np.maximum(row.head, np.where(many, pp * row.head - embedding, -np.inf))
    lost = np.where(many, pp - 1.0, 0.0)
    stays = (pp - 2.0) * row.hop - lost * embedding
    hops = (2.0 * pp - 2.0) * row.hop - (lost + pp - 1.0) * embedding
    return np.asarray(up + heads + np.maximum(stays, hops))
