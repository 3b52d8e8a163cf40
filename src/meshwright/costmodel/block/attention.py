"""Self-attention, multi-head or grouped-query, flash or unfused, with rotary positions or without.

Operators as Megatron-LM runs them; saved activations after Korthikanti et al., arXiv 2205.05198, section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.operator import Operator, Parameters, Saved, Shapes, gemm, memory
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "attention"
TP_REDUCE = ("forward", "backward")
#: A causal model needs half of the score square.
CAUSAL_RATIO = 0.5


def _heads(block: BlockSpec) -> tuple[int, int, int]:
    options = block.options
    return int(options["num_attention_heads"]), int(options["num_key_value_heads"]), int(options["head_dim"])


def legal(model: ModelSpec, block: BlockSpec, layouts: LayoutBatch) -> Mapping[str, npt.NDArray[np.bool_]]:
    """TP must divide the query heads, and divide or be a multiple of the key-value heads (replicated then)."""
    heads, kv_heads, _head_dim = _heads(block)
    tp = layouts.tp
    return {
        "tp_divides_heads": heads % tp != 0,
        "tp_divides_kv_heads": (kv_heads % tp != 0) & (tp % kv_heads != 0),
    }


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """Query, key, value and output projections with their biases."""
    heads, kv_heads, head_dim = _heads(block)
    qkv = (heads + 2 * kv_heads) * head_dim
    sharded = model.hidden_size * qkv + heads * head_dim * model.hidden_size
    sharded += qkv if block.options.get("qkv_bias") else 0
    return Parameters(sharded, model.hidden_size if block.options.get("output_bias") else 0)


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """QKV projection, (rotary), attention core, output projection, residual add with dropout."""
    heads, kv_heads, head_dim = _heads(block)
    q_width = heads * head_dim / shapes.tp
    kv_width = np.maximum(kv_heads / shapes.tp, 1.0) * head_dim
    element = shapes.element_bytes
    found = [gemm("qkv", "attention", shapes.tokens, q_width + 2 * kv_width, shapes.hidden_size, kernels=(3, 4))]
    if block.options.get("rotary"):
        traffic = 2.0 * element * shapes.tokens * (q_width + kv_width)
        found.append(memory("rotary", "attention", traffic, traffic, kernels=(2, 2)))
    found += _core(block, shapes)
    found.append(gemm("attention_output", "attention", shapes.tokens, shapes.hidden_size, q_width, kernels=(1, 2)))
    residual = shapes.outer_tokens * shapes.hidden_size
    mask = 1 if block.options.get("dropout") else 0
    found.append(
        memory(
            "attention_residual",
            "attention",
            residual * (3 * element + mask),
            residual * ((2 * element + mask) if mask else 0),
            kernels=(2, 1),
        )
    )
    return found


def _core(block: BlockSpec, shapes: Shapes) -> list[Operator]:
    heads, kv_heads, head_dim = _heads(block)
    local_heads = heads / shapes.tp
    element = shapes.element_bytes
    q_bytes = element * shapes.tokens * local_heads * head_dim
    kv_bytes = element * shapes.tokens * np.maximum(kv_heads / shapes.tp, 1.0) * head_dim
    if shapes.attention == "flash":
        square = 4.0 * shapes.tokens * shapes.seq_len * local_heads * head_dim
        return [
            Operator(
                "flash_attention",
                "attention",
                "core_attention",
                (1, 3),
                forward_flops=square * CAUSAL_RATIO,
                causal_ratio=1.0,
                forward_bytes=2 * q_bytes + 2 * kv_bytes,
                backward_bytes=4 * q_bytes + 4 * kv_bytes,
                head_dim=head_dim,
                trainable_weight=False,
            )
        ]
    batch = shapes.micro_batch * local_heads
    scores = batch * float(shapes.seq_len) ** 2
    # ALiBi adds a bias to every score: one more operand of the score product, read from memory.
    bias = element if block.options.get("alibi") else 0
    dropout = bool(block.options.get("dropout"))
    found = [
        gemm(
            "attention_scores",
            "core_attention",
            shapes.seq_len,
            shapes.seq_len,
            head_dim,
            batch=batch,
            kernels=(2, 2),
            causal_ratio=CAUSAL_RATIO,
            trainable_weight=False,
        ),
        # Megatron's fused scale-mask-softmax reads the scores once and writes the probabilities once.
        memory("softmax", "core_attention", (2.0 * element + bias) * scores, 3.0 * element * scores),
    ]
    if dropout:
        found.append(
            memory("attention_dropout", "core_attention", (2.0 * element + 1) * scores, (2.0 * element + 1) * scores)
        )
    found.append(
        gemm(
            "attention_values",
            "core_attention",
            shapes.seq_len,
            head_dim,
            shapes.seq_len,
            batch=batch,
            kernels=(2, 2),
            causal_ratio=CAUSAL_RATIO,
            trainable_weight=False,
        )
    )
    return found


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """Input, Q, K, V, attention core, input of the output projection, dropout mask; (r,) bytes each."""
    heads, kv_heads, head_dim = _heads(block)
    element = shapes.element_bytes
    q_elements = shapes.tokens * heads * head_dim / shapes.tp
    kv_elements = shapes.tokens * np.maximum(kv_heads / shapes.tp, 1.0) * head_dim
    found = [
        Saved("attention_input", "norm", element * shapes.outer_tokens * model.hidden_size),
        Saved("query_key_value", "attention", element * (q_elements + 2 * kv_elements)),
        Saved("attention_output_input", "attention", element * q_elements),
    ]
    if shapes.attention == "flash":
        statistics = 4.0 * shapes.tokens * heads / shapes.tp
        found.append(Saved("softmax_statistics", "core_attention", statistics))
    else:
        scores = shapes.micro_batch * heads / shapes.tp * float(shapes.seq_len) ** 2
        # Softmax output; with dropout also its one-byte mask and its output.
        per_score = element + (1 + element if block.options.get("dropout") else 0)
        found.append(Saved("attention_scores", "core_attention", per_score * scores))
    if block.options.get("dropout"):
        found.append(Saved("attention_dropout_mask", "attention", shapes.outer_tokens * model.hidden_size))
    return found
