"""Predictions against published and measured runs, through the verbs, as a user asks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import meshwright
from meshwright.specs.report import Validation


@pytest.fixture(scope="module")
def accuracy_page(root: Path) -> ModuleType:
    """The tool that writes docs/accuracy.md; it knows the published runs."""
    spec = importlib.util.spec_from_file_location("accuracy_page", root / "tools" / "accuracy_page.py")
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    sys.modules["accuracy_page"] = page
    spec.loader.exec_module(page)
    return page


def test_llama_65b_on_2048_a100() -> None:
    """LLaMA, arXiv 2302.13971 section 2.4: about 380 tokens/s/GPU, 1.4 T tokens in 21 days; no layout, no fabric."""
    found = meshwright.plan(
        "llama-65b", cluster="256x8 A100-80GB", seq_len=2048, global_batch=2048, tokens="1.4T", precision="bf16"
    )
    best = found.layouts[found.chosen]
    low_s, high_s = best.step_time_interval_s
    tokens_per_gpu = 2048 * 2048 / 2048
    assert tokens_per_gpu / high_s <= 380 <= tokens_per_gpu / low_s
    assert (high_s - low_s) / 2 / best.step_time_s <= 0.20
    assert best.mfu_ratio <= 0.60
    assert found.time_to_train_s is not None
    assert 16 <= found.time_to_train_s / 86_400 <= 24
    assert {"fabric", "node"} <= set(found.assumed), "neither was published: both are assumptions"


@pytest.mark.parametrize("more", ["", ",stage_split=ends", ",zero_stage=1,rank_order=tp-cp-dp-pp"])
@pytest.mark.parametrize("attention", [None, "unfused"])
def test_bloom_176b(more: str, attention: str | None) -> None:
    """BLOOM, arXiv 2211.05100 and its chronicles: 105 s a step."""
    report = meshwright.estimate(
        "bloom-176b",
        cluster="48x8 A100-80GB, 4x100Gb OPA",
        layout="tp=4,pp=12,dp=8,micro_batch=2,recompute=full" + more,
        seq_len=2048,
        global_batch=2048,
        attention=attention,
    )
    assert report.estimate.step_time_s == pytest.approx(105.0, rel=0.12)
    assert report.estimate.memory.fits == "yes"


@pytest.mark.parametrize("row", [1, 2, 3])
def test_llama_405b(accuracy_page: ModuleType, row: int) -> None:
    """Llama 3, arXiv 2407.21783 table 4: 430, 400 and 380 TFLOP/s a GPU; the chunks a rank are read off figure 6."""
    run = accuracy_page.published_runs()[f"llama-405b-{row}"]
    assert run.step_time_s == pytest.approx((12.50, 6.72, 15.28)[row - 1], abs=0.005)
    assert run.predicted().step_time_s == pytest.approx(run.step_time_s, rel=0.15)


def test_the_flops_of_llama_405b_are_those_of_the_paper(accuracy_page: ModuleType) -> None:
    """6 FLOPs a parameter and token, and a full square of attention: 12 x layers x width x sequence a token."""
    for row, seq_len in ((1, 8192), (3, 131072)):
        run = accuracy_page.published_runs()[f"llama-405b-{row}"]
        n_gpus, _dp, _cp, _seq_len, flops_per_s = accuracy_page.LLAMA_405B[row - 1]
        per_token = run.step_time_s * n_gpus * flops_per_s / 2**24
        assert per_token == pytest.approx(6 * (405.85e9 - 128256 * 16384) + 12 * 126 * 16384 * seq_len, rel=0.002)


def test_deepseek_v3_is_inside_its_interval(accuracy_page: ModuleType) -> None:
    """DeepSeek-V3, arXiv 2412.19437: 180 thousand H800 hours for a trillion tokens, about 1,540 tokens/s a GPU."""
    run = accuracy_page.published_runs()["deepseek-v3"]
    assert run.step_time_s == pytest.approx(15360 * 4096 / 1e12 * 180e3 * 3600 / 2048, rel=0.01)
    low_s, high_s = run.predicted().step_time_interval_s
    assert low_s <= run.step_time_s <= high_s


@pytest.fixture(scope="module")
def vtrain(shared: Path) -> Validation:
    return meshwright.validate("vtrain", shared / "data" / "vtrain_a100.csv")


def test_measured_steps_of_vtrain(vtrain: Validation) -> None:
    groups = {group.name: group for group in (*vtrain.groups, vtrain.overall)}
    assert (groups["single-node"].rows, groups["multi-node"].rows) == (720, 73)
    for name in ("single-node", "multi-node", "overall"):
        group = groups[name]
        assert group.scored == group.rows, name
        assert group.median_error_ratio is not None
        assert group.median_error_ratio <= 0.10, name
        assert group.interval_coverage_ratio is not None
        assert group.interval_coverage_ratio >= 0.72, name


@pytest.mark.slow
def test_the_accuracy_page_is_up_to_date(shared: Path, accuracy_page: ModuleType) -> None:
    assert accuracy_page.main([str(shared / "data" / "vtrain_a100.csv"), "--check"]) == 0
