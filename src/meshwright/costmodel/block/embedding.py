"""Token embedding (vocabulary-parallel under TP) with learned positions and dropout where the model has them."""

from __future__ import annotations

from meshwright.costmodel.operator import Operator, Parameters, Saved, Shapes, memory
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "embedding"
TP_REDUCE = ("forward",)


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """Token table, and the position table where positions are learned."""
    positions = int(block.options.get("position_embeddings", 0))
    return Parameters(model.vocab_size * model.hidden_size, positions * model.hidden_size)


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """Gather forward; backward sorts the indices and scatters (read gradient, read and write the table's rows)."""
    rows = shapes.element_bytes * shapes.tokens * model.hidden_size
    return [memory("embedding", "embedding", 4 * rows, 4 * rows, kernels=(6, 6))]


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """The dropout mask; the indices are negligible."""
    if not block.options.get("dropout"):
        return []
    return [Saved("embedding_dropout_mask", "embedding", shapes.outer_tokens * model.hidden_size)]
