"""Intervals against hand-worked numbers and a known distribution."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.scoring.interval import coverage_ratio, covered, interval_score, is_clear_lead


def test_the_ends_are_inside() -> None:
    low, high = np.array([1.0, 1.0, 1.0]), np.array([2.0, 2.0, 2.0])
    assert covered(low, high, np.array([1.0, 2.0, 2.1])).tolist() == [True, True, False]
    assert coverage_ratio(low, high, np.array([1.0, 2.0, 2.1])) == pytest.approx(2 / 3)
    assert coverage_ratio(np.empty(0), np.empty(0), np.empty(0)) is None


def test_score_by_hand() -> None:
    # Width 1, the measurement 0.5 above: 1 + 2 / (1 - 0.8) * 0.5 = 6.
    assert interval_score(np.array([1.0]), np.array([2.0]), np.array([2.5])) == pytest.approx(6.0)
    assert interval_score(np.array([1.0]), np.array([2.0]), np.array([1.5])) == pytest.approx(1.0)


def test_true_quantiles_score_best() -> None:
    """The score is proper: on normal draws the true 80 % interval beats narrower and wider ones."""
    draws = np.random.default_rng(1).normal(size=20_000)
    z = 1.2815515655446004  # 90th percentile of the standard normal

    def score(half: float) -> float:
        found = interval_score(np.full(draws.size, -half), np.full(draws.size, half), draws)
        assert found is not None
        return found

    assert score(z) < score(0.8 * z)
    assert score(z) < score(1.25 * z)
    assert coverage_ratio(np.full(draws.size, -z), np.full(draws.size, z), draws) == pytest.approx(0.8, abs=0.01)


def test_a_lead_counts_where_it_exceeds_both_intervals() -> None:
    # Half-widths of 10 % each face each other: together sqrt(2) of one.
    edge = np.exp(np.hypot(np.log(1.1), np.log(1.1)))
    for lead, clear in ((0.999 * edge, False), (1.001 * edge, True), (1.0, False)):
        other = 100.0 * lead
        assert is_clear_lead(100.0, (50.0, 110.0), other, (other / 1.1, 5 * other)) is clear
