"""What a block is made of: operators, saved activations and parameters, as rows over distinct shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


class Parameters(NamedTuple):
    """Parameter elements of one block: those that tensor parallelism shards, and those every TP rank keeps."""

    sharded: int
    replicated: int

    @property
    def total(self) -> int:
        """Elements of the whole block."""
        return self.sharded + self.replicated


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes a block runs with, per rank: arrays of shape (r,) over distinct (micro_batch, tp, sp) rows.

    ``sp_degree`` is ``tp`` where sequence parallelism is on, else 1: it divides what lies outside the TP region.
    """

    micro_batch: FloatArray
    tp: FloatArray
    sp_degree: FloatArray
    seq_len: int
    hidden_size: int
    vocab_size: int
    element_bytes: int
    attention: Literal["flash", "unfused"]

    @property
    def tokens(self) -> FloatArray:
        """Tokens of a micro-batch, (r,)."""
        return self.micro_batch * self.seq_len

    @property
    def outer_tokens(self) -> FloatArray:
        """Tokens a rank holds outside the TP region (norms, residuals, dropout), (r,)."""
        return self.tokens / self.sp_degree


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a block's forward pass and what its backward costs.

    ``gemm``: ``batch`` products of (m, k) x (k, n); its backward is dgrad and wgrad, each of equal FLOPs.
    ``attention``: fused kernel; ``flops`` are the FLOPs it executes (half of the full square when causal).
    ``memory``: bound by HBM traffic; ``forward_bytes`` / ``backward_bytes`` are bytes read plus written.
    ``model_flops`` are the causal model FLOPs (for MFU), ``full_flops`` count attention's full square.
    ``module`` is the recompute unit (specs.layout.RECOMPUTE_MODULES). ``kernels`` are launches (forward, backward).
    """

    name: str
    kind: Literal["gemm", "attention", "memory"]
    module: str
    kernels: tuple[int, int]
    m: FloatArray | float = 0.0
    n: FloatArray | float = 0.0
    k: FloatArray | float = 0.0
    batch: FloatArray | float = 1.0
    forward_flops: FloatArray | float = 0.0
    causal_ratio: float = 1.0
    forward_bytes: FloatArray | float = 0.0
    backward_bytes: FloatArray | float = 0.0
    head_dim: int = 0
    trainable_weight: bool = True


@dataclass(frozen=True, slots=True)
class Saved:
    """An activation kept from forward to backward: bytes a rank and micro-batch, (r,), and the module it belongs to.

    ``logits`` marks what lives only between the head's forward and backward (counted apart).
    """

    name: str
    module: str
    size_bytes: FloatArray
    logits: bool = False


def gemm(
    name: str,
    module: str,
    m: FloatArray | float,
    n: FloatArray | float,
    k: FloatArray | float,
    *,
    batch: FloatArray | float = 1.0,
    kernels: tuple[int, int] = (1, 2),
    causal_ratio: float = 1.0,
    trainable_weight: bool = True,
) -> Operator:
    """A GEMM operator: 2 m n k FLOPs a product."""
    return Operator(
        name,
        "gemm",
        module,
        kernels,
        m=m,
        n=n,
        k=k,
        batch=batch,
        forward_flops=2.0 * batch * m * n * k,
        causal_ratio=causal_ratio,
        trainable_weight=trainable_weight,
    )


def memory(
    name: str, module: str, forward_bytes: FloatArray, backward_bytes: FloatArray, *, kernels: tuple[int, int] = (1, 1)
) -> Operator:
    """An operator that is bound by HBM traffic."""
    return Operator(name, "memory", module, kernels, forward_bytes=forward_bytes, backward_bytes=backward_bytes)
