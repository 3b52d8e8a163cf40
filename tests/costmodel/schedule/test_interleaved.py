"""Interleaved 1F1B: its order, its closed form against discrete replay and what is published, its activations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costmodel.schedule import interleaved
from meshwright.timeline.replay import replay
from tests.costmodel.schedule.pipelines import (
    Pipeline,
    closed_form_s,
    errors,
    profile,
    random_interleaved,
    table,
    take,
    times,
)


def even(pp: int, vpp: int, m: int, hop_s: float = 0.0) -> Pipeline:
    return Pipeline(pp, vpp, m, (1.0,) * pp, (2.0,) * pp, hop_s)


@given(st.integers(2, 6), st.integers(2, 5), st.integers(1, 4), st.data())
def test_each_task_once_and_backward_after_forward(pp: int, vpp: int, groups: int, data: st.DataObject) -> None:
    m, rank = pp * groups, data.draw(st.integers(0, pp - 1))
    tasks = interleaved.order(rank, pp, vpp, m)
    every = [(phase, i, c) for phase in ("forward", "backward") for i in range(m) for c in range(vpp)]
    assert sorted(task[:3] for task in tasks) == sorted(every)
    place = {task[:3]: k for k, task in enumerate(tasks)}
    assert all(place["forward", i, c] < place["backward", i, c] for i in range(m) for c in range(vpp))


def test_warm_up_is_megatrons() -> None:
    # Megatron-LM, pipeline_parallel/schedules.py, get_pp_rank_microbatches: 2 (pp - r - 1) + (vpp - 1) pp.
    phases = [[task.phase for task in interleaved.order(rank, 4, 2, 8)] for rank in range(4)]
    assert [p.index("backward") - 1 for p in phases] == [10, 8, 6, 4]
    assert [p[::-1].index("forward") - 1 for p in phases] == [10, 8, 6, 4]


def test_the_schedule_table_of_megatron() -> None:
    # Its documented example, with groups as large as the pipeline: micro-batches 0 1 0 1 2 3 2 3 on chunks 0 0 1 1...
    forwards = [task for task in interleaved.order(0, 2, 2, 4) if task.phase == "forward"]
    assert [task.micro_batch for task in forwards] == [0, 1, 0, 1, 2, 3, 2, 3]
    assert [task.chunk for task in forwards] == [0, 0, 1, 1, 0, 0, 1, 1]
    backwards = [task for task in interleaved.order(0, 2, 2, 4) if task.phase == "backward"]
    assert [task.chunk for task in backwards] == [1, 1, 0, 0, 1, 1, 0, 0]


@pytest.mark.parametrize(("pp", "vpp", "m"), [(2, 2, 2), (4, 2, 8), (8, 4, 8), (16, 3, 64), (64, 8, 64)])
def test_even_without_hops_divides_the_bubble(pp: int, vpp: int, m: int) -> None:
    # arXiv 2104.04473, section 2.2.2: the bubble of 1F1B over v.
    assert closed_form_s([even(pp, vpp, m)])[0] == pytest.approx((m + (pp - 1) / vpp) * 3.0, rel=1e-12)


def test_short_hops_only_delay_the_ends() -> None:
    # The first micro-batch makes pp vpp - 1 hops before its first backward, the last as many after its last forward.
    assert closed_form_s([even(4, 2, 16, hop_s=0.01)])[0] == pytest.approx((16 + 3 / 2) * 3.0 + 2 * 7 * 0.01, rel=1e-12)


def test_even_splits_agree_with_replay() -> None:
    rows = [row for seed in (1, 2) for row in random_interleaved(seed, 200)]
    error = errors(rows)
    print(table("interleaved", rows, error))
    assert np.abs(error).max() < 0.01
    assert np.quantile(np.abs(error), 0.99) < 0.001


def test_ends_with_fewer_layers_agree_with_replay() -> None:
    rows = [row for seed in (3, 4) for row in random_interleaved(seed, 200, ends_hold_fewer=True)]
    error = errors(rows)
    print(table("interleaved, fewer layers at the ends", rows, error))
    assert np.abs(error).max() < 0.02
    assert np.quantile(np.abs(error), 0.99) < 0.01


def test_hops_as_long_as_a_chunk_stay_near_replay() -> None:
    rows = random_interleaved(5, 200, hop_ratio=1.0)
    error = errors(rows)
    print(table("interleaved, hops up to a chunk's time", rows, error))
    assert np.abs(error).max() < 0.04


def test_never_less_than_the_busiest_rank() -> None:
    rows = random_interleaved(6, 200, ends_hold_fewer=True)
    busiest = [row.n_micro_batches * max(np.add(row.forward_s, row.backward_s)) for row in rows]
    assert np.all(closed_form_s(rows) >= np.array(busiest) * (1 - 1e-12))


def test_rows_do_not_touch_each_other() -> None:
    rows = random_interleaved(7, 40)
    whole = interleaved.pipeline_time_s(profile(rows))
    parts = [interleaved.pipeline_time_s(take(profile(rows), slice(i, i + 1)))[0] for i in range(len(rows))]
    assert np.allclose(parts, whole, rtol=1e-14)


@pytest.mark.parametrize(("pp", "vpp", "m"), [(2, 2, 2), (2, 3, 4), (4, 2, 4), (4, 2, 16), (8, 3, 8)])
def test_in_flight_is_what_replay_counts(pp: int, vpp: int, m: int) -> None:
    found = interleaved.in_flight(pp, vpp, m, np.arange(pp))
    assert np.array_equal(found, replay(times(even(pp, vpp, m))).peak_in_flight)


def test_in_flight_of_rank_zero() -> None:
    # arXiv 2205.05198, section 4.2.3: p (1 + (p - 1) / (p v)) layers' worth of micro-batches: (v + 1) p - 1 chunks.
    for pp, vpp in ((4, 2), (8, 4), (16, 3)):
        assert int(interleaved.in_flight(pp, vpp, 4 * pp, 0)) == (vpp + 1) * pp - 1
        assert (vpp + 1) * pp - 1 == pytest.approx(pp * (1 + (pp - 1) / (pp * vpp)) * vpp)


def test_legal() -> None:
    pp, vpp, m = np.array([4, 4, 4, 1, 4]), np.array([2, 2, 1, 2, 3]), np.array([8, 6, 8, 8, 4])
    assert interleaved.legal(pp, vpp, m).tolist() == [True, False, False, False, True]
