"""Self-attention, multi-head or grouped-query, flash or unfused: causal or not, whole or within a window.

Operators as Megatron-LM runs them; saved activations after Korthikanti et al., arXiv 2205.05198, section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.operator import FloatArray, Operator, Parameters, Saved, Shapes, gemm, memory, residual
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "attention"
TP_REDUCE = ("forward", "backward")


@dataclass(frozen=True, slots=True)
class Core:
    """What happens between the projections: ``heads`` score over ``key_dim`` and mix values of ``value_dim``."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    causal: bool
    window: int
    alibi: bool
    dropout: bool

    def query_width(self, shapes: Shapes) -> FloatArray:
        """Query elements of a token on a rank, (r,)."""
        return self.heads * self.key_dim / shapes.tp

    def output_width(self, shapes: Shapes) -> FloatArray:
        """Output elements of a token on a rank, (r,)."""
        return self.heads * self.value_dim / shapes.tp

    def kv_width(self, shapes: Shapes) -> FloatArray:
        """Key and value elements of a token on a rank, (r,); TP beyond the key-value heads replicates them."""
        return np.maximum(self.kv_heads / shapes.tp, 1.0) * (self.key_dim + self.value_dim)

    def operators(self, shapes: Shapes) -> list[Operator]:
        """The fused kernel, or scores, softmax, (dropout) and values one by one."""
        local_heads = self.heads / shapes.tp
        element = shapes.element_bytes
        pairs = shapes.score_pairs(causal=self.causal, window=self.window)
        if shapes.attention == "flash":
            moved = element * shapes.tokens
            moved = moved * (self.query_width(shapes) + self.output_width(shapes) + self.kv_width(shapes))
            return [
                Operator(
                    "flash_attention",
                    "attention",
                    "core_attention",
                    (1, 3),
                    m=min(shapes.document_len, float(shapes.seq_len)),
                    forward_flops=2.0
                    * (shapes.micro_batch * pairs / shapes.cp)
                    * local_heads
                    * (self.key_dim + self.value_dim),
                    forward_bytes=moved,
                    backward_bytes=2.0 * moved,
                    head_dim=self.key_dim,
                    trainable_weight=False,
                    low_precision=False,
                )
            ]
        # Unfused, the whole square is computed and then masked.
        square = float(shapes.seq_len) ** 2
        batch = shapes.micro_batch * local_heads / shapes.cp
        scores = batch * square
        # ALiBi adds a bias to every score: one more operand of the score product, read from memory.
        bias = element if self.alibi else 0
        found = [
            _product("attention_scores", shapes.seq_len, shapes.seq_len, self.key_dim, batch, pairs / square),
            # Megatron's fused scale-mask-softmax reads the scores once and writes the probabilities once.
            memory("softmax", "core_attention", (2.0 * element + bias) * scores, 3.0 * element * scores),
        ]
        if self.dropout:
            passed = (2.0 * element + 1) * scores
            found.append(memory("attention_dropout", "core_attention", passed, passed))
        found.append(
            _product("attention_values", shapes.seq_len, self.value_dim, shapes.seq_len, batch, pairs / square)
        )
        return found

    def saved(self, shapes: Shapes) -> Saved:
        """What the core keeps beside its inputs and its output."""
        if shapes.attention == "flash":
            return Saved("softmax_statistics", "core_attention", 4.0 * shapes.tokens * self.heads / shapes.tp)
        scores = shapes.micro_batch * self.heads / shapes.tp * float(shapes.seq_len) ** 2 / shapes.cp
        # Softmax output; with dropout also its one-byte mask and its output.
        per_score = shapes.element_bytes * (2 if self.dropout else 1) + (1 if self.dropout else 0)
        return Saved("attention_scores", "core_attention", per_score * scores)

    def exchange(self, shapes: Shapes) -> tuple[FloatArray, FloatArray]:
        """Bytes of queries with outputs and of keys with values that a rank holds of a micro-batch, (r,) each."""
        held = shapes.element_bytes * shapes.tokens
        return held * (self.query_width(shapes) + self.output_width(shapes)), held * self.kv_width(shapes)


def _product(name: str, m: float, n: float, k: float, batch: FloatArray, causal_ratio: float) -> Operator:
    return gemm(
        name,
        "core_attention",
        m,
        n,
        k,
        batch=batch,
        kernels=(2, 2),
        causal_ratio=causal_ratio,
        trainable_weight=False,
    )


def _core(block: BlockSpec) -> Core:
    options = block.options
    head_dim = int(options["head_dim"])
    return Core(
        heads=int(options["num_attention_heads"]),
        kv_heads=int(options["num_key_value_heads"]),
        key_dim=head_dim,
        value_dim=head_dim,
        causal=bool(options.get("causal", True)),
        window=int(options.get("window", 0)),
        alibi=bool(options.get("alibi")),
        dropout=bool(options.get("dropout")),
    )


def _projected(block: BlockSpec) -> int:
    """Columns of the QKV projection over all ranks: queries (and the gate of the output), keys and values."""
    core, gate = _core(block), bool(block.options.get("output_gate"))
    return core.heads * core.key_dim * (2 if gate else 1) + core.kv_heads * (core.key_dim + core.value_dim)


def legal(model: ModelSpec, block: BlockSpec, layouts: LayoutBatch) -> Mapping[str, npt.NDArray[np.bool_]]:
    """TP must divide the query heads, and divide or be a multiple of the key-value heads (replicated then)."""
    core, tp = _core(block), layouts.tp
    return {
        "tp_divides_heads": core.heads % tp != 0,
        "tp_divides_kv_heads": (core.kv_heads % tp != 0) & (tp % core.kv_heads != 0),
    }


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """Query (twice as wide with an output gate), key, value and output projections, biases, norms and sinks."""
    options, core = block.options, _core(block)
    q_width, kv_width = core.heads * core.key_dim, core.kv_heads * core.key_dim
    qkv = _projected(block)
    sharded = model.hidden_size * (qkv + q_width)
    sharded += qkv if options.get("qkv_bias") else 0
    sharded += core.heads if options.get("sinks") else 0
    replicated = model.hidden_size if options.get("output_bias") else 0
    if options.get("qk_norm") == "head":
        replicated += 2 * core.key_dim
    elif options.get("qk_norm") == "full":
        sharded += q_width + kv_width
    return Parameters(sharded, replicated)


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """QKV projection, (norms, rotary), attention core, (gate), output projection, residual add with dropout."""
    options, core = block.options, _core(block)
    q_width, kv_width = core.query_width(shapes), core.kv_width(shapes)
    gate = bool(options.get("output_gate"))
    moved = shapes.element_bytes * shapes.tokens
    # Beyond the key-value heads TP still cuts the projection: what it yields is gathered (``tp_reductions``).
    projected = _projected(block) / shapes.tp
    found = [gemm("qkv", "attention", shapes.tokens, projected, shapes.hidden_size, kernels=(3, 4))]
    queries_keys = moved * (q_width + kv_width / 2)
    if options.get("qk_norm"):
        found.append(memory("qk_norm", "attention", 2 * queries_keys, 3 * queries_keys, kernels=(2, 4)))
    if options.get("rotary"):
        found.append(memory("rotary", "attention", 2 * queries_keys, 2 * queries_keys, kernels=(2, 2)))
    chunk = float(options.get("chunk", 0)) or shapes.document_len
    # A chunk (Llama 4) ends what a query sees as a document does.
    found += core.operators(replace(shapes, document_len=min(shapes.document_len, chunk)))
    if gate:
        # Forward reads output and gate and writes one; backward reads three and writes two gradients.
        found.append(memory("output_gate", "attention", 3 * moved * q_width, 5 * moved * q_width, kernels=(2, 3)))
    found.append(gemm("attention_output", "attention", shapes.tokens, shapes.hidden_size, q_width, kernels=(1, 2)))
    found.append(residual("attention_residual", "attention", shapes, dropout=core.dropout))
    return found


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """Input, Q, K, V, attention core, input of the output projection, dropout mask; (r,) bytes each."""
    options, core = block.options, _core(block)
    element = shapes.element_bytes
    q_elements, kv_elements = shapes.tokens * core.query_width(shapes), shapes.tokens * core.kv_width(shapes)
    found = [
        Saved("attention_input", "norm", element * shapes.outer_tokens * model.hidden_size),
        Saved("query_key_value", "attention", element * (q_elements + kv_elements)),
        Saved("attention_output_input", "attention", element * q_elements),
        core.saved(shapes),
    ]
    if options.get("qk_norm"):
        found.append(Saved("qk_norm_input", "attention", element * (q_elements + kv_elements / 2)))
    if options.get("output_gate"):
        found.append(Saved("output_gate", "attention", 2 * element * q_elements))
    if options.get("dropout"):
        found.append(Saved("attention_dropout_mask", "attention", shapes.outer_tokens * model.hidden_size))
    return found


def tp_reductions(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> tuple[float, FloatArray]:
    """One reduction of one activation; with fewer key-value heads than TP ranks the projection's output comes on top.

    Megatron-LM then gathers the output of all ranks and each takes its heads (``get_query_key_value_tensors``); the
    backward scatters it. That moves half of what a reduction of the same size does.
    """
    gathered = np.where(shapes.tp > _core(block).kv_heads, 0.5 * _projected(block) / model.hidden_size, 0.0)
    return 1.0, 1.0 + gathered


def sequence_exchange(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> tuple[FloatArray, FloatArray]:
    """Bytes of queries with outputs and of keys with values that a rank holds of a micro-batch, (r,) each."""
    return _core(block).exchange(shapes)
