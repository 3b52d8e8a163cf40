"""Pipeline parallelism: stages of layers, 1F1B or interleaved (arXiv 2104.04473)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from meshwright.costmodel.axis import BoolArray, FloatArray, Traffic
from meshwright.costmodel.rows import distinct
from meshwright.costmodel.schedule import schedules
from meshwright.costmodel.stages import layers_per_stage
from meshwright.i18n import N_
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import LayoutBatch, rank_order

NAME = "pp"
RULES = {
    "split_fits": N_("the stage split must give every stage its layers (pp x vpp must divide them when interleaved)"),
    "schedule_fits": N_("the schedule must suit pp, vpp and the number of micro-batches"),
    "schedule_known": N_("the schedule must be a known one"),
    "rank_order_known": N_("rank_order must name tp, cp, dp and pp once each"),
}


def legal(job: TrainingJob, cluster: Cluster, layouts: LayoutBatch) -> Mapping[str, BoolArray]:
    """Every stage has layers, and the schedule accepts pp, vpp and the micro-batches."""
    known = schedules()
    n_micro_batches = np.maximum(job.global_batch // (layouts.dp.astype(np.int64) * layouts.micro_batch), 1)
    unfit = np.zeros(len(layouts), bool)
    unknown = np.zeros(len(layouts), bool)
    for code, name in enumerate(layouts.schedules):
        rows = layouts.schedule == code
        if name not in known:
            unknown |= rows
        else:
            unfit |= rows & ~known[name].legal(layouts.pp, layouts.vpp, n_micro_batches)
    bad_order = np.array([rank_order(order) != order for order in layouts.rank_orders])
    return {
        "split_fits": ~split_fits(job.model.n_layers, layouts),
        "schedule_fits": unfit,
        "schedule_known": unknown,
        "rank_order_known": bad_order[layouts.rank_order],
    }


def split_fits(n_layers: int, layouts: LayoutBatch) -> BoolArray:
    """Rows whose stage split gives every stage its layers."""
    first, inverse = distinct((layouts.stage_split, layouts.pp, layouts.vpp))
    fits = [
        layers_per_stage(
            layouts.stage_splits[int(layouts.stage_split[i])], n_layers, int(layouts.pp[i]), int(layouts.vpp[i])
        )
        is not None
        for i in first
    ]
    return np.asarray(fits, bool)[inverse]


def divides(tensor_kind: str, layouts: LayoutBatch) -> FloatArray:
    """Stages divide the model by counting layers (see ``stages``), not by a common factor."""
    return np.ones(len(layouts))


def sends(job: TrainingJob, layouts: LayoutBatch) -> Traffic:
    """One activation (forward) or its gradient (backward) a micro-batch and stage boundary, 1/(tp cp) of it a rank.

    Megatron's scatter-gather sends 1/tp over the network and gathers it in the node; with sequence parallelism the
    activation is cut that way to begin with (arXiv 2104.04473, section 4.1).
    """
    size = job.element_bytes * layouts.micro_batch * float(job.seq_len) * job.model.hidden_size
    return Traffic(NAME, "send_recv", np.asarray(size / (layouts.tp * layouts.cp), float), 1, "forward")
