"""Gather: a batch of layouts as indices into small tables of distinct rows.

Blocks are computed on distinct (tp, sp, micro_batch) and recompute masks, stages on distinct (pp, vpp, split), states
on their combinations; the step and the memory gather from these. Arrays hold rows last, so that one class or part of
all rows lies together in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.axis import tensor
from meshwright.costmodel.block_times import BlockTimes, block_times, parts_of
from meshwright.costmodel.mesh import GroupPlacement, place
from meshwright.costmodel.parameters import block_parameters
from meshwright.costmodel.rows import dense_codes, distinct
from meshwright.costmodel.stages import StageTable, stage_table
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import LayoutBatch

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]


@dataclass(slots=True)
class Gathered:
    """``n`` layouts over C rank classes and K parts.

    ``block_row`` (n,) into ``blocks`` (K, r); ``stage_row`` (n,) into ``stages`` (.., d); ``state_row`` (n,) into
    ``parameters`` (C, s), the elements a rank of each class holds.
    """

    job: TrainingJob
    cluster: Cluster
    constants: Constants
    layouts: LayoutBatch
    blocks: BlockTimes
    block_row: IndexArray
    stages: StageTable
    stage_row: IndexArray
    parameters: FloatArray
    state_row: IndexArray
    n_micro_batches: npt.NDArray[np.int32]

    @classmethod
    def of(cls, job: TrainingJob, cluster: Cluster, layouts: LayoutBatch, constants: Constants) -> Gathered:
        """Build the tables that ``layouts`` need."""
        shape_first, shape_row = distinct((layouts.tp, layouts.sp, layouts.micro_batch, _tp_stride(layouts)))
        shape_rows = layouts.take(shape_first)
        mask_row, n_masks = dense_codes(layouts.recompute)
        masks = np.zeros(n_masks, np.int32)
        masks[mask_row] = layouts.recompute
        times = block_times(job, cluster, shape_rows, masks, place("tp", cluster, shape_rows), constants)
        stage_first, stage_row = distinct((layouts.pp, layouts.vpp, layouts.stage_split))
        keys = [
            (int(layouts.pp[i]), int(layouts.vpp[i]), layouts.stage_splits[int(layouts.stage_split[i])])
            for i in stage_first
        ]
        stages = stage_table(keys, tuple(group.repeat for group in job.model.layers))
        state_first, state_row = distinct((layouts.tp, stage_row))
        parameters = _rank_parameters(job, layouts.take(state_first), stages, stage_row[state_first])
        n_micro_batches = (job.global_batch // (layouts.dp * layouts.micro_batch)).astype(np.int32)
        return cls(
            job,
            cluster,
            constants,
            layouts,
            times,
            shape_row * n_masks + mask_row,
            stages,
            stage_row,
            parameters,
            state_row,
            n_micro_batches,
        )

    def __len__(self) -> int:
        return len(self.layouts)

    def take(self, index: npt.NDArray[np.intp]) -> Gathered:
        """The rows of ``index``, on the same tables."""
        return Gathered(
            self.job,
            self.cluster,
            self.constants,
            self.layouts.take(index),
            self.blocks,
            self.block_row[index],
            self.stages,
            self.stage_row[index],
            self.parameters,
            self.state_row[index],
            self.n_micro_batches[index],
        )

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

    def place(self, axis: str) -> GroupPlacement:
        """Where the groups of ``axis`` sit, (n,)."""
        return place(axis, self.cluster, self.layouts)


def _tp_stride(layouts: LayoutBatch) -> npt.NDArray[np.int32]:
    """Ranks between TP neighbours, (n,): 1 in every order that starts with tp."""
    stride = np.ones(len(layouts), np.int32)
    for code, order in enumerate(layouts.rank_orders):
        if order.split("-")[0] != "tp":
            rows = layouts.rank_order == code
            for faster in order.split("-"):
                if faster == "tp":
                    break
                stride[rows] *= getattr(layouts, faster)[rows]
    return stride


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
