"""Timeline: lanes of spans, int64 nanoseconds. The same type for a simulated step and for a profiled one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.int32]

#: What runs in a lane: the step's own marks, work of a device, traffic of a device, or anything else (CPU threads).
LaneKind = Literal["step", "compute", "communication", "other"]


@dataclass(frozen=True, slots=True)
class Lane:
    """One row of the picture: a stream or a thread (``thread``) of a process; a simulated process is one rank."""

    process: int
    thread: int
    process_name: str
    name: str
    kind: LaneKind = "other"


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """Ranks that communicate with each other, as PyTorch names them."""

    name: str
    description: str
    ranks: tuple[int, ...]
    backend: str = "cuda:nccl"


@dataclass(frozen=True, slots=True)
class Argument:
    """One named argument of some spans: ``value[i]`` (k,) belongs to span number ``span[i]`` (k,)."""

    span: IntArray
    value: npt.NDArray[Any]


@dataclass(slots=True)
class Timeline:
    """``n`` spans as columns of length n.

    ``lane``, ``name`` and ``category`` are codes into ``lanes``, ``names`` and ``categories``. ``start_ns`` counts
    from ``base_time_ns`` (since the Unix epoch; 0 in a simulation). ``arguments`` holds sparse columns by name.
    ``rank`` is the rank that tells (None: all of them in one timeline), ``world_size`` how many there are.
    """

    lane: CodeArray
    start_ns: IntArray
    duration_ns: IntArray
    name: CodeArray
    category: CodeArray
    lanes: tuple[Lane, ...]
    names: tuple[str, ...]
    categories: tuple[str, ...]
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()
    rank: int | None = None
    world_size: int = 1
    base_time_ns: int = 0

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def end_ns(self) -> IntArray:
        """End of every span, (n,)."""
        return self.start_ns + self.duration_ns

    def extent_ns(self) -> int:
        """From the first start to the last end; 0 without spans."""
        return int(self.end_ns.max() - self.start_ns.min()) if len(self) else 0

    def of_lane(self, lane: int) -> npt.NDArray[np.intp]:
        """Numbers of the spans of one lane, by start."""
        spans = np.flatnonzero(self.lane == lane)
        return spans[np.argsort(self.start_ns[spans], kind="stable")]

    def arguments_of(self, span: int) -> dict[str, Any]:
        """The arguments of one span by name."""
        found: dict[str, Any] = {}
        for name, argument in self.arguments.items():
            at = np.flatnonzero(argument.span == span)
            if at.size:
                value = argument.value[at[0]]
                found[name] = value.item() if isinstance(value, np.generic) else value
        return found
