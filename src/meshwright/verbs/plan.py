"""``plan``: the fastest layouts of a job on a cluster, why the others lose, and what to do where nothing fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.costmodel import evaluate, rules
from meshwright.costmodel.optimizer import state_bytes_per_parameter
from meshwright.costmodel.parameters import parameter_count
from meshwright.errors import InputError
from meshwright.i18n import _
from meshwright.plan.change import Case
from meshwright.plan.remedies import space_remedies
from meshwright.plan.search import Found, budget_bytes, search
from meshwright.plan.sensitivity import runners_up, sensitivities
from meshwright.specs.estimate import Estimate
from meshwright.specs.job import TrainingJob
from meshwright.specs.plan import Plan
from meshwright.specs.report import Progress
from meshwright.specs.request import PlanRequest
from meshwright.units import format_bytes, parse_quantity
from meshwright.verbs.command import change_texts, command, layout_text
from meshwright.verbs.document import check_writable, describe, render, write_whole
from meshwright.verbs.resolve import Resolved, at_least_one, layout_values, nearest_batch, resolve
from meshwright.verbs.timelines import write_timeline

#: A checkpoint each half hour that stops training for at most a twentieth of the time (see the glossary).
_CHECKPOINT_EVERY_S = 1800.0
_CHECKPOINT_STALL_RATIO = 0.05


def plan(
    request: PlanRequest, on_progress: Callable[[Progress], None] | None = None, timeline: Path | None = None
) -> Plan:
    """Search every legal layout of the request's job on its cluster.

    ``on_progress`` is called after each chunk; ``timeline`` receives one step of the chosen layout for Perfetto.
    Ctrl-C returns the best so far with ``interrupted``. Raises InputError for what cannot be understood; a job that
    fits nowhere is an answer (``feasible`` False with ``nearest`` and ``remedies``), not an error.
    """
    top = at_least_one(request.top, "--top")
    check_writable(request.out)
    check_writable(timeline)
    resolved = resolve(request)
    fix = layout_values(request.fix, where="--fix") if request.fix else {}
    _require_batch_divides(resolved, fix)
    limit = None if request.max_memory is None else _max_memory(request.max_memory)
    found = search(
        resolved.job,
        resolved.cluster,
        resolved.constants,
        fix=fix,
        max_memory_bytes=limit,
        top=top,
        on_progress=on_progress,
    )
    answer = _plan(request, resolved, found, fix, limit)
    # An interrupted search that scored nothing says nothing: an older plan in that file is worth more.
    if request.out is not None and (answer.layouts or not answer.interrupted):
        write_whole(request.out, render("plan", answer))
    if timeline is not None and answer.layouts:
        chosen = answer.layouts[answer.chosen]
        write_timeline(Case(resolved.job, resolved.cluster, chosen.layout), resolved.constants, chosen, timeline)
    return answer


def _max_memory(text: str) -> float:
    limit = parse_quantity(text, "bytes", where="--max-memory")
    at_least_one(int(limit), "--max-memory")
    return limit


def _require_batch_divides(resolved: Resolved, fix: dict[str, Any]) -> None:
    """What is fixed must leave a batch that can be shared: no memory is needed to know that it does not."""
    share = int(fix.get("dp", 1)) * int(fix.get("micro_batch", 1))
    if resolved.job.global_batch % share:
        raise InputError(
            "MW-E407",
            _("what is fixed breaks the rule {rule}: {text}.").format(
                rule="batch_divides", text=_(rules()["batch_divides"])
            ),
            where="--fix",
            nearest=_("Or take --global-batch {batch}.").format(batch=nearest_batch(resolved.job.global_batch, share)),
        )


def _plan(request: PlanRequest, resolved: Resolved, found: Found, fix: dict[str, Any], limit: float | None) -> Plan:
    layouts = _rows(resolved, found, found.best.row)
    feasible = bool(layouts)
    model, cluster, job = describe(resolved.job, resolved.cluster)
    remedies: tuple[dict[str, Any], ...] = ()
    assumed = resolved.assumed
    next_command = _next_command(request, layouts)
    if feasible:
        case = Case(resolved.job, resolved.cluster, layouts[0].layout)
        assumed = sensitivities(assumed, case, resolved.constants)
    elif not found.interrupted:
        found_remedies = space_remedies(
            resolved.job, resolved.cluster, resolved.constants, fix=fix, max_memory_bytes=limit
        )
        remedies = tuple(remedy.document(None) for remedy in found_remedies)
        if found_remedies:
            next_command = _remedied_command(request, found_remedies[0].changes)
    time_s, interval_s = training_time_s(resolved.job, layouts[0]) if feasible else (None, None)
    return Plan(
        model=model,
        cluster=cluster,
        job=job,
        layouts=layouts,
        chosen=0,
        feasible=feasible,
        searched=found.searched,
        rejected=found.rejected,
        pareto=_rows(resolved, found, found.pareto.row),
        runners_up=runners_up(layouts, 0) if feasible else (),
        assumed=assumed,
        time_to_train_s=time_s,
        time_to_train_interval_s=interval_s,
        needs=needs(resolved, layouts[0] if layouts else None),
        remedies=remedies,
        nearest=None if feasible else _nearest(resolved, found, limit),
        tight_faster=_tight_faster(resolved, found),
        next_command=next_command,
        elapsed_s=found.elapsed_s,
        first_incumbent_s=found.first_incumbent_s,
        interrupted=found.interrupted,
    )


def _rows(resolved: Resolved, found: Found, rows: Any) -> tuple[Estimate, ...]:
    if not len(rows):
        return ()
    batch = found.space.at(rows)
    estimates = evaluate(resolved.job, resolved.cluster, batch, resolved.constants)
    return tuple(estimates.row(i, batch.row(i)) for i in range(len(batch)))


def _tight_faster(resolved: Resolved, found: Found) -> Estimate | None:
    if found.tight_row is None:
        return None
    estimate = _rows(resolved, found, np.array([found.tight_row]))[0]
    # Under --max-memory a layout may be tight for the limit and still have room on the GPU.
    return estimate if estimate.memory.fits == "tight" else None


def training_time_s(job: TrainingJob, estimate: Estimate) -> tuple[float | None, tuple[float, float] | None]:
    """Seconds for the job's tokens without failures, and the same at both ends of the step's interval."""
    if job.tokens is None:
        return None, None
    steps = job.tokens / job.tokens_per_step
    low_s, high_s = estimate.step_time_interval_s
    return steps * estimate.step_time_s, (steps * low_s, steps * high_s)


def needs(resolved: Resolved, estimate: Estimate | None) -> dict[str, float | None]:
    """What the run asks of its surroundings (see the glossary); None where no layout was found."""
    job, cluster = resolved.job, resolved.cluster
    checkpoint = parameter_count(job.model) * (job.element_bytes + state_bytes_per_parameter(job).optimizer)
    return {
        "checkpoint_bytes": checkpoint,
        "checkpoint_bytes_per_s": checkpoint / (_CHECKPOINT_EVERY_S * _CHECKPOINT_STALL_RATIO),
        "loader_tokens_per_s": None if estimate is None else job.tokens_per_step / estimate.step_time_s,
        "host_bytes": None if estimate is None else estimate.memory.host_bytes,
        "power_w": cluster.n_gpus * cluster.gpu.tdp_w,
    }


def _nearest(resolved: Resolved, found: Found, limit: float | None) -> dict[str, Any] | None:
    if found.nearest_row is None:
        rule = max(found.rejected, key=lambda name: found.rejected[name], default=None)
        return (
            None
            if rule is None
            else {
                "rule": rule,
                "what": _("every layout breaks a rule, most often {rule}: {text}").format(
                    rule=rule, text=_(rules()[rule])
                ),
            }
        )
    budget = budget_bytes(resolved.cluster, resolved.constants, limit)
    layout = _rows(resolved, found, [found.nearest_row])[0].layout
    misses = found.nearest_peak_bytes - budget
    return {
        "layout": layout.model_dump(),
        "peak_allocated_bytes": found.nearest_peak_bytes,
        "budget_bytes": budget,
        "misses_bytes": misses,
        "what": _("{layout} comes nearest and misses by {missing} a GPU").format(
            layout=layout_text(layout), missing=format_bytes(misses)
        ),
    }


def _next_command(request: PlanRequest, layouts: tuple[Estimate, ...]) -> str:
    if request.out is not None and layouts:
        return command("explain", PlanRequest(model=str(request.out))) + " step_time_s"
    if layouts:
        return command("estimate", request, layout=layout_text(layouts[0].layout))
    return command("plan", request, fix=request.fix, max_memory=request.max_memory)


def _remedied_command(request: PlanRequest, changes: Any) -> str:
    """The same plan with the first remedy: what was fixed and frees the way is left out, the rest is set."""
    freed = {change.path.removeprefix("layout.") for change in changes if change.path.startswith("layout.")}
    kept = [part for part in (request.fix or "").split(",") if part and part.partition("=")[0].strip() not in freed]
    sets = change_texts(change for change in changes if not change.path.startswith("layout."))
    return command("plan", request, fix=",".join(kept) or None, max_memory=request.max_memory, set=sets)
