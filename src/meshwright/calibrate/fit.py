"""Fit a few physical constants to measured step times: robust least squares in log space, with priors.

Each residual is log(predicted / measured); each constant pulls back to its prior with its own strength. Families get
equal weight, whatever their number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshwright.costmodel import evaluate
from meshwright.errors import EnvironmentLackError
from meshwright.i18n import _
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import LayoutBatch

FloatArray = npt.NDArray[np.float64]
#: Log-residuals beyond this count linearly, not squared: a sick run must not steer a constant.
ROBUST_SCALE = 0.10


@dataclass(slots=True)
class Measured:
    """Measured step times (n,) of one job on one cluster under ``layouts``; ``group`` names their family."""

    job: TrainingJob
    cluster: Cluster
    layouts: LayoutBatch
    step_time_s: FloatArray
    group: str


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted values and standard errors (of the logarithm) by constant name."""

    values: Mapping[str, float]
    standard_error_ratio: Mapping[str, float]


def predictions(measured: Sequence[Measured], constants: Constants) -> list[FloatArray]:
    """Predicted step times, one array for each measured set."""
    return [evaluate(m.job, m.cluster, m.layouts, constants).step_time_s for m in measured]


def fit(measured: Sequence[Measured], constants: Constants, names: Sequence[str]) -> Fit:
    """Fit the constants ``names``, starting from their values and pulled towards their priors.

    Needs the extra ``fit`` (scipy). Raises EnvironmentLackError (MW-E390) without it.
    """
    try:
        from scipy.optimize import least_squares  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise EnvironmentLackError(
            "MW-E390", _("fitting needs scipy."), nearest=_("Type: pip install 'meshwright[fit]'")
        ) from error
    prior = np.array([constants.by_name[name].prior for name in names])
    prior_sd = np.array([constants.by_name[name].prior_sd_ratio for name in names])
    weights = _row_weights(measured)
    target = np.concatenate([np.log(m.step_time_s) for m in measured])

    def residuals(theta: FloatArray) -> FloatArray:
        trial = constants.replace(dict(zip(names, prior * np.exp(theta), strict=True)))
        error = np.log(np.concatenate(predictions(measured, trial))) - target
        scaled = error / ROBUST_SCALE
        # Pseudo-Huber: quadratic inside ROBUST_SCALE, linear outside; signed, so least squares can use it.
        robust = np.sign(scaled) * np.sqrt(2.0 * (np.sqrt(1.0 + scaled**2) - 1.0))
        return np.concatenate([robust * np.sqrt(weights), theta / prior_sd])

    start = np.log([constants.by_name[name].value for name in names]) - np.log(prior)
    solution = least_squares(residuals, start, diff_step=1e-4, ftol=1e-4, xtol=1e-4)
    covariance = np.linalg.inv(solution.jac.T @ solution.jac)
    values = dict(zip(names, (prior * np.exp(solution.x)).tolist(), strict=True))
    return Fit(values, dict(zip(names, np.sqrt(np.diag(covariance)).tolist(), strict=True)))


def _row_weights(measured: Sequence[Measured]) -> FloatArray:
    rows: dict[str, int] = {}
    for m in measured:
        rows[m.group] = rows.get(m.group, 0) + len(m.step_time_s)
    return np.concatenate([np.full(len(m.step_time_s), 200.0 / rows[m.group]) for m in measured])
