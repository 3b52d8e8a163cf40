"""Errors of predictions against measurements: ratios, so that fast and slow cases weigh alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


class ErrorSummary(NamedTuple):
    """Errors of ``n`` cases; every ratio is None where ``n`` is 0."""

    n: int
    median_error_ratio: float | None
    p90_error_ratio: float | None
    bias_ratio: float | None


def error_ratio(predicted: FloatArray, measured: FloatArray) -> FloatArray:
    """``|predicted / measured - 1|``, shape (n,). Measurements must be positive."""
    return np.abs(predicted / measured - 1.0)


def bias_ratio(predicted: FloatArray, measured: FloatArray) -> float:
    """Signed median of ``predicted / measured - 1``: above zero where predictions are too slow."""
    return float(np.median(predicted / measured - 1.0))


def summarise(predicted: FloatArray, measured: FloatArray) -> ErrorSummary:
    """Median and 90th percentile of the error (linear interpolation between cases) and the bias."""
    if len(predicted) == 0:
        return ErrorSummary(0, None, None, None)
    errors = error_ratio(predicted, measured)
    return ErrorSummary(
        len(errors), float(np.median(errors)), float(np.quantile(errors, 0.9)), bias_ratio(predicted, measured)
    )
