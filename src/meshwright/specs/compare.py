"""Compare: one job on several clusters, against a deadline and a budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from meshwright.specs.fact import Noun
from meshwright.specs.plan import Assumed
from meshwright.specs.scale import Point

#: Whether a limit is met: by the whole interval, by the prediction only, by the interval's good end only, not at all.
Meets = Literal["yes", "likely", "unlikely", "no"]


class Candidate(Noun):
    """One cluster of a comparison: ``as_given``, and ``needed``, the fewest whole nodes that meet the deadline.

    ``meets_deadline`` and ``meets_budget`` speak of the cluster as given; None where nothing was asked or known.
    """

    as_given: Point
    meets_deadline: Meets | None
    meets_budget: Meets | None
    needed: Point | None
    needed_why_none: str | None
    assumed: Mapping[str, Assumed]


class CompareReport(Noun):
    """What ``mw compare`` found; candidates in the order in which they were named.

    ``fastest`` and ``cheapest`` are positions in ``candidates``: the best predictions among those as given, or, with a
    deadline that ``needed`` answers, the cheapest of those. ``..._is_clear`` says whether the lead over the next is
    larger than the intervals of both; ``holds`` whether what was asked for (to fit, a deadline, a budget) is met.
    """

    verdict: str
    model: Mapping[str, Any]
    tokens: float | None
    deadline_s: float | None
    budget_usd: float | None
    candidates: tuple[Candidate, ...]
    fastest: int | None
    fastest_is_clear: bool | None
    cheapest: int | None
    cheapest_is_clear: bool | None
    cheapest_needed: int | None
    holds: bool
    assumed: Mapping[str, Assumed]
    searched: int
    elapsed_s: float
    interrupted: bool
    next_command: str
