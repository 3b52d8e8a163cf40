"""ZB-V, DualPipeV and DualPipe: closed forms against discrete replay and the papers, activations, placement."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.costmodel.schedule import (
    dualpipe,
    dualpipev,
    hides_expert_traffic,
    parameter_copies,
    schedules,
    splits_backward,
    stages_of_rank,
    zb_v,
)
from meshwright.timeline.replay import replay
from tests.costmodel.schedule.pipelines import Pipeline, closed_form_s, errors, profile, random_v, table, take, times

V_SHAPES = ("zb-v", "dualpipev", "dualpipe")


def even(
    schedule: str, pp: int, m: int, forward: float, gradient: float, weight: float, hop_s: float = 0.0
) -> Pipeline:
    """Two equal chunks a rank, each with these times."""
    backward, vpp = gradient + weight, 1 if schedule == "dualpipe" else 2
    share = weight / backward
    return Pipeline(pp, vpp, m, (2 * forward,) * pp, (2 * backward,) * pp, hop_s, weight=share, schedule=schedule)


def test_placement() -> None:
    assert [stages_of_rank("zb-v", rank, 4, 2) for rank in range(4)] == [(0, 7), (1, 6), (2, 5), (3, 4)]
    assert stages_of_rank("dualpipev", 1, 4, 2) == (1, 6)
    assert [stages_of_rank("dualpipe", rank, 4, 1) for rank in range(4)] == [(0, 3), (1, 2), (2, 1), (3, 0)]
    assert stages_of_rank("interleaved", 1, 4, 3) == (1, 5, 9)
    assert stages_of_rank("1f1b", 2, 4, 1) == (2,)


def test_what_a_schedule_says_of_itself() -> None:
    assert {name for name in schedules() if splits_backward(name)} == {"zb-h1", *V_SHAPES}
    assert {name for name in schedules() if parameter_copies(name) == 2} == {"dualpipe"}
    assert {name for name in schedules() if hides_expert_traffic(name)} == {"dualpipe", "dualpipev"}


@pytest.mark.parametrize(("pp", "m"), [(2, 4), (4, 8), (4, 20), (8, 33)])
def test_zb_v_has_no_bubble_on_any_rank(pp: int, m: int) -> None:
    # arXiv 2401.10241, section 6: none where T_F = T_B = T_W; the ranks start one forward after the other.
    row = even("zb-v", pp, m, 1.0, 1.0, 1.0)
    run = replay(times(row))
    for rank in range(pp):
        own = run.rank == rank
        assert run.finish_s[own].max() - run.start_s[own].min() == pytest.approx(6 * m, rel=1e-12)
    assert closed_form_s([row])[0] == pytest.approx(6 * m + pp - 1, rel=1e-12)


@pytest.mark.parametrize(("stages", "m"), [(4, 8), (8, 10), (8, 16), (16, 16), (16, 40)])
@pytest.mark.parametrize("schedule", ["dualpipev", "dualpipe"])
def test_the_bubble_of_dualpipe(schedule: str, stages: int, m: int) -> None:
    # arXiv 2412.19437, table 2: (PP / 2 - 1) (F&B + B - 3 W), here with F = B / 2 = W and F&B = F + B. Each way has
    # m micro-batches.
    both = 2 if schedule == "dualpipe" else 1
    row = even(schedule, stages // 2 * both, m * both, 1.0, 1.0, 1.0)
    bubble = (stages / 2 - 1) * (3 + 2 - 3)
    assert closed_form_s([row])[0] == pytest.approx(6 * m + bubble, rel=1e-12)
    assert replay(times(row)).step_time_s == pytest.approx(6 * m + bubble, rel=1e-12)


@pytest.mark.parametrize("schedule", V_SHAPES)
def test_equal_ranks_agree_with_replay(schedule: str) -> None:
    rows = random_v(schedule, 41, 200)
    error = errors(rows)
    print(table(schedule, rows, error))
    assert np.abs(error).max() < 0.03
    assert np.quantile(np.abs(error), 0.9) < 0.01


@pytest.mark.parametrize("schedule", V_SHAPES)
def test_unequal_ranks_agree_with_replay(schedule: str) -> None:
    rows = random_v(schedule, 42, 200, uneven=True)
    error = errors(rows)
    print(table(f"{schedule}, uneven", rows, error))
    assert np.abs(error).max() < 0.03
    assert np.quantile(np.abs(error), 0.9) < 0.01


@pytest.mark.parametrize("schedule", V_SHAPES)
def test_rows_do_not_touch_each_other_and_padding_does_not_count(schedule: str) -> None:
    rows = random_v(schedule, 43, 40, uneven=True)
    whole = schedules()[schedule].pipeline_time_s(profile(rows))
    padded = profile(rows)
    for column in (padded.forward_s, padded.backward_s, padded.weight_s):
        column[padded.multiplicity == 0] = 1e9
    assert np.array_equal(schedules()[schedule].pipeline_time_s(padded), whole)
    parts = [schedules()[schedule].pipeline_time_s(take(profile(rows), slice(i, i + 1)))[0] for i in range(len(rows))]
    assert np.allclose(parts, whole, rtol=1e-14)


@pytest.mark.parametrize("schedule", V_SHAPES)
def test_never_less_than_the_busiest_rank(schedule: str) -> None:
    rows = random_v(schedule, 44, 200, uneven=True)
    share = 0.5 if schedule == "dualpipe" else 1.0
    busiest = [share * row.n_micro_batches * max(np.add(row.forward_s, row.backward_s)) for row in rows]
    assert np.all(closed_form_s(rows) >= np.array(busiest) * (1 - 1e-12))


@pytest.mark.parametrize("schedule", V_SHAPES)
def test_in_flight_is_what_replay_counts(schedule: str) -> None:
    for row in random_v(schedule, 45, 40):
        found = schedules()[schedule].in_flight(row.pp, row.vpp, row.n_micro_batches, np.arange(row.pp))
        np.testing.assert_array_equal(found, replay(times(row)).peak_in_flight)


def test_in_flight_of_the_papers() -> None:
    # arXiv 2401.10241, section 6: as much as 1F1B, p whole stages, here 2 p halves. DeepSeek's table: PP + 1 stages.
    assert zb_v.in_flight(4, 2, 16, np.arange(4)).tolist() == [8] * 4
    assert dualpipev.in_flight(4, 2, 16, np.arange(4)).tolist() == [9] * 4
    assert dualpipe.in_flight(8, 1, 32, np.arange(8)).tolist() == [9] * 8


def test_legal() -> None:
    assert zb_v.legal(np.array([4, 4, 4, 1]), np.array([2, 2, 1, 2]), np.array([8, 7, 8, 8])).tolist() == [
        True,
        False,
        False,
        False,
    ]
    assert dualpipev.legal(np.array([4, 4, 4]), np.array([2, 2, 1]), np.array([8, 7, 8])).tolist() == [
        True,
        False,
        False,
    ]
    pp, m = np.array([4, 4, 4, 3]), np.array([8, 9, 6, 8])
    assert dualpipe.legal(pp, np.ones(4, int), m).tolist() == [True, False, False, False]
