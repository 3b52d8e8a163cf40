"""Reports: what the verbs answer besides a Plan. Each becomes one JSON document with a ``schema`` tag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from meshwright.specs.estimate import Estimate
from meshwright.specs.fact import Label, Noun
from meshwright.specs.notebook import estimates_html, title_of
from meshwright.specs.plan import Assumed, Totals


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is. ``total`` counts the rows of the whole space, ``searched`` those that were scored."""

    searched: int
    visited: int
    total: int
    best_step_time_s: float | None
    elapsed_s: float
    remaining_s: float | None


class EstimateReport(Totals):
    """What ``mw estimate`` says of one layout. In JSON the fields of ``estimate`` stand at the top level.

    ``time_to_train_s`` is failure-free and None where no ``tokens`` were given.
    """

    model: Mapping[str, Any]
    cluster: Mapping[str, Any]
    job: Mapping[str, Any]
    estimate: Estimate
    time_to_train_s: float | None
    assumed: Mapping[str, Assumed]
    remedies: tuple[Mapping[str, Any], ...]
    next_command: str

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return estimates_html(title_of(self.model, self.cluster), [self.estimate])


class CatalogRow(Noun):
    """One line of a listing."""

    kind: str
    name: str
    aliases: tuple[str, ...]
    summary: str


class CatalogField(Noun):
    """One value of one entry with its provenance. ``text`` is the value as the catalog writes it, with its unit."""

    field: str
    text: str
    source: str | None
    label: Label | None


class CatalogListing(Noun):
    """What ``mw catalog`` shows: ``rows`` (all kinds, or one), or the ``fields`` of the one entry ``name``."""

    kind: str | None
    name: str | None
    rows: tuple[CatalogRow, ...]
    fields: tuple[CatalogField, ...]


class ExplanationEntry(Noun):
    """One node of an explanation: a formula with its inputs below it, down to values with a catalog source."""

    name: str
    value: Any = None
    unit: str | None = None
    source: str | None = None
    what: str = ""
    children: tuple[ExplanationEntry, ...] = ()


class Explanation(Noun):
    """What a name means (``sentence``) and, for a number of a plan, how it was computed (``entries``).

    ``kind`` says what the name is: field, term, memory, layout, rule, error, formula or constant.
    """

    target: str
    what: str | None
    kind: str
    sentence: str
    value: Any = None
    unit: str | None = None
    entries: tuple[ExplanationEntry, ...] = ()
    next_command: str | None = None


class ErrorGroup(Noun):
    """Errors of one group of cases; None where none was scored. Error is ``|predicted/measured - 1|``.

    ``bias_ratio`` is the signed median, ``interval_coverage_ratio`` the share of measurements inside the interval.
    """

    name: str
    rows: int
    scored: int
    skipped: int
    median_error_ratio: float | None
    p90_error_ratio: float | None
    bias_ratio: float | None
    interval_coverage_ratio: float | None


class CaseScore(Noun):
    """One measured case beside its prediction; ``skipped_because`` is set where there is none."""

    id: str
    group: str
    trust: str
    layout: str
    measured_s: float | None
    predicted_s: float | None = None
    interval_low_s: float | None = None
    interval_high_s: float | None = None
    error_ratio: float | None = None
    within_interval: bool | None = None
    skipped_because: str | None = None


class Validation(Noun):
    """What ``mw validate KIND FILE`` found: ``groups`` apart, ``overall`` over every scored case.

    ``skipped`` counts the cases without a prediction by the reason, the most frequent first.
    """

    kind: str
    file: str
    groups: tuple[ErrorGroup, ...]
    overall: ErrorGroup
    cases: tuple[CaseScore, ...]
    skipped: Mapping[str, int] = Field(default_factory=dict)
