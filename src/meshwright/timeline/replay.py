"""Discrete replay of one pipeline: event order, block times and hop latency, nothing else.

It is the check of the schedules' closed forms and the source of the step's timeline. A forward needs the forward of
the virtual stage before it, a backward the backward of the stage after it, the backward of the last stage its own
forward, a weight gradient the input's gradient of its own backward; what comes from another rank comes one hop later.
A rank runs its order one task at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.pipeline import PipelineTimes, Task
from meshwright.costmodel.schedule import schedules, stages_of_rank
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


#: What a task can be; ``Replay.phase`` counts into it.
PHASES = ("forward", "backward", "weight")


@dataclass(slots=True)
class Replay:
    """When every task of one step ran.

    Columns of length n, by rank and then in the order the rank ran them: ``rank``, ``chunk``, ``micro_batch``,
    ``stage`` (virtual), ``phase`` (index into ``PHASES``), ``start_s``, ``finish_s``, ``sends_to`` (the rank that waits
    for what it sends; -1: none) and ``sent_s`` (when that leaves). ``peak_in_flight`` (pp,): most (micro-batch, chunk)
    activations alive at once on each rank, from the start of the forward to the end of the whole backward.
    """

    step_time_s: float
    peak_in_flight: IntArray
    rank: IntArray
    chunk: IntArray
    stage: IntArray
    micro_batch: IntArray
    phase: IntArray
    start_s: FloatArray
    finish_s: FloatArray
    sends_to: IntArray
    sent_s: FloatArray


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
    plans = _plans(times, orders)
    finish_s = _finish_times(times, orders, plans)
    rank = np.repeat(np.arange(times.pp), [len(tasks) for tasks in orders])
    tasks = [task for tasks in orders for task in tasks]
    codes = {phase: code for code, phase in enumerate(PHASES)}
    chunk = np.array([task.chunk for task in tasks], np.int64)
    stages = np.array([stages_of_rank(times.schedule, r, times.pp, times.vpp) for r in range(times.pp)])
    duration_s = np.array([time for plan in plans for step in plan for time in step.durations_s])
    finish = np.concatenate([np.asarray(one, np.float64) for one in finish_s])
    before = np.concatenate([[0.0, *one[:-1]][: len(one)] for one in finish_s])
    joined = np.array([task.joined for task in tasks], bool)
    return Replay(
        step_time_s=float(finish.max(initial=0.0)),
        peak_in_flight=np.array([_peak(tasks) for tasks in orders], np.int64),
        rank=rank,
        chunk=chunk,
        stage=stages[rank, chunk],
        micro_batch=np.array([task.micro_batch for task in tasks], np.int64),
        phase=np.array([codes[task.phase] for task in tasks], np.int64),
        # Rounding must not let a task start before the one in front of it has finished.
        start_s=np.maximum(finish - duration_s, before),
        finish_s=finish,
        sends_to=np.array([to for plan in plans for step in plan for to in step.sends_to], np.int64),
        sent_s=np.where(joined, np.append(finish[1:], 0.0), finish),
    )


def _peak(tasks: list[Task]) -> int:
    split = _split(tasks)
    alive = peak = 0
    for task in tasks:
        if task.phase == "forward":
            alive += 1
            peak = max(peak, alive)
        elif task.phase == "weight" or (task.micro_batch, task.chunk) not in split:
            alive -= 1
    return peak


def _split(tasks: list[Task]) -> set[tuple[int, int]]:
    """(micro-batch, chunk) whose weight gradient is a task of its own."""
    return {(task.micro_batch, task.chunk) for task in tasks if task.phase == "weight"}


class _Step(NamedTuple):
    """Work that starts at one moment: a task, or two joined.

    ``needs``: the slots it waits for; ``sends``: the slots it fills, each with how much later that is ready;
    ``durations_s`` and ``sends_to`` (another rank or -1) of its tasks. A slot is one task of the pipeline: forwards by
    virtual stage and micro-batch, then backwards the same way. A weight gradient waits for the tasks before it only.
    """

    needs: list[int]
    sends: list[tuple[int, float]]
    durations_s: list[float]
    sends_to: list[int]


def _finish_times(times: PipelineTimes, orders: list[list[Task]], plans: list[list[_Step]]) -> list[list[float]]:
    """Finish time of each rank's tasks. A rank runs until a step is not ready, and is woken when it becomes so."""
    n_stages, m = times.pp * times.vpp, times.n_micro_batches
    ready: list[float | None] = [None] * (2 * n_stages * m)
    ready[:m] = [0.0] * m
    finish: list[list[float]] = [[] for _rank in orders]
    next_step = [0] * times.pp
    sleeping: dict[int, int] = {}
    awake = list(range(times.pp))
    while awake:
        rank = awake.pop()
        plan, done = plans[rank], finish[rank]
        now = done[-1] if done else 0.0
        while next_step[rank] < len(plan):
            needs, sends, durations_s, _to = plan[next_step[rank]]
            missing = [slot for slot in needs if ready[slot] is None]
            if missing:
                sleeping[missing[0]] = rank
                break
            now = max(now, *(at for slot in needs if (at := ready[slot]) is not None)) if needs else now
            for duration_s in durations_s:
                now += duration_s
                done.append(now)
            for slot, delay_s in sends:
                ready[slot] = now + delay_s
                if slot in sleeping:
                    awake.append(sleeping.pop(slot))
            next_step[rank] += 1
    for rank, tasks in enumerate(orders):
        if len(finish[rank]) < len(tasks):
            raise _deadlock(rank, tasks[len(finish[rank])])
    return finish


def _plans(times: PipelineTimes, orders: list[list[Task]]) -> list[list[_Step]]:
    """Each rank's tasks as steps. A stage held twice runs a micro-batch on the one rank whose order names it."""
    pp, m = times.pp, times.n_micro_batches
    last, after = pp * times.vpp - 1, pp * times.vpp * m
    stages = [stages_of_rank(times.schedule, rank, pp, times.vpp) for rank in range(pp)]
    ranks = {
        (stages[rank][task.chunk], task.micro_batch): rank
        for rank, tasks in enumerate(orders)
        for task in tasks
        if task.phase == "forward"
    }
    plans: list[list[_Step]] = []
    for rank, tasks in enumerate(orders):
        plan: list[_Step] = []
        joined = False
        for task, duration_s in zip(tasks, _durations_s(times, rank, tasks), strict=True):
            step = plan[-1] if joined else _Step([], [], [], [])
            if not joined:
                plan.append(step)
            joined = task.joined
            step.durations_s.append(duration_s)
            step.sends_to.append(-1)
            if task.phase == "weight":
                continue
            forward, stage = task.phase == "forward", stages[rank][task.chunk]
            slot = stage * m + task.micro_batch + (0 if forward else after)
            step.needs.append(slot)
            to = stage + 1 if forward else stage - 1
            if forward and stage == last:
                step.sends.append((slot + after, 0.0))
            elif to >= 0:
                other = ranks.get((to, task.micro_batch), -1)
                step.sends.append((slot + (to - stage) * m, 0.0 if other == rank else times.hop_s))
                step.sends_to[-1] = -1 if other == rank else other
        plans.append(plan)
    return plans


def _durations_s(times: PipelineTimes, rank: int, tasks: list[Task]) -> list[float]:
    split = _split(tasks)
    forward_s, backward_s, weight_s = (
        table[rank].tolist() for table in (times.forward_s, times.backward_s, times.weight_s)
    )
    found = []
    for phase, micro_batch, chunk, _joined in tasks:
        if phase == "forward":
            found.append(forward_s[chunk])
        elif phase == "weight":
            found.append(weight_s[chunk])
        else:
            found.append(backward_s[chunk] - (weight_s[chunk] if (micro_batch, chunk) in split else 0.0))
    return found


def _deadlock(rank: int, task: Task) -> InputError:
    return InputError(
        "MW-E162",
        _("The order deadlocks: rank {rank} waits for ever for the {phase} of micro-batch {i}, chunk {chunk}.").format(
            rank=rank, phase=task.phase, i=task.micro_batch, chunk=task.chunk
        ),
        where="schedule",
    )
