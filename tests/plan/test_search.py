"""The search against scoring everything at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meshwright.costmodel import evaluate, legal, memory_peak_bytes, score
from meshwright.costmodel.energy import mean_power_w
from meshwright.plan.search import MEMORY_RULE, Found, budget_bytes, search
from meshwright.plan.space import space
from meshwright.specs.constants import Constants
from meshwright.specs.estimate import EstimateBatch
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.report import Progress

Jobs = Callable[..., TrainingJob]
Clusters = Callable[..., Cluster]


@pytest.fixture(scope="module")
def task(job: Jobs) -> TrainingJob:
    return job("gpt3-2.7b", seq_len=2048, global_batch=64, precision="bf16")


@pytest.fixture(scope="module")
def place(cluster: Clusters) -> Cluster:
    return cluster("2x8 A100-80GB")


@pytest.fixture(scope="module")
def everything(task: TrainingJob, place: Cluster, constants: Constants) -> tuple[LayoutBatch, EstimateBatch]:
    """All legal layouts that fit, scored in one piece."""
    whole = space(task, place)
    batch = whole.rows(0, len(whole))
    ok = np.ones(len(batch), bool)
    for violated in legal(task, place, batch).values():
        ok &= ~violated
    batch = batch.take(ok)
    batch = batch.take(memory_peak_bytes(task, place, batch, constants) <= budget_bytes(place, constants))
    return batch, evaluate(task, place, batch, constants)


def found_layouts(found: Found) -> list[dict[str, Any]]:
    batch = found.space.at(found.best.row)
    return [batch.row(i).model_dump() for i in range(len(batch))]


def test_the_best_is_that_of_a_full_sort(
    task: TrainingJob, place: Cluster, constants: Constants, everything: tuple[LayoutBatch, EstimateBatch]
) -> None:
    layouts, estimates = everything
    found = search(task, place, constants, top=5)
    assert found.searched == len(layouts)
    roomy = np.flatnonzero(estimates.fits == 2)
    expected: list[float] = []
    least: dict[tuple[int, ...], float] = {}
    for i in roomy[np.lexsort((estimates.peak_reserved_bytes[roomy], estimates.step_time_s[roomy]))]:
        family = (int(layouts.dp[i]), int(layouts.tp[i]), int(layouts.pp[i]), int(layouts.micro_batch[i]))
        peak = float(estimates.peak_reserved_bytes[i])
        # A slower layout of the same degrees and micro-batch is an alternative only where it saves memory.
        if peak <= 0.98 * least.get(family, np.inf):
            expected.append(float(estimates.step_time_s[i]))
            least[family] = peak
    assert found.best.step_time_s == pytest.approx(expected[:5], rel=1e-9)


def test_every_row_is_counted_once(task: TrainingJob, place: Cluster, constants: Constants) -> None:
    found = search(task, place, constants)
    assert found.searched + sum(found.rejected.values()) == len(found.space) + sum(found.space.rejected.values())
    assert found.rejected.get(MEMORY_RULE, 0) > 0


def test_chunks_do_not_matter(task: TrainingJob, place: Cluster, constants: Constants) -> None:
    one, many = search(task, place, constants), search(task, place, constants, chunk_rows=1_000)
    assert found_layouts(one) == found_layouts(many)
    assert one.pareto.row.tolist() == many.pareto.row.tolist()
    assert (one.searched, dict(one.rejected)) == (many.searched, dict(many.rejected))


def test_none_of_the_front_is_beaten(
    task: TrainingJob, place: Cluster, constants: Constants, everything: tuple[LayoutBatch, EstimateBatch]
) -> None:
    _layouts, estimates = everything
    found = search(task, place, constants)
    for time, peak in zip(found.pareto.step_time_s, found.pareto.peak_bytes, strict=True):
        faster_and_smaller = (estimates.step_time_s < time) & (estimates.peak_reserved_bytes < peak)
        assert not faster_and_smaller.any()
    assert found.pareto.step_time_s[0] == pytest.approx(estimates.step_time_s.min())


def test_ctrl_c_returns_the_best_so_far(task: TrainingJob, place: Cluster, constants: Constants) -> None:
    seen: list[Progress] = []

    def stop_at_second(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == 2:
            raise KeyboardInterrupt

    found = search(task, place, constants, on_progress=stop_at_second, chunk_rows=1_000)
    assert found.interrupted
    assert len(found.best)
    assert found.searched + sum(found.rejected.values()) == 2_000 + sum(found.space.rejected.values())
    assert seen[-1].visited == 2_000
    assert seen[-1].total == len(found.space)
    assert seen[-1].best_step_time_s == pytest.approx(float(found.best.step_time_s[0]))
    assert seen[-1].remaining_s is not None
    assert seen[-1].remaining_s > 0


def test_less_memory_never_helps(task: TrainingJob, place: Cluster, constants: Constants) -> None:
    wide, narrow = search(task, place, constants), search(task, place, constants, max_memory_bytes=20 * 2**30)
    assert narrow.searched < wide.searched
    assert narrow.best.step_time_s[0] >= wide.best.step_time_s[0]
    assert (narrow.best.peak_bytes <= 20 * 2**30).all()
    # More than the GPU has is not granted.
    assert search(task, place, constants, max_memory_bytes=1e13).searched == wide.searched


def test_nothing_fits_names_the_nearest(job: Jobs, cluster: Clusters, constants: Constants) -> None:
    task, place = job("gpt3-175b", seq_len=2048, global_batch=8), cluster()
    found = search(task, place, constants)
    assert len(found.best) == 0
    assert found.searched == 0
    assert found.nearest_row is not None
    # 175e9 parameters on 8 GPUs: 2 + 4 bytes of weights and gradients alone, as eighth, are above 80 GiB.
    assert found.nearest_peak_bytes > 175e9 * 6 / 8
    batch = found.space.rows(0, len(found.space))
    ok = ~np.any(list(legal(task, place, batch).values()), axis=0)
    peaks = memory_peak_bytes(task, place, batch.take(ok), constants)
    assert found.nearest_peak_bytes == pytest.approx(float(peaks.min()))


def test_the_first_incumbent_is_early_and_good(job: Jobs, cluster: Clusters, constants: Constants) -> None:
    """The small chunk scored first already holds an answer near the best of a large space."""
    task, place = job("gpt3-175b", seq_len=2048, global_batch=1536), cluster("128x8 A100-80GB")
    whole = space(task, place)
    batch = whole.at(whole.promising(1024))
    ok = ~np.any(list(legal(task, place, batch).values()), axis=0)
    batch = batch.take(ok)
    batch = batch.take(memory_peak_bytes(task, place, batch, constants) <= budget_bytes(place, constants))
    first = float(evaluate(task, place, batch, constants).step_time_s.min())
    found = search(task, place, constants, chunk_rows=2048)
    assert found.first_incumbent_s is not None
    assert found.first_incumbent_s < found.elapsed_s / 2
    assert first < 1.25 * found.best.step_time_s[0]


def test_the_same_question_has_the_same_answer(task: TrainingJob, place: Cluster, constants: Constants) -> None:
    assert found_layouts(search(task, place, constants)) == found_layouts(search(task, place, constants))


def test_rows_of_a_large_space_equal_single_estimates(job: Jobs, cluster: Clusters, constants: Constants) -> None:
    """Tables shared by many rows give each row what it gets alone."""
    task, place = job("gpt3-175b", seq_len=2048, global_batch=1536), cluster("128x8 A100-80GB")
    whole = space(task, place)
    batch = whole.rows(0, len(whole))
    scores = score(task, place, batch, constants, budget_bytes(place, constants))
    rng = np.random.default_rng(5)
    for i in rng.choice(np.flatnonzero(np.isfinite(scores.step_time_s)), 150, replace=False):
        alone = evaluate(task, place, LayoutBatch.of([batch.row(int(i))]), constants)
        assert scores.step_time_s[i] == pytest.approx(float(alone.step_time_s[0]), rel=1e-9)
        assert scores.peak_allocated_bytes[i] == pytest.approx(float(alone.peak_allocated_bytes[0]), rel=1e-12)
        assert scores.peak_reserved_bytes[i] == pytest.approx(float(alone.peak_reserved_bytes[0]), rel=1e-12)


def test_the_smallest_is_that_of_a_full_sort(
    task: TrainingJob, place: Cluster, constants: Constants, everything: tuple[LayoutBatch, EstimateBatch]
) -> None:
    _layouts, estimates = everything
    found = search(task, place, constants, objective="memory")
    assert found.best.peak_bytes[0] == pytest.approx(estimates.peak_reserved_bytes.min())
    assert (np.diff(found.best.peak_bytes) >= 0).all()
    # With a limit on the step the smallest of those that keep it; the front does not care.
    limit_s = float(np.quantile(estimates.step_time_s, 0.05))
    soon = search(task, place, constants, objective="memory", max_step_time_s=limit_s)
    kept = estimates.step_time_s <= limit_s
    assert soon.best.peak_bytes[0] == pytest.approx(estimates.peak_reserved_bytes[kept].min())
    assert (soon.best.step_time_s <= limit_s).all()
    assert soon.pareto.row.tolist() == found.pareto.row.tolist()


@pytest.mark.parametrize("chunk_rows", [1_000, 131_072])
def test_the_most_frugal_is_that_of_a_full_sort(
    task: TrainingJob,
    place: Cluster,
    constants: Constants,
    everything: tuple[LayoutBatch, EstimateBatch],
    chunk_rows: int,
) -> None:
    _layouts, estimates = everything
    power_w = mean_power_w(estimates.breakdown_s, estimates.step_time_s, place, 1.0, constants)
    energy_j = np.where(estimates.fits == 2, power_w * estimates.step_time_s, np.inf)
    found = search(task, place, constants, objective="energy", chunk_rows=chunk_rows)
    assert found.best.step_energy_j[0] == pytest.approx(energy_j.min())
    assert (np.diff(found.best.step_energy_j) >= 0).all()
    assert found.searched == len(estimates)


def test_where_none_is_soon_enough_the_fastest_is_told(
    task: TrainingJob, place: Cluster, constants: Constants, everything: tuple[LayoutBatch, EstimateBatch]
) -> None:
    found = search(task, place, constants, objective="memory", max_step_time_s=1e-3)
    assert found.best.step_time_s.tolist() == pytest.approx([everything[1].step_time_s.min()])


def test_cost_follows_time(task: TrainingJob, place: Cluster, constants: Constants) -> None:
    cheapest, fastest = (search(task, place, constants, objective=name) for name in ("cost", "time"))
    assert found_layouts(cheapest) == found_layouts(fastest)
