"""What a pipeline schedule is told: the work of each rank, as rows (``PipelineProfile``) or one layout in full.

The model is cut into pp * vpp virtual stages, numbered in model order. A pipeline has ``pp`` ranks; which stages a
rank holds as its *chunks* 0, 1, ... is for the schedule to say (``meshwright.costmodel.schedule.stages_of_rank``).
Ranks with equal work that follow each other form one *class*, so a row needs few columns however long the pipeline.
Layouts with several chunks a rank have equal chunks but for the first (embedding) and the last (head) virtual stage.

A backward has two parts: the gradient of the input, which the stage before waits for, and that of the weights, which
nobody waits for. ``backward_s`` is always the whole, recompute included, and ``weight_s`` the second part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]

Phase = Literal["forward", "backward", "weight"]


class Task(NamedTuple):
    """One entry of a rank's order: a phase of one micro-batch through one chunk.

    A ``backward`` is the whole of it, or the input's gradient alone where the order has a ``weight`` task for the same
    micro-batch and chunk. A ``joined`` task runs as one with the next: both wait for what either needs, and what they
    send leaves when both are done.
    """

    phase: Phase
    micro_batch: int
    chunk: int
    joined: bool = False


@dataclass(slots=True)
class PipelineProfile:
    """Rows of pipelines. Shapes: (n,) or (n, C) with C rank classes in pipeline order, padded with multiplicity 0.

    ``forward_s`` / ``backward_s`` (n, C): time of one micro-batch over *all* chunks of a rank of the class, recompute
    in the backward; ``weight_s`` (n, C): the part of ``backward_s`` that is the weight gradient. ``embedding_*`` /
    ``head_*`` (n,): the part of that time that the first / last virtual stage spends beyond a regular chunk (negative
    where the ends hold fewer layers). ``hop_s`` (n,): latency of one transfer between ranks.
    """

    pp: IntArray
    vpp: IntArray
    n_micro_batches: IntArray
    multiplicity: IntArray
    forward_s: FloatArray
    backward_s: FloatArray
    weight_s: FloatArray
    embedding_forward_s: FloatArray
    embedding_backward_s: FloatArray
    head_forward_s: FloatArray
    head_backward_s: FloatArray
    hop_s: FloatArray


#: Rows that a closed form takes at a time: the few dozen columns that it works on stay in the cache.
_ROWS = 4096


def in_blocks(time_s: Callable[[PipelineProfile], FloatArray], profile: PipelineProfile) -> FloatArray:
    """``time_s`` of a profile, (n,), some thousands of rows at a time and without classes that none of these use."""
    if len(profile.hop_s) <= _ROWS and profile.multiplicity.any(axis=0).all():
        return time_s(profile)
    time = np.zeros(len(profile.hop_s))
    for start in range(0, len(time), _ROWS):
        rows = slice(start, start + _ROWS)
        used = profile.multiplicity[rows].any(axis=0)
        columns = {name: getattr(profile, name)[rows] for name in profile.__slots__}
        # Transposed, so that a class of all rows stays together in memory.
        wide = {name: column.T[used].T for name, column in columns.items() if column.ndim == 2}
        time[rows] = time_s(PipelineProfile(**(columns | wide)))
    return time


@dataclass(slots=True)
class PipelineTimes:
    """One pipeline in full.

    ``forward_s[r, c]``, ``backward_s[r, c]`` and its part ``weight_s[r, c]``, each of a micro-batch.
    Shape (pp, chunks): as many chunks as ``stages_of_rank`` lists, which is vpp but for DualPipe's two.
    """

    schedule: str
    pp: int
    vpp: int
    n_micro_batches: int
    forward_s: FloatArray
    backward_s: FloatArray
    weight_s: FloatArray
    hop_s: float
