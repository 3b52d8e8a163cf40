"""Output head and cross-entropy, vocabulary-parallel under TP, loss in fp32."""

from __future__ import annotations

import numpy as np

from meshwright.costmodel.operator import Operator, Parameters, Saved, Shapes, gemm, memory
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "head"
TP_REDUCE = ("backward",)
FP32_BYTES = 4


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """The output matrix; none of its own when tied to the embedding."""
    return Parameters(0 if block.options.get("tied") else model.vocab_size * model.hidden_size, 0)


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """Logits GEMM and cross-entropy.

    The loss casts logits to fp32, then takes maximum, difference, exponential and sum, each a pass (Megatron's
    vocabulary-parallel cross-entropy); backward scales the softmax in place and casts it back.
    """
    local_vocab = np.ceil(model.vocab_size / shapes.tp)
    logits = shapes.tokens * local_vocab
    element = shapes.element_bytes
    forward = logits * (element + FP32_BYTES + 6 * FP32_BYTES)
    backward = logits * (4 * FP32_BYTES + element)
    return [
        gemm("logits", "head", shapes.tokens, local_vocab, model.hidden_size, kernels=(1, 2)),
        memory("cross_entropy", "head", forward, backward, kernels=(10, 6)),
    ]


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """The head's input, and the fp32 softmax between the loss's forward and backward."""
    local_vocab = np.ceil(model.vocab_size / shapes.tp)
    return [
        Saved("head_input", "head", shapes.element_bytes * shapes.outer_tokens * model.hidden_size),
        Saved("logits_fp32", "head", FP32_BYTES * shapes.tokens * local_vocab, logits=True),
        Saved("logits", "head", shapes.element_bytes * shapes.tokens * local_vocab, logits=True),
    ]
