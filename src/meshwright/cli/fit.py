"""``mw fit``: whether it fits and what does, shown."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from meshwright.cli import numbers
from meshwright.cli.ask import ask
from meshwright.cli.assumptions import print_assumed
from meshwright.cli.bars import print_memory
from meshwright.cli.flags import FileFlags, JobFlags, option
from meshwright.cli.plan import print_next
from meshwright.cli.points import degrees, table
from meshwright.i18n import N_, _
from meshwright.specs.fit import FitReport, Limit
from meshwright.specs.request import FitRequest
from meshwright.verbs.fit import fit as answer

#: What a limit is called on the page.
_LIMITS = {
    "longest_sequence": N_("longest sequence"),
    "largest_model": N_("largest model of the family"),
    "fewest_gpus": N_("fewest GPUs of this kind"),
}


def fit(
    model: Annotated[str, Parameter(help=_("A catalog name, a config.json or a TOML file."))],
    /,
    *,
    job: JobFlags = JobFlags(),  # noqa: B008 - frozen, so one for all calls is safe
    layout: Annotated[
        str | None, option(_("Only layouts that agree with this, such as tp=4,recompute=full."), "LAYOUT")
    ] = None,
    max_memory: Annotated[str | None, option(_("Memory a GPU may fill, such as '70 GiB'."), "SIZE")] = None,
    output: FileFlags = FileFlags(),  # noqa: B008
) -> int:
    """Answer, print, and return the exit status: 0 it fits, 1 it does not, 130 interrupted."""
    request = FitRequest(model=model, **job.fields(), layout=layout, max_memory=max_memory, out=output.out)
    return ask(
        "fit",
        lambda seen: answer(request, seen),
        print_fit,
        output,
        answered=lambda report: report.fastest is not None,
        holds=lambda report: report.fits != "no",
    )


def print_fit(console: Console, report: FitReport) -> None:
    """The verdict, micro-batches, limits with the commands that show them, memory, assumptions."""
    if report.interrupted:
        console.print(_("Interrupted: what was found so far."), style="bold yellow")
    console.print(report.verdict, style="bold")
    if any(each.largest_micro_batch for each in report.micro_batches):
        console.print()
        _print_micro_batches(console, report)
    if report.limits:
        console.print()
        _print_limits(console, report.limits)
    shown = report.fastest or report.least_memory
    if shown is not None:
        console.print()
        console.print(
            (
                _("The fastest layout: {layout}") if report.fastest else _("The layout that needs least: {layout}")
            ).format(layout=degrees(shown.layout)),
            style="bold",
        )
        print_memory(console, shown)
    print_assumed(console, report.assumed)
    print_next(console, report.next_command)


def _print_micro_batches(console: Console, report: FitReport) -> None:
    console.print(_("Largest micro-batch (sequences a GPU holds at a time)"), style="bold")
    estimates = [each.estimate for each in report.micro_batches if each.estimate is not None]
    factor, unit = numbers.seconds_unit(each.step_time_s for each in estimates)
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    grid.add_column(_("layout") + "\n", ratio=1, overflow="fold")
    columns = (
        _("fits") + "\n",
        _("divides\nbatch"),
        _("step") + f"\n{unit}",
        _("tokens/s\nper GPU"),
        _("memory") + "\nGiB",
    )
    for header in columns:
        grid.add_column(header, justify="right", no_wrap=True)
    for each in report.micro_batches:
        found = each.estimate
        grid.add_row(
            degrees(each.layout).replace(f" mb{each.layout.micro_batch}", ""),
            "-" if each.largest_micro_batch is None else f"{each.largest_micro_batch:,}",
            "-" if each.dividing_micro_batch is None else f"{each.dividing_micro_batch:,}",
            "-" if found is None else numbers.digits(found.step_time_s / factor),
            "-" if found is None else numbers.digits(found.tokens_per_s_per_gpu),
            "-" if found is None else numbers.gib(found.memory.peak_reserved_bytes),
        )
    console.print(grid)
    text = _("fits: the batch of a step grows with it; divides batch: into the {batch} sequences of a step.")
    console.print(text.format(batch=f"{int(report.job['global_batch']):,}"), style="dim")


def _print_limits(console: Console, limits: tuple[Limit, ...]) -> None:
    console.print(_("What fits with room to spare"), style="bold")
    grid = table([])
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    for each in limits:
        grid.add_row(_(_LIMITS[each.name]), each.text or _("none"))
        if each.command is not None:
            grid.add_row("", each.command, style="dim")
    grid.show_header = False
    console.print(grid)
