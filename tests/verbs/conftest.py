"""Requests and a plan file that the tests of the verbs share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.specs.plan import Plan
from meshwright.specs.request import EstimateRequest, PlanRequest
from meshwright.verbs.plan import plan

#: A small job: searched in a moment.
SMALL: dict[str, Any] = {"model": "gpt3-2.7b", "cluster": "2x8 A100-80GB", "global_batch": 64}


@pytest.fixture(scope="session")
def small_plan(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Path]:
    """A plan and the file it was written to."""
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    return plan(PlanRequest(**SMALL, tokens="10B", out=path)), path


@pytest.fixture(scope="session")
def small_document(small_plan: tuple[Plan, Path]) -> dict[str, Any]:
    """The document of the plan file."""
    found: dict[str, Any] = json.loads(small_plan[1].read_text(encoding="utf-8"))
    return found


@pytest.fixture
def estimate_request() -> Any:
    """Makes an estimate request on the small job."""

    def make(layout: str | None = "tp=2,pp=2,micro_batch=2", **fields: Any) -> EstimateRequest:
        return EstimateRequest(**{**SMALL, "layout": layout, **fields})

    return make
