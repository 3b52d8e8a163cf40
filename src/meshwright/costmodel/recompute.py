"""Recomputation: parts of a model, the shapes they run with, and what a recompute mask repeats in them.

A *part* is what stages are counted in: the prologue, one layer of each kind, the epilogue.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.operator import FloatArray, Shapes
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import RECOMPUTE_BITS, LayoutBatch
from meshwright.specs.model import BlockSpec

IntArray = npt.NDArray[np.int32]
#: Recomputing a module recomputes what lies inside it.
_WITHIN = {
    "core_attention": ("core_attention", "attention"),
    "attention": ("attention",),
    "mlp": ("mlp",),
    "norm": ("norm",),
    "moe": ("moe",),
    "moe_activation": ("moe_activation", "moe"),
    "mla_up": ("mla_up", "attention"),
}


def parts_of(job: TrainingJob) -> tuple[tuple[BlockSpec, ...], ...]:
    """Blocks of each part: prologue, one layer of each kind, epilogue."""
    return (job.model.prologue, *job.model.layer_kinds, job.model.epilogue)


def shapes_of(job: TrainingJob, rows: LayoutBatch) -> Shapes:
    """The shapes that blocks run with on a rank of each row, (r,)."""
    tp = rows.tp.astype(float)
    return Shapes(
        micro_batch=rows.micro_batch.astype(float),
        tp=tp,
        sp_degree=np.where(rows.sp != 0, tp, 1.0),
        cp=rows.cp.astype(float),
        ep=rows.ep.astype(float),
        etp=rows.etp.astype(float),
        seq_len=job.seq_len,
        hidden_size=job.model.hidden_size,
        vocab_size=job.model.vocab_size,
        element_bytes=job.element_bytes,
        attention=job.attention,
        document_len=float(job.document_len or job.seq_len),
        expert_load_ratio=job.expert_load_ratio,
    )


def part_masks(masks: IntArray, part: int, n_parts: int) -> IntArray:
    """The masks as they act on a part: the ends are never recomputed, recomputation wraps layers."""
    return masks if 0 < part < n_parts - 1 else np.zeros_like(masks)


def recomputed(masks: IntArray, module: str) -> FloatArray:
    """1.0 where a mask covers ``module``, (M,)."""
    bits = RECOMPUTE_BITS["layer"]
    for cover in _WITHIN.get(module, ()):
        bits |= RECOMPUTE_BITS[cover]
    return np.where((masks & bits) != 0, 1.0, 0.0)
