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

    ``step_time_ratio`` is the step time of the chosen layout under ``alternative`` over that under ``value``. What
    moves no step moves a total: ``total_ratio`` is that of the number ``total`` (``cost_usd``).
    """

    name: str
    value: Any
    why: str
    alternative: Change | None = None
    step_time_ratio: float | None = None
    total: str | None = None
    total_ratio: float | None = None


class Runner(Noun):
    """Why a layout did not win: the terms by which it loses to the chosen one, largest first, in seconds."""

    layout_index: int
    slower_ratio: float
    terms_s: Mapping[str, float]


class Totals(Noun):
    """What a whole training takes with one layout; None where no tokens were given or no price is known.

    ``time_to_train_with_failures_s`` holds p50 and p90, ``cost_usd`` and ``energy_j`` go with p50. ``step_energy_j``
    and ``mean_power_w`` are of the whole site, building included. ``failures``: mean time between them, their number,
    checkpoint interval and write, restart, and the share of the time in which training gets on.
    """

    time_to_train_with_failures_s: Mapping[str, float] | None = None
    cost_usd: float | None = None
    energy_j: float | None = None
    step_energy_j: float | None = None
    mean_power_w: float | None = None
    price: Mapping[str, Any] | None = None
    failures: Mapping[str, float | None] | None = None


class Bought(Noun):
    """What a change of the cluster buys: step time of the chosen layout under it over that without it."""

    change: Change
    step_time_ratio: float


class Condition(Noun):
    """A limit that was asked for (``deadline`` in s, ``budget`` in USD) and what the chosen layout reaches.

    ``remedy`` is the smallest larger cluster that keeps it, where one was found.
    """

    name: str
    limit: float
    value: float
    met: bool
    remedy: Change | None = None


class Placement(Noun):
    """Ranks as a table of whole numbers: ``columns`` name the entries of each of ``rows``, one a rank."""

    columns: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]


class Tradeoff(Estimate):
    """A layout that is slower than another and saves memory or energy; what a step of the whole site takes.

    ``step_cost_usd`` is None where no price is known; on one cluster it follows the time.
    """

    step_energy_j: float
    step_cost_usd: float | None


class Plan(Totals):
    """What ``mw plan`` found; ``layouts`` best first by ``objective``. Times in seconds, all predicted.

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
    pareto: tuple[Tradeoff, ...]
    runners_up: tuple[Runner, ...]
    assumed: Mapping[str, Assumed]
    time_to_train_s: float | None
    time_to_train_interval_s: tuple[float, float] | None
    needs: Mapping[str, float | None]
    remedies: tuple[Mapping[str, Any], ...]
    objective: str = "time"
    conditions: tuple[Condition, ...] = ()
    buys: tuple[Bought, ...] = ()
    placement: Placement | None = None
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
