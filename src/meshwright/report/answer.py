"""The report of an answer: which sections it has, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from meshwright.cli import numbers
from meshwright.cli.verdict import name_of, not_validated, sentence, tight_faster, training
from meshwright.costmodel import rules
from meshwright.i18n import _
from meshwright.report import sections
from meshwright.report.html import Html
from meshwright.report.page import page, write
from meshwright.specs.estimate import Estimate
from meshwright.specs.plan import Plan
from meshwright.specs.report import EstimateReport
from meshwright.verbs.document import document
from meshwright.verbs.report import drawn, shown_estimate


def write_report(answer: Plan | EstimateReport, path: Path, *, scaling: Mapping[int, Estimate] | None = None) -> None:
    """Write the report of ``answer`` to ``path``, whole or not at all.

    ``scaling`` holds the best layout's estimate at other numbers of GPUs, ascending; with it comes a scaling curve.
    Raises InputError MW-E411 (a directory) or MW-E416 (cannot be written).
    """
    write(path, report(answer, scaling=scaling))


def report(answer: Plan | EstimateReport, *, scaling: Mapping[int, Estimate] | None = None) -> Html:
    """The whole page of a plan (with layouts, interrupted, or where nothing fits) or of an estimate."""
    kind = "plan" if isinstance(answer, Plan) else "estimate"
    fields = document(kind, answer)
    estimate, shown = shown_estimate(answer), drawn(answer)
    title = _("{model} on {cluster}").format(model=name_of(answer.model), cluster=name_of(answer.cluster))
    layout = shown.layout if shown is not None else None
    nearest = answer.nearest if isinstance(answer, Plan) else None
    verdict, more = _verdict(answer, estimate)
    kicker = _("Meshwright plan: {title}") if kind == "plan" else _("Meshwright estimate: {title}")
    body: list[Html | None] = [
        sections.opening(kicker.format(title=title), verdict, *more),
        None if estimate is None else sections.key_figures(estimate, fields),
        sections.missing(nearest) if estimate is None and nearest else None,
        sections.asked(answer.model, answer.cluster, answer.job, layout, fits=estimate is not None),
    ]
    if estimate is None or estimate.memory.fits != "yes":
        body.append(sections.remedies(answer.remedies))
    if estimate is not None:
        body.append(sections.breakdown(estimate))
    if shown is not None:
        capacity_bytes = _capacity_bytes(answer, estimate)
        body.append(sections.memory(shown, capacity_bytes, estimate))
        if shown.timeline is not None:
            body.append(sections.timeline(shown.timeline))
    if isinstance(answer, Plan) and estimate is not None:
        body += [_candidates(answer, estimate), sections.pareto(answer.pareto, estimate)]
    if scaling and len(scaling) > 1:
        body.append(sections.scaling(list(scaling), list(scaling.values())))
    body.append(sections.assumed(answer.assumed))
    if isinstance(answer, Plan):
        texts = {rule: _(text) for rule, text in rules().items()}
        texts["memory"] = _("the peak must fit what a GPU may fill")
        body += [sections.needs(answer.needs), sections.rejected(answer.rejected, texts)]
    body.append(sections.next_command(answer.next_command))
    return page(title, body)


def _verdict(answer: Plan | EstimateReport, estimate: Estimate | None) -> tuple[str, list[str | None]]:
    """The sentence that answers, and those below it."""
    model, cluster = name_of(answer.model), name_of(answer.cluster)
    if isinstance(answer, Plan) and answer.interrupted and estimate is None:
        return _("Interrupted: nothing that fits was scored yet."), []
    if estimate is None:
        nearest = answer.nearest if isinstance(answer, Plan) else None
        missed = _("{sentence}.").format(sentence=nearest["what"]) if nearest else None
        return _("No layout of {model} fits on {cluster}.").format(model=model, cluster=cluster), [missed]
    stopped = None
    interval_s = None
    if isinstance(answer, Plan):
        interval_s = answer.time_to_train_interval_s
        if answer.interrupted:
            stopped = _("Interrupted: the best of what was searched so far.")
    tokens = answer.job.get("tokens")
    days = None
    if answer.time_to_train_s is not None and tokens:
        days = training(float(tokens), answer.time_to_train_s, interval_s, answer)
    return sentence(model, cluster, estimate), [stopped, not_validated(estimate), days]


def _capacity_bytes(answer: Plan | EstimateReport, estimate: Estimate | None) -> float:
    if estimate is not None:
        return estimate.memory.capacity_bytes
    assert isinstance(answer, Plan)
    assert answer.nearest is not None
    return float(answer.nearest["budget_bytes"])


def _candidates(answer: Plan, estimate: Estimate) -> Html:
    searched = _("The best of {searched:,} layouts scored in {elapsed} s.").format(
        searched=answer.searched, elapsed=numbers.digits(answer.elapsed_s, 2)
    )
    tight = None if answer.tight_faster is None else tight_faster(estimate, answer.tight_faster)
    return sections.candidates(answer.layouts, answer.chosen, answer.runners_up, searched, tight)
