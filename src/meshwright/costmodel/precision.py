"""Number formats: which peak a GPU has for them, and what a narrow GEMM costs beside the product itself.

FP8 and FP4 recipes quantise the operands of the GEMMs of linear layers; activations, attention, norms, head and routers
stay in 16 bit. Every operand is written twice, once along each axis that a product sums over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshwright.costmodel.operator import FloatArray, Operator, memory
from meshwright.formula import formula
from meshwright.specs.job import TrainingJob

#: Weights are kept along both axes; per-tensor recipes on Blackwell need only one (Transformer Engine, "Handling
#: transposes"), so there this is an upper bound.
QUANTISED_COPIES = 2


class Recipe(NamedTuple):
    """A quantisation recipe: bytes of one element with its scales, and bytes read to find the scale beforehand."""

    operand_bytes: float
    scale_read_bytes: float


#: Scales: one a tensor (``delayed`` from the step before, ``tensorwise`` from the tensor itself, which reads it once
#: more), one a 1 x 128 block in fp32 (DeepSeek-V3, arXiv 2412.19437, section 3.3.2), one a 1 x 32 block in 8 bit (OCP
#: MX v1.0), one a 1 x 16 block in 8 bit and one a tensor (NVFP4, arXiv 2509.25149).
FP8_RECIPES = {
    "delayed": Recipe(1.0, 0.0),
    "tensorwise": Recipe(1.0, 2.0),
    "blockwise": Recipe(1.0 + 4.0 / 128.0, 0.0),
    "mxfp8": Recipe(1.0 + 1.0 / 32.0, 0.0),
}
NVFP4_RECIPE = Recipe(0.5 + 1.0 / 16.0, 2.0)


def recipe(job: TrainingJob) -> Recipe:
    """The recipe of a job in fp8 or nvfp4."""
    return NVFP4_RECIPE if job.precision == "nvfp4" else FP8_RECIPES[job.fp8_recipe]


@formula(
    "each element is read in 16 bit and written once along each axis; a scale of the tensor itself costs one read more",
    "bytes",
)
def quantisation_bytes(
    elements: FloatArray, element_bytes: int, operand_bytes: float, scale_read_bytes: float
) -> FloatArray:
    """Traffic of quantising ``elements`` for a product and for its gradient, (r,)."""
    return elements * (element_bytes + scale_read_bytes + QUANTISED_COPIES * operand_bytes)


def quantisation(operator: Operator, job: TrainingJob) -> Operator:
    """The passes that quantise a GEMM's input (forward) and its output's gradient (backward).

    Weights are quantised once a step, which is little beside the optimizer's own traffic and left out.
    """
    used = recipe(job)
    bytes_each = (job.element_bytes, used.operand_bytes, used.scale_read_bytes)
    rows = operator.m * operator.batch
    return memory(
        f"{operator.name}_quantisation",
        operator.module,
        quantisation_bytes(np.asarray(rows * operator.k), *bytes_each),
        quantisation_bytes(np.asarray(rows * operator.n), *bytes_each),
    )
