"""How intervals hold: the share of measurements inside, and the score that rewards narrow and honest ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def covered(low: FloatArray, high: FloatArray, measured: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether each measurement lies in its closed interval, shape (n,)."""
    return (low <= measured) & (measured <= high)


def coverage_ratio(low: FloatArray, high: FloatArray, measured: FloatArray) -> float | None:
    """Share of measurements inside their intervals; None for no cases."""
    return float(np.mean(covered(low, high, measured))) if len(measured) else None


def interval_score(low: FloatArray, high: FloatArray, measured: FloatArray, level: float = 0.8) -> float | None:
    """Mean interval score (lower is better) for central intervals of ``level``; None for no cases.

    Width plus ``2 / (1 - level)`` times the distance by which a measurement lies outside: Gneiting and Raftery,
    Strictly proper scoring rules, JASA 102 (2007), equation 43. In the unit of the measurements.
    """
    if not len(measured):
        return None
    penalty = 2.0 / (1.0 - level)
    outside = np.maximum(low - measured, 0.0) + np.maximum(measured - high, 0.0)
    return float(np.mean(high - low + penalty * outside))


def is_clear_lead(
    best: float, best_interval: tuple[float, float], next_best: float, next_interval: tuple[float, float]
) -> bool:
    """Whether ``best`` (the smaller) leads by more than both intervals allow, as independent log-normal errors.

    The half-widths that face each other add up in squares: log(high / best) of the one, log(next / low) of the other.
    """
    lead = np.log(next_best / best)
    facing = np.log(best_interval[1] / best), np.log(next_best / next_interval[0])
    return bool(lead > np.hypot(*facing))
