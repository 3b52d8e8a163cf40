"""Asking a verb that searches: under Ctrl-C and a progress bar, its answer shown, its file noted, its exit status."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rich.console import Console

from meshwright.cli.flags import FileFlags
from meshwright.cli.interrupts import Interrupts
from meshwright.cli.terminal import SearchProgress, note_written, plain_console, print_text
from meshwright.errors import EXIT_CONDITION, EXIT_INTERRUPTED, EXIT_OK
from meshwright.specs.compare import CompareReport
from meshwright.specs.fit import FitReport
from meshwright.specs.report import Progress
from meshwright.specs.scale import ScaleReport
from meshwright.verbs.document import render

Report = TypeVar("Report", CompareReport, FitReport, ScaleReport)


def ask(
    verb: str,
    search: Callable[[Callable[[Progress], None]], Report],
    show: Callable[[Console, Report], None],
    output: FileFlags,
    *,
    answered: Callable[[Report], bool],
    holds: Callable[[Report], bool],
) -> int:
    """Run ``search``, print what it found and return the status: 0 where it ``holds``, 1 not, 130 interrupted.

    An interrupted search that has not ``answered`` anything leaves the files that were there.
    """
    with Interrupts() as interrupts:
        with SearchProgress() as progress:

            def seen(state: Progress) -> None:
                progress(state)
                interrupts.check()

            report = search(seen)
        if output.json:
            print_text(render(verb, report))
        else:
            show(plain_console(wide=output.wide), report)
        if answered(report) or not report.interrupted:
            note_written(output.out)
    if report.interrupted or interrupts.pressed:
        return EXIT_INTERRUPTED
    return EXIT_OK if holds(report) else EXIT_CONDITION
