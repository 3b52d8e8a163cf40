"""The timeline of one step: nothing overlaps in a lane, and it ends when the step ends."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from meshwright.costmodel.pipeline import PipelineTimes
from meshwright.costmodel.schedule import stages_of_rank
from meshwright.specs.timeline import Timeline
from meshwright.timeline.replay import replay
from meshwright.timeline.step import STEP_NAME, StepLabels, step_timeline


def times(schedule: str = "1f1b", pp: int = 4, vpp: int = 1, m: int = 6, hop_s: float = 1e-4) -> PipelineTimes:
    rng = np.random.default_rng(1)
    shape = (pp, len(stages_of_rank(schedule, 0, pp, vpp)))
    backward_s = rng.uniform(2e-3, 5e-3, shape)
    return PipelineTimes(schedule, pp, vpp, m, rng.uniform(1e-3, 2e-3, shape), backward_s, backward_s * 0.4, hop_s)


def lanes(timeline: Timeline, kind: str) -> list[int]:
    return [i for i, lane in enumerate(timeline.lanes) if lane.kind == kind]


CASES = [
    times(),
    times(m=2),
    times("interleaved", 4, 2, 8),
    times(pp=1),
    times(hop_s=0.0),
    times(hop_s=5e-2),
    times("zb-h1"),
    times("zb-v", 4, 2, 9),
    times("dualpipev", 3, 2, 8),
    times("dualpipe", 4, 1, 10),
]


@pytest.mark.parametrize("case", CASES)
def test_spans_of_a_lane_do_not_overlap(case: PipelineTimes) -> None:
    timeline = step_timeline(case, {"dp_comm": 2e-3, "optimizer": 1e-3, "straggler": 5e-4}, before={"data": 3e-4})
    assert np.all(timeline.duration_ns >= 0)
    for lane in range(len(timeline.lanes)):
        own = timeline.of_lane(lane)
        assert np.all(timeline.start_ns[own][1:] >= timeline.end_ns[own][:-1]), timeline.lanes[lane]


@pytest.mark.parametrize("case", CASES)
def test_the_timeline_ends_with_the_step(case: PipelineTimes) -> None:
    after, before = {"dp_comm": 2e-3, "optimizer": 1e-3, "straggler": 5e-4}, {"data": 3e-4}
    timeline = step_timeline(case, after, before=before)
    step_s = replay(case).step_time_s + sum(after.values()) + sum(before.values())
    assert abs(timeline.extent_ns() - step_s * 1e9) <= 1
    for lane in lanes(timeline, "step"):
        (span,) = timeline.of_lane(lane)
        assert timeline.names[timeline.name[span]] == STEP_NAME
        assert timeline.start_ns[span] == 0
        assert abs(int(timeline.end_ns[span]) - step_s * 1e9) <= 1


def test_compute_lanes_hold_the_work_of_each_rank() -> None:
    case = times("interleaved", 4, 2, 8)
    timeline = step_timeline(case)
    for rank, lane in enumerate(lanes(timeline, "compute")):
        own = timeline.of_lane(lane)
        assert timeline.lanes[lane].process == rank
        assert len(own) == 2 * 2 * 8
        work_s = 8 * (case.forward_s[rank].sum() + case.backward_s[rank].sum())
        assert timeline.duration_ns[own].sum() == pytest.approx(work_s * 1e9, abs=len(own))


def test_every_boundary_is_crossed_twice_a_micro_batch() -> None:
    case = times("interleaved", 4, 2, 8)
    timeline = step_timeline(case, labels=StepLabels(send_elements=4096))
    sends = [span for span in range(len(timeline)) if timeline.arguments_of(span).get("Collective name") == "send"]
    assert len(sends) == 2 * (4 * 2 - 1) * 8
    first = timeline.arguments_of(sends[0])
    assert (first["Src Rank"], first["Dst Rank"], first["In msg nelems"]) == (0, 1, 4096)
    assert all(int(timeline.duration_ns[span]) == pytest.approx(case.hop_s * 1e9, abs=1) for span in sends)
    assert {timeline.lanes[timeline.lane[span]].kind for span in sends} == {"communication"}


def test_weight_gradients_have_spans_of_their_own() -> None:
    case = times("zb-h1", 4, 1, 8)
    timeline = step_timeline(case)
    for rank, lane in enumerate(lanes(timeline, "compute")):
        own = timeline.of_lane(lane)
        assert len(own) == 3 * 8
        names = [timeline.names[timeline.name[span]] for span in own]
        assert sum(name.startswith("weight gradient micro-batch") for name in names) == 8
        work_s = 8 * (case.forward_s[rank, 0] + case.backward_s[rank, 0])
        assert timeline.duration_ns[own].sum() == pytest.approx(work_s * 1e9, abs=len(own))
        terms = {name.split()[0]: timeline.arguments_of(span)["term"] for name, span in zip(names, own, strict=True)}
        assert terms == {"forward": "forward", "backward": "backward", "weight": "backward"}


@pytest.mark.parametrize(("schedule", "pp", "vpp", "m"), [("zb-v", 4, 2, 8), ("dualpipe", 4, 1, 8)])
def test_a_v_sends_both_ways(schedule: str, pp: int, vpp: int, m: int) -> None:
    timeline = step_timeline(times(schedule, pp, vpp, m))
    every = [timeline.arguments_of(span) for span in range(len(timeline))]
    ways = Counter((a["Src Rank"], a["Dst Rank"]) for a in every if a.get("Collective name") == "send")
    # Each neighbour gets m activations and m gradients a way; nothing is sent where the V turns on one rank.
    both = 1 if schedule == "dualpipe" else 2
    assert ways == {(a, b): both * m for a in range(pp) for b in range(pp) if abs(a - b) == 1}
    stages = {(a["device"], a["chunk"]): a["stage"] for a in every if "stage" in a}
    assert stages[0, 1] == pp * vpp - 1
    assert stages[0, 0] == 0


def test_collectives_say_what_they_move() -> None:
    labels = StepLabels(gradient_elements=10**9, data_parallel=16, gradient_collective="_reduce_scatter_base")
    timeline = step_timeline(times(), {"dp_comm": 2e-3}, labels=labels)
    every = [timeline.arguments_of(span) for span in range(len(timeline))]
    found = [arguments for arguments in every if arguments.get("term") == "dp_comm"]
    assert len(found) == 4
    assert found[0]["Collective name"] == "_reduce_scatter_base"
    assert (found[0]["Group size"], found[0]["In msg nelems"]) == (16, 10**9)


def test_no_sends_without_a_pipeline() -> None:
    assert len(step_timeline(times(pp=1))) == 1 + 2 * 6
