"""ZB-H1: its order, its closed form against discrete replay and the paper, its activations."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.costmodel.schedule import one_f_one_b, zb_h1
from meshwright.timeline.replay import replay
from tests.costmodel.schedule.pipelines import (
    Pipeline,
    as_schedule,
    closed_form_s,
    errors,
    profile,
    random_rows,
    table,
    take,
    times,
)


def even(pp: int, m: int, forward: float, gradient: float, weight: float, hop_s: float = 0.0) -> Pipeline:
    backward = gradient + weight
    return Pipeline(pp, 1, m, (forward,) * pp, (backward,) * pp, hop_s, weight=weight / backward, schedule="zb-h1")


def test_weight_gradients_come_rank_micro_batches_late() -> None:
    # arXiv 2401.10241, figure 3 (top): device 4 of 4 delays three weight gradients, device 1 none.
    shown = [" ".join(t.phase[0].upper() + str(t.micro_batch + 1) for t in zb_h1.order(r, 4, 1, 8)) for r in (0, 3)]
    assert shown[0].startswith("F1 F2 F3 F4 B1 W1 F5 B2 W2")
    assert shown[1].startswith("F1 B1 F2 B2 F3 B3 F4 B4 W1 F5 B5 W2")


@pytest.mark.parametrize(("pp", "m"), [(1, 4), (2, 2), (4, 4), (4, 12), (8, 64), (32, 32)])
@pytest.mark.parametrize(("forward", "gradient", "weight"), [(1.0, 1.0, 1.0), (1.0, 1.3, 0.9), (2.0, 2.5, 2.0)])
def test_the_bubble_of_the_paper(pp: int, m: int, forward: float, gradient: float, weight: float) -> None:
    # arXiv 2401.10241, table 1: (p - 1) (T_F + T_B - T_W), T_B the input's gradient alone.
    row = even(pp, m, forward, gradient, weight)
    bubble = (pp - 1) * (forward + gradient - weight)
    assert closed_form_s([row])[0] == pytest.approx(m * (forward + gradient + weight) + bubble, rel=1e-12)


def test_weight_gradients_that_outlast_their_gap() -> None:
    # T_W > T_B: no rank catches up by more than the others' input gradients, and the warm-up alone is left.
    assert closed_form_s([even(4, 16, 1.0, 0.8, 1.0)])[0] == pytest.approx(16 * 2.8 + 3 * 1.0, rel=1e-12)


def test_even_splits_agree_with_replay() -> None:
    rows = as_schedule(random_rows(31, 300), "zb-h1", 31)
    error = errors(rows)
    print(table("ZB-H1, even", rows, error))
    assert np.abs(error).max() < 0.01
    assert np.quantile(np.abs(error), 0.99) < 2e-3


def test_uneven_splits_agree_with_replay() -> None:
    rows = as_schedule(random_rows(32, 350, uneven=True), "zb-h1", 32)
    error = errors(rows)
    print(table("ZB-H1, uneven", rows, error))
    assert np.abs(error).max() < 0.03
    assert np.quantile(np.abs(error), 0.99) < 0.015


def test_between_its_work_and_1f1b() -> None:
    rows = as_schedule(random_rows(33, 200, uneven=True), "zb-h1", 33)
    found = closed_form_s(rows)
    busiest = [row.n_micro_batches * max(np.add(row.forward_s, row.backward_s)) for row in rows]
    assert np.all(found >= np.array(busiest) * (1 - 1e-12))
    assert np.mean(found <= one_f_one_b.pipeline_time_s(profile(rows)) * (1 + 1e-9)) > 0.97


def test_rows_do_not_touch_each_other_and_padding_does_not_count() -> None:
    rows = as_schedule(random_rows(34, 50, uneven=True), "zb-h1", 34)
    whole = zb_h1.pipeline_time_s(profile(rows))
    padded = profile(rows)
    for column in (padded.forward_s, padded.backward_s, padded.weight_s):
        column[padded.multiplicity == 0] = 1e9
    assert np.array_equal(zb_h1.pipeline_time_s(padded), whole)
    parts = [zb_h1.pipeline_time_s(take(profile(rows), slice(i, i + 1)))[0] for i in range(len(rows))]
    assert np.allclose(parts, whole, rtol=1e-14)


@pytest.mark.parametrize("pp", [1, 2, 5, 8])
@pytest.mark.parametrize("m", [1, 2, 5, 16])
def test_in_flight_is_what_replay_counts(pp: int, m: int) -> None:
    # arXiv 2401.10241, table 1: the memory of 1F1B, p micro-batches.
    found = zb_h1.in_flight(pp, 1, m, np.arange(pp))
    assert found.tolist() == [min(pp, m)] * pp
    assert np.array_equal(found, replay(times(even(pp, m, 1.0, 1.0, 1.0))).peak_in_flight)


def test_legal() -> None:
    pp, vpp, m = np.array([1, 4, 4]), np.array([1, 1, 2]), np.array([1, 2, 8])
    assert zb_h1.legal(pp, vpp, m).tolist() == [True, True, False]
