"""One linear layer, whole on every TP rank: poolers, transforms before a head, projectors.

As Megatron-LM keeps BERT's pooler and the transform of its language-model head.
"""

from __future__ import annotations

from meshwright.costmodel.operator import FloatArray, Operator, Parameters, Saved, Shapes, gemm, memory
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "dense"
TP_REDUCE: tuple[str, ...] = ()


def _sizes(model: ModelSpec, block: BlockSpec) -> tuple[int, int]:
    options = block.options
    return (int(options.get("in_size", 0)) or model.hidden_size, int(options.get("out_size", 0)) or model.hidden_size)


def _tokens(block: BlockSpec, shapes: Shapes) -> FloatArray:
    return shapes.micro_batch if block.options.get("tokens", "all") == "first" else shapes.outer_tokens


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """Matrix and bias, replicated."""
    size, out = _sizes(model, block)
    return Parameters(0, size * out + (out if block.options.get("bias") else 0))


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """The product, and its activation where there is one."""
    size, out = _sizes(model, block)
    tokens = _tokens(block, shapes)
    found = [gemm("dense", "mlp", tokens, out, size, kernels=(1, 2))]
    if block.options.get("activation"):
        activation = shapes.element_bytes * tokens * out
        found.append(memory("dense_activation", "mlp", 2 * activation, 3 * activation))
    return found


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """The input, and the activation's input where there is one."""
    size, out = _sizes(model, block)
    tokens = _tokens(block, shapes)
    found = [Saved("dense_input", "mlp", shapes.element_bytes * tokens * size)]
    if block.options.get("activation"):
        found.append(Saved("dense_activation_input", "mlp", shapes.element_bytes * tokens * out))
    return found
