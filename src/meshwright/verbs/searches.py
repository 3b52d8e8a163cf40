"""Several searches in a row: one progress for all of them, one memory limit, one interrupt that ends them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meshwright.costmodel import evaluate, score
from meshwright.costmodel.memory import roomy_bytes
from meshwright.errors import InputError
from meshwright.i18n import _
from meshwright.plan.search import CHUNK_ROWS, budget_bytes, search
from meshwright.plan.space import lawful, space
from meshwright.specs.constants import Constants
from meshwright.specs.estimate import Estimate
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch
from meshwright.specs.report import Progress
from meshwright.units import format_bytes
from meshwright.verbs.command import layout_text
from meshwright.verbs.document import rule_text
from meshwright.verbs.resolve import positive_quantity


def memory_limit(text: str | None) -> float | None:
    """``--max-memory`` in bytes. Raises InputError for what is no size."""
    return None if text is None else positive_quantity(text, "bytes", "--max-memory")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one search found: ``layouts`` best first; the legal layout that needs least memory, and what it misses by.

    ``rule`` is the one that every layout breaks where none is legal.
    """

    layouts: tuple[Estimate, ...]
    least: Estimate | None
    misses_bytes: float | None
    rule: str | None
    interrupted: bool

    @property
    def best(self) -> Estimate | None:
        """The fastest layout that fits."""
        return self.layouts[0] if self.layouts else None

    def why_none(self) -> str | None:
        """In words, why nothing fits; None where something does or nothing is known."""
        if self.layouts:
            return None
        if self.least is not None and self.misses_bytes is not None:
            return _("misses by {missing} a GPU with {layout}").format(
                missing=format_bytes(self.misses_bytes), layout=layout_text(self.least.layout)
            )
        if self.rule is not None:
            return _("no layout is legal; most break {rule} ({text})").format(rule=self.rule, text=rule_text(self.rule))
        return None


@dataclass(slots=True)
class Searches:
    """The searches of one answer. ``expected`` is how many there will be, for the progress; it may grow.

    ``max_memory_bytes`` lowers what a GPU may fill; ``fix`` pins columns in every search.
    """

    constants: Constants
    fix: Mapping[str, Any] = field(default_factory=dict)
    max_memory_bytes: float | None = None
    on_progress: Callable[[Progress], None] | None = None
    expected: int = 1
    done: int = 0
    searched: int = 0
    interrupted: bool = False
    started_s: float = field(default_factory=time.perf_counter)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first search began."""
        return time.perf_counter() - self.started_s

    def run(self, job: TrainingJob, cluster: Cluster, *, top: int = 1) -> Outcome:
        """Search one job on one cluster. A KeyboardInterrupt ends it and sets ``interrupted``."""
        try:
            found = search(
                job,
                cluster,
                self.constants,
                fix=self.fix,
                max_memory_bytes=self.max_memory_bytes,
                top=top,
                on_progress=self._seen,
            )
        except InputError as error:
            if error.code != "MW-E140":
                raise
            self._finish(0)
            return Outcome((), None, None, "gpus_match", interrupted=False)
        self._finish(found.searched)
        self.interrupted |= found.interrupted

        def rows(numbers: Sequence[int]) -> tuple[Estimate, ...]:
            if not len(numbers):
                return ()
            batch = found.space.at(np.asarray(numbers, np.int64))
            estimates = evaluate(job, cluster, batch, self.constants)
            return tuple(estimates.row(i, batch.row(i)) for i in range(len(batch)))

        layouts = rows([int(row) for row in found.best.row])
        least = None if found.nearest_row is None else rows([found.nearest_row])[0]
        misses = found.nearest_peak_bytes - budget_bytes(cluster, self.constants, self.max_memory_bytes)
        return Outcome(
            layouts,
            least,
            None if layouts or least is None else misses,
            max(found.rejected, key=lambda name: found.rejected[name], default=None) if least is None else None,
            found.interrupted,
        )

    def tell(self) -> None:
        """Report progress between searches. Raises what the callback raises (KeyboardInterrupt)."""
        self._report(0.0, None)

    def count(self) -> None:
        """One unit of work that was no search is done."""
        self._finish(0)
        self.tell()

    def room_bytes(self, cluster: Cluster) -> float:
        """What the reserved peak may be at most for a layout to fit without doubt."""
        budget = budget_bytes(cluster, self.constants, self.max_memory_bytes)
        return min(budget, roomy_bytes(cluster, self.constants))

    def holder(
        self, job: TrainingJob, cluster: Cluster, fix: Mapping[str, Any], hints: Sequence[Layout] = ()
    ) -> Layout | None:
        """A legal layout that agrees with ``fix`` and fits with room to spare; None where there is none.

        The whole space is looked through, by memory alone; ``hints`` are tried first.
        """
        room = self.room_bytes(cluster)
        if hints:
            known = LayoutBatch.of(hints)
            known = known.take(lawful(job, cluster, known)[0])
            if (found := self._holding(job, cluster, known, room)) is not None:
                return found
        try:
            whole = space(job, cluster, fix)
        except InputError as error:
            if error.code != "MW-E140":
                raise
            return None
        for start in range(0, len(whole), CHUNK_ROWS):
            self.tell()
            if (found := self._holding(job, cluster, whole.rows(start, start + CHUNK_ROWS), room)) is not None:
                return found
        return None

    def legal_layouts(self, job: TrainingJob, cluster: Cluster) -> int:
        """How many layouts keep every rule and agree with what is fixed."""
        try:
            return len(space(job, cluster, self.fix))
        except InputError as error:
            if error.code != "MW-E140":
                raise
            return 0

    def _holding(self, job: TrainingJob, cluster: Cluster, batch: LayoutBatch, room: float) -> Layout | None:
        if not len(batch):
            return None
        # A limit of nothing: only the memory is computed.
        peak = score(job, cluster, batch, self.constants, 0.0).peak_reserved_bytes
        least = int(peak.argmin())
        return batch.row(least) if peak[least] <= room else None

    def _finish(self, searched: int) -> None:
        self.done += 1
        self.searched += searched
        self.expected = max(self.expected, self.done + 1)

    def _seen(self, state: Progress) -> None:
        self._report(state.visited / state.total if state.total else 1.0, state)

    def _report(self, share: float, state: Progress | None) -> None:
        if self.on_progress is None:
            return
        done = self.done + share
        searched = self.searched + (state.searched if state else 0)
        remaining_s = self.elapsed_s * (self.expected - done) / done if done else None
        best_s = state.best_step_time_s if state else None
        progress = Progress(searched, round(1000 * done), 1000 * self.expected, best_s, self.elapsed_s, remaining_s)
        self.on_progress(progress)
