"""The step: everything put together for a batch of layouts. ``evaluate`` is the cost model's one entry.

``score`` is the same model for a search: it prunes by memory first and leaves out what only shown layouts need.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.costmodel import memory
from meshwright.costmodel.axis import Traffic, data, pipeline
from meshwright.costmodel.block_times import COMM_AXES
from meshwright.costmodel.communication import collective_time_s, point_to_point_time_s
from meshwright.costmodel.gather import FloatArray, Gathered, IndexArray
from meshwright.costmodel.interval import Z_80, log_sd, off_ground, off_ground_variance
from meshwright.costmodel.mesh import GroupPlacement, place
from meshwright.costmodel.offload import fetch_s, offloaded_step_s
from meshwright.costmodel.optimizer import optimizer_time_s
from meshwright.costmodel.overlap import contention_s, exposed_s
from meshwright.costmodel.parameters import forward_flops_per_sequence
from meshwright.costmodel.pipeline import PipelineProfile, PipelineTimes
from meshwright.costmodel.post_training import (
    forward_only_passes,
    forward_only_time_s,
    rollout_ratio,
    rollout_time_s,
    trained_passes,
)
from meshwright.costmodel.rows import distinct
from meshwright.costmodel.schedule import schedules
from meshwright.costmodel.stages import StageKey, chunk_parts
from meshwright.formula import Ledger, formula
from meshwright.specs.constants import Constants
from meshwright.specs.estimate import BREAKDOWN_TERMS, EstimateBatch
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import OFFLOADS, Layout, LayoutBatch


@dataclass(slots=True)
class Scores:
    """What a search needs of ``n`` layouts, (n,) each; the step time is infinite where memory ruled the row out."""

    step_time_s: FloatArray
    peak_allocated_bytes: FloatArray
    peak_reserved_bytes: FloatArray


def score(
    job: TrainingJob, cluster: Cluster, layouts: LayoutBatch, constants: Constants, memory_limit_bytes: float
) -> Scores:
    """Step time and peak memory of legal layouts; rows whose allocated peak exceeds the limit get no time."""
    rows = Gathered.of(job, cluster, layouts, constants)
    peak = memory.peak(rows)
    time = np.full(len(rows), np.inf)
    fitting = np.flatnonzero(peak.allocated_bytes <= memory_limit_bytes)
    if len(fitting):
        time[fitting] = _step(rows.take(fitting) if len(fitting) < len(rows) else rows).step_time_s
    return Scores(time, peak.allocated_bytes, peak.reserved_bytes)


def evaluate(
    job: TrainingJob, cluster: Cluster, layouts: LayoutBatch, constants: Constants, ledger: Ledger | None = None
) -> EstimateBatch:
    """Predict step time, memory and their parts for ``n`` legal layouts; arrays of shape (n,).

    ``ledger`` records every formula of this call (meant for the few layouts that are shown). The layouts must be
    legal (``costmodel.legal``). Times in seconds, memory in bytes, 80 % interval from left-out residuals.
    """
    if ledger is not None:
        ledger.sources.update(_sources(cluster, constants))
    with ledger.recording() if ledger is not None else nullcontext():
        rows = Gathered.of(job, cluster, layouts, constants)
        step = _step(rows)
        breakdown = _breakdown(rows, step)
        peak = memory.peak(rows)
        by = memory.by_class(rows, peak)
        off = off_ground(job, cluster, layouts, constants)
        deviation = log_sd(
            step.step_time_s, breakdown, off_ground_variance(off, cluster, len(rows), constants), constants
        )
    time = step.step_time_s
    spread = np.exp(Z_80 * deviation)
    # Frozen base weights have no gradients of their own to compute.
    passes = 2.0 if job.lora_rank else 3.0
    model_flops = passes * forward_flops_per_sequence(job) * job.global_batch
    peak_flops = cluster.n_gpus * cluster.gpu.peak_flops_per_s[job.precision]
    capacity = memory.capacity_bytes(cluster, constants)
    return EstimateBatch(
        step_time_s=time,
        interval_low_s=time / spread,
        interval_high_s=time * spread,
        off_ground=off,
        tokens_per_s_per_gpu=job.tokens_per_step / (time * cluster.n_gpus),
        mfu_ratio=model_flops / (time * peak_flops),
        hfu_ratio=_hardware_flops(rows, model_flops) / (time * peak_flops),
        breakdown_s=breakdown,
        peak_allocated_bytes=peak.allocated_bytes,
        peak_reserved_bytes=peak.reserved_bytes,
        host_bytes=memory.host_bytes(rows),
        capacity_bytes=capacity,
        fits=memory.fits(peak, cluster, constants),
        worst_pipeline_rank=rows.first_rank(peak.worst_class),
        memory_by_bytes=by,
        memory_by_phase_bytes=memory.by_phase(job, peak, by),
    )


def memory_peak_bytes(job: TrainingJob, cluster: Cluster, layouts: LayoutBatch, constants: Constants) -> FloatArray:
    """Peak allocated bytes of the worst rank, (n,)."""
    return memory.peak(Gathered.of(job, cluster, layouts, constants)).allocated_bytes


def _sources(cluster: Cluster, constants: Constants) -> dict[str, tuple[object, str]]:
    found: dict[str, tuple[object, str]] = {}
    for noun in (cluster.gpu, cluster.nic):
        for name, fact in noun.facts.items():
            found[name] = (fact.text, f"{noun.name}: {fact.source} ({fact.label})")
    for name, constant in constants.by_name.items():
        found[name] = (constant.value, f"{constant.source} ({constant.label})")
    return found


@dataclass(slots=True)
class _Step:
    """The step's terms, (n,) each but for the pipeline's, which has rows of its own."""

    step_time_s: FloatArray
    pipeline: _Pipeline
    forward_only_s: FloatArray
    tied_embedding_s: FloatArray
    dp_exposed_s: FloatArray
    contention_s: FloatArray
    optimizer_s: FloatArray
    rollout_s: FloatArray


@formula("sum of the critical path", "s")
def step_time_s(
    pipeline_s: FloatArray,
    dp_exposed_s: FloatArray,
    tied_embedding_s: FloatArray,
    contention_s: FloatArray,
    optimizer_s: FloatArray,
    rollout_s: FloatArray,
    straggler_ratio: float,
) -> FloatArray:
    """Step time: pipeline, exposed gradient traffic, optimizer, rollouts, what overlap and stragglers cost; (n,)."""
    spent = pipeline_s + dp_exposed_s + tied_embedding_s + contention_s + optimizer_s + rollout_s
    return np.asarray(spent * (1.0 + straggler_ratio))


@dataclass(slots=True)
class _Pipeline:
    """What the pipelines of ``rows`` take, (d,) each: in all, and for a micro-batch on its critical rank class (the one
    with most work) and at its longest.

    ``hidden_s`` is communication of the critical class that runs beside its computation; ``forward_alone_s`` is the
    longest forward where no backward runs beside it. ``row`` (n,) is the pipeline of every layout: many have the same
    one.
    """

    row: IndexArray
    rows: Gathered
    profile: PipelineProfile
    pipeline_s: FloatArray
    critical_class: IndexArray
    slowest_s: FloatArray
    forward_s: FloatArray
    forward_alone_s: FloatArray
    backward_s: FloatArray
    hidden_s: FloatArray


def _step(rows: Gathered) -> _Step:
    pipe = _pipeline(rows)
    layouts, m = pipe.rows.layouts, pipe.rows.n_micro_batches.astype(float)
    passes = m / pipe.rows.stage_copies()
    alone = forward_only_time_s(pipe.forward_alone_s, passes, layouts.pp, layouts.vpp, forward_only_passes(rows.job))
    pipeline_s = (trained_passes(rows.job) * pipe.pipeline_s + alone).take(pipe.row)
    # Interleaved schedules send while they compute; a plain one waits for each transfer and slows nothing.
    sent_beside = np.where(layouts.vpp > 1, 2.0 * pipe.profile.hop_s * m * layouts.vpp, 0.0)
    beside = (sent_beside + passes * pipe.hidden_s).take(pipe.row)
    first, sender_row = distinct(rows.traffic_columns())
    senders = rows.take(first)
    dp_exposed, hidden = _data_parallel_s(rows, senders, sender_row, pipe)
    contention = contention_s(hidden + beside, rows.constants.get("contention_ratio"))
    tied, optimizer = _tied_embedding_s(senders).take(sender_row), _optimizer_s(senders).take(sender_row)
    training = pipeline_s + dp_exposed + tied + contention + optimizer
    rollout = rollout_time_s(training, rollout_ratio(rows.job))
    time = step_time_s(pipeline_s, dp_exposed, tied, contention, optimizer, rollout, rows.job.straggler_ratio)
    return _Step(
        step_time_s=time,
        pipeline=pipe,
        forward_only_s=alone.take(pipe.row),
        tied_embedding_s=tied,
        dp_exposed_s=dp_exposed,
        contention_s=contention,
        optimizer_s=optimizer,
        rollout_s=rollout,
    )


def _pipeline(rows: Gathered) -> _Pipeline:
    """The pipelines of rows that differ in what a pipeline sees."""
    groups = rows.place("pp")
    _first, hop_kind = distinct((groups.crosses_nodes.view(np.int8), groups.groups_per_node))
    first, inverse = distinct((*rows.work_columns(), hop_kind.take(rows.place_row)))
    few = rows.take(first)
    profile = _profile(few, _hop_s(few, groups))
    time = _pipeline_time_s(few, profile)
    critical, slowest, forward, backward = _critical(profile)
    hidden_table = rows.tables.times.hidden_s
    hidden = few.in_class(hidden_table, critical) if hidden_table.any() else np.zeros(len(few))
    alone, beside_table = forward, rows.tables.times.beside_backward_s
    if beside_table.any():
        alone = few.in_class(rows.tables.times.total_forward_s() + beside_table).max(axis=0)
    return _Pipeline(inverse, few, profile, time, critical, slowest, forward, alone, backward, hidden)


def _critical(profile: PipelineProfile) -> tuple[IndexArray, FloatArray, FloatArray, FloatArray]:
    """The class with most work a micro-batch, that work, and the longest forward and backward; (n,) each."""
    forward, backward = profile.forward_s.T, profile.backward_s.T
    critical = np.zeros(forward.shape[1], np.intp)
    slowest = forward[0] + backward[0]
    for index in range(1, len(forward)):
        work = forward[index] + backward[index]
        np.copyto(critical, index, where=work > slowest)
        slowest = np.maximum(slowest, work)
    return critical, slowest, np.maximum.reduce(forward, axis=0), np.maximum.reduce(backward, axis=0)


def _breakdown(rows: Gathered, step: _Step) -> dict[str, FloatArray]:
    """The terms of the step on the critical path, (n,) each; they sum to the step time."""
    blocks, trained, pipe = rows.tables.times, trained_passes(rows.job), step.pipeline
    passes, critical_class = trained * rows.n_micro_batches / rows.stage_copies(), pipe.critical_class.take(pipe.row)

    def spent(table: FloatArray) -> FloatArray:
        return np.asarray(passes * rows.in_class(table, critical_class))

    # What transfers cost is what they add to the same pipeline; the rest of the critical rank's wait is the bubble.
    instant = replace(pipe.profile, hop_s=np.zeros_like(pipe.profile.hop_s))
    without_hops_s = trained * _pipeline_time_s(pipe.rows, instant).take(pipe.row)
    zero = np.zeros(len(rows))
    return dict.fromkeys(BREAKDOWN_TERMS, zero) | {
        "forward": spent(blocks.forward_s) + step.forward_only_s,
        "backward": spent(blocks.backward_s),
        "recompute": spent(blocks.recompute_s),
        **{f"{axis}_comm": spent(blocks.comm_s(axis)) for axis in COMM_AXES},
        "launch": spent(blocks.launch_forward_s + blocks.launch_backward_s),
        "pp_comm": trained * pipe.pipeline_s.take(pipe.row) - without_hops_s + step.tied_embedding_s,
        # No less than nothing: the two differ by rounding where a rank never waits.
        "bubble": np.maximum(without_hops_s - passes * pipe.slowest_s.take(pipe.row), 0.0),
        "dp_comm": step.dp_exposed_s,
        "contention": step.contention_s,
        "optimizer": step.optimizer_s,
        "data": step.rollout_s,
        "straggler": step.step_time_s * (1.0 - 1.0 / (1.0 + rows.job.straggler_ratio)),
    }


def _profile(rows: Gathered, hop_s: FloatArray) -> PipelineProfile:
    forward, backward = rows.tables.times.total_forward_s(), rows.tables.times.total_backward_s()

    def ends(chunk: FloatArray, table: FloatArray) -> FloatArray:
        total = np.zeros(len(rows))
        for part in range(len(table)):
            if chunk[part].any():
                total += chunk[part].take(rows.stage_row) * rows.part(table, part)
        return total

    first, last = rows.stages.first_chunk, rows.stages.last_chunk
    return PipelineProfile(
        pp=rows.layouts.pp,
        vpp=rows.layouts.vpp,
        n_micro_batches=rows.n_micro_batches,
        # Transposed views of class-major arrays: the schedules work on one class of all rows at a time.
        multiplicity=rows.multiplicity().T,
        forward_s=rows.in_class(forward).T,
        backward_s=rows.in_class(backward).T,
        weight_s=rows.in_class(rows.tables.times.weight_s).T,
        embedding_forward_s=ends(first, forward),
        embedding_backward_s=ends(first, backward),
        head_forward_s=ends(last, forward),
        head_backward_s=ends(last, backward),
        hop_s=hop_s,
    )


def _pipeline_time_s(rows: Gathered, profile: PipelineProfile) -> FloatArray:
    """Closed form of each row's schedule, (n,)."""
    total = np.zeros(len(rows))
    for code, name in enumerate(rows.layouts.schedules):
        chosen = np.flatnonzero(rows.layouts.schedule == code)
        if len(chosen) == len(total):
            return schedules()[name].pipeline_time_s(profile)
        if len(chosen):
            columns = {field: getattr(profile, field) for field in profile.__slots__}
            part = PipelineProfile(
                **{
                    field: column.T.take(chosen, axis=1).T if column.ndim == 2 else column.take(chosen)
                    for field, column in columns.items()
                }
            )
            total[chosen] = schedules()[name].pipeline_time_s(part)
    return total


def _hop_s(rows: Gathered, groups: GroupPlacement) -> FloatArray:
    """Latency of one stage-to-stage transfer, (n,); zero without a pipeline. ``groups`` of pp are placed."""
    placed = rows.placed.layouts
    traffic = pipeline.sends(rows.job, placed)
    hop = point_to_point_time_s(
        traffic.size_bytes, rows.cluster, groups.crosses_nodes, groups.groups_per_node, rows.constants
    )
    return np.where(placed.pp > 1, hop, 0.0).take(rows.place_row)


def _data_parallel_s(
    rows: Gathered, senders: Gathered, sender_row: IndexArray, pipe: _Pipeline
) -> tuple[FloatArray, FloatArray]:
    """Exposed and hidden seconds of gradient and weight traffic, (n,) each, for the rank with most parameters.

    ``senders`` are the rows that differ in it, ``sender_row`` (n,) the one of each row. It may hide behind the passes
    of one micro-batch; what every micro-batch gathers for its passes goes first.
    """
    exposed, hidden = np.zeros(len(rows)), np.zeros(len(rows))
    streams = _streams(senders)
    if not streams:
        return exposed, hidden
    # Rows that send the same streams equally often (0: never, 1: once a step, 2: every micro-batch) go together.
    often = [
        np.where(stream.time_s > 0, 1 + data.every_micro_batch(stream.phase, senders.layouts), 0) for stream in streams
    ]
    first, kind_of_sender = distinct([(number, 3) for number in often])
    kind = kind_of_sender.take(sender_row)
    passes = rows.n_micro_batches / rows.stage_copies()
    for index, stands in enumerate(first.tolist()):
        chosen = np.flatnonzero(kind == index)
        sender, pipeline = sender_row.take(chosen), pipe.row.take(chosen)
        left = {"backward": pipe.backward_s.take(pipeline), "forward": pipe.forward_s.take(pipeline)}
        shown, beside = np.zeros(len(chosen)), np.zeros(len(chosen))
        for stream, number in zip(streams, often, strict=True):
            if not number[stands]:
                continue
            all_s = shown_s = stream.time_s.take(sender)
            if stream.hidden_by:
                shown_s = exposed_s(all_s, left[stream.hidden_by], stream.n_buckets.take(sender))
                # What one stream hides behind is taken: the next has what is left of it.
                left[stream.hidden_by] = np.maximum(left[stream.hidden_by] - all_s, 0.0)
            times = passes.take(chosen) if number[stands] == 2 else 1
            shown += times * shown_s
            beside += times * (all_s - shown_s)
        exposed[chosen], hidden[chosen] = shown, beside
    return exposed, hidden


class _Stream(NamedTuple):
    """One kind of data-parallel traffic, (n,) each: ``time_s`` in ``n_buckets`` pieces, as often as ``phase`` says."""

    phase: str
    hidden_by: str | None
    time_s: FloatArray
    n_buckets: FloatArray


def _streams(rows: Gathered) -> list[_Stream]:
    """The data-parallel traffic of every row, dense and expert weights together, in the order of priority."""
    layouts = rows.layouts
    trained, frozen_bytes = rows.heaviest_weights()
    # Sharded weights and gradients travel layer by layer, others in buckets.
    by_layer = (layouts.zero_stage >= 3) | ((layouts.zero_stage >= 2) & (layouts.pp == 1))
    found: list[_Stream] = []
    for experts in (False, True):
        if not trained[int(experts)].any():
            continue
        buckets = np.where(by_layer, rows.most_layers(), _buckets(rows.constants, trained[int(experts)], layouts.dp))
        for index, traffic in enumerate(
            data.sends(rows.job, trained[int(experts)], frozen_bytes[int(experts)], layouts, experts=experts)
        ):
            time = np.zeros(len(rows))
            sent = np.flatnonzero(traffic.count)
            if len(sent):
                # What waits for the end of the passes goes as one message, but for what only exists layer by layer.
                pieces = buckets if traffic.hidden_by else np.where(by_layer, buckets, 1.0)
                time[sent] = _traffic_s(rows.take(sent), traffic, pieces.take(sent), sent)
            number = np.where(time > 0, buckets, 0.0)
            if experts and found:
                # A layer's dense and expert weights are needed together; buckets hold the ones or the others.
                dense = found[index]
                number = np.where(by_layer, np.maximum(number, dense.n_buckets), number + dense.n_buckets)
                found[index] = dense._replace(time_s=time + dense.time_s, n_buckets=number)
            else:
                found.append(_Stream(traffic.phase, traffic.hidden_by, time, number))
    return found


def _traffic_s(rows: Gathered, traffic: Traffic, pieces: FloatArray, sent: IndexArray) -> FloatArray:
    """Seconds of ``traffic`` in so many ``pieces`` (n,), for the rows ``sent`` of it; (n,)."""
    size_bytes = traffic.size_bytes.take(sent)
    groups = place(traffic.group, rows.cluster, rows.layouts)
    time = pieces * collective_time_s(
        traffic.collective,
        size_bytes / pieces,
        rows.cluster,
        groups.size,
        groups.ranks_per_node,
        groups.groups_per_node,
        rows.constants,
    )
    if traffic.phase in ("forward", "backward") and (rows.layouts.offload_parameters > 0).any():
        shard_bytes = size_bytes / np.maximum(groups.size, 1)
        for code, name in enumerate(OFFLOADS[1:], start=1):
            away = rows.layouts.offload_parameters == code
            if away.any():
                time = time + np.where(away, fetch_s(shard_bytes, rows.cluster, rows.constants, name), 0.0)
    return np.asarray(time)


def _buckets(constants: Constants, parameters: FloatArray, dp: npt.NDArray[np.int32]) -> FloatArray:
    """Gradient buckets of a rank, (n,): Megatron-core's default size grows with the data-parallel degree."""
    size = np.maximum(constants.get("bucket_parameters"), constants.get("bucket_parameters_per_rank") * dp)
    return np.asarray(np.ceil(parameters / size))


def _tied_embedding_s(rows: Gathered) -> FloatArray:
    """First and last stage add up the gradients of their copies of a tied embedding, (n,); nothing on one rank."""
    job, model, layouts = rows.job, rows.job.model, rows.layouts
    trained = model.tie_word_embeddings and not job.lora_rank and "embedding" not in job.frozen
    # Schedules whose stages go forth and back have the last on the first rank.
    together = (rows.stages.counts[0, -1] > 0).take(rows.stage_row)
    if not trained or together.all():
        return np.zeros(len(rows))
    groups = place("pp", rows.cluster, layouts)
    size = job.grad_bytes * model.vocab_size * model.hidden_size / layouts.tp
    per_node = np.where(groups.crosses_nodes, 1, 2)
    time = collective_time_s(
        "all_reduce", size, rows.cluster, np.full(len(rows), 2), per_node, groups.groups_per_node, rows.constants
    )
    return np.where(together, 0.0, time)


def _optimizer_s(rows: Gathered) -> FloatArray:
    """The optimizer's step on the rank with most trained elements, (n,)."""
    layouts, (dense, experts) = rows.layouts, rows.heaviest_weights()[0]
    own = dense / data.divides("optimizer_state", layouts)
    if experts.any():
        own = own + experts / data.divides("optimizer_state", layouts, experts=True)
    held = dense + experts
    time = optimizer_time_s(rows.job, held, held / np.maximum(own, 1.0), rows.cluster.gpu, rows.constants)
    for code, name in enumerate(OFFLOADS[1:], start=1):
        away = layouts.offload_optimizer == code
        if away.any():
            time = np.where(away, offloaded_step_s(rows.job, own, rows.cluster, rows.constants, name), time)
    return time


def _hardware_flops(rows: Gathered, model_flops: float) -> FloatArray:
    """Model FLOPs plus what recomputation repeats, whole cluster, (n,)."""
    layouts = rows.layouts
    held = np.einsum("ckd,cd->kd", rows.stages.counts, rows.stages.multiplicity.astype(float))
    again = sum(
        (
            held[part].take(rows.stage_row) * rows.part(rows.tables.times.recompute_flops, part)
            for part in range(len(held))
        ),
        np.zeros(len(rows)),
    )
    return model_flops + again * layouts.tp * layouts.cp * layouts.dp * rows.n_micro_batches / rows.stage_copies()


def pipeline_times(job: TrainingJob, cluster: Cluster, layout: Layout, constants: Constants) -> PipelineTimes:
    """Block times of one layout's every rank and chunk, for replay and timeline."""
    rows = Gathered.of(job, cluster, LayoutBatch.of([layout]), constants)
    key = StageKey(layout.pp, layout.vpp, layout.stage_split, layout.schedule)
    chunks = np.array(chunk_parts(key, job.model.layer_sequence))
    held = np.array([key.of_rank(rank) for rank in range(layout.pp)])

    def laid_out(table: FloatArray) -> FloatArray:
        return np.asarray((chunks @ table[:, rows.block_row[0]])[held])

    return PipelineTimes(
        schedule=layout.schedule,
        pp=layout.pp,
        vpp=layout.vpp,
        n_micro_batches=int(rows.n_micro_batches[0]),
        forward_s=laid_out(rows.tables.times.total_forward_s()),
        backward_s=laid_out(rows.tables.times.total_backward_s()),
        weight_s=laid_out(rows.tables.times.weight_s),
        hop_s=float(_hop_s(rows, rows.place("pp"))[0]),
    )
