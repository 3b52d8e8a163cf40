"""Feed-forward block: plain (two matrices) or gated (three: SwiGLU and kin).

Saved activations after Korthikanti et al., arXiv 2205.05198, section 4.1; the gated form counted the same way.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.operator import Operator, Parameters, Saved, Shapes, gemm, memory, residual
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "mlp"
TP_REDUCE = ("forward", "backward")


def legal(model: ModelSpec, block: BlockSpec, layouts: LayoutBatch) -> Mapping[str, npt.NDArray[np.bool_]]:
    """TP must divide the intermediate size."""
    return {"tp_divides_intermediate": int(block.options["intermediate_size"]) % layouts.tp != 0}


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """Up (and gate) and down projections with their biases."""
    width = int(block.options["intermediate_size"])
    up = 2 if block.options.get("gated") else 1
    bias = bool(block.options.get("bias"))
    sharded = (up + 1) * model.hidden_size * width + (up * width if bias else 0)
    return Parameters(sharded, model.hidden_size if bias else 0)


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """Up projection, activation, down projection, residual add with dropout."""
    width = int(block.options["intermediate_size"]) / shapes.tp
    up = 2 if block.options.get("gated") else 1
    activation = shapes.element_bytes * shapes.tokens * width
    return [
        gemm("mlp_up", "mlp", shapes.tokens, up * width, shapes.hidden_size, kernels=(1, 2)),
        memory("mlp_activation", "mlp", (up + 1) * activation, (2 * up + 1) * activation),
        gemm("mlp_down", "mlp", shapes.tokens, shapes.hidden_size, width, kernels=(1, 2)),
        residual("mlp_residual", "mlp", shapes, dropout=bool(block.options.get("dropout"))),
    ]


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """Input, activation input, down-projection input, dropout mask; (r,) bytes each."""
    element = shapes.element_bytes
    inner = element * shapes.tokens * int(block.options["intermediate_size"]) / shapes.tp
    up = 2 if block.options.get("gated") else 1
    found = [
        Saved("mlp_input", "norm", element * shapes.outer_tokens * model.hidden_size),
        Saved("mlp_activation_input", "mlp", up * inner),
        Saved("mlp_down_input", "mlp", inner),
    ]
    if block.options.get("dropout"):
        found.append(Saved("mlp_dropout_mask", "mlp", shapes.outer_tokens * model.hidden_size))
    return found
