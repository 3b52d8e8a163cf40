"""The step: everything put together for a batch of layouts. ``evaluate`` is the cost model's one entry.

Tables are computed on distinct rows (blocks on tp, sp, micro_batch, recompute; stages on pp, vpp, split) and gathered;
the rest is a fixed number of array operations a layout.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshwright.costmodel import memory
from meshwright.costmodel.axis import data, pipeline, tensor
from meshwright.costmodel.block_times import BlockTimes, block_times, parts_of
from meshwright.costmodel.interval import Z_80, log_sd, off_ground_variance
from meshwright.costmodel.mesh import GroupPlacement, place
from meshwright.costmodel.nccl import collective_time_s, point_to_point_time_s
from meshwright.costmodel.overlap import contention_s, exposed_s
from meshwright.costmodel.parameters import block_parameters, forward_flops_per_sequence
from meshwright.costmodel.pipeline import PipelineProfile, PipelineTimes
from meshwright.costmodel.rows import distinct
from meshwright.costmodel.schedule import schedules
from meshwright.costmodel.stages import StageTable, chunk_parts, stage_table
from meshwright.formula import Ledger, formula
from meshwright.specs.constants import Constants
from meshwright.specs.estimate import BREAKDOWN_TERMS, MEMORY_PHASES, EstimateBatch
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]


def evaluate(job: TrainingJob, cluster: Cluster, layouts: LayoutBatch, constants: Constants,
             ledger: Ledger | None = None) -> EstimateBatch:
    """Predict step time, memory and their parts for ``n`` legal layouts; arrays of shape (n,).

    ``ledger`` records every formula of this call (meant for the few layouts that are shown). The layouts must be
    legal (``costmodel.legal``). Times in seconds, memory in bytes, 80 % interval from left-out residuals.
    """
    if ledger is not None:
        ledger.sources.update(_sources(cluster, constants))
    with ledger.recording() if ledger is not None else nullcontext():
        rows = _Rows.of(job, cluster, layouts, constants)
        time, breakdown = _step(rows)
        peak, by, by_phase, reserved, worst = _memory(rows)
        spread = np.exp(Z_80 * log_sd(time, breakdown, off_ground_variance(job, cluster, constants), constants))
    tokens = job.tokens_per_step
    model_flops = 3.0 * forward_flops_per_sequence(job) * job.global_batch
    peak_flops = cluster.n_gpus * cluster.gpu.peak_flops_per_s[job.precision]
    capacity = rows.overheads.capacity_bytes
    return EstimateBatch(
        step_time_s=time,
        interval_low_s=time / spread,
        interval_high_s=time * spread,
        tokens_per_s_per_gpu=tokens / (time * cluster.n_gpus),
        mfu_ratio=model_flops / (time * peak_flops),
        hfu_ratio=_hardware_flops(rows, model_flops) / (time * peak_flops),
        breakdown_s=breakdown,
        peak_allocated_bytes=peak,
        peak_reserved_bytes=reserved,
        host_bytes=np.full(len(layouts), memory.host_bytes(cluster, constants)),
        capacity_bytes=capacity,
        fits=np.where(reserved <= capacity, 2, np.where(peak <= capacity, 1, 0)).astype(np.int8),
        worst_pipeline_rank=worst,
        memory_by_bytes=by,
        memory_by_phase_bytes=by_phase,
    )


def memory_peak_bytes(job: TrainingJob, cluster: Cluster, layouts: LayoutBatch, constants: Constants) -> FloatArray:
    """Peak allocated bytes of the worst rank, (n,): what a search prunes by."""
    return _memory(_Rows.of(job, cluster, layouts, constants))[0]


def _sources(cluster: Cluster, constants: Constants) -> dict[str, tuple[object, str]]:
    found: dict[str, tuple[object, str]] = {}
    for noun in (cluster.gpu, cluster.nic):
        for name, fact in noun.facts.items():
            found[name] = (fact.text, f"{noun.name}: {fact.source} ({fact.label})")
    for name, constant in constants.by_name.items():
        found[name] = (constant.value, f"{constant.source} ({constant.label})")
    return found


@dataclass(slots=True)
class _Rows:
    """Everything gathered for ``n`` layouts with C rank classes and K parts."""

    job: TrainingJob
    cluster: Cluster
    layouts: LayoutBatch
    constants: Constants
    blocks: BlockTimes
    block_row: IntArray
    stages: StageTable
    stage_row: IntArray
    counts: FloatArray
    n_micro_batches: FloatArray
    dp_groups: GroupPlacement
    pp_groups: GroupPlacement
    parameters: FloatArray
    overheads: memory.Overheads

    @classmethod
    def of(cls, job: TrainingJob, cluster: Cluster, layouts: LayoutBatch, constants: Constants) -> _Rows:
        first, block_row = distinct((layouts.tp, layouts.sp, layouts.micro_batch, layouts.recompute, layouts.rank_order))
        block_rows = layouts.take(first)
        times = block_times(job, cluster, block_rows, place("tp", cluster, block_rows), constants)
        first, stage_row = distinct((layouts.pp, layouts.vpp, layouts.stage_split))
        keys = [
            (int(layouts.pp[i]), int(layouts.vpp[i]), layouts.stage_splits[int(layouts.stage_split[i])]) for i in first
        ]
        stages = stage_table(keys, tuple(group.repeat for group in job.model.layers))
        counts = stages.counts[stage_row]
        communicators = (layouts.tp > 1).astype(float) + (layouts.dp > 1) + (layouts.pp > 1)
        return cls(
            job, cluster, layouts, constants, times, block_row, stages, stage_row, counts,
            job.global_batch / (layouts.dp * layouts.micro_batch.astype(float)),
            place("dp", cluster, layouts), place("pp", cluster, layouts),
            _rank_parameters(job, layouts, stages, stage_row),
            memory.Overheads.of(communicators, cluster, constants),
        )

    def per_class(self, table: FloatArray) -> FloatArray:
        """Sum over parts of count x ``table`` (r, K), for each rank class: (n, C)."""
        values = table[self.block_row]
        total = self.counts[:, :, 0] * values[:, None, 0]
        for part in range(1, values.shape[1]):
            total += self.counts[:, :, part] * values[:, None, part]
        return total

    def of_class(self, table: FloatArray, class_index: IntArray) -> FloatArray:
        """The same for one class a row: (n,)."""
        counts = self.counts[np.arange(len(class_index)), class_index]
        return np.einsum("nk,nk->n", counts, table[self.block_row])


def _rank_parameters(job: TrainingJob, layouts: LayoutBatch, stages: StageTable, stage_row: IntArray) -> FloatArray:
    """Parameter elements a rank of each class holds, (n, C). A tied head on a rank of its own keeps a copy."""
    parts = [block_parameters(job.model, members) for members in parts_of(job)]
    sharded = np.array([p.sharded for p in parts], float)
    replicated = np.array([p.replicated for p in parts], float)
    class_sharded = stages.counts @ sharded
    if job.model.tie_word_embeddings:
        lonely_head = (stages.counts[:, :, -1] > 0) & (stages.counts[:, :, 0] == 0)
        class_sharded += np.where(lonely_head, float(job.model.vocab_size * job.model.hidden_size), 0.0)
    by_tp = tensor.divides("sharded_parameters", layouts)
    return class_sharded[stage_row] / by_tp[:, None] + (stages.counts @ replicated)[stage_row]


def _profile(rows: _Rows, hop_s: FloatArray) -> PipelineProfile:
    forward, backward = rows.blocks.total_forward_s(), rows.blocks.total_backward_s()
    first, last = rows.stages.first_chunk[rows.stage_row], rows.stages.last_chunk[rows.stage_row]

    def ends(chunk: FloatArray, table: FloatArray) -> FloatArray:
        return np.einsum("nk,nk->n", chunk, table[rows.block_row])

    return PipelineProfile(
        pp=rows.layouts.pp, vpp=rows.layouts.vpp, n_micro_batches=rows.n_micro_batches.astype(np.int32),
        multiplicity=rows.stages.multiplicity[rows.stage_row],
        forward_s=rows.per_class(forward), backward_s=rows.per_class(backward),
        embedding_forward_s=ends(first, forward), embedding_backward_s=ends(first, backward),
        head_forward_s=ends(last, forward), head_backward_s=ends(last, backward), hop_s=hop_s,
    )


def _pipeline_time_s(rows: _Rows, profile: PipelineProfile) -> FloatArray:
    """Closed form of each row's schedule, (n,)."""
    total = np.zeros(len(rows.layouts))
    for code, name in enumerate(rows.layouts.schedules):
        chosen = np.flatnonzero(rows.layouts.schedule == code)
        if len(chosen) == len(total):
            return schedules()[name].pipeline_time_s(profile)
        if len(chosen):
            part = PipelineProfile(**{f: getattr(profile, f)[chosen] for f in profile.__slots__})
            total[chosen] = schedules()[name].pipeline_time_s(part)
    return total


def _hop_s(rows: _Rows) -> FloatArray:
    """Latency of one stage-to-stage transfer, (n,); zero without a pipeline."""
    traffic = pipeline.sends(rows.job, rows.layouts)
    senders = np.minimum(rows.pp_groups.groups_per_node, rows.cluster.gpus_per_node)
    hop = point_to_point_time_s(traffic.size_bytes, rows.cluster, rows.pp_groups.crosses_nodes, senders, rows.constants)
    return np.where(rows.layouts.pp > 1, hop, 0.0)


@formula("sum of the critical path", "s")
def step_time_s(pipeline_s: FloatArray, dp_exposed_s: FloatArray, tied_embedding_s: FloatArray, contention_s: FloatArray,
                optimizer_s: FloatArray, straggler_ratio: float) -> FloatArray:
    """Step time: pipeline, exposed gradient traffic, optimizer, and what overlap and stragglers cost; (n,)."""
    return np.asarray(
        (pipeline_s + dp_exposed_s + tied_embedding_s + contention_s + optimizer_s) * (1.0 + straggler_ratio)
    )


def _step(rows: _Rows) -> tuple[FloatArray, dict[str, FloatArray]]:
    hop = _hop_s(rows)
    profile = _profile(rows, hop)
    pipeline_s = _pipeline_time_s(rows, profile)
    work = profile.forward_s + profile.backward_s
    critical = np.argmax(work, axis=1)
    dp_exposed, hidden = _data_parallel_s(rows, profile)
    contention = contention_s(hidden, rows.constants.get("contention_ratio"))
    tied = _tied_embedding_s(rows)
    optimizer = _optimizer_s(rows)
    straggler_ratio = rows.job.straggler_ratio
    time = step_time_s(pipeline_s, dp_exposed, tied, contention, optimizer, straggler_ratio)

    m = rows.n_micro_batches
    busy = m * work[np.arange(len(m)), critical]
    # What hops cost is what they add to the same pipeline without them; the rest of the wait is the bubble.
    transfers = np.minimum(2.0 * hop * (m + rows.layouts.pp - 2), np.maximum(pipeline_s - busy, 0.0))
    zero = np.zeros(len(m))
    blocks = rows.blocks
    breakdown = dict.fromkeys(BREAKDOWN_TERMS, zero)
    breakdown |= {
        "forward": m * rows.of_class(blocks.forward_s, critical),
        "backward": m * rows.of_class(blocks.backward_s, critical),
        "recompute": m * rows.of_class(blocks.recompute_s, critical),
        "tp_comm": m * rows.of_class(blocks.tp_forward_s + blocks.tp_backward_s + blocks.tp_recompute_s, critical),
        "launch": m * rows.of_class(blocks.launch_forward_s + blocks.launch_backward_s, critical),
        "pp_comm": transfers + tied,
        "bubble": pipeline_s - busy - transfers,
        "dp_comm": dp_exposed,
        "contention": contention,
        "optimizer": optimizer,
        "straggler": time - time / (1.0 + straggler_ratio),
    }
    return time, breakdown


def _data_parallel_s(rows: _Rows, profile: PipelineProfile) -> tuple[FloatArray, FloatArray]:
    """Exposed and hidden seconds of gradient and weight traffic, (n,) each, for the rank with most parameters."""
    layouts, job = rows.layouts, rows.job
    heaviest = np.max(rows.parameters, axis=1)
    traffics, sharded = data.sends(job, layouts, heaviest)
    windows = {"backward": np.max(profile.backward_s, axis=1), "forward": np.max(profile.forward_s, axis=1)}
    first, inverse = distinct((layouts.tp, rows.stage_row, layouts.dp, layouts.rank_order))
    exposed, hidden = np.zeros(len(layouts)), np.zeros(len(layouts))
    groups = rows.dp_groups
    n_buckets = np.ones(len(layouts))
    if job.overlap_grad_reduce or job.overlap_param_gather:
        bucket = np.maximum(rows.constants.get("bucket_parameters"), rows.constants.get("bucket_parameters_per_rank")
                            * layouts.dp)
        n_buckets = np.ceil(heaviest / bucket)
    for traffic in traffics:
        applies = (layouts.dp > 1) & (sharded == (traffic.collective != "all_reduce"))
        if not applies.any():
            continue
        buckets = n_buckets if traffic.hidden_by else np.ones(len(layouts))
        time = (buckets[first] * collective_time_s(
            traffic.collective, (traffic.size_bytes / buckets)[first], rows.cluster, groups.size[first],
            groups.ranks_per_node[first], groups.groups_per_node[first], rows.constants))[inverse]
        shown = exposed_s(time, windows[traffic.hidden_by], buckets) if traffic.hidden_by else time
        exposed += np.where(applies, shown, 0.0)
        hidden += np.where(applies, time - shown, 0.0)
    return exposed, hidden


def _tied_embedding_s(rows: _Rows) -> FloatArray:
    """First and last stage add up the gradients of their copies of a tied embedding, (n,)."""
    model = rows.job.model
    if not model.tie_word_embeddings or not (rows.layouts.pp > 1).any():
        return np.zeros(len(rows.layouts))
    size = rows.job.grad_bytes * model.vocab_size * model.hidden_size / rows.layouts.tp
    per_node = np.where(rows.pp_groups.crosses_nodes, 1, 2)
    time = collective_time_s("all_reduce", size, rows.cluster, np.full(len(size), 2), per_node,
                             rows.pp_groups.groups_per_node, rows.constants)
    return np.where(rows.layouts.pp > 1, time, 0.0)


@formula("Adam streams gradient, master weight and two moments, read and written, and writes the weight", "s")
def optimizer_time_s(parameters: FloatArray, shards: FloatArray, bytes_per_parameter: float,
                     memory_bytes_per_s: float, step_fixed_s: float) -> FloatArray:
    """Optimizer step of ``parameters`` elements a rank, of which each updates its shard; plus the fixed part, (n,)."""
    return np.asarray(parameters / shards * bytes_per_parameter / memory_bytes_per_s + step_fixed_s)


def _optimizer_s(rows: _Rows) -> FloatArray:
    job, gpu = rows.job, rows.cluster.gpu
    # Read gradient, master, both moments; write master, both moments, weight; one more read for the gradient norm.
    traffic = 2 * memory.ADAM_STATE_BYTES + 2 * job.grad_bytes + job.element_bytes
    rate = gpu.memory_bytes_per_s * rows.constants.get("memory_efficiency_ratio", gpu.architecture)
    shards = data.divides("optimizer_state", rows.layouts)
    return optimizer_time_s(np.max(rows.parameters, axis=1), shards, traffic, rate, rows.constants.get("step_fixed_s"))


def _hardware_flops(rows: _Rows, model_flops: float) -> FloatArray:
    """Model FLOPs plus what recomputation repeats, whole cluster, (n,)."""
    layouts = rows.layouts
    counts = np.einsum("nck,nc->nk", rows.counts, rows.stages.multiplicity[rows.stage_row].astype(float))
    again = np.einsum("nk,nk->n", counts, rows.blocks.recompute_flops[rows.block_row])
    return model_flops + again * layouts.tp * layouts.dp * rows.n_micro_batches


def _rank_memory(rows: _Rows) -> memory.RankMemory:
    job, layouts, blocks = rows.job, rows.layouts, rows.blocks
    shards = data.divides("optimizer_state", layouts)[:, None]
    weights, gradients, optimizer = memory.state_bytes(rows.parameters, job.element_bytes, job.grad_bytes, shards)
    in_flight = _in_flight(rows) / layouts.vpp[:, None]
    held = rows.per_class(blocks.saved_bytes)
    logits = rows.per_class(blocks.logits_bytes)
    working = np.max(np.where(rows.counts > 0, blocks.working_bytes[rows.block_row][:, None, :], 0.0), axis=2)
    gathered = np.where((layouts.sp != 0) & (layouts.tp > 1), float(job.element_bytes) * job.seq_len *
                        layouts.micro_batch * job.model.hidden_size, 0.0)
    present = rows.stages.multiplicity[rows.stage_row] > 0
    return memory.RankMemory(
        weights, gradients, optimizer, activations=in_flight * held + working,
        logits=logits, gather=np.where(present, gathered[:, None], 0.0),
    )


def _in_flight(rows: _Rows) -> FloatArray:
    """Chunk activations alive at the peak on the first (fullest) rank of each class, (n, C)."""
    layouts = rows.layouts
    first_rank = rows.stages.first_rank[rows.stage_row]
    alive = np.zeros(first_rank.shape)
    m = rows.n_micro_batches.astype(np.int32)
    for code, name in enumerate(layouts.schedules):
        chosen = layouts.schedule == code
        if chosen.any():
            schedule = schedules()[name]
            for c in range(alive.shape[1]):
                alive[chosen, c] = schedule.in_flight(
                    layouts.pp[chosen], layouts.vpp[chosen], m[chosen], first_rank[chosen, c])
    return alive


def _memory(rows: _Rows) -> tuple[FloatArray, dict[str, FloatArray], dict[str, FloatArray], FloatArray,
                                  npt.NDArray[np.int32]]:
    """Peak, memory by class of the worst rank, by phase, reserved, and that rank; (n,) each."""
    rank = _rank_memory(rows)
    over = rows.overheads
    steady = rank.steady()
    worst = np.argmax(steady, axis=1)
    at = (np.arange(len(worst)), worst)
    outside = over.buffers + over.context
    by = {name: getattr(rank, name)[at] for name in
          ("weights", "gradients", "optimizer", "activations", "logits", "gather")}
    by["buffers"] = over.buffers
    by["context"] = np.full(len(worst), over.context)
    peak = sum(by.values(), np.zeros(len(worst)))
    load = by["weights"] + by["context"]
    # Adam creates its moments at the end of the first step; its master weights are there before.
    moments = by["optimizer"] * (2.0 / 3.0)
    states = by["weights"] + by["gradients"] + by["optimizer"]
    by_phase = dict(zip(MEMORY_PHASES, (load, peak - moments, peak, peak, states + outside), strict=True))
    reserved = memory.reserved_bytes(peak, outside, over.reserved_ratio)
    return peak, by, by_phase, reserved, rows.stages.first_rank[rows.stage_row][at]


def pipeline_times(job: TrainingJob, cluster: Cluster, layout: Layout, constants: Constants) -> PipelineTimes:
    """Block times of one layout's every rank and chunk, for replay and timeline."""
    rows = _Rows.of(job, cluster, LayoutBatch.of([layout]), constants)
    chunks = np.array(chunk_parts(layout.pp, layout.vpp, layout.stage_split, tuple(g.repeat for g in job.model.layers)))

    def laid_out(table: FloatArray) -> FloatArray:
        return (chunks @ table[0]).reshape(layout.vpp, layout.pp).T.copy()

    return PipelineTimes(
        schedule=layout.schedule, pp=layout.pp, vpp=layout.vpp, n_micro_batches=int(rows.n_micro_batches[0]),
        forward_s=laid_out(rows.blocks.total_forward_s()), backward_s=laid_out(rows.blocks.total_backward_s()),
        hop_s=float(_hop_s(rows)[0]),
    )
