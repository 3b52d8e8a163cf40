"""Gated delta-rule linear attention (arXiv 2412.06464), chunked after arXiv 2406.06484, as Qwen3-Next has it.

Heads are cut by TP. Queries and keys are repeated to the value heads before the rule; saved tensors are those of
``chunk_gated_delta_rule`` of fla-org/flash-linear-attention, which recomputes states in the backward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.operator import FloatArray, Operator, Parameters, Saved, Shapes, gemm, memory, residual
from meshwright.i18n import N_
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "gated_delta"
TP_REDUCE = ("forward", "backward")
MODULE = "attention"
RECURRENT = True
RULES = {"tp_divides_delta_heads": N_("tp must divide the key and value heads of the linear attention")}
FP32_BYTES = 4


class _Sizes(NamedTuple):
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    chunk: int

    @property
    def values(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def conv(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.values


def _sizes(block: BlockSpec) -> _Sizes:
    options = block.options
    return _Sizes(
        key_heads=int(options["num_key_heads"]),
        value_heads=int(options["num_value_heads"]),
        key_dim=int(options["key_head_dim"]),
        value_dim=int(options["value_head_dim"]),
        conv_kernel=int(options["conv_kernel"]),
        chunk=int(options.get("chunk_size", 64)),
    )


def legal(model: ModelSpec, block: BlockSpec, layouts: LayoutBatch) -> Mapping[str, npt.NDArray[np.bool_]]:
    """TP must divide both kinds of heads."""
    sizes = _sizes(block)
    return {"tp_divides_delta_heads": (sizes.key_heads % layouts.tp != 0) | (sizes.value_heads % layouts.tp != 0)}


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """Projections of q, k, v, gate z, beta and decay, convolution, a decay and its bias a head, one head's norm."""
    sizes, h = _sizes(block), model.hidden_size
    projected = sizes.conv + sizes.values + 2 * sizes.value_heads
    sharded = h * projected + sizes.conv * sizes.conv_kernel + 2 * sizes.value_heads + sizes.values * h
    return Parameters(sharded, sizes.value_dim)


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """Projections, convolution, chunked delta rule, gated norm, output projection, residual add.

    The rule is eight products a chunk of C tokens and value head: K K^T and Q K^T (C, C, dk); W and U from the
    inverted triangle (C, dk | dv, C); W S, Q S (C, dv, dk); scores times values (C, dv, C); the new state (dk, dv, C).
    """
    sizes, h, tokens = _sizes(block), shapes.hidden_size, shapes.tokens
    c, dk, dv = sizes.chunk, sizes.key_dim, sizes.value_dim
    batch = tokens / c * sizes.value_heads / shapes.tp
    moved = shapes.element_bytes * tokens / shapes.tp
    values, triangle = moved * sizes.values, moved * sizes.value_heads * c
    gates = 6.0 * FP32_BYTES * tokens * sizes.value_heads / shapes.tp
    queries_keys = moved * 2 * sizes.value_heads * dk
    projected = (sizes.conv + sizes.values + 2 * sizes.value_heads) / shapes.tp

    def product(name: str, m: int, n: int, k: int, kernels: tuple[int, int]) -> Operator:
        return gemm(name, "attention", m, n, k, batch=batch, kernels=kernels, trainable_weight=False)

    return [
        gemm("delta_in", "attention", tokens, projected, h, kernels=(2, 4)),
        memory("delta_conv", "attention", 2 * moved * sizes.conv, 3 * moved * sizes.conv, kernels=(1, 2)),
        memory("delta_gates", "attention", gates, gates, kernels=(6, 8)),
        memory("delta_repeat_norm", "attention", 4 * queries_keys, 5 * queries_keys, kernels=(4, 4)),
        product("delta_keys", c, c, dk, (1, 2)),
        memory("delta_inverse", "attention", 2 * triangle, 2 * triangle),
        product("delta_w", c, dk, c, (1, 2)),
        product("delta_u", c, dv, c, (0, 0)),
        product("delta_correction", c, dv, dk, (1, 2)),
        product("delta_state", dk, dv, c, (0, 0)),
        product("delta_scores", c, c, dk, (1, 2)),
        product("delta_values", c, dv, c, (0, 0)),
        product("delta_outputs", c, dv, dk, (0, 0)),
        memory("delta_norm", "attention", 3 * values, 5 * values, kernels=(1, 2)),
        gemm("delta_out", "attention", tokens, h, sizes.values / shapes.tp, kernels=(1, 2)),
        residual("delta_residual", "attention", shapes, dropout=False),
    ]


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """Input, projection, the rule's inputs, inverted triangle, gates in fp32, its output, input of the projection."""
    sizes, element = _sizes(block), shapes.element_bytes
    moved = element * shapes.tokens / shapes.tp
    heads = sizes.value_heads
    return [
        Saved("delta_input", "norm", element * shapes.outer_tokens * model.hidden_size),
        Saved("delta_projected", "attention", moved * (sizes.conv + sizes.values)),
        Saved("delta_rule_input", "attention", moved * (2 * heads * sizes.key_dim + sizes.values)),
        Saved("delta_triangle", "attention", moved * heads * sizes.chunk),
        Saved("delta_gates", "attention", 2 * FP32_BYTES * shapes.tokens * heads / shapes.tp),
        Saved("delta_rule_output", "attention", moved * sizes.values),
        Saved("delta_output_input", "attention", moved * sizes.values),
    ]


def sequence_exchange(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> tuple[FloatArray, FloatArray]:
    """Bytes of q, k, v with outputs, and of the fp32 state that a part of a sequence hands to the next, (r,) each."""
    sizes = _sizes(block)
    rows = shapes.element_bytes * shapes.tokens / shapes.tp * (sizes.conv + sizes.values)
    return rows, FP32_BYTES * shapes.micro_batch * sizes.values * sizes.key_dim / shapes.tp
