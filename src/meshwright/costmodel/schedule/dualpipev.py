"""DualPipeV: DualPipe cut in half, each rank with two chunks of the model placed as a V.

Order: github.com/deepseek-ai/DualPipe, dualpipe/dualpipev.py (as torch.distributed.pipelining's ScheduleDualPipeV). In
the steady state a forward of one chunk and a whole backward of the other run as one, so that the expert and tensor
traffic of one hides behind the computation of the other; their time here is the sum of both, and what is hidden is left
out of the block times. Bubble of its README in virtual stages PP = 2 pp: (PP / 2 - 1) (F&B + B - 3 W), with B a whole
backward; activations PP + 1, parameters as any V.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.pipeline import FloatArray, PipelineProfile, Task, in_blocks
from meshwright.costmodel.schedule import Ints
from meshwright.costmodel.schedule._v_shape import Rank, Skipped, Work, longest_path_s, stages_of_rank
from meshwright.formula import formula

NAME = "dualpipev"
SPLITS_BACKWARD = True
HIDES_EXPERT_TRAFFIC = True
__all__ = [
    "HIDES_EXPERT_TRAFFIC",
    "NAME",
    "SPLITS_BACKWARD",
    "in_flight",
    "legal",
    "order",
    "pipeline_time_s",
    "stages_of_rank",
]


def legal(pp: Ints, vpp: Ints, n_micro_batches: Ints) -> npt.NDArray[np.bool_]:
    """Two chunks a rank and as many micro-batches as virtual stages or more."""
    ranks, m = np.asarray(pp), np.asarray(n_micro_batches, np.int64)
    return np.asarray((ranks >= 2) & (np.asarray(vpp) == 2) & (m >= 2 * ranks))


def order(rank: int, pp: int, vpp: int, n_micro_batches: int) -> list[Task]:
    """Eight steps: fill, both chunks, turn, joined, drain; the last backwards put weight gradients off."""
    tasks: list[Task] = []
    forwards, backwards = [0, 0], [0, 0]
    put_off: list[Task] = []

    def forward(chunk: int, *, joined: bool = False) -> None:
        tasks.append(Task("forward", forwards[chunk], chunk, joined))
        forwards[chunk] += 1

    def backward(chunk: int, *, whole: bool = True) -> None:
        i = backwards[chunk]
        tasks.append(Task("backward", i, chunk))
        backwards[chunk] += 1
        if not whole:
            put_off.append(Task("weight", i, chunk))

    def weight() -> None:
        tasks.append(put_off.pop(0))

    before, after = rank + 1, pp - 1 - rank
    for _step in range(2 * after):
        forward(0)
    for _step in range(before):
        forward(0)
        forward(1)
    for _step in range(after):
        backward(1, whole=False)
        weight()
        forward(1)
    for step in range(n_micro_batches - 2 * pp + before):
        # The last rank turns its micro-batch at once.
        forward(0, joined=step > 0 or after > 0)
        backward(1)
        forward(1, joined=True)
        backward(0)
    for _step in range(after):
        backward(1)
        forward(1, joined=True)
        backward(0)
    # The second half of what is left puts its weight gradients off.
    for k in range(2 * before):
        backward(1 - k % 2, whole=k < before)
    for _step in range(after):
        weight()
        backward(0, whole=False)
    for _step in range(before):
        weight()
    return tasks


def in_flight(pp: Ints, vpp: Ints, n_micro_batches: Ints, rank: Ints) -> npt.NDArray[np.int64]:
    """2 pp + 1 chunks on every rank, one more than the virtual stages (the table of deepseek-ai/DualPipe)."""
    shape = np.broadcast_shapes(*(np.shape(column) for column in (pp, vpp, n_micro_batches, rank)))
    return np.array(np.broadcast_to(2 * np.asarray(pp, np.int64) + 1, shape))


def pipeline_time_s(profile: PipelineProfile) -> FloatArray:
    """Seconds from the first forward to the last weight gradient, (n,); exact for equal ranks but for rare mixes."""
    return in_blocks(_time_s, profile)


def _time_s(profile: PipelineProfile) -> FloatArray:
    ranks, m = np.ascontiguousarray(profile.multiplicity.T, np.float64), profile.n_micro_batches.astype(float)
    no_turn = np.zeros_like(profile.hop_s)
    return dual_pipe_time_s(ranks=ranks, n_micro_batches=m, turn_hop_s=no_turn, **Work.of(profile)._asdict())


@formula("longest path through the order of github.com/deepseek-ai/DualPipe, closed form over rank classes", "s")
def dual_pipe_time_s(
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
    turn_hop_s: FloatArray,
) -> FloatArray:
    """Time of a DualPipe or DualPipeV pipeline, (n,): that of one V.

    ``ranks`` of the V, ``forward_s``, ``backward_s`` and of it ``weight_s`` (C, n) of rank classes, both chunks;
    ``embedding_*`` and ``head_*`` (n,), what the first and the last virtual stage take beyond a regular chunk;
    ``n_micro_batches`` that go through the V and ``turn_hop_s``, the hop where it turns, (n,).
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
    return longest_path_s(work, ranks, n_micro_batches, _skipped, joined=True, turn=turn_hop_s)


def _skipped(rank: Rank, pp: FloatArray, m: FloatArray) -> Skipped:
    here = rank.number + 1
    after = pp - here
    # Weight gradients wait in one queue: of the last ``here`` backwards every other is of chunk 1.
    late_w1 = np.maximum(rank.number - np.floor((pp - 1) / 2), 0.0)
    half = np.floor(here / 2)
    return Skipped(
        before_f1=(2 * after + 1) * rank.f0,
        before_i1=(2 * after + here + (after == 0)) * rank.f0 + here * rank.f1,
        before_return=(2 * after + here + 1) * rank.f0 + pp * rank.f1 + (after + 1) * (rank.i1 + rank.w1),
        after_i0=late_w1 * rank.w1 + (here - late_w1) * rank.w0,
        after_i1=(after + 1) * rank.i0 + half * rank.w1 + (here - half + after) * rank.w0,
        after_f1=here * (rank.i1 + rank.w1) + pp * (rank.i0 + rank.w0),
        after_f0=(after + 1) * rank.f1 + pp * (rank.i1 + rank.w1) + (pp + 1 + after) * (rank.i0 + rank.w0),
    )
