"""``mw catalog``: what is known, each value with its source."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from meshwright.cli.flags import OutputFlags
from meshwright.cli.terminal import plain_console, print_text
from meshwright.errors import EXIT_OK
from meshwright.i18n import _
from meshwright.specs.report import CatalogField, CatalogListing, CatalogRow
from meshwright.verbs.catalog import catalog as answer
from meshwright.verbs.document import render


def catalog(
    kind: Annotated[
        str | None, Parameter(help=_("gpu, nic, node, model, price, site or reliability; everything when left out."))
    ] = None,
    name: Annotated[str | None, Parameter(help=_("One entry: its values, each with label and source."))] = None,
    /,
    *,
    output: OutputFlags = OutputFlags(),  # noqa: B008 - frozen, so one for all calls is safe
) -> int:
    """List, print, and return 0."""
    listing = answer(kind, name)
    if output.json:
        print_text(render("catalog", listing))
    else:
        print_listing(plain_console(wide=output.wide), listing)
    return EXIT_OK


def print_listing(console: Console, listing: CatalogListing) -> None:
    """One entry with its sources, or the list of entries, one kind after the other."""
    if listing.fields:
        print_entry(console, listing)
        return
    for place, (kind, rows) in enumerate(groupby(listing.rows, key=lambda row: row.kind)):
        if place:
            console.print()
        print_rows(console, kind, list(rows))


def print_rows(console: Console, kind: str, rows: list[CatalogRow]) -> None:
    """The entries of one kind: name and summary."""
    console.print(_("{kind}: {count} entries").format(kind=kind, count=len(rows)), style="bold")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for row in rows:
        table.add_row(row.name, row.summary)
    console.print(table)


def print_entry(console: Console, listing: CatalogListing) -> None:
    """The values of one entry; sources are numbered below the table, because one source serves many values."""
    console.print(f"{listing.kind} {listing.name}", style="bold")
    sources = list(dict.fromkeys(field.source for field in listing.fields if field.source))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column(_("field"), style="cyan", no_wrap=True)
    table.add_column(_("value"), ratio=1, overflow="fold")
    table.add_column(_("label"), no_wrap=True)
    table.add_column(_("source"), justify="right", no_wrap=True)
    for field in listing.fields:
        table.add_row(field.field, field.text, field.label or "", _number(field, sources))
    console.print(table)
    console.print()
    for place, source in enumerate(sources):
        # An address that is cut in two cannot be clicked, so only words are wrapped.
        text = textwrap.fill(f"[{place + 1}] {source}", console.width, break_long_words=False, break_on_hyphens=False)
        console.print(text, style="dim", soft_wrap=True)


def _number(field: CatalogField, sources: list[str]) -> str:
    return f"[{sources.index(field.source) + 1}]" if field.source else ""
