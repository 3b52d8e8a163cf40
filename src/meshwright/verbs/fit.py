"""``fit``: does a job fit a cluster, and the largest micro-batch, sequence and model, and the fewest GPUs, that do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from meshwright import catalog
from meshwright.costmodel import evaluate, score
from meshwright.costmodel.parameters import parameter_count
from meshwright.i18n import _
from meshwright.plan.bounds import first, greatest
from meshwright.plan.change import Case
from meshwright.plan.resize import counts
from meshwright.plan.sensitivity import sensitivities
from meshwright.plan.space import divisors, lawful
from meshwright.specs.estimate import Estimate
from meshwright.specs.fit import FitReport, Limit, MicroBatch
from meshwright.specs.layout import Layout, LayoutBatch
from meshwright.specs.limits import SEQUENCES
from meshwright.specs.model import ModelSpec
from meshwright.specs.report import Progress
from meshwright.specs.request import FitRequest
from meshwright.units import format_bytes, format_count
from meshwright.verbs.command import command, layout_text
from meshwright.verbs.document import check_writable, describe, render, write_whole
from meshwright.verbs.points import command_at, sized
from meshwright.verbs.resolve import Resolved, layout_values, resolve
from meshwright.verbs.searches import Outcome, Searches, memory_limit

#: Layouts whose largest micro-batch is looked for, besides the one that needs least memory.
_SHOWN = 3
#: Sequence lengths are tried in steps of the first of these that fits at all.
_SEQUENCE_STEPS = (1024, 128)
#: Sequences longer than this are not tried.
_LONGEST_SEQUENCE = 1 << 22
#: Searches and scans of a usual answer, for the progress.
_EXPECTED = 40


def fit(request: FitRequest, on_progress: Callable[[Progress], None] | None = None) -> FitReport:
    """Whether the request's job fits its cluster, and the limits of what does, all by the model of memory.

    ``request.layout`` pins columns. Ctrl-C (KeyboardInterrupt out of ``on_progress``) returns what is known with
    ``interrupted``. Raises InputError as ``resolve`` and for a layout that agrees with no number of GPUs (MW-E140).
    """
    check_writable(request.out)
    resolved = resolve(request)
    fix = layout_values(request.layout) if request.layout and request.layout.strip() else {}
    searches = Searches(resolved.constants, fix, memory_limit(request.max_memory), on_progress, expected=_EXPECTED)
    outcome = searches.run(resolved.job, resolved.cluster, top=_SHOWN)
    micro_batches: list[MicroBatch] = []
    limits: list[Limit] = []
    try:
        if not searches.interrupted:
            micro_batches.extend(_micro_batches(request, resolved, outcome, searches))
            # One by one, so that an interrupt keeps those that are known.
            limits.extend(_limits(request, resolved, outcome, searches))
    except KeyboardInterrupt:
        searches.interrupted = True
    answer = _report(request, resolved, outcome, micro_batches, limits, searches)
    if request.out is not None and (outcome.layouts or not answer.interrupted):
        write_whole(request.out, render("fit", answer))
    return answer


def _micro_batches(
    request: FitRequest, resolved: Resolved, outcome: Outcome, searches: Searches
) -> Iterator[MicroBatch]:
    rows = [*outcome.layouts, *([outcome.least] if outcome.least is not None else [])]
    # A micro-batch is what is asked for: layouts that differ in it alone are one.
    distinct = {each.layout.model_copy(update={"micro_batch": 1}): each.layout for each in reversed(rows)}
    for layout in reversed(distinct.values()):
        searches.tell()
        dividing, estimate = dividing_micro_batch(resolved, layout, searches)
        yield MicroBatch(
            layout=layout if estimate is None else estimate.layout,
            largest_micro_batch=largest_micro_batch(resolved, layout, searches),
            dividing_micro_batch=dividing,
            estimate=estimate,
            command=None if estimate is None else command("estimate", request, layout=layout_text(estimate.layout)),
        )


def largest_micro_batch(resolved: Resolved, layout: Layout, searches: Searches) -> int | None:
    """The most sequences of a micro-batch that fit under ``layout``, its number of micro-batches kept; None: none."""
    job, cluster = resolved.job, resolved.cluster
    steps = job.global_batch // (layout.dp * layout.micro_batch)
    share = layout.dp * steps

    def holds(size: int) -> bool:
        trial = job.model_copy(update={"global_batch": share * size})
        batch = LayoutBatch.of([layout.model_copy(update={"micro_batch": size})])
        if not lawful(trial, cluster, batch)[0].all():
            return False
        peak = score(trial, cluster, batch, searches.constants, 0.0).peak_reserved_bytes
        return bool(peak[0] <= searches.room_bytes(cluster))

    return greatest(1, SEQUENCES // share, holds)


def dividing_micro_batch(resolved: Resolved, layout: Layout, searches: Searches) -> tuple[int | None, Estimate | None]:
    """The largest micro-batch that fits under ``layout`` and divides the batch, and the step with it."""
    job, cluster = resolved.job, resolved.cluster
    sizes = divisors(job.global_batch // layout.dp)
    batch = LayoutBatch.of([layout.model_copy(update={"micro_batch": size}) for size in sizes])
    batch = batch.take(lawful(job, cluster, batch)[0])
    if not len(batch):
        return None, None
    peak = score(job, cluster, batch, searches.constants, 0.0).peak_reserved_bytes
    room = np.flatnonzero(peak <= searches.room_bytes(cluster))
    if not len(room):
        return None, None
    row = batch.take(room[-1:])
    return int(row.micro_batch[0]), evaluate(job, cluster, row, searches.constants).row(0, row.row(0))


def _limits(request: FitRequest, resolved: Resolved, outcome: Outcome, searches: Searches) -> Iterator[Limit]:
    yield longest_sequence(request, resolved, outcome, searches)
    if (limit := largest_model(request, resolved, searches)) is not None:
        yield limit
    yield fewest_gpus(request, resolved, searches)


def longest_sequence(request: FitRequest, resolved: Resolved, outcome: Outcome, searches: Searches) -> Limit:
    """The longest sequence for which some layout fits on the cluster, in whole steps."""
    job, cluster = resolved.job, resolved.cluster
    learned = _learned_positions(job.model)
    end = learned or _LONGEST_SEQUENCE
    hints: list[Layout] = [each.layout for each in (outcome.least, outcome.best) if each is not None]
    held: dict[int, Layout] = {}

    def holds(length: int) -> bool:
        searches.count()
        found = searches.holder(job.model_copy(update={"seq_len": length}), cluster, searches.fix, hints)
        if found is not None:
            held[length] = found
            hints.insert(0, found)
        return found is not None

    value = None
    for step in _SEQUENCE_STEPS:
        last = end // step
        known = job.seq_len // step
        # Start from what was asked for where that fits: most answers are near it.
        low = known if 1 < known <= last and holds(known * step) else 1
        units = greatest(low, last, lambda count, step=step: holds(count * step))  # type: ignore[misc]
        if units is not None:
            value = units * step
            break
    return Limit(
        name="longest_sequence",
        value=value,
        text="" if value is None else _long_text(value, job.model),
        layout=None if value is None else held[value],
        command=None
        if value is None
        else command("fit", request.model_copy(update={"seq_len": value, "global_batch": job.global_batch})),
        at_end=value is not None and value + _SEQUENCE_STEPS[0] > end,
    )


def _long_text(length: int, model: ModelSpec) -> str:
    if length <= model.max_position_embeddings:
        return _("{count} tokens").format(count=f"{length:,}")
    return _("{count} tokens (the model itself was made for {most})").format(
        count=f"{length:,}", most=f"{model.max_position_embeddings:,}"
    )


def _learned_positions(model: ModelSpec) -> int:
    return next((int(block.options.get("position_embeddings", 0)) for block in model.prologue), 0)


def largest_model(request: FitRequest, resolved: Resolved, searches: Searches) -> Limit | None:
    """The largest model of the same family in the catalog that fits the cluster; None for a family of its own."""
    own = resolved.job.model
    # One that was made for shorter sequences than this model is no answer for long ones.
    reach = min(resolved.job.seq_len, own.max_position_embeddings)
    family = [
        model
        for name in catalog.names("model")
        if (model := catalog.model(name)).family == own.family and model.max_position_embeddings >= reach
    ]
    family.sort(key=lambda model: (parameter_count(model), model.name == own.name), reverse=True)
    if len(family) < 2:
        return None
    for model in family:
        searches.count()
        length = min(resolved.job.seq_len, _learned_positions(model) or resolved.job.seq_len)
        job = resolved.job.model_copy(update={"model": model, "seq_len": length})
        # A layout pinned for one model seldom suits another: the whole space is looked through.
        if (found := searches.holder(job, resolved.cluster, {})) is not None:
            again = request.model_copy(
                update={"model": model.name, "seq_len": length, "global_batch": job.global_batch}
            )
            return Limit(
                name="largest_model",
                value=parameter_count(model),
                text=_("{model} ({count} parameters)").format(
                    model=model.name, count=format_count(parameter_count(model))
                ),
                layout=found,
                command=command("fit", again),
                at_end=model is family[0],
            )
    return Limit(name="largest_model", value=None, text="", layout=None, command=None)


def fewest_gpus(request: FitRequest, resolved: Resolved, searches: Searches) -> Limit:
    """The fewest GPUs of this kind that hold the job: even parts of a node, then whole nodes."""
    held: dict[int, tuple[Resolved, Layout]] = {}

    def holds(n_gpus: int) -> bool | None:
        searches.count()
        place = sized(request, resolved, n_gpus)
        found = searches.holder(place.job, place.cluster, searches.fix)
        if found is not None:
            held[n_gpus] = (place, found)
            return True
        # A count over which the batch cannot be shared says nothing about memory.
        return False if searches.legal_layouts(place.job, place.cluster) else None

    possible = counts(resolved.cluster)
    value = first(possible, holds)
    if value is None:
        return Limit(name="fewest_gpus", value=None, text="", layout=None, command=None, at_end=True)
    place, layout = held[value]
    return Limit(
        name="fewest_gpus",
        value=value,
        text=place.cluster.text,
        layout=layout,
        command=command_at("plan", request, place.cluster, place.job, max_memory=request.max_memory),
        at_end=value == possible[0],
    )


def _report(
    request: FitRequest,
    resolved: Resolved,
    outcome: Outcome,
    micro_batches: Sequence[MicroBatch],
    limits: Sequence[Limit],
    searches: Searches,
) -> FitReport:
    best = outcome.best
    assumed = resolved.assumed
    if best is not None:
        assumed = sensitivities(assumed, Case(resolved.job, resolved.cluster, best.layout), resolved.constants)
    model, cluster, job = describe(resolved.job, resolved.cluster)
    fewest = next((each for each in limits if each.name == "fewest_gpus" and each.command), None)
    following = command("plan", request, fix=request.layout, max_memory=request.max_memory)
    if best is None and fewest is not None and fewest.command is not None:
        following = fewest.command
    return FitReport(
        verdict=_verdict(resolved, outcome, micro_batches, interrupted=searches.interrupted),
        model=model,
        cluster=cluster,
        job=job,
        fits="no" if best is None else best.memory.fits,
        fastest=best,
        least_memory=outcome.least,
        misses_bytes=outcome.misses_bytes,
        why_none=outcome.why_none(),
        micro_batches=tuple(micro_batches),
        limits=tuple(limits),
        assumed=assumed,
        searched=searches.searched,
        elapsed_s=searches.elapsed_s,
        interrupted=searches.interrupted,
        next_command=following,
    )


def _verdict(resolved: Resolved, outcome: Outcome, micro_batches: Sequence[MicroBatch], *, interrupted: bool) -> str:
    job, best = resolved.job, outcome.best
    names: dict[str, Any] = {
        "model": job.model.name,
        "length": f"{job.seq_len:,}",
        "cluster": resolved.cluster.text,
    }
    if best is None:
        if interrupted:
            return _("{model} on {cluster}: nothing that fits was found yet.").format(**names)
        if outcome.least is None and outcome.rule is not None:
            return _("No: for {model} with sequences of {length} on {cluster} {why}.").format(
                **names, why=outcome.why_none()
            )
        return _("No: {model} with sequences of {length} does not fit on {cluster}; it {why}.").format(
            **names, why=outcome.why_none() or _("has no layout")
        )
    spare = best.memory.capacity_bytes - best.memory.peak_reserved_bytes
    if best.memory.fits == "tight":
        text = _(
            "Only tightly: {model} with sequences of {length} trains on {cluster}, but may run out of memory by "
            "fragmentation (reserved peak {reserved} of {capacity})."
        )
    else:
        text = _("Yes: {model} with sequences of {length} trains on {cluster}, with {spare} a GPU to spare.")
    sentence = text.format(
        **names,
        spare=format_bytes(spare),
        reserved=format_bytes(best.memory.peak_reserved_bytes),
        capacity=format_bytes(best.memory.capacity_bytes),
    )
    sizes = [each.largest_micro_batch or 0 for each in micro_batches]
    largest = max(sizes, default=0)
    if largest > (sizes[0] if sizes else 0):
        sentence += " " + _("The largest micro-batch is {first} with the fastest layout, {most} with {layout}.").format(
            first=sizes[0], most=largest, layout=_degrees(micro_batches[sizes.index(largest)].layout)
        )
    elif largest:
        sentence += " " + _("The largest micro-batch is {first}, with the fastest layout.").format(first=largest)
    return sentence


def _degrees(layout: Layout) -> str:
    """The layout without its micro-batch."""
    return ",".join(part for part in layout_text(layout).split(",") if not part.startswith("micro_batch="))
