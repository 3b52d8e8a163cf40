"""What to change when a layout or a whole space does not fit: each remedy is evaluated before it is named."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from meshwright.catalog import loader
from meshwright.costmodel import evaluate, memory_peak_bytes
from meshwright.costmodel.memory import roomy_bytes
from meshwright.errors import InputError
from meshwright.plan.change import Case, apply_all
from meshwright.plan.search import budget_bytes
from meshwright.plan.space import Choices, divisors, lawful, space
from meshwright.specs.constants import Constants
from meshwright.specs.estimate import Estimate
from meshwright.specs.hardware import Cluster, Gpu, Node
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import COLUMNS, RECOMPUTE_BITS, WORDS, Layout, LayoutBatch, recompute_mask, recompute_name
from meshwright.specs.plan import Change

#: Columns that trade time for memory, each from the most memory to the least. Those that a search does not vary
#: are tried on top of it.
_SAVING: Mapping[str, tuple[Any, ...]] = {
    "zero_stage": (0, 1, 2, 3),
    "ep": (1, 2, 4, 8, 16, 32, 64),
    "cp": (1, 2, 4, 8),
    "offload_optimizer": ("none", "cpu"),
    "offload_parameters": ("none", "cpu"),
}
#: What is searched to see whether a change helps: whole shards, the named recompute choices.
_PLAIN = Choices(recompute_modules=("core_attention",), hybrid_shards=False, cp_kinds=("ring",))
#: Sequences shorter than this are no remedy.
_SHORTEST_SEQUENCE = 512
#: Nodes beyond which no cluster is tried that would hold the job.
_LARGEST_NODES = 4096


@dataclass(frozen=True, slots=True)
class Remedy:
    """Changes that together make it fit, and the estimate of the changed case."""

    changes: tuple[Change, ...]
    estimate: Estimate

    def document(self, step_time_s: float | None) -> dict[str, Any]:
        """As the plan file holds it; ``step_time_s`` is that of the unchanged case (None: it cannot run at all)."""
        return {
            "changes": [{"path": change.path, "value": change.value} for change in self.changes],
            "layout": self.estimate.layout.model_dump(),
            "step_time_s": self.estimate.step_time_s,
            "step_time_ratio": self.estimate.step_time_s / step_time_s if step_time_s else None,
            "peak_reserved_bytes": self.estimate.memory.peak_reserved_bytes,
            "fits": self.estimate.memory.fits,
        }


def layout_remedies(
    case: Case, constants: Constants, *, max_memory_bytes: float | None = None, limit: int = 3
) -> tuple[Remedy, ...]:
    """Up to ``limit`` changes of the layout under which it fits, fastest first; fewer changes go before more.

    Tried: recompute, ZeRO, sequence parallelism, smaller micro-batches, offloading, other tp, pp, cp and ep on the
    same GPUs, then pairs of them. Two remedies never touch the same columns. Empty where none of that is enough.
    """
    budget = budget_bytes(case.cluster, constants, max_memory_bytes)
    singles = _layout_changes(case.layout, case.cluster.n_gpus)
    pairs = [(one | two) for one, two in itertools.combinations(singles, 2) if not one.keys() & two.keys()]
    found: list[Remedy] = []
    for options in (singles, pairs):
        known = [{change.path for change in remedy.changes} for remedy in found]
        # A pair that contains a remedy found before adds a change that is not needed.
        found.extend(
            remedy
            for remedy in _distinct(_fitting(case, constants, options, budget), case.layout)
            if not any(paths <= {change.path for change in remedy.changes} for paths in known)
        )
    return tuple(found[:limit])


def _layout_changes(layout: Layout, n_gpus: int) -> list[dict[str, Any]]:
    """Single steps towards less memory, as column -> value; data parallelism gives way to the other degrees."""
    mask = recompute_mask(layout.recompute)
    masks = {mask | bit for bit in RECOMPUTE_BITS.values()} - {mask}
    steps: list[dict[str, Any]] = [{"recompute": recompute_name(more)} for more in sorted(masks)]
    if layout.tp > 1 and not layout.sp:
        steps.append({"sp": True})
    steps.extend({"micro_batch": size} for size in divisors(layout.micro_batch) if size < layout.micro_batch)
    if layout.vpp > 1:
        steps.append({"vpp": 1, "schedule": "1f1b"})
    steps.extend({name: value} for name, values in _SAVING.items() for value in _beyond(getattr(layout, name), values))
    plain = {"vpp": 1, "schedule": "1f1b"}
    for axis, along in (("tp", {"sp": True}), ("pp", plain), ("cp", {})):
        here = getattr(layout, axis)
        others = n_gpus * here // (layout.tp * layout.pp * layout.cp)
        steps.extend({axis: n, "dp": others // n, **along} for n in divisors(others) if n > here)
    return steps


def _beyond(value: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """What comes after ``value`` in a list from the most memory to the least."""
    return values[values.index(value) + 1 :] if value in values else ()


def _fitting(
    case: Case, constants: Constants, options: Iterable[Mapping[str, Any]], budget_bytes: float
) -> list[Estimate]:
    layouts = [case.layout.model_copy(update=dict(option)) for option in options]
    if not layouts:
        return []
    batch = LayoutBatch.of(layouts)
    batch = batch.take(lawful(case.job, case.cluster, batch)[0])
    batch = batch.take(memory_peak_bytes(case.job, case.cluster, batch, constants) <= budget_bytes)
    if not len(batch):
        return []
    estimates = evaluate(case.job, case.cluster, batch, constants)
    order = np.argsort(estimates.step_time_s, kind="stable")
    return [estimates.row(int(i), batch.row(int(i))) for i in order if estimates.fits[i] > 0]


def _distinct(estimates: Sequence[Estimate], layout: Layout) -> list[Remedy]:
    """The fastest remedy for each set of columns that change."""
    found: dict[tuple[str, ...], Remedy] = {}
    for estimate in estimates:
        changed = tuple(name for name in COLUMNS if getattr(estimate.layout, name) != getattr(layout, name))
        changes = tuple(Change(path=f"layout.{name}", value=getattr(estimate.layout, name)) for name in changed)
        found.setdefault(changed, Remedy(changes, estimate))
    return list(found.values())


def space_remedies(
    job: TrainingJob,
    cluster: Cluster,
    constants: Constants,
    *,
    fix: Mapping[str, Any],
    max_memory_bytes: float | None = None,
    limit: int = 3,
) -> tuple[Remedy, ...]:
    """Up to ``limit`` changes under which a search that found nothing finds something, the least concession first.

    Tried: letting go of what was fixed (one column, then all), switches that a search does not vary, more GPUs a node
    or more nodes, a GPU with more memory, gradients in bf16, a shorter sequence; then each of these with fewer GPUs
    than more GPUs alone take.
    The estimate of each is its fastest layout among plain ones (no interleaving), so a search may find a better one.
    """
    found: list[Remedy] = []
    # One column let go of is a smaller concession than all of them.
    for freed in [(name,) for name in fix] + ([tuple(fix)] if len(fix) > 1 else []):
        kept = {name: value for name, value in fix.items() if name not in freed}
        if estimate := plain_best(job, cluster, constants, kept, max_memory_bytes):
            changes = tuple(Change(path=f"layout.{name}", value=getattr(estimate.layout, name)) for name in freed)
            found.append(Remedy(changes, estimate))
            break
    others = _without_freeing(Case(job, cluster, Layout()), constants, fix, max_memory_bytes)
    found.extend(itertools.islice(others, limit - len(found)))
    return tuple(found)


def _without_freeing(
    case: Case, constants: Constants, fix: Mapping[str, Any], max_memory_bytes: float | None
) -> Iterator[Remedy]:
    """Remedies that keep what was fixed, computed as they are asked for."""

    def first(alternatives: Iterable[tuple[Change, ...]]) -> Remedy | None:
        return _first_that_helps(alternatives, case, constants, fix, max_memory_bytes)

    kinds = [list(_unsearched(case.job, case.cluster, fix)), list(_larger_gpus(case.job, case.cluster))]
    kinds += _of_job(case.job)
    grown: Remedy | None = None
    not_alone = []
    for index, alternatives in enumerate(kinds):
        if remedy := first(alternatives):
            yield remedy
        else:
            not_alone.append(alternatives)
        # More GPUs are dearer than another switch, and cheaper than another chip.
        if index == 0 and (grown := first(larger_clusters(case.cluster))):
            yield grown
    fewer = list(_smaller_than(grown, larger_clusters(case.cluster), case))
    for alternatives in not_alone:
        if remedy := first((*one, *more) for one in alternatives for more in fewer):
            yield remedy


def _smaller_than(
    remedy: Remedy | None, clusters: Iterable[tuple[Change, ...]], case: Case
) -> Iterator[tuple[Change, ...]]:
    if remedy is None:
        return
    n_gpus = apply_all(remedy.changes, case).cluster.n_gpus
    yield from itertools.takewhile(lambda changes: apply_all(changes, case).cluster.n_gpus < n_gpus, clusters)


def _first_that_helps(
    alternatives: Iterable[tuple[Change, ...]],
    case: Case,
    constants: Constants,
    fix: Mapping[str, Any],
    max_memory_bytes: float | None,
) -> Remedy | None:
    for changes in alternatives:
        changed = apply_all(changes, case)
        columns = {c.path.removeprefix("layout."): c.value for c in changes if c.path.startswith("layout.")}
        estimate = plain_best(changed.job, changed.cluster, constants, {**fix, **columns}, max_memory_bytes)
        if estimate and all(getattr(estimate.layout, name) == value for name, value in columns.items()):
            return Remedy(changes, estimate)
    return None


def _unsearched(job: TrainingJob, cluster: Cluster, fix: Mapping[str, Any]) -> Iterator[tuple[Change, ...]]:
    """What a search leaves alone of the columns of ``_SAVING`` that are not fixed, the mildest value first."""
    whole = space(job, cluster, fix, _PLAIN)
    if not len(whole):
        return
    searched = whole.at(np.unique(np.linspace(0, len(whole) - 1, 65_536).astype(np.int64)))
    for name, values in _SAVING.items():
        if name in fix:
            continue
        seen = {WORDS[name][code] if name in WORDS else int(code) for code in np.unique(getattr(searched, name))}
        for value in values:
            degree = name in ("ep", "cp")
            if value not in seen and not (degree and cluster.n_gpus % value):
                yield (Change(path=f"layout.{name}", value=value),)


def _larger_gpus(job: TrainingJob, cluster: Cluster) -> Iterator[tuple[Change, ...]]:
    """GPUs of the same vendor and kind of link with more memory, the next larger first, the same generation first."""
    gpu = cluster.gpu
    known = [cast("Gpu", loader.entry("gpu", name)) for name in loader.names("gpu")]
    larger = [
        other
        for other in known
        if other.vendor == gpu.vendor
        and other.memory_bytes > gpu.memory_bytes
        and job.precision in other.peak_flops_per_s
        and (other.scale_up_bytes_per_s > 0) == (gpu.scale_up_bytes_per_s > 0)
    ]
    for other in sorted(
        larger,
        key=lambda each: (
            each.memory_bytes,
            each.architecture != gpu.architecture,
            -each.scale_up_bytes_per_s,
            -each.tdp_w,
        ),
    ):
        yield (Change(path="cluster.gpu", value=other.name),)


def _of_job(job: TrainingJob) -> Iterator[list[tuple[Change, ...]]]:
    """Gradients in half precision, then shorter sequences."""
    if job.grad_dtype == "fp32" and job.wide_dtype != "fp32":
        yield [(Change(path="job.grad_dtype", value=job.wide_dtype),)]
    lengths = (job.seq_len // 2, job.seq_len // 4)
    yield [(Change(path="job.seq_len", value=length),) for length in lengths if length >= _SHORTEST_SEQUENCE]


def larger_clusters(cluster: Cluster) -> Iterator[tuple[Change, ...]]:
    """Fuller nodes first, then more of them; this machine (``local``) does not grow."""
    node = loader.find("node", cluster.node_name)
    if cluster.nic.kind == "loopback":
        return
    if node is not None:
        usual = cast("Node", loader.build(node))
        counts = [n for n in range(cluster.gpus_per_node + 1, usual.gpus_per_node + 1) if usual.gpus_per_node % n == 0]
        for gpus in counts:
            changes = [Change(path="cluster.gpus_per_node", value=gpus)]
            if cluster.scale_up == "none" != usual.scale_up:
                changes.append(Change(path="cluster.scale_up", value=usual.scale_up))
            yield tuple(changes)
        cluster = cluster.model_copy(update={"gpus_per_node": max(cluster.gpus_per_node, *counts, 1)})
    for nodes in _more_nodes(cluster.n_nodes):
        yield (Change(path="cluster.n_nodes", value=nodes),)


def _more_nodes(nodes: int) -> Iterator[int]:
    """Ever larger clusters: quarter steps between doublings."""
    largest = min(_LARGEST_NODES, nodes * 256)
    while nodes < largest:
        yield from sorted({nodes + -(-nodes * quarter // 4) for quarter in (1, 2, 3, 4)})
        nodes *= 2


def plain_best(
    job: TrainingJob, cluster: Cluster, constants: Constants, fix: Mapping[str, Any], max_memory_bytes: float | None
) -> Estimate | None:
    """The fastest fitting layout with a named recompute and no interleaving; None where there is none."""
    budget = budget_bytes(cluster, constants, max_memory_bytes)
    try:
        trial = space(job, cluster, {"vpp": 1, **fix} if "schedule" not in fix else fix, _PLAIN)
    except InputError:
        # What is fixed does not divide this number of GPUs.
        return None
    best: Estimate | None = None
    rank = (True, np.inf)
    for start in range(0, len(trial), 65_536):
        batch = trial.rows(start, start + 65_536)
        batch = batch.take(memory_peak_bytes(job, cluster, batch, constants) <= budget)
        # A fixed switch may break a rule beside others that the space still tries.
        batch = batch.take(lawful(job, cluster, batch)[0])
        if not len(batch):
            continue
        estimates = evaluate(job, cluster, batch, constants)
        # One that fits with room to spare before any that fits tightly, as in a search.
        tight = estimates.peak_reserved_bytes > min(budget, roomy_bytes(cluster, constants))
        fastest = int(np.lexsort((estimates.step_time_s, tight))[0])
        if best is None or (tight[fastest], estimates.step_time_s[fastest]) < rank:
            best = estimates.row(fastest, batch.row(fastest))
            rank = bool(tight[fastest]), best.step_time_s
    return best
