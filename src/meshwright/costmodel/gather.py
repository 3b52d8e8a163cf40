"""Gather: a batch of layouts as indices into small tables of distinct rows.

Blocks are computed on distinct (tp, sp, micro_batch) and recompute masks, stages on distinct (pp, vpp, split), states
on their combinations; the step and the memory gather from these. Arrays hold rows last, so that one class or part of
all rows lies together in memory.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.activations import Activations, activations
from meshwright.costmodel.axis import tensor
from meshwright.costmodel.block_times import BlockTimes, block_times
from meshwright.costmodel.mesh import GroupPlacement, place
from meshwright.costmodel.parameters import block_parameters
from meshwright.costmodel.recompute import parts_of
from meshwright.costmodel.rows import Column, dense_codes, distinct
from meshwright.costmodel.stages import StageTable, stage_table
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import COLUMNS, SWITCHES, LayoutBatch

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]


@dataclass
class Tables:
    """Tables of blocks on distinct shapes and masks, made when first asked for: memory is often all that is."""

    job: TrainingJob
    cluster: Cluster
    constants: Constants
    shapes: LayoutBatch
    masks: npt.NDArray[np.int32]

    @functools.cached_property
    def times(self) -> BlockTimes:
        """Times of every part."""
        groups = place("tp", self.cluster, self.shapes)
        return block_times(self.job, self.cluster, self.shapes, self.masks, groups, self.constants)

    @functools.cached_property
    def activations(self) -> Activations:
        """Activations of every part."""
        return activations(self.job, self.shapes, self.masks)


@dataclass(slots=True)
class Gathered:
    """``n`` layouts over C rank classes and K parts.

    ``cell_row`` (n,) into ``cells``, layouts that differ in more than SWITCHES; ``mask_row`` (n,) into the recompute
    masks; ``block_row`` (n,) into the tables of blocks (K, r); ``stage_row`` (n,) into ``stages`` (.., d);
    ``state_row`` (n,) into ``parameters`` (C, s), the elements a rank of each class holds.
    """

    job: TrainingJob
    cluster: Cluster
    constants: Constants
    layouts: LayoutBatch
    cells: LayoutBatch
    cell_row: IndexArray
    mask_row: IndexArray
    tables: Tables
    block_row: IndexArray
    stages: StageTable
    stage_row: IndexArray
    parameters: FloatArray
    state_of_cell: IndexArray
    state_row: IndexArray
    n_micro_batches: npt.NDArray[np.int32]

    @classmethod
    def of(cls, job: TrainingJob, cluster: Cluster, layouts: LayoutBatch, constants: Constants) -> Gathered:
        """Build the tables that ``layouts`` need."""
        cells, cell_row = _cells(layouts)
        shape_first, shape_of_cell = distinct((cells.tp, cells.micro_batch))
        mask_row, masks = _masks(layouts)
        tables = Tables(job, cluster, constants, _both_sp(cells.take(shape_first)), masks)
        stage_first, stage_of_cell = distinct((cells.pp, cells.vpp, cells.stage_split))
        keys = [
            (int(cells.pp[i]), int(cells.vpp[i]), cells.stage_splits[int(cells.stage_split[i])]) for i in stage_first
        ]
        stages = stage_table(keys, tuple(group.repeat for group in job.model.layers))
        state_first, state_of_cell = distinct((cells.tp, (stage_of_cell, len(stage_first))))
        n_micro_batches = (job.global_batch // (cells.dp * cells.micro_batch)).astype(np.int32)
        return cls(
            job=job,
            cluster=cluster,
            constants=constants,
            layouts=layouts,
            cells=cells,
            cell_row=cell_row,
            mask_row=mask_row,
            tables=tables,
            block_row=(shape_of_cell.take(cell_row) * 2 + layouts.sp) * len(masks) + mask_row,
            stages=stages,
            stage_row=stage_of_cell.take(cell_row),
            parameters=_rank_parameters(job, cells.take(state_first), stages, stage_of_cell[state_first]),
            state_of_cell=state_of_cell,
            state_row=state_of_cell.take(cell_row),
            n_micro_batches=n_micro_batches.take(cell_row),
        )

    def __len__(self) -> int:
        return len(self.layouts)

    def take(self, index: npt.NDArray[np.intp]) -> Gathered:
        """The rows of ``index``, on the same tables."""
        rows = ("cell_row", "mask_row", "block_row", "stage_row", "state_row", "n_micro_batches")
        return dataclasses.replace(
            self, layouts=self.layouts.take(index), **{name: getattr(self, name).take(index) for name in rows}
        )

    def columns(self) -> tuple[Column, Column, Column]:
        """Cell, sequence parallelism and recompute mask as columns of ``distinct``: what a rank's work depends on."""
        return (self.cell_row, len(self.cells)), (self.layouts.sp, 2), (self.mask_row, len(self.tables.masks))

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
            counts = (
                self.stages.counts[:, part]
                if isinstance(class_index, np.ndarray)
                else (self.stages.counts[class_index, part])
            )
            # Most classes hold no embedding and no head: nothing to gather there.
            if counts.any():
                held = self._of_stage(counts, class_index) * self.part(table, part)
                total = held if total is None else total + held
        return np.zeros(len(self)) if total is None else total

    def _of_stage(self, table: FloatArray, class_index: int | IndexArray) -> FloatArray:
        """A stage table's column, (n,): ``table`` is (d,) for one class, (C, d) for one class a row."""
        if isinstance(class_index, np.ndarray):
            return np.asarray(table[class_index, self.stage_row])
        return np.asarray(table.take(self.stage_row))

    def rank_parameters(self, class_index: int | IndexArray) -> FloatArray:
        """Parameter elements on a rank of the class, (n,)."""
        if isinstance(class_index, np.ndarray):
            return np.asarray(self.parameters[class_index, self.state_row])
        return np.asarray(self.parameters[class_index].take(self.state_row))

    def first_rank(self, class_index: int | IndexArray) -> npt.NDArray[np.int32]:
        """The first rank of the class, (n,)."""
        if isinstance(class_index, np.ndarray):
            return np.asarray(self.stages.first_rank[class_index, self.stage_row])
        return np.asarray(self.stages.first_rank[class_index].take(self.stage_row))

    def present(self, class_index: int) -> npt.NDArray[np.bool_]:
        """Rows that have the class at all, (n,)."""
        return np.asarray((self.stages.multiplicity[class_index] > 0).take(self.stage_row))

    def heaviest_parameters(self) -> FloatArray:
        """Parameter elements of the rank that holds most, (n,)."""
        return np.asarray(np.max(self.parameters, axis=0).take(self.state_row))

    def placed(self, axis: str) -> tuple[LayoutBatch, GroupPlacement, IndexArray]:
        """Cells under each rank order (o * c rows), where their groups of ``axis`` sit, and each row's place there.

        Where groups sit depends on nothing else, so what they cost is computed on these few.
        """
        orders = len(self.layouts.rank_orders)
        tiled = self.cells.take(np.tile(np.arange(len(self.cells)), orders))
        tiled.rank_order = np.repeat(np.arange(orders, dtype=np.int32), len(self.cells))
        return tiled, place(axis, self.cluster, tiled), self.layouts.rank_order * len(self.cells) + self.cell_row


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


def _both_sp(shapes: LayoutBatch) -> LayoutBatch:
    """Each shape without and with sequence parallelism, in this order."""
    doubled = shapes.take(np.repeat(np.arange(len(shapes)), 2))
    doubled.sp = np.tile(np.array([0, 1], np.int32), len(shapes))
    return doubled


def _rank_parameters(job: TrainingJob, layouts: LayoutBatch, stages: StageTable, stage_row: IndexArray) -> FloatArray:
    """Parameter elements a rank of each class holds, (C, s). A tied head on a rank of its own keeps a copy."""
    parts = [block_parameters(job.model, members) for members in parts_of(job)]
    counts = stages.counts
    sharded = np.einsum("ckd,k->cd", counts, np.array([p.sharded for p in parts], float))
    replicated = np.einsum("ckd,k->cd", counts, np.array([p.replicated for p in parts], float))
    if job.model.tie_word_embeddings:
        lonely_head = (counts[:, -1] > 0) & (counts[:, 0] == 0)
        sharded += np.where(lonely_head, float(job.model.vocab_size * job.model.hidden_size), 0.0)
    by_tp = tensor.divides("sharded_parameters", layouts)
    return np.asarray(sharded[:, stage_row] / by_tp + replicated[:, stage_row])
