"""The timeline of one predicted step: the pipeline replayed task by task, and what comes before and after it.

Each pipeline rank has its own process with a lane for the step, one for computation and one or more for sending in
either direction, so that spans of one lane never overlap. Names, categories and arguments are those of PyTorch's
profiler, so that tools for its traces read this one as they read theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.pipeline import PipelineTimes
from meshwright.specs.timeline import Argument, Lane, LaneKind, ProcessGroup, Timeline
from meshwright.timeline.replay import PHASES, Replay, replay

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Category of device work in PyTorch traces, of a mark on the device, of a mark on the CPU.
KERNEL, DEVICE_MARK, MARK = "kernel", "gpu_user_annotation", "user_annotation"
#: What PyTorch's profiler calls the span of one training step.
STEP_NAME = "ProfilerStep#0"
#: Process group of the stage-to-stage transfers and of everything that replicas of a stage do together.
PIPELINE_GROUP, DATA_GROUP = "1", "2"
PIPELINE_DESCRIPTION = "pipeline_parallel"
#: Lanes of a rank; PyTorch's own work is on stream 7 more often than not, sends may need a lane each while under way.
_STEP_THREAD, _COMPUTE_THREAD, _COLLECTIVE_THREAD = 0, 7, 8
_SEND_FORWARD_THREAD, _SEND_BACKWARD_THREAD = 1000, 2000
#: NCCL's kernel and PyTorch's name of a collective.
_COLLECTIVES = {
    "allreduce": "ncclDevKernel_AllReduce",
    "_allgather_base": "ncclDevKernel_AllGather",
    "_reduce_scatter_base": "ncclDevKernel_ReduceScatter",
    "broadcast": "ncclDevKernel_Broadcast",
}


@dataclass(frozen=True, slots=True)
class StepLabels:
    """What a reader of the timeline wants to know of a step and replay cannot: sizes, names, group sizes.

    ``ranks`` names the pipeline ranks; ``send_elements`` go over one stage boundary, ``gradient_elements`` through the
    collective ``gradient_collective`` (PyTorch's name of it) among ``data_parallel`` replicas; ``dtype`` as PyTorch
    writes it.
    """

    ranks: tuple[str, ...] = ()
    device: str = ""
    dtype: str = "BFloat16"
    send_elements: int = 0
    gradient_elements: int = 0
    gradient_collective: str = "allreduce"
    data_parallel: int = 1


@dataclass(slots=True)
class _Spans:
    """Spans as they come; names and categories are coded at the end."""

    lanes: list[Lane] = field(default_factory=list)
    lane: list[IntArray] = field(default_factory=list)
    start_ns: list[IntArray] = field(default_factory=list)
    end_ns: list[IntArray] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    arguments: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)

    def open_lane(self, lane: Lane) -> int:
        self.lanes.append(lane)
        return len(self.lanes) - 1

    def add(
        self,
        lane: int,
        start_s: FloatArray,
        end_s: FloatArray,
        *,
        names: Iterable[str],
        category: str,
        arguments: Mapping[str, Sequence[Any]],
    ) -> None:
        """Spans of one lane, (k,) each; rounding is monotone, so spans that touch stay apart."""
        first = len(self.names)
        self.lane.append(np.full(len(start_s), lane))
        self.start_ns.append(_ns(start_s))
        self.end_ns.append(_ns(end_s))
        self.names.extend(names)
        self.categories.extend([category] * len(start_s))
        for key, values in arguments.items():
            self.arguments.setdefault(key, []).extend(enumerate(values, first))

    def timeline(self, devices: tuple[str, ...], groups: tuple[ProcessGroup, ...], world_size: int) -> Timeline:
        names, name = _codes(self.names)
        categories, category = _codes(self.categories)
        start_ns = np.concatenate(self.start_ns)
        return Timeline(
            lane=np.concatenate(self.lane).astype(np.int32),
            start_ns=start_ns,
            duration_ns=np.concatenate(self.end_ns) - start_ns,
            name=name,
            category=category,
            lanes=tuple(self.lanes),
            names=names,
            categories=categories,
            devices=devices,
            groups=groups,
            world_size=world_size,
            arguments={key: _column(pairs) for key, pairs in self.arguments.items()},
        )


def _ns(seconds: FloatArray) -> IntArray:
    return np.rint(seconds * 1e9).astype(np.int64)


def _codes(texts: list[str]) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    known: dict[str, int] = {}
    codes = [known.setdefault(text, len(known)) for text in texts]
    return tuple(known), np.array(codes, np.int32)


def _column(pairs: list[tuple[int, Any]]) -> Argument:
    spans, values = zip(*pairs, strict=True)
    return Argument(np.array(spans, np.int64), np.array(values))


def step_timeline(
    times: PipelineTimes,
    after: Mapping[str, float] | None = None,
    *,
    before: Mapping[str, float] | None = None,
    labels: StepLabels | None = None,
) -> Timeline:
    """One step as a timeline: ``before`` (seconds each, in order), the replayed pipeline, then ``after``.

    Terms that end in ``_comm`` lie in the communication lane as collectives, ``optimizer`` is device work, all others
    (data, straggler...) are marks in the compute lane. Raises what ``replay`` raises.
    """
    before, after = before or {}, after or {}
    picture = _Picture(times, replay(times), labels or StepLabels(), sum(before.values()))
    for rank in range(times.pp):
        picture.add_rank(rank, before, after)
    ranks = tuple(range(times.pp))
    groups = (ProcessGroup("0", "default_pg", ranks), ProcessGroup(PIPELINE_GROUP, PIPELINE_DESCRIPTION, ranks))
    return picture.spans.timeline((picture.labels.device,) * times.pp, groups, times.pp)


@dataclass(slots=True)
class _Picture:
    """What is drawn: the replayed pipeline, which begins at ``begin_s``; ``spans`` fills up rank by rank."""

    times: PipelineTimes
    run: Replay
    labels: StepLabels
    begin_s: float
    spans: _Spans = field(default_factory=_Spans)

    def add_rank(self, rank: int, before: Mapping[str, float], after: Mapping[str, float]) -> None:
        """All lanes of one rank."""
        end_s = self.begin_s + self.run.step_time_s
        whole = np.zeros(1), np.array([end_s + sum(after.values())])
        step = self._open_lane(rank, _STEP_THREAD, "step", "step")
        self.spans.add(step, *whole, names=[STEP_NAME], category=MARK, arguments={})
        compute = self._open_lane(rank, _COMPUTE_THREAD, "compute", "compute")
        collectives = self._open_lane(rank, _COLLECTIVE_THREAD, "collectives", "communication")
        self._add_terms(compute, collectives, before, 0.0)
        self._add_tasks(compute, rank)
        self._add_terms(compute, collectives, after, end_s)
        if self.times.pp > 1 and self.times.hop_s > 0.0:
            self._add_sends(rank, backward=False)
            self._add_sends(rank, backward=True)

    def _open_lane(self, rank: int, thread: int, what: str, kind: LaneKind) -> int:
        names = self.labels.ranks
        title = what if thread == _STEP_THREAD else f"stream {thread} {what}"
        return self.spans.open_lane(
            Lane(rank, thread, names[rank] if rank < len(names) else f"pipeline rank {rank}", title, kind)
        )

    def _add_terms(self, compute: int, collectives: int, terms: Mapping[str, float], begin_s: float) -> None:
        """The terms one after the other; those of no length leave no span."""
        for term, length_s in terms.items():
            start, end = np.array([begin_s]), np.array([begin_s + length_s])
            begin_s += length_s
            if length_s <= 0.0:
                continue
            if term.endswith("_comm"):
                name = _COLLECTIVES.get(self.labels.gradient_collective, self.labels.gradient_collective)
                arguments = self._collective(term)
                self.spans.add(collectives, start, end, names=[name], category=KERNEL, arguments=arguments)
            else:
                category = KERNEL if term == "optimizer" else DEVICE_MARK
                self.spans.add(compute, start, end, names=[term], category=category, arguments={"term": [term]})

    def _collective(self, term: str) -> dict[str, list[Any]]:
        elements = self.labels.gradient_elements if term == "dp_comm" else 0
        return {
            "Collective name": [self.labels.gradient_collective],
            "In msg nelems": [elements],
            "Out msg nelems": [elements],
            "Group size": [self.labels.data_parallel],
            "dtype": [self.labels.dtype],
            "Process Group Name": [DATA_GROUP],
            "Process Group Description": [term.removesuffix("_comm")],
            "term": [term],
        }

    def _add_tasks(self, compute: int, rank: int) -> None:
        run = self.run
        own = np.flatnonzero(run.rank == rank)
        chunks, micro_batches = run.chunk[own].tolist(), run.micro_batch[own].tolist()
        phases = [PHASES[code] for code in run.phase[own].tolist()]
        titles = ["weight gradient" if phase == "weight" else phase for phase in phases]
        several = self.times.forward_s.shape[1] > 1
        # The number last: viewers give names that differ by a number one colour.
        names = [
            f"{title} chunk {chunk} micro-batch {i}" if several else f"{title} micro-batch {i}"
            for title, chunk, i in zip(titles, chunks, micro_batches, strict=True)
        ]
        self.spans.add(
            compute,
            run.start_s[own] + self.begin_s,
            run.finish_s[own] + self.begin_s,
            names=names,
            category=KERNEL,
            arguments={
                "term": ["backward" if phase == "weight" else phase for phase in phases],
                "micro batch": micro_batches,
                "chunk": chunks,
                "stage": run.stage[own].tolist(),
                "device": [rank] * len(own),
                "stream": [_COMPUTE_THREAD] * len(own),
            },
        )

    def _add_sends(self, rank: int, *, backward: bool) -> None:
        """Transfers to other ranks, each as long as one hop, over as many lanes as are under way at once."""
        run, times = self.run, self.times
        own = np.flatnonzero((run.rank == rank) & (run.phase == int(backward)) & (run.sends_to >= 0))
        start_s = run.sent_s[own] + self.begin_s
        n_lanes = _lanes_for(start_s, start_s + times.hop_s)
        first = _SEND_BACKWARD_THREAD if backward else _SEND_FORWARD_THREAD
        for k in range(min(n_lanes, len(own))):
            part, start = own[k::n_lanes], start_s[k::n_lanes]
            lane = self._open_lane(rank, first + k, "send backward" if backward else "send forward", "communication")
            common = {
                "Collective name": "send",
                "In msg nelems": self.labels.send_elements,
                "Out msg nelems": self.labels.send_elements,
                "Group size": times.pp,
                "dtype": self.labels.dtype,
                "Process Group Name": PIPELINE_GROUP,
                "Process Group Description": PIPELINE_DESCRIPTION,
                "Process Group Ranks": str(list(range(times.pp))),
                "Src Rank": rank,
                "device": rank,
                "stream": first + k,
                "term": "pp_comm",
            }
            arguments = {name: [value] * len(part) for name, value in common.items()}
            arguments |= {
                "Dst Rank": run.sends_to[part].tolist(),
                "micro batch": run.micro_batch[part].tolist(),
                "chunk": run.chunk[part].tolist(),
            }
            self.spans.add(
                lane,
                start,
                start + times.hop_s,
                names=["ncclDevKernel_SendRecv"] * len(part),
                category=KERNEL,
                arguments=arguments,
            )


def _lanes_for(start_s: FloatArray, end_s: FloatArray) -> int:
    """The fewest lanes that hold the spans, dealt out in turn, without overlap."""
    starts, ends = _ns(start_s), _ns(end_s)
    n_lanes = 1
    while n_lanes < len(starts) and np.any(starts[n_lanes:] < ends[:-n_lanes]):
        n_lanes += 1
    return n_lanes
