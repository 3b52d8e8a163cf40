"""The timeline that ``plan`` writes tells the same step time as the plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.specs.request import PlanRequest
from meshwright.verbs.plan import plan


@pytest.mark.parametrize("fix", ["pp=1", "pp=4", "pp=4,vpp=4", "pp=2,stage_split=17-15"])
def test_the_step_ends_when_the_plan_says(tmp_path: Path, fix: str) -> None:
    path = tmp_path / "step.json"
    found = plan(PlanRequest(model="gpt3-2.7b", cluster="2x8 A100-80GB", global_batch=64, fix=fix), timeline=path)
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("ph") == "X"]
    start_us = min(float(e["ts"]) for e in events)
    end_us = max(float(e["ts"]) + float(e["dur"]) for e in events)
    # The closed form of the schedule and its replay agree.
    assert (end_us - start_us) / 1e6 == pytest.approx(found.layouts[0].step_time_s, rel=0.01)
