"""The help page: plain sections of two columns at 80, in the language of the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

from meshwright.i18n import _

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel


class HelpPage:
    """A cyclopts help formatter (its ``HelpFormatter`` protocol)."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print one panel: title, then name and description of each entry."""
        entries = [entry for entry in panel.entries if _names(entry)]
        if not entries:
            return
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(ratio=1, overflow="fold")
        for entry in entries:
            table.add_row(Text(f"  {_names(entry)}", style="cyan"), _describe(entry))
        console.print()
        console.print(Text(str(panel.title), style="bold"))
        console.print(table)

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Print the usage line."""
        text = _plain(usage)
        for word, shown in (("[OPTIONS]", _("[OPTIONS]")), ("[ARGS]", _("[ARGUMENTS]"))):
            text = text.replace(word, shown)
        console.print(_("Usage: {usage}").format(usage=text), style="bold")

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        """Print the sentence of the command, or the epilogue."""
        if text := _plain(description):
            console.print()
            console.print(text)


def _plain(text: Any) -> str:
    # cyclopts wraps texts for rich; the words themselves are in ``primary_renderable``.
    return str(getattr(text, "primary_renderable", text) or "").strip()


def _names(entry: HelpEntry) -> str:
    flags = entry.positive_names
    if entry.negative_names and flags:
        flags = tuple(f"--[no-]{name.removeprefix('--')}" for name in flags)
    words = (*entry.positive_shorts, *flags, *((entry.metavar,) if entry.metavar and flags else ()))
    return " ".join(words) or entry.positional_label or ""


def _describe(entry: HelpEntry) -> str:
    text = _plain(entry.description)
    return _("{text} (required)").format(text=text) if entry.required else text
