"""The step: books close, physics is monotone, published runs are met."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel import evaluate, memory_peak_bytes, score
from meshwright.formula import Ledger
from meshwright.specs.estimate import BREAKDOWN_TERMS, MEMORY_CLASSES, MEMORY_PHASES
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch
from tests.costmodel.layouts import CLUSTERS, job, legal_layouts

CONSTANTS = catalog.constants()


@pytest.mark.slow
def test_books_close_for_ten_thousand_random_layouts() -> None:
    rng = np.random.default_rng(20261130)
    seen = 0
    while seen < 10_000:
        cluster = catalog.cluster(str(rng.choice(CLUSTERS)))[0]
        of = job(rng, cluster)
        layouts = legal_layouts(rng, of, cluster, 100)
        if not len(layouts):
            continue
        found = evaluate(of, cluster, layouts, CONSTANTS)
        seen += len(layouts)
        assert tuple(found.breakdown_s) == BREAKDOWN_TERMS
        assert tuple(found.memory_by_bytes) == MEMORY_CLASSES
        assert tuple(found.memory_by_phase_bytes) == MEMORY_PHASES
        np.testing.assert_allclose(sum(found.breakdown_s.values()), found.step_time_s, rtol=1e-9)
        np.testing.assert_allclose(sum(found.memory_by_bytes.values()), found.peak_allocated_bytes, rtol=1e-12)
        for name, term in {**found.breakdown_s, **found.memory_by_bytes}.items():
            assert (term >= -1e-9 * found.step_time_s.max()).all(), name
            assert np.isfinite(term).all(), name
        assert (np.max(list(found.memory_by_phase_bytes.values()), axis=0) <= found.peak_allocated_bytes * 1.0001).all()
        assert (found.peak_reserved_bytes >= found.peak_allocated_bytes).all()
        assert ((found.mfu_ratio > 0) & (found.mfu_ratio <= found.hfu_ratio + 1e-12) & (found.hfu_ratio < 1)).all()
        assert (found.interval_low_s < found.step_time_s).all()
        assert (found.interval_high_s > found.step_time_s).all()
        np.testing.assert_allclose(memory_peak_bytes(of, cluster, layouts, CONSTANTS), found.peak_allocated_bytes)


@pytest.mark.parametrize("seed", range(8))
def test_a_batch_equals_its_rows_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cluster = catalog.cluster(CLUSTERS[seed % len(CLUSTERS)])[0]
    of = job(rng, cluster)
    layouts = legal_layouts(rng, of, cluster, 40)
    assert len(layouts) >= 10
    together = evaluate(of, cluster, layouts, CONSTANTS)
    scored = score(of, cluster, layouts, CONSTANTS, np.inf)
    np.testing.assert_allclose(scored.step_time_s, together.step_time_s, rtol=1e-12)
    np.testing.assert_allclose(scored.peak_reserved_bytes, together.peak_reserved_bytes, rtol=1e-12)
    for i in range(len(layouts)):
        alone = evaluate(of, cluster, LayoutBatch.of([layouts.row(i)]), CONSTANTS)
        assert alone.step_time_s[0] == pytest.approx(together.step_time_s[i], rel=1e-9)
        assert alone.peak_allocated_bytes[0] == pytest.approx(together.peak_allocated_bytes[i], rel=1e-12)
        assert alone.host_bytes[0] == pytest.approx(together.host_bytes[i], rel=1e-12)
        assert alone.hfu_ratio[0] == pytest.approx(together.hfu_ratio[i], rel=1e-9)
        for name, term in together.breakdown_s.items():
            assert alone.breakdown_s[name][0] == pytest.approx(term[i], rel=1e-6, abs=1e-9), name


def _llama(**changes: object) -> TrainingJob:
    return TrainingJob.model_validate(
        {"model": catalog.model("llama-2-7b"), "seq_len": 2048, "global_batch": 512, **changes}
    )


def _time(of: TrainingJob, text: str, **layout: object) -> float:
    cluster = catalog.cluster(text)[0]
    return float(evaluate(of, cluster, LayoutBatch.of([Layout(**layout)]), CONSTANTS).step_time_s[0])  # type: ignore[arg-type]


def test_time_is_monotone_where_physics_is() -> None:
    base = {"dp": 4, "tp": 4, "pp": 2}
    reference = _time(_llama(), "4x8 A100-80GB", **base)
    assert _time(_llama(global_batch=1024), "4x8 A100-80GB", **base) > reference
    assert _time(_llama(seq_len=4096), "4x8 A100-80GB", **base) > reference
    assert _time(_llama(), "4x8 A100-80GB", **base, recompute="full") > reference
    assert _time(_llama(), "4x8 A100-80GB, 1x100Gb IB", **base) > reference
    assert _time(_llama(), "4x8 H100", **base) < reference
    assert _time(_llama(straggler_ratio=0.1), "4x8 A100-80GB", **base) == pytest.approx(1.1 * reference)
    assert _time(_llama(overlap_grad_reduce=False), "4x8 A100-80GB", **base) >= reference


def test_memory_is_monotone_where_physics_is() -> None:
    cluster = catalog.cluster("4x8 A100-80GB")[0]

    def peak(**layout: object) -> float:
        rows = LayoutBatch.of([Layout(**{"dp": 4, "tp": 4, "pp": 2, **layout})])  # type: ignore[arg-type]
        return float(evaluate(_llama(), cluster, rows, CONSTANTS).peak_allocated_bytes[0])

    assert peak(micro_batch=2) > peak()
    assert peak(recompute="full") < peak(recompute="selective") <= peak()
    assert peak(zero_stage=0) > peak(zero_stage=1)
    assert peak(sp=True) < peak()
    assert peak(tp=8, dp=2) < peak()


def test_bloom_176b_as_published() -> None:
    """BigScience, arXiv 2211.05100 section 3.4 and its chronicles: 105 s a step on 384 A100."""
    cluster = catalog.cluster("48x8 A100-80GB, 4x100Gb OPA")[0]
    of = TrainingJob(
        model=catalog.model("bloom-176b"),
        seq_len=2048,
        global_batch=2048,
        attention="unfused",
        overlap_grad_reduce=False,
        overlap_param_gather=False,
        gradient_accumulation_fusion=False,
    )
    layout = Layout(dp=8, tp=4, pp=12, micro_batch=2, recompute="full", stage_split="ends")
    found = evaluate(of, cluster, LayoutBatch.of([layout]), CONSTANTS)
    assert found.step_time_s[0] == pytest.approx(105.0, rel=0.12)
    assert found.fits[0] == 2
    assert found.interval_low_s[0] < 105.0 < found.interval_high_s[0]


def test_full_recompute_costs_one_forward() -> None:
    """Hardware FLOPs over model FLOPs is 4/3 with full recompute but for the head and causal attention."""
    cluster = catalog.cluster("4x8 A100-80GB")[0]
    rows = LayoutBatch.of([Layout(dp=8, tp=4, recompute=r) for r in ("none", "full")])
    found = evaluate(_llama(), cluster, rows, CONSTANTS)
    assert found.hfu_ratio[0] == pytest.approx(found.mfu_ratio[0])
    assert found.hfu_ratio[1] / found.mfu_ratio[1] == pytest.approx(4 / 3, rel=0.02)


def test_a_ledger_changes_nothing_and_closes_the_step() -> None:
    cluster = catalog.cluster("4x8 A100-80GB")[0]
    rows = LayoutBatch.of([Layout(dp=4, tp=4, pp=2)])
    ledger = Ledger()
    with_ledger = evaluate(_llama(), cluster, rows, CONSTANTS, ledger)
    assert with_ledger.step_time_s[0] == evaluate(_llama(), cluster, rows, CONSTANTS).step_time_s[0]
    step = ledger.find("step_time_s")
    assert len(step) == 1
    assert step[0].result[0] == with_ledger.step_time_s[0]
    assert {entry.unit for entry in ledger.find("gemm_time_s")} == {"s"}
    assert "memory_bytes_per_s" in ledger.sources


@pytest.mark.parametrize(
    ("schedule", "vpp", "lora_rank", "sent"),
    [("1f1b", 1, 0, True), ("interleaved", 2, 0, True), ("zb-v", 2, 0, False), ("dualpipev", 2, 0, False),
     ("dualpipe", 1, 0, False), ("1f1b", 1, 16, False)],
)  # fmt: skip
def test_a_tied_embedding_is_reduced_where_its_copies_are_apart(
    schedule: str, vpp: int, lora_rank: int, sent: bool
) -> None:
    """A V has the first and the last stage on one rank; a frozen table has no gradient."""
    of = TrainingJob(model=catalog.model("gpt2-xl"), seq_len=1024, global_batch=64, lora_rank=lora_rank)
    rows = LayoutBatch.of([Layout(dp=2, pp=4, vpp=vpp, schedule=schedule)])
    ledger = Ledger()
    evaluate(of, catalog.cluster("1x8 A100-80GB")[0], rows, CONSTANTS, ledger)
    assert bool(ledger.find("step_time_s")[0].arguments["tied_embedding_s"][0] > 0) is sent


def test_hiding_sharded_weights_is_no_loss() -> None:
    """ZeRO-3 gathers layer by layer with and without overlap: what hides cannot cost more than what waits."""
    rng, seen = np.random.default_rng(5), 0
    for number in range(12):
        cluster = catalog.cluster(CLUSTERS[number % len(CLUSTERS)])[0]
        of = job(rng, cluster)
        layouts = legal_layouts(rng, of, cluster, 60)
        layouts = layouts.take(np.flatnonzero(layouts.zero_stage == 3))
        seen += len(layouts)
        hides, waits = (
            of.model_copy(update={"overlap_grad_reduce": on, "overlap_param_gather": on}) for on in (True, False)
        )
        time = evaluate(hides, cluster, layouts, CONSTANTS).step_time_s
        assert (time <= evaluate(waits, cluster, layouts, CONSTANTS).step_time_s * (1.0 + 1e-9)).all()
    assert seen >= 50


def test_buckets_of_experts_are_counted() -> None:
    """What stays exposed behind a long backward is one of all buckets, though few of them hold dense weights."""
    of = TrainingJob(
        model=catalog.model("mixtral-8x7b"), seq_len=8192, global_batch=32, precision="bf16", overlap_param_gather=False
    )
    dense_buckets, all_buckets = (np.ceil(count / 8 / 40e6) for count in (1.6e9, 46.7e9))
    assert dense_buckets * 10 < all_buckets
    exposed = [
        evaluate(
            of.model_copy(update={"overlap_grad_reduce": on}),
            catalog.cluster("2x8 H100")[0],
            LayoutBatch.of([Layout(dp=2, tp=8, sp=True, etp=8, micro_batch=16, zero_stage=0)]),
            CONSTANTS,
        ).breakdown_s["dp_comm"][0]
        for on in (True, False)
    ]
    assert exposed[0] / exposed[1] == pytest.approx(1 / all_buckets, rel=0.2)


def _mixtral(**changes: object) -> TrainingJob:
    return TrainingJob.model_validate(
        {"model": catalog.model("mixtral-8x7b"), "seq_len": 1024, "global_batch": 2048, "precision": "fp8",
         "overlap_grad_reduce": False, "overlap_param_gather": False, **changes}
    )  # fmt: skip


def test_passes_without_a_backward_hide_no_expert_traffic() -> None:
    """A reference model's forward takes through DualPipe's ranks what it takes through those of 1F1B, or more."""
    layout = {"dp": 64, "tp": 4, "sp": True, "pp": 2, "ep": 2, "etp": 4, "micro_batch": 8}
    dual, plain = (
        _time(_mixtral(kind="dpo"), "64x8 H100", **layout, schedule=schedule)
        - _time(_mixtral(kind="dpo", reference_forward=False), "64x8 H100", **layout, schedule=schedule)
        for schedule in ("dualpipe", "1f1b")
    )
    assert dual >= plain


def test_nothing_hides_behind_the_same_work_twice() -> None:
    """Gathers of sequence parallelism and the experts' traffic share one computation."""
    layout = Layout(dp=32, tp=8, sp=True, pp=2, ep=8, schedule="dualpipe", micro_batch=2)
    of, cluster = _mixtral(tp_comm_overlap=True), catalog.cluster("64x8 H100")[0]
    terms = evaluate(of, cluster, LayoutBatch.of([layout]), CONSTANTS).breakdown_s
    assert terms["ep_comm"][0] > 0
    hidden_s = terms["contention"][0] / CONSTANTS.get("contention_ratio")
    assert hidden_s <= terms["forward"][0] + terms["backward"][0]
