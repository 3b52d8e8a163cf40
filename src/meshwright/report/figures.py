"""Figures: pure functions of nouns to plotly figures, without colours of the page (``page.js`` adds those).

Colours of data are told apart by people with any colour vision: the three families of a step (work, communication,
waiting) differ in hue (blue, orange to red, grey), their members in lightness, and neighbours are parted by a gap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from meshwright.cli import numbers
from meshwright.cli.labels import MEMORY, TERMS, label
from meshwright.i18n import _
from meshwright.specs.estimate import BREAKDOWN_TERMS, MEMORY_CLASSES, Estimate
from meshwright.specs.timeline import Timeline
from meshwright.verbs.command import layout_text

#: A step's terms: work blue, violet and green, communication orange to red, waiting grey to brown.
TERM_COLOURS = {
    "forward": "#74b3e8",
    "backward": "#2d7dc4",
    "recompute": "#6a4fc0",
    "optimizer": "#2aa583",
    "tp_comm": "#f0a830",
    "cp_comm": "#f6c66a",
    "ep_comm": "#b8437a",
    "pp_comm": "#e2703a",
    "dp_comm": "#c8402f",
    "bubble": "#98a2ad",
    "launch": "#c7b68d",
    "contention": "#a98f5a",
    "data": "#8b6f9e",
    "checkpoint": "#6d7683",
    "straggler": "#bcc3ca",
}
MEMORY_COLOURS = {
    "weights": "#2d7dc4",
    "gradients": "#74b3e8",
    "optimizer": "#2aa583",
    "activations": "#f0a830",
    "logits": "#c8402f",
    "gather": "#e2703a",
    "buffers": "#8f8bdc",
    "context": "#98a2ad",
    "reserve": "#c3c9d0",
}
ACCENT, IDEAL, LIMIT = "#2d7dc4", "#98a2ad", "#c8402f"
BAR_PIXELS = 34
#: More tasks of a rank than these stand side by side without a gap.
MOST_FRAMED = 160
#: One rank of the timeline is between these heights; all of them together are near the third.
LANE_PIXELS, LEAST_LANE_PIXELS, LANES_PIXELS = 26, 11, 460


def step_breakdown(estimates: Sequence[Estimate], names: Sequence[str]) -> go.Figure:
    """Where the step of each estimate goes: one stacked bar each, in the order of a step, under its name."""
    factor, unit = numbers.seconds_unit(estimate.step_time_s for estimate in estimates)
    figure = go.Figure()
    for term in BREAKDOWN_TERMS:
        values_s = [estimate.breakdown_s.get(term, 0.0) for estimate in estimates]
        if not any(values_s):
            continue
        shares = [value / estimate.step_time_s for value, estimate in zip(values_s, estimates, strict=True)]
        figure.add_bar(
            name=label(TERMS, term),
            y=list(names),
            x=[value / factor for value in values_s],
            orientation="h",
            marker_color=TERM_COLOURS[term],
            customdata=shares,
            hovertemplate=f"{label(TERMS, term)}<br>%{{x:.4g}} {unit} (%{{customdata:.1%}})<extra></extra>",
        )
    figure.update_layout(barmode="stack", height=BAR_PIXELS * len(names) + 62, bargap=0.25)
    figure.update_xaxes(title_text=_("step time ({unit})").format(unit=unit))
    figure.update_yaxes(autorange="reversed", showgrid=False, visible=len(names) > 1, type="category")
    return _still(figure)


def memory_by_rank(
    by: Mapping[str, Sequence[float]], reserved_bytes: Sequence[float], capacity_bytes: float
) -> go.Figure:
    """Memory of every pipeline rank at its peak by class, the allocator's reserve last; a line where a GPU is full."""
    allocated = np.sum([by[name] for name in MEMORY_CLASSES], axis=0)
    parts = {name: np.asarray(by[name]) for name in MEMORY_CLASSES} | {
        "reserve": np.asarray(reserved_bytes) - allocated
    }
    ranks = [str(rank) for rank in range(len(reserved_bytes))]
    figure = go.Figure()
    for name, values in parts.items():
        if values.any():
            figure.add_bar(
                name=label(MEMORY, name),
                y=ranks,
                x=(values / numbers.GIB).tolist(),
                orientation="h",
                marker_color=MEMORY_COLOURS[name],
                hovertemplate=_("rank {rank}: {what} {size} GiB").format(
                    rank="%{y}", what=label(MEMORY, name), size="%{x:.4g}"
                )
                + "<extra></extra>",
            )
    capacity = capacity_bytes / numbers.GIB
    figure.add_vline(x=capacity, line_color=LIMIT, line_width=2)
    figure.add_annotation(
        x=capacity, y=1, yref="paper", yanchor="bottom", xanchor="right", showarrow=False, text=_full_at(capacity)
    )
    pixels = _lane_pixels(len(ranks), BAR_PIXELS)
    figure.update_layout(barmode="stack", height=pixels * len(ranks) + 84, margin_t=26, bargap=0.2)
    figure.update_xaxes(title_text=_("memory of one GPU (GiB)"), rangemode="tozero")
    figure.update_yaxes(title_text=_lane_title(len(ranks)), autorange="reversed", showgrid=False, type="category")
    return _still(figure)


def _full_at(capacity_gib: float) -> str:
    return _("full at {capacity} GiB").format(capacity=numbers.digits(capacity_gib))


def _lane_pixels(n_lanes: int, most: int) -> int:
    return max(LEAST_LANE_PIXELS, min(most, LANES_PIXELS // n_lanes))


def _lane_title(n_ranks: int) -> str | None:
    # One lane is too low for a title beside it.
    return _("pipeline rank") if n_ranks > 2 else None


def time_against_memory(front: Sequence[Estimate], chosen: Estimate) -> go.Figure:
    """The Pareto front: step time over reserved memory; pointing at a layout names it. ``chosen`` is marked."""
    factor, unit = numbers.seconds_unit(estimate.step_time_s for estimate in (*front, chosen))
    ordered = sorted(front, key=lambda estimate: estimate.memory.peak_reserved_bytes)
    times = [estimate.step_time_s / factor for estimate in (*front, chosen)]
    figure = go.Figure()
    for points, mode, marker, size in ((ordered, "lines+markers", "circle", 7), ([chosen], "markers", "diamond", 13)):
        figure.add_scatter(
            x=[estimate.memory.peak_reserved_bytes / numbers.GIB for estimate in points],
            y=[estimate.step_time_s / factor for estimate in points],
            mode=mode,
            line={"shape": "hv", "color": ACCENT, "width": 1.5},
            marker={"symbol": marker, "size": size, "color": ACCENT if size == 7 else TERM_COLOURS["pp_comm"]},
            customdata=[_in_lines(layout_text(estimate.layout)) for estimate in points],
            hovertemplate=f"%{{y:.4g}} {unit}, %{{x:.4g}} GiB<br>%{{customdata}}<extra></extra>",
        )
    figure.add_annotation(
        x=figure.data[1].x[0],
        y=math.log10(figure.data[1].y[0]),
        text=_("chosen"),
        ax=0,
        ay=-26,
        arrowhead=0,
        arrowwidth=1,
    )
    figure.update_layout(height=340)
    figure.update_xaxes(title_text=_("reserved memory of the fullest GPU (GiB)"))
    figure.update_yaxes(title_text=_("step time ({unit})").format(unit=unit), type="log", **_log_ticks(times))
    return _still(figure)


def _log_ticks(values: Sequence[float]) -> dict[str, list[Any]]:
    """Ticks at 1, 2 and 5 times the powers of ten around ``values``, written in full."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    ticks = [mantissa * 10.0**power for power in range(low, high + 1) for mantissa in (1, 2, 5)]
    return {"tickvals": ticks, "ticktext": [f"{tick:,.6g}" if tick < 1e6 else f"{tick / 1e6:,.4g} M" for tick in ticks]}


def _in_lines(layout: str, per_line: int = 5) -> str:
    words = layout.split(",")
    return "<br>".join(" ".join(words[i : i + per_line]) for i in range(0, len(words), per_line))


def scaling(n_gpus: Sequence[int], estimates: Sequence[Estimate]) -> go.Figure:
    """Tokens a second of the whole cluster over its GPUs, both logarithmic, with the line of no loss at the first."""
    rates = [count * estimate.tokens_per_s_per_gpu for count, estimate in zip(n_gpus, estimates, strict=True)]
    figure = go.Figure()
    figure.add_scatter(
        name=_("no loss"),
        x=list(n_gpus),
        y=[estimates[0].tokens_per_s_per_gpu * count for count in n_gpus],
        mode="lines",
        line={"color": IDEAL, "width": 1.5, "dash": "dash"},
        hoverinfo="skip",
    )
    figure.add_scatter(
        name=_("predicted"),
        x=list(n_gpus),
        y=rates,
        mode="lines+markers",
        line={"color": ACCENT, "width": 2},
        customdata=[
            [estimate.tokens_per_s_per_gpu / estimates[0].tokens_per_s_per_gpu, _in_lines(layout_text(estimate.layout))]
            for estimate in estimates
        ],
        hovertemplate=_("{n_gpus} GPUs: {rate} tokens/s, {efficiency} of no loss").format(
            n_gpus="%{x:,}", rate="%{y:,.3s}", efficiency="%{customdata[0]:.1%}"
        )
        + "<br>%{customdata[1]}<extra></extra>",
    )
    figure.update_layout(height=340)
    figure.update_xaxes(title_text=_("GPUs"), type="log", tickvals=list(n_gpus), ticktext=[f"{n:,}" for n in n_gpus])
    figure.update_yaxes(title_text=_("tokens/s, all GPUs"), type="log", **_log_ticks(rates))
    return _still(figure)


def step_timeline(timeline: Timeline, begin_s: float, end_s: float) -> go.Figure:
    """One step between ``begin_s`` and ``end_s``, a lane for each pipeline rank; sends between ranks are left out."""
    span = work_spans(timeline)
    start_s, length_s = timeline.start_ns[span] / 1e9, timeline.duration_ns[span] / 1e9
    shown = (start_s < end_s) & (start_s + length_s > begin_s)
    span, start_s, length_s = span[shown], start_s[shown], length_s[shown]
    factor, unit = numbers.seconds_unit([timeline.extent_ns() / 1e9])
    terms = _column(timeline, "term", "")[span]
    micro_batches, chunks = _column(timeline, "micro batch", -1)[span], _column(timeline, "chunk", -1)[span]
    n_ranks = 1 + max(lane.process for lane in timeline.lanes)
    process = np.array([lane.process for lane in timeline.lanes])[timeline.lane[span]]
    figure = go.Figure()
    for term in BREAKDOWN_TERMS:
        own = terms == term
        if not own.any():
            continue
        many_chunks = chunks[own].max() > 0
        # Chunks of an interleaved rank are shades of one colour: forwards lighter, backwards darker than the key's.
        colour: dict[str, Any] = {"color": TERM_COLOURS[term]}
        if many_chunks:
            light, dark = (1.0, 0.66) if term == "backward" else (1.9, 1.0)
            shades = [[0.0, _mixed(TERM_COLOURS[term], light)], [1.0, _mixed(TERM_COLOURS[term], dark)]]
            colour = {"color": chunks[own].tolist(), "colorscale": shades, "cmin": 0, "cmax": int(chunks[own].max())}
        detail = ""
        if micro_batches[own].max() >= 0:
            detail = _(", micro-batch {number}").format(number="%{customdata[0]}")
        if many_chunks:
            detail += _(", chunk {number}").format(number="%{customdata[1]}")
        figure.add_bar(
            name=label(TERMS, term),
            y=process[own].tolist(),
            base=np.round(start_s[own] / factor, 9).tolist(),
            x=np.round(length_s[own] / factor, 9).tolist(),
            orientation="h",
            marker=colour | {"line": {"width": 0.5 if len(span) <= MOST_FRAMED * n_ranks else 0}},
            customdata=[
                [int(micro_batch), int(chunk), numbers.step(length)]
                for micro_batch, chunk, length in zip(micro_batches[own], chunks[own], length_s[own], strict=True)
            ],
            hovertemplate=_("rank {rank}: {what}").format(rank="%{y}", what=label(TERMS, term))
            + f"{detail}<br>"
            + _("from {start}, takes {length}").format(start=f"%{{base:.5g}} {unit}", length="%{customdata[2]}")
            + "<extra></extra>",
        )
    figure.update_layout(
        barmode="overlay", bargap=0.12, height=_lane_pixels(n_ranks, LANE_PIXELS) * n_ranks + 62, meta={"idle": True}
    )
    figure.update_xaxes(
        title_text=_("time in the step ({unit})").format(unit=unit),
        range=[begin_s / factor, end_s / factor],
        showgrid=False,
    )
    figure.update_yaxes(
        title_text=_lane_title(n_ranks),
        range=[n_ranks - 0.5, -0.5],
        showgrid=False,
        tickformat="d",
        nticks=min(9, n_ranks),
    )
    figure.update_yaxes(fixedrange=True)
    return figure


def work_spans(timeline: Timeline) -> Any:
    """Numbers of the spans that a lane of ``step_timeline`` may show: all but the step's own marks and the sends."""
    kinds = np.array([lane.kind != "step" for lane in timeline.lanes])
    work = kinds[timeline.lane]
    if sends := timeline.arguments.get("Dst Rank"):
        work[sends.span] = False
    return np.flatnonzero(work)


def terms_drawn(timeline: Timeline) -> set[str]:
    """The terms that ``step_timeline`` has colours for somewhere in the step."""
    return set(_column(timeline, "term", "")[work_spans(timeline)].tolist())


def _column(timeline: Timeline, name: str, default: Any) -> Any:
    """An argument as a column over all spans; ``default`` where a span lacks it."""
    argument = timeline.arguments.get(name)
    column = np.full(len(timeline), default, object if isinstance(default, str) else np.int64)
    if argument is not None:
        column[argument.span] = argument.value
    return column


def _mixed(colour: str, light: float) -> str:
    """The colour lighter (``light`` above one: towards white) or darker."""
    channels = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    mixed = [255 - (255 - c) / light if light > 1 else c * light for c in channels]
    return "#" + "".join(f"{round(c):02x}" for c in mixed)


def _still(figure: go.Figure) -> go.Figure:
    """No zooming by dragging, which would catch the finger that scrolls the page."""
    figure.update_layout(dragmode=False)
    return figure
