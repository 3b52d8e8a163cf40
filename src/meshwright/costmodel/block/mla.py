"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1) in its training form: keys expanded.

As Megatron-LM runs it: the down-projections and their norms are whole on every TP rank and act on the tokens that the
rank holds outside the TP region, the up-projections are cut by heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.block.attention import Core
from meshwright.costmodel.operator import FloatArray, Operator, Parameters, Saved, Shapes, gemm, memory, residual
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "mla"
TP_REDUCE = ("forward", "backward")
MODULE = "attention"


class _Widths(NamedTuple):
    q_lora: int
    kv_lora: int
    nope: int
    rope: int


def _widths(block: BlockSpec) -> _Widths:
    options = block.options
    return _Widths(
        int(options.get("q_lora_rank", 0)),
        int(options["kv_lora_rank"]),
        int(options["qk_nope_head_dim"]),
        int(options["qk_rope_head_dim"]),
    )


def _core(block: BlockSpec) -> Core:
    heads, widths = int(block.options["num_attention_heads"]), _widths(block)
    return Core(
        heads=heads,
        kv_heads=heads,
        key_dim=widths.nope + widths.rope,
        value_dim=int(block.options["v_head_dim"]),
        causal=bool(block.options.get("causal", True)),
        window=0,
        alibi=False,
        dropout=bool(block.options.get("dropout")),
    )


def legal(model: ModelSpec, block: BlockSpec, layouts: LayoutBatch) -> Mapping[str, npt.NDArray[np.bool_]]:
    """TP must divide the heads."""
    return {"tp_divides_heads": _core(block).heads % layouts.tp != 0}


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """Down-projections with their norms (replicated), up- and output projections (sharded), biases."""
    core, (q_lora, kv_lora, nope, rope) = _core(block), _widths(block)
    h, heads = model.hidden_size, core.heads
    sharded = (q_lora or h) * heads * core.key_dim
    sharded += kv_lora * heads * (nope + core.value_dim) + heads * core.value_dim * h
    replicated = (h + 1) * q_lora + h * (kv_lora + rope) + kv_lora
    replicated += q_lora + kv_lora + rope if block.options.get("qkv_bias") else 0
    return Parameters(sharded, replicated + (h if block.options.get("output_bias") else 0))


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """Down-projections, their norms, up-projections, rotary, attention core, output projection, residual add."""
    core, (q_lora, kv_lora, nope, rope) = _core(block), _widths(block)
    h, tokens, outer = shapes.hidden_size, shapes.tokens, shapes.outer_tokens
    q_width, out_width = core.query_width(shapes), core.output_width(shapes)
    expanded = core.heads * (nope + core.value_dim) / shapes.tp
    found = [gemm("kv_down", "attention", outer, kv_lora + rope, h, kernels=(1, 2))]
    if q_lora:
        found.insert(0, gemm("q_down", "attention", outer, q_lora, h, kernels=(1, 2)))
    latent = shapes.element_bytes * outer * (q_lora + kv_lora)
    norms = 2 if q_lora else 1
    found += [
        memory("latent_norm", "attention", 2 * latent, 3 * latent, kernels=(norms, 2 * norms)),
        gemm("q_up", "mla_up", tokens, q_width, q_lora or h, kernels=(1, 2)),
        gemm("kv_up", "mla_up", tokens, expanded, kv_lora, kernels=(1, 2)),
    ]
    if block.options.get("rotary", True):
        # The one rotated key of a token is copied to every head: queries and keys are written whole.
        traffic = 4.0 * shapes.element_bytes * tokens * q_width
        found.append(memory("rotary", "mla_up", traffic, traffic, kernels=(4, 4)))
    found += core.operators(shapes)
    found.append(gemm("attention_output", "attention", tokens, h, out_width, kernels=(1, 2)))
    found.append(residual("attention_residual", "attention", shapes, dropout=core.dropout))
    return found


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """Input, latents before and after their norms, expanded Q, K, V, attention core, its output, dropout mask."""
    core, (q_lora, kv_lora, _nope, rope) = _core(block), _widths(block)
    element, tokens, outer = shapes.element_bytes, shapes.tokens, shapes.outer_tokens
    expanded = core.query_width(shapes) + core.kv_width(shapes)
    found = [
        Saved("attention_input", "norm", element * outer * model.hidden_size),
        Saved("latent_norm_input", "attention", element * outer * (q_lora + kv_lora + rope)),
        Saved("latent", "attention", element * outer * (q_lora + kv_lora)),
        Saved("query_key_value", "mla_up", element * tokens * expanded),
        Saved("attention_output_input", "attention", element * tokens * core.output_width(shapes)),
        core.saved(shapes),
    ]
    if block.options.get("dropout"):
        found.append(Saved("attention_dropout_mask", "attention", outer * model.hidden_size))
    return found


def sequence_exchange(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> tuple[FloatArray, FloatArray]:
    """Bytes of queries with outputs and of expanded keys with values that a rank holds of a micro-batch, (r,) each."""
    return _core(block).exchange(shapes)
