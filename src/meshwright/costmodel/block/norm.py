"""LayerNorm or RMSNorm over the hidden dimension; sequence parallelism divides it, tensor parallelism does not."""

from __future__ import annotations

from meshwright.costmodel.operator import Operator, Parameters, Saved, Shapes, memory
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "norm"
TP_REDUCE: tuple[str, ...] = ()


def _width(model: ModelSpec, block: BlockSpec) -> int:
    return int(block.options.get("width", 0)) or model.hidden_size


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """Scale, and for LayerNorm a bias unless the model leaves it out."""
    layernorm = block.options.get("norm", "layernorm") == "layernorm"
    return Parameters(0, _width(model, block) * (2 if block.options.get("bias", layernorm) else 1))


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """One pass forward (read, write), one backward (read twice, write) and the reduction of the scale's gradient."""
    traffic = shapes.element_bytes * shapes.outer_tokens * _width(model, block)
    return [memory("norm", "norm", 2 * traffic, 3 * traffic, kernels=(1, 2))]


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """The input (the residual stream)."""
    return [Saved("norm_input", "layer", shapes.element_bytes * shapes.outer_tokens * _width(model, block))]
