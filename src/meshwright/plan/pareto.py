"""What a search remembers: the best few layouts by its objective and the front of step time against peak memory.

Both are merged chunk by chunk and do not depend on how the rows were cut into chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.step import Scores
from meshwright.specs.layout import LayoutBatch

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Memory that a slower layout must save to be shown beside a faster one.
WORTH_SAVING_RATIO = 0.02
#: objective -> the column of Candidates that ranks, and the one in which a worse variant may still be better. On a
#: given cluster the cost of a training follows its time.
OBJECTIVES = {
    "time": ("step_time_s", "peak_bytes"),
    "memory": ("peak_bytes", "step_time_s"),
    "cost": ("step_time_s", "peak_bytes"),
    "energy": ("step_energy_j", "peak_bytes"),
}
#: Trade-offs of log memory against log time at which a row is looked for that beats many others.
_PIVOT_WEIGHTS = (1.0, 0.2, 0.05, 5.0)


@dataclass(slots=True)
class Candidates:
    """A few rows: number in the space, step time, peak memory and the layout's traits.

    ``family`` (n, 4) holds dp, tp, pp, micro_batch; ``features`` counts the switches that are on. ``step_energy_j`` is
    nan where the search had no need of it.
    """

    row: IndexArray
    step_time_s: FloatArray
    peak_bytes: FloatArray
    step_energy_j: FloatArray
    features: IndexArray
    family: IndexArray

    def __len__(self) -> int:
        return len(self.row)

    def take(self, index: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> Candidates:
        """The candidates of ``index``."""
        return Candidates(*(getattr(self, name)[index] for name in self.__slots__))

    def join(self, other: Candidates) -> Candidates:
        """Both, each row number once."""
        _rows, first = np.unique(np.concatenate([self.row, other.row]), return_index=True)
        both = (np.concatenate([getattr(self, name), getattr(other, name)]) for name in self.__slots__)
        return Candidates(*(column[first] for column in both))

    def ranked_by(self, objective: str) -> tuple[FloatArray, FloatArray]:
        """The columns of ``OBJECTIVES[objective]``."""
        first, second = OBJECTIVES[objective]
        return getattr(self, first), getattr(self, second)


def nobody() -> Candidates:
    """No candidates."""
    empty = np.empty(0, np.int64)
    return Candidates(empty, np.empty(0), np.empty(0), np.empty(0), empty, np.empty((0, 4), np.int64))


def candidates(
    rows: IndexArray, layouts: LayoutBatch, scores: Scores, keep: IndexArray, step_energy_j: FloatArray | None = None
) -> Candidates:
    """The positions ``keep`` of a scored chunk, whose row numbers in the space are ``rows``."""
    features = sum(
        (
            (column[keep] != off).astype(np.int64)
            for column, off in (
                (layouts.sp, 0),
                (layouts.zero_stage, 0),
                (layouts.vpp, 1),
                (layouts.stage_split, 0),
                (layouts.recompute, 0),
                (layouts.rank_order, 0),
            )
        ),
        np.zeros(len(keep), np.int64),
    )
    family = np.stack([layouts.dp[keep], layouts.tp[keep], layouts.pp[keep], layouts.micro_batch[keep]], axis=1)
    return Candidates(
        rows[keep],
        scores.step_time_s[keep],
        scores.peak_reserved_bytes[keep],
        np.full(len(keep), np.nan) if step_energy_j is None else step_energy_j[keep],
        features,
        family.astype(np.int64),
    )


@dataclass(slots=True)
class Best:
    """The ``size`` best layouts by ``objective`` so far that are worth showing.

    Layouts with the same dp, tp, pp and micro-batch are variants of each other. A variant leaves where another is no
    worse in either column of the objective; of equal ones the plainest stays. So switches that do nothing never show
    as alternatives.
    """

    size: int
    objective: str = "time"
    found: Candidates = field(default_factory=nobody)

    def offer(
        self,
        rows: IndexArray,
        layouts: LayoutBatch,
        scores: Scores,
        wanted: BoolArray,
        step_energy_j: FloatArray | None = None,
    ) -> None:
        """Take in the ``wanted`` rows of a scored chunk; ``step_energy_j`` where the objective is energy."""
        measures = {"step_time_s": scores.step_time_s, "peak_bytes": scores.peak_reserved_bytes}
        first = step_energy_j if step_energy_j is not None else measures[OBJECTIVES[self.objective][0]]
        full = len(self.found) >= self.size
        keep = np.flatnonzero(wanted & (first <= self.found.ranked_by(self.objective)[0][-1]) if full else wanted)
        if not len(keep):
            return
        kept = first[keep]
        limit = 12 * self.size
        while True:
            # Most rows are far from the best: look at the best few, and at more only if too many were variants.
            few = keep if len(keep) <= limit else keep[kept <= np.partition(kept, limit)[limit]]
            pool = self.found.join(candidates(rows, layouts, scores, few, step_energy_j))
            best = _undominated(pool, self.objective)
            if len(few) == len(keep) or len(best) >= self.size:
                self.found = best.take(slice(0, self.size))
                return
            limit *= 4

    def shown(self, top: int, saving_ratio: float = WORTH_SAVING_RATIO) -> Candidates:
        """The ``top`` best; a worse variant only where it saves ``saving_ratio`` of the objective's other column."""
        least: dict[tuple[int, ...], float] = {}
        shown: list[int] = []
        other = self.found.ranked_by(self.objective)[1].tolist()
        for i, family in enumerate(map(tuple, self.found.family.tolist())):
            if other[i] <= least.get(family, np.inf) * (1 - saving_ratio):
                shown.append(i)
                least[family] = other[i]
            if len(shown) == top:
                break
        return self.found.take(np.array(shown, np.int64))


def _undominated(pool: Candidates, objective: str) -> Candidates:
    """The variants that no other of their family beats, best first."""
    first, second = pool.ranked_by(objective)
    order = np.lexsort((pool.row, pool.features, second, first, *pool.family.T))
    ordered = pool.take(order)
    family = np.cumsum(np.concatenate([[0], (np.diff(ordered.family, axis=0) != 0).any(axis=1)]))
    # One running minimum for all families: each family's ranks lie below those of the families before it.
    rank = np.unique(second[order], return_inverse=True)[1] - family * (len(ordered) + 1)
    lowest_before = np.minimum.accumulate(np.concatenate([[len(ordered) + 1], rank]))[:-1]
    kept = ordered.take(rank < lowest_before)
    first, second = kept.ranked_by(objective)
    return kept.take(np.lexsort((kept.row, kept.features, second, first)))


@dataclass(slots=True)
class Front:
    """The layouts than which none is both faster and smaller, fastest first.

    A slower layout joins only if it saves ``saving_ratio`` of the peak memory of the last one that did.
    """

    saving_ratio: float = WORTH_SAVING_RATIO
    found: Candidates = field(default_factory=nobody)

    def offer(self, rows: IndexArray, layouts: LayoutBatch, scores: Scores, wanted: BoolArray) -> None:
        """Take in the ``wanted`` rows of a scored chunk."""
        time, peak = scores.step_time_s, scores.peak_reserved_bytes
        if len(self.found):
            # What the front already has at this time or earlier: beaten rows leave before anything is sorted.
            at = np.searchsorted(self.found.step_time_s, time, side="right")
            least = np.concatenate([[np.inf], self.found.peak_bytes])[at]
            keep = np.flatnonzero(wanted & (peak < least))
        else:
            keep = np.flatnonzero(wanted)
            # A row that is good at both, by any weight, beats most others; only the rest is worth sorting.
            for weight in _PIVOT_WEIGHTS if len(keep) else ():
                pivot = keep[np.argmin(np.log(time[keep]) + weight * np.log(peak[keep]))]
                keep = keep[(time[keep] < time[pivot]) | (peak[keep] < peak[pivot]) | (keep == pivot)]
        keep = keep[_front(time[keep], peak[keep], keep)]
        if len(keep):
            pool = self.found.join(candidates(rows, layouts, scores, keep))
            self.found = pool.take(_front(pool.step_time_s, pool.peak_bytes, pool.row))

    def shown(self) -> Candidates:
        """The front, thinned to steps of ``saving_ratio``."""
        shown: list[int] = []
        for i, peak in enumerate(self.found.peak_bytes):
            if not shown or peak <= self.found.peak_bytes[shown[-1]] * (1 - self.saving_ratio):
                shown.append(i)
        return self.found.take(np.array(shown, np.int64))


def tradeoffs(time_s: FloatArray, *others: FloatArray, saving_ratio: float = WORTH_SAVING_RATIO) -> IndexArray:
    """Positions of the layouts that are worth their time, fastest first: each saves of at least one of ``others``.

    It saves ``saving_ratio`` against all faster ones that are worth theirs; of equal times the first stays.
    """
    shown: list[int] = []
    least = np.full(len(others), np.inf)
    for i in np.argsort(time_s, kind="stable").tolist():
        here = np.array([column[i] for column in others])
        if (here <= least * (1 - saving_ratio)).any():
            shown.append(i)
            least = np.minimum(least, here)
    return np.array(shown, np.int64)


def _front(time_s: FloatArray, peak_bytes: FloatArray, tie: IndexArray) -> IndexArray:
    """Positions of the front of (time, peak), fastest first; equal points keep the smallest ``tie``."""
    order = np.lexsort((tie, peak_bytes, time_s))
    lowest = np.minimum.accumulate(np.concatenate([[np.inf], peak_bytes[order]]))
    return order[peak_bytes[order] < lowest[:-1]]
