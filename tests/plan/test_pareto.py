"""The running memory of a search against sorting everything at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costmodel.step import Scores
from meshwright.plan.pareto import Best, Front, tradeoffs
from meshwright.specs.layout import COLUMNS, LayoutBatch


def batch(
    time: list[float], peak: list[float], micro_batch: list[int] | None = None, recompute: list[int] | None = None
) -> tuple[LayoutBatch, Scores]:
    n = len(time)
    off = ("sp", "zero_stage", "schedule", "stage_split", "rank_order", "recompute")
    columns = {name: np.full(n, name not in off, np.int32) for name in COLUMNS}
    columns["micro_batch"] = np.array(micro_batch or range(1, n + 1), np.int32)
    if recompute:
        columns["recompute"] = np.array(recompute, np.int32)
    return LayoutBatch(**columns), Scores(np.array(time, float), np.array(peak, float), np.array(peak, float))


POINTS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60)


@given(POINTS, st.integers(1, 60))
def test_the_front_is_that_of_all_points(points: list[tuple[int, int]], cut: int) -> None:
    time, peak = [float(t) for t, _ in points], [float(p) for _, p in points]
    layouts, scores = batch(time, peak)
    front = Front()
    rows = np.arange(len(points), dtype=np.int64)
    for start in range(0, len(points), cut):
        part = slice(start, start + cut)
        front.offer(rows[part], layouts.take(part), _take(scores, part), np.ones(len(rows[part]), bool))
    expected = {(t, p) for t, p in points if not any((a <= t and b <= p) and (a, b) != (t, p) for a, b in points)}
    assert list(zip(front.found.step_time_s, front.found.peak_bytes, strict=True)) == sorted(expected)


@given(POINTS, st.integers(1, 60), st.integers(1, 8))
def test_the_best_are_those_of_a_full_sort(points: list[tuple[int, int]], cut: int, size: int) -> None:
    time, peak = [float(t) for t, _ in points], [float(p) for _, p in points]
    layouts, scores = batch(time, peak)
    best = Best(size)
    rows = np.arange(len(points), dtype=np.int64)
    for start in range(0, len(points), cut):
        part = slice(start, start + cut)
        one = _take(scores, part)
        best.offer(rows[part], layouts.take(part), one, np.ones(len(one.step_time_s), bool))
    # All rows differ in micro_batch, so none is a twin; ties go to the smaller peak, then the first row.
    expected = sorted(zip(time, peak, rows.tolist(), strict=True))[:size]
    assert best.found.row.tolist() == [row for _, _, row in expected]


def _take(scores: Scores, part: slice) -> Scores:
    return Scores(scores.step_time_s[part], scores.peak_allocated_bytes[part], scores.peak_reserved_bytes[part])


def test_a_switch_that_does_nothing_is_left_off() -> None:
    # Rows 0 and 1 differ only in recompute, equally long and large; row 2 is slower and smaller.
    layouts, scores = batch([1.0, 1.0, 2.0], [5.0, 5.0, 1.0], micro_batch=[1, 1, 1], recompute=[16, 0, 16])
    best = Best(5)
    best.offer(np.arange(3), layouts, scores, np.ones(3, bool))
    assert best.found.row.tolist() == [1, 2]


def test_variants_across_chunks_are_found() -> None:
    layouts, scores = batch([1.0, 1.0], [5.0, 4.0], micro_batch=[1, 1], recompute=[0, 16])
    best = Best(5)
    for i in (0, 1):
        best.offer(np.array([i]), layouts.take(slice(i, i + 1)), _take(scores, slice(i, i + 1)), np.ones(1, bool))
    assert best.found.row.tolist() == [1]


def test_a_slower_variant_is_shown_only_if_it_saves_memory() -> None:
    layouts, scores = batch([1.0, 1.1, 1.2], [100.0, 99.0, 80.0], micro_batch=[1, 1, 1], recompute=[0, 1, 16])
    best = Best(5)
    best.offer(np.arange(3), layouts, scores, np.ones(3, bool))
    assert best.found.row.tolist() == [0, 1, 2]
    assert best.shown(3).row.tolist() == [0, 2]


def test_many_variants_do_not_crowd_out_the_rest() -> None:
    """500 layouts of one family beat one of another; only the best of the family and the other remain."""
    layouts, scores = batch([1.0 + i / 1000 for i in range(500)] + [9.0], [5.0] * 501, [1] * 500 + [2])
    best = Best(2)
    best.offer(np.arange(501), layouts, scores, np.ones(501, bool))
    assert best.found.row.tolist() == [0, 500]


def test_a_row_offered_again_counts_once() -> None:
    layouts, scores = batch([1.0, 2.0], [5.0, 4.0])
    best, front = Best(5), Front()
    for _ in range(2):
        best.offer(np.arange(2), layouts, scores, np.ones(2, bool))
        front.offer(np.arange(2), layouts, scores, np.ones(2, bool))
    assert best.found.row.tolist() == [0, 1]
    assert front.found.row.tolist() == [0, 1]


def test_the_shown_front_steps_in_memory() -> None:
    layouts, scores = batch([1.0, 2.0, 3.0, 4.0], [100.0, 99.5, 98.9, 90.0])
    front = Front(saving_ratio=0.02)
    front.offer(np.arange(4), layouts, scores, np.ones(4, bool))
    assert front.found.row.tolist() == [0, 1, 2, 3]
    assert front.shown().row.tolist() == [0, 3]
    assert front.shown().peak_bytes == pytest.approx([100.0, 90.0])


@given(POINTS, st.integers(1, 60), st.integers(1, 8))
def test_the_smallest_are_those_of_a_full_sort(points: list[tuple[int, int]], cut: int, size: int) -> None:
    layouts, scores = batch([float(t) for t, _ in points], [float(p) for _, p in points])
    best = Best(size, "memory")
    rows = np.arange(len(points), dtype=np.int64)
    for start in range(0, len(points), cut):
        part = slice(start, start + cut)
        best.offer(rows[part], layouts.take(part), _take(scores, part), np.ones(len(rows[part]), bool))
    expected = sorted((peak, time, row) for row, (time, peak) in enumerate(points))[:size]
    assert best.found.row.tolist() == [row for _, _, row in expected]


def test_by_energy_a_worse_variant_must_save_memory() -> None:
    layouts, scores = batch([3.0, 2.0, 1.0], [100.0, 99.5, 50.0], micro_batch=[1, 1, 1], recompute=[0, 1, 16])
    best = Best(5, "energy")
    best.offer(np.arange(3), layouts, scores, np.ones(3, bool), np.array([10.0, 11.0, 12.0]))
    assert best.found.row.tolist() == [0, 1, 2]
    assert best.shown(3).row.tolist() == [0, 2]


def test_a_tradeoff_saves_memory_or_energy_against_all_faster_ones() -> None:
    time = np.array([1.0, 1.1, 1.2, 1.3, 1.4])
    memory = np.array([10.0, 10.0, 5.0, 6.0, 4.95])
    energy = np.array([100.0, 90.0, 95.0, 89.9, 50.0])
    # The fourth saves a tenth of a percent of energy only, the fifth half of it.
    assert tradeoffs(time, memory, energy).tolist() == [0, 1, 2, 4]
    assert tradeoffs(time, memory).tolist() == [0, 2]
