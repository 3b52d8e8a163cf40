"""Plan: the answer to "which layout", with what was assumed and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.i18n import _
from meshwright.specs.estimate import Estimate
from meshwright.specs.fact import Noun
from meshwright.specs.notebook import estimates_html, title_of


class Change(Noun):
    """A path on job, cluster or layout and its new value: ``layout.tp`` -> ``4``, ``cluster.nics_per_node`` -> 8."""

    path: str
    value: Any


class Assumed(Noun):
    """A default nobody asked for: its value, why it was taken, and how the answer moves with the alternative.

    ``step_time_ratio`` is the step time of the chosen layout under ``alternative`` over that under ``value``.
    """

    name: str
    value: Any
    why: str
    alternative: Change | None = None
    step_time_ratio: float | None = None


class Runner(Noun):
    """Why a layout did not win: the terms by which it loses to the chosen one, largest first, in seconds."""

    layout_index: int
    slower_ratio: float
    terms_s: Mapping[str, float]


class Plan(Noun):
    """What ``mw plan`` found; ``layouts`` best first. Times in seconds, all predicted.

    ``nearest`` is set where nothing fits: the legal layout with the lowest peak and by how many bytes it misses.
    ``tight_faster`` is the fastest layout that fits only tightly, where it is faster than the chosen one.
    """

    model: Mapping[str, Any]
    cluster: Mapping[str, Any]
    job: Mapping[str, Any]
    layouts: tuple[Estimate, ...]
    chosen: int
    feasible: bool
    searched: int
    rejected: Mapping[str, int]
    pareto: tuple[Estimate, ...]
    runners_up: tuple[Runner, ...]
    assumed: Mapping[str, Assumed]
    time_to_train_s: float | None
    time_to_train_interval_s: tuple[float, float] | None
    needs: Mapping[str, float | None]
    remedies: tuple[Mapping[str, Any], ...]
    nearest: Mapping[str, Any] | None = None
    tight_faster: Estimate | None = None
    next_command: str
    elapsed_s: float
    first_incumbent_s: float | None
    interrupted: bool

    def _repr_html_(self) -> str:
        """What a notebook shows: the layouts found, or by how much the nearest misses."""
        title = title_of(self.model, self.cluster)
        if not self.layouts and self.nearest:
            title = _("{title}: nothing fits; {nearest}.").format(title=title, nearest=self.nearest["what"])
        return estimates_html(title, self.layouts, self.chosen)
