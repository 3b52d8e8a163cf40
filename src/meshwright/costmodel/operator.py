"""What a block is made of: operators, saved activations and parameters, as rows over distinct shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


class Parameters(NamedTuple):
    """Parameter elements of one block: those that TP shards, those every TP rank keeps, and all routed experts'.

    ``active_expert`` of the ``expert`` elements are the ones that a token meets (its top-k experts).
    """

    sharded: int
    replicated: int
    expert: int = 0
    active_expert: int = 0

    @property
    def total(self) -> int:
        """Elements of the whole block."""
        return self.sharded + self.replicated + self.expert

    @property
    def active(self) -> int:
        """Elements that a token meets."""
        return self.sharded + self.replicated + self.active_expert


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes a block runs with, per rank: arrays of shape (r,) over distinct (micro_batch, tp, sp, cp, ..) rows.

    ``sp_degree`` is ``tp`` where sequence parallelism is on, else 1: it divides what lies outside the TP region.
    ``cp`` cuts every sequence, ``ep`` and ``etp`` the experts. ``document_len``: attention stays inside documents of
    this mean length (``seq_len``: not packed). ``expert_load_ratio``: tokens of the fullest expert rank over the mean.
    """

    micro_batch: FloatArray
    tp: FloatArray
    sp_degree: FloatArray
    cp: FloatArray
    ep: FloatArray
    etp: FloatArray
    seq_len: int
    hidden_size: int
    vocab_size: int
    element_bytes: int
    attention: Literal["flash", "unfused"]
    document_len: float
    expert_load_ratio: float = 1.0

    @property
    def tokens(self) -> FloatArray:
        """Tokens of a micro-batch on one context-parallel rank, (r,)."""
        return self.micro_batch * self.seq_len / self.cp

    def score_pairs(self, *, causal: bool = True, window: int = 0) -> float:
        """(query, key) pairs that one head scores in one whole sequence.

        A causal model needs half of the square of each document; ``window`` > 0 caps how far back a query looks, and
        how far ahead where it may. The corner that a window loses at a document's ends is subtracted.
        """
        length = min(self.document_len, float(self.seq_len))
        reach = min(window or length, length)
        return self.seq_len * (reach - reach**2 / (2.0 * length)) * (1.0 if causal else 2.0)

    @property
    def outer_tokens(self) -> FloatArray:
        """Tokens a rank holds outside the TP region (norms, residuals, dropout), (r,)."""
        return self.tokens / self.sp_degree


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a block's forward pass and what its backward costs.

    ``gemm``: ``batch`` products of (m, k) x (k, n); its backward is dgrad and wgrad, each of equal FLOPs.
    ``attention``: fused kernel; ``flops`` are the FLOPs it executes (half of the full square when causal), ``m`` the
    length of the sequences or documents that it works on.
    ``memory``: bound by HBM traffic; ``forward_bytes`` / ``backward_bytes`` are bytes read plus written.
    ``model_flops`` are the causal model FLOPs (for MFU), ``full_flops`` count attention's full square.
    ``module`` is the recompute unit (specs.layout.RECOMPUTE_MODULES). ``kernels`` are launches (forward, backward).
    ``count`` such operators run one after the other (``kernels`` is of one). ``low_precision``: a GEMM that an FP8 or
    FP4 recipe quantises; the head, routers and attention's own products stay in 16 bit.
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
    count: float = 1.0
    low_precision: bool = True


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
    low_precision: bool = True,
    count: float = 1.0,
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
        low_precision=low_precision and trainable_weight,
        count=count,
    )


def memory(
    name: str, module: str, forward_bytes: FloatArray, backward_bytes: FloatArray, *, kernels: tuple[int, int] = (1, 1)
) -> Operator:
    """An operator that is bound by HBM traffic."""
    return Operator(name, "memory", module, kernels, forward_bytes=forward_bytes, backward_bytes=backward_bytes)


def residual(name: str, module: str, shapes: Shapes, *, dropout: bool) -> Operator:
    """Adding a block's output to the residual stream, with dropout where the block has it."""
    stream = shapes.outer_tokens * shapes.hidden_size
    mask = 1 if dropout else 0
    forward = stream * (3 * shapes.element_bytes + mask)
    backward = stream * ((2 * shapes.element_bytes + mask) if mask else 0)
    return memory(name, module, forward, backward, kernels=(2, 1))
