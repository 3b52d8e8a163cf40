"""Why not: each verdict is what a search, the rules or the memory say, and its numbers add up."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from meshwright.errors import InputError
from meshwright.plan.legality import broken_rules
from meshwright.specs.layout import Layout
from meshwright.specs.plan import Plan
from meshwright.specs.request import EstimateRequest, PlanRequest, WhyNotRequest
from meshwright.specs.why_not import WhyNot
from meshwright.verbs.estimate import estimate
from meshwright.verbs.plan import plan
from meshwright.verbs.resolve import resolve
from meshwright.verbs.why_not import why_not

JOB: dict[str, Any] = {"model": "llama-3.1-8b", "cluster": "8xH100", "seq_len": 8192, "global_batch": 512}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Path]:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    return plan(PlanRequest(**JOB, out=path)), path


def _ask(planned: tuple[Plan, Path], layout: str) -> WhyNot:
    return why_not(WhyNotRequest(plan=planned[1], layout=layout))


@pytest.mark.parametrize("layout", ["tp=2,pp=4", "tp=8", "pp=8", "recompute=full", "dp=2,tp=4,micro_batch=2"])
def test_slower_is_the_best_completion_and_its_terms_add_up(planned: tuple[Plan, Path], layout: str) -> None:
    found = _ask(planned, layout)
    best = plan(PlanRequest(**JOB, fix=layout, top=1)).layouts[0]
    chosen = planned[0].layouts[0]
    assert found.outcome == "slower"
    assert found.other is not None
    assert found.other.layout == best.layout
    assert found.other.step_time_s == best.step_time_s
    assert found.slower_ratio == pytest.approx(best.step_time_s / chosen.step_time_s)
    assert sum(found.terms_s.values()) == pytest.approx(best.step_time_s - chosen.step_time_s, abs=1e-9)
    losses = list(found.terms_s.values())
    assert losses == sorted(losses, reverse=True)
    for term, value in found.terms_s.items():
        assert value == pytest.approx(best.breakdown_s[term] - chosen.breakdown_s[term])
    assert next(iter(found.terms_s)) in found.sentence
    assert f"{100 * (best.step_time_s / chosen.step_time_s - 1):+.1f}%" in found.sentence


def test_the_command_shows_the_other_layout(planned: tuple[Plan, Path]) -> None:
    found = _ask(planned, "tp=2,pp=4")
    words = shlex.split(found.next_command)
    sets = tuple(words[i + 1] for i, word in enumerate(words) if word == "--set")
    report = estimate(EstimateRequest(plan=planned[1], set=sets))
    assert found.other is not None
    assert report.estimate.layout == found.other.layout
    assert report.estimate.step_time_s == pytest.approx(found.other.step_time_s)


def test_a_job_instead_of_a_plan(planned: tuple[Plan, Path]) -> None:
    found = why_not(WhyNotRequest(**JOB, layout="tp=2,pp=4"))
    of_plan = _ask(planned, "tp=2,pp=4")
    assert (found.outcome, found.other, found.chosen) == (of_plan.outcome, of_plan.other, of_plan.chosen)
    words = shlex.split(found.next_command)
    assert words[:3] == ["mw", "estimate", "llama-3.1-8b"]


def test_out_of_memory_says_by_how_much_and_remedies_fit(planned: tuple[Plan, Path]) -> None:
    found = _ask(planned, "tp=8,micro_batch=64")
    pinned = plan(PlanRequest(**JOB, fix="tp=8,micro_batch=64"))
    assert found.outcome == "memory"
    assert not pinned.feasible
    assert pinned.nearest is not None
    assert found.misses_bytes == pytest.approx(pinned.nearest["misses_bytes"])
    assert found.other is not None
    classes = found.other.memory.by
    assert found.largest_class == max(classes, key=lambda name: classes[name])
    assert f"{(found.misses_bytes or 0) / 2**30:.1f} GiB" in found.sentence
    assert found.remedies
    assert all(remedy["fits"] != "no" for remedy in found.remedies)


@pytest.mark.parametrize(
    ("layout", "rule", "values"),
    [
        ("tp=3", "gpus_match", {"n_gpus": 8}),
        ("pp=16", "gpus_match", {"n_gpus": 8}),
        ("micro_batch=3", "batch_divides", {"global_batch": 512, "n_gpus": 8}),
        ("sp=true,tp=1", "sp_needs_tp", {}),
    ],
)
def test_illegal_names_the_rule_with_its_values(
    planned: tuple[Plan, Path], layout: str, rule: str, values: dict[str, int]
) -> None:
    found = _ask(planned, layout)
    assert (found.outcome, found.rule) == ("illegal", rule)
    assert found.rule_values == values
    assert found.rule_text is not None
    assert found.rule_text in found.sentence
    for name, value in values.items():
        assert f"{name}={value:,}" in found.sentence
    assert rule in found.next_command


def test_the_rule_is_one_that_the_layout_breaks() -> None:
    found = why_not(WhyNotRequest(model="gpt2", cluster="8xA100-80GB", global_batch=64, layout="tp=8,pp=1,dp=1"))
    resolved = resolve(PlanRequest(model="gpt2", cluster="8xA100-80GB", global_batch=64))
    assert found.outcome == "illegal"
    assert found.rule in broken_rules(resolved.job, resolved.cluster, Layout(tp=8, dp=1, pp=1, micro_batch=1))
    assert found.rule_values == {"num_attention_heads": 12}


def test_the_chosen_one_is_recognised(planned: tuple[Plan, Path]) -> None:
    chosen = planned[0].layouts[0].layout
    found = _ask(planned, f"tp={chosen.tp},pp={chosen.pp}")
    assert found.outcome == "chosen"
    assert not found.terms_s


def test_a_plan_that_was_pinned_may_be_beaten(tmp_path: Path) -> None:
    path = tmp_path / "pinned.json"
    pinned = plan(PlanRequest(**JOB, fix="tp=8", out=path))
    found = why_not(WhyNotRequest(plan=path, layout="tp=1"))
    assert found.outcome == "faster"
    assert found.other is not None
    assert found.other.step_time_s < pinned.layouts[0].step_time_s
    assert re.search(r"\(-\d", found.sentence)


def test_pick_chooses_what_it_is_held_against(planned: tuple[Plan, Path]) -> None:
    found = why_not(WhyNotRequest(plan=planned[1], pick=3, layout="tp=8"))
    assert found.chosen is not None
    assert found.chosen.layout == planned[0].layouts[2].layout


@pytest.mark.parametrize(
    ("layout", "code"), [("", "MW-E408"), ("tp", "MW-E131"), ("ttp=2", "MW-E130"), ("tp=0", "MW-E132")]
)
def test_what_is_no_layout(planned: tuple[Plan, Path], layout: str, code: str) -> None:
    with pytest.raises(InputError) as caught:
        _ask(planned, layout)
    assert caught.value.code == code
    assert "--why-not" in str(caught.value)
