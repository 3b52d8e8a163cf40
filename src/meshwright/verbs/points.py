"""Points: one job on one size of a cluster, with what the whole training takes and costs there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from meshwright import catalog
from meshwright.plan.resize import resized
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.plan import Assumed
from meshwright.specs.price import Price
from meshwright.specs.request import JobRequest
from meshwright.specs.scale import Point
from meshwright.verbs.command import command
from meshwright.verbs.plan import training_time_s
from meshwright.verbs.resolve import Resolved, default_global_batch, resolve
from meshwright.verbs.searches import Outcome

_R = TypeVar("_R", bound=JobRequest)


def sized(request: JobRequest, base: Resolved, n_gpus: int) -> Resolved:
    """``base`` on ``n_gpus`` GPUs of the same kind; what is assumed for a cluster is assumed anew.

    Raises InputError as ``plan.resize.resized``.
    """
    cluster = resized(base.cluster, n_gpus)
    if cluster.text != base.cluster.text:
        return replace(resolve(request.model_copy(update={"cluster": cluster.text})), cluster=cluster)
    job, assumed = base.job, base.assumed
    if "global_batch" in assumed:
        batch = default_global_batch(n_gpus, job.seq_len)
        job = job.model_copy(update={"global_batch": batch})
        assumed = assumed | {"global_batch": assumed["global_batch"].model_copy(update={"value": batch})}
    return replace(base, job=job, cluster=cluster, assumed=assumed)


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


def point(job: TrainingJob, cluster: Cluster, outcome: Outcome, price: Price | None) -> Point:
    """What ``outcome`` says of the job on the cluster; ``price`` None: not known."""
    fields: dict[str, Any] = {
        "cluster": cluster.text,
        "n_gpus": cluster.n_gpus,
        "n_nodes": cluster.n_nodes,
        "gpus_per_node": cluster.gpus_per_node,
        "global_batch": job.global_batch,
        "price": None if price is None else priced(price),
    }
    best = outcome.best
    if best is None:
        return Point(**fields, estimate=None, misses_bytes=outcome.misses_bytes, why_none=outcome.why_none())
    time_s, interval_s = training_time_s(job, best)
    hours = None if time_s is None else cluster.n_gpus * time_s / 3600.0
    if hours is not None and price is not None:
        known = [each.usd_per_gpu_hour for each in catalog.prices(price.gpu, tier=price.tier)]
        rates = [*known, price.usd_per_gpu_hour]
        fields["cost_usd"] = hours * price.usd_per_gpu_hour
        fields["cost_range_usd"] = (hours * min(rates), hours * max(rates))
    return Point(
        **fields,
        estimate=best,
        tokens_per_s=best.tokens_per_s_per_gpu * cluster.n_gpus,
        time_to_train_s=time_s,
        time_to_train_interval_s=interval_s,
        gpu_hours=hours,
    )


def priced(price: Price) -> dict[str, Any]:
    """A price as a document holds it."""
    return {
        "name": price.name,
        "provider": price.provider,
        "tier": price.tier,
        "date": price.date,
        "usd_per_gpu_hour": price.usd_per_gpu_hour,
    }


def usual_price(gpu: str) -> Price | None:
    """The price that counts where none was said: on demand, the newest; None where the catalog has none."""
    return next(iter(catalog.prices(gpu)), None)


def in_common(all_assumed: list[Mapping[str, Assumed]]) -> dict[str, Assumed]:
    """The assumptions that every case makes alike."""
    first, *others = all_assumed
    return {
        name: assumption
        for name, assumption in first.items()
        if all(name in other and other[name].value == assumption.value for other in others)
    }
