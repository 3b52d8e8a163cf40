"""Failures: how often they stop a job, how often to save because of them, and how long the job takes with them.

Failures are Poisson in time; each costs a restart and the work since the last checkpoint, and may strike during the
restart too (Daly, FGCS 22(3), 2006). Totals are closed forms; nothing is simulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from meshwright.formula import formula

FloatArray = npt.NDArray[np.float64]

#: Failure rates are stated for servers of eight GPUs; other nodes fail in proportion to their GPUs.
GPUS_PER_RATED_NODE = 8
_DAY_S = 86_400.0
#: Writes or restarts of so many times the mean time to failure never come to an end.
_HOPELESS = 30.0
_NEWTON_STEPS = 20
_BISECTIONS = 60
#: Standard deviations of the number of failures that the mixture covers.
_COVERED_SD = 8.0
#: Failures beyond which their number is as good as normal.
_COUNTED = 2000.0


@formula("one failure process a node, independent: the rates add up (arXiv 2410.21680)", "s")
def mean_time_to_failure_s(n_gpus: int, failures_per_1000_node_days: float) -> float:
    """Mean time between failures of a job on ``n_gpus``; infinite at a rate of zero."""
    a_day = n_gpus / GPUS_PER_RATED_NODE * failures_per_1000_node_days / 1000.0
    return _DAY_S / a_day if a_day > 0.0 else math.inf


@formula("bytes over what all nodes write to storage together", "s")
def checkpoint_write_s(checkpoint_bytes: float, n_nodes: int, storage_bytes_per_s: float) -> float:
    """Seconds that training stands still for one checkpoint."""
    return checkpoint_bytes / (n_nodes * storage_bytes_per_s)


@formula("Young 1974: sqrt(2 x write x mean time to failure)", "s")
def young_interval_s(write_s: float, mttf_s: float) -> float:
    """First-order best time between checkpoints, for writes that are short against the time to failure."""
    return math.sqrt(2.0 * write_s * mttf_s)


@formula("maximum of the exact efficiency: x + ln(1 - x) + write / mttf = 0 for x = interval / mttf", "s")
def checkpoint_interval_s(write_s: float, mttf_s: float) -> float:
    """Best time of work between two checkpoints of ``write_s`` (above zero); infinite where nothing fails."""
    if not math.isfinite(mttf_s):
        return math.inf
    ratio = min(write_s / mttf_s, _HOPELESS)
    # Falling and concave: from beyond the root, where this is, Newton's steps come down to it and never pass it.
    x = -math.expm1(-ratio - min(young_interval_s(write_s, mttf_s) / mttf_s, 1.0))
    for _step in range(_NEWTON_STEPS):
        x += (x + math.log1p(-x) + ratio) * (1.0 - x) / x
    return x * mttf_s


@formula("Daly 2006: work over its expected time, interval / (M e^(R/M) (e^((interval + write)/M) - 1))", "1")
def effective_ratio(interval_s: float, write_s: float, restart_s: float, mttf_s: float) -> float:
    """Share of the time in which a job gets on, with failures, checkpoints and restarts (ETTR)."""
    if not math.isfinite(mttf_s):
        return interval_s / (interval_s + write_s) if math.isfinite(interval_s) else 1.0
    if (interval_s + write_s + restart_s) / mttf_s > _HOPELESS:
        return 0.0
    return interval_s / (mttf_s * math.exp(restart_s / mttf_s) * math.expm1((interval_s + write_s) / mttf_s))


@dataclass(frozen=True, slots=True)
class Failures:
    """What failures do to one job: the mean time between them, when to save, what a save and a restart take."""

    mttf_s: float
    interval_s: float
    write_s: float
    restart_s: float

    @classmethod
    def of(cls, mttf_s: float, write_s: float, restart_s: float) -> Failures:
        """With the best interval between checkpoints."""
        return cls(mttf_s, checkpoint_interval_s(write_s, mttf_s), write_s, restart_s)

    @property
    def effective_ratio(self) -> float:
        """Share of the time in which the job gets on."""
        return effective_ratio(self.interval_s, self.write_s, self.restart_s, self.mttf_s)


@formula("renewal process of segments between checkpoints; compound Poisson with its mean and variance", "s")
def time_with_failures_s(work_s: FloatArray, failures: Failures, shares: tuple[float, ...]) -> FloatArray:
    """Quantiles ``shares`` of the time that ``work_s`` seconds (n,) of failure-free work take, (n, len(shares)).

    The number of failures is Poisson, each loses a time with the exact mean and a variance that makes the variance of
    the total exact; given their number the loss is taken as normal. Where none is likely, the quantile is the time
    without any.
    """
    work = np.asarray(work_s, np.float64)
    if not math.isfinite(failures.mttf_s) or failures.effective_ratio == 0.0:
        never = 1.0 if failures.effective_ratio else math.inf
        return np.repeat(work[:, None] * never, len(shares), axis=1)
    found = [_quantiles(float(seconds), failures, shares) for seconds in work]
    return np.array(found).reshape(len(work), len(shares))


def _quantiles(work_s: float, failures: Failures, shares: tuple[float, ...]) -> list[float]:
    mttf_s = failures.mttf_s
    # A job shorter than the interval saves once, at its end.
    interval_s = min(failures.interval_s, work_s)
    segment_s = interval_s + failures.write_s
    base_s = work_s / interval_s * segment_s
    tries = math.expm1(segment_s / mttf_s)
    n_failures = work_s / interval_s * tries
    mean, variance = _loss(segment_s, failures)
    # Failures of one segment are geometric, more spread than Poisson by this much.
    variance += mean * mean * tries
    if n_failures > _COUNTED:
        total = NormalDist(base_s + n_failures * mean, math.sqrt(n_failures * (variance + mean * mean)))
        return [max(base_s, total.inv_cdf(share)) for share in shares]
    reach = _COVERED_SD * math.sqrt(n_failures) + _COVERED_SD
    number = np.arange(max(0, math.floor(n_failures - reach)), math.ceil(n_failures + reach) + 1, dtype=float)
    weight = np.exp(number * math.log(n_failures) - n_failures - np.array([math.lgamma(k + 1.0) for k in number]))
    centre, spread = number * mean, np.sqrt(np.maximum(number, 1e-300) * variance)

    def quantile(share: float) -> float:
        if number[0] == 0.0 and weight[0] >= share:
            return base_s
        low, high = 0.0, float(centre[-1] + _COVERED_SD * spread[-1])
        for _step in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            below = float(weight @ _normal_cdf((middle - centre) / spread))
            low, high = (middle, high) if below < share else (low, middle)
        return base_s + high

    return [quantile(share) for share in shares]


def _loss(segment_s: float, failures: Failures) -> tuple[float, float]:
    """Mean and variance of what one failure costs: the work since the checkpoint, and the restart with its own."""
    lost, lost_variance = _within(segment_s, failures.mttf_s)
    again = math.expm1(failures.restart_s / failures.mttf_s)
    tried, tried_variance = _within(failures.restart_s, failures.mttf_s)
    mean = lost + failures.restart_s + again * tried
    return mean, lost_variance + again * tried_variance + again * (1.0 + again) * tried * tried


def _within(duration_s: float, mttf_s: float) -> tuple[float, float]:
    """Mean and variance of the time to a failure that comes within ``duration_s``."""
    x = duration_s / mttf_s
    if x < 1e-3:
        # Uniform, but for terms that rounding would swamp.
        return duration_s / 2.0, duration_s * duration_s / 12.0
    odds = 1.0 / math.expm1(x)
    return mttf_s * (1.0 - x * odds), mttf_s * mttf_s * (1.0 - x * x * odds * (1.0 + odds))


_erf = np.frompyfunc(math.erf, 1, 1)


def _normal_cdf(z: FloatArray) -> FloatArray:
    return 0.5 + 0.5 * np.asarray(_erf(z / math.sqrt(2.0)), np.float64)
