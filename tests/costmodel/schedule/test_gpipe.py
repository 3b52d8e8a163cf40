"""GPipe: its order, its closed form against discrete replay and the paper, its activations."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.costmodel.schedule import gpipe
from meshwright.timeline.replay import replay
from tests.costmodel.schedule.pipelines import Pipeline, as_schedule, closed_form_s, errors, random_rows, table, times


def test_forwards_then_backwards() -> None:
    tasks = gpipe.order(1, 4, 1, 3)
    assert [task[:3] for task in tasks] == [(p, i, 0) for p in ("forward", "backward") for i in range(3)]


@pytest.mark.parametrize("pp", [1, 2, 8, 64])
@pytest.mark.parametrize("m", [1, 3, 8, 256])
def test_the_bubble_of_the_paper(pp: int, m: int) -> None:
    # arXiv 1811.06965, section 2.3: (K - 1) / (M + K - 1) of the time is bubble.
    row = Pipeline(pp, 1, m, (0.7,) * pp, (1.6,) * pp, schedule="gpipe")
    assert closed_form_s([row])[0] == pytest.approx((m + pp - 1) * 2.3, rel=1e-12)


@pytest.mark.parametrize("uneven", [False, True])
def test_agrees_with_replay(uneven: bool) -> None:
    rows = as_schedule(random_rows(21, 250, uneven=uneven), "gpipe", 21)
    error = errors(rows)
    print(table("GPipe", rows, error))
    assert np.abs(error).max() < 1e-9


def test_in_flight_is_what_replay_counts() -> None:
    row = Pipeline(4, 1, 9, (1.0,) * 4, (2.0,) * 4, schedule="gpipe")
    found = gpipe.in_flight(4, 1, 9, np.arange(4))
    assert found.tolist() == [9] * 4
    assert np.array_equal(found, replay(times(row)).peak_in_flight)


def test_legal() -> None:
    pp, vpp, m = np.array([1, 4, 4]), np.array([1, 1, 2]), np.array([1, 2, 8])
    assert gpipe.legal(pp, vpp, m).tolist() == [True, True, False]
