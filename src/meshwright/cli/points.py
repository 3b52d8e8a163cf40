"""Points of a curve or a comparison on the terminal: what their tables share."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from meshwright.cli import numbers
from meshwright.i18n import _
from meshwright.specs.layout import Layout
from meshwright.specs.scale import Point
from meshwright.units import format_duration
from meshwright.verbs.command import layout_text


def table(columns: Iterable[str]) -> Table:
    """A table of numbers; a header is two lines: what it is, then its unit."""
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for header in columns:
        grid.add_column(header, justify="right", no_wrap=True)
    return grid


#: Columns whose value stands right behind a short name, and those that a table has no room for.
_SHORT = {"dp": "dp", "tp": "tp", "cp": "cp", "ep": "ep", "pp": "pp", "vpp": "vpp", "micro_batch": "mb"}
_LEFT_OUT = ("zero_stage", "sp", "schedule", "rank_order", "stage_split", "dispatcher", "cp_kind")


def degrees(layout: Layout) -> str:
    """A layout in as few words as a table has room for: degrees, micro-batch, recompute."""
    said = dict(part.split("=", 1) for part in layout_text(layout).split(","))
    said["recompute"] = layout.recompute
    words = [f"{_SHORT[name]}{value}" for name, value in said.items() if name in _SHORT]
    others = [name for name in said if name not in (*_SHORT, *_LEFT_OUT, "recompute")]
    words += [f"{name}={said[name]}" for name in others]
    return " ".join(words if layout.recompute == "none" else [*words, f"re:{layout.recompute}"])


def training_time(each: Point) -> str:
    """How long the whole training takes in the median, failures counted; a dash where that is not known."""
    times = each.time_to_train_with_failures_s
    return "-" if times is None else format_duration(times["p50"])


def cost(each: Point) -> str:
    """What it costs in USD; a dash where no price is known."""
    return "-" if each.cost_usd is None else numbers.usd(each.cost_usd).removesuffix(" USD")


def print_prices(console: Console, points: Iterable[Point]) -> None:
    """Where the prices come from, one line each."""
    for name, each in {each.price["name"]: each for each in points if each.price is not None}.items():
        rate = numbers.digits(each.price["usd_per_gpu_hour"]) if each.price is not None else "-"
        console.print(_("Price: {rate} USD a GPU-hour, {name}").format(rate=rate, name=name), style="dim")
