"""LayerNorm or RMSNorm over the hidden dimension; sequence parallelism divides it, tensor parallelism does not."""

from __future__ import annotations

from meshwright.costmodel.operator import Operator, Parameters, Saved, Shapes, memory
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "norm"
TP_REDUCE: tuple[str, ...] = ()


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """Scale, and for LayerNorm a bias."""
    return Parameters(0, model.hidden_size * (2 if block.options.get("norm", "layernorm") == "layernorm" else 1))


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """One pass forward (read, write), one backward (read twice, write) and the reduction of the scale's gradient."""
    traffic = shapes.element_bytes * shapes.outer_tokens * model.hidden_size
    return [memory("norm", "norm", 2 * traffic, 3 * traffic, kernels=(1, 2))]


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """The input (the residual stream)."""
    return [Saved("norm_input", "layer", shapes.element_bytes * shapes.outer_tokens * model.hidden_size)]
