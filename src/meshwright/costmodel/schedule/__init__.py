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

#: What the row-wise functions take: one number or a column of them; columns broadcast against each other.
Ints = int | npt.NDArray[np.integer]


class Schedule(Protocol):
    """What the module of a schedule defines.

    ``NAME``: the word of ``--layout schedule=``.
    """

    NAME: str

    def legal(self, pp: Ints, vpp: Ints, n_micro_batches: Ints) -> npt.NDArray[np.bool_]:
        """Which rows the schedule can run: boolean array of the broadcast shape."""

    def pipeline_time_s(self, profile: PipelineProfile) -> FloatArray:
        """Seconds from the first forward to the last backward, shape (n,), without a loop over rows."""

    def in_flight(self, pp: Ints, vpp: Ints, n_micro_batches: Ints, rank: Ints) -> npt.NDArray[np.int64]:
        """Most (micro-batch, chunk) activations alive at once on ``rank``: int array of the broadcast shape."""

    def order(self, rank: int, pp: int, vpp: int, n_micro_batches: int) -> list[Task]:
        """The tasks of ``rank`` in the order it runs them: every forward and backward exactly once."""


def schedules() -> dict[str, Schedule]:
    """Every known schedule by its name; a later directory of the search path replaces an earlier one."""
    return {module.NAME: cast(Schedule, module) for module in modules("costmodel/schedule")}
