"""``estimate``: one layout; step time, memory, where the time goes, and what to change where it does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshwright.costmodel import evaluate
from meshwright.costmodel.schedule import schedules
from meshwright.errors import InputError
from meshwright.i18n import _
from meshwright.plan.change import Case, apply
from meshwright.plan.legality import broken_rules, nearest_legal
from meshwright.plan.remedies import Remedy, layout_remedies
from meshwright.plan.sensitivity import sensitivities
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch
from meshwright.specs.plan import Assumed, Change
from meshwright.specs.report import EstimateReport
from meshwright.specs.request import EstimateRequest, JobRequest
from meshwright.verbs.command import command, layout_text, written
from meshwright.verbs.document import check_writable, describe, pick, render, rule_text, write_whole
from meshwright.verbs.plan import training_time_s
from meshwright.verbs.resolve import (
    Resolved,
    check_runnable,
    constants,
    layout_values,
    nearest_batch,
    resolve,
    settable,
    still_assumed,
    with_site,
)
from meshwright.verbs.timelines import write_timeline
from meshwright.verbs.totals import moved_totals, price_of, totals

#: Paths whose change leaves another number of replicas.
_MOVES_DP = {"layout.tp", "layout.cp", "layout.pp", "cluster.n_nodes", "cluster.gpus_per_node"}
#: Request fields that a plan file already answers.
_SAID_BY_PLAN = tuple(name for name in JobRequest.model_fields if name != "set")


def estimate(request: EstimateRequest, timeline: Path | None = None) -> EstimateReport:
    """Predict one layout: that of ``request.layout``, or number ``pick`` of the plan file ``request.plan``.

    ``timeline`` receives one step of it for Perfetto.

    Raises InputError: MW-E408 no layout, MW-E406 the wrong number of GPUs, MW-E407 a rule broken (with the nearest
    legal layout), and those of resolving names and reading plans. One that does not fit is an answer with remedies.
    """
    check_writable(request.out)
    check_writable(timeline)
    resolved, layout = _from_plan(request) if request.plan is not None else _from_text(request)
    resolved = with_site(resolved)
    price, assumed_price = price_of(None, resolved.cluster)
    resolved = resolved.assuming(assumed_price)
    require_legal(resolved.job, resolved.cluster, layout)
    case = Case(resolved.job, resolved.cluster, layout)
    batch = evaluate(case.job, case.cluster, LayoutBatch.of([layout]), resolved.constants)
    result = batch.row(0, layout)
    remedies: tuple[Remedy, ...] = ()
    if result.memory.fits != "yes":
        remedies = layout_remedies(case, resolved.constants)
    model, place, job = describe(case.job, case.cluster)
    assumed = resolved.assumed
    if request.sensitivities:
        assumed = moved_totals(sensitivities(assumed, case, resolved.constants), case, result, resolved.constants)
    report = EstimateReport(
        **totals(case.job, case.cluster, result, resolved.constants, price),
        model=model,
        cluster=place,
        job=job,
        estimate=result,
        time_to_train_s=training_time_s(case.job, result)[0],
        assumed=assumed,
        remedies=tuple(remedy.document(result.step_time_s) for remedy in remedies),
        next_command=_next_command(request, remedies),
    )
    if request.out is not None:
        write_whole(request.out, render("estimate", report))
    if timeline is not None:
        write_timeline(case, resolved.constants, result, timeline)
    return report


def _from_plan(request: EstimateRequest) -> tuple[Resolved, Layout]:
    said = [name for name in _SAID_BY_PLAN if getattr(request, name) is not None]
    if request.layout is not None:
        said.append("layout")
    if said:
        raise InputError(
            "MW-E415",
            _("the plan file already says this."),
            where="MODEL" if said[0] == "model" else f"--{said[0].replace('_', '-')}",
            nearest=_("Use --set path=value to change something of the plan."),
        )
    assert request.plan is not None
    picked = pick(request.plan, request.pick)
    case = Case(picked.job, picked.cluster, picked.layout)
    assumed = picked.assumed
    changed: set[str] = set()
    for text in request.set:
        change = settable(text)
        case, assumed = apply(change, case), still_assumed(assumed, change)
        changed.add(change.path)
    check_runnable(case.job, case.cluster.gpu)
    if changed & _MOVES_DP and "layout.dp" not in changed:
        case = replace(case, layout=_with_dp(case.layout, case.cluster))
    return Resolved(case.job, case.cluster, constants(), assumed), case.layout


def _with_dp(layout: Layout, cluster: Cluster) -> Layout:
    """The layout with the dp that follows from the GPUs; a pair of tp and pp that leaves none breaks gpus_match."""
    return layout.model_copy(update={"dp": max(1, cluster.n_gpus // (layout.tp * layout.cp * layout.pp))})


def _from_text(request: EstimateRequest) -> tuple[Resolved, Layout]:
    resolved = resolve(request)
    if not request.layout or not request.layout.strip():
        raise InputError(
            "MW-E408",
            _("no layout was given."),
            where="--layout",
            nearest=_("Write it like '{example}', or let `mw plan` search.").format(example="tp=8,pp=4,micro_batch=1"),
        )
    values = layout_values(request.layout)
    layout = complete_layout(values, resolved.job, resolved.cluster, resolved.assumed)
    return resolved, layout


def complete_layout(values: dict[str, Any], job: TrainingJob, cluster: Cluster, assumed: dict[str, Assumed]) -> Layout:
    """The layout of ``values``; dp follows from the GPUs, a chunked pipeline is interleaved, the rest is assumed.

    What moves the answer and was not said is added to ``assumed``. Raises InputError (MW-E406) where tp x cp x pp
    leaves no whole dp or a given dp contradicts the number of GPUs.
    """
    values = dict(values)
    tp, cp, pp = (int(values.get(axis, 1)) for axis in ("tp", "cp", "pp"))
    if "dp" not in values:
        values["dp"] = max(1, cluster.n_gpus // (tp * cp * pp))
    if values.get("vpp", 1) > 1:
        values.setdefault("schedule", "interleaved")
    elif "vpp" not in values and _needs_chunks(values.get("schedule", "1f1b"), pp):
        values["vpp"] = 2
        assumed["vpp"] = Assumed(name="vpp", value=2, why=_("the fewest chunks that this schedule takes"))
    layout = Layout(**values)
    if layout.n_gpus != cluster.n_gpus:
        raise InputError(
            "MW-E406",
            _("dp={dp} x tp={tp} x cp={cp} x pp={pp} is {product} GPUs, the cluster has {n_gpus}.").format(
                dp=layout.dp, tp=tp, cp=cp, pp=pp, product=layout.n_gpus, n_gpus=cluster.n_gpus
            ),
            where="--layout",
            nearest=_nearest_degrees(layout, job, cluster),
        )
    alternatives: dict[str, Any] = {"micro_batch": 2, "recompute": "full"}
    if tp > 1:
        alternatives["sp"] = True
    if layout.dp > 1:
        alternatives["zero_stage"] = 0
    for name, other in alternatives.items():
        if name not in values:
            assumed[name] = Assumed(
                name=name,
                value=getattr(layout, name),
                why=_("not said in the layout"),
                alternative=Change(path=f"layout.{name}", value=other),
            )
    return layout


def _needs_chunks(schedule: str, pp: int) -> bool:
    """Whether a schedule runs on ``pp`` ranks with two chunks on each and not with one."""
    one, two = (bool(schedules()[schedule].legal(pp, vpp, 2 * pp)) for vpp in (1, 2))
    return two and not one


def _nearest_degrees(layout: Layout, job: TrainingJob, cluster: Cluster) -> str | None:
    """The nearest legal layout's degrees, and whatever else has to change with them; None if nothing near is legal."""
    near = nearest_legal(job, cluster, layout)
    if near is None:
        return None
    shown = [n for n in Layout.model_fields if n in ("dp", "tp", "pp") or getattr(layout, n) != getattr(near, n)]
    return _("The nearest is {layout}.").format(layout=",".join(f"{n}={written(getattr(near, n))}" for n in shown))


def require_legal(job: TrainingJob, cluster: Cluster, layout: Layout) -> None:
    """Raise InputError (MW-E407) with the first rule that ``layout`` breaks and the nearest layout that breaks none."""
    broken = broken_rules(job, cluster, layout)
    if not broken:
        return
    near = nearest_legal(job, cluster, layout)
    raise InputError(
        "MW-E407",
        _("the layout breaks the rule {rule}: {text}.").format(rule=broken[0], text=rule_text(broken[0])),
        where="--layout",
        nearest=" ".join(_nearest_texts(job, layout, near, broken[0])) or None,
    )


def _nearest_texts(job: TrainingJob, layout: Layout, near: Layout | None, rule: str) -> Iterator[str]:
    if near is not None:
        yield _nearest_text(layout, near)
    share = layout.dp * layout.micro_batch
    if rule == "batch_divides":
        yield _("Or take --global-batch {batch}.").format(batch=nearest_batch(job.global_batch, share))


def _nearest_text(layout: Layout, near: Layout) -> str:
    changed = [name for name in Layout.model_fields if getattr(layout, name) != getattr(near, name)]
    return _("The nearest is {layout}.").format(layout=",".join(f"{n}={written(getattr(near, n))}" for n in changed))


def _next_command(request: EstimateRequest, remedies: tuple[Remedy, ...]) -> str:
    if request.plan is not None:
        return command("explain", JobRequest(model=str(request.plan))) + " step_time_s"
    if remedies:
        return command("estimate", request, layout=layout_text(remedies[0].estimate.layout))
    return command("plan", request)
