"""Layouts on the terminal: a table of candidates and what they share."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from meshwright.cli import numbers
from meshwright.cli.labels import FITS, label
from meshwright.i18n import _
from meshwright.specs.estimate import Estimate
from meshwright.specs.layout import Layout

#: Always shown; the other columns of a layout only where a candidate leaves their usual value.
BASE = ("dp", "tp", "pp", "micro_batch")
USUAL = {
    name: getattr(Layout(zero_stage=0), name)
    for name in (
        "cp", "cp_kind", "ep", "etp", "dispatcher", "sp", "vpp", "schedule", "zero_stage", "reshard_after_forward",
        "dp_replicate", "recompute", "offload_optimizer", "offload_parameters", "stage_split", "rank_order",
    )
}  # fmt: skip
#: Narrow headers; `mw explain NAME` knows the full ones.
HEADERS = {
    "micro_batch": "mb",
    "dp_replicate": "repl",
    "reshard_after_forward": "reshard",
    "offload_optimizer": "off.opt",
    "offload_parameters": "off.par",
    "dispatcher": "dispatch",
    "cp_kind": "cp by",
    "zero_stage": "zero",
    "recompute": "recomp",
    "stage_split": "split",
    "rank_order": "order",
}


def _value(layout: Layout, name: str) -> str:
    value = getattr(layout, name)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unusual(layouts: Sequence[Layout]) -> list[str]:
    return [name for name in USUAL if any(getattr(layout, name) != USUAL[name] for layout in layouts)]


def _varying(layouts: Sequence[Layout]) -> list[str]:
    varying = [name for name in USUAL if not _alike(layouts, name)]
    # Of the two usual schedules vpp says which.
    if {layout.schedule for layout in layouts} <= {"1f1b", "interleaved"} and "schedule" in varying:
        varying.remove("schedule")
    return varying


def _alike(layouts: Sequence[Layout], name: str) -> bool:
    return len({getattr(layout, name) for layout in layouts}) == 1


def in_common(layouts: Sequence[Layout]) -> str:
    """The unusual columns in which all ``layouts`` agree, as text; empty where there are none."""
    names = [name for name in USUAL if _alike(layouts, name) and getattr(layouts[0], name) != USUAL[name]]
    return " ".join(f"{name}={_value(layouts[0], name)}" for name in names)


def layout_table(estimates: Sequence[Estimate], chosen: int | None, extra: Sequence[str]) -> Table:
    """One row a candidate, with the columns ``extra`` of its layout beside the base ones.

    The unit stands in the header, so that a column compares at a glance.
    """
    table = Table(box=None, padding=(0, 2 if len(extra) <= 2 else 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("#\n", justify="right")
    for name in (*BASE, *extra):
        table.add_column(
            f"{HEADERS.get(name, name)}\n", justify="left" if name in ("stage_split", "recompute") else "right"
        )
    unit = numbers.seconds_unit(estimate.step_time_s for estimate in estimates)
    # A header is two lines: what it is, then its unit.
    for header in (
        _("step") + f"\n{unit[1]}",
        _("80%") + f"\n{unit[1]}",
        _("tokens/s\nper GPU"),
        _("MFU") + "\n%",
        _("memory") + "\nGiB",
    ):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column(_("fits") + "\n", no_wrap=True)
    for index, estimate in enumerate(estimates):
        cells = [str(index + 1), *(_value(estimate.layout, name) for name in BASE)]
        cells += [_short(_value(estimate.layout, name)) for name in extra]
        table.add_row(*cells, *_measures(estimate, unit[0]), style="bold" if index == chosen else "")
    return table


def _measures(estimate: Estimate, unit_s: float) -> list[str]:
    low_s, high_s = estimate.step_time_interval_s
    return [
        numbers.digits(estimate.step_time_s / unit_s),
        f"{numbers.digits(low_s / unit_s)}-{numbers.digits(high_s / unit_s)}",
        numbers.digits(estimate.tokens_per_s_per_gpu),
        numbers.percent(estimate.mfu_ratio, 1),
        numbers.gib(estimate.memory.peak_reserved_bytes),
        label(FITS, estimate.memory.fits),
    ]


def _short(value: str) -> str:
    # Every rank order starts with tp, and there is little room.
    short = {"true": "yes", "false": "-", "none": "-", "selective": "select"}
    return short.get(value, value.removeprefix("tp-"))


def print_layouts(console: Console, estimates: Sequence[Estimate], chosen: int | None, *, wide: bool) -> None:
    """The table and, below it, what all candidates share and what has no room in the table.

    Columns beyond the base ones: those that differ among the candidates; ``wide``, all that leave their usual value.
    """
    layouts = [estimate.layout for estimate in estimates]
    extra = _unusual(layouts) if wide else _varying(layouts)
    left_out: list[str] = []
    # Measured on an endless line, as a table never measures more than its line.
    endless = console.options.update(width=10_000)
    while extra and console.measure(layout_table(estimates, chosen, extra), options=endless).maximum > console.width:
        left_out.append(max(extra, key=lambda name: max(len(_value(layout, name)) for layout in layouts)))
        extra.remove(left_out[-1])
    console.print(layout_table(estimates, chosen, extra))
    for index, layout in enumerate(layouts):
        unusual = [f"{name}={_value(layout, name)}" for name in left_out if getattr(layout, name) != USUAL[name]]
        if unusual:
            console.print(" ".join((f"#{index + 1}:", *unusual)))
    shared = "" if wide else in_common(layouts)
    if shared:
        console.print(_("All of them: {columns}").format(columns=shared), style="dim")
