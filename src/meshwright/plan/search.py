"""The search: the whole space in chunks, through rules, memory and the cost model; the best stay."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from meshwright.costmodel import evaluate, score
from meshwright.costmodel.energy import mean_power_w
from meshwright.costmodel.memory import capacity_bytes, roomy_bytes
from meshwright.costmodel.step import Scores
from meshwright.plan.pareto import OBJECTIVES, Best, Candidates, Front
from meshwright.plan.space import Choices, Space, space
from meshwright.specs.constants import Constants
from meshwright.specs.estimate import BREAKDOWN_TERMS
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.report import Progress

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Rows a chunk: large enough that numpy's call overhead vanishes, small enough that its columns stay in cache.
CHUNK_ROWS = 131_072
#: Rows that are scored before everything else, so that an interrupted search has an answer, and the chunks from which
#: on it pays: fewer are through before anybody interrupts.
FIRST_ROWS, FIRST_FROM_CHUNKS = 1_024, 4
#: Freeing one block of this size tells glibc to keep what is freed later (mallopt(3): the dynamic threshold); without
#: it columns go back to the system and fault their pages in anew, a fifth of a large search.
_KEPT_BYTES = 1 << 24
#: The rule under which layouts are counted that are legal but do not fit the memory.
MEMORY_RULE = "memory"
#: The best layouts kept for each one shown: many are variants that will not be shown.
_KEPT_PER_SHOWN = 32


@dataclass(slots=True)
class Found:
    """What a search found: row numbers of ``space``, best first, and the books.

    Every row visited is counted once: ``searched`` (scored and fitting) or under the first rule in ``rejected``,
    which also counts the cells that the space does not multiply out.
    ``tight_row`` is the fastest row that fits only tightly, where it is faster than the best one (None: it is not, or
    something else than time was asked for). ``pareto`` is the front of time and memory; cost follows time. ``kept``
    are the fastest few hundred, among which a slower one may draw less energy.
    ``nearest_row`` is the legal row with the lowest peak memory (None: no legal row), ``nearest_peak_bytes`` its peak.
    """

    space: Space
    best: Candidates
    pareto: Candidates
    kept: Candidates
    tight_row: int | None
    searched: int
    rejected: Mapping[str, int]
    nearest_row: int | None
    nearest_peak_bytes: float
    elapsed_s: float
    first_incumbent_s: float | None
    interrupted: bool


@dataclass(slots=True)
class _Search:
    """The state of one running search."""

    job: TrainingJob
    cluster: Cluster
    constants: Constants
    budget_bytes: float
    roomy_bytes: float
    max_step_time_s: float
    best: Best
    tight: Best
    front: Front = field(default_factory=Front)
    searched: int = 0
    visited: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    nearest_row: int | None = None
    nearest_peak_bytes: float = float("inf")
    started_s: float = field(default_factory=time.perf_counter)
    first_incumbent_s: float | None = None

    @property
    def by_time(self) -> bool:
        """Whether the fastest layout is the best one."""
        return OBJECTIVES[self.best.objective][0] == "step_time_s"

    def take(self, rows: IndexArray, layouts: LayoutBatch, *, count: bool) -> None:
        """Put one chunk of legal rows through memory and cost model; ``count`` is off for rows that come again."""
        room = self._score(rows, layouts)
        if count:
            self.visited += len(rows)
            self.searched += int(np.count_nonzero(room))
            if not room.all():
                self.rejected[MEMORY_RULE] = self.rejected.get(MEMORY_RULE, 0) + int(np.count_nonzero(~room))

    def _score(self, rows: IndexArray, layouts: LayoutBatch) -> BoolArray:
        """Offer a chunk of legal rows to the best and the front; returns which of them fit."""
        scores = score(self.job, self.cluster, layouts, self.constants, self.budget_bytes)
        peak = scores.peak_allocated_bytes
        room = peak <= self.budget_bytes
        nearest = int(peak.argmin())
        if peak[nearest] < self.nearest_peak_bytes:
            self.nearest_row, self.nearest_peak_bytes = int(rows[nearest]), float(peak[nearest])
        if room.any():
            roomy = scores.peak_reserved_bytes <= self.roomy_bytes
            close = room & ~roomy
            energy_j = None
            if not self.by_time:
                soon = scores.step_time_s <= self.max_step_time_s
                roomy, close = roomy & soon, close & soon
                if self.best.objective == "energy":
                    energy_j = self._step_energy_j(layouts, scores, roomy | close)
            self.best.offer(rows, layouts, scores, roomy, energy_j)
            if self.by_time and len(self.best.found):
                # Once something has room to spare, a tight layout is worth telling only where it is faster.
                close &= scores.step_time_s < self.best.found.step_time_s[0]
            self.tight.offer(rows, layouts, scores, close, energy_j)
            self.front.offer(rows, layouts, scores, room)
            if self.first_incumbent_s is None:
                self.first_incumbent_s = time.perf_counter() - self.started_s
        return room

    def _step_energy_j(self, layouts: LayoutBatch, scores: Scores, wanted: BoolArray) -> FloatArray:
        """Energy of a step, (n,); infinite for rows not ``wanted`` and those too slow to be the most frugal."""
        energy = np.full(len(layouts), np.inf)
        found = self.best.found
        if len(found) >= self.best.size:
            # No layout draws less than idle GPUs do.
            idle_w = float(self._power_w({}, np.ones(1))[0])
            wanted = wanted & (scores.step_time_s * idle_w <= found.step_energy_j[-1])
        rows = np.flatnonzero(wanted)
        if len(rows):
            estimates = evaluate(self.job, self.cluster, layouts.take(rows), self.constants)
            energy[rows] = estimates.step_time_s * self._power_w(estimates.breakdown_s, estimates.step_time_s)
        return energy

    def _power_w(self, breakdown_s: Mapping[str, FloatArray], step_time_s: FloatArray) -> FloatArray:
        # The building multiplies every layout's power alike.
        terms = dict.fromkeys(BREAKDOWN_TERMS, np.zeros(len(step_time_s))) | dict(breakdown_s)
        return mean_power_w(terms, step_time_s, self.cluster, self.cluster.site.pue or 1.0, self.constants)

    def tight_faster(self) -> int | None:
        """The fastest tight row if it beats the best roomy one; None where it does not or none is roomy."""
        best, tight = self.best.found, self.tight.found
        if not self.by_time:
            return None
        faster = len(best) and len(tight) and tight.step_time_s[0] < best.step_time_s[0]
        return int(tight.row[0]) if faster else None

    def progress(self, total: int) -> Progress:
        elapsed_s = time.perf_counter() - self.started_s
        remaining_s = elapsed_s * (total - self.visited) / self.visited if self.visited else None
        found = (self.best if len(self.best.found) else self.tight).found
        best_s = float(found.step_time_s[0]) if len(found) else None
        return Progress(self.searched, self.visited, total, best_s, elapsed_s, remaining_s)


def budget_bytes(cluster: Cluster, constants: Constants, max_memory_bytes: float | None = None) -> float:
    """What one GPU may hold: its usable memory, or less where ``max_memory_bytes`` says so."""
    usable = capacity_bytes(cluster, constants)
    return usable if max_memory_bytes is None else min(usable, max_memory_bytes)


def search(
    job: TrainingJob,
    cluster: Cluster,
    constants: Constants,
    *,
    fix: Mapping[str, Any] | None = None,
    max_memory_bytes: float | None = None,
    objective: str = "time",
    max_step_time_s: float = float("inf"),
    top: int = 5,
    choices: Choices | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> Found:
    """Score every legal layout that fits; keep the ``top`` best by ``objective`` and the front of time against memory.

    ``max_memory_bytes`` lowers what a GPU may fill (never raises it). With an objective of memory or energy only
    layouts within ``max_step_time_s`` are the best; where none is, the fastest is. A KeyboardInterrupt ends the search
    with what it has (``interrupted``). Raises InputError where ``fix`` leaves nothing to search.
    """
    np.empty(_KEPT_BYTES, np.uint8)
    whole = space(job, cluster, fix, choices)
    kept = max(top, 1) * _KEPT_PER_SHOWN
    budget = budget_bytes(cluster, constants, max_memory_bytes)
    # The cost model's own "yes" includes a margin; a lower budget has none: people choose it as they mean it.
    roomy = min(budget, roomy_bytes(cluster, constants))
    state = _Search(
        job,
        cluster,
        constants,
        budget,
        roomy,
        max_step_time_s,
        Best(kept, objective),
        Best(kept, objective),
        rejected=dict(whole.rejected),
    )
    interrupted = False
    try:
        if len(whole) > FIRST_FROM_CHUNKS * chunk_rows:
            promising = whole.promising(FIRST_ROWS)
            state.take(promising, whole.at(promising), count=False)
        for start in range(0, len(whole), chunk_rows):
            stop = min(start + chunk_rows, len(whole))
            rows = np.arange(start, stop, dtype=np.int64)
            state.take(rows, whole.rows(start, stop), count=True)
            if on_progress is not None:
                on_progress(state.progress(len(whole)))
    except KeyboardInterrupt:
        interrupted = True
    # A layout that may run out of memory is an answer only where none has room to spare.
    best = (state.best if len(state.best.found) else state.tight).shown(max(top, 1))
    if not len(best):
        best = state.front.found.take(slice(0, 1))
    return Found(
        whole,
        best,
        state.front.shown(),
        state.best.found.join(state.tight.found),
        state.tight_faster(),
        state.searched,
        state.rejected,
        state.nearest_row,
        state.nearest_peak_bytes,
        time.perf_counter() - state.started_s,
        state.first_incumbent_s,
        interrupted,
    )
