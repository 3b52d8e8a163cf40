"""Replay: what each task waits for, when it ends, and orders that can never end."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from meshwright.costmodel.pipeline import PipelineTimes, Task
from meshwright.costmodel.schedule import schedules, splits_backward, stages_of_rank
from meshwright.errors import InputError
from meshwright.timeline.replay import PHASES, replay, replay_orders


def even(schedule: str, pp: int, vpp: int, m: int, hop_s: float = 0.0) -> PipelineTimes:
    one = np.ones((pp, len(stages_of_rank(schedule, 0, pp, vpp))))
    return PipelineTimes(schedule, pp, vpp, m, one, 2 * one, 0.8 * one, hop_s)


def uneven(schedule: str, pp: int, vpp: int, m: int, hop_s: float) -> PipelineTimes:
    rng = np.random.default_rng(pp * m)
    stages = np.array([stages_of_rank(schedule, rank, pp, vpp) for rank in range(pp)])
    forward_s, backward_s = rng.uniform(1, 2, pp * vpp)[stages], rng.uniform(2, 4, pp * vpp)[stages]
    return PipelineTimes(schedule, pp, vpp, m, forward_s, backward_s, backward_s * rng.uniform(0.3, 0.5), hop_s)


CASES = [
    ("1f1b", 1, 1, 3),
    ("1f1b", 4, 1, 2),
    ("1f1b", 4, 1, 9),
    ("gpipe", 3, 1, 4),
    ("interleaved", 2, 2, 2),
    ("interleaved", 4, 3, 8),
    ("zb-h1", 4, 1, 2),
    ("zb-h1", 4, 1, 9),
    ("zb-v", 3, 2, 8),
    ("dualpipev", 3, 2, 8),
    ("dualpipe", 6, 1, 16),
]


@pytest.mark.parametrize(("schedule", "pp", "vpp", "m"), CASES)
def test_every_task_once(schedule: str, pp: int, vpp: int, m: int) -> None:
    run = replay(even(schedule, pp, vpp, m))
    for code, phase in enumerate(PHASES):
        chosen = run.phase == code
        tasks = sorted(zip(run.stage[chosen].tolist(), run.micro_batch[chosen].tolist(), strict=True))
        if phase == "weight":
            assert len(set(tasks)) == len(tasks)
            assert bool(tasks) == splits_backward(schedule)
        else:
            assert tasks == [(stage, i) for stage in range(pp * vpp) for i in range(m)]


@pytest.mark.parametrize(("schedule", "pp", "vpp", "m"), CASES)
def test_every_task_starts_when_the_last_of_its_needs_is_there(schedule: str, pp: int, vpp: int, m: int) -> None:
    times = uneven(schedule, pp, vpp, m, 0.3)
    run = replay(times)
    last = pp * vpp - 1
    keys = zip(run.phase.tolist(), run.stage.tolist(), run.micro_batch.tolist(), strict=True)
    place = {key: i for i, key in enumerate(keys)}
    split = {key[1:] for key in place if key[0] == 2}

    def ready_s(i: int) -> float:
        phase, stage, micro_batch = int(run.phase[i]), int(run.stage[i]), int(run.micro_batch[i])
        if phase == 2 or (phase == 0 and stage == 0):
            return 0.0
        if phase == 1 and stage == last:
            return float(run.sent_s[place[0, stage, micro_batch]])
        source = place[phase, stage - 1 if phase == 0 else stage + 1, micro_batch]
        assert (run.sends_to[source] == run.rank[i]) == (run.rank[source] != run.rank[i])
        return float(run.sent_s[source]) + (times.hop_s if run.rank[source] != run.rank[i] else 0.0)

    i = 0
    for rank in range(pp):
        free = 0.0
        tasks = schedules()[schedule].order(rank, pp, vpp, m)
        for k, task in enumerate(tasks):
            assert (run.rank[i], run.chunk[i], run.micro_batch[i]) == (rank, task.chunk, task.micro_batch)
            follows = k > 0 and tasks[k - 1].joined
            ready = 0.0 if follows else max(ready_s(i), ready_s(i + 1) if task.joined else 0.0)
            assert run.start_s[i] == pytest.approx(max(ready, free), abs=1e-12)
            whole, part = times.backward_s[rank, task.chunk], times.weight_s[rank, task.chunk]
            is_split = (int(run.stage[i]), task.micro_batch) in split
            block = {
                "forward": times.forward_s[rank, task.chunk],
                "backward": whole - part if is_split else whole,
                "weight": part,
            }[task.phase]
            assert run.finish_s[i] - run.start_s[i] == pytest.approx(block, abs=1e-12)
            free = float(run.finish_s[i])
            assert run.sent_s[i] == pytest.approx(run.finish_s[i + 1] if task.joined else free, abs=1e-12)
            i += 1
    assert run.step_time_s == run.finish_s.max()


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
        replay(dataclasses.replace(even("interleaved", 2, 2, 2), schedule="interleave"))
    assert caught.value.code == "MW-E160"
    with pytest.raises(InputError, match="cannot run 3 micro-batches") as caught:
        replay(even("interleaved", 2, 2, 3))
    assert caught.value.code == "MW-E161"
