"""Pipeline schedules, one file each: when every rank runs which micro-batch, how long the whole takes, what it holds.

A schedule is a module (here, under ``MESHWRIGHT_PATH`` or an entry point of ``meshwright.schedule``) that answers
``Schedule``. ``schedules()`` lists what there is; nothing else has to know a new one.
"""

from __future__ import annotations

from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.pipeline import FloatArray, PipelineProfile, Task
from meshwright.discovery import modules
from meshwright.specs.layout import LayoutBatch

#: What the row-wise functions take: one number or a column of them; columns broadcast against each other.
Ints = int | npt.NDArray[np.integer]


class Schedule(Protocol):
    """What the module of a schedule defines.

    ``NAME``: the word of ``--layout schedule=``. Optional, with what holds where a module is silent:
    ``SPLITS_BACKWARD`` (False): some weight gradients are tasks of their own. ``PARAMETER_COPIES`` (1): ranks that hold
    each stage, among which the micro-batches are divided. ``HIDES_EXPERT_TRAFFIC`` (False): a forward runs beside a
    backward of another micro-batch, so that the dispatch and combine of one hide behind the computation of the other.
    ``stages_of_rank(rank, pp, vpp)`` (rank, pp + rank, 2 pp + rank...): the virtual stages of the rank's chunks.
    """

    NAME: str

    def legal(self, pp: Ints, vpp: Ints, n_micro_batches: Ints) -> npt.NDArray[np.bool_]:
        """Which rows the schedule can run: boolean array of the broadcast shape."""

    def pipeline_time_s(self, profile: PipelineProfile) -> FloatArray:
        """Seconds from the first forward to the last task, shape (n,), without a loop over rows."""

    def in_flight(self, pp: Ints, vpp: Ints, n_micro_batches: Ints, rank: Ints) -> npt.NDArray[np.int64]:
        """Most (micro-batch, chunk) activations alive at once on ``rank``: int array of the broadcast shape.

        Alive from the start of the forward to the end of the backward, its weight gradient included: what the input's
        gradient frees already is not counted off (M_W = M_B in the terms of arXiv 2401.10241).
        """

    def order(self, rank: int, pp: int, vpp: int, n_micro_batches: int) -> list[Task]:
        """The tasks of ``rank`` in the order it runs them: every forward and backward that is its own, exactly once."""


def schedules() -> dict[str, Schedule]:
    """Every known schedule by its name; a later directory of the search path replaces an earlier one."""
    return {module.NAME: cast(Schedule, module) for module in modules("costmodel/schedule")}


def splits_backward(schedule: str) -> bool:
    """Whether the schedule runs weight gradients apart. Raises KeyError for an unknown one, as do those below."""
    return bool(getattr(schedules()[schedule], "SPLITS_BACKWARD", False))


def parameter_copies(schedule: str) -> int:
    """Ranks of one pipeline that hold each stage: 2 for DualPipe, whose stages each see half of the micro-batches."""
    return int(getattr(schedules()[schedule], "PARAMETER_COPIES", 1))


def copies(layouts: LayoutBatch) -> int | npt.NDArray[np.int32]:
    """``parameter_copies`` of each row's schedule, (n,), or 1 where none holds a stage twice."""
    known = schedules()
    twice = {code: parameter_copies(name) for code, name in enumerate(layouts.schedules) if name in known}
    if all(number == 1 for number in twice.values()):
        return 1
    found = np.ones(len(layouts), np.int32)
    for code, number in twice.items():
        found[layouts.schedule == code] = number
    return found


def hides_expert_traffic(schedule: str) -> bool:
    """Whether expert (and tensor) traffic of one micro-batch hides behind the computation of another."""
    return bool(getattr(schedules()[schedule], "HIDES_EXPERT_TRAFFIC", False))


def stages_of_rank(schedule: str, rank: int, pp: int, vpp: int) -> tuple[int, ...]:
    """Virtual stages, 0 .. pp * vpp - 1 in model order, that ``rank`` holds as its chunks 0, 1, ..."""
    placed = getattr(schedules()[schedule], "stages_of_rank", None)
    return tuple(placed(rank, pp, vpp)) if placed else tuple(range(rank, pp * vpp, pp))
