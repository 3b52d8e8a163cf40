"""``report``: what a report draws beyond the numbers of its answer: one step as a timeline, memory by pipeline rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from meshwright.costmodel.memory import by_rank
from meshwright.plan.change import Case
from meshwright.plan.resize import counts
from meshwright.specs.estimate import Estimate
from meshwright.specs.layout import Layout
from meshwright.specs.plan import Plan
from meshwright.specs.report import EstimateReport, Progress
from meshwright.specs.request import JobRequest, PlanRequest, ScaleRequest
from meshwright.specs.timeline import Timeline
from meshwright.verbs.document import reread
from meshwright.verbs.resolve import constants, resolve
from meshwright.verbs.scale import scale
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


#: GPUs of the points of a plan's scaling curve, over its own.
_SCALING = (0.25, 0.5, 1, 2, 4)


def scaling_of(
    request: PlanRequest, answer: Plan, on_progress: Callable[[Progress], None] | None = None
) -> dict[int, Estimate]:
    """The fastest layout at a quarter to four times as many GPUs with the same batch, for a curve; ascending.

    Counts that this kind of cluster does not come in are left out, and those where nothing fits.
    """
    cluster = resolve(request).cluster
    chosen = answer.layouts[answer.chosen]
    known = set(counts(cluster))
    others = [n for n in (round(cluster.n_gpus * times) for times in _SCALING) if n in known and n != cluster.n_gpus]
    found = {cluster.n_gpus: chosen}
    if others:
        fields = {name: getattr(request, name) for name in JobRequest.model_fields}
        asked = ScaleRequest(**fields, gpus=",".join(map(str, others)), fix=request.fix, max_memory=request.max_memory)
        points = scale(asked, on_progress).points
        found |= {point.n_gpus: point.estimate for point in points if point.estimate is not None}
    return dict(sorted(found.items()))


def shown_estimate(answer: Plan | EstimateReport) -> Estimate | None:
    """The estimate that the answer is about: the chosen layout's, or the only one."""
    if isinstance(answer, EstimateReport):
        return answer.estimate
    return answer.layouts[answer.chosen] if answer.layouts else None


def _columns(layout: Any) -> dict[str, Any]:
    return {name: layout[name] for name in Layout.model_fields if name in layout}
