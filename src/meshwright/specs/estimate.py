"""Estimates: what the cost model says of layouts. One (pydantic, the JSON) or many (``EstimateBatch``, arrays)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from meshwright.specs.fact import Noun
from meshwright.specs.layout import Layout
from meshwright.specs.notebook import estimates_html

FloatArray = npt.NDArray[np.float64]

#: The terms of a step on the critical path; communication is its exposed part. They sum to the step time.
BREAKDOWN_TERMS = (
    "forward",
    "backward",
    "recompute",
    "tp_comm",
    "cp_comm",
    "ep_comm",
    "pp_comm",
    "dp_comm",
    "bubble",
    "launch",
    "contention",
    "optimizer",
    "data",
    "checkpoint",
    "straggler",
)
#: The classes of device memory; they sum to the peak of the worst rank in its worst phase.
MEMORY_CLASSES = ("weights", "gradients", "optimizer", "activations", "logits", "gather", "buffers", "context")
#: The phases of a training run, each with its own peak.
MEMORY_PHASES = ("load", "first_step", "steady", "longest", "save")
#: MFU: model FLOPs with causal attention, no recompute, over the dense peak of the precision.
FLOPS_CONVENTION = "causal model FLOPs, no recompute, dense peak"


class Memory(Noun):
    """Device memory of the worst pipeline rank, host memory of a node. ``by`` sums to ``peak_allocated_bytes``."""

    peak_allocated_bytes: float
    peak_reserved_bytes: float
    host_bytes: float
    capacity_bytes: float
    fits: Literal["yes", "tight", "no"]
    worst_pipeline_rank: int
    by_phase: Mapping[str, float]
    by: Mapping[str, float]


class Estimate(Noun):
    """One layout with its predicted step; every number here is predicted, the interval is 80 %.

    ``not_validated`` names what no measured row was compared with (``costmodel.interval``); the interval is wider.
    """

    layout: Layout
    step_time_s: float
    step_time_interval_s: tuple[float, float]
    not_validated: tuple[str, ...] = ()
    tokens_per_s_per_gpu: float
    mfu_ratio: float
    hfu_ratio: float
    flops_convention: str = FLOPS_CONVENTION
    breakdown_s: Mapping[str, float]
    memory: Memory

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return estimates_html("", [self])


@dataclass(slots=True)
class EstimateBatch:
    """Estimates of ``n`` layouts: float64 arrays of length n, dicts of such arrays.

    ``off_ground`` maps what is not validated to its rows. ``breakdown_s`` has BREAKDOWN_TERMS, ``memory_by_bytes``
    MEMORY_CLASSES, ``memory_by_phase_bytes`` MEMORY_PHASES. ``fits`` is 2 yes, 1 tight, 0 no.
    """

    step_time_s: FloatArray
    interval_low_s: FloatArray
    interval_high_s: FloatArray
    off_ground: dict[str, npt.NDArray[np.bool_]]
    tokens_per_s_per_gpu: FloatArray
    mfu_ratio: FloatArray
    hfu_ratio: FloatArray
    breakdown_s: dict[str, FloatArray]
    peak_allocated_bytes: FloatArray
    peak_reserved_bytes: FloatArray
    host_bytes: FloatArray
    capacity_bytes: float
    fits: npt.NDArray[np.int8]
    worst_pipeline_rank: npt.NDArray[np.int32]
    memory_by_bytes: dict[str, FloatArray]
    memory_by_phase_bytes: dict[str, FloatArray]

    def __len__(self) -> int:
        return len(self.step_time_s)

    def row(self, i: int, layout: Layout) -> Estimate:
        """Row ``i`` with the layout it belongs to."""

        def at(columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, float]:
            return {name: float(column[i]) for name, column in columns.items()}

        return Estimate(
            layout=layout,
            step_time_s=float(self.step_time_s[i]),
            step_time_interval_s=(float(self.interval_low_s[i]), float(self.interval_high_s[i])),
            not_validated=tuple(reason for reason, rows in self.off_ground.items() if rows[i]),
            tokens_per_s_per_gpu=float(self.tokens_per_s_per_gpu[i]),
            mfu_ratio=float(self.mfu_ratio[i]),
            hfu_ratio=float(self.hfu_ratio[i]),
            breakdown_s=at(self.breakdown_s),
            memory=Memory(
                peak_allocated_bytes=float(self.peak_allocated_bytes[i]),
                peak_reserved_bytes=float(self.peak_reserved_bytes[i]),
                host_bytes=float(self.host_bytes[i]),
                capacity_bytes=self.capacity_bytes,
                fits=("no", "tight", "yes")[int(self.fits[i])],
                worst_pipeline_rank=int(self.worst_pipeline_rank[i]),
                by_phase=at(self.memory_by_phase_bytes),
                by=at(self.memory_by_bytes),
            ),
        )
