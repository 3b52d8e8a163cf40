"""The space of layouts: every way to cut a job over the GPUs of a cluster, as rows made on demand.

A *cell* is one choice of (dp, tp, pp, vpp, schedule, split, micro-batch); each cell holds the cheap choices (sp,
zero_stage, rank_order, recompute). Cells are tried against the cost model's rules once, in their plainest form. A
cell that breaks a rule there is counted under that rule, as one, and is not multiplied out.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from meshwright.costmodel import legal
from meshwright.costmodel.schedule import schedules
from meshwright.errors import InputError
from meshwright.i18n import _
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import (
    RANK_ORDERS,
    RECOMPUTE_BITS,
    RECOMPUTE_NAMES,
    STAGE_SPLIT_NAMES,
    IntArray,
    LayoutBatch,
    recompute_mask,
)

IndexArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Modules whose recomputation is searched, in every combination; ``full`` comes on top.
RECOMPUTE_CHOICES = ("core_attention", "mlp", "norm")


def divisors(n: int) -> list[int]:
    """All divisors of ``n`` in ascending order."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


@dataclass(frozen=True, slots=True)
class Space:
    """A space of ``len(space)`` rows; ``rows`` makes any range of them.

    ``cells`` (C rows) in their plainest form. Row ``r`` of cell ``c`` is ``r = first_row[c] + digits`` with the
    radices ``n_sp``, ``n_zero``, ``n_orders`` and the number of recompute choices; ``first_row`` has C + 1 entries.
    ``rejected`` counts the cells that are not among them by the first rule that each breaks. Every row is legal.
    """

    cells: LayoutBatch
    first_row: IndexArray
    n_sp: IntArray
    n_zero: IntArray
    n_orders: IntArray
    recompute: IntArray
    rejected: Mapping[str, int]

    def __len__(self) -> int:
        return int(self.first_row[-1])

    def rows(self, start: int, stop: int) -> LayoutBatch:
        """Rows ``start`` to ``stop`` (exclusive) as a batch."""
        stop = min(stop, len(self))
        bounds = np.clip(self.first_row, start, stop)
        cell = np.repeat(np.arange(len(self.cells)), np.diff(bounds))
        return self._make(np.arange(start, stop, dtype=np.int64), cell)

    def at(self, rows: IndexArray) -> LayoutBatch:
        """The rows of these numbers, in the given order."""
        return self._make(rows, np.searchsorted(self.first_row, rows, side="right") - 1)

    def _make(self, rows: IndexArray, cell: npt.NDArray[np.intp]) -> LayoutBatch:
        batch = self.cells.take(cell)
        within = (rows - self.first_row[cell]).astype(np.int32)
        digits, recompute = np.divmod(within, np.int32(len(self.recompute)))
        digits, order = np.divmod(digits, self.n_orders[cell])
        digits, zero = np.divmod(digits, self.n_zero[cell])
        batch.recompute = self.recompute[recompute]
        batch.rank_order = order
        batch.zero_stage = batch.zero_stage + zero
        batch.sp = batch.sp + digits
        batch.cell = cell.astype(np.int32)
        return batch

    def promising(self, limit: int) -> IndexArray:
        """Numbers of up to ``limit`` rows that good layouts tend to be among; they are scored first.

        Plain pipelines with small micro-batches and tensor parallelism, spread evenly over the factorisations.
        """
        plain = (self.cells.vpp == 1) & (self.cells.stage_split == 0) & (self.cells.micro_batch <= 4)
        cells = np.flatnonzero(plain) if plain.any() else np.arange(len(self.cells))
        # With sequence parallelism and ZeRO, as large jobs run, and the least and the most recomputation.
        switches = (self.n_sp[cells] * self.n_zero[cells] - 1) * self.n_orders[cells]
        first = self.first_row[cells] + switches * len(self.recompute)
        rows = np.concatenate([first, first + len(self.recompute) - 1])
        rows = np.unique(rows)
        if len(rows) <= limit:
            return rows
        return rows[np.linspace(0, len(rows) - 1, limit).astype(np.int64)]


def space(
    job: TrainingJob,
    cluster: Cluster,
    fix: Mapping[str, Any] | None = None,
    recompute_modules: Sequence[str] = RECOMPUTE_CHOICES,
) -> Space:
    """Every layout of ``job`` on all GPUs of ``cluster`` that agrees with ``fix`` (Layout fields as values).

    ``recompute_modules`` are tried in every subset, besides full recomputation; ``("core_attention",)`` leaves the
    named choices none, selective and full.

    Raises InputError (MW-E140) if ``fix`` leaves no way to use all GPUs.
    """
    fixed = dict(fix or {})
    cells = _cells(job, cluster, fixed)
    if not len(cells):
        raise InputError(
            "MW-E140",
            _("no dp x tp x pp of {n_gpus} GPUs agrees with what is fixed.").format(n_gpus=cluster.n_gpus),
            where="--fix",
            nearest=_("Fixed degrees must divide {n_gpus} together.").format(n_gpus=cluster.n_gpus),
        )
    ok, rejected = lawful(job, cluster, cells)
    cells = cells.take(ok)
    recompute = _recompute_choices(fixed, recompute_modules)
    n_sp = _choices(cells.tp > 1, "sp", fixed)
    # The one switch that can break a rule; where it does, it counts once and is no choice.
    with_sp = cells.take(np.flatnonzero(n_sp == 2))
    with_sp.sp = np.ones(len(with_sp), np.int32)
    sp_ok, rejected_sp = lawful(job, cluster, with_sp)
    n_sp[n_sp == 2] = np.where(sp_ok, 2, 1)
    rejected = {rule: rejected.get(rule, 0) + rejected_sp.get(rule, 0) for rule in rejected | rejected_sp}
    n_zero = _choices(cells.dp > 1, "zero_stage", fixed)
    # On one node every order is as near as any other.
    n_orders = _choices((cells.dp > 1) & (cells.pp > 1) & (cluster.n_nodes > 1), "rank_order", fixed)
    size = n_sp.astype(np.int64) * n_zero * n_orders * len(recompute)
    first_row = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    return Space(cells, first_row, n_sp, n_zero, n_orders, recompute, rejected)


def lawful(job: TrainingJob, cluster: Cluster, layouts: LayoutBatch) -> tuple[BoolArray, dict[str, int]]:
    """Rows that break no rule, and how many break each (a row counts under the first that it breaks)."""
    ok = np.ones(len(layouts), bool)
    rejected: dict[str, int] = {}
    for rule, violated in legal(job, cluster, layouts).items():
        broken = int(np.count_nonzero(violated & ok))
        if broken:
            rejected[rule] = broken
            ok &= ~violated
    return ok, rejected


def _choices(matters: BoolArray, column: str, fixed: Mapping[str, Any]) -> IntArray:
    """How many values a switch takes in each cell: two where it matters and is not fixed, else one."""
    return np.where(matters & (column not in fixed), 2, 1).astype(np.int32)


def _recompute_choices(fixed: Mapping[str, Any], modules: Sequence[str]) -> IntArray:
    """Recompute masks to try: none, each set of modules that Megatron-core's ``--recompute-modules`` takes, full."""
    if "recompute" in fixed:
        return np.array([recompute_mask(fixed["recompute"])], np.int32)
    sizes = range(len(modules) + 1)
    subsets = itertools.chain.from_iterable(itertools.combinations(modules, size) for size in sizes)
    masks = [sum(RECOMPUTE_BITS[module] for module in subset) for subset in subsets]
    return np.array([*masks, RECOMPUTE_NAMES["full"]], np.int32)


def _cells(job: TrainingJob, cluster: Cluster, fixed: Mapping[str, Any]) -> LayoutBatch:
    splits = tuple(dict.fromkeys((*STAGE_SPLIT_NAMES, str(fixed.get("stage_split", "even")))))
    names = tuple(dict.fromkeys(("1f1b", *sorted(schedules()), str(fixed.get("schedule", "1f1b")))))
    parts: list[npt.NDArray[np.int64]] = []
    shapes_of: dict[int, list[tuple[int, int, int]]] = {}
    for tp, pp, dp in _factorisations(cluster.n_gpus, fixed):
        if pp not in shapes_of:
            shapes_of[pp] = _pipeline_shapes(job.model.n_layers, pp, fixed, names, splits)
        shapes = shapes_of[pp]
        batches = _micro_batches(job.global_batch, dp, fixed)
        grid = np.empty((len(shapes), len(batches), 7), np.int64)
        grid[..., :3] = (dp, tp, pp)
        grid[..., 3:6] = np.array(shapes, np.int64).reshape(-1, 1, 3)
        grid[..., 6] = batches
        parts.append(grid.reshape(-1, 7))
    table = np.concatenate(parts) if parts else np.empty((0, 7), np.int64)
    columns = {name: np.zeros(len(table), np.int32) for name in ("sp", "zero_stage", "recompute", "rank_order")}
    for i, name in enumerate(("dp", "tp", "pp", "vpp", "schedule", "stage_split", "micro_batch")):
        columns[name] = table[:, i].astype(np.int32)
    columns["sp"] += int(fixed.get("sp", False))
    columns["zero_stage"] += int(fixed.get("zero_stage", 0))
    columns["recompute"] += _recompute_choices(fixed, ())[0]
    orders = (str(fixed["rank_order"]),) if "rank_order" in fixed else RANK_ORDERS
    return LayoutBatch(**columns, schedules=names, stage_splits=splits, rank_orders=orders)


def _factorisations(n_gpus: int, fixed: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    """(tp, pp, dp) with ``tp * pp * dp == n_gpus``, all divisors, those that agree with ``fixed``."""
    found = []
    for tp in divisors(n_gpus):
        for pp in divisors(n_gpus // tp):
            degrees = {"tp": tp, "pp": pp, "dp": n_gpus // tp // pp}
            if all(fixed.get(axis, degree) == degree for axis, degree in degrees.items()):
                found.append((tp, pp, degrees["dp"]))
    return found


def _pipeline_shapes(
    n_layers: int, pp: int, fixed: Mapping[str, Any], names: Sequence[str], splits: Sequence[str]
) -> list[tuple[int, int, int]]:
    """(vpp, schedule code, split code) that make sense for ``pp`` stages; one pipeline rank has nothing to choose.

    A schedule that refuses ``vpp`` chunks even with as many micro-batches as stages is no choice; one that was fixed
    stays, for the rule that it breaks.
    """
    known = schedules()
    wanted = [splits.index(str(fixed["stage_split"]))] if "stage_split" in fixed else [0, 1] if pp > 1 else [0]
    shapes = []
    for split in wanted:
        # With the ends counted as layers, chunks are equal when layers + 2 divides (costmodel's own rule decides).
        layers = n_layers + 2 if splits[split] == "ends" else n_layers
        chunks = [v for v in divisors(layers // pp) if v > 1] if pp > 1 and layers % pp == 0 else []
        choices = [int(fixed["vpp"])] if "vpp" in fixed else [1, *chunks]
        if "schedule" in fixed:
            shapes += [(vpp, names.index(str(fixed["schedule"])), split) for vpp in choices]
            continue
        suits = [np.broadcast_to(known[name].legal(pp, np.array(choices), pp), len(choices)) for name in names]
        for vpp, suit in zip(choices, zip(*suits, strict=True), strict=True):
            codes = [code for code, fine in enumerate(suit) if fine]
            # Without a pipeline every schedule is the same one.
            shapes += [(vpp, code, split) for code in (codes if pp > 1 else codes[:1])]
    return shapes


def _micro_batches(global_batch: int, dp: int, fixed: Mapping[str, Any]) -> IndexArray:
    if "micro_batch" in fixed:
        return np.array([int(fixed["micro_batch"])], np.int64)
    # A data-parallel degree that does not divide the batch stays as one row, for the rule that it breaks.
    return np.array(divisors(global_batch // dp) if global_batch % dp == 0 else [1], np.int64)
