"""``explain --why-not``: which rule, which bytes or which seconds lost a layout against the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from meshwright.errors import InputError
from meshwright.i18n import _
from meshwright.plan.remedies import space_remedies
from meshwright.plan.sensitivity import runners_up
from meshwright.specs.constants import Constants
from meshwright.specs.estimate import Estimate
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout
from meshwright.specs.plan import Change
from meshwright.specs.report import Progress
from meshwright.specs.request import JobRequest, WhyNotRequest
from meshwright.specs.why_not import WhyNot
from meshwright.units import format_bytes, format_seconds
from meshwright.verbs.command import change_texts, command, layout_text, written
from meshwright.verbs.document import pick, rule_text
from meshwright.verbs.resolve import constants, layout_values, resolve
from meshwright.verbs.searches import Searches

#: Rule -> what its sentence speaks of; a rule that is not here shows the whole list of ``_facts``.
_SPOKEN_OF: Mapping[str, tuple[str, ...]] = {
    "gpus_match": ("n_gpus",),
    "batch_divides": ("global_batch", "n_gpus"),
    "split_fits": ("num_hidden_layers",),
    "schedule_fits": ("num_hidden_layers", "global_batch"),
    "tp_divides_heads": ("num_attention_heads",),
    "tp_divides_kv_heads": ("num_key_value_heads",),
    "tp_divides_intermediate": ("intermediate_size",),
    "tp_fits_nodes": ("gpus_per_node",),
    "sp_divides_sequence": ("seq_len",),
    "sp_needs_tp": (),
    "schedule_known": (),
    "rank_order_known": (),
}
#: The terms of the loss that the sentence names.
_NAMED_TERMS = 2
#: A term below this share of the largest is not named.
_TELLING_SHARE = 0.1


class _Case(NamedTuple):
    job: TrainingJob
    cluster: Cluster
    constants: Constants
    chosen: Estimate | None


def why_not(request: WhyNotRequest, on_progress: Callable[[Progress], None] | None = None) -> WhyNot:
    """Compare the best layout that agrees with ``request.layout`` with the chosen one.

    The chosen one is layout ``pick`` of the plan file, or the fastest that a search of the request's job finds.
    Ctrl-C (KeyboardInterrupt out of ``on_progress``) answers with what was seen so far, ``interrupted``. Raises
    InputError as reading plans, resolving and parsing layouts do, and MW-E408 for an empty layout.
    """
    asked = layout_values(request.layout, where="--why-not")
    if not asked:
        raise InputError(
            "MW-E408",
            _("no layout was given."),
            where="--why-not",
            nearest=_("Write it like '{example}'.").format(example="tp=2,pp=4"),
        )
    searches = Searches(constants(), asked, None, on_progress, expected=2)
    case = _from_plan(request.plan, request.pick) if request.plan is not None else _from_job(request, searches)
    outcome = searches.run(case.job, case.cluster)
    target = str(request.plan) if request.plan is not None else str(request.model)
    fields: dict[str, Any] = {
        "target": target,
        "asked": asked,
        "chosen": case.chosen,
        "other": outcome.best or outcome.least,
        "searched": searches.searched,
        "interrupted": searches.interrupted,
    }
    if outcome.best is not None:
        return WhyNot(**fields, **_against(request, case, outcome.best))
    if outcome.least is not None and outcome.misses_bytes is not None:
        return WhyNot(**fields, **_too_large(request, case, asked, outcome.least, outcome.misses_bytes))
    return WhyNot(**fields, **_illegal(request, case, asked, outcome.rule))


def _from_plan(path: Path, number: int) -> _Case:
    picked = pick(path, number)
    chosen = Estimate.model_validate({name: picked.estimate[name] for name in Estimate.model_fields})
    return _Case(picked.job, picked.cluster, constants(), chosen)


def _from_job(request: WhyNotRequest, searches: Searches) -> _Case:
    resolved = resolve(request)
    chosen = Searches(searches.constants, {}, None, searches.on_progress).run(resolved.job, resolved.cluster)
    return _Case(resolved.job, resolved.cluster, resolved.constants, chosen.best)


def _against(request: WhyNotRequest, case: _Case, other: Estimate) -> dict[str, Any]:
    """What the best layout that agrees loses by, or that it does not lose."""
    variant = layout_text(other.layout)
    if case.chosen is None:
        sentence = _("Nothing was chosen, and {layout} fits: {step} a step.").format(
            layout=variant, step=format_seconds(other.step_time_s)
        )
        return {"outcome": "faster", "sentence": sentence, "next_command": _estimate(request, other.layout)}
    if other.layout == case.chosen.layout:
        sentence = _("It is the chosen one: {layout} takes {step} a step.").format(
            layout=variant, step=format_seconds(other.step_time_s)
        )
        return {"outcome": "chosen", "sentence": sentence, "next_command": _explain_step(request, other.layout)}
    loss = runners_up((case.chosen, other), 0)[0]
    found: dict[str, Any] = {
        "slower_ratio": loss.slower_ratio,
        "terms_s": loss.terms_s,
        "next_command": _estimate(request, other.layout),
    }
    names = {
        "layout": variant,
        "step": format_seconds(other.step_time_s),
        "chosen": format_seconds(case.chosen.step_time_s),
        "change": f"{100 * (loss.slower_ratio - 1):+.1f}",
        "terms": ", ".join(
            f"{term} {'+' if value_s > 0 else '-'}{format_seconds(abs(value_s))}"
            for term, value_s in _telling(loss.terms_s, losing=loss.slower_ratio >= 1)
        ),
    }
    if loss.slower_ratio < 1:
        text = _("It is not slower: {layout} takes {step} a step against {chosen} ({change}%): mostly {terms}.")
        return found | {"outcome": "faster", "sentence": text.format(**names)}
    text = _(
        "Slower: even its best variant ({layout}) takes {step} a step against {chosen}, {change}%: mostly {terms}."
    )
    if other.memory.fits == "tight":
        text = _(
            "Slower, and only tightly in memory: its best variant ({layout}) takes {step} a step against {chosen}, "
            "{change}%: mostly {terms}."
        )
    return found | {"outcome": "slower", "sentence": text.format(**names)}


def _telling(terms_s: Mapping[str, float], *, losing: bool) -> list[tuple[str, float]]:
    """The terms that decide: the largest losses, or the largest gains of a layout that wins."""
    ordered = sorted(terms_s.items(), key=lambda item: -item[1] if losing else item[1])
    least_s = _TELLING_SHARE * abs(ordered[0][1]) if ordered else 0.0
    return [item for item in ordered if (item[1] > 0) == losing and abs(item[1]) >= least_s][:_NAMED_TERMS]


def _too_large(
    request: WhyNotRequest, case: _Case, asked: Mapping[str, Any], least: Estimate, misses_bytes: float
) -> dict[str, Any]:
    largest = max(least.memory.by, key=lambda name: least.memory.by[name])
    remedies = space_remedies(case.job, case.cluster, case.constants, fix=asked)
    chosen_s = None if case.chosen is None else case.chosen.step_time_s
    sentence = _("Out of memory: even {layout} misses by {missing} a GPU; {largest} take {size} of its {peak}.").format(
        layout=layout_text(least.layout),
        missing=format_bytes(misses_bytes),
        largest=largest,
        size=format_bytes(least.memory.by[largest]),
        peak=format_bytes(least.memory.peak_allocated_bytes),
    )
    return {
        "outcome": "memory",
        "sentence": sentence,
        "misses_bytes": misses_bytes,
        "largest_class": largest,
        "remedies": tuple(remedy.document(chosen_s) for remedy in remedies),
        "next_command": _estimate(request, least.layout),
    }


def _illegal(request: WhyNotRequest, case: _Case, asked: Mapping[str, Any], rule: str | None) -> dict[str, Any]:
    facts = _facts(case)
    spoken = _SPOKEN_OF.get(rule or "", tuple(facts))
    values = {name: facts[name] for name in spoken if name in facts}
    words = ", ".join(f"{name}={value:,}" for name, value in values.items())
    said = ", ".join(f"{name}={written(value)}" for name, value in asked.items())
    if rule is None:
        sentence = _("There is no layout with {layout} for this job.").format(layout=said)
    else:
        text = (
            _("Not legal: every layout with {layout} breaks a rule, most often {rule}: {text} ({values}).")
            if words
            else _("Not legal: every layout with {layout} breaks a rule, most often {rule}: {text}.")
        )
        sentence = text.format(layout=said, rule=rule, text=rule_text(rule), values=words)
    return {
        "outcome": "illegal",
        "sentence": sentence,
        "rule": rule,
        "rule_text": None if rule is None else rule_text(rule),
        "rule_values": values,
        "next_command": command("explain", JobRequest(model=rule)) if rule else command("plan", request),
    }


def _facts(case: _Case) -> dict[str, int]:
    """The sizes that rules speak of."""
    job, cluster = case.job, case.cluster
    facts = {
        "n_gpus": cluster.n_gpus,
        "gpus_per_node": cluster.gpus_per_node,
        "global_batch": job.global_batch,
        "seq_len": job.seq_len,
        "num_hidden_layers": job.model.n_layers,
    }
    blocks = [block for group in job.model.layers for block in group.blocks]
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        sizes = {int(block.options[name]) for block in blocks if name in block.options}
        if len(sizes) == 1:
            facts[name] = sizes.pop()
    return facts


def _estimate(request: WhyNotRequest, layout: Layout) -> str:
    """The command that shows this layout in full."""
    if request.plan is None:
        return command("estimate", request, layout=layout_text(layout))
    picked = pick(request.plan, request.pick)
    changed = [
        Change(path=f"layout.{name}", value=getattr(layout, name))
        for name in Layout.model_fields
        if getattr(layout, name) != getattr(picked.layout, name)
    ]
    number = None if request.pick == 1 else request.pick
    return command("estimate", JobRequest(), plan=request.plan, pick=number, set=change_texts(changed))


def _explain_step(request: WhyNotRequest, layout: Layout) -> str:
    if request.plan is None:
        return _estimate(request, layout)
    return command("explain", JobRequest(model=str(request.plan))) + " step_time_s"
