"""Memory of one pipeline rank by class, for the rank that is worst, per phase of a run.

States after Rajbhandari et al., arXiv 1910.02054; activations after Korthikanti et al., arXiv 2205.05198; in-flight
micro-batches from the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.axis import data
from meshwright.costmodel.gather import FloatArray, Gathered, IndexArray
from meshwright.costmodel.rows import distinct
from meshwright.costmodel.schedule import schedules
from meshwright.formula import formula
from meshwright.specs.constants import Constants
from meshwright.specs.estimate import MEMORY_PHASES
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch

#: fp32 master weight, first and second moment of Adam.
ADAM_STATE_BYTES = 12
#: The share of Adam's state that its first step creates.
ADAM_MOMENTS_SHARE = 2.0 / 3.0


@formula("mixed-precision Adam, arXiv 1910.02054 section 3.1: 2 + 2 + 12 bytes a parameter in fp16", "bytes")
def state_bytes(
    parameters: FloatArray, element_bytes: int, grad_bytes: int, optimizer_shards: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights, gradients and optimizer state of ``parameters`` elements a rank; the last divided by ZeRO-1."""
    return element_bytes * parameters, grad_bytes * parameters, ADAM_STATE_BYTES * parameters / optimizer_shards


@formula("allocator slack over what is allocated, measured 3-9 %", "bytes")
def reserved_bytes(allocated_bytes: FloatArray, outside_bytes: FloatArray, fragmentation_ratio: float) -> FloatArray:
    """What the caching allocator reserves for ``allocated_bytes``, plus what lies outside it."""
    return np.asarray((allocated_bytes - outside_bytes) * (1.0 + fragmentation_ratio) + outside_bytes)


@formula("saved activations of every micro-batch in flight, and the recomputed ones of the part that runs", "bytes")
def activation_bytes(
    in_flight_chunks: FloatArray, vpp: npt.NDArray[np.int32], saved_bytes: FloatArray, working_bytes: FloatArray
) -> FloatArray:
    """Activations of a rank whose ``vpp`` chunks together save ``saved_bytes`` a micro-batch, (n,)."""
    return np.asarray(in_flight_chunks / vpp * saved_bytes + working_bytes)


@dataclass(slots=True)
class Peak:
    """Peak of the worst rank, (n,) each; ``worst_class`` indexes the rank classes of ``Gathered``."""

    allocated_bytes: FloatArray
    reserved_bytes: FloatArray
    worst_class: IndexArray
    outside_bytes: FloatArray


def peak(rows: Gathered) -> Peak:
    """Peak memory of the worst rank of every row.

    What is held for the backward is computed on rows that differ in it, states on rows that differ in those.
    """
    held_first, held_row = distinct(rows.columns())
    state_first, state_row = distinct(((rows.cell_row, len(rows.cells)), (rows.layouts.zero_stage, 2)))
    holders, owners = rows.take(held_first), rows.take(state_first)
    worst = np.zeros(len(rows), np.intp)
    highest = np.full(len(rows), -np.inf)
    working = _working(holders)
    for index in range(rows.n_classes):
        held = sum(_held(holders, index, working).values(), np.zeros(len(holders)))
        states = sum(_states(owners, index).values(), np.zeros(len(owners)))
        # A rank class that a row does not have is never its worst.
        states = np.where(owners.present(index), states, -np.inf)
        here = held.take(held_row) + states.take(state_row)
        if index:
            np.copyto(worst, index, where=here > highest)
        highest = np.maximum(highest, here)
    outside = (_buffers(owners) + rows.constants.get("context_bytes")).take(state_row)
    allocated = highest + outside
    reserved = reserved_bytes(allocated, outside, rows.constants.get("fragmentation_ratio"))
    return Peak(allocated, reserved, worst, outside)


def _states(rows: Gathered, class_index: int | IndexArray) -> dict[str, FloatArray]:
    """Bytes of weights, gradients and optimizer state on a rank of the class, (n,) each."""
    job = rows.job
    shards = data.divides("optimizer_state", rows.layouts)
    found = state_bytes(rows.rank_parameters(class_index), job.element_bytes, job.grad_bytes, shards)
    return dict(zip(("weights", "gradients", "optimizer"), found, strict=True))


def _working(rows: Gathered) -> FloatArray:
    """Recomputed activations of the layer that runs backward, the largest of any kind of layer, (n,)."""
    table = rows.tables.activations.working_bytes
    working = np.zeros(len(rows))
    if table.any():
        for part in range(1, len(table) - 1):
            working = np.maximum(working, rows.part(table, part))
    return working


def _held(
    rows: Gathered, class_index: int | IndexArray, working: FloatArray, rank: npt.NDArray[np.int32] | None = None
) -> dict[str, FloatArray]:
    """Bytes that the passes hold on a rank of the class (the fullest by default), (n,) each.

    ``working`` is the same on every rank.
    """
    job, layouts, tables = rows.job, rows.layouts, rows.tables.activations
    activations = activation_bytes(
        _in_flight(rows, rows.first_rank(class_index) if rank is None else rank),
        layouts.vpp,
        rows.in_class(tables.saved_bytes, class_index),
        working,
    )
    # With sequence parallelism each block gathers its input over the TP group while it runs.
    token_bytes = float(job.element_bytes * job.seq_len * job.model.hidden_size)
    gathered = np.asarray((layouts.sp * layouts.micro_batch) * token_bytes, np.float64)
    logits = rows.in_class(tables.logits_bytes, class_index)
    return {"activations": activations, "logits": logits, "gather": gathered}


def _in_flight(rows: Gathered, rank: npt.NDArray[np.int32]) -> FloatArray:
    """Chunk activations alive at the peak on ``rank``, (n,)."""
    layouts, m = rows.layouts, rows.n_micro_batches
    alive = np.zeros(len(rows))
    for code, name in enumerate(layouts.schedules):
        chosen = layouts.schedule == code
        if chosen.any():
            np.copyto(alive, schedules()[name].in_flight(layouts.pp, layouts.vpp, m, rank), where=chosen)
    return alive


def _buffers(rows: Gathered) -> FloatArray:
    """Communicator buffers of the groups a rank belongs to, and library workspaces, (n,)."""
    layouts = rows.layouts
    communicators = (layouts.tp > 1).astype(float) + (layouts.dp > 1) + (layouts.pp > 1)
    return communicators * rows.constants.get("communicator_buffer_bytes") + rows.constants.get("workspace_bytes")


def by_class(rows: Gathered, found: Peak) -> dict[str, FloatArray]:
    """Bytes of the worst rank by class of memory, (n,) each; they sum to the peak."""
    context = np.full(len(rows), rows.constants.get("context_bytes"))
    tensors = _states(rows, found.worst_class) | _held(rows, found.worst_class, _working(rows))
    return tensors | {"buffers": found.outside_bytes - context, "context": context}


def by_rank(
    job: TrainingJob, cluster: Cluster, layout: Layout, constants: Constants
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Bytes of every pipeline rank at its peak: by class of memory, (pp,) each, and the reserved peak, (pp,)."""
    rows = Gathered.of(job, cluster, LayoutBatch.of([layout] * layout.pp), constants)
    rank = np.arange(layout.pp, dtype=np.int32)
    first = rows.stages.first_rank[:, 0][rows.stages.multiplicity[:, 0] > 0]
    class_index = np.searchsorted(first, rank, side="right") - 1
    context = np.full(layout.pp, constants.get("context_bytes"))
    buffers = _buffers(rows)
    by = _states(rows, class_index) | _held(rows, class_index, _working(rows), rank)
    by |= {"buffers": buffers, "context": context}
    allocated = np.sum(list(by.values()), axis=0)
    return by, reserved_bytes(allocated, buffers + context, constants.get("fragmentation_ratio"))


def by_phase(found: Peak, by: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Peak of the worst rank in each phase of a run, (n,) each.

    Loading holds the weights; Adam creates its moments at the end of the first step; saving writes what is resident.
    """
    states = by["weights"] + by["gradients"] + by["optimizer"]
    steady = found.allocated_bytes
    phases = (
        by["weights"] + by["context"],
        steady - ADAM_MOMENTS_SHARE * by["optimizer"],
        steady,
        steady,
        states + found.outside_bytes,
    )
    return dict(zip(MEMORY_PHASES, phases, strict=True))


def fits(found: Peak, cluster: Cluster, constants: Constants) -> npt.NDArray[np.int8]:
    """2 (yes) where the reserved peak leaves a margin, 1 (tight) where the allocated one fits at all, 0 (no)."""
    tight = np.where(found.allocated_bytes <= capacity_bytes(cluster, constants), 1, 0)
    return np.where(found.reserved_bytes <= roomy_bytes(cluster, constants), 2, tight).astype(np.int8)


def capacity_bytes(cluster: Cluster, constants: Constants) -> float:
    """What one GPU can hold."""
    return cluster.gpu.memory_bytes * constants.get("usable_memory_ratio")


def roomy_bytes(cluster: Cluster, constants: Constants) -> float:
    """What the reserved peak may be at most for a layout to fit without doubt."""
    return capacity_bytes(cluster, constants) * (1.0 - constants.get("memory_margin_ratio"))


def host_bytes(cluster: Cluster, constants: Constants) -> float:
    """Host memory of a node: one Python process with pinned staging for each GPU."""
    return cluster.gpus_per_node * constants.get("host_bytes_per_process")
