"""Kernel times on one GPU: ``ceiling(gpu) x shape efficiency`` of the peak for arithmetic, bandwidth for the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.adapters import Backward, is_linear
from meshwright.costmodel.operator import Operator
from meshwright.costmodel.precision import recipe
from meshwright.formula import formula
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Gpu
from meshwright.specs.job import TrainingJob

FloatArray = npt.NDArray[np.float64]
#: Backward over forward FLOPs of a fused attention kernel: it recomputes the scores (Dao, arXiv 2307.08691, section 3).
FLASH_BACKWARD_RATIO = 2.5


@dataclass(frozen=True, slots=True)
class KernelConstants:
    """What the kernel formulas need of the GPU and the physical constants, resolved once per evaluation.

    ``low``: the same for the GEMMs that an FP8 or FP4 recipe quantises, None where there are none.
    """

    peak_flops_per_s: float
    memory_bytes_per_s: float
    gemm_ceiling_ratio: float
    gemm_half_m: float
    gemm_half_n: float
    gemm_half_k: float
    wgrad_ratio: float
    fused_wgrad_ratio: float
    attention_ceiling_ratio: float
    attention_backward_ratio: float
    attention_half_seq_len: float
    attention_head_dim_exponent: float
    memory_efficiency_ratio: float
    kernel_fixed_s: float
    low: KernelConstants | None = None

    @property
    def achieved_bytes_per_s(self) -> float:
        """HBM bandwidth that a streaming kernel reaches."""
        return self.memory_bytes_per_s * self.memory_efficiency_ratio

    @classmethod
    def of(cls, gpu: Gpu, job: TrainingJob, constants: Constants) -> KernelConstants:
        """Resolve for ``gpu`` and the precision and attention kernel of ``job``."""
        architecture = gpu.architecture

        def get(name: str) -> float:
            return constants.get(name, architecture)

        wide = cls(
            peak_flops_per_s=gpu.peak_flops_per_s[job.wide_dtype if job.low_precision else job.precision],
            memory_bytes_per_s=gpu.memory_bytes_per_s,
            gemm_ceiling_ratio=get("gemm_ceiling_ratio"),
            gemm_half_m=get("gemm_half_m"),
            gemm_half_n=get("gemm_half_n"),
            gemm_half_k=get("gemm_half_k"),
            wgrad_ratio=constants.get("wgrad_ratio", "separate"),
            fused_wgrad_ratio=get("wgrad_ratio"),
            attention_ceiling_ratio=get("attention_ceiling_ratio"),
            attention_backward_ratio=get("attention_backward_ratio"),
            attention_half_seq_len=get("attention_half_seq_len"),
            attention_head_dim_exponent=get("attention_head_dim_exponent"),
            memory_efficiency_ratio=get("memory_efficiency_ratio"),
            kernel_fixed_s=get("kernel_fixed_s"),
        )
        if not job.low_precision:
            return wide
        low = replace(
            wide,
            peak_flops_per_s=gpu.peak_flops_per_s[job.precision],
            gemm_ceiling_ratio=constants.get("gemm_ceiling_ratio", job.precision, architecture),
            gemm_half_m=constants.get("gemm_half_m", job.precision, architecture),
            gemm_half_n=constants.get("gemm_half_n", job.precision, architecture),
            gemm_half_k=constants.get("gemm_half_k", job.precision, architecture),
        )
        return replace(wide, low=low)


@formula("saturating GEMM efficiency, fitted form; ceiling from best-of-sweep GEMM measurements (MAMF)", "ratio")
def gemm_efficiency_ratio(
    m: FloatArray, n: FloatArray, k: FloatArray, batch: FloatArray, c: KernelConstants
) -> FloatArray:
    """Achieved over peak FLOP/s of a GEMM: ceiling x M/(M+m0) x N/(N+n0) x K/(K+k0).

    A batch of small products fills the SMs together, so the batch counts with the rows. Shapes (r,).
    """
    rows = m * batch
    shape = rows / (rows + c.gemm_half_m) * (n / (n + c.gemm_half_n)) * (k / (k + c.gemm_half_k))
    return np.asarray(c.gemm_ceiling_ratio * shape)


@formula("roofline: max of arithmetic and traffic time", "s")
def gemm_time_s(
    m: FloatArray,
    n: FloatArray,
    k: FloatArray,
    batch: FloatArray,
    element_bytes: int,
    c: KernelConstants,
    operand_bytes: float | None = None,
) -> FloatArray:
    """Time of ``batch`` GEMMs (m, k) x (k, n): FLOPs over achieved rate or operand traffic, whichever is longer.

    ``operand_bytes``: of an element of the two operands, where it is not that of the result.
    """
    arithmetic = 2.0 * batch * m * n * k / (c.peak_flops_per_s * gemm_efficiency_ratio(m, n, k, batch, c))
    operand = element_bytes if operand_bytes is None else operand_bytes
    traffic = batch * (operand * (m * k + k * n) + element_bytes * (m * n)) / c.achieved_bytes_per_s
    return np.asarray(np.maximum(arithmetic, traffic) + c.kernel_fixed_s)


@formula("FlashAttention-2, arXiv 2307.08691; saturation in sequence length and head dimension fitted", "s")
def attention_time_s(
    flops: FloatArray, seq_len: FloatArray | int, head_dim: int, traffic_bytes: FloatArray, c: KernelConstants
) -> FloatArray:
    """Time of a fused attention kernel that executes ``flops`` (half the square when causal)."""
    efficiency = c.attention_ceiling_ratio * seq_len / (seq_len + c.attention_half_seq_len)
    efficiency = efficiency * (min(head_dim, 128) / 128.0) ** c.attention_head_dim_exponent
    arithmetic = flops / (c.peak_flops_per_s * efficiency)
    return np.asarray(np.maximum(arithmetic, traffic_bytes / c.achieved_bytes_per_s) + c.kernel_fixed_s)


@formula("bandwidth bound", "s")
def memory_time_s(traffic_bytes: FloatArray, c: KernelConstants) -> FloatArray:
    """Time of an operator bound by HBM traffic."""
    return np.asarray(traffic_bytes / c.achieved_bytes_per_s + c.kernel_fixed_s)


@formula("every micro-batch reads its gradient and reads and writes the sum", "s")
def accumulation_time_s(parameters: FloatArray, job: TrainingJob, c: KernelConstants) -> FloatArray:
    """Adding one micro-batch's gradients of ``parameters`` elements to the gradient buffer in a pass of its own."""
    traffic = parameters * float(job.element_bytes + 2 * job.grad_bytes)
    return np.asarray(traffic / c.achieved_bytes_per_s)


@formula("a GEMM that adds into fp32 loses 5 to 20 % of its rate, but no more than the pass it saves", "s")
def fused_wgrad_time_s(wgrad_s: FloatArray, accumulation_time_s: FloatArray, c: KernelConstants) -> FloatArray:
    """A weight-gradient GEMM that adds into the gradient buffer itself."""
    loss = (c.fused_wgrad_ratio - c.wgrad_ratio) * wgrad_s
    return np.asarray(c.wgrad_ratio * wgrad_s + np.minimum(loss, accumulation_time_s))


def forward_time_s(operator: Operator, job: TrainingJob, c: KernelConstants) -> FloatArray:
    """GPU time of an operator's forward, (r,)."""
    if operator.kind == "gemm":
        return _product_time_s(operator, "forward", job, c)
    if operator.kind == "attention":
        return attention_time_s(
            np.asarray(operator.forward_flops),
            _attended(operator, job),
            operator.head_dim,
            np.asarray(operator.forward_bytes),
            c,
        )
    return memory_time_s(np.asarray(operator.forward_bytes), c)


def backward_time_s(operator: Operator, job: TrainingJob, c: KernelConstants, needs: Backward = "all") -> FloatArray:
    """GPU time of an operator's backward, (r,): dgrad and wgrad for a GEMM, of which a frozen weight needs the first.

    ``needs``: which gradients the operator's block owes.
    """
    if needs == "none":
        return np.zeros(())
    if operator.kind == "gemm":
        dgrad = _product_time_s(operator, "dgrad", job, c)
        frozen = needs == "input" and operator.trainable_weight
        return dgrad if frozen else dgrad + _wgrad_time_s(operator, job, c)
    if operator.kind == "attention":
        flops = np.asarray(operator.forward_flops) * FLASH_BACKWARD_RATIO * c.attention_backward_ratio
        return attention_time_s(
            flops, _attended(operator, job), operator.head_dim, np.asarray(operator.backward_bytes), c
        )
    traffic = np.asarray(operator.backward_bytes)
    return np.where(traffic > 0, memory_time_s(traffic, c), 0.0)


def _wgrad_time_s(operator: Operator, job: TrainingJob, c: KernelConstants) -> FloatArray:
    """The weight gradient and what adding it to the others of the step costs."""
    wgrad = _product_time_s(operator, "wgrad", job, c)
    if not operator.trainable_weight:
        return wgrad
    if job.gradient_accumulation_fusion:
        _m, n, k, batch = _dimensions(operator)
        return fused_wgrad_time_s(wgrad, accumulation_time_s(batch * k * n, job, c), c)
    return wgrad * c.wgrad_ratio


def _product_time_s(
    operator: Operator, product: Literal["forward", "dgrad", "wgrad"], job: TrainingJob, c: KernelConstants
) -> FloatArray:
    """One of the three products of a GEMM, at the rate and with the operands of its format."""
    m, n, k, batch = _dimensions(operator)
    rows, columns, depth = {"forward": (m, n, k), "dgrad": (m, k, n), "wgrad": (k, n, m)}[product]
    if c.low is None or not is_linear(operator):
        return gemm_time_s(rows, columns, depth, batch, job.element_bytes, c)
    return gemm_time_s(rows, columns, depth, batch, job.element_bytes, c.low, recipe(job).operand_bytes)


def _attended(operator: Operator, job: TrainingJob) -> FloatArray:
    """Length of what a fused attention kernel works on: a whole sequence, a document or a part of one."""
    if np.any(operator.m):
        return np.asarray(operator.m, float)
    return np.asarray(min(job.document_len or job.seq_len, job.seq_len), float)


def _dimensions(operator: Operator) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    return (
        np.asarray(operator.m, float),
        np.asarray(operator.n, float),
        np.asarray(operator.k, float),
        np.asarray(operator.batch, float),
    )
