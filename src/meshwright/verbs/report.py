"""``report``: what a report draws beyond the numbers of its answer: one step as a timeline, memory by pipeline rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshwright.costmodel.memory import by_rank
from meshwright.plan.change import Case
from meshwright.specs.estimate import Estimate
from meshwright.specs.layout import Layout
from meshwright.specs.plan import Plan
from meshwright.specs.report import EstimateReport
from meshwright.specs.timeline import Timeline
from meshwright.verbs.document import reread
from meshwright.verbs.resolve import constants
from meshwright.verbs.timelines import timeline_of


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Device memory at the peak of every pipeline rank: bytes by class (pp,) each, and the reserved peak (pp,)."""

    by: dict[str, list[float]]
    reserved_bytes: list[float]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What belongs to the chosen layout; where nothing fits, memory of the nearest miss and no timeline."""

    layout: Layout
    memory: RankMemory
    timeline: Timeline | None


def drawn(answer: Plan | EstimateReport) -> Drawn | None:
    """Timeline and memory by rank of the answer's layout; None where it names no layout at all."""
    estimate = shown_estimate(answer)
    nearest: Any = answer.nearest if isinstance(answer, Plan) else None
    if estimate is None and not (nearest and nearest.get("layout")):
        return None
    layout = Layout.model_validate(_columns(nearest["layout"])) if estimate is None else estimate.layout
    job, cluster = reread(answer.model, answer.cluster, answer.job)
    known = constants()
    by, reserved = by_rank(job, cluster, layout, known)
    return Drawn(
        layout=layout,
        memory=RankMemory({name: values.tolist() for name, values in by.items()}, reserved.tolist()),
        timeline=None if estimate is None else timeline_of(Case(job, cluster, layout), known, estimate),
    )


def shown_estimate(answer: Plan | EstimateReport) -> Estimate | None:
    """The estimate that the answer is about: the chosen layout's, or the only one."""
    if isinstance(answer, EstimateReport):
        return answer.estimate
    return answer.layouts[answer.chosen] if answer.layouts else None


def _columns(layout: Any) -> dict[str, Any]:
    return {name: layout[name] for name in Layout.model_fields if name in layout}
