"""Mamba-2 mixer (arXiv 2405.21060): state-space duality in chunks, section 6; a layer as in its section 7.

Heads are cut by TP. The scan's kernels recompute what lies between projection and scan output in the backward, so
only those two are kept (``mamba_split_conv1d_scan_combined`` of state-spaces/mamba).
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

KIND = "mamba2"
TP_REDUCE = ("forward", "backward")
MODULE = "attention"
RECURRENT = True
RULES = {
    "tp_divides_mamba_heads": N_("tp must divide the heads of the state-space layers"),
    "tp_divides_mamba_groups": N_("tp must divide the groups of the state-space layers"),
}
FP32_BYTES = 4


class _Sizes(NamedTuple):
    heads: int
    head_dim: int
    state: int
    groups: int
    conv_kernel: int
    chunk: int

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def conv(self) -> int:
        """Channels of the convolution: x, B and C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def projected(self) -> int:
        """Gate z, x, B, C and a time step a head."""
        return self.inner + self.conv + self.heads


def _sizes(block: BlockSpec) -> _Sizes:
    options = block.options
    return _Sizes(
        heads=int(options["num_heads"]),
        head_dim=int(options["head_dim"]),
        state=int(options["state_size"]),
        groups=int(options["n_groups"]),
        conv_kernel=int(options["conv_kernel"]),
        chunk=int(options["chunk_size"]),
    )


def legal(model: ModelSpec, block: BlockSpec, layouts: LayoutBatch) -> Mapping[str, npt.NDArray[np.bool_]]:
    """TP must divide heads and groups."""
    sizes = _sizes(block)
    return {
        "tp_divides_mamba_heads": sizes.heads % layouts.tp != 0,
        "tp_divides_mamba_groups": sizes.groups % layouts.tp != 0,
    }


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """Projections, convolution, gated norm, and a decay, a skip and a time-step bias a head."""
    options, sizes, h = block.options, _sizes(block), model.hidden_size
    sharded = h * sizes.projected + sizes.inner * h
    sharded += sizes.conv * (sizes.conv_kernel + (1 if options.get("conv_bias", True) else 0))
    sharded += sizes.inner + 3 * sizes.heads
    bias = bool(options.get("bias"))
    return Parameters(sharded + (sizes.projected if bias else 0), h if bias else 0)


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """Input projection, convolution, chunked scan, gated norm, output projection, residual add.

    The scan is the paper's four products a chunk of Q tokens: C B^T of every group (Q, Q, N), scores times x
    (Q, P, Q), the chunk's state B^T x (N, P, Q) and C times the state before it (Q, P, N); states pass in fp32.
    """
    sizes, h, tokens = _sizes(block), shapes.hidden_size, shapes.tokens
    q, n, p = sizes.chunk, sizes.state, sizes.head_dim
    chunks = tokens / q / shapes.tp
    by_head, by_group = chunks * sizes.heads, chunks * sizes.groups
    moved = shapes.element_bytes * tokens / shapes.tp
    states = 2.0 * FP32_BYTES * by_head * n * p

    def product(name: str, batch: FloatArray, m: int, columns: int, k: int, kernels: tuple[int, int]) -> Operator:
        return gemm(name, "attention", m, columns, k, batch=batch, kernels=kernels, trainable_weight=False)

    return [
        gemm("mamba_in", "attention", tokens, sizes.projected / shapes.tp, h, kernels=(1, 2)),
        memory("mamba_conv", "attention", 2 * moved * sizes.conv, 3 * moved * sizes.conv, kernels=(1, 2)),
        product("ssd_scores", by_group, q, q, n, (1, 2)),
        product("ssd_values", by_head, q, p, q, (1, 3)),
        product("ssd_states", by_head, n, p, q, (2, 3)),
        memory("ssd_state_passing", "attention", states, states),
        product("ssd_outputs", by_head, q, p, n, (0, 1)),
        memory("mamba_norm", "attention", 3 * moved * sizes.inner, 5 * moved * sizes.inner, kernels=(1, 2)),
        gemm("mamba_out", "attention", tokens, h, sizes.inner / shapes.tp, kernels=(1, 2)),
        residual("mamba_residual", "attention", shapes, dropout=False),
    ]


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """Input, projection, scan output, input of the output projection."""
    sizes, element = _sizes(block), shapes.element_bytes
    moved = element * shapes.tokens / shapes.tp
    return [
        Saved("mamba_input", "norm", element * shapes.outer_tokens * model.hidden_size),
        Saved("mamba_projected", "attention", moved * sizes.projected),
        Saved("mamba_scan_output", "attention", moved * sizes.inner),
        Saved("mamba_output_input", "attention", moved * sizes.inner),
    ]


def sequence_exchange(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> tuple[FloatArray, FloatArray]:
    """Bytes of projection and output, and of the fp32 state that a part of a sequence hands to the next, (r,) each."""
    sizes = _sizes(block)
    rows = shapes.element_bytes * shapes.tokens / shapes.tp * (sizes.projected + sizes.inner)
    return rows, FP32_BYTES * shapes.micro_batch * sizes.inner * sizes.state / shapes.tp
