"""Discrete replay of one pipeline: event order, block times and hop latency, nothing else.

It is the check of the schedules' closed forms and the source of the step's timeline. A forward needs the forward of
the virtual stage before it and one hop, a backward the backward of the stage after it and one hop, the backward of
the last stage its own forward; a rank runs its order one task at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.pipeline import PipelineTimes, Task
from meshwright.costmodel.schedule import schedules
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(slots=True)
class Replay:
    """When every task of one step ran.

    Columns of length n = 2 pp vpp m, by rank and then in the order the rank ran them: ``rank``, ``chunk``,
    ``micro_batch``, ``is_backward``, ``start_s``, ``finish_s``. ``peak_in_flight`` (pp,): most (micro-batch, chunk)
    activations alive at once on each rank, from the start of the forward to the end of the backward.
    """

    step_time_s: float
    peak_in_flight: IntArray
    rank: IntArray
    chunk: IntArray
    micro_batch: IntArray
    is_backward: npt.NDArray[np.bool_]
    start_s: FloatArray
    finish_s: FloatArray


def replay(times: PipelineTimes) -> Replay:
    """Run the schedule of ``times`` once.

    Raises InputError MW-E160 for an unknown schedule, MW-E161 where pp, vpp and the micro-batches do not suit it,
    MW-E162 where its order can never finish (a task waits for one that comes later).
    """
    known = schedules()
    if times.schedule not in known:
        raise InputError(
            "MW-E160",
            _("'{name}' is not a pipeline schedule.").format(name=times.schedule),
            where="schedule",
            nearest=did_you_mean(times.schedule, known),
        )
    schedule = known[times.schedule]
    if not np.all(schedule.legal(times.pp, times.vpp, times.n_micro_batches)):
        raise InputError(
            "MW-E161",
            _("Schedule '{name}' cannot run {m} micro-batches on pp={pp}, vpp={vpp}.").format(
                name=times.schedule, m=times.n_micro_batches, pp=times.pp, vpp=times.vpp
            ),
            where="schedule",
        )
    orders = [schedule.order(rank, times.pp, times.vpp, times.n_micro_batches) for rank in range(times.pp)]
    return replay_orders(times, orders)


def replay_orders(times: PipelineTimes, orders: list[list[Task]]) -> Replay:
    """Run given orders, one list of tasks a rank. Raises InputError MW-E162 where they deadlock."""
    finish_s = _finish_times(times, orders)
    rank = np.repeat(np.arange(times.pp), [len(tasks) for tasks in orders])
    tasks = [task for tasks in orders for task in tasks]
    backward = np.array([task.phase == "backward" for task in tasks], bool)
    chunk = np.array([task.chunk for task in tasks], np.int64)
    duration_s = np.where(backward, times.backward_s[rank, chunk], times.forward_s[rank, chunk])
    finish = np.concatenate([np.asarray(one, np.float64) for one in finish_s])
    before = np.concatenate([[0.0, *one[:-1]][: len(one)] for one in finish_s])
    return Replay(
        step_time_s=float(finish.max(initial=0.0)),
        peak_in_flight=np.array([_peak(backward[rank == r]) for r in range(times.pp)], np.int64),
        rank=rank,
        chunk=chunk,
        micro_batch=np.array([task.micro_batch for task in tasks], np.int64),
        is_backward=backward,
        # Rounding must not let a task start before the one in front of it has finished.
        start_s=np.maximum(finish - duration_s, before),
        finish_s=finish,
    )


def _peak(backward: npt.NDArray[np.bool_]) -> int:
    return int(np.cumsum(np.where(backward, -1, 1)).max(initial=0))


def _finish_times(times: PipelineTimes, orders: list[list[Task]]) -> list[list[float]]:
    """Finish time of each rank's tasks. A rank runs until a task is not ready, and is woken when it becomes so."""
    n_stages, m = times.pp * times.vpp, times.n_micro_batches
    ready: list[float | None] = [None] * (2 * n_stages * m)
    ready[:m] = [0.0] * m
    plans = [_plan(times, rank, tasks) for rank, tasks in enumerate(orders)]
    finish: list[list[float]] = [[] for _rank in orders]
    sleeping: dict[int, int] = {}
    awake = list(range(times.pp))
    while awake:
        rank = awake.pop()
        plan, done = plans[rank], finish[rank]
        now = done[-1] if done else 0.0
        for needs, duration_s, enables, delay_s in plan[len(done) :]:
            at = ready[needs]
            if at is None:
                sleeping[needs] = rank
                break
            now = (at if at > now else now) + duration_s
            done.append(now)
            if enables >= 0:
                ready[enables] = now + delay_s
                if enables in sleeping:
                    awake.append(sleeping.pop(enables))
    for rank, (plan, done) in enumerate(zip(plans, finish, strict=True)):
        if len(done) < len(plan):
            raise _deadlock(rank, orders[rank][len(done)])
    return finish


def _plan(times: PipelineTimes, rank: int, tasks: list[Task]) -> list[tuple[int, float, int, float]]:
    """Per task: the slot it waits for, its time, the slot it fills (-1: none) and how much later that is ready.

    A slot is one task of the pipeline: forwards by stage and micro-batch, then backwards the same way.
    """
    n_stages, m, pp = times.pp * times.vpp, times.n_micro_batches, times.pp
    hop_s = times.hop_s if pp > 1 else 0.0
    forward_s, backward_s = times.forward_s[rank].tolist(), times.backward_s[rank].tolist()
    plan = []
    for phase, micro_batch, chunk in tasks:
        stage = chunk * pp + rank
        if phase == "forward":
            last = stage == n_stages - 1
            enabled = n_stages + stage if last else stage + 1
            plan.append((stage * m + micro_batch, forward_s[chunk], enabled * m + micro_batch, 0.0 if last else hop_s))
        else:
            enabled = n_stages + stage - 1 if stage else -1
            slot = enabled * m + micro_batch if stage else -1
            plan.append(((n_stages + stage) * m + micro_batch, backward_s[chunk], slot, hop_s))
    return plan


def _deadlock(rank: int, task: Task) -> InputError:
    return InputError(
        "MW-E162",
        _("The order deadlocks: rank {rank} waits for ever for the {phase} of micro-batch {i}, chunk {chunk}.").format(
            rank=rank, phase=task.phase, i=task.micro_batch, chunk=task.chunk
        ),
        where="schedule",
    )
