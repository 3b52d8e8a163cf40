"""Gather: a batch of layouts as indices into small tables of distinct rows.

Layouts that differ in SWITCHES only form a *cell*. Blocks are computed on the distinct shapes of cells under each rank
order, with and without sequence parallelism, and on the distinct recompute masks; stages on distinct (pp, vpp, split);
states on their combinations. The step and the memory gather from these. Arrays hold rows last, so that one class or
part of all rows lies together in memory.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.activations import Activations, activations
from meshwright.costmodel.adapters import Share, frozen_bytes, trainable_parameters
from meshwright.costmodel.axis import expert, tensor
from meshwright.costmodel.block_times import BlockTimes, Shaped, block_times
from meshwright.costmodel.mesh import GroupPlacement, place
from meshwright.costmodel.parameters import block_parameters
from meshwright.costmodel.post_training import extra_model_copies
from meshwright.costmodel.recompute import parts_of
from meshwright.costmodel.rows import Column, dense_codes, distinct
from meshwright.costmodel.schedule import copies, hides_expert_traffic, splits_backward
from meshwright.costmodel.stages import StageKey, StageTable, stage_table
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import COLUMNS, SWITCHES, LayoutBatch

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

#: What the work of a block on a rank depends on, besides where its groups sit, sequence parallelism and recompute.
_SHAPE_COLUMNS = ("tp", "micro_batch", "cp", "cp_kind", "ep", "etp", "dispatcher")
#: The switches that change states and their traffic, but no block and no activation.
_STATE_SWITCHES = ("zero_stage", "dp_replicate", "reshard_after_forward", "offload_optimizer", "offload_parameters")


@dataclass
class Tables:
    """Tables of blocks on distinct shapes and masks, made when first asked for: memory is often all that is."""

    job: TrainingJob
    cluster: Cluster
    constants: Constants
    shaped: Shaped
    masks: npt.NDArray[np.int32]

    @functools.cached_property
    def times(self) -> BlockTimes:
        """Times of every part."""
        return block_times(self.job, self.cluster, self.shaped, self.masks, self.constants)

    @functools.cached_property
    def activations(self) -> Activations:
        """Activations of every part."""
        return activations(self.job, self.shaped.layouts, self.masks)


@dataclass(frozen=True, slots=True)
class Placed:
    """The cells under each rank order: row ``o * C + c`` is cell ``c`` of C under order ``o``.

    Where groups sit depends on nothing else, so what they cost is computed on these few. ``shape`` is the row of each
    in the distinct shapes; ``variant`` is 0 where a cell's shape is that under the first order, else the order.
    """

    layouts: LayoutBatch
    shape: IndexArray
    variant: npt.NDArray[np.int32]


@dataclass
class Gathered:
    """``n`` layouts over C rank classes and K parts.

    ``cell_row`` (n,) into ``cells``; ``mask_row`` (n,) into the recompute masks. Each of the cells has its row in
    ``stages`` (.., d), in ``trained`` (2, C, s), the trained elements of dense and of expert weights that a rank of
    each class holds, and in ``frozen_bytes`` (2, C, s), the bytes of those that are only read.
    """

    job: TrainingJob
    cluster: Cluster
    constants: Constants
    layouts: LayoutBatch
    cells: LayoutBatch
    cell_row: IndexArray
    placed: Placed
    mask_row: IndexArray
    tables: Tables
    stages: StageTable
    stage_of_cell: IndexArray
    trained: FloatArray
    frozen_bytes: FloatArray
    state_of_cell: IndexArray

    @classmethod
    def of(cls, job: TrainingJob, cluster: Cluster, layouts: LayoutBatch, constants: Constants) -> Gathered:
        """Build the tables that ``layouts`` need."""
        cells, cell_row = _cells(layouts)
        placed, shaped = _placed(cluster, cells)
        mask_row, masks = _masks(layouts)
        stages, stage_of_cell = _stages(job, cells)
        state_first, state_of_cell = distinct((cells.tp, cells.ep, cells.etp, (stage_of_cell, stages.counts.shape[-1])))
        trained, frozen_bytes = _rank_weights(job, cells.take(state_first), stages, stage_of_cell[state_first])
        return cls(
            job=job,
            cluster=cluster,
            constants=constants,
            layouts=layouts,
            cells=cells,
            cell_row=cell_row,
            placed=placed,
            mask_row=mask_row,
            tables=Tables(job, cluster, constants, shaped, masks),
            stages=stages,
            stage_of_cell=stage_of_cell,
            trained=trained,
            frozen_bytes=frozen_bytes,
            state_of_cell=state_of_cell,
        )

    def __len__(self) -> int:
        return len(self.layouts)

    def take(self, index: npt.NDArray[np.intp]) -> Gathered:
        """The rows of ``index``, on the same tables."""
        return dataclasses.replace(
            self,
            layouts=self.layouts.take(index),
            cell_row=self.cell_row.take(index),
            mask_row=self.mask_row.take(index),
        )

    @functools.cached_property
    def place_row(self) -> IndexArray:
        """The row of each layout in ``placed``, (n,)."""
        return np.asarray(self.layouts.rank_order * np.intp(len(self.cells)) + self.cell_row)

    @functools.cached_property
    def block_row(self) -> IndexArray:
        """The row of each layout in the tables of blocks (K, r), (n,)."""
        shape_row = self.placed.shape.take(self.place_row) * 2 + self.layouts.sp
        return np.asarray(shape_row * len(self.tables.masks) + self.mask_row)

    @functools.cached_property
    def stage_row(self) -> IndexArray:
        """The row of each layout in ``stages``, (n,)."""
        return self.stage_of_cell.take(self.cell_row)

    @functools.cached_property
    def state_row(self) -> IndexArray:
        """The row of each layout in ``trained`` and ``frozen_bytes``, (n,)."""
        return self.state_of_cell.take(self.cell_row)

    @functools.cached_property
    def n_micro_batches(self) -> npt.NDArray[np.int32]:
        """Micro-batches of each replica in a step, (n,)."""
        of_cell = self.job.global_batch // (self.cells.dp * self.cells.micro_batch)
        return np.asarray(of_cell.astype(np.int32).take(self.cell_row))

    def held_columns(self) -> tuple[Column, ...]:
        """Cell, sequence parallelism and recompute mask as columns of ``distinct``: what a rank holds for backward."""
        return (self.cell_row, len(self.cells)), (self.layouts.sp, 2), (self.mask_row, len(self.tables.masks))

    def work_columns(self) -> tuple[Column, ...]:
        """What a rank's work depends on: as above, and the order where it moves the groups that blocks talk over."""
        orders = len(self.layouts.rank_orders)
        return (*self.held_columns(), (self.placed.variant.take(self.place_row), orders))

    def state_columns(self) -> tuple[Column, ...]:
        """What states depend on, as columns of ``distinct``."""
        return (self.cell_row, len(self.cells)), *(getattr(self.layouts, name) for name in _STATE_SWITCHES)

    def traffic_columns(self) -> tuple[Column, ...]:
        """What the traffic of gradients and weights and the optimizer depend on, as columns of ``distinct``."""
        layouts = self.layouts
        switches = (getattr(layouts, name) for name in _STATE_SWITCHES)
        order = (layouts.rank_order, len(layouts.rank_orders))
        return ((self.state_row, self.trained.shape[-1]), layouts.dp, layouts.cp, *switches, order)

    @property
    def n_classes(self) -> int:
        """Rank classes of the row that has most; others are padded with multiplicity 0."""
        return len(self.stages.multiplicity)

    def part(self, table: FloatArray, part: int | np.intp) -> FloatArray:
        """One part's column of a block table, (n,)."""
        return np.asarray(table[part].take(self.block_row))

    def in_class(self, table: FloatArray, class_index: IndexArray | None = None) -> FloatArray:
        """Sum over parts of count x ``table`` (K, r): (n,) for the rank class of each row, (C, n) for every class.

        The same holds for what follows.
        """
        shape = (len(self),) if class_index is not None else (self.n_classes, len(self))
        total = np.zeros(shape)
        for part in np.flatnonzero(table.any(axis=1)):
            of_part, counts = self.part(table, part), self.stages.counts[:, part]
            if class_index is not None:
                total += counts[class_index, self.stage_row] * of_part
                continue
            # Most classes hold no embedding and no head: nothing to gather there.
            for index in np.flatnonzero(counts.any(axis=1)):
                total[index] += counts[index].take(self.stage_row) * of_part
        return total

    def _of_stage(self, table: FloatArray | npt.NDArray[np.int32], class_index: IndexArray | None) -> npt.NDArray[Any]:
        """A stage table's columns: ``table`` is (C, d)."""
        if class_index is None:
            return np.asarray(table.take(self.stage_row, axis=1))
        return np.asarray(table[class_index, self.stage_row])

    def rank_weights(self, class_index: IndexArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Trained elements and frozen bytes of dense and of expert weights on a rank of the class, (2, .., n) each."""
        if class_index is None:
            return self.trained.take(self.state_row, axis=2), self.frozen_bytes.take(self.state_row, axis=2)
        return self.trained[:, class_index, self.state_row], self.frozen_bytes[:, class_index, self.state_row]

    def holds(self, part: int, class_index: IndexArray | None = None) -> npt.NDArray[np.bool_]:
        """Whether a rank of the class holds any of the part."""
        return np.asarray(self._of_stage(self.stages.counts[:, part], class_index) > 0)

    def layers(self, class_index: IndexArray | None = None) -> FloatArray:
        """Layers on a rank of the class."""
        return self._of_stage(self.stages.counts[:, 1:-1].sum(axis=1), class_index)

    def most_layers(self) -> FloatArray:
        """Layers on the rank that holds most, (n,)."""
        return np.asarray(self.stages.counts[:, 1:-1].sum(axis=1).max(axis=0).take(self.stage_row))

    def stage_copies(self) -> int | npt.NDArray[np.int32]:
        """Ranks of a pipeline that hold each stage and share its micro-batches, (n,) or 1."""
        return copies(self.layouts)

    def chunks_of_rank(self) -> npt.NDArray[np.int32]:
        """Model chunks that a rank holds, (n,): vpp, or more where a schedule keeps stages twice."""
        return np.asarray(self.layouts.vpp * self.stage_copies(), np.int32)

    def first_rank(self, class_index: IndexArray | None = None) -> npt.NDArray[np.int32]:
        """The first rank of the class."""
        return self._of_stage(self.stages.first_rank, class_index)

    def multiplicity(self) -> npt.NDArray[np.int32]:
        """Ranks of every class, (C, n): 0 where a row does not have it."""
        return self._of_stage(self.stages.multiplicity, None)

    def heaviest_weights(self) -> tuple[FloatArray, FloatArray]:
        """Trained elements and frozen bytes, dense and expert, each of the rank that holds most of it, (2, n)."""
        trained, frozen_bytes = (
            table.max(axis=1).take(self.state_row, axis=1) for table in (self.trained, self.frozen_bytes)
        )
        return trained, frozen_bytes

    def place(self, group: str) -> GroupPlacement:
        """Where the groups of ``mesh.GROUPS`` sit for each row of ``placed``."""
        return place(group, self.cluster, self.placed.layouts)


def _cells(layouts: LayoutBatch) -> tuple[LayoutBatch, IndexArray]:
    """The distinct cells and the cell of each row."""
    columns = (
        (layouts.cell,)
        if layouts.cell is not None
        else tuple(getattr(layouts, name) for name in COLUMNS if name not in SWITCHES)
    )
    first, cell_row = distinct(columns)
    return layouts.take(first), cell_row


def _masks(layouts: LayoutBatch) -> tuple[IndexArray, npt.NDArray[np.int32]]:
    """The recompute mask of each row as an index, and the distinct masks."""
    mask_row, n_masks = dense_codes(layouts.recompute)
    masks = np.zeros(n_masks, np.int32)
    masks[mask_row] = layouts.recompute
    return mask_row, masks


def _placed(cluster: Cluster, cells: LayoutBatch) -> tuple[Placed, Shaped]:
    """The cells under each rank order, and the distinct shapes among them, without and with sequence parallelism."""
    orders = len(cells.rank_orders)
    tiled = cells.take(np.tile(np.arange(len(cells)), orders))
    tiled.rank_order = np.repeat(np.arange(orders, dtype=np.int32), len(cells))
    hides = np.zeros(len(tiled), bool)
    for code in np.unique(tiled.schedule[tiled.ep > 1]):
        hides |= (tiled.schedule == code) & (tiled.ep > 1) & hides_expert_traffic(cells.schedules[code])
    columns: list[Column] = [getattr(tiled, name) for name in _SHAPE_COLUMNS]
    # Where the groups sit matters only where there are any.
    columns.extend(
        place(group, cluster, tiled).ranks_per_node
        for group in ("tp", "cp", "ep", "etp")
        if (getattr(tiled, group) > 1).any()
    )
    first, shape = distinct((*columns, hides.astype(np.int8)))
    twice = np.repeat(first, 2)
    shapes = tiled.take(twice)
    shapes.sp = np.tile(np.array([0, 1], np.int32), len(first))
    moved = shape != np.tile(shape[: len(cells)], orders)
    placed = Placed(tiled, shape, np.where(moved, tiled.rank_order, np.int32(0)))
    return placed, Shaped(
        shapes, hides.take(twice), any(splits_backward(cells.schedules[code]) for code in np.unique(cells.schedule))
    )


def _stages(job: TrainingJob, cells: LayoutBatch) -> tuple[StageTable, IndexArray]:
    """The distinct ways to cut the model into stages, and the one of each cell."""
    first, stage_of_cell = distinct((cells.pp, cells.vpp, cells.stage_split, cells.schedule))
    keys = [
        StageKey(
            int(cells.pp[i]),
            int(cells.vpp[i]),
            cells.stage_splits[int(cells.stage_split[i])],
            cells.schedules[int(cells.schedule[i])],
        )
        for i in first
    ]
    return stage_table(keys, job.model.layer_sequence), stage_of_cell


def _rank_weights(
    job: TrainingJob, layouts: LayoutBatch, stages: StageTable, stage_row: IndexArray
) -> tuple[FloatArray, FloatArray]:
    """Trained elements and frozen bytes of dense and of expert weights a rank of each class holds, (2, C, s) each.

    A tied head on a rank of its own keeps a copy of the embedding. Models that stand beside the one that is trained
    are as large and cut alike.
    """
    parts, counts = parts_of(job), stages.counts
    by_tp, by_experts = tensor.divides("sharded_parameters", layouts), expert.divides("expert_parameters", layouts)
    alone = (counts[:, -1] > 0) & (counts[:, 0] == 0) & job.model.tie_word_embeddings

    def held(shares: list[Share], tied: float) -> FloatArray:
        sharded, replicated, experts = (
            np.einsum("ckd,k->cd", counts, np.array(column, float)) for column in zip(*shares, strict=True)
        )
        sharded = sharded + np.where(alone, tied, 0.0)
        dense = sharded[:, stage_row] / by_tp + replicated[:, stage_row]
        return np.stack([dense, experts[:, stage_row] / by_experts])

    table = float(job.model.vocab_size * job.model.hidden_size)
    is_trained = not job.lora_rank and "embedding" not in job.frozen
    trained = held([trainable_parameters(job, members) for members in parts], table if is_trained else 0.0)
    frozen = held([frozen_bytes(job, members) for members in parts], 0.0 if is_trained else table * job.element_bytes)
    beside = extra_model_copies(job)
    if beside:
        whole = held([Share(*block_parameters(job.model, members)[:3]) for members in parts], table)
        frozen += whole * sum(copy.weights_bytes_per_parameter for copy in beside if not copy.trainable)
        trained += whole * sum(copy.trainable for copy in beside)
    return trained, frozen
