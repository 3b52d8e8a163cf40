"""Overlap: nothing lost, nothing free."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.costmodel.overlap import contention_s, exposed_s


def test_one_bucket_never_hides() -> None:
    assert exposed_s(np.array([1.0]), np.array([9.0]), np.array([1.0]))[0] == 1.0
    assert exposed_s(np.array([1.0]), np.array([9.0]), np.array([10.0]))[0] == pytest.approx(0.1)


def test_what_exceeds_the_window_is_exposed() -> None:
    assert exposed_s(np.array([10.0]), np.array([4.0]), np.array([10.0]))[0] == pytest.approx(6.0)
    assert exposed_s(np.array([10.0]), np.array([0.0]), np.array([10.0]))[0] == pytest.approx(10.0)


def test_hidden_communication_slows_compute() -> None:
    assert contention_s(np.array([2.0]), 0.189)[0] == pytest.approx(0.378)
