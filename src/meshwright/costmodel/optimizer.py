"""Optimizers: what they keep of every parameter, and how long their step takes.

Adam in mixed precision after Rajbhandari et al., arXiv 1910.02054, section 3.1; 8-bit Adam after Dettmers et al.,
arXiv 2110.02861; Adafactor after Shazeer and Stern, arXiv 1804.04235; Muon after Liu et al., arXiv 2502.16982.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshwright.costmodel import block as blocks
from meshwright.costmodel.adapters import is_linear
from meshwright.costmodel.operator import FloatArray
from meshwright.costmodel.parameters import counted_parts, one_rank_shapes, parameter_count
from meshwright.costmodel.precision import QUANTISED_COPIES, recipe
from meshwright.formula import formula
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Gpu
from meshwright.specs.job import STATE_BYTES, TrainingJob

#: Full-size moments of each optimizer. Muon's second one exists where it hands over to Adam: all but linear layers.
MOMENTS = {"adam": 2, "unfused_adam": 2, "adam_8bit": 2, "sgd": 1, "adafactor": 0, "muon": 1}
#: 8-bit moments share an fp32 scale among a block of 256 (bitsandbytes; the paper has blocks of 2,048).
EIGHT_BIT_MOMENT_BYTES = 1.0 + 4.0 / 256.0
#: Traffic of temporaries that a fused kernel keeps in registers, bytes a parameter in fp32. PyTorch's AdamW without
#: ``fused`` (torch/optim/adam.py): decay, two moments, root, division, epsilon and update are passes of their own, 20
#: elements in all where the fused kernel moves 7. Adafactor: read the gradient for its sums, write the update, read it
#: for clipping and for use.
TEMPORARY_BYTES = {"unfused_adam": 52.0, "adafactor": 16.0}
#: Kernels a tensor that PyTorch's AdamW launches without ``foreach`` or ``fused``.
UNFUSED_KERNELS = 8
NEWTON_SCHULZ_STEPS = 5


class OptimizerBytes(NamedTuple):
    """Bytes of one trained parameter: working weight, gradient, and what the optimizer keeps (master copy included)."""

    weights: float
    gradients: float
    optimizer: float


class Matrices(NamedTuple):
    """The linear layers of a whole model, (l,): ``number`` matrices of ``rows`` x ``columns``."""

    rows: FloatArray
    columns: FloatArray
    number: FloatArray

    @property
    def elements(self) -> float:
        """Elements of all."""
        return float(np.sum(self.rows * self.columns * self.number))


def matrices(job: TrainingJob) -> Matrices:
    """The linear layers of the model, all experts counted."""
    model, shapes = job.model, one_rank_shapes(job)
    found = [
        (float(np.max(o.k)), float(np.max(o.n)), repeat * o.count * float(np.max(o.batch)))
        for repeat, members in counted_parts(model)
        for member in members
        for o in blocks.kind(member).operators(model, member, shapes)
        if is_linear(o)
    ]
    return Matrices(*np.array(found, float).reshape(-1, 3).T)


@formula("ZeRO, arXiv 1910.02054 section 3.1: 2 + 2 + 12 bytes for Adam in fp16", "bytes")
def state_bytes_per_parameter(job: TrainingJob) -> OptimizerBytes:
    """Bytes that one trained parameter takes, on average over the model where its parameters differ.

    They differ under Muon (Adam keeps embedding, head, norms and biases), Adafactor (a row and a column of each matrix)
    and FP8 or FP4 (copies of the linear layers' weights).
    """
    return OptimizerBytes(_weight_bytes(job), float(job.grad_bytes), job.master_bytes + moment_bytes(job))


def _weight_bytes(job: TrainingJob) -> float:
    """A 16-bit weight and its quantised copies, or these copies alone."""
    if not job.low_precision:
        return float(job.element_bytes)
    share = matrices(job).elements / parameter_count(job.model)
    copies = QUANTISED_COPIES * recipe(job).operand_bytes
    alone = job.fp8_param_gather and job.precision == "fp8"
    return job.element_bytes + share * (copies - (job.element_bytes if alone else 0.0))


def moment_bytes(job: TrainingJob) -> float:
    """Bytes of the moments of one parameter, on average over the model."""
    if job.optimizer == "adam_8bit":
        return 2.0 * EIGHT_BIT_MOMENT_BYTES
    width = float(STATE_BYTES[job.moment_dtype])
    whole = MOMENTS[job.optimizer] * width
    if job.optimizer == "adafactor":
        linear = matrices(job)
        return 4.0 * float(np.sum((linear.rows + linear.columns) * linear.number)) / max(linear.elements, 1.0)
    if job.optimizer == "muon":
        return whole + width * (1.0 - matrices(job).elements / parameter_count(job.model))
    return whole


def streamed_bytes_per_parameter(job: TrainingJob) -> float:
    """Traffic of a parameter's update.

    Gradient, optimizer state and weight are read, the last two written; the gradient's norm reads it once more. With a
    master copy the working weight is only written.
    """
    states = state_bytes_per_parameter(job)
    weight = job.element_bytes * (1 if job.master_bytes else 2)
    return 2.0 * states.optimizer + 2.0 * states.gradients + weight + TEMPORARY_BYTES.get(job.optimizer, 0.0)


@formula(
    "Newton-Schulz of a x b, a <= b: X X', its square and their product with X, 2 (2 a a b + a a a) FLOPs a step",
    "FLOP",
)
def newton_schulz_flops(rows: FloatArray, columns: FloatArray) -> FloatArray:
    """FLOPs of orthogonalising one matrix by Muon's five steps."""
    short, long = np.minimum(rows, columns), np.maximum(rows, columns)
    return np.asarray(NEWTON_SCHULZ_STEPS * 2.0 * (2.0 * short**2 * long + short**3))


@formula("gradient, states and weight of a shard are streamed through the memory", "s")
def update_time_s(
    parameters: FloatArray,
    shards: FloatArray,
    bytes_per_parameter: float,
    memory_bytes_per_s: float,
    memory_efficiency_ratio: float,
) -> FloatArray:
    """Update of a shard of ``parameters`` elements at ``bytes_per_parameter`` of traffic each, (n,)."""
    return parameters / shards * bytes_per_parameter / (memory_bytes_per_s * memory_efficiency_ratio)


@formula("an update; Muon adds Newton-Schulz, an unfused optimizer waits for its launches", "s")
def optimizer_time_s(
    job: TrainingJob, parameters: FloatArray, shards: FloatArray, gpu: Gpu, constants: Constants
) -> FloatArray:
    """Optimizer step of ``parameters`` trained elements a rank, of which each updates its shard, and the fixed part.

    Arrays (n,). Muon's matrices are gathered from their tensor-parallel shards and shared out over the ranks; the
    gathering itself (at most a quarter of the gradient traffic, arXiv 2502.16982, section 2.3) is not counted.
    """
    efficiency = constants.get("memory_efficiency_ratio", gpu.architecture)
    traffic = streamed_bytes_per_parameter(job)
    time = update_time_s(parameters, shards, traffic, gpu.memory_bytes_per_s, efficiency)
    if job.optimizer == "muon":
        time = time + orthogonalising_time_s(job, parameters / shards, gpu, constants)
    if job.optimizer == "unfused_adam":
        launches = UNFUSED_KERNELS * _tensors(job) * parameters / parameter_count(job.model)
        time = np.maximum(time, launches * constants.get("launch_s_per_kernel", job.attention))
    return np.asarray(time + constants.get("step_fixed_s"))


def orthogonalising_time_s(job: TrainingJob, parameters: FloatArray, gpu: Gpu, constants: Constants) -> FloatArray:
    """Newton-Schulz of Muon for ``parameters`` elements a rank on its GPU, at the rate of its GEMMs; (n,)."""
    linear = matrices(job)
    flops = float(np.sum(newton_schulz_flops(linear.rows, linear.columns) * linear.number))
    peak = gpu.peak_flops_per_s.get("bf16") or gpu.peak_flops_per_s[job.precision]
    achieved = peak * constants.get("gemm_ceiling_ratio", gpu.architecture)
    return np.asarray(parameters * (flops / parameter_count(job.model)) / achieved)


def _tensors(job: TrainingJob) -> float:
    """Tensors of the model's parameters, about: a linear layer and a norm go together, and each has a bias or not."""
    return 2.0 * float(np.sum(matrices(job).number))
