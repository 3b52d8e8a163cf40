"""Block times: what each part of a model costs for one micro-batch on one rank, on distinct shapes only.

A *part* is what stages are counted in: the prologue, one layer of each group, the epilogue (K parts in all). Rows are
distinct shapes (tp, sp, micro_batch) times recompute masks; the step gathers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from meshwright.costmodel import block as blocks
from meshwright.costmodel.adapters import (
    Backward,
    adapter_operators,
    backward_of,
    dequantisation,
    is_adapted,
    is_linear,
)
from meshwright.costmodel.axis import tensor
from meshwright.costmodel.communication import collective_time_s
from meshwright.costmodel.kernel import (
    FloatArray,
    KernelConstants,
    accumulation_time_s,
    backward_time_s,
    forward_time_s,
)
from meshwright.costmodel.mesh import GroupPlacement
from meshwright.costmodel.operator import Operator, Shapes
from meshwright.costmodel.parameters import block_parameters
from meshwright.costmodel.precision import quantisation
from meshwright.costmodel.recompute import part_masks, parts_of, recomputed, shapes_of
from meshwright.formula import formula
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.model import BlockSpec

IntArray = npt.NDArray[np.int32]


@dataclass(slots=True)
class BlockTimes:
    """Seconds, bytes and FLOPs of each part for a micro-batch and rank: (K, r) for K parts and r rows.

    Row ``i * M + j`` is shape ``i`` under recompute mask ``j`` of M. ``*_s`` GPU times; ``tp_*_s`` exposed
    tensor-parallel communication; ``launch_*_s`` what waiting for the CPU adds (backward: with recompute).
    """

    forward_s: FloatArray
    backward_s: FloatArray
    recompute_s: FloatArray
    tp_forward_s: FloatArray
    tp_backward_s: FloatArray
    tp_recompute_s: FloatArray
    launch_forward_s: FloatArray
    launch_backward_s: FloatArray
    recompute_flops: FloatArray

    def total_forward_s(self) -> FloatArray:
        """Everything a forward takes, (K, r)."""
        return self.forward_s + self.tp_forward_s + self.launch_forward_s

    def total_backward_s(self) -> FloatArray:
        """Everything a backward takes, recompute included, (K, r)."""
        return self.backward_s + self.recompute_s + self.tp_backward_s + self.tp_recompute_s + self.launch_backward_s


@formula("the GPU waits for the slower of itself and the CPU that feeds it; soft maximum", "s")
def launch_wait_s(gpu_s: FloatArray, cpu_s: FloatArray, launch_softness: float) -> FloatArray:
    """What CPU launches add to ``gpu_s`` of GPU work: (gpu^q + cpu^q)^(1/q) - gpu."""
    larger = np.maximum(np.maximum(gpu_s, cpu_s), 1e-12)
    q = launch_softness
    return np.asarray(larger * ((gpu_s / larger) ** q + (cpu_s / larger) ** q) ** (1.0 / q) - gpu_s)


def block_times(
    job: TrainingJob,
    cluster: Cluster,
    rows: LayoutBatch,
    masks: IntArray,
    tp_groups: GroupPlacement,
    constants: Constants,
) -> BlockTimes:
    """Times of every part on the distinct shapes of ``rows`` (tp, sp, micro_batch) under each recompute mask.

    ``tp_groups`` is where the TP groups of ``rows`` sit.
    """
    parts = parts_of(job)
    shapes = shapes_of(job, rows)
    kernel = KernelConstants.of(cluster.gpu, job, constants)
    wire = _TpTimes.of(shapes, rows, cluster, tp_groups, constants)
    found = []
    for index, members in enumerate(parts):
        part = _Part(job, shapes, kernel, part_masks(masks, index, len(parts)), constants)
        for member in members:
            part.add(member, wire)
        if not job.gradient_accumulation_fusion:
            held = block_parameters(job.model, members)
            accumulation = accumulation_time_s(held.sharded / shapes.tp + held.replicated, job, kernel)
            part.sums["backward_s"] += accumulation[:, None]
        found.append(part.finish())
    return BlockTimes(**{f.name: np.stack([part[f.name] for part in found]) for f in fields(BlockTimes)})


@dataclass(slots=True)
class _TpTimes:
    """Seconds and launches of the TP collectives of every shape, (r,): they all move one activation."""

    seconds: Mapping[str, FloatArray]
    uses: Mapping[bool, FloatArray]

    @classmethod
    def of(
        cls, shapes: Shapes, rows: LayoutBatch, cluster: Cluster, groups: GroupPlacement, constants: Constants
    ) -> _TpTimes:
        sent = [t for sp in (False, True) for t in tensor.sends(("forward",), shapes, sequence_parallel=sp)]
        seconds = {
            t.collective: collective_time_s(
                t.collective,
                t.size_bytes,
                cluster,
                groups.size,
                groups.ranks_per_node,
                groups.groups_per_node,
                constants,
            )
            for t in (sent if (rows.tp > 1).any() else ())
        }
        uses = {sp: ((rows.tp > 1) & ((rows.sp != 0) == sp)).astype(float) for sp in (False, True)}
        return cls(seconds, uses)

    def phase(self, phases: tuple[str, ...], phase: str, shapes: Shapes) -> tuple[FloatArray, FloatArray]:
        """Seconds and calls of one block's traffic in ``phase``, (r,) each."""
        seconds, calls = np.zeros_like(shapes.tp), np.zeros_like(shapes.tp)
        for sequence_parallel, used in self.uses.items():
            if self.seconds and used.any():
                for traffic in tensor.sends(phases, shapes, sequence_parallel=sequence_parallel):
                    if traffic.phase == phase:
                        seconds = seconds + used * traffic.count * self.seconds[traffic.collective]
                        calls = calls + used * traffic.count
        return seconds, calls


class _Part:
    """Sums over the blocks of one part: (r, M) for r shapes and M recompute masks."""

    def __init__(
        self, job: TrainingJob, shapes: Shapes, kernel: KernelConstants, masks: IntArray, constants: Constants
    ) -> None:
        self.job, self.shapes, self.kernel, self.masks, self.constants = job, shapes, kernel, masks, constants
        size = (len(shapes.tp), len(masks))
        self.sums = {f.name: np.zeros(size) for f in fields(BlockTimes)}
        self.cpu = {phase: np.zeros(size) for phase in ("forward", "backward", "recompute")}
        eager = 0.0 if job.cuda_graphs else 1.0
        self.per_kernel_s = eager * constants.get("launch_s_per_kernel", job.attention)
        self.per_backward_kernel_s = eager * constants.get("backward_launch_s_per_kernel", job.attention)
        self.per_collective_s = eager * constants.get("collective_launch_s", job.attention)

    def add(self, member: BlockSpec, wire: _TpTimes) -> None:
        """One block: its operators and its TP traffic."""
        kind = blocks.kind(member)
        for operator in kind.operators(self.job.model, member, self.shapes):
            self._operator(operator, member)
        if kind.TP_REDUCE:
            self._tp(member.kind, kind.TP_REDUCE, wire)

    def _operator(self, operator: Operator, member: BlockSpec) -> None:
        needs = backward_of(self.job, member)
        self._run(operator, needs)
        if self.kernel.low is not None and is_linear(operator):
            self._run(quantisation(operator, self.job), needs)
        if self.job.frozen_dtype == "nf4" and needs != "all" and is_linear(operator):
            self._run(dequantisation(operator, self.job), needs)
        if is_adapted(operator, self.job):
            for beside in adapter_operators(operator, member, self.job):
                self._run(beside, "all")

    def _run(self, operator: Operator, needs: Backward) -> None:
        """An operator's time, launches and FLOPs; ``needs`` says which gradients its backward computes."""
        again, count, size = recomputed(self.masks, operator.module), operator.count, self.shapes.tp.shape
        forward = count * np.broadcast_to(forward_time_s(operator, self.job, self.kernel), size)[:, None]
        causal_flops = np.asarray(operator.forward_flops * operator.causal_ratio)
        flops = count * np.broadcast_to(causal_flops, size)[:, None]
        backward = count * np.broadcast_to(backward_time_s(operator, self.job, self.kernel, needs), size)
        launches = 0.0 if needs == "none" else count * operator.kernels[1]
        self.sums["forward_s"] += forward
        self.sums["recompute_s"] += again * forward
        self.sums["backward_s"] += backward[:, None]
        self.sums["recompute_flops"] += again * flops
        self.cpu["forward"] += count * operator.kernels[0] * self.per_kernel_s
        self.cpu["recompute"] += again * (count * operator.kernels[0] * self.per_kernel_s)
        self.cpu["backward"] += launches * self.per_backward_kernel_s

    def _tp(self, kind: str, phases: tuple[str, ...], wire: _TpTimes) -> None:
        again = recomputed(self.masks, kind)
        forward, calls = (x[:, None] for x in wire.phase(phases, "forward", self.shapes))
        self.sums["tp_forward_s"] += forward
        self.sums["tp_recompute_s"] += again * forward
        self.cpu["forward"] += calls * self.per_collective_s
        self.cpu["recompute"] += again * (calls * self.per_collective_s)
        backward, calls = (x[:, None] for x in wire.phase(phases, "backward", self.shapes))
        self.sums["tp_backward_s"] += backward
        self.cpu["backward"] += calls * self.per_collective_s

    def finish(self) -> dict[str, FloatArray]:
        """Waits for launches put in; flat (r * M,)."""
        sums, softness = self.sums, self.constants.get("launch_softness")
        forward = sums["forward_s"] + sums["tp_forward_s"]
        backward = sums["backward_s"] + sums["tp_backward_s"] + sums["recompute_s"] + sums["tp_recompute_s"]
        sums["launch_forward_s"] = launch_wait_s(forward, self.cpu["forward"], softness)
        sums["launch_backward_s"] = launch_wait_s(backward, self.cpu["backward"] + self.cpu["recompute"], softness)
        return {name: table.ravel() for name, table in sums.items()}
