"""What of a model is trained: all of it, LoRA adapters beside frozen weights, or all but frozen blocks.

Frozen weights have no gradient, no optimizer state and no weight-gradient GEMM; the gradient of their input is still
needed wherever something before them is trained. LoRA: Hu et al., arXiv 2106.09685; NF4 storage: Dettmers et al.,
arXiv 2305.14314.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from meshwright.costmodel import block as blocks
from meshwright.costmodel.operator import FloatArray, Operator, gemm, memory
from meshwright.costmodel.parameters import block_parameters, one_rank_shapes
from meshwright.formula import formula
from meshwright.specs.job import TrainingJob
from meshwright.specs.model import BlockSpec

#: What a backward computes: gradients of inputs and weights, of inputs alone, or nothing at all.
Backward = Literal["all", "input", "none"]
#: Kinds of blocks whose input is data, not another block's output.
READ_DATA = ("embedding", "patch_embedding", "vision_encoder")
#: NF4: 4 bits an element, an 8-bit scale a block of 64, an fp32 scale a block of 256 of those (arXiv 2305.14314, 3).
NF4_BYTES = 0.5 + 1.0 / 64.0 + 4.0 / (64.0 * 256.0)


class Share(NamedTuple):
    """A quantity of some blocks by how layouts cut it: as ``Parameters``, but of any unit."""

    sharded: float
    replicated: float
    expert: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.sharded + self.replicated + self.expert


def is_linear(operator: Operator) -> bool:
    """Whether the operator is a linear layer proper: what adapters go beside and narrow formats apply to.

    The head and routers are not (as in PEFT's ``all-linear`` and in Transformer Engine's recipes).
    """
    return (
        operator.kind == "gemm" and operator.trainable_weight and operator.low_precision and operator.module != "head"
    )


def is_adapted(operator: Operator, member: BlockSpec, job: TrainingJob) -> bool:
    """Whether a LoRA adapter lies beside the operator of the block ``member``."""
    if not job.lora_rank or member.kind in job.frozen or not is_linear(operator):
        return False
    return job.lora_targets == "all-linear" or operator.module in ("attention", "mla_up")


def backward_of(job: TrainingJob, member: BlockSpec) -> Backward:
    """What the backward through a block computes for its base weights.

    Nothing for a frozen block that reads the data itself: no trained weight lies before it.
    """
    frozen = member.kind in job.frozen
    if not job.lora_rank and not frozen:
        return "all"
    if member.kind not in READ_DATA:
        return "input"
    adapted = member.kind == "vision_encoder" and job.lora_targets == "all-linear" and not frozen
    return "input" if adapted else "none"


def adapter_operators(operator: Operator, member: BlockSpec, job: TrainingJob) -> list[Operator]:
    """The adapter beside a GEMM: down to the rank, up again, and the sum with the base's output."""
    rank, module = float(job.lora_rank), operator.module
    wide = rank * projections(operator, member)
    sums = operator.m * operator.n * operator.batch * float(job.element_bytes)
    down = gemm("lora_down", module, operator.m, wide, operator.k, batch=operator.batch, low_precision=False)
    up = gemm("lora_up", module, operator.m, operator.n, rank, batch=operator.batch, low_precision=False)
    # Backward needs no pass for the sum: both terms have the same gradient. It adds the input's two gradients.
    inputs = operator.m * operator.k * operator.batch * float(job.element_bytes)
    return [down, up, memory("lora_sum", module, np.asarray(3.0 * sums), np.asarray(3.0 * inputs))]


def dequantisation(operator: Operator, job: TrainingJob) -> Operator:
    """Unpacking a frozen NF4 weight before each product, forward and backward."""
    traffic = np.asarray(operator.k * operator.n * operator.batch * (NF4_BYTES + job.element_bytes))
    return memory(f"{operator.name}_dequantisation", operator.module, traffic, traffic)


def projections(operator: Operator, member: BlockSpec) -> int:
    """Linear layers that a fused GEMM holds, each of which gets an adapter of its own: Q, K and V; gate and up."""
    if operator.name.endswith("qkv"):
        return 3
    return 2 if member.options.get("gated") and operator.name.endswith("_up") else 1


@formula("LoRA, arXiv 2106.09685: matrices of k x r and r x n beside one of k x n", "elements")
def adapter_parameters(k: FloatArray, n: FloatArray, batch: FloatArray, projections: int, lora_rank: int) -> FloatArray:
    """Elements of the adapters beside ``batch`` matrices that hold ``projections`` layers of ``n`` columns in all."""
    return np.asarray(batch * lora_rank * (projections * k + n))


def linear_parameters(job: TrainingJob, members: Iterable[BlockSpec], *, adapters: bool = False) -> Share:
    """Elements of the linear layers of some blocks, or of the ``adapters`` beside them.

    How layouts cut them shows in the shapes: what tp 2 halves is sharded, what ep 2 halves belongs to experts.
    """
    shapes = replace(one_rank_shapes(job), tp=np.array([1.0, 2.0, 1.0]), ep=np.array([1.0, 1.0, 2.0]))
    found = np.zeros(3)
    for member in members:
        for operator in blocks.kind(member).operators(job.model, member, shapes):
            if not is_linear(operator) or (adapters and not is_adapted(operator, member, job)):
                continue
            k, n, batch = (np.asarray(x, float) for x in (operator.k, operator.n, operator.batch * operator.count))
            if adapters:
                found += adapter_parameters(k, n, batch, projections(operator, member), job.lora_rank)
            else:
                found += batch * k * n
    whole, tp_halved, ep_halved = (float(x) for x in found)
    sharded, expert = 2.0 * (whole - tp_halved), 2.0 * (whole - ep_halved)
    return Share(sharded, whole - sharded - expert, expert)


def trainable_parameters(job: TrainingJob, members: Iterable[BlockSpec]) -> Share:
    """Elements of some blocks that have gradients and optimizer state."""
    members = tuple(members)
    if job.lora_rank:
        return linear_parameters(job, members, adapters=True)
    held = block_parameters(job.model, [member for member in members if member.kind not in job.frozen])
    return Share(held.sharded, held.replicated, held.expert)


def frozen_parameters(job: TrainingJob, members: Iterable[BlockSpec]) -> Share:
    """Elements of some blocks that are only read."""
    held = block_parameters(job.model, _frozen(job, members))
    return Share(held.sharded, held.replicated, held.expert)


def frozen_bytes(job: TrainingJob, members: Iterable[BlockSpec]) -> Share:
    """Bytes of the weights of some blocks that are only read: 16 bit, or NF4 in linear layers."""
    members = _frozen(job, members)
    held = frozen_parameters(job, members)
    packed = linear_parameters(job, members) if job.frozen_dtype == "nf4" else Share(0.0, 0.0, 0.0)
    width = float(job.element_bytes)
    return Share(*(width * all_ - (width - NF4_BYTES) * some for all_, some in zip(held, packed, strict=True)))


def _frozen(job: TrainingJob, members: Iterable[BlockSpec]) -> tuple[BlockSpec, ...]:
    return tuple(member for member in members if job.lora_rank or member.kind in job.frozen)
