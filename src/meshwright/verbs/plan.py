"""``plan``: the fastest layouts of a job on a cluster, why the others lose, and what to do where nothing fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.costmodel import evaluate
from meshwright.costmodel.energy import mean_power_w
from meshwright.costmodel.money import cost_usd
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.plan.change import Case, apply_all
from meshwright.plan.pareto import OBJECTIVES, tradeoffs
from meshwright.plan.placement import placement
from meshwright.plan.remedies import Remedy, larger_clusters, plain_best, space_remedies
from meshwright.plan.search import Found, budget_bytes, search
from meshwright.plan.sensitivity import bought, runners_up, sensitivities
from meshwright.plan.space import WIDER, Choices
from meshwright.specs.estimate import Estimate
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout
from meshwright.specs.plan import Change, Condition, Plan, Tradeoff
from meshwright.specs.price import Price
from meshwright.specs.report import Progress
from meshwright.specs.request import PlanRequest
from meshwright.units import format_bytes
from meshwright.verbs.command import change_texts, command, layout_text, written
from meshwright.verbs.document import check_writable, describe, render, rule_text, write_whole
from meshwright.verbs.resolve import (
    Resolved,
    at_least_one,
    layout_values,
    nearest_batch,
    positive_quantity,
    resolve,
    with_site,
)
from meshwright.verbs.searches import memory_limit
from meshwright.verbs.timelines import write_timeline
from meshwright.verbs.totals import longest_step_s, moved_totals, needs, price_of, totals

#: A limit that was worked back into a step time is kept but for rounding.
_ROUNDING = 1.0 + 1e-6
#: Larger clusters that are tried where a deadline is missed.
_LARGER_TRIED = 8


@dataclass(frozen=True, slots=True)
class _Wish:
    """What is wanted beside a layout that fits: the limits in SI units, None where there is none."""

    fix: dict[str, Any]
    max_memory_bytes: float | None
    objective: str
    deadline_s: float | None
    budget_usd: float | None
    price: Price | None


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
    resolved = with_site(resolve(request))
    price, assumed_price = price_of(request.price, resolved.cluster)
    resolved = resolved.assuming(assumed_price)
    wish = _wish(request, resolved, price)
    _require_batch_divides(resolved, wish.fix)
    found = search(
        resolved.job,
        resolved.cluster,
        resolved.constants,
        fix=wish.fix,
        max_memory_bytes=wish.max_memory_bytes,
        objective=wish.objective,
        max_step_time_s=_longest_step_s(wish, resolved),
        top=top,
        choices=_choices(request.also),
        on_progress=on_progress,
    )
    answer = _plan(request, resolved, found, wish)
    # An interrupted search that scored nothing says nothing: an older plan in that file is worth more.
    if request.out is not None and (answer.layouts or not answer.interrupted):
        write_whole(request.out, render("plan", answer))
    if timeline is not None and answer.layouts:
        chosen = answer.layouts[answer.chosen]
        write_timeline(Case(resolved.job, resolved.cluster, chosen.layout), resolved.constants, chosen, timeline)
    return answer


def _choices(also: str | None) -> Choices:
    """What is searched, widened by ``--also``. Raises InputError MW-E404 for an unknown word."""
    words = [word.strip() for word in (also or "").split(",") if word.strip()]
    for word in words:
        if word != "all" and word not in WIDER:
            raise InputError(
                "MW-E404",
                _("{name} '{value}' is not modelled.").format(name="also", value=word),
                where="--also",
                nearest=did_you_mean(word, (*WIDER, "all")),
            )
    return Choices().widened(WIDER if "all" in words else words)


def _wish(request: PlanRequest, resolved: Resolved, price: Price | None) -> _Wish:
    """The limits of a request. Raises InputError MW-E440 (no tokens), MW-E441 (no price), MW-E404 (objective)."""
    objective = (request.objective or "time").strip().casefold()
    if objective not in OBJECTIVES:
        raise InputError(
            "MW-E404",
            _("{name} '{value}' is not modelled.").format(name="objective", value=request.objective),
            where="--objective",
            nearest=did_you_mean(objective, OBJECTIVES),
        )
    deadline_s = None if request.deadline is None else positive_quantity(request.deadline, "s", "--deadline")
    budget_usd = None if request.budget is None else positive_quantity(request.budget, "usd", "--budget")
    for flag, limit in (("--deadline", deadline_s), ("--budget", budget_usd)):
        if limit is not None and resolved.job.tokens is None:
            raise InputError(
                "MW-E440",
                _("it is about a whole training, and no tokens were given."),
                where=flag,
                nearest=_("Add --tokens, such as 1.4T."),
            )
    if budget_usd is not None and price is None:
        raise InputError(
            "MW-E441",
            _("the catalog has no price of {gpu}.").format(gpu=resolved.cluster.gpu.name),
            where="--budget",
            nearest=_("Say it: --price '2.5 USD/GPUh'."),
        )
    return _Wish(
        layout_values(request.fix, where="--fix") if request.fix else {},
        memory_limit(request.max_memory),
        objective,
        deadline_s,
        budget_usd,
        price,
    )


def _longest_step_s(wish: _Wish, resolved: Resolved) -> float:
    """The step time beyond which the deadline or the budget is missed; infinite without them."""
    limits_s = [] if wish.deadline_s is None else [wish.deadline_s]
    if wish.budget_usd is not None and wish.price is not None:
        usd_per_s = resolved.cluster.n_gpus * wish.price.usd_per_gpu_hour / 3600.0
        limits_s.append(wish.budget_usd / usd_per_s if usd_per_s else float("inf"))
    finite = [limit_s for limit_s in limits_s if limit_s < float("inf")]
    return longest_step_s(resolved.job, resolved.cluster, min(finite)) if finite else float("inf")


def _require_batch_divides(resolved: Resolved, fix: dict[str, Any]) -> None:
    """What is fixed must leave a batch that can be shared: no memory is needed to know that it does not."""
    share = int(fix.get("dp", 1)) * int(fix.get("micro_batch", 1))
    if resolved.job.global_batch % share:
        raise InputError(
            "MW-E407",
            _("what is fixed breaks the rule {rule}: {text}.").format(
                rule="batch_divides", text=rule_text("batch_divides")
            ),
            where="--fix",
            nearest=_("Or take --global-batch {batch}.").format(batch=nearest_batch(resolved.job.global_batch, share)),
        )


def _plan(request: PlanRequest, resolved: Resolved, found: Found, wish: _Wish) -> Plan:
    layouts = _rows(resolved, found, found.best.row)
    feasible = bool(layouts)
    model, cluster, job = describe(resolved.job, resolved.cluster)
    remedies: tuple[dict[str, Any], ...] = ()
    assumed = resolved.assumed
    more: dict[str, Any] = {}
    next_command = _next_command(request, layouts)
    if feasible:
        case = Case(resolved.job, resolved.cluster, layouts[0].layout)
        assumed = moved_totals(sensitivities(assumed, case, resolved.constants), case, layouts[0], resolved.constants)
        more = totals(resolved.job, resolved.cluster, layouts[0], resolved.constants, wish.price)
        more["buys"] = bought(case, resolved.constants)
        more["conditions"] = _conditions(resolved, wish, more)
        more["placement"] = placement(resolved.cluster, layouts[0].layout) if request.placement else None
    elif not found.interrupted:
        found_remedies = space_remedies(
            resolved.job,
            resolved.cluster,
            resolved.constants,
            fix=wish.fix,
            max_memory_bytes=wish.max_memory_bytes,
        )
        remedies = tuple(_remedy_document(remedy, resolved, wish) for remedy in found_remedies)
        if found_remedies:
            next_command = _remedied_command(request, found_remedies[0].changes)
    time_s, interval_s = training_time_s(resolved.job, layouts[0]) if feasible else (None, None)
    return Plan(
        **more,
        model=model,
        cluster=cluster,
        job=job,
        layouts=layouts,
        chosen=0,
        feasible=feasible,
        searched=found.searched,
        rejected=found.rejected,
        pareto=_pareto(resolved, found, wish.price),
        runners_up=runners_up(layouts, 0) if feasible else (),
        assumed=assumed,
        time_to_train_s=time_s,
        time_to_train_interval_s=interval_s,
        needs=needs(resolved.job, resolved.cluster, resolved.constants, layouts[0] if layouts else None),
        remedies=remedies,
        objective=wish.objective,
        nearest=None if feasible else _nearest(resolved, found, wish.max_memory_bytes),
        tight_faster=_tight_faster(resolved, found),
        next_command=next_command,
        elapsed_s=found.elapsed_s,
        first_incumbent_s=found.first_incumbent_s,
        interrupted=found.interrupted,
    )


def _conditions(resolved: Resolved, wish: _Wish, reached: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Deadline and budget, each with whether the chosen layout keeps it in the median."""
    found = []
    if wish.deadline_s is not None:
        time_s = reached["time_to_train_with_failures_s"]["p50"]
        met = time_s <= wish.deadline_s * _ROUNDING
        remedy = None if met else _soon_enough(resolved, wish, time_s)
        found.append(Condition(name="deadline", limit=wish.deadline_s, value=time_s, met=met, remedy=remedy))
    if wish.budget_usd is not None:
        cost_usd = reached["cost_usd"]
        met = cost_usd <= wish.budget_usd * _ROUNDING
        found.append(Condition(name="budget", limit=wish.budget_usd, value=cost_usd, met=met))
    return tuple(found)


def _soon_enough(resolved: Resolved, wish: _Wish, time_s: float) -> Change | None:
    """The smallest larger cluster that keeps the deadline, by its fastest plain layout; None where none does."""
    assert wish.deadline_s is not None
    case = Case(resolved.job, resolved.cluster, Layout())
    # More GPUs are never better than in proportion, so smaller clusters need no look.
    least = resolved.cluster.n_gpus * time_s / wish.deadline_s
    tried = 0
    for changes in larger_clusters(resolved.cluster):
        cluster = apply_all(changes, case).cluster
        if cluster.n_gpus < least or len(changes) > 1 or tried == _LARGER_TRIED:
            continue
        tried += 1
        best = plain_best(resolved.job, cluster, resolved.constants, wish.fix, wish.max_memory_bytes)
        if best is None:
            continue
        if best.step_time_s <= longest_step_s(resolved.job, cluster, wish.deadline_s):
            return changes[0]
    return None


def _remedy_document(remedy: Remedy, resolved: Resolved, wish: _Wish) -> dict[str, Any]:
    """A remedy with what it takes: GPUs, their price by the hour, and the whole training where tokens were given."""
    case = apply_all(remedy.changes, Case(resolved.job, resolved.cluster, Layout()))
    # A price that was said holds for the GPU that was said.
    same = case.cluster.gpu.name == resolved.cluster.gpu.name
    price = wish.price if same else price_of(None, case.cluster)[0]
    whole = totals(case.job, case.cluster, remedy.estimate, resolved.constants, price)
    n_gpus = case.cluster.n_gpus
    return remedy.document(None) | {
        "n_gpus": n_gpus,
        "usd_per_hour": None if price is None else n_gpus * price.usd_per_gpu_hour,
        "time_to_train_with_failures_s": whole["time_to_train_with_failures_s"],
        "cost_usd": whole["cost_usd"],
    }


def _rows(resolved: Resolved, found: Found, rows: Any) -> tuple[Estimate, ...]:
    if not len(rows):
        return ()
    batch = found.space.at(rows)
    estimates = evaluate(resolved.job, resolved.cluster, batch, resolved.constants)
    return tuple(estimates.row(i, batch.row(i)) for i in range(len(batch)))


def _pareto(resolved: Resolved, found: Found, price: Price | None) -> tuple[Tradeoff, ...]:
    """The front of time and memory, and what draws less energy among the fastest few hundred."""
    job, cluster, constants = resolved.job, resolved.cluster, resolved.constants
    rows = found.pareto.join(found.kept).row
    if not len(rows):
        return ()
    batch = found.space.at(rows)
    estimates = evaluate(job, cluster, batch, constants)
    time_s = estimates.step_time_s
    energy_j = time_s * mean_power_w(estimates.breakdown_s, time_s, cluster, cluster.site.pue or 1.0, constants)
    rate = None if price is None else price.usd_per_gpu_hour
    return tuple(
        Tradeoff(
            **dict(estimates.row(i, batch.row(i))),
            step_energy_j=float(energy_j[i]),
            step_cost_usd=None if rate is None else cost_usd(cluster.n_gpus, float(time_s[i]), rate),
        )
        for i in tradeoffs(time_s, estimates.peak_reserved_bytes, energy_j).tolist()
    )


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


def _nearest(resolved: Resolved, found: Found, limit: float | None) -> dict[str, Any] | None:
    if found.nearest_row is None:
        rule = max(found.rejected, key=lambda name: found.rejected[name], default=None)
        return (
            None
            if rule is None
            else {
                "rule": rule,
                "what": _("every layout breaks a rule, most often {rule}: {text}").format(
                    rule=rule, text=rule_text(rule)
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
    return command("plan", request, **_asked(request))


def _asked(request: PlanRequest) -> dict[str, Any]:
    """What a plan may be asked for beside the job, as flags."""
    return {
        name: getattr(request, name)
        for name in ("fix", "max_memory", "objective", "deadline", "budget", "price", "also")
    }


def _remedied_command(request: PlanRequest, changes: Iterable[Change]) -> str:
    """The same plan with the first remedy: what was fixed and frees the way is left out, the rest is set."""
    layout = {change.path.removeprefix("layout."): change for change in changes if change.path.startswith("layout.")}
    parts = [part.strip() for part in (request.fix or "").split(",") if part.strip()]
    fixed = {part.partition("=")[0].strip() for part in parts}
    kept = [part for part in parts if part.partition("=")[0].strip() not in layout]
    kept += [f"{name}={written(change.value)}" for name, change in layout.items() if name not in fixed]
    sets = change_texts(change for change in changes if not change.path.startswith("layout."))
    return command("plan", request, **_asked(request) | {"fix": ",".join(kept) or None}, set=sets)
