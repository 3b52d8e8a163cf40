"""``mw validate``: predictions against measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from meshwright.cli import numbers
from meshwright.cli.flags import OutputFlags, option
from meshwright.cli.terminal import note_written, plain_console, print_text
from meshwright.errors import EXIT_OK
from meshwright.i18n import _
from meshwright.specs.report import Validation
from meshwright.verbs.document import render
from meshwright.verbs.validate import validate as answer


def validate(
    kind: Annotated[str, Parameter(help=_("The layout of the file's columns: vtrain."))],
    file: Annotated[Path, Parameter(help=_("A CSV file of measured runs."))],
    /,
    *,
    out: Annotated[Path | None, option(_("Write one row a case to this CSV file."), "FILE")] = None,
    output: OutputFlags = OutputFlags(),  # noqa: B008 - frozen, so one for all calls is safe
) -> int:
    """Score, print, and return 0."""
    validation = answer(kind, file, out)
    if output.json:
        print_text(render("validate", validation))
    else:
        print_validation(plain_console(wide=output.wide), validation)
    note_written(out)
    return EXIT_OK


def print_validation(console: Console, validation: Validation) -> None:
    """The overall error as a sentence, then the groups."""
    overall = validation.overall
    if overall.median_error_ratio is None:
        console.print(_("None of {rows} rows could be scored.").format(rows=overall.rows), style="bold")
    else:
        console.print(
            _("{scored} of {rows} measured runs scored: median error {median}%, nine in ten within {p90}%.").format(
                scored=overall.scored,
                rows=overall.rows,
                median=_percent(overall.median_error_ratio),
                p90=_percent(overall.p90_error_ratio),
            ),
            style="bold",
        )
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column(_("group") + "\n", style="cyan")
    for header in (
        _("rows") + "\n",
        _("scored") + "\n",
        _("median") + "\n%",
        _("9 in 10") + "\n%",
        _("bias") + "\n%",
        _("in the interval") + "\n%",
    ):
        table.add_column(header, justify="right", no_wrap=True)
    for group in (*validation.groups, overall):
        table.add_row(
            group.name,
            f"{group.rows:,}",
            f"{group.scored:,}",
            _percent(group.median_error_ratio),
            _percent(group.p90_error_ratio),
            _percent(group.bias_ratio, signed=True),
            _percent(group.interval_coverage_ratio),
            style="bold" if group is overall else "",
        )
    console.print(table)


def _percent(ratio: float | None, *, signed: bool = False) -> str:
    if ratio is None:
        return "-"
    return f"{100 * ratio:+.1f}" if signed else numbers.percent(ratio, 1)
