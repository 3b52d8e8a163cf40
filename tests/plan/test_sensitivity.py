"""Sensitivities and runners-up against the cost model asked directly."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meshwright.costmodel import evaluate
from meshwright.plan.change import Case
from meshwright.plan.sensitivity import runners_up, sensitivities, step_time_s
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch
from meshwright.specs.plan import Assumed, Change


@pytest.fixture(scope="module")
def case(job: Callable[..., TrainingJob], cluster: Callable[..., Cluster]) -> Case:
    return Case(job("gpt3-2.7b", seq_len=2048, global_batch=64), cluster("2x8 A100-80GB"), Layout(dp=8, tp=2))


def assumed(path: str, value: object) -> dict[str, Assumed]:
    return {"x": Assumed(name="x", value=None, why="test", alternative=Change(path=path, value=value))}


def test_the_ratio_is_that_of_two_evaluations(case: Case, constants: Constants) -> None:
    batch = LayoutBatch.of([case.layout])
    base = evaluate(case.job, case.cluster, batch, constants).step_time_s[0]
    unfused = case.job.model_copy(update={"attention": "unfused"})
    other = evaluate(unfused, case.cluster, batch, constants).step_time_s[0]
    found = sensitivities(assumed("job.attention", "unfused"), case, constants)["x"]
    assert found.step_time_ratio == pytest.approx(other / base)
    assert found.step_time_ratio > 1


@pytest.mark.parametrize(
    ("path", "value"),
    [("job.seq_len", 4096), ("job.global_batch", 65), ("layout.tp", 3)],
    ids=["longer than the positions", "does not divide", "not a legal layout"],
)
def test_an_alternative_that_cannot_be_has_no_ratio(case: Case, constants: Constants, path: str, value: object) -> None:
    assert sensitivities(assumed(path, value), case, constants)["x"].step_time_ratio is None


def test_no_alternative_no_ratio(case: Case, constants: Constants) -> None:
    plain = {"x": Assumed(name="x", value=1, why="test")}
    assert sensitivities(plain, case, constants)["x"].step_time_ratio is None


def test_illegal_layouts_have_no_step_time(case: Case, constants: Constants) -> None:
    assert step_time_s(Case(case.job, case.cluster, Layout(dp=3)), constants) is None


def test_losses_add_up(case: Case, constants: Constants) -> None:
    layouts = [Layout(dp=8, tp=2), Layout(dp=4, tp=4), Layout(dp=4, tp=2, pp=2)]
    batch = LayoutBatch.of(layouts)
    estimates = evaluate(case.job, case.cluster, batch, constants)
    rows = tuple(estimates.row(i, layout) for i, layout in enumerate(layouts))
    for runner in runners_up(rows, 0):
        difference = rows[runner.layout_index].step_time_s - rows[0].step_time_s
        assert sum(runner.terms_s.values()) == pytest.approx(difference, abs=1e-9)
        assert runner.slower_ratio == pytest.approx(1 + difference / rows[0].step_time_s)
    assert "bubble" in runners_up(rows, 0)[1].terms_s
