"""Block times: what each part of a model costs for one micro-batch on one rank, on distinct shapes only.

A *part* is what stages are counted in: the prologue, one layer of each group, the epilogue (K parts in all). Rows are
the distinct (tp, sp, micro_batch, recompute) of a batch of layouts; the step gathers them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from meshwright.costmodel import block as blocks
from meshwright.costmodel.axis import tensor
from meshwright.costmodel.kernel import FloatArray, KernelConstants, backward_time_s, forward_time_s
from meshwright.costmodel.mesh import GroupPlacement
from meshwright.costmodel.nccl import collective_time_s
from meshwright.costmodel.operator import Operator, Parameters, Saved, Shapes
from meshwright.costmodel.parameters import block_parameters
from meshwright.formula import formula
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import RECOMPUTE_BITS, LayoutBatch
from meshwright.specs.model import BlockSpec

#: Recomputing a module recomputes what lies inside it.
_WITHIN = {"core_attention": ("core_attention", "attention"), "attention": ("attention",), "mlp": ("mlp",), "norm": ("norm",)}


@dataclass(slots=True)
class BlockTimes:
    """Seconds, bytes and FLOPs of each part, shape (r, K) for r distinct rows and K parts, a micro-batch and rank.

    ``*_s`` GPU times; ``tp_*_s`` exposed tensor-parallel communication; ``launch_*_s`` what waiting for the CPU adds
    (backward: with recompute). ``saved_bytes`` are kept to the backward, ``logits_bytes`` from loss forward to
    backward, ``working_bytes`` live while the part itself runs backward (its own recomputed activations).
    """

    forward_s: FloatArray
    backward_s: FloatArray
    recompute_s: FloatArray
    tp_forward_s: FloatArray
    tp_backward_s: FloatArray
    tp_recompute_s: FloatArray
    launch_forward_s: FloatArray
    launch_backward_s: FloatArray
    forward_flops: FloatArray
    recompute_flops: FloatArray
    saved_bytes: FloatArray
    logits_bytes: FloatArray
    working_bytes: FloatArray

    def total_forward_s(self) -> FloatArray:
        """Everything a forward takes, (r, K)."""
        return self.forward_s + self.tp_forward_s + self.launch_forward_s

    def total_backward_s(self) -> FloatArray:
        """Everything a backward takes, recompute included, (r, K)."""
        return self.backward_s + self.recompute_s + self.tp_backward_s + self.tp_recompute_s + self.launch_backward_s


def parts_of(job: TrainingJob) -> tuple[tuple[BlockSpec, ...], ...]:
    """Blocks of each part: prologue, one layer of each group, epilogue."""
    return (job.model.prologue, *(group.blocks for group in job.model.layers), job.model.epilogue)


@formula("the GPU waits for the slower of itself and the CPU that feeds it; soft maximum", "s")
def launch_wait_s(gpu_s: FloatArray, cpu_s: FloatArray, launch_softness: float) -> FloatArray:
    """What CPU launches add to ``gpu_s`` of GPU work: (gpu^q + cpu^q)^(1/q) - gpu."""
    larger = np.maximum(np.maximum(gpu_s, cpu_s), 1e-12)
    q = launch_softness
    return np.asarray(larger * ((gpu_s / larger) ** q + (cpu_s / larger) ** q) ** (1.0 / q) - gpu_s)


def block_times(job: TrainingJob, cluster: Cluster, rows: LayoutBatch, tp_groups: GroupPlacement,
                constants: Constants) -> BlockTimes:
    """Times of every part on the distinct ``rows`` (r,); ``tp_groups`` is where their TP groups sit."""
    parts = parts_of(job)
    n_rows = len(rows)
    out = BlockTimes(**{f.name: np.zeros((n_rows, len(parts))) for f in fields(BlockTimes)})
    tp = rows.tp.astype(float)
    shapes = Shapes(rows.micro_batch.astype(float), tp, np.where(rows.sp != 0, tp, 1.0), job.seq_len,
                    job.model.hidden_size, job.model.vocab_size, job.element_bytes, job.attention)
    kernel = KernelConstants.of(cluster.gpu, job, constants)
    for part, members in enumerate(parts):
        # The ends are never recomputed: recomputation wraps layers.
        mask = rows.recompute if 0 < part < len(parts) - 1 else np.zeros_like(rows.recompute)
        cpu = _CpuTime(job, cluster, constants, n_rows)
        for member in members:
            kind = blocks.kind(member)
            _add_operators(out, part, kind.operators(job.model, member, shapes), job, kernel, mask, cpu)
            _add_saved(out, part, kind.saved(job.model, member, shapes), mask)
            if kind.TP_REDUCE:
                _add_tp(out, part, member.kind, kind.TP_REDUCE, shapes, rows, cluster, tp_groups, constants, mask, cpu)
        if not job.gradient_accumulation_fusion:
            out.backward_s[:, part] += gradient_accumulation_s(block_parameters(job.model, members), shapes.tp, job, kernel)
        _finish_part(out, part, shapes, job, mask, cpu, constants)
    return out


@formula("every micro-batch reads its gradient and reads and writes the sum", "s")
def gradient_accumulation_s(parameters: Parameters, tp: FloatArray, job: TrainingJob, c: KernelConstants) -> FloatArray:
    """Adding one micro-batch's weight gradients to the gradient buffer in a pass of its own, (r,)."""
    traffic = (parameters.sharded / tp + parameters.replicated) * (job.element_bytes + 2 * job.grad_bytes)
    return np.asarray(traffic / (c.memory_bytes_per_s * c.memory_efficiency_ratio))


class _CpuTime:
    """CPU seconds that launches of a part need, per phase, (r,)."""

    def __init__(self, job: TrainingJob, cluster: Cluster, constants: Constants, n_rows: int) -> None:
        launch = 0.0 if job.cuda_graphs else 1.0
        self.per_kernel_s = launch * constants.get("launch_s_per_kernel", job.attention)
        self.per_backward_kernel_s = launch * constants.get("backward_launch_s_per_kernel", job.attention)
        self.per_collective_s = launch * constants.get("collective_launch_s", job.attention)
        self.forward_s = np.zeros(n_rows)
        self.backward_s = np.zeros(n_rows)
        self.recompute_s = np.zeros(n_rows)


def _recomputed(mask: npt.NDArray[np.int32], module: str) -> FloatArray:
    """1.0 for rows whose recompute mask covers ``module``."""
    bits = RECOMPUTE_BITS["layer"]
    for cover in _WITHIN.get(module, ()):
        bits |= RECOMPUTE_BITS[cover]
    return ((mask & bits) != 0).astype(float)


def _add_operators(out: BlockTimes, part: int, operators: list[Operator], job: TrainingJob, kernel: KernelConstants,
                   mask: npt.NDArray[np.int32], cpu: _CpuTime) -> None:
    for operator in operators:
        forward = forward_time_s(operator, job, kernel)
        again = _recomputed(mask, operator.module)
        flops = np.asarray(operator.forward_flops)
        out.forward_s[:, part] += forward
        out.recompute_s[:, part] += again * forward
        out.backward_s[:, part] += backward_time_s(operator, job, kernel)
        out.forward_flops[:, part] += flops
        out.recompute_flops[:, part] += again * flops
        cpu.forward_s += operator.kernels[0] * cpu.per_kernel_s
        cpu.recompute_s += again * operator.kernels[0] * cpu.per_kernel_s
        cpu.backward_s += operator.kernels[1] * cpu.per_backward_kernel_s


def _add_saved(out: BlockTimes, part: int, items: list[Saved], mask: npt.NDArray[np.int32]) -> None:
    for item in items:
        if item.logits:
            out.logits_bytes[:, part] += item.size_bytes
        elif item.module == "layer":
            out.saved_bytes[:, part] += item.size_bytes
        else:
            again = _recomputed(mask, item.module)
            out.saved_bytes[:, part] += (1.0 - again) * item.size_bytes
            out.working_bytes[:, part] += again * item.size_bytes


def _add_tp(out: BlockTimes, part: int, kind: str, phases: tuple[str, ...], shapes: Shapes, rows: LayoutBatch,
            cluster: Cluster, groups: GroupPlacement, constants: Constants, mask: npt.NDArray[np.int32],
            cpu: _CpuTime) -> None:
    again = _recomputed(mask, kind)
    for sequence_parallel in (False, True):
        chosen = (rows.tp > 1) & ((rows.sp != 0) == sequence_parallel)
        if not chosen.any():
            continue
        for traffic in tensor.sends(phases, shapes, sequence_parallel=sequence_parallel):
            time = np.where(chosen, collective_time_s(
                traffic.collective, traffic.size_bytes, cluster, groups.size, groups.ranks_per_node,
                groups.groups_per_node, constants), 0.0)
            launch = traffic.count * np.where(chosen, cpu.per_collective_s, 0.0)
            if traffic.phase == "forward":
                out.tp_forward_s[:, part] += traffic.count * time
                out.tp_recompute_s[:, part] += again * traffic.count * time
                cpu.forward_s += launch
                cpu.recompute_s += again * launch
            else:
                out.tp_backward_s[:, part] += traffic.count * time
                cpu.backward_s += launch


def _finish_part(out: BlockTimes, part: int, shapes: Shapes, job: TrainingJob, mask: npt.NDArray[np.int32],
                 cpu: _CpuTime, constants: Constants) -> None:
    softness = constants.get("launch_softness")
    forward = out.forward_s[:, part] + out.tp_forward_s[:, part]
    backward = out.backward_s[:, part] + out.tp_backward_s[:, part]
    again = out.recompute_s[:, part] + out.tp_recompute_s[:, part]
    out.launch_forward_s[:, part] = launch_wait_s(forward, cpu.forward_s, softness)
    out.launch_backward_s[:, part] = launch_wait_s(backward + again, cpu.backward_s + cpu.recompute_s, softness)
    # A fully recomputed layer keeps its input only; what else it saved is needed again while it runs backward.
    full = (mask & RECOMPUTE_BITS["layer"]) != 0
    layer_input = shapes.element_bytes * shapes.outer_tokens * job.model.hidden_size
    saved = out.saved_bytes[:, part]
    out.working_bytes[:, part] += np.where(full, np.maximum(saved - layer_input, 0.0), 0.0)
    out.saved_bytes[:, part] = np.where(full, np.minimum(saved, layer_input), saved)
