"""Overlap: what of a communication stays exposed, and what hiding it costs the computation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from meshwright.formula import formula

FloatArray = npt.NDArray[np.float64]


@formula("the last bucket is ready only when the work ends; the rest hides behind it", "s")
def exposed_s(communication_s: FloatArray, window_s: FloatArray, n_buckets: FloatArray) -> FloatArray:
    """Exposed part of a bucketed communication that may run during ``window_s`` of work; arrays (n,).

    One bucket never hides: the last gradient bucket, or the first weight bucket.
    """
    one = communication_s / n_buckets
    return np.asarray(one + np.maximum(communication_s - one - window_s, 0.0))


@formula("hidden as far as the work beside it lasts", "s")
def exposed_beside_s(communication_s: FloatArray, window_s: FloatArray) -> FloatArray:
    """Exposed part of communication that runs beside ``window_s`` of other work, (r,)."""
    return np.asarray(np.maximum(communication_s - window_s, 0.0))


@formula("slow-down of overlapped compute: 18.9 % mean, arXiv 2507.03114", "s")
def contention_s(hidden_s: FloatArray, contention_ratio: float) -> FloatArray:
    """Time that computation loses while ``hidden_s`` of communication runs beside it."""
    return np.asarray(hidden_s * contention_ratio)
