"""Replay: what each task waits for, when it ends, and orders that can never end."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.costmodel.pipeline import PipelineTimes, Task
from meshwright.costmodel.schedule import schedules
from meshwright.errors import InputError
from meshwright.timeline.replay import Replay, replay, replay_orders


def even(schedule: str, pp: int, vpp: int, m: int, hop_s: float = 0.0) -> PipelineTimes:
    one = np.ones((pp, vpp))
    return PipelineTimes(schedule, pp, vpp, m, one, 2 * one, 0.8 * one, hop_s)


def uneven(schedule: str, pp: int, vpp: int, m: int, hop_s: float) -> PipelineTimes:
    rng = np.random.default_rng(pp * m)
    shape = (pp, vpp)
    forward_s, backward_s = rng.uniform(1, 2, shape), rng.uniform(2, 4, shape)
    return PipelineTimes(schedule, pp, vpp, m, forward_s, backward_s, backward_s * rng.uniform(0.3, 0.5), hop_s)


CASES = [("1f1b", 1, 1, 3), ("1f1b", 4, 1, 2), ("1f1b", 4, 1, 9), ("interleaved", 2, 2, 2), ("interleaved", 4, 3, 8)]


def finish(run: Replay) -> dict[tuple[bool, int, int, int], tuple[float, float]]:
    keys = zip((run.phase == 1).tolist(), run.rank.tolist(), run.chunk.tolist(), run.micro_batch.tolist(), strict=True)
    return dict(zip(keys, zip(run.start_s.tolist(), run.finish_s.tolist(), strict=True), strict=True))


@pytest.mark.parametrize(("schedule", "pp", "vpp", "m"), CASES)
def test_every_task_starts_when_the_last_of_its_needs_is_there(schedule: str, pp: int, vpp: int, m: int) -> None:
    times = uneven(schedule, pp, vpp, m, 0.3)
    run = replay(times)
    when = finish(run)
    assert len(when) == 2 * pp * vpp * m
    for rank in range(pp):
        free = 0.0
        for task in schedules()[schedule].order(rank, pp, vpp, m):
            backward, stage = task.phase == "backward", task.chunk * pp + rank
            ready = 0.0
            if backward and stage == pp * vpp - 1:
                ready = when[False, rank, task.chunk, task.micro_batch][1]
            elif backward:
                ready = when[True, (stage + 1) % pp, (stage + 1) // pp, task.micro_batch][1] + times.hop_s * (pp > 1)
            elif stage:
                ready = when[False, (stage - 1) % pp, (stage - 1) // pp, task.micro_batch][1] + times.hop_s * (pp > 1)
            start, end = when[backward, rank, task.chunk, task.micro_batch]
            assert start == pytest.approx(max(ready, free), abs=1e-12)
            block = (times.backward_s if backward else times.forward_s)[rank, task.chunk]
            assert end - start == pytest.approx(block, abs=1e-12)
            free = end
    assert run.step_time_s == max(end for _start, end in when.values())


def test_tasks_of_a_rank_do_not_overlap() -> None:
    run = replay(uneven("interleaved", 4, 3, 16, 0.1))
    same = run.rank[1:] == run.rank[:-1]
    assert np.all(run.start_s[1:][same] >= run.finish_s[:-1][same])


def test_known_times() -> None:
    assert replay(even("1f1b", 4, 1, 8)).step_time_s == pytest.approx((8 + 3) * 3)
    assert replay(even("interleaved", 4, 2, 8)).step_time_s == pytest.approx((8 * 2 + 3) * 3)
    assert replay(even("1f1b", 3, 1, 1, hop_s=0.5)).step_time_s == pytest.approx(9 + 4 * 0.5)


def test_an_order_that_waits_for_itself() -> None:
    times = even("1f1b", 2, 1, 2)
    good = [schedules()["1f1b"].order(rank, 2, 1, 2) for rank in range(2)]
    bad = [Task("backward", 0, 0), Task("forward", 0, 0), Task("forward", 1, 0), Task("backward", 1, 0)]
    with pytest.raises(InputError, match="deadlocks") as caught:
        replay_orders(times, [good[0], bad])
    assert caught.value.code == "MW-E162"
    assert replay_orders(times, good).step_time_s == pytest.approx(9.0)


def test_ranks_that_wait_for_each_other() -> None:
    # Rank 0 wants the gradient of micro-batch 1 before it sends micro-batch 1.
    first = [Task("forward", 0, 0), Task("backward", 1, 0), Task("forward", 1, 0), Task("backward", 0, 0)]
    second = schedules()["1f1b"].order(1, 2, 1, 2)
    with pytest.raises(InputError, match="rank 0"):
        replay_orders(even("1f1b", 2, 1, 2), [first, second])


def test_unknown_and_unfit_schedules() -> None:
    with pytest.raises(InputError, match="Did you mean interleaved") as caught:
        replay(even("interleave", 2, 2, 2))
    assert caught.value.code == "MW-E160"
    with pytest.raises(InputError, match="cannot run 3 micro-batches") as caught:
        replay(even("interleaved", 2, 2, 3))
    assert caught.value.code == "MW-E161"
