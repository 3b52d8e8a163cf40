"""Activations: what each part of a model keeps from forward to backward, on distinct shapes and recompute masks.

The closed forms of Korthikanti et al., arXiv 2205.05198, come out as sums over what each block says it saves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshwright.costmodel import block as blocks
from meshwright.costmodel.operator import FloatArray, Shapes
from meshwright.costmodel.recompute import part_masks, parts_of, recomputed, shapes_of
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import RECOMPUTE_BITS, LayoutBatch
from meshwright.specs.model import BlockSpec

IntArray = npt.NDArray[np.int32]


@dataclass(slots=True)
class Activations:
    """Bytes of each part for a micro-batch and rank: (K, r) for K parts; row ``i * M + j`` as in ``BlockTimes``.

    ``saved_bytes`` are kept to the backward, ``logits_bytes`` from loss forward to backward, ``working_bytes`` live
    while the part itself runs backward (its own recomputed activations).
    """

    saved_bytes: FloatArray
    logits_bytes: FloatArray
    working_bytes: FloatArray


def activations(job: TrainingJob, rows: LayoutBatch, masks: IntArray) -> Activations:
    """Activations of every part on the distinct shapes of ``rows`` (tp, sp, micro_batch) under each mask."""
    parts, shapes = parts_of(job), shapes_of(job, rows)
    found = [_part(job, members, shapes, part_masks(masks, i, len(parts))) for i, members in enumerate(parts)]
    return Activations(*(np.stack([part[i].ravel() for part in found]) for i in range(3)))


def _part(
    job: TrainingJob, members: tuple[BlockSpec, ...], shapes: Shapes, masks: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Saved, logits and working bytes of one part, (r, M) each."""
    saved, logits, working = (np.zeros((len(shapes.tp), len(masks))) for _ in range(3))
    of_module: dict[str, FloatArray] = {}
    for member in members:
        for item in blocks.kind(member).saved(job.model, member, shapes):
            if item.logits:
                logits += item.size_bytes[:, None]
            else:
                of_module[item.module] = of_module.get(item.module, 0.0) + item.size_bytes
    for module, size_bytes in of_module.items():
        # The residual stream between blocks stays whatever is recomputed inside them.
        again = recomputed(masks, module) if module != "layer" else np.zeros(len(masks))
        saved += (1.0 - again) * size_bytes[:, None]
        if again.any():
            working += again * size_bytes[:, None]
    # A fully recomputed layer keeps its input only; what else it saved is needed again while it runs backward.
    full = (masks & RECOMPUTE_BITS["layer"]) != 0
    layer_input = (shapes.element_bytes * shapes.outer_tokens * job.model.hidden_size)[:, None]
    working += np.where(full, np.maximum(saved - layer_input, 0.0), 0.0)
    return np.where(full, np.minimum(saved, layer_input), saved), logits, working
