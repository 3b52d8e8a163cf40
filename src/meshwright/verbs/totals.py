"""Totals: from the step of one layout to days with failures, money, energy, and what the rest must deliver."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meshwright import catalog
from meshwright.catalog.site_facts import SHOWN_BY
from meshwright.costmodel import energy
from meshwright.costmodel.adapters import trainable_parameters
from meshwright.costmodel.money import cost_usd
from meshwright.costmodel.optimizer import state_bytes_per_parameter
from meshwright.costmodel.parameters import counted_parts, parameter_count
from meshwright.costmodel.reliability import (
    Failures,
    checkpoint_write_s,
    mean_time_to_failure_s,
    time_with_failures_s,
)
from meshwright.errors import InputError
from meshwright.i18n import _
from meshwright.plan.change import Case, apply
from meshwright.specs.constants import Constants
from meshwright.specs.estimate import Estimate
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.plan import Assumed, Change, Totals
from meshwright.specs.price import Price

#: A checkpoint each half hour, or as often as failures ask for, may stop training for a twentieth of the time.
_CHECKPOINT_EVERY_S = 1800.0
_CHECKPOINT_STALL_RATIO = 0.05
_SHARES = (0.5, 0.9)
_WORK_BISECTIONS = 40


def checkpoint_bytes(job: TrainingJob) -> float:
    """Working weights and optimizer state, each once; of a LoRA job the adapters' alone."""
    per_parameter = job.element_bytes + state_bytes_per_parameter(job).optimizer
    if job.lora_rank:
        parts = counted_parts(job.model)
        return per_parameter * sum(number * trainable_parameters(job, members).total for number, members in parts)
    return parameter_count(job.model) * per_parameter


def failures_of(job: TrainingJob, cluster: Cluster) -> Failures:
    """What failures do to a job on all GPUs of ``cluster``, whose site is filled (``catalog.with_site``)."""
    site = cluster.site
    assert site.failures_per_1000_node_days is not None, "the site is filled"
    assert site.storage_bytes_per_s is not None, "the site is filled"
    assert site.restart_s is not None, "the site is filled"
    mttf_s = mean_time_to_failure_s(cluster.n_gpus, site.failures_per_1000_node_days)
    write_s = checkpoint_write_s(checkpoint_bytes(job), cluster.n_nodes, site.storage_bytes_per_s)
    return Failures.of(mttf_s, write_s, site.restart_s)


def totals(
    job: TrainingJob, cluster: Cluster, estimate: Estimate, constants: Constants, price: Price | None
) -> dict[str, Any]:
    """The fields of ``Totals`` for one layout; money and energy are those of the median time with failures."""
    terms = {name: np.array([value]) for name, value in estimate.breakdown_s.items()}
    step_s = estimate.step_time_s
    power_w = float(energy.mean_power_w(terms, np.array([step_s]), cluster, cluster.site.pue or 1.0, constants)[0])
    failures = failures_of(job, cluster)
    found = Totals(
        step_energy_j=power_w * step_s,
        mean_power_w=power_w,
        price=None if price is None else _price_document(price),
        failures={
            "mttf_s": failures.mttf_s,
            "checkpoint_interval_s": failures.interval_s,
            "checkpoint_write_s": failures.write_s,
            "restart_s": failures.restart_s,
            "effective_ratio": failures.effective_ratio,
            "count": None,
        },
    )
    fields = {name: getattr(found, name) for name in Totals.model_fields}
    if job.tokens is None:
        return fields
    work_s = job.tokens / job.tokens_per_step * step_s
    p50, p90 = (float(seconds) for seconds in time_with_failures_s(np.array([work_s]), failures, _SHARES)[0])
    return fields | {
        "time_to_train_with_failures_s": {"p50": p50, "p90": p90},
        "energy_j": power_w * p50,
        "cost_usd": None if price is None else cost_usd(cluster.n_gpus, p50, price.usd_per_gpu_hour),
        "failures": {**fields["failures"], "count": p50 / failures.mttf_s},
    }


def longest_step_s(job: TrainingJob, cluster: Cluster, time_s: float) -> float:
    """The step time with which the job is done in ``time_s`` in the median, failures counted."""
    assert job.tokens is not None, "there is a whole training"
    failures = failures_of(job, cluster)
    low_s, high_s = 0.0, time_s
    for _step in range(_WORK_BISECTIONS):
        middle_s = 0.5 * (low_s + high_s)
        fine = middle_s == 0.0 or time_with_failures_s(np.array([middle_s]), failures, (0.5,))[0, 0] <= time_s
        low_s, high_s = (middle_s, high_s) if fine else (low_s, middle_s)
    return low_s * job.tokens_per_step / job.tokens


def needs(
    job: TrainingJob, cluster: Cluster, constants: Constants, estimate: Estimate | None
) -> dict[str, float | None]:
    """What the run asks of its surroundings (see the glossary); None where no layout was found."""
    size_bytes = checkpoint_bytes(job)
    # Young's interval with writes of a share s of it: write = 2 s^2 x mean time to failure.
    soonest_s = 2.0 * _CHECKPOINT_STALL_RATIO**2 * failures_of(job, cluster).mttf_s
    return {
        "checkpoint_bytes": size_bytes,
        "checkpoint_bytes_per_s": size_bytes / min(_CHECKPOINT_EVERY_S * _CHECKPOINT_STALL_RATIO, soonest_s),
        "loader_tokens_per_s": None if estimate is None else job.tokens_per_step / estimate.step_time_s,
        "host_bytes": None if estimate is None else estimate.memory.host_bytes,
        "power_w": energy.peak_power_w(cluster, cluster.site.pue or 1.0, constants),
    }


def price_for(text: str, gpus: Sequence[str]) -> tuple[str | None, str]:
    """``text`` (``H100=2 USD/GPUh``) taken apart: the one of ``gpus`` that it is for (None: all), and the price.

    Raises InputError MW-E452 for a GPU that is none of them, MW-E201 for one that the catalog does not know.
    """
    name, equals, rate = text.partition("=")
    if not equals:
        return None, text
    gpu = catalog.gpu(name.strip(), where="--price").name
    if gpu not in gpus:
        raise InputError(
            "MW-E452",
            _("a price of {gpu} is said, and no cluster has it.").format(gpu=gpu),
            where="--price",
            nearest=_("Known: {names}.").format(names=", ".join(gpus)),
        )
    return gpu, rate


def price_of(text: str | None, cluster: Cluster) -> tuple[Price | None, Assumed | None]:
    """The price that was asked for, else the newest on-demand one of the GPU with what others would come to.

    No price is known of some GPUs. Raises InputError MW-E230 or MW-E110..MW-E113 for a text that is none, MW-E452 for
    a price of another GPU.
    """
    if text is not None:
        return catalog.price(price_for(text, (cluster.gpu.name,))[1], cluster.gpu.name), None
    known = catalog.prices(cluster.gpu.name)
    if not known:
        return None, None
    chosen = known[0]
    other = min(known, key=lambda each: each.usd_per_gpu_hour)
    if other is chosen:
        other = max(known, key=lambda each: each.usd_per_gpu_hour)
    assumed = Assumed(
        name="price",
        value=price_text(chosen),
        why=_("{name}; the other: {other}").format(name=_place(chosen), other=_place(other)),
        alternative=None if other is chosen else Change(path="price", value=price_text(other)),
        total="cost_usd",
        total_ratio=None if other is chosen else other.usd_per_gpu_hour / chosen.usd_per_gpu_hour,
    )
    return chosen, assumed


def _place(price: Price) -> str:
    return " ".join(filter(None, (price.provider, price.tier, price.region, price.date)))


def price_text(price: Price) -> str:
    """A rate as ``--price`` takes it."""
    return f"{price.usd_per_gpu_hour:.2f} USD/GPUh"


def _price_document(price: Price) -> dict[str, Any]:
    return {
        "usd_per_gpu_hour": price.usd_per_gpu_hour,
        **{name: getattr(price, name) for name in ("name", "provider", "tier", "region", "date")},
        "source": next((fact.source for fact in price.facts.values()), None),
    }


def moved_totals(
    assumed: Mapping[str, Assumed], case: Case, estimate: Estimate, constants: Constants
) -> dict[str, Assumed]:
    """The assumptions about the site with ``total_ratio``: the same layout with one of them changed at a time."""
    base = totals(case.job, case.cluster, estimate, constants, None)
    answered = dict(assumed)
    for name, number in SHOWN_BY.items():
        assumption = assumed.get(name)
        if assumption is None or assumption.alternative is None:
            continue
        changed = apply(assumption.alternative, case)
        other = totals(changed.job, changed.cluster, estimate, constants, None)
        # Without tokens there is no training; how its parts move is known all the same.
        if number == "energy_j":
            ratio = other["step_energy_j"] / base["step_energy_j"]
        elif base[number] is None:
            ratio = base["failures"]["effective_ratio"] / max(other["failures"]["effective_ratio"], 1e-300)
        else:
            ratio = other[number]["p50"] / base[number]["p50"]
        finite = ratio if math.isfinite(ratio) else None
        answered[name] = assumption.model_copy(update={"total_ratio": finite})
    return answered
