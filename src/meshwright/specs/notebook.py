"""What a notebook shows of a noun: a small table of plain HTML, without script, in the notebook's own colours."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from meshwright.i18n import _
from meshwright.specs.layout import Layout
from meshwright.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from meshwright.specs.estimate import Estimate

#: Columns of a layout that a row always names.
_ALWAYS = ("dp", "tp", "pp", "micro_batch")
_NUMBER = ' style="text-align:right"'


def estimates_html(title: str, estimates: Sequence[Estimate], chosen: int | None = None) -> str:
    """``title`` over one row for each estimate; the one of number ``chosen`` is bold. All text is escaped."""
    heads = (_("layout"), _("step"), _("80%"), _("tokens/s/GPU"), _("MFU"), _("memory"), _("fits"))
    rows = [_row([html.escape(name) for name in heads], "th")]
    rows += [_row(_cells(estimate, bold=index == chosen), "td") for index, estimate in enumerate(estimates)]
    return (f"<p>{html.escape(title)}</p>" if title else "") + (f"<table>{''.join(rows)}</table>" if estimates else "")


def title_of(model: Mapping[str, Any], cluster: Mapping[str, Any]) -> str:
    """What is trained where, out of a document's descriptions."""
    place = cluster.get("name") or cluster.get("text") or "?"
    return _("{model} on {cluster}").format(model=model.get("name", "?"), cluster=place)


def _cells(estimate: Estimate, *, bold: bool) -> list[str]:
    low_s, high_s = estimate.step_time_interval_s
    memory = estimate.memory
    texts = (
        _layout_text(estimate.layout),
        format_seconds(estimate.step_time_s),
        f"{format_seconds(low_s)} - {format_seconds(high_s)}",
        f"{estimate.tokens_per_s_per_gpu:,.0f}",
        f"{estimate.mfu_ratio:.1%}",
        _("{used} of {capacity}").format(
            used=format_bytes(memory.peak_reserved_bytes), capacity=format_bytes(memory.capacity_bytes)
        ),
        _(memory.fits),
    )
    cells = [html.escape(text) for text in texts]
    return [f"<b>{cell}</b>" for cell in cells] if bold else cells


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}{_NUMBER if i else ''}>{cell}</{tag}>" for i, cell in enumerate(cells)) + "</tr>"


def _layout_text(layout: Layout) -> str:
    usual = Layout(zero_stage=0)
    shown = [n for n in Layout.model_fields if n in _ALWAYS or getattr(layout, n) != getattr(usual, n)]
    return " ".join(f"{name}={getattr(layout, name)}" for name in shown)
