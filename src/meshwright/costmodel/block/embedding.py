"""Token embedding (vocabulary-parallel under TP) with learned positions and dropout where the model has them."""

from __future__ import annotations

from meshwright.costmodel.operator import Operator, Parameters, Saved, Shapes, memory
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "embedding"
TP_REDUCE = ("forward",)


def _width(model: ModelSpec, block: BlockSpec) -> int:
    return int(block.options.get("width", 0)) or model.hidden_size


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """Token table (``width`` wide), and the tables of learned positions and token types where the model has them."""
    vectors = int(block.options.get("position_embeddings", 0)) + int(block.options.get("token_types", 0))
    return Parameters(model.vocab_size * _width(model, block), vectors * model.hidden_size)


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """Gather forward; backward sorts the indices and scatters (read gradient, read and write the table's rows)."""
    rows = shapes.element_bytes * shapes.tokens * _width(model, block)
    types = 2 if block.options.get("token_types") else 0
    return [memory("embedding", "embedding", (4 + types) * rows, (4 + types) * rows, kernels=(6 + types, 6 + types))]


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """The dropout mask; the indices are negligible."""
    if not block.options.get("dropout"):
        return []
    return [Saved("embedding_dropout_mask", "embedding", shapes.outer_tokens * model.hidden_size)]
