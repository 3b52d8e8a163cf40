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
from meshwright.costmodel.optimizer import OptimizerBytes, moment_bytes, state_bytes_per_parameter
from meshwright.costmodel.rows import distinct
from meshwright.costmodel.schedule import schedules
from meshwright.formula import formula
from meshwright.specs.constants import Constants
from meshwright.specs.estimate import MEMORY_CLASSES, MEMORY_PHASES
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import OFFLOADS, Layout, LayoutBatch


@formula("ZeRO, arXiv 1910.02054 section 3.1: 2 + 2 + 12 bytes a parameter for Adam in fp16", "bytes")
def state_bytes(
    parameters: FloatArray, per_parameter: OptimizerBytes, optimizer_shards: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights, gradients and optimizer state of ``parameters`` trained elements a rank; the last divided by ZeRO-1."""
    weights, gradients, optimizer = per_parameter
    return weights * parameters, gradients * parameters, optimizer * parameters / optimizer_shards


@formula("allocator slack over what is allocated, measured 3-9 %", "bytes")
def reserved_bytes(allocated_bytes: FloatArray, outside_bytes: FloatArray, fragmentation_ratio: float) -> FloatArray:
    """What the caching allocator reserves for ``allocated_bytes``, plus what lies outside it."""
    return np.asarray((allocated_bytes - outside_bytes) * (1.0 + fragmentation_ratio) + outside_bytes)


@formula("saved activations of every micro-batch in flight, and the recomputed ones of the part that runs", "bytes")
def activation_bytes(
    in_flight_chunks: FloatArray, chunks: npt.NDArray[np.int32], saved_bytes: FloatArray, working_bytes: FloatArray
) -> FloatArray:
    """Activations of a rank whose ``chunks`` together save ``saved_bytes`` a micro-batch, (n,)."""
    return np.asarray(in_flight_chunks / chunks * saved_bytes + working_bytes)


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
    held_first, held_row = distinct(rows.held_columns())
    state_first, state_row = distinct(rows.state_columns())
    holders, owners = rows.take(held_first), rows.take(state_first)
    held = sum(_held(holders, None).values(), np.zeros(()))
    states = sum(_states(owners, None).values(), np.zeros(()))
    # A rank class that a row does not have is never its worst.
    states = np.where(owners.multiplicity() > 0, states, -np.inf)
    highest = held[0].take(held_row) + states[0].take(state_row)
    worst = np.zeros(len(rows), np.intp)
    for index in range(1, rows.n_classes):
        here = held[index].take(held_row) + states[index].take(state_row)
        worst = np.where(here > highest, index, worst)
        highest = np.maximum(highest, here)
    outside = (_buffers(owners) + rows.constants.get("context_bytes")).take(state_row)
    allocated = highest + outside
    reserved = reserved_bytes(allocated, outside, rows.constants.get("fragmentation_ratio"))
    return Peak(allocated, reserved, worst, outside)


def _states(rows: Gathered, class_index: IndexArray | None) -> dict[str, FloatArray]:
    """Bytes of weights, gradients and optimizer state on a rank of the class, and of gathered weights.

    Arrays (n,), or (C, n) of every class.
    """
    layouts, per_parameter = rows.layouts, state_bytes_per_parameter(rows.job)
    trained, frozen_bytes = rows.rank_weights(class_index)
    total = {name: np.zeros(trained.shape[1:]) for name in ("weights", "gradients", "optimizer", "gather")}
    for experts in (False, True):
        if not (trained[int(experts)].any() or frozen_bytes[int(experts)].any()):
            continue
        shards = {
            kind: data.divides(kind, layouts, experts=experts) for kind in ("weights", "gradients", "optimizer_state")
        }
        weights, gradients, optimizer = state_bytes(trained[int(experts)], per_parameter, shards["optimizer_state"])
        weights = weights + frozen_bytes[int(experts)]
        total["weights"] += np.where(layouts.offload_parameters > 0, 0.0, weights / shards["weights"])
        total["gradients"] += gradients / shards["gradients"]
        total["optimizer"] += np.where(layouts.offload_optimizer > 0, 0.0, optimizer)
        if (layouts.zero_stage >= 3).any():
            total["gather"] += gathered_weight_bytes(weights, rows.layers(class_index), layouts)
    return total


@formula("FSDP, arXiv 2304.11277 section 3.3: the unit that runs and the one fetched ahead; or all, kept", "bytes")
def gathered_weight_bytes(weights_bytes: FloatArray, n_layers: FloatArray, layouts: LayoutBatch) -> FloatArray:
    """Whole weights that ZeRO-3 holds beside its shards, (n,), on a rank of ``n_layers`` units."""
    units = np.where(layouts.reshard_after_forward != 0, np.minimum(2.0, n_layers), n_layers)
    return np.where(layouts.zero_stage >= 3, weights_bytes * units / np.maximum(n_layers, 1.0), 0.0)


def _working(rows: Gathered, class_index: IndexArray | None) -> FloatArray:
    """Recomputed activations of the layer that runs backward, the largest that a rank of the class holds.

    Arrays (n,), or (C, n) of every class.
    """
    table = rows.tables.activations.working_bytes
    working = np.zeros(())
    for part in range(1, len(table) - 1):
        if table[part].any():
            working = np.maximum(working, rows.holds(part, class_index) * rows.part(table, part))
    return working


def _held(
    rows: Gathered, class_index: IndexArray | None, rank: npt.NDArray[np.int32] | None = None
) -> dict[str, FloatArray]:
    """Bytes that the passes hold on a rank of the class (the fullest by default): (n,), or (C, n) of every class.

    What is gathered (n,) is the same on every rank.
    """
    job, layouts, tables = rows.job, rows.layouts, rows.tables.activations
    activations = activation_bytes(
        _in_flight(rows, rows.first_rank(class_index) if rank is None else rank),
        rows.chunks_of_rank(),
        rows.in_class(tables.saved_bytes, class_index),
        _working(rows, class_index),
    )
    # With sequence parallelism each block gathers its input over the TP group while it runs.
    token_bytes = float(job.element_bytes * job.seq_len * job.model.hidden_size)
    gathered = np.asarray((layouts.sp * layouts.micro_batch) * (token_bytes / layouts.cp), np.float64)
    logits = rows.in_class(tables.logits_bytes, class_index)
    return {"activations": activations, "logits": logits, "gathered_activations": gathered}


def _in_flight(rows: Gathered, rank: npt.NDArray[np.int32]) -> FloatArray:
    """Chunk activations alive at the peak on ``rank``, of its shape: (n,) or (C, n)."""
    layouts, m = rows.layouts, rows.n_micro_batches
    alive = np.zeros(rank.shape)
    for code, name in enumerate(layouts.schedules):
        chosen = layouts.schedule == code
        if chosen.any():
            np.copyto(alive, schedules()[name].in_flight(layouts.pp, layouts.vpp, m, rank), where=chosen)
    return alive


def _buffers(rows: Gathered) -> FloatArray:
    """Communicator buffers of the groups a rank belongs to, and library workspaces, (n,)."""
    layouts = rows.layouts
    communicators = np.zeros(len(rows))
    for axis in ("tp", "cp", "dp", "pp", "ep", "etp"):
        communicators += getattr(layouts, axis) > 1
    return communicators * rows.constants.get("communicator_buffer_bytes") + rows.constants.get("workspace_bytes")


def by_class(rows: Gathered, found: Peak) -> dict[str, FloatArray]:
    """Bytes of the worst rank by class of memory, (n,) each; they sum to the peak."""
    return _by_class(rows, found.worst_class, found.outside_bytes)


def _by_class(
    rows: Gathered, class_index: IndexArray, outside_bytes: FloatArray, rank: npt.NDArray[np.int32] | None = None
) -> dict[str, FloatArray]:
    context = np.full(len(rows), rows.constants.get("context_bytes"))
    tensors = _states(rows, class_index) | _held(rows, class_index, rank)
    tensors["gather"] = tensors["gather"] + tensors.pop("gathered_activations")
    found_by = tensors | {"buffers": outside_bytes - context, "context": context}
    return {name: found_by[name] for name in MEMORY_CLASSES}


def by_rank(
    job: TrainingJob, cluster: Cluster, layout: Layout, constants: Constants
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Bytes of every pipeline rank at its peak: by class of memory, (pp,) each, and the reserved peak, (pp,)."""
    rows = Gathered.of(job, cluster, LayoutBatch.of([layout] * layout.pp), constants)
    rank = np.arange(layout.pp, dtype=np.int32)
    first = rows.stages.first_rank[:, 0][rows.stages.multiplicity[:, 0] > 0]
    outside = _buffers(rows) + constants.get("context_bytes")
    by = _by_class(rows, np.searchsorted(first, rank, side="right") - 1, outside, rank)
    allocated = np.sum(list(by.values()), axis=0)
    return by, reserved_bytes(allocated, outside, constants.get("fragmentation_ratio"))


def by_phase(job: TrainingJob, found: Peak, by: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Peak of the worst rank in each phase of a run, (n,) each.

    Loading holds the weights; the optimizer creates its moments at the end of the first step; saving writes what is
    resident.
    """
    moments_ratio = moment_bytes(job) / max(state_bytes_per_parameter(job).optimizer, 1e-12)
    states = by["weights"] + by["gradients"] + by["optimizer"]
    steady = found.allocated_bytes
    phases = (
        by["weights"] + by["context"],
        steady - moments_ratio * by["optimizer"],
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


@formula("a process for each GPU, and what is offloaded to it", "bytes")
def node_host_bytes(gpus_per_node: int, process_bytes: float, offloaded_bytes: FloatArray) -> FloatArray:
    """Host memory of a node, (n,): ``offloaded_bytes`` (n,) of each GPU's states beside its process."""
    return np.asarray(gpus_per_node * (process_bytes + offloaded_bytes))


def host_bytes(rows: Gathered) -> FloatArray:
    """Host memory of a node, (n,): one Python process with pinned staging for each GPU, and offloaded states.

    States on NVMe pass through buffers that the process has anyway.
    """
    layouts, offloaded = rows.layouts, np.zeros(len(rows))
    in_host = OFFLOADS.index("cpu")
    if (layouts.offload_optimizer > 0).any():
        trained, frozen_bytes = rows.heaviest_weights()
        per_parameter = state_bytes_per_parameter(rows.job)
        for experts in (False, True):
            shards = data.divides("optimizer_state", layouts, experts=experts)
            weights, _gradients, optimizer = state_bytes(trained[int(experts)], per_parameter, shards)
            weights = (weights + frozen_bytes[int(experts)]) / data.divides("weights", layouts, experts=experts)
            offloaded += np.where(layouts.offload_optimizer == in_host, optimizer, 0.0)
            offloaded += np.where(layouts.offload_parameters == in_host, weights, 0.0)
    process = rows.constants.get("host_bytes_per_process")
    return node_host_bytes(rows.cluster.gpus_per_node, process, offloaded)
