"""Block times: what each part of a model costs for one micro-batch on one rank, on distinct shapes only.

A *part* is what stages are counted in: the prologue, one layer of each kind, the epilogue (K parts in all). Rows are
distinct shapes (tp, sp, micro_batch, cp, ep, ..) times recompute masks; the step gathers them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields
from typing import NamedTuple

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
    trainable_parameters,
)
from meshwright.costmodel.axis import Traffic, context, expert, tensor
from meshwright.costmodel.communication import collective_time_s, point_to_point_time_s
from meshwright.costmodel.kernel import (
    FloatArray,
    KernelConstants,
    accumulation_time_s,
    backward_time_s,
    forward_time_s,
)
from meshwright.costmodel.mesh import GroupPlacement, place
from meshwright.costmodel.operator import Operator, Shapes
from meshwright.costmodel.overlap import exposed_beside_s, exposed_s
from meshwright.costmodel.precision import quantisation
from meshwright.costmodel.recompute import part_masks, parts_of, recomputed, shapes_of
from meshwright.formula import formula
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import CP_KINDS, DISPATCHERS, LayoutBatch
from meshwright.specs.model import BlockSpec

IntArray = npt.NDArray[np.int32]


#: The axes whose traffic belongs to blocks; their exposed communication is a term of the step each.
COMM_AXES = ("tp", "cp", "ep")


@dataclass(slots=True)
class BlockTimes:
    """Seconds, bytes and FLOPs of each part for a micro-batch and rank: (K, r) for K parts and r rows.

    Row ``i * M + j`` is shape ``i`` under recompute mask ``j`` of M. ``*_s`` GPU times, ``weight_s`` the part of
    ``backward_s`` that makes weight gradients; ``comm_*_s`` (3, K, r) exposed communication of COMM_AXES; ``hidden_s``
    communication that runs beside computation, ``beside_backward_s`` the part of it that a forward sends while another
    micro-batch runs backward; ``launch_*_s`` what waiting for the CPU adds (backward: with recompute).
    """

    forward_s: FloatArray
    backward_s: FloatArray
    weight_s: FloatArray
    recompute_s: FloatArray
    comm_forward_s: FloatArray
    comm_backward_s: FloatArray
    comm_recompute_s: FloatArray
    hidden_s: FloatArray
    beside_backward_s: FloatArray
    launch_forward_s: FloatArray
    launch_backward_s: FloatArray
    recompute_flops: FloatArray

    def total_forward_s(self) -> FloatArray:
        """Everything a forward takes, (K, r)."""
        return np.asarray(self.forward_s + self.comm_forward_s.sum(axis=0) + self.launch_forward_s)

    def total_backward_s(self) -> FloatArray:
        """Everything a backward takes, recompute included, (K, r)."""
        communication = self.comm_backward_s.sum(axis=0) + self.comm_recompute_s.sum(axis=0)
        return np.asarray(self.backward_s + self.recompute_s + communication + self.launch_backward_s)

    def comm_s(self, axis: str) -> FloatArray:
        """Exposed communication of one of COMM_AXES in all passes, (K, r)."""
        index = COMM_AXES.index(axis)
        passes = (self.comm_forward_s, self.comm_backward_s, self.comm_recompute_s)
        return np.asarray(sum(table[index] for table in passes))


@formula("the GPU waits for the slower of itself and the CPU that feeds it; soft maximum", "s")
def launch_wait_s(gpu_s: FloatArray, cpu_s: FloatArray, launch_softness: float) -> FloatArray:
    """What CPU launches add to ``gpu_s`` of GPU work: (gpu^q + cpu^q)^(1/q) - gpu."""
    larger = np.maximum(np.maximum(gpu_s, cpu_s), 1e-12)
    q = launch_softness
    return np.asarray(larger * ((gpu_s / larger) ** q + (cpu_s / larger) ** q) ** (1.0 / q) - gpu_s)


@dataclass(frozen=True, slots=True)
class Shaped:
    """What the rows of the block tables are: layouts of distinct shapes, and what their schedules do.

    ``hides_experts`` (r,): expert traffic of one micro-batch runs beside the computation of another (DualPipe);
    ``splits_backward``: some schedule asks for the weight gradient's part of the backward.
    """

    layouts: LayoutBatch
    hides_experts: npt.NDArray[np.bool_]
    splits_backward: bool


def block_times(job: TrainingJob, cluster: Cluster, rows: Shaped, masks: IntArray, constants: Constants) -> BlockTimes:
    """Times of every part on the distinct shapes of ``rows`` under each recompute mask."""
    parts = parts_of(job)
    shapes = shapes_of(job, rows.layouts)
    kernel = KernelConstants.of(cluster.gpu, job, constants)
    wire = _Wire(job, cluster, rows, shapes, constants)
    size = (len(parts), len(shapes.tp), len(masks))
    found = {
        f.name: np.empty((len(COMM_AXES), *size) if f.name.startswith("comm_") else size) for f in fields(BlockTimes)
    }
    for index, members in enumerate(parts):
        part = _Part(job, shapes, kernel, constants)
        part.splits_backward = rows.splits_backward
        for member in members:
            part.add(member, wire)
        if not job.gradient_accumulation_fusion:
            held = trainable_parameters(job, members)
            elements = held.sharded / shapes.tp + held.replicated + held.expert / (shapes.ep * shapes.etp)
            part.sums["backward_s"] += accumulation_time_s(elements, job, kernel)
        for name, table in part.finish(rows.hides_experts, part_masks(masks, index, len(parts))).items():
            found[name][..., index, :, :] = table
    return BlockTimes(**{name: table.reshape(*table.shape[:-2], -1) for name, table in found.items()})


class _Spent(NamedTuple):
    """Communication of one block on one axis, (r,) each: seconds and calls of each pass."""

    forward_s: FloatArray
    backward_s: FloatArray
    forward_calls: FloatArray
    backward_calls: FloatArray


class _Wire:
    """The communication of blocks on every shape: placements once, each size of message priced once."""

    def __init__(self, job: TrainingJob, cluster: Cluster, rows: Shaped, shapes: Shapes, constants: Constants) -> None:
        self.job, self.cluster, self.rows, self.shapes, self.constants = job, cluster, rows.layouts, shapes, constants
        self._groups: dict[str, GroupPlacement] = {}
        self._priced: dict[tuple[str, str, bytes], FloatArray] = {}

    def groups(self, name: str) -> GroupPlacement:
        if name not in self._groups:
            self._groups[name] = place(name, self.cluster, self.rows)
        return self._groups[name]

    def tensor(self, phases: tuple[str, ...], number: float, size_ratio: FloatArray) -> _Spent | None:
        """``number`` reductions of ``size_ratio`` activations in each of ``phases``; None where there are none."""
        if not number or not (self.rows.tp > 1).any():
            return None
        spent = self._nothing()
        for sp in (False, True):
            used = np.where((self.rows.tp > 1) & ((self.rows.sp != 0) == sp), number, 0.0)
            if used.any():
                for traffic in tensor.sends(phases, self.shapes, sequence_parallel=sp):
                    sent = dataclasses.replace(traffic, size_bytes=traffic.size_bytes * size_ratio)
                    spent = self._add(spent, sent, self._seconds(sent), used)
        return spent

    @property
    def cuts_sequences(self) -> bool:
        """Whether any row has context parallelism."""
        return bool((self.rows.cp > 1).any())

    @property
    def spreads_experts(self) -> bool:
        """Whether any row has expert or expert-tensor parallelism."""
        return bool(((self.rows.ep > 1) | (self.rows.etp > 1)).any())

    def context(
        self,
        query_bytes: FloatArray,
        key_value_bytes: FloatArray,
        core_s: tuple[FloatArray, FloatArray],
        *,
        recurrent: bool,
    ) -> tuple[_Spent, dict[str, FloatArray]]:
        """What context parallelism exposes of one block, and the seconds of each pass that hide behind its core.

        ``core_s`` of its forward and backward, (r,): a ring computes on one part while the next arrives, so all parts
        but the first may hide.
        """
        spent, hidden = self._nothing(), {phase: np.zeros(len(self.rows)) for phase in ("forward", "backward")}
        for code, kind in enumerate(CP_KINDS):
            used = ((self.rows.cp > 1) & (self.rows.cp_kind == code)).astype(float)
            if not used.any():
                continue
            for traffic in context.sends(kind, query_bytes, key_value_bytes, self.shapes.cp, recurrent=recurrent):
                seconds = self._seconds(traffic)
                if traffic.hidden_by:
                    window_s = core_s[0] if traffic.phase == "forward" else core_s[1]
                    sent = traffic.count * seconds
                    shown = exposed_beside_s(sent, window_s * (self.shapes.cp - 1.0) / self.shapes.cp)
                    hidden[traffic.phase] += used * (sent - shown)
                    seconds = shown / np.maximum(traffic.count, 1.0)
                spent = self._add(spent, traffic, seconds, used)
        return spent, hidden

    def experts(self, member: BlockSpec, size_bytes: FloatArray) -> _Spent:
        """Dispatch and combine of one layer of experts."""
        spent = self._nothing()
        token_bytes = float(self.shapes.element_bytes * self.shapes.hidden_size)
        top_k = float(member.options.get("experts_per_token", 1))
        for code, dispatcher in enumerate(DISPATCHERS):
            used = ((self.rows.ep * self.rows.etp > 1) & (self.rows.dispatcher == code)).astype(float)
            if used.any():
                for traffic in expert.sends(dispatcher, size_bytes, token_bytes, self.shapes, self.groups("ep"), top_k):
                    several = np.where(getattr(self.rows, traffic.group) > 1, used, 0.0)
                    if several.any():
                        spent = self._add(spent, traffic, self._seconds(traffic), several)
        return spent

    def _nothing(self) -> _Spent:
        zero = np.zeros(len(self.rows))
        return _Spent(zero, zero, zero, zero)

    def _add(self, spent: _Spent, traffic: Traffic, seconds: FloatArray, used: FloatArray) -> _Spent:
        calls = used * traffic.count
        if traffic.phase == "forward":
            return spent._replace(
                forward_s=spent.forward_s + calls * seconds, forward_calls=spent.forward_calls + calls
            )
        return spent._replace(
            backward_s=spent.backward_s + calls * seconds, backward_calls=spent.backward_calls + calls
        )

    def _seconds(self, traffic: Traffic) -> FloatArray:
        # Most blocks move the same activation, forward and backward.
        message = (traffic.collective, traffic.group, traffic.size_bytes.tobytes())
        if message not in self._priced:
            self._priced[message] = self._price(traffic)
        return self._priced[message]

    def _price(self, traffic: Traffic) -> FloatArray:
        groups = self.groups(traffic.group)
        if traffic.collective == "send_recv":
            return point_to_point_time_s(
                traffic.size_bytes, self.cluster, groups.crosses_nodes, groups.groups_per_node, self.constants
            )
        return collective_time_s(
            traffic.collective,
            traffic.size_bytes,
            self.cluster,
            groups.size,
            groups.ranks_per_node,
            groups.groups_per_node,
            self.constants,
        )


class _Repeated:
    """What recomputing one module repeats, (r,) each; ``comm_s`` (3, r) on COMM_AXES."""

    def __init__(self, n_shapes: int) -> None:
        self.forward_s, self.flops, self.cpu_s = (np.zeros(n_shapes) for _ in range(3))
        self.comm_s = np.zeros((len(COMM_AXES), n_shapes))


class _Part:
    """Sums over the blocks of one part, (r,) each for r shapes; masks come in at the end."""

    def __init__(self, job: TrainingJob, shapes: Shapes, kernel: KernelConstants, constants: Constants) -> None:
        self.job, self.shapes, self.kernel, self.constants = job, shapes, kernel, constants
        self.sums = {
            name: np.zeros_like(shapes.tp) for name in ("forward_s", "backward_s", "weight_s", "beside_backward_s")
        }
        self.splits_backward = False
        self.comm = {phase: np.zeros((len(COMM_AXES), len(shapes.tp))) for phase in ("forward", "backward")}
        self.cpu = {phase: np.zeros_like(shapes.tp) for phase in ("forward", "backward")}
        #: what runs beside the computation of each pass: it hides nothing else
        self.beside = {phase: np.zeros_like(shapes.tp) for phase in ("forward", "backward")}
        self.repeated: dict[str, _Repeated] = {}
        eager = 0.0 if job.cuda_graphs else 1.0
        self.per_kernel_s = eager * constants.get("launch_s_per_kernel", job.attention)
        self.per_backward_kernel_s = eager * constants.get("backward_launch_s_per_kernel", job.attention)
        self.per_collective_s = eager * constants.get("collective_launch_s", job.attention)

    def add(self, member: BlockSpec, wire: _Wire) -> None:
        """One block: its operators and its traffic."""
        kind = blocks.kind(member)
        core = [np.zeros_like(self.shapes.tp), np.zeros_like(self.shapes.tp)]
        for operator in kind.operators(self.job.model, member, self.shapes):
            self._operator(operator, member)
            if operator.module == "core_attention" and wire.cuts_sequences:
                core[0] = core[0] + operator.count * forward_time_s(operator, self.job, self.kernel)
                needs = backward_of(self.job, member)
                core[1] = core[1] + operator.count * backward_time_s(operator, self.job, self.kernel, needs)
        module = getattr(kind, "MODULE", member.kind)
        if kind.TP_REDUCE:
            reductions = blocks.tp_reductions(self.job.model, member, self.shapes)
            self._spent("tp", module, wire.tensor(kind.TP_REDUCE, *reductions))
        if (exchange := getattr(kind, "sequence_exchange", None)) and wire.cuts_sequences:
            query_bytes, key_value_bytes = exchange(self.job.model, member, self.shapes)
            recurrent = bool(getattr(kind, "RECURRENT", False))
            spent, hidden_s = wire.context(query_bytes, key_value_bytes, (core[0], core[1]), recurrent=recurrent)
            self._spent("cp", "core_attention", spent)
            for phase, seconds in hidden_s.items():
                self.beside[phase] += seconds
        if (exchange := getattr(kind, "expert_exchange", None)) and wire.spreads_experts:
            size_bytes = exchange(self.job.model, member, self.shapes)
            self._spent("ep", "moe", wire.experts(member, size_bytes))

    def _operator(self, operator: Operator, member: BlockSpec) -> None:
        needs = backward_of(self.job, member)
        self._run(operator, needs)
        if self.kernel.low is not None and is_linear(operator):
            self._run(quantisation(operator, self.job), needs)
        if self.job.frozen_dtype == "nf4" and needs != "all" and is_linear(operator):
            self._run(dequantisation(operator, self.job), needs)
        if is_adapted(operator, member, self.job):
            for beside in adapter_operators(operator, member, self.job):
                self._run(beside, "all")

    def _run(self, operator: Operator, needs: Backward) -> None:
        """An operator's time, launches and FLOPs; ``needs`` says which gradients its backward computes."""
        count, repeated = operator.count, self._repeated(operator.module)
        forward = count * forward_time_s(operator, self.job, self.kernel)
        backward = count * backward_time_s(operator, self.job, self.kernel, needs)
        launches = 0.0 if needs == "none" else count * operator.kernels[1]
        self.sums["forward_s"] += forward
        self.sums["backward_s"] += backward
        if self.splits_backward and needs == "all":
            inputs_s = count * backward_time_s(operator, self.job, self.kernel, "input")
            self.sums["weight_s"] += np.maximum(backward - inputs_s, 0.0)
        self.cpu["forward"] += count * operator.kernels[0] * self.per_kernel_s
        self.cpu["backward"] += launches * self.per_backward_kernel_s
        repeated.forward_s += forward
        repeated.flops += count * operator.forward_flops * operator.causal_ratio
        repeated.cpu_s += count * operator.kernels[0] * self.per_kernel_s

    def _spent(self, axis: str, module: str, spent: _Spent | None) -> None:
        if spent is None:
            return
        index, repeated = COMM_AXES.index(axis), self._repeated(module)
        self.comm["forward"][index] += spent.forward_s
        self.comm["backward"][index] += spent.backward_s
        self.cpu["forward"] += spent.forward_calls * self.per_collective_s
        self.cpu["backward"] += spent.backward_calls * self.per_collective_s
        repeated.comm_s[index] += spent.forward_s
        repeated.cpu_s += spent.forward_calls * self.per_collective_s

    def _repeated(self, module: str) -> _Repeated:
        if module not in self.repeated:
            self.repeated[module] = _Repeated(len(self.shapes.tp))
        return self.repeated[module]

    def finish(self, hides_experts: npt.NDArray[np.bool_], masks: IntArray) -> dict[str, FloatArray]:
        """The columns of BlockTimes, with waits for launches: (.., r, M) under M masks, (.., r, 1) if all are alike."""
        sums, size = self.sums, (len(self.shapes.tp), len(masks))
        softness = self.constants.get("launch_softness")
        if self.job.tp_comm_overlap:
            self._hide_tensor()
        if hides_experts.any():
            self._hide_experts(hides_experts)
        recompute_s, recompute_flops, cpu_s = (np.zeros(size) for _ in range(3))
        comm_s = np.zeros((len(COMM_AXES), *size))
        for module, repeated in self.repeated.items():
            again = recomputed(masks, module)
            if again.any():
                recompute_s += again * repeated.forward_s[:, None]
                recompute_flops += again * repeated.flops[:, None]
                cpu_s += again * repeated.cpu_s[:, None]
                for axis in np.flatnonzero(repeated.comm_s.any(axis=1)):
                    comm_s[axis] += again * repeated.comm_s[axis][:, None]
        forward = sums["forward_s"] + self.comm["forward"].sum(axis=0)
        backward = (sums["backward_s"] + self.comm["backward"].sum(axis=0))[:, None] + recompute_s + comm_s.sum(axis=0)
        cpu_s += self.cpu["backward"][:, None]
        alike = sums | {
            "hidden_s": self.beside["forward"] + self.beside["backward"],
            "launch_forward_s": launch_wait_s(forward, self.cpu["forward"], softness),
            **{f"comm_{phase}_s": table for phase, table in self.comm.items()},
        }
        by_mask = {
            "recompute_s": recompute_s,
            "recompute_flops": recompute_flops,
            "launch_backward_s": launch_wait_s(backward, cpu_s, softness),
            "comm_recompute_s": comm_s,
        }
        return {name: table[..., None] for name, table in alike.items()} | by_mask

    def _hide_tensor(self) -> None:
        """Gathers and scatters of sequence parallelism beside the GEMMs they feed, a TP rank's share at a time.

        As Transformer Engine's user buffers do; the first share never hides (arXiv 2205.05198 names the collectives).
        """
        index, sums, tp = COMM_AXES.index("tp"), self.sums, self.shapes.tp
        split = self.shapes.sp_degree > 1
        for phase in ("forward", "backward"):
            sent, window = self.comm[phase][index], sums[f"{phase}_s"] - self.beside[phase]
            shown = np.where(split, exposed_s(sent, window, tp), sent)
            self.beside[phase] += sent - shown
            self.comm[phase][index] = shown

    def _hide_experts(self, hides: npt.NDArray[np.bool_]) -> None:
        """Dispatch and combine of one micro-batch beside the other pass of another one (arXiv 2412.19437, 3.2.1)."""
        index, sums = COMM_AXES.index("ep"), self.sums
        for phase, other in (("forward", "backward"), ("backward", "forward")):
            sent, window = self.comm[phase][index], sums[f"{other}_s"] - self.beside[other]
            shown = np.where(hides, exposed_beside_s(sent, window), sent)
            self.beside[other] += sent - shown
            if phase == "forward":
                sums["beside_backward_s"] += sent - shown
            self.comm[phase][index] = shown
