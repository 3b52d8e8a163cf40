"""One layout: completed, checked, predicted, and helped where it does not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshwright.errors import InputError
from meshwright.specs.layout import KEYS
from meshwright.specs.plan import Plan
from meshwright.specs.request import EstimateRequest
from meshwright.verbs.command import layout_text
from meshwright.verbs.document import document
from meshwright.verbs.estimate import estimate

Requests = Callable[..., EstimateRequest]


def test_dp_follows_from_the_cluster(estimate_request: Requests) -> None:
    layout = estimate(estimate_request()).estimate.layout
    assert (layout.dp, layout.tp, layout.pp, layout.micro_batch) == (4, 2, 2, 2)
    assert estimate(estimate_request("tp=2,pp=2,vpp=4,micro_batch=2")).estimate.layout.schedule == "interleaved"


@pytest.mark.parametrize(
    ("schedule", "vpp"),
    [("gpipe", 1), ("zb-h1", 1), ("dualpipe", 1), ("zb-v", 2), ("dualpipev", 2), ("interleaved", 2)],
)
def test_a_schedule_brings_its_chunks(estimate_request: Requests, schedule: str, vpp: int) -> None:
    found = estimate(estimate_request(f"tp=2,cp=2,pp=2,micro_batch=2,schedule={schedule}"))
    assert (found.estimate.layout.vpp, found.estimate.layout.dp) == (vpp, 2)
    assert ("vpp" in found.assumed) == (vpp > 1)


def test_what_the_layout_does_not_say_is_assumed(estimate_request: Requests) -> None:
    found = estimate(estimate_request("tp=2"))
    assert {"micro_batch", "recompute", "sp", "zero_stage"} <= found.assumed.keys()
    full = found.assumed["recompute"].step_time_ratio
    assert full is not None
    # Full recompute repeats the forward: 4 units of work for 3 (arXiv 2205.05198), less where other terms count.
    assert 1.15 < full < 4 / 3
    assert "micro_batch" not in estimate(estimate_request("tp=2,micro_batch=1")).assumed


def test_the_document_is_flat(estimate_request: Requests) -> None:
    found = document("estimate", estimate(estimate_request()))
    assert found["schema"] == "meshwright/estimate/1"
    promised = {"layout", "step_time_s", "breakdown_s", "memory", "assumed", "time_to_train_s", "next_command"}
    assert promised <= found.keys()
    assert set(found["layout"]) == set(KEYS)
    assert found["cost_usd"] is None
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_each_layout_of_a_plan_is_estimated_alike(small_plan: tuple[Plan, Path]) -> None:
    found, path = small_plan
    for number, expected in enumerate(found.layouts, start=1):
        again = estimate(EstimateRequest(plan=path, pick=number)).estimate
        assert again.layout == expected.layout
        assert again.step_time_s == pytest.approx(expected.step_time_s, rel=1e-12)
        assert again.memory.peak_reserved_bytes == pytest.approx(expected.memory.peak_reserved_bytes, rel=1e-12)


def test_assumptions_of_the_plan_stay(small_plan: tuple[Plan, Path]) -> None:
    found, path = small_plan
    assert estimate(EstimateRequest(plan=path)).assumed == found.assumed
    changed = estimate(EstimateRequest(plan=path, set=("job.attention=unfused",))).assumed
    assert found.assumed.keys() - changed.keys() == {"attention"}


def test_a_layout_as_text_means_the_same(small_plan: tuple[Plan, Path]) -> None:
    found, _path = small_plan
    for expected in found.layouts:
        request = EstimateRequest(
            model="gpt3-2.7b", cluster="2x8 A100-80GB", global_batch=64, layout=layout_text(expected.layout)
        )
        assert estimate(request).estimate.layout == expected.layout


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"layout": None}, "MW-E408", "tp=8"),
        ({"layout": "tp=3"}, "MW-E406", "The nearest is dp=4,tp=4,pp=1"),
        ({"layout": "tp=2,pp=2,dp=2"}, "MW-E406", "8 GPUs, the cluster has 16"),
        ({"layout": "tp=2,pp=2,micro_batch=3"}, "MW-E407", "micro_batch=4"),
        ({"layout": "tp=2,pp=2,micro_batch=3"}, "MW-E407", "--global-batch 60"),
        ({"layout": "tp=2,pp=2,vpp=5"}, "MW-E407", "vpp"),
        ({"layout": "tp=1,pp=1,sp=true"}, "MW-E407", "sp"),
        ({"layout": "tp=2,pp=2,schedule=zigzag"}, "MW-E132", "1f1b"),
        ({"layout": "tp=2,pp=2,zero_stage=4"}, "MW-E133", "0 to 3"),
        ({"layout": "tp=-2"}, "MW-E132", "at least 1"),
    ],
)
def test_wrong_layouts_name_the_rule_and_the_nearest(
    estimate_request: Requests, fields: dict[str, Any], code: str, says: str
) -> None:
    with pytest.raises(InputError) as caught:
        estimate(estimate_request(**fields))
    assert caught.value.code == code
    assert says in str(caught.value)


def test_tensor_parallelism_must_divide_the_heads() -> None:
    request = EstimateRequest(model="gpt2", cluster="8xA100-80GB", global_batch=8, layout="tp=8")
    with pytest.raises(InputError, match="attention heads") as caught:
        estimate(request)
    # 12 heads: of the degrees that 8 GPUs allow, 4 is the nearest that divides them.
    assert caught.value.nearest is not None
    assert "tp=4" in caught.value.nearest


def test_remedies_fit_when_applied() -> None:
    request = EstimateRequest(
        model="gpt3-13b", cluster="8xA100-80GB", global_batch=64, layout="tp=1,pp=1,micro_batch=4,zero_stage=0"
    )
    found = estimate(request)
    assert found.estimate.memory.fits == "no"
    assert 1 <= len(found.remedies) <= 3
    for remedy in found.remedies:
        changed = {change["path"].removeprefix("layout."): change["value"] for change in remedy["changes"]}
        layout = found.estimate.layout.model_copy(update=changed)
        assert layout.model_dump() == remedy["layout"]
        again = estimate(request.model_copy(update={"layout": layout_text(layout)}))
        assert again.estimate.memory.fits in ("yes", "tight")
        assert again.estimate.step_time_s == pytest.approx(remedy["step_time_s"])
    assert (
        layout_text(
            found.estimate.layout.model_copy(
                update={c["path"].removeprefix("layout."): c["value"] for c in found.remedies[0]["changes"]}
            )
        )
        in found.next_command
    )


def test_what_fits_needs_no_remedy(estimate_request: Requests) -> None:
    found = estimate(estimate_request())
    assert found.estimate.memory.fits == "yes"
    assert found.remedies == ()


def test_set_changes_job_and_cluster(estimate_request: Requests) -> None:
    base = estimate(estimate_request()).estimate
    fewer = estimate(estimate_request(set=("cluster.nics_per_node=1",))).estimate
    assert fewer.step_time_s > base.step_time_s
    small = estimate(estimate_request(set=("gpu.memory_bytes=20 GiB",))).estimate
    assert small.memory.capacity_bytes < 20 * 2**30 < base.memory.capacity_bytes
    # A whole catalog entry by name.
    h100 = estimate(estimate_request(set=("cluster.gpu=H100-80GB-SXM",))).estimate
    assert h100.step_time_s < base.step_time_s


def test_the_plan_file_is_not_contradicted(small_plan: tuple[Plan, Path]) -> None:
    for field, value in (("model", "gpt2"), ("cluster", "8xH100"), ("layout", "tp=1"), ("seq_len", 512)):
        with pytest.raises(InputError) as caught:
            estimate(EstimateRequest(**{"plan": small_plan[1], field: value}))
        assert caught.value.code == "MW-E415"


def test_a_prompt_command_comes_next(estimate_request: Requests, small_plan: tuple[Plan, Path]) -> None:
    assert estimate(estimate_request()).next_command.startswith("mw plan gpt3-2.7b --cluster '2x8 A100-80GB'")
    assert estimate(EstimateRequest(plan=small_plan[1])).next_command == f"mw explain {small_plan[1]} step_time_s"


def test_the_nearest_degrees_are_legal() -> None:
    """GPT-2 has 12 heads: tp=8 would share the GPUs and not the heads."""
    asked = EstimateRequest(model="gpt2", cluster="2x4 A100-80GB", global_batch=64, layout="tp=6,dp=1")
    with pytest.raises(InputError, match="6 GPUs") as caught:
        estimate(asked)
    assert caught.value.code == "MW-E406"
    nearest = str(caught.value.nearest).removeprefix("The nearest is ").rstrip(".")
    assert "tp=4" in nearest
    assert estimate(asked.model_copy(update={"layout": nearest})).estimate.layout.tp == 4


@pytest.mark.parametrize(
    ("layout", "says"),
    [("rank_order=banana", "tp-cp-pp-dp"), ("schedule=foo", "interleaved"), ("pp=2,stage_split=evn", "even")],
)
def test_unknown_words_of_a_layout_get_the_known_ones(estimate_request: Requests, layout: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        estimate(estimate_request(layout))
    assert caught.value.code == "MW-E132"
    assert says in str(caught.value.nearest)


def test_chunks_that_do_not_fit_are_answered_with_chunks_that_do(estimate_request: Requests) -> None:
    """32 layers on two ranks: 16 can be cut into 4 chunks, not into 5."""
    with pytest.raises(InputError, match="split_fits") as caught:
        estimate(estimate_request("tp=2,pp=2,vpp=5,micro_batch=1"))
    assert caught.value.nearest == "The nearest is vpp=4."


def test_dp_follows_a_degree_that_was_set(small_plan: tuple[Plan, Path]) -> None:
    _plan, path = small_plan
    for change in ("layout.tp=4", "layout.pp=2", "cluster.n_nodes=1"):
        report = estimate(EstimateRequest(plan=path, set=(change,)))
        assert report.estimate.layout.n_gpus == report.cluster["n_gpus"]
    with pytest.raises(InputError, match="gpus_match"):
        estimate(EstimateRequest(plan=path, set=("layout.tp=4", "layout.dp=1", "layout.pp=1")))
