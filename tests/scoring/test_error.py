"""Errors against hand-worked numbers."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.scoring.error import bias_ratio, error_ratio, summarise


def test_error_is_a_ratio_to_the_measurement() -> None:
    assert error_ratio(np.array([1.1, 0.8, 2.0]), np.array([1.0, 1.0, 4.0])) == pytest.approx([0.1, 0.2, 0.5])


def test_summary_of_five_cases() -> None:
    # Signed: -0.2, -0.1, 0, +0.3, +0.4; absolute sorted: 0, .1, .2, .3, .4 -> median .2, 90th percentile .36.
    predicted, measured = np.array([0.8, 0.9, 1.0, 1.3, 1.4]), np.ones(5)
    found = summarise(predicted, measured)
    assert found.n == 5
    assert found.median_error_ratio == pytest.approx(0.2)
    assert found.p90_error_ratio == pytest.approx(0.36)
    assert found.bias_ratio == pytest.approx(0.0)
    assert bias_ratio(np.array([1.2, 1.2]), np.ones(2)) == pytest.approx(0.2)


def test_nothing_scored_says_nothing() -> None:
    assert summarise(np.empty(0), np.empty(0)) == (0, None, None, None)
