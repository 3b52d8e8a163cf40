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


@dataclass(slots=True)
class Gathered:
    """``n`` layouts over C rank classes and K parts.

    ``cell_row`` (n,) into ``cells``; ``place_row`` (n,) into ``placed``; ``mask_row`` (n,) into the recompute masks;
    ``block_row`` (n,) into the tables of blocks (K, r); ``stage_row`` (n,) into ``stages`` (.., d); ``state_row`` (n,)
    into ``trained`` (2, C, s), the trained elements of dense and of expert weights that a rank of each class holds,
    and ``frozen_bytes`` (2, C, s), the bytes of those that are only read.
    """

    job: TrainingJob
    cluster: Cluster
    constants: Constants
    layouts: LayoutBatch
    cells: LayoutBatch
    cell_row: IndexArray
    placed: Placed
    place_row: IndexArray
    mask_row: IndexArray
    tables: Tables
    block_row: IndexArray
    stages: StageTable
    stage_row: IndexArray
    trained: FloatArray
    frozen_bytes: FloatArray
    state_row: IndexArray
    n_micro_batches: npt.NDArray[np.int32]

    @classmethod
    def of(cls, job: TrainingJob, cluster: Cluster, layouts: LayoutBatch, constants: Constants) -> Gathered:
        """Build the tables that ``layouts`` need."""
        cells, cell_row = _cells(layouts)
        placed, shaped = _placed(cluster, cells)
        place_row = layouts.rank_order * np.intp(len(cells)) + cell_row
        mask_row, masks = _masks(layouts)
        stages, stage_of_cell = _stages(job, cells)
        state_first, state_of_cell = distinct((cells.tp, cells.ep, cells.etp, (stage_of_cell, stages.counts.shape[-1])))
        trained, frozen_bytes = _rank_weights(job, cells.take(state_first), stages, stage_of_cell[state_first])
        n_micro_batches = (job.global_batch // (cells.dp * cells.micro_batch)).astype(np.int32)
        return cls(
            job=job,
            cluster=cluster,
            constants=constants,
            layouts=layouts,
            cells=cells,
            cell_row=cell_row,
            placed=placed,
            place_row=place_row,
            mask_row=mask_row,
            tables=Tables(job, cluster, constants, shaped, masks),
            block_row=(placed.shape.take(place_row) * 2 + layouts.sp) * len(masks) + mask_row,
            stages=stages,
            stage_row=stage_of_cell.take(cell_row),
            trained=trained,
            frozen_bytes=frozen_bytes,
            state_row=state_of_cell.take(cell_row),
            n_micro_batches=n_micro_batches.take(cell_row),
        )

    def __len__(self) -> int:
        return len(self.layouts)

    def take(self, index: npt.NDArray[np.intp]) -> Gathered:
        """The rows of ``index``, on the same tables."""
        rows = ("cell_row", "place_row", "mask_row", "block_row", "stage_row", "state_row", "n_micro_batches")
        return dataclasses.replace(
            self, layouts=self.layouts.take(index), **{name: getattr(self, name).take(index) for name in rows}
        )

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
        """What gradient and weight traffic of one message depends on, as columns of ``distinct``."""
        layouts = self.layouts
        switches = (layouts.zero_stage, layouts.dp_replicate, layouts.reshard_after_forward, layouts.offload_parameters)
        order = (layouts.rank_order, len(layouts.rank_orders))
        return ((self.state_row, self.trained.shape[-1]), layouts.dp, layouts.cp, *switches, order)

    @property
    def n_classes(self) -> int:
        """Rank classes of the row that has most; others are padded with multiplicity 0."""
        return len(self.stages.multiplicity)

    def part(self, table: FloatArray, part: int) -> FloatArray:
        """One part's column of a block table, (n,)."""
        return np.asarray(table[part].take(self.block_row))

    def in_class(self, table: FloatArray, class_index: int | IndexArray) -> FloatArray:
        """Sum over parts of count x ``table`` (K, r) for a rank class (one for all rows, or one a row): (n,)."""
        total: FloatArray | None = None
        for part in range(len(table)):
            counts = self.stages.counts[:, part]
            # Most classes hold no embedding and no head: nothing to gather there.
            if (counts if isinstance(class_index, np.ndarray) else counts[class_index]).any():
                held = self._of_stage(counts, class_index) * self.part(table, part)
                total = held if total is None else total + held
        return np.zeros(len(self)) if total is None else total

    def _of_stage(self, table: FloatArray, class_index: int | IndexArray) -> FloatArray:
        """A stage table's column, (n,): ``table`` is (C, d)."""
        if isinstance(class_index, np.ndarray):
            return np.asarray(table[class_index, self.stage_row])
        return np.asarray(table[class_index].take(self.stage_row))

    def rank_weights(self, class_index: int | IndexArray) -> tuple[FloatArray, FloatArray]:
        """Trained elements and frozen bytes of dense and of expert weights on a rank of the class, (2, n) each."""
        if isinstance(class_index, np.ndarray):
            return self.trained[:, class_index, self.state_row], self.frozen_bytes[:, class_index, self.state_row]
        tables = (self.trained[:, class_index], self.frozen_bytes[:, class_index])
        trained, frozen_bytes = (table.take(self.state_row, axis=1) for table in tables)
        return trained, frozen_bytes

    def holds(self, part: int, class_index: int | IndexArray) -> npt.NDArray[np.bool_]:
        """Whether a rank of the class holds any of the part, (n,)."""
        return self._of_stage(self.stages.counts[:, part], class_index) > 0

    def layers(self, class_index: int | IndexArray) -> FloatArray:
        """Layers on a rank of the class, (n,)."""
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

    def first_rank(self, class_index: int | IndexArray) -> npt.NDArray[np.int32]:
        """The first rank of the class, (n,)."""
        if isinstance(class_index, np.ndarray):
            return np.asarray(self.stages.first_rank[class_index, self.stage_row])
        return np.asarray(self.stages.first_rank[class_index].take(self.stage_row))

    def present(self, class_index: int) -> npt.NDArray[np.bool_]:
        """Rows that have the class at all, (n,)."""
        return np.asarray((self.stages.multiplicity[class_index] > 0).take(self.stage_row))

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
    copies = extra_model_copies(job)
    if copies:
        whole = held([Share(*block_parameters(job.model, members)[:3]) for members in parts], table)
        frozen += whole * sum(copy.weights_bytes_per_parameter for copy in copies if not copy.trainable)
        trained += whole * sum(copy.trainable for copy in copies)
    return trained, frozen
