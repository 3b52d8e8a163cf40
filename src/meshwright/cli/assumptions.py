"""What was assumed because it was not said, and how the answer moves with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from meshwright.cli import numbers
from meshwright.i18n import _
from meshwright.specs.plan import Assumed

#: Names and values share this width; a longer pair puts the value below, so that the reasons keep room.
NAME_WIDTH = 28


def written(value: Any) -> str:
    """A value as one types it on the command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def print_assumed(console: Console, assumed: Mapping[str, Assumed], *, training: bool = True) -> None:
    """One row an assumption: name, value, why, and the step time under its alternative.

    Those that move no step but a whole ``training`` follow, one a line, if there is one.
    """
    steps = {name: item for name, item in assumed.items() if item.total is None}
    wholes = [item for item in assumed.values() if item.total is not None] if training else []
    if not steps and not wholes:
        return
    console.print()
    console.print(_("Assumed, because not said"), style="bold")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(style="cyan", overflow="fold", max_width=NAME_WIDTH + 1)
    table.add_column(ratio=1, overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    for name, item in steps.items():
        table.add_row(_pair(name, written(item.value)), item.why, _moves(item))
    if steps:
        console.print(table)
    if wholes:
        console.print(_("and about the whole training"))
    for item in wholes:
        moves = _moves(item)
        console.print(f"- {item.name}={written(item.value)}: {item.why}" + (f" ({moves})" if moves else ""))


def _pair(name: str, value: str) -> str:
    return f"{name}={value}" if len(name) + len(value) < NAME_WIDTH else f"{name}=\n  {value}"


def _moves(item: Assumed) -> str:
    if item.alternative is None:
        return ""
    if item.total is not None and item.total_ratio is not None:
        return _("{value}: {total} {change}").format(
            value=written(item.alternative.value), total=_TOTALS[item.total](), change=numbers.change(item.total_ratio)
        )
    if item.step_time_ratio is None:
        return ""
    return _("{value}: {change}").format(
        value=written(item.alternative.value), change=numbers.change(item.step_time_ratio)
    )


#: What moves where the step does not.
_TOTALS: Mapping[str, Callable[[], str]] = {
    "cost_usd": lambda: _("cost"),
    "energy_j": lambda: _("energy"),
    "time_to_train_with_failures_s": lambda: _("time"),
}
