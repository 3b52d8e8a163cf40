"""Answers that the tests of reports share: a pipeline, one GPU, one that fits nowhere, one layout."""

from __future__ import annotations

import pytest

from meshwright.specs.plan import Plan
from meshwright.specs.report import EstimateReport
from meshwright.specs.request import EstimateRequest, PlanRequest
from meshwright.verbs.estimate import estimate
from meshwright.verbs.plan import plan

LARGE = PlanRequest(
    model="llama-65b", cluster="256x8 A100-80GB", seq_len=2048, global_batch=2048, tokens="1.4T", fix="pp=4"
)


@pytest.fixture(scope="session")
def large() -> Plan:
    """A plan with a pipeline, runners-up and a front."""
    return plan(LARGE)


@pytest.fixture(scope="session")
def single() -> Plan:
    """A plan for one GPU."""
    return plan(PlanRequest(model="gpt2", cluster="1xH100", global_batch=32))


@pytest.fixture(scope="session")
def too_large() -> Plan:
    """A plan of a job that fits nowhere."""
    return plan(PlanRequest(model="llama-2-70b", cluster="8xA100-40GB", seq_len=4096, global_batch=64))


@pytest.fixture(scope="session")
def one_layout() -> EstimateReport:
    """An estimate."""
    layout = "tp=2,pp=4,micro_batch=2"
    return estimate(EstimateRequest(model="llama-2-7b", cluster="2x8 A100-80GB", global_batch=128, layout=layout))
