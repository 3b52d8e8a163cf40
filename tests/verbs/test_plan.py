"""The plan as a document: the promised fields, what they add up to, and answers where nothing fits."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from meshwright.errors import InputError
from meshwright.specs.estimate import BREAKDOWN_TERMS, MEMORY_CLASSES, MEMORY_PHASES
from meshwright.specs.plan import Plan
from meshwright.specs.report import Progress
from meshwright.specs.request import EstimateRequest, PlanRequest
from meshwright.verbs.estimate import estimate
from meshwright.verbs.plan import plan
from meshwright.verbs.resolve import default_global_batch

SMALL: dict[str, Any] = {"model": "gpt3-2.7b", "cluster": "2x8 A100-80GB", "global_batch": 64}


def test_the_document_has_the_promised_fields(small_document: dict[str, Any]) -> None:
    assert small_document["schema"] == "meshwright/plan/1"
    promised = {
        "layouts",
        "searched",
        "rejected",
        "feasible",
        "elapsed_s",
        "pareto",
        "chosen",
        "time_to_train_s",
        "time_to_train_with_failures_s",
        "cost_usd",
        "energy_j",
        "assumed",
        "needs",
    }
    assert promised <= small_document.keys()
    assert set(small_document["needs"]) == {
        "checkpoint_bytes",
        "checkpoint_bytes_per_s",
        "loader_tokens_per_s",
        "host_bytes",
        "power_w",
    }
    for layout in (*small_document["layouts"], *small_document["pareto"]):
        assert {
            "layout",
            "step_time_s",
            "step_time_interval_s",
            "tokens_per_s_per_gpu",
            "mfu_ratio",
            "flops_convention",
            "breakdown_s",
            "memory",
        } <= layout.keys()
        assert tuple(layout["breakdown_s"]) == BREAKDOWN_TERMS
        assert sum(layout["breakdown_s"].values()) == pytest.approx(layout["step_time_s"], rel=1e-9)
        memory = layout["memory"]
        assert set(memory["by"]) == set(MEMORY_CLASSES)
        assert set(memory["by_phase"]) == set(MEMORY_PHASES)
        assert sum(memory["by"].values()) == pytest.approx(memory["peak_allocated_bytes"], rel=1e-9)
        assert memory["fits"] in ("yes", "tight", "no")
        low, high = layout["step_time_interval_s"]
        assert low < layout["step_time_s"] < high
        assert 0 < layout["mfu_ratio"] < 1
        degrees = layout["layout"]
        assert degrees["dp"] * degrees["tp"] * degrees["cp"] * degrees["pp"] == 16


def test_layouts_are_sorted_and_differ_in_substance(small_plan: tuple[Plan, Path]) -> None:
    layouts = small_plan[0].layouts
    assert len(layouts) == 5
    times = [layout.step_time_s for layout in layouts]
    assert times == sorted(times)
    for i, one in enumerate(layouts):
        for other in layouts[i + 1 :]:
            a, b = one.layout, other.layout
            same = (a.dp, a.tp, a.pp, a.micro_batch) == (b.dp, b.tp, b.pp, b.micro_batch)
            assert not same or other.memory.peak_reserved_bytes <= 0.98 * one.memory.peak_reserved_bytes


def test_time_to_train_is_tokens_over_rate(small_plan: tuple[Plan, Path]) -> None:
    found = small_plan[0]
    assert found.time_to_train_s == pytest.approx(10e9 / (16 * found.layouts[0].tokens_per_s_per_gpu))
    assert found.time_to_train_interval_s is not None
    assert found.time_to_train_interval_s[0] < found.time_to_train_s < found.time_to_train_interval_s[1]


def test_needs_of_the_run(small_plan: tuple[Plan, Path]) -> None:
    # 2.65e9 parameters at 14 bytes; a checkpoint may take 90 s (5 % of half an hour); 16 A100 of 400 W, half as much
    # for the rest of their servers, and a building that takes a fifth on top.
    needs = small_plan[0].needs
    assert needs["checkpoint_bytes"] == pytest.approx(14 * 2.65e9, rel=0.01)
    assert needs["checkpoint_bytes_per_s"] == pytest.approx(needs["checkpoint_bytes"] / 90)
    assert needs["power_w"] == pytest.approx(6400 * 1.5 * 1.2)
    assert needs["loader_tokens_per_s"] == pytest.approx(64 * 2048 / small_plan[0].layouts[0].step_time_s)


def test_runners_up_say_where_they_lose(small_plan: tuple[Plan, Path]) -> None:
    found = small_plan[0]
    assert [runner.layout_index for runner in found.runners_up] == [1, 2, 3, 4]
    for runner in found.runners_up:
        loss = found.layouts[runner.layout_index].step_time_s - found.layouts[0].step_time_s
        assert sum(runner.terms_s.values()) == pytest.approx(loss, abs=1e-9)
        assert list(runner.terms_s.values()) == sorted(runner.terms_s.values(), reverse=True)


def test_every_assumption_says_how_the_answer_moves(small_plan: tuple[Plan, Path]) -> None:
    found = small_plan[0]
    expected = {"seq_len", "precision", "attention", "grad_dtype", "overlap_grad_reduce", "cuda_graphs"}
    assert expected <= found.assumed.keys()
    assert "global_batch" not in found.assumed
    for assumption in found.assumed.values():
        assert assumption.why
        if assumption.alternative is not None:
            moved = assumption.step_time_ratio if assumption.total is None else assumption.total_ratio
            assert moved is not None
    # Half the sequence is less than half the work (attention); a step of launches is never free.
    halved = found.assumed["seq_len"].step_time_ratio
    assert halved is not None
    assert 0.4 < halved < 0.75
    # Signs that nobody disputes: no overlap and half the adapters do not make it faster.
    for name in ("overlap_grad_reduce", "fabric", "oversubscription"):
        ratio = found.assumed[name].step_time_ratio
        assert ratio is not None
        assert ratio >= 1


def test_a_sensitivity_is_what_asking_again_says(small_plan: tuple[Plan, Path]) -> None:
    found, path = small_plan
    again = estimate(EstimateRequest(plan=path, set=("job.grad_dtype=bf16",)))
    ratio = again.estimate.step_time_s / found.layouts[0].step_time_s
    assert found.assumed["grad_dtype"].step_time_ratio == pytest.approx(ratio)


def test_nothing_fits_says_by_how_much_and_what_would_help() -> None:
    found = plan(PlanRequest(model="gpt3-175b", cluster="8xA100-80GB", global_batch=64))
    assert not found.feasible
    assert found.layouts == ()
    assert found.searched == 0
    assert found.nearest is not None
    # Megatron's 6 bytes a parameter for weights and fp32 gradients alone: 131 GB on each of 8 GPUs.
    assert found.nearest["misses_bytes"] > 175e9 * 6 / 8 - 80 * 2**30
    assert found.nearest["misses_bytes"] == pytest.approx(
        found.nearest["peak_allocated_bytes"] - found.nearest["budget_bytes"]
    )
    assert found.remedies
    nodes = next(c["value"] for r in found.remedies for c in r["changes"] if c["path"] == "cluster.n_nodes")
    # The remedy, applied as the next command says, does fit.
    words = shlex.split(found.next_command)
    assert words[:3] == ["mw", "plan", "gpt3-175b"]
    assert f"cluster.n_nodes={nodes}" in words
    more = (f"cluster.n_nodes={nodes}",)
    assert plan(PlanRequest(model="gpt3-175b", cluster="8xA100-80GB", global_batch=64, set=more)).feasible


def test_what_was_fixed_is_named_where_it_is_in_the_way() -> None:
    request = PlanRequest(
        model="gpt3-13b", cluster="8xA100-80GB", global_batch=64, fix="tp=1,pp=1,zero_stage=1,recompute=none"
    )
    found = plan(request)
    assert not found.feasible
    freed = [c["path"] for c in found.remedies[0]["changes"]]
    assert freed
    assert all(path.startswith("layout.") for path in freed)
    fixed = {"tp": 1, "pp": 1, "zero_stage": 1, "recompute": "none"}
    kept = {name: value for name, value in fixed.items() if f"layout.{name}" not in freed}
    assert all(found.remedies[0]["layout"][name] == value for name, value in kept.items())


def test_no_legal_layout_names_the_rule() -> None:
    found = plan(PlanRequest(model="gpt3-175b", cluster="128x8 A100-80GB", global_batch=1536, fix="tp=1,pp=1,cp=1"))
    assert not found.feasible
    assert found.nearest is not None
    assert found.nearest["rule"] == "batch_divides"


def test_more_memory_in_use_is_never_slower() -> None:
    wide, narrow = plan(PlanRequest(**SMALL)), plan(PlanRequest(**SMALL, max_memory="24 GiB"))
    assert narrow.layouts[0].step_time_s >= wide.layouts[0].step_time_s
    assert all(e.memory.peak_reserved_bytes <= 24 * 2**30 for e in narrow.layouts)


def test_fix_top_and_set_are_kept() -> None:
    found = plan(PlanRequest(**SMALL, fix="tp=4,recompute=full", top=2, set=("nics_per_node=2",)))
    assert len(found.layouts) <= 2
    assert all(e.layout.tp == 4 and e.layout.recompute == "full" for e in found.layouts)
    assert found.cluster["nics_per_node"] == 2
    assert "fabric" not in found.assumed


@pytest.mark.parametrize(
    ("schedule", "vpp"),
    [("gpipe", 1), ("zb-h1", 1), ("dualpipe", 1), ("zb-v", 2), ("dualpipev", 2), ("interleaved", 2)],
)
def test_a_fixed_schedule_is_searched_with_its_chunks(schedule: str, vpp: int) -> None:
    found = plan(PlanRequest(**SMALL, fix=f"schedule={schedule},pp=2,tp=2"))
    assert found.feasible
    for each in found.layouts:
        assert (each.layout.schedule, each.layout.pp) == (schedule, 2)
        assert each.layout.vpp == vpp or (schedule == "interleaved" and each.layout.vpp > vpp)


def test_ctrl_c_keeps_the_best_so_far(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    found = plan(PlanRequest(**SMALL, out=tmp_path / "plan.json"), on_progress=stop)
    assert found.interrupted
    assert found.layouts
    assert estimate(EstimateRequest(plan=tmp_path / "plan.json")).estimate.step_time_s == pytest.approx(
        found.layouts[0].step_time_s
    )


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"model": None}, "MW-E401", "Known"),
        ({"model": "gpt3-175"}, "MW-E201", "gpt3-175b"),
        ({"cluster": None}, "MW-E402", "8xH100"),
        ({"global_batch": 0}, "MW-E403", "one or more"),
        ({"seq_len": -1}, "MW-E403", "one or more"),
        ({"seq_len": 4096}, "MW-E120", "2048"),
        ({"tokens": "many"}, "MW-E110", "1.4T"),
        ({"tokens": "0"}, "MW-E403", "1.4T"),
        ({"precision": "fp8"}, "MW-E405", "bf16"),
        ({"optimizer": "adamm"}, "MW-E404", "adam"),
        ({"attention": "flsh"}, "MW-E404", "flash"),
        ({"cluster": "8xV100-32GB", "precision": "bf16"}, "MW-E405", "fp16"),
        ({"cluster": "8xV100-32GB", "attention": "flash"}, "MW-E405", "unfused"),
        ({"fix": "tp=3"}, "MW-E140", "16"),
        ({"fix": "tpp=2"}, "MW-E130", "tp"),
        ({"max_memory": "70"}, "MW-E111", "80 GiB"),
        ({"top": 0}, "MW-E403", "one or more"),
        ({"set": ("job.attentoin=flash",)}, "MW-E151", "job.attention"),
        ({"set": ("nics=",)}, "MW-E150", "cluster.nics_per_node=8"),
        ({"set": ("cluster.nics_per_node=none",)}, "MW-E152", "nics_per_node"),
        ({"set": ("layout.tp=2",)}, "MW-E151", "--fix"),
    ],
)
def test_wrong_input_names_the_nearest_right_thing(fields: dict[str, Any], code: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(PlanRequest(**{**SMALL, **fields}))
    assert caught.value.code == code
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("n_gpus", "seq_len"), [(8, 2048), (1024, 2048), (16384, 8192), (2240, 2048), (1, 8192), (96, 4096)]
)
def test_the_assumed_batch_is_near_four_million_tokens(n_gpus: int, seq_len: int) -> None:
    batch = default_global_batch(n_gpus, seq_len)
    assert 2e6 < batch * seq_len < 8e6
    # Some data-parallel degree well above one divides it, on as many GPUs as there are.
    assert any(batch % dp == 0 for dp in range(max(2, n_gpus // 64), n_gpus + 1) if n_gpus % dp == 0) or n_gpus == 1


@pytest.mark.parametrize("seq_len", [197, 577, 592, 1000, 1536])
def test_the_assumed_batch_leaves_micro_batches_to_choose(seq_len: int) -> None:
    share = default_global_batch(8, seq_len) // 8
    assert sum(share % size == 0 for size in range(1, share + 1)) >= 12


def test_a_faster_layout_that_fits_tightly_is_told() -> None:
    found = plan(PlanRequest(model="llama-2-7b", cluster="8xH100", seq_len=4096, global_batch=64))
    chosen, tight = found.layouts[0], found.tight_faster
    assert chosen.memory.fits == "yes"
    assert tight is not None
    assert tight.memory.fits == "tight"
    assert tight.step_time_s < chosen.step_time_s
    # No layout of the front is tight and faster still: the front holds tight layouts too, fastest first.
    assert found.pareto[0].step_time_s == pytest.approx(tight.step_time_s)


@pytest.mark.parametrize("fix", ["dp=8", "micro_batch=2", "dp=2,micro_batch=4"])
def test_a_batch_that_what_is_fixed_cannot_share_is_wrong_input(fix: str) -> None:
    asked = PlanRequest(model="gpt2", cluster="8xH100", global_batch=7, fix=fix)
    with pytest.raises(InputError, match="batch_divides") as caught:
        plan(asked)
    batch = int(str(caught.value.nearest).rstrip(".").split()[-1])
    assert abs(batch - 7) <= 4
    assert plan(asked.model_copy(update={"global_batch": batch})).feasible


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"seq_len": 10**20}, "MW-E403"),
        ({"global_batch": 2**29}, "MW-E403"),
        ({"global_batch": 10**5000}, "MW-E403"),
        ({"cluster": "1000000000000xH100"}, "MW-E215"),
        ({"fix": "micro_batch=2147483648"}, "MW-E132"),
        ({"set": ("cluster.oversubscription=inf",)}, "MW-E152"),
        ({"set": ("cluster.oversubscription=nan",)}, "MW-E152"),
        ({"set": ("cluster.n_nodes=100000000",)}, "MW-E152"),
        ({"set": ("job.global_batch=99999999999",)}, "MW-E152"),
        ({"tokens": "1e308T"}, "MW-E113"),
    ],
)
def test_absurd_numbers_are_wrong_input(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(PlanRequest(**{"model": "llama-2-7b", "cluster": "8xH100", **fields}))
    assert caught.value.code == code


def test_the_model_is_not_set() -> None:
    with pytest.raises(InputError, match="Name another MODEL") as caught:
        plan(PlanRequest(**SMALL, set=("job.model=gpt2",)))
    assert caught.value.where == "--set job.model"


def test_a_quantity_of_a_change_names_its_place() -> None:
    with pytest.raises(InputError, match="has no unit") as caught:
        plan(PlanRequest(**SMALL, set=("cluster.gpu.memory_bytes=80",)))
    assert caught.value.where == "--set cluster.gpu.memory_bytes"
