"""Output head and cross-entropy, parallel over the vocabulary (or the classes) under TP, loss in fp32."""

from __future__ import annotations

import numpy as np

from meshwright.costmodel.operator import FloatArray, Operator, Parameters, Saved, Shapes, gemm, memory
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "head"
TP_REDUCE = ("backward",)
FP32_BYTES = 4


def _classes(model: ModelSpec, block: BlockSpec) -> int:
    return int(block.options.get("labels", 0)) or model.vocab_size


def _tokens(block: BlockSpec, shapes: Shapes) -> FloatArray:
    # A classifier reads one token a sequence, which lies on one context-parallel rank.
    return shapes.micro_batch if block.options.get("labels") else shapes.tokens


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """The output matrix, none of its own when tied to the embedding, and its bias."""
    classes = _classes(model, block)
    matrix = 0 if block.options.get("tied") else classes * model.hidden_size
    return Parameters(matrix + (classes if block.options.get("bias") else 0), 0)


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """Logits GEMM, (soft cap) and cross-entropy.

    The loss casts logits to fp32, then takes maximum, difference, exponential and sum, each a pass (Megatron's
    vocabulary-parallel cross-entropy); backward scales the softmax in place and casts it back.
    """
    tokens = _tokens(block, shapes)
    local = np.ceil(_classes(model, block) / shapes.tp)
    logits = tokens * local
    element = shapes.element_bytes
    forward = logits * (element + FP32_BYTES + 6 * FP32_BYTES)
    backward = logits * (4 * FP32_BYTES + element)
    found = [
        gemm("logits", "head", tokens, local, model.hidden_size, kernels=(1, 2), low_precision=False),
        memory("cross_entropy", "head", forward, backward, kernels=(10, 6)),
    ]
    if block.options.get("softcap"):
        # Divide, tanh, multiply: three passes; tanh's backward reads its output too.
        found.append(memory("softcap", "head", 6 * element * logits, 7 * element * logits, kernels=(3, 3)))
    return found


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """The head's input, and the fp32 softmax between the loss's forward and backward."""
    element = shapes.element_bytes
    logits = _tokens(block, shapes) * np.ceil(_classes(model, block) / shapes.tp)
    inputs = shapes.micro_batch if block.options.get("labels") else shapes.outer_tokens
    found = [
        Saved("head_input", "head", element * inputs * model.hidden_size),
        Saved("logits_fp32", "head", FP32_BYTES * logits, logits=True),
        Saved("logits", "head", element * logits, logits=True),
    ]
    if block.options.get("softcap"):
        found.append(Saved("softcap_output", "head", element * logits, logits=True))
    return found


def tp_reductions(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> tuple[float, FloatArray]:
    """A classifier reduces its one token a sequence."""
    return 1.0, _tokens(block, shapes) / shapes.tokens
