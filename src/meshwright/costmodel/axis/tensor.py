"""Tensor parallelism (Shoeybi et al., arXiv 1909.08053) with sequence parallelism (arXiv 2205.05198)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from meshwright.costmodel import block as blocks
from meshwright.costmodel.axis import BoolArray, FloatArray, Traffic
from meshwright.costmodel.operator import Shapes
from meshwright.costmodel.recompute import parts_of
from meshwright.i18n import N_
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import LayoutBatch

NAME = "tp"
RULES = {
    "tp_divides_heads": N_("tp must divide the attention heads"),
    "tp_divides_kv_heads": N_("tp must divide the key-value heads or be a multiple of them"),
    "tp_divides_intermediate": N_("tp must divide the intermediate size of the MLP"),
    "tp_fits_nodes": N_("tp must divide the GPUs of a node or be a multiple of them"),
    "sp_needs_tp": N_("sequence parallelism needs tp of at least 2"),
    "sp_divides_sequence": N_("with sequence parallelism tp x cp must divide the sequence length"),
}


def legal(job: TrainingJob, cluster: Cluster, layouts: LayoutBatch) -> Mapping[str, BoolArray]:
    """TP divides what it cuts and sits evenly on the nodes; SP needs TP."""
    found: dict[str, BoolArray] = {}
    for member in itertools.chain(*parts_of(job)):
        for rule, violated in blocks.violations(job.model, member, layouts).items():
            found[rule] = found[rule] | violated if rule in found else violated
    per_node = cluster.domain_gpus
    found["tp_fits_nodes"] = (per_node % layouts.tp != 0) & (layouts.tp % per_node != 0)
    found["sp_needs_tp"] = (layouts.sp != 0) & (layouts.tp < 2)
    found["sp_divides_sequence"] = (layouts.sp != 0) & (job.seq_len % (layouts.tp.astype(np.int64) * layouts.cp) != 0)
    return found


def divides(tensor_kind: str, layouts: LayoutBatch) -> FloatArray:
    """TP divides the sharded parameters."""
    return layouts.tp.astype(float) if tensor_kind == "sharded_parameters" else np.ones(len(layouts))


def sends(phases: tuple[str, ...], shapes: Shapes, *, sequence_parallel: bool) -> list[Traffic]:
    """Traffic of one block that reduces over its boundary in ``phases``, for one micro-batch.

    Plain: an all-reduce of the activations in each phase. With sequence parallelism each all-reduce becomes a
    reduce-scatter and an all-gather (arXiv 2205.05198, section 4.2.2): equal volume, more calls.
    """
    size = shapes.element_bytes * shapes.tokens * shapes.hidden_size
    found = []
    for phase in ("forward", "backward"):
        if phase in phases:
            kinds = ("all_gather", "reduce_scatter") if sequence_parallel else ("all_reduce",)
            found += [Traffic(NAME, kind, size, 1, phase) for kind in kinds]
    return found
