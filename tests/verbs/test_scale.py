"""The curve: each point is the plan of that size, efficiency and knee are what they say."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from meshwright.errors import InputError
from meshwright.specs.report import Progress
from meshwright.specs.request import PlanRequest, ScaleRequest
from meshwright.specs.scale import Point, ScaleReport
from meshwright.verbs.plan import plan
from meshwright.verbs.scale import gpu_counts, knee_index, no_faster_index, scale, with_efficiency

JOB: dict[str, Any] = {"model": "llama-2-7b", "cluster": "8x4090", "gpus": "1..256", "tokens": "10B"}


@pytest.fixture(scope="module")
def curve() -> ScaleReport:
    return scale(ScaleRequest(**JOB))


@pytest.mark.slow
def test_each_point_is_the_plan_of_its_size(curve: ScaleReport) -> None:
    assert [each.n_gpus for each in curve.points] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    for each in curve.points:
        found = plan(
            PlanRequest(model="llama-2-7b", cluster=each.cluster, global_batch=each.global_batch, tokens="10B", top=1)
        )
        assert found.feasible == (each.estimate is not None)
        if each.estimate is None:
            assert found.nearest is not None
            assert each.misses_bytes == pytest.approx(found.nearest["misses_bytes"])
            assert each.why_none is not None
            continue
        assert each.estimate.layout == found.layouts[0].layout
        assert each.estimate.step_time_s == found.layouts[0].step_time_s
        assert each.time_to_train_s == found.time_to_train_s
        assert each.time_to_train_with_failures_s == found.time_to_train_with_failures_s
        assert (each.cost_usd, each.energy_j) == (found.cost_usd, found.energy_j)


def test_the_batch_stays_and_efficiency_is_against_the_smallest_that_fits(curve: ScaleReport) -> None:
    assert len({each.global_batch for each in curve.points}) == 1
    fitting = [each for each in curve.points if each.estimate is not None]
    assert fitting[0].efficiency_ratio == 1.0
    for each in fitting:
        assert each.estimate is not None
        assert fitting[0].tokens_per_s is not None
        assert each.tokens_per_s == pytest.approx(each.global_batch * 4096 / each.estimate.step_time_s)
        ratio = (each.tokens_per_s or 0.0) / fitting[0].tokens_per_s / (each.n_gpus / fitting[0].n_gpus)
        assert each.efficiency_ratio == pytest.approx(ratio)
        assert each.gpu_hours is not None
        assert each.time_to_train_with_failures_s is not None
        assert each.gpu_hours == pytest.approx(each.n_gpus * each.time_to_train_with_failures_s["p50"] / 3600)


def test_the_knee_is_the_last_count_that_pays(curve: ScaleReport) -> None:
    ratios = {each.n_gpus: each.efficiency_ratio for each in curve.points if each.efficiency_ratio is not None}
    paying = [n for n in ratios if all(ratios[m] >= curve.least_efficiency_ratio for m in ratios if m <= n)]
    assert curve.knee_n_gpus == max(paying)
    assert f"{curve.knee_n_gpus}" in curve.verdict
    # 25 Gb/s Ethernet between the servers: somewhere it must stop.
    assert curve.knee_n_gpus < 256
    words = shlex.split(curve.next_command)
    assert words[:3] == ["mw", "plan", "llama-2-7b"]
    assert words[words.index("--cluster") + 1] == f"{curve.knee_n_gpus}x4090"


def _point(n_gpus: int, rate: float | None, template: ScaleReport) -> Point:
    base = next(each for each in template.points if each.estimate is not None)
    assert base.estimate is not None
    estimate = None if rate is None else base.estimate.model_copy(update={"tokens_per_s_per_gpu": rate})
    return base.model_copy(
        update={
            "n_gpus": n_gpus,
            "estimate": estimate,
            "tokens_per_s": None if rate is None else rate * n_gpus,
            "efficiency_ratio": None,
        }
    )


def test_knee_and_end_of_speed_of_a_made_up_curve(curve: ScaleReport) -> None:
    rates = {1: None, 2: 100.0, 4: 99.0, 8: None, 16: 81.0, 32: 79.0, 64: 90.0, 128: 45.0}
    points = with_efficiency([_point(n, rate, curve) for n, rate in rates.items()])
    assert [each.efficiency_ratio for each in points] == [None, 1.0, 0.99, None, 0.81, 0.79, 0.9, 0.45]
    knee, end = knee_index(points), no_faster_index(points)
    assert knee is not None
    assert points[knee].n_gpus == 16
    assert end is not None
    assert points[end].n_gpus == 128
    assert knee_index(with_efficiency([_point(8, None, curve)])) is None


def test_weak_scaling_grows_the_batch() -> None:
    found = scale(ScaleRequest(model="gpt3-2.7b", cluster="8xA100-80GB", gpus="8,16,64", weak=True, global_batch=64))
    assert [each.global_batch for each in found.points] == [64, 128, 512]
    first, *others = (each.estimate for each in found.points)
    assert first is not None
    # The same work a GPU: steps lose only to communication.
    for each in others:
        assert each is not None
        assert first.step_time_s * 0.999 <= each.step_time_s < 1.3 * first.step_time_s


def test_an_unsaid_batch_suits_the_largest_count() -> None:
    found = scale(ScaleRequest(model="gpt3-2.7b", cluster="A100-80GB", gpus="8,1024"))
    assert found.points[0].global_batch % 1024 == 0
    assert found.assumed["global_batch"].value == found.points[0].global_batch
    assert "fabric" in found.assumed


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("8..1024", [8, 16, 32, 64, 128, 256, 512, 1024]),
        ("1..16", [1, 2, 4, 8, 16]),
        ("8..1000", [8, 16, 32, 64, 128, 256, 512, 1000]),
        ("6..48", [6, 8, 24, 48]),
        ("32,8, 8", [8, 32]),
        ("1-4,64", [1, 2, 4, 64]),
    ],
)
def test_counts(text: str, counts: list[int]) -> None:
    assert gpu_counts(text, 8) == counts


@pytest.mark.parametrize(
    ("text", "code"),
    [("many", "MW-E450"), ("64..8", "MW-E450"), ("", "MW-E450"), ("0", "MW-E403"), ("8..99999999", "MW-E403")],
)
def test_counts_that_are_none(text: str, code: str) -> None:
    with pytest.raises(InputError) as caught:
        gpu_counts(text, 8)
    assert caught.value.code == code
    assert caught.value.nearest


def test_counts_that_no_nodes_have() -> None:
    with pytest.raises(InputError, match="8 / 16") as caught:
        scale(ScaleRequest(model="gpt2", cluster="8xH100", gpus="12"))
    assert caught.value.code == "MW-E211"


def test_nothing_fits_says_by_how_much() -> None:
    found = scale(ScaleRequest(model="llama-3.1-405b", cluster="8x4090", gpus="8,16"))
    assert found.knee_n_gpus is None
    assert [each.estimate for each in found.points] == [None, None]
    assert "GiB" in found.verdict


def test_an_interrupt_keeps_the_points_so_far(tmp_path: Path) -> None:
    path = tmp_path / "curve.json"

    def press(state: Progress) -> None:
        if state.visited > 2000:
            raise KeyboardInterrupt

    found = scale(ScaleRequest(**JOB | {"gpus": "8..256"}, out=path), press)
    assert found.interrupted
    assert 0 < len(found.points) < 6
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["schema"] == "meshwright/scale/1"
    assert len(document["points"]) == len(found.points)


def test_progress_goes_up_and_ends() -> None:
    shares: list[float] = []
    scale(ScaleRequest(**JOB), lambda state: shares.append(state.visited / state.total))
    assert shares == sorted(shares)
    assert shares[-1] <= 1.0
