"""1F1B: its order, its closed form against discrete replay and against what is published, its activations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costmodel.schedule import one_f_one_b
from meshwright.timeline.replay import replay
from tests.costmodel.schedule.pipelines import (
    Pipeline,
    closed_form_s,
    errors,
    profile,
    random_rows,
    table,
    take,
    times,
)


@given(st.integers(1, 12), st.integers(1, 40), st.data())
def test_each_task_once_and_backward_after_forward(pp: int, m: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, pp - 1))
    tasks = one_f_one_b.order(rank, pp, 1, m)
    assert sorted(task[:3] for task in tasks) == sorted(
        (phase, i, 0) for phase in ("forward", "backward") for i in range(m)
    )
    place = {task[:3]: k for k, task in enumerate(tasks)}
    assert all(place["forward", i, 0] < place["backward", i, 0] for i in range(m))


def test_warm_up_is_megatrons() -> None:
    # Megatron-LM, pipeline_parallel/schedules.py: min(pp - rank - 1, m) forwards before the first pair.
    phases = [[task.phase for task in one_f_one_b.order(rank, 4, 1, 8)] for rank in range(4)]
    assert [p.index("backward") - 1 for p in phases] == [3, 2, 1, 0]
    assert phases[0][-4:] == ["backward"] * 4
    assert phases[3] == ["forward", "backward"] * 8


def test_the_figure_of_the_megatron_paper() -> None:
    # arXiv 2104.04473, figure 4 (top): device 1 of 4 runs 1 2 3 4, then backward 1, forward 5, backward 2...
    tasks = one_f_one_b.order(0, 4, 1, 8)
    shown = " ".join(("F" if task.phase == "forward" else "B") + str(task.micro_batch + 1) for task in tasks)
    assert shown == "F1 F2 F3 F4 B1 F5 B2 F6 B3 F7 B4 F8 B5 B6 B7 B8"


@pytest.mark.parametrize("pp", [1, 2, 8, 64])
@pytest.mark.parametrize("m", [1, 3, 8, 256])
def test_even_without_hops_is_m_plus_p_less_one(pp: int, m: int) -> None:
    # arXiv 2104.04473, section 2.2.1: the bubble is (p - 1) (t_f + t_b); it holds for GPipe and so for m < p.
    row = Pipeline(pp, 1, m, (0.7,) * pp, (1.6,) * pp)
    assert closed_form_s([row])[0] == pytest.approx((m + pp - 1) * 2.3, rel=1e-12)


def test_one_micro_batch_goes_down_and_up() -> None:
    row = Pipeline(4, 1, 1, (1.0, 2.0, 3.0, 4.0), (2.0, 4.0, 7.0, 9.0), 0.25)
    assert closed_form_s([row])[0] == pytest.approx(10 + 22 + 6 * 0.25, rel=1e-12)


def test_a_slow_rank_sets_the_pace() -> None:
    slow = [Pipeline(4, 1, 1000, tuple(1.0 + (r == s) for r in range(4)), (2.0,) * 4) for s in range(4)]
    assert closed_form_s(slow) == pytest.approx(np.full(4, 4000.0), rel=0.005)


def test_even_splits_agree_with_replay() -> None:
    rows = random_rows(1, 350) + random_rows(2, 60, most=16384)
    error = errors(rows)
    print(table("1F1B, even", rows, error))
    assert np.abs(error).max() < 0.01
    assert np.quantile(np.abs(error), 0.99) < 0.002


def test_uneven_splits_agree_with_replay() -> None:
    rows = random_rows(3, 350, uneven=True) + random_rows(4, 60, uneven=True, most=16384)
    error = errors(rows)
    print(table("1F1B, uneven", rows, error))
    assert np.abs(error).max() < 0.03
    assert np.quantile(np.abs(error), 0.99) < 0.01


def test_fewer_micro_batches_than_ranks_agree_with_replay() -> None:
    rows = [row for row in random_rows(5, 600, uneven=True) if row.n_micro_batches < row.pp]
    error = errors(rows)
    print(table("1F1B, m < pp", rows, error))
    assert len(rows) > 100
    assert np.abs(error).max() < 0.03


def test_never_less_than_the_busiest_rank_or_one_trip() -> None:
    rows = random_rows(6, 300, uneven=True)
    found = closed_form_s(rows)
    busiest = [row.n_micro_batches * max(np.add(row.forward_s, row.backward_s)) for row in rows]
    trip = [sum(row.forward_s) + sum(row.backward_s) + 2 * row.hop_s * (row.pp - 1) for row in rows]
    assert np.all(found >= np.maximum(busiest, trip) * (1 - 1e-12))


def test_rows_do_not_touch_each_other_and_padding_does_not_count() -> None:
    rows = random_rows(7, 50, uneven=True)
    whole = one_f_one_b.pipeline_time_s(profile(rows))
    padded = profile(rows)
    padded.forward_s[padded.multiplicity == 0] = 1e9
    assert np.array_equal(one_f_one_b.pipeline_time_s(padded), whole)
    parts = [one_f_one_b.pipeline_time_s(take(profile(rows), slice(i, i + 1)))[0] for i in range(len(rows))]
    assert np.allclose(parts, whole, rtol=1e-14)


@pytest.mark.parametrize("pp", [1, 2, 5, 8])
@pytest.mark.parametrize("m", [1, 2, 5, 16])
def test_in_flight_is_what_replay_counts(pp: int, m: int) -> None:
    ranks = np.arange(pp)
    found = one_f_one_b.in_flight(pp, 1, m, ranks)
    assert np.array_equal(found, np.minimum(pp - ranks, m))
    assert np.array_equal(found, replay(times(Pipeline(pp, 1, m, (1.0,) * pp, (2.0,) * pp))).peak_in_flight)


def test_legal() -> None:
    pp, vpp, m = np.array([1, 4, 4]), np.array([1, 1, 2]), np.array([1, 2, 8])
    assert one_f_one_b.legal(pp, vpp, m).tolist() == [True, True, False]
