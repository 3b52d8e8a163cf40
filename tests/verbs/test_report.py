"""What a report draws beyond its answer agrees with the answer: memory of the worst rank, end of the timeline."""

from __future__ import annotations

import pytest

from meshwright.costmodel.schedule import schedules
from meshwright.errors import InputError
from meshwright.specs.report import EstimateReport
from meshwright.specs.request import EstimateRequest, PlanRequest
from meshwright.verbs.estimate import estimate
from meshwright.verbs.plan import plan
from meshwright.verbs.report import drawn, scaling_of


@pytest.mark.parametrize(
    "layout",
    [
        "tp=2,pp=1,micro_batch=2",
        "tp=2,sp=true,pp=4,micro_batch=2,zero_stage=0",
        "pp=4,vpp=4,schedule=interleaved,micro_batch=1,recompute=full",
        "pp=8,stage_split=3-4-4-4-4-4-4-5,micro_batch=1",
        "tp=4,pp=2,stage_split=17-15,micro_batch=4,recompute=selective",
        "dp=16,zero_stage=3,micro_batch=1",
    ],
)
def test_the_fullest_rank_is_the_estimate_s(layout: str) -> None:
    _agrees(_estimate(layout))


@pytest.mark.parametrize("schedule", sorted(schedules()))
def test_every_schedule_is_drawn(schedule: str) -> None:
    for vpp in (1, 2, 4):
        try:
            found = _estimate(f"pp=4,vpp={vpp},schedule={schedule},micro_batch=1")
        except InputError:  # a schedule of so many chunks is against its rules
            continue
        _agrees(found)
        return
    pytest.fail(f"no legal layout of {schedule}")


def _estimate(layout: str) -> EstimateReport:
    request = EstimateRequest(model="llama-2-7b", cluster="2x8 A100-80GB", global_batch=128, layout=layout)
    return estimate(request)


def _agrees(found: EstimateReport) -> None:
    shown = drawn(found)
    assert shown is not None
    memory = found.estimate.memory
    assert len(shown.memory.reserved_bytes) == found.estimate.layout.pp
    totals = [sum(values) for values in zip(*shown.memory.by.values(), strict=True)]
    assert max(totals) == pytest.approx(memory.peak_allocated_bytes)
    assert max(shown.memory.reserved_bytes) == pytest.approx(memory.peak_reserved_bytes)
    worst = memory.worst_pipeline_rank
    assert totals[worst] == pytest.approx(max(totals))
    assert {name: values[worst] for name, values in shown.memory.by.items()} == pytest.approx(memory.by)
    assert shown.timeline is not None
    assert shown.timeline.extent_ns() / 1e9 == pytest.approx(found.estimate.step_time_s, rel=0.03)


def test_the_scaling_curve_passes_through_the_plan() -> None:
    request = PlanRequest(model="llama-3-8b", cluster="2x8 H100", global_batch=64, seq_len=2048, fix="pp=1,vpp=1")
    answer = plan(request)
    curve = scaling_of(request, answer)
    assert list(curve) == [4, 8, 16, 32, 64]
    assert curve[16] == answer.layouts[answer.chosen]
    speeds = [estimate.tokens_per_s_per_gpu * n_gpus for n_gpus, estimate in curve.items()]
    assert speeds == sorted(speeds)
