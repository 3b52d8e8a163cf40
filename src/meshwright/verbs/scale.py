"""``scale``: the best plan at each number of GPUs, and from where on more of them do not pay off."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from meshwright.errors import InputError
from meshwright.i18n import _
from meshwright.plan.change import Case
from meshwright.plan.resize import node_gpus
from meshwright.plan.sensitivity import sensitivities
from meshwright.specs.job import TrainingJob
from meshwright.specs.limits import GPUS, SEQUENCES, at_most
from meshwright.specs.plan import Assumed
from meshwright.specs.report import Progress
from meshwright.specs.request import ScaleRequest
from meshwright.specs.scale import Point, ScaleReport
from meshwright.units import format_ratio
from meshwright.verbs.document import check_writable, describe, render, write_whole
from meshwright.verbs.points import command_at, point, sized
from meshwright.verbs.resolve import Resolved, at_least_one, layout_values, resolve
from meshwright.verbs.searches import Searches, memory_limit
from meshwright.verbs.totals import moved_totals, price_of

#: The share of the smallest count's speed a GPU above which more GPUs are said to pay off.
LEAST_EFFICIENCY_RATIO = 0.8
#: How far the curve goes when no counts were given, in full nodes.
_USUAL_NODES = 128
_RANGE = re.compile(r"^(\d{1,9})\s*(?:\.\.\.?|-|:|to)\s*(\d{1,9})$")


def scale(request: ScaleRequest, on_progress: Callable[[Progress], None] | None = None) -> ScaleReport:
    """The fastest layout at each GPU count of ``request.gpus``, with the same batch or, ``weak``, one that grows.

    Without a batch, strong scaling assumes one that the largest count can share. Ctrl-C (KeyboardInterrupt out of
    ``on_progress``) returns the points so far with ``interrupted``. Raises InputError MW-E450 (the counts), MW-E211
    (no whole nodes) and those of resolving.
    """
    check_writable(request.out)
    base = resolve(request)
    fix = layout_values(request.fix, where="--fix") if request.fix else {}
    price, assumed_price = price_of(request.price, base.cluster)
    full = node_gpus(base.cluster)
    text = request.gpus if request.gpus is not None else f"{full}..{full * _USUAL_NODES}"
    counts = gpu_counts(text, full)
    # What is assumed for the fabric and the batch is that of the smallest cluster (weak) or of the largest one.
    reference = sized(request, base, counts[0] if request.weak else counts[-1])
    reference = reference.assuming(assumed_price)
    clusters = [sized(request, base, n_gpus).cluster for n_gpus in counts]
    searches = Searches(base.constants, fix, memory_limit(request.max_memory), on_progress, expected=len(counts))
    points: list[Point] = []
    seen: list[Resolved] = []
    for n_gpus, cluster in zip(counts, clusters, strict=True):
        job = _job(reference.job, n_gpus / counts[0] if request.weak else 1.0)
        outcome = searches.run(job, cluster)
        if searches.interrupted and outcome.best is None:
            break
        seen.append(Resolved(job, cluster, base.constants, reference.assumed))
        points.append(point(seen[-1], outcome, price))
        if searches.interrupted:
            break
    answer = _report(request, reference, points, seen, searches, None if request.gpus else text)
    if request.out is not None and (points or not answer.interrupted):
        write_whole(request.out, render("scale", answer))
    return answer


def gpu_counts(text: str, full: int, where: str = "--gpus") -> list[int]:
    """GPU counts, ascending: ``8,16,32``, or ``8..1024`` for doublings, whole nodes of ``full`` GPUs from there on.

    Raises InputError MW-E450 (not understood, or downwards) or MW-E403 (too large or none).
    """
    found: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        if match := _RANGE.match(part):
            low, high = (_count(digits, where) for digits in match.groups())
            if low > high:
                raise _not_counts(part, where, f"{high}..{low}")
            count = low
            while count < high:
                found.add(count if count <= full else count - count % full)
                count *= 2
            found.add(high)
        elif part.isdecimal():
            found.add(_count(part, where))
        else:
            raise _not_counts(part, where, "8..1024")
    if not found:
        raise _not_counts(text, where, "8..1024")
    return sorted(found)


def _count(digits: str, where: str) -> int:
    return at_least_one(at_most(int(digits[:32]), GPUS, where), where)


def _not_counts(text: str, where: str, example: str) -> InputError:
    return InputError(
        "MW-E450",
        _("'{text}' is neither a GPU count nor a range of them.").format(text=text),
        where=where,
        nearest=_("Write it like '{example}'.").format(example=f"{example}' / '8,16,32"),
    )


def _job(job: TrainingJob, times: float) -> TrainingJob:
    batch = min(SEQUENCES, max(1, round(job.global_batch * times)))
    return job.model_copy(update={"global_batch": batch})


def _report(
    request: ScaleRequest,
    reference: Resolved,
    points: Sequence[Point],
    seen: Sequence[Resolved],
    searches: Searches,
    assumed_gpus: str | None,
) -> ScaleReport:
    points = with_efficiency(points)
    fitting = [i for i, each in enumerate(points) if each.estimate is not None]
    knee = knee_index(points)
    slower = no_faster_index(points)
    assumed = reference.assumed
    if assumed_gpus is not None:
        why = _("from one node up; --gpus says otherwise")
        assumed = {"gpus": Assumed(name="gpus", value=assumed_gpus, why=why)} | assumed
    if request.weak and "global_batch" in assumed:
        # It is another one at each count, so no single step says how it moves.
        assumed |= {"global_batch": assumed["global_batch"].model_copy(update={"alternative": None})}
    shown = seen[knee] if knee is not None else None
    if shown is not None and knee is not None and (best := points[knee].estimate) is not None:
        case = Case(shown.job, shown.cluster, best.layout)
        assumed = moved_totals(sensitivities(assumed, case, shown.constants), case, best, shown.constants)
    if knee is not None and shown is not None:
        following = command_at(
            "plan", request, shown.cluster, shown.job, fix=request.fix, max_memory=request.max_memory
        )
    else:
        following = command_at("fit", request, reference.cluster, reference.job, max_memory=request.max_memory)
    model, _cluster, job = describe(reference.job, reference.cluster)
    return ScaleReport(
        verdict=_verdict(reference, points, fitting, knee, slower),
        model=model,
        job=job,
        weak=request.weak,
        points=tuple(points),
        least_efficiency_ratio=LEAST_EFFICIENCY_RATIO,
        knee_n_gpus=None if knee is None else points[knee].n_gpus,
        no_faster_n_gpus=None if slower is None else points[slower].n_gpus,
        assumed=assumed,
        searched=searches.searched,
        elapsed_s=searches.elapsed_s,
        interrupted=searches.interrupted,
        next_command=following,
    )


def with_efficiency(points: Sequence[Point]) -> list[Point]:
    """The points with their tokens/s/GPU over that of the first that fits."""
    first = next((each.estimate.tokens_per_s_per_gpu for each in points if each.estimate is not None), None)
    return [
        each
        if each.estimate is None or first is None
        else each.model_copy(update={"efficiency_ratio": each.estimate.tokens_per_s_per_gpu / first})
        for each in points
    ]


def knee_index(points: Sequence[Point], least_ratio: float = LEAST_EFFICIENCY_RATIO) -> int | None:
    """The last point up to which every one that fits keeps ``least_ratio``; None where nothing fits."""
    knee = None
    for index, each in enumerate(points):
        if each.efficiency_ratio is None:
            continue
        if each.efficiency_ratio < least_ratio:
            break
        knee = index
    return knee


def no_faster_index(points: Sequence[Point]) -> int | None:
    """The first point that yields no more tokens a second than the one before it that fits; None where each does."""
    before = 0.0
    for index, each in enumerate(points):
        if each.tokens_per_s is None:
            continue
        if each.tokens_per_s <= before:
            return index
        before = each.tokens_per_s
    return None


def _verdict(
    reference: Resolved, points: Sequence[Point], fitting: Sequence[int], knee: int | None, slower: int | None
) -> str:
    model, gpu = reference.job.model.name, reference.cluster.gpu.name
    if not points:
        return _("{model} on {gpu}: nothing was searched yet.").format(model=model, gpu=gpu)
    if not fitting or knee is None:
        last = points[-1]
        return _("{model} fits on none of these counts of {gpu}: {n_gpus} GPUs: {why}.").format(
            model=model, gpu=gpu, n_gpus=f"{last.n_gpus:,}", why=last.why_none or _("no layout")
        )
    low, edge, last = points[fitting[0]], points[knee], points[fitting[-1]]
    if len(fitting) == 1:
        return _("{model} on {gpu}: of these counts only {n_gpus} GPUs hold it.").format(
            model=model, gpu=gpu, n_gpus=f"{low.n_gpus:,}"
        )
    if edge is last:
        text = _(
            "{model} on {gpu}: efficiency stays above {least}% from {first} up to all {edge} GPUs ({efficiency}%)."
        )
    else:
        text = _(
            "{model} on {gpu}: efficiency stays above {least}% from {first} up to {edge} GPUs ({efficiency}%); {next} "
            "GPUs reach {next_efficiency}%."
        )
    following = next((points[i] for i in fitting if i > knee), edge)
    sentence = text.format(
        model=model,
        gpu=gpu,
        least=format_ratio(LEAST_EFFICIENCY_RATIO),
        first=f"{low.n_gpus:,}",
        edge=f"{edge.n_gpus:,}",
        efficiency=format_ratio(edge.efficiency_ratio or 0.0),
        next=f"{following.n_gpus:,}",
        next_efficiency=format_ratio(following.efficiency_ratio or 0.0),
    )
    if slower is not None:
        sentence += " " + _("{n_gpus} GPUs are no faster than the count before.").format(
            n_gpus=f"{points[slower].n_gpus:,}"
        )
    return sentence
