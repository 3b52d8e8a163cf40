"""Compare: the fewest nodes are those that trying every count finds; no winner inside the noise; honest prices."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from meshwright import catalog
from meshwright.costmodel.parameters import parameter_count
from meshwright.errors import InputError
from meshwright.specs.compare import CompareReport
from meshwright.specs.report import Progress
from meshwright.specs.request import CompareRequest, PlanRequest
from meshwright.verbs.compare import compare, duration, meets, money, usual_prices
from meshwright.verbs.plan import plan

DAY = 86400.0


def _plan_days(cluster: str, **more: Any) -> float | None:
    found = plan(PlanRequest(cluster=cluster, top=1, **more))
    times = found.time_to_train_with_failures_s
    return None if times is None else times["p50"] / DAY


@pytest.fixture(scope="module")
def two() -> CompareReport:
    return compare(CompareRequest(model="llama-3.1-8b", clusters=("16xH100", "16xB200"), tokens="100B"))


def test_each_cluster_has_the_numbers_of_its_plan(two: CompareReport) -> None:
    for each in two.candidates:
        found = plan(PlanRequest(model="llama-3.1-8b", cluster=each.as_given.cluster, tokens="100B", top=1))
        assert each.as_given.estimate is not None
        assert each.as_given.estimate.step_time_s == found.layouts[0].step_time_s
        assert each.as_given.time_to_train_with_failures_s == found.time_to_train_with_failures_s
        assert each.as_given.energy_j == found.energy_j
        rate = (each.as_given.price or {})["usd_per_gpu_hour"]
        assert each.as_given.gpu_hours is not None
        assert each.as_given.cost_usd == pytest.approx(each.as_given.gpu_hours * rate)


def test_the_fastest_and_the_cheapest_are(two: CompareReport) -> None:
    times = [each.as_given.time_to_train_s or 0.0 for each in two.candidates]
    costs = [each.as_given.cost_usd or 0.0 for each in two.candidates]
    assert two.fastest == times.index(min(times)) == 1
    assert two.cheapest == costs.index(min(costs))
    assert two.fastest_is_clear
    assert "16xB200 is the fastest" in two.verdict


def test_prices_of_one_provider_where_it_has_both(two: CompareReport) -> None:
    providers = {(each.as_given.price or {}).get("provider") for each in two.candidates}
    assert len(providers) == 1
    for each in two.candidates:
        low, high = each.as_given.cost_range_usd or (0.0, 0.0)
        assert low <= (each.as_given.cost_usd or 0.0) <= high


def test_no_winner_inside_the_noise() -> None:
    found = compare(CompareRequest(model="llama-3.1-8b", clusters=("8xH100", "8xH200"), tokens="100B"))
    first, second = (each.as_given for each in found.candidates)
    assert first.time_to_train_interval_s is not None
    assert second.time_to_train_interval_s is not None
    assert first.time_to_train_interval_s[0] < second.time_to_train_interval_s[1]
    assert found.fastest_is_clear is False
    assert "lies within the intervals" in found.verdict
    assert "is the fastest" not in found.verdict


@pytest.mark.slow
@pytest.mark.parametrize("deadline", ["3d", "10d", "40d"])
@pytest.mark.parametrize("batch", [None, 512])
def test_the_fewest_nodes_by_trying_every_count(deadline: str, batch: int | None) -> None:
    fields: dict[str, Any] = {"model": "llama-2-7b", "tokens": "50B", "global_batch": batch}
    found = compare(CompareRequest(clusters=("A100-80GB",), deadline=deadline, **fields))
    limit = (duration(deadline) or 0.0) / DAY
    tried = {n: _plan_days(f"{8 * n}xA100-80GB", **fields) for n in range(1, 13)}
    enough = [n for n, days in tried.items() if days is not None and days <= limit]
    needed = found.candidates[0].needed
    assert needed is not None
    assert needed.n_nodes == min(enough)
    assert found.holds
    assert f"{8 * min(enough)}xA100-80GB" in found.verdict
    words = shlex.split(found.next_command)
    assert words[words.index("--cluster") + 1] == f"{8 * min(enough)}xA100-80GB"


def test_a_deadline_that_nothing_meets() -> None:
    found = compare(
        CompareRequest(model="llama-2-7b", clusters=("8x4090",), tokens="1T", deadline="1h", global_batch=64)
    )
    assert not found.holds
    assert found.candidates[0].needed is None
    assert found.candidates[0].needed_why_none
    assert found.verdict.startswith("No number of these GPUs")


def test_tokens_that_were_not_said_are_twenty_a_parameter() -> None:
    found = compare(CompareRequest(model="gpt2", clusters=("8xA100-80GB",)))
    assert found.tokens == pytest.approx(20 * parameter_count(catalog.model("gpt2")), rel=0.01)
    assert "2203.15556" in found.assumed["tokens"].why
    assert "tokens" not in compare(CompareRequest(model="gpt2", clusters=("8xA100-80GB",), tokens="1B")).assumed


def test_budget_against_cost_and_its_interval() -> None:
    fields: dict[str, Any] = {"model": "gpt2", "clusters": ("8xA100-80GB",), "tokens": "100B"}
    cost = compare(CompareRequest(**fields)).candidates[0].as_given
    assert cost.cost_usd is not None
    answers = {}
    for share in (0.5, 0.99, 1.01, 3.0):
        found = compare(CompareRequest(**fields, budget=f"{share * cost.cost_usd:.2f} USD"))
        answers[share] = found.candidates[0].meets_budget
        assert found.holds == (share > 1)
    assert answers == {0.5: "no", 0.99: "unlikely", 1.01: "likely", 3.0: "yes"}


def test_meets_reads_the_interval() -> None:
    assert [meets(10.0, value, (0.8 * value, 1.25 * value)) for value in (5, 9, 11, 20)] == [
        "yes", "likely", "unlikely", "no",
    ]  # fmt: skip
    assert meets(None, 1.0, None) is None
    assert meets(1.0, None, None) is None


def test_a_price_for_all_and_for_one() -> None:
    fields: dict[str, Any] = {"model": "gpt2", "clusters": ("8xH100", "8x4090"), "tokens": "1B"}
    for each in compare(CompareRequest(**fields, price="2 USD/GPUh")).candidates:
        assert each.as_given.cost_usd == pytest.approx(2 * (each.as_given.gpu_hours or 0.0))
    found = compare(CompareRequest(**fields, price=("2 USD/GPUh", "4090=0.5 USD/GPUh")))
    h100, rtx = (each.as_given for each in found.candidates)
    assert h100.cost_usd == pytest.approx(2 * (h100.gpu_hours or 0.0))
    assert rtx.cost_usd == pytest.approx(0.5 * (rtx.gpu_hours or 0.0))
    with pytest.raises(InputError) as caught:
        compare(CompareRequest(**fields, price="B200=4 USD/GPUh"))
    assert caught.value.code == "MW-E452"


def test_a_cluster_without_a_layout_is_not_said_to_lack_a_price() -> None:
    found = compare(CompareRequest(model="llama-3.1-70b", clusters=("32xH100", "H100"), tokens="1B"))
    assert found.candidates[1].as_given.estimate is None
    assert "no price is known" not in found.verdict


def test_an_interrupted_compare_claims_nothing_of_a_deadline() -> None:
    def interrupt(progress: Progress) -> None:
        if progress.visited and progress.elapsed_s > 0.0:
            raise KeyboardInterrupt

    request = CompareRequest(model="llama-3.1-70b", clusters=("32xH100", "32xB200"), deadline="10d")
    found = compare(request, interrupt)
    assert found.interrupted
    assert "No number" not in found.verdict


def test_no_price_is_said_so() -> None:
    unpriced = "V100-16GB-SXM2"
    assert catalog.prices(unpriced) == ()
    found = compare(CompareRequest(model="gpt2", clusters=("8xH100", f"8x{unpriced}"), tokens="1B"))
    assert found.candidates[1].as_given.cost_usd is None
    assert f"no price is known for 8x{unpriced}" in found.verdict
    alone = compare(CompareRequest(model="gpt2", clusters=(f"8x{unpriced}",), tokens="1B"))
    assert "No price is known" in alone.verdict


def test_usual_prices_are_of_one_tier() -> None:
    found = usual_prices(["H100-80GB-SXM", "B200-180GB-SXM", "V100-16GB-SXM2"])
    assert found["V100-16GB-SXM2"] is None
    assert {price.tier for price in found.values() if price is not None} == {"on-demand"}


@pytest.mark.parametrize(
    ("text", "value"),
    [("2M USD", 2e6), ("$2M", 2e6), ("2M$", 2e6), ("500k USD", 5e5), ("1.5 million USD", 1.5e6), ("$1,500,000", 1.5e6)],
)
def test_money_as_people_write_it(text: str, value: float) -> None:
    assert money(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("10d", 10 * DAY), ("36h", 1.5 * DAY), ("2 weeks", 14 * DAY), ("10 days", 10 * DAY)]
)
def test_durations_as_people_write_them(text: str, value: float) -> None:
    assert duration(text) == value


@pytest.mark.parametrize(
    ("field", "text", "code"),
    [
        ("deadline", "10", "MW-E111"),
        ("deadline", "10 dys", "MW-E112"),
        ("deadline", "soon", "MW-E110"),
        ("deadline", "0d", "MW-E451"),
        ("budget", "2000000", "MW-E111"),
        ("budget", "2M EUR", "MW-E112"),
        ("budget", "-2M USD", "MW-E113"),
        ("clusters", (), "MW-E402"),
        ("clusters", ("8xH10",), "MW-E201"),
    ],
)
def test_what_cannot_be_understood(field: str, text: Any, code: str) -> None:
    fields = {"model": "gpt2", "clusters": ("8xA100-80GB",)} | {field: text}
    with pytest.raises(InputError) as caught:
        compare(CompareRequest(**fields))
    assert caught.value.code == code
    assert caught.value.nearest


def test_an_interrupt_keeps_the_clusters_so_far(tmp_path: Path) -> None:
    path = tmp_path / "compared.json"

    def press(state: Progress) -> None:
        if state.visited >= 1500:
            raise KeyboardInterrupt

    request = CompareRequest(model="gpt2", clusters=("8xA100-80GB", "8xH100", "8xB200"), tokens="1B", out=path)
    found = compare(request, press)
    assert found.interrupted
    assert 0 < len(found.candidates) < 3
    assert json.loads(path.read_text(encoding="utf-8"))["schema"] == "meshwright/compare/1"
