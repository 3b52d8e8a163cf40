"""Points: one job on one size of a cluster, with what the whole training takes and costs there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from meshwright import catalog
from meshwright.costmodel.reliability import time_with_failures_s
from meshwright.plan.resize import resized
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.plan import Assumed
from meshwright.specs.price import Price
from meshwright.specs.request import JobRequest
from meshwright.specs.scale import Point
from meshwright.verbs.command import command
from meshwright.verbs.plan import training_time_s
from meshwright.verbs.resolve import Resolved, default_global_batch, resolve, with_site
from meshwright.verbs.searches import Outcome
from meshwright.verbs.totals import failures_of, totals

_R = TypeVar("_R", bound=JobRequest)


def sized(request: JobRequest, base: Resolved, n_gpus: int) -> Resolved:
    """``base`` on ``n_gpus`` GPUs of the same kind, its site filled; what is assumed for a cluster is assumed anew.

    Raises InputError as ``plan.resize.resized``.
    """
    cluster = resized(base.cluster, n_gpus)
    if cluster.text != base.cluster.text:
        anew = resolve(request.model_copy(update={"cluster": cluster.text}))
        return with_site(replace(anew, cluster=cluster))
    job, assumed = base.job, base.assumed
    if "global_batch" in assumed:
        batch = default_global_batch(n_gpus, job.seq_len)
        job = job.model_copy(update={"global_batch": batch})
        assumed = assumed | {"global_batch": assumed["global_batch"].model_copy(update={"value": batch})}
    return with_site(replace(base, job=job, cluster=cluster, assumed=assumed))


def at_size(request: _R, cluster: Cluster, job: TrainingJob) -> _R:
    """The request for this size of its cluster and this batch, to be written as a command."""
    said: dict[str, Any] = {"cluster": cluster.text, "global_batch": job.global_batch}
    if Path(cluster.text).suffix == ".toml":
        # A file says one size; any other is a change of it.
        sizes = (f"cluster.n_nodes={cluster.n_nodes}", f"cluster.gpus_per_node={cluster.gpus_per_node}")
        said["set"] = (*request.set, *sizes)
    return request.model_copy(update=said)


def command_at(verb: str, request: JobRequest, cluster: Cluster, job: TrainingJob, **flags: Any) -> str:
    """``mw verb`` for this size of the request's cluster."""
    return command(verb, at_size(request, cluster, job), **flags)


def point(case: Resolved, outcome: Outcome, price: Price | None) -> Point:
    """What ``outcome`` says of the case, whose site is filled; ``price`` None: not known."""
    job, cluster = case.job, case.cluster
    fields: dict[str, Any] = {
        "cluster": cluster.text,
        "n_gpus": cluster.n_gpus,
        "n_nodes": cluster.n_nodes,
        "gpus_per_node": cluster.gpus_per_node,
        "global_batch": job.global_batch,
    }
    best = outcome.best
    if best is None:
        return Point(**fields, estimate=None, misses_bytes=outcome.misses_bytes, why_none=outcome.why_none())
    whole = totals(job, cluster, best, case.constants, price)
    names = ("time_to_train_with_failures_s", "cost_usd", "energy_j", "price")
    fields |= {name: whole[name] for name in names}
    time_s, interval_s = training_time_s(job, best)
    if interval_s is not None:
        ends_s = time_with_failures_s(np.array(interval_s), failures_of(job, cluster), (0.5,))[:, 0]
        fields["median_interval_s"] = (float(ends_s[0]), float(ends_s[1]))
        fields["gpu_hours"] = cluster.n_gpus * whole["time_to_train_with_failures_s"]["p50"] / 3600.0
    if whole["cost_usd"] is not None and price is not None:
        rates = [each.usd_per_gpu_hour for each in (price, *catalog.prices(price.gpu, tier=price.tier))]
        fields["cost_range_usd"] = tuple(
            whole["cost_usd"] * rate / price.usd_per_gpu_hour for rate in (min(rates), max(rates))
        )
    return Point(
        **fields,
        estimate=best,
        tokens_per_s=best.tokens_per_s_per_gpu * cluster.n_gpus,
        time_to_train_s=time_s,
        time_to_train_interval_s=interval_s,
    )


def in_common(all_assumed: list[Mapping[str, Assumed]]) -> dict[str, Assumed]:
    """The assumptions that every case makes alike."""
    first, *others = all_assumed
    return {
        name: assumption
        for name, assumption in first.items()
        if all(name in other and other[name].value == assumption.value for other in others)
    }
