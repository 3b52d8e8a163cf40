"""Bars scaled to the width: where the step goes, what fills the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from meshwright.cli import numbers
from meshwright.cli.labels import MEMORY, TERMS, label
from meshwright.cli.terminal import bar_characters
from meshwright.i18n import _
from meshwright.specs.estimate import BREAKDOWN_TERMS, MEMORY_CLASSES, Estimate

#: What communication costs is red, computing twice or waiting yellow, work green: the eye finds the loss.
COLOURS = {
    "forward": "green",
    "backward": "green",
    "optimizer": "green",
    "tp_comm": "red",
    "cp_comm": "red",
    "ep_comm": "red",
    "pp_comm": "red",
    "dp_comm": "red",
}
LOSS = "yellow"
STORE = "blue"


def bar(share: float, width: int) -> str:
    """A bar of ``share`` (0..1) of ``width`` cells, in eighths of a cell; anything above zero shows."""
    characters = bar_characters()
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    if share > 0 and eighths == 0:
        eighths = 1
    full, part = divmod(eighths, 8)
    return characters[-1] * full + (characters[part] if part else "")


class Row(NamedTuple):
    """One bar: the JSON's name, what it means, its share of the whole, its value as text, its colour."""

    name: str
    meaning: str
    share: float
    text: str
    colour: str


def _table(console: Console, rows: Sequence[Row], unit: str) -> Table:
    """The rows under the header ``unit`` and ``%``; the bar takes what the other columns leave."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("", style="cyan", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column(unit, justify="right", no_wrap=True)
    table.add_column("%", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    texts = zip(*((row.name, row.meaning, row.text) for row in rows), strict=True)
    shares = max((cell_len(numbers.percent(row.share, 1)) for row in rows), default=0)
    taken = sum(max(map(cell_len, cells)) for cells in texts) + shares + 4 * 2
    longest = max((row.share for row in rows), default=0.0) or 1.0
    for row in rows:
        drawn = Text(bar(row.share / longest, max(8, console.width - taken)), style=row.colour)
        table.add_row(row.name, row.meaning, row.text, numbers.percent(row.share, 1), drawn)
    return table


def print_breakdown(console: Console, estimate: Estimate) -> None:
    """Where the step goes: terms of the critical path in the order of a step, zeros left out."""
    total_s = estimate.step_time_s
    parts = {term: estimate.breakdown_s.get(term, 0.0) for term in BREAKDOWN_TERMS}
    shown = {term: value_s for term, value_s in parts.items() if value_s > 0}
    factor, unit = numbers.seconds_unit(shown.values())
    texts = numbers.column(value_s / factor for value_s in shown.values())
    rows = [
        Row(term, label(TERMS, term), value_s / total_s, text, COLOURS.get(term, LOSS))
        for (term, value_s), text in zip(shown.items(), texts, strict=True)
    ]
    console.print(_("Where the {step} go").format(step=numbers.step(total_s)), style="bold")
    console.print(_table(console, rows, unit))


def print_memory(console: Console, estimate: Estimate) -> None:
    """What fills the fullest GPU: the classes at its peak, the allocator's reserve, what is left."""
    memory = estimate.memory
    sizes: Mapping[str, float] = {name: memory.by.get(name, 0.0) for name in MEMORY_CLASSES} | {
        "reserve": memory.peak_reserved_bytes - memory.peak_allocated_bytes,
        "free": max(0.0, memory.capacity_bytes - memory.peak_reserved_bytes),
    }
    rows = [
        Row(
            name if name in MEMORY_CLASSES else "",
            label(MEMORY, name),
            size / memory.capacity_bytes,
            numbers.gib(size),
            "dim" if name == "free" else STORE,
        )
        for name, size in sizes.items()
        if size > 0
    ]
    console.print(
        _("Memory of the fullest GPU (pipeline rank {rank}): {used} of {capacity} GiB, reserve included").format(
            rank=memory.worst_pipeline_rank,
            used=numbers.gib(memory.peak_reserved_bytes),
            capacity=numbers.gib(memory.capacity_bytes),
        ),
        style="bold",
    )
    console.print(_table(console, rows, "GiB"))
