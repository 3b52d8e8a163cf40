"""Figures hold the numbers of the nouns they are drawn from."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from meshwright.report import figures
from meshwright.specs.estimate import BREAKDOWN_TERMS, MEMORY_CLASSES
from meshwright.specs.plan import Plan
from meshwright.verbs.report import drawn

GIB = 2.0**30
#: Colours as people without green or red cones see them, in linear RGB: Machado, Oliveira and Fernandes 2009, table 1.
VISIONS = {
    "usual": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}


def test_a_step_adds_up_in_its_bar(large: Plan) -> None:
    figure = figures.step_breakdown(large.layouts, ["a", "b", "c", "d", "e"])
    for index, estimate in enumerate(large.layouts):
        bars = [bar.x[index] for bar in figure.data]
        assert bars == [
            estimate.breakdown_s[t] for t in BREAKDOWN_TERMS if any(e.breakdown_s[t] for e in large.layouts)
        ]
        assert sum(bars) == pytest.approx(estimate.step_time_s)
        assert sum(bar.customdata[index] for bar in figure.data) == pytest.approx(1.0)


def test_short_steps_are_drawn_in_milliseconds(single: Plan) -> None:
    figure = figures.step_breakdown(single.layouts[:1], [""])
    assert sum(bar.x[0] for bar in figure.data) == pytest.approx(1e3 * single.layouts[0].step_time_s)
    assert "(ms)" in figure.layout.xaxis.title.text


def test_memory_of_the_worst_rank_is_the_estimate_s(large: Plan) -> None:
    memory = large.layouts[large.chosen].memory
    shown = drawn(large)
    assert shown is not None
    figure = figures.memory_by_rank(shown.memory.by, shown.memory.reserved_bytes, memory.capacity_bytes)
    bars = {bar.marker.color: np.array(bar.x) * GIB for bar in figure.data}
    for name in MEMORY_CLASSES:
        if any(shown.memory.by[name]):
            worst = bars[figures.MEMORY_COLOURS[name]][memory.worst_pipeline_rank]
            assert worst == pytest.approx(memory.by[name])
    total = np.sum(list(bars.values()), axis=0)
    assert len(total) == large.layouts[large.chosen].layout.pp
    assert total.max() == pytest.approx(memory.peak_reserved_bytes)
    assert total.argmax() == memory.worst_pipeline_rank


def test_the_front_is_drawn_by_memory_with_the_chosen_marked(large: Plan) -> None:
    chosen = large.layouts[large.chosen]
    front, mark = figures.time_against_memory(large.pareto, chosen).data
    assert sorted(front.y, reverse=True) == list(front.y)
    assert sorted(front.x) == list(front.x)
    assert set(front.y) == {estimate.step_time_s for estimate in large.pareto}
    assert (mark.x[0] * GIB, mark.y[0]) == (pytest.approx(chosen.memory.peak_reserved_bytes), chosen.step_time_s)
    assert all(f"tp={e.layout.tp} " in text for e, text in zip(reversed(large.pareto), front.customdata, strict=True))


def test_a_scaling_curve_counts_all_gpus(large: Plan) -> None:
    ideal, curve = figures.scaling([1024, 2048], large.layouts[:2]).data
    rates = [e.tokens_per_s_per_gpu for e in large.layouts[:2]]
    assert list(curve.y) == [1024 * rates[0], 2048 * rates[1]]
    assert list(ideal.y) == [1024 * rates[0], 2048 * rates[0]]


def test_the_timeline_shows_every_task_of_the_step(large: Plan) -> None:
    shown = drawn(large)
    assert shown is not None
    assert shown.timeline is not None
    layout = shown.layout
    step_s = shown.timeline.extent_ns() / 1e9
    figure = figures.step_timeline(shown.timeline, 0.0, step_s)
    by_name = {bar.name: bar for bar in figure.data}
    micro_batches = 2048 // (layout.dp * layout.micro_batch)
    for name in ("forward compute", "backward compute"):
        assert len(by_name[name].x) == layout.pp * layout.vpp * micro_batches
        assert set(by_name[name].y) == set(range(layout.pp))
    ends = [start + length for bar in figure.data for start, length in zip(bar.base, bar.x, strict=True)]
    assert max(ends) == pytest.approx(step_s, abs=2e-9)
    # No rank computes two things at once.
    for rank in range(layout.pp):
        spans = sorted(
            (start, start + length)
            for name in ("forward compute", "backward compute")
            for row, start, length in zip(by_name[name].y, by_name[name].base, by_name[name].x, strict=True)
            if row == rank
        )
        assert all(end <= start + 2e-9 for (_s, end), (start, _e) in itertools.pairwise(spans))


def test_a_window_of_the_timeline_holds_what_overlaps_it(large: Plan) -> None:
    shown = drawn(large)
    assert shown is not None
    assert shown.timeline is not None
    figure = figures.step_timeline(shown.timeline, 1.0, 1.5)
    spans = [(start, start + length) for bar in figure.data for start, length in zip(bar.base, bar.x, strict=True)]
    assert spans
    assert all(start < 1.5 and end > 1.0 for start, end in spans)
    assert tuple(figure.layout.xaxis.range) == (1.0, 1.5)


def _lab(colour: str, vision: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    srgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(vision @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    t = xyz / np.array([0.9505, 1.0, 1.089])
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize(
    ("colours", "order"),
    [(figures.TERM_COLOURS, BREAKDOWN_TERMS), (figures.MEMORY_COLOURS, (*MEMORY_CLASSES, "reserve"))],
    ids=["terms", "memory"],
)
def test_colours_side_by_side_differ_for_every_vision(
    colours: dict[str, str], order: tuple[str, ...], vision: str
) -> None:
    """A difference of 10 in CIELAB is plain to see on neighbouring areas; two between them may be of no length."""
    labs = [_lab(colours[name], VISIONS[vision]) for name in order]
    near = [
        (order[i], order[j])
        for i, j in itertools.combinations(range(len(order)), 2)
        if j - i <= 3 and np.linalg.norm(labs[i] - labs[j]) < 10
    ]
    assert near == []
