"""What a pipeline schedule is told: the work of each rank, as rows (``PipelineProfile``) or one layout in full.

A pipeline has ``pp`` ranks with ``vpp`` model chunks each. Chunk ``c`` of rank ``r`` is virtual stage ``c * pp + r``.
Ranks with equal work that follow each other form one *class*, so a row needs few columns however long the pipeline.
Interleaved layouts (``vpp`` > 1) have equal chunks but for the first (embedding) and the last (head) virtual stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]


class Task(NamedTuple):
    """One entry of a rank's order: forward or backward of one micro-batch through one chunk."""

    phase: Literal["forward", "backward"]
    micro_batch: int
    chunk: int


@dataclass(slots=True)
class PipelineProfile:
    """Rows of pipelines. Shapes: (n,) or (n, C) with C rank classes in pipeline order, padded with multiplicity 0.

    ``forward_s`` / ``backward_s`` (n, C): time of one micro-batch over *all* chunks of a rank of the class, recompute
    in the backward. ``embedding_*`` / ``head_*`` (n,): the part of the first / last rank's time that its first / last
    chunk spends beyond a regular chunk (negative where the ends hold fewer layers). ``hop_s`` (n,): latency of one
    stage-to-stage transfer.
    """

    pp: IntArray
    vpp: IntArray
    n_micro_batches: IntArray
    multiplicity: IntArray
    forward_s: FloatArray
    backward_s: FloatArray
    embedding_forward_s: FloatArray
    embedding_backward_s: FloatArray
    head_forward_s: FloatArray
    head_backward_s: FloatArray
    hop_s: FloatArray


@dataclass(slots=True)
class PipelineTimes:
    """One pipeline in full: ``forward_s[r, c]`` and ``backward_s[r, c]`` of shape (pp, vpp), seconds a micro-batch."""

    schedule: str
    pp: int
    vpp: int
    n_micro_batches: int
    forward_s: FloatArray
    backward_s: FloatArray
    hop_s: float
