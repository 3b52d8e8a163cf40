"""``mw estimate``: one layout, shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from meshwright.cli.assumptions import print_assumed
from meshwright.cli.bars import print_breakdown, print_memory
from meshwright.cli.flags import JobFlags, ReportFlags, option, whole_number
from meshwright.cli.plan import print_next, print_not_validated, print_remedies
from meshwright.cli.terminal import note_written, plain_console, print_text
from meshwright.cli.verdict import name_of, sentence, training
from meshwright.errors import EXIT_CONDITION, EXIT_OK, InputError
from meshwright.i18n import _
from meshwright.specs.report import EstimateReport
from meshwright.specs.request import EstimateRequest
from meshwright.verbs.document import check_apart, check_writable, render
from meshwright.verbs.estimate import estimate as answer


def estimate(
    model: Annotated[str | None, Parameter(help=_("A catalog name, a config.json or a TOML file."))] = None,
    /,
    *,
    job: JobFlags = JobFlags(),  # noqa: B008 - frozen, so one for all calls is safe
    layout: Annotated[
        str | None, option(_("The layout, such as tp=4,pp=12,dp=8,micro_batch=2,recompute=full."), "LAYOUT")
    ] = None,
    plan: Annotated[Path | None, option(_("Take job, cluster and layout from this plan file."), "FILE")] = None,
    pick: Annotated[
        int | None, option(_("Which layout of the plan file (1, the fastest)."), "N", converter=whole_number)
    ] = None,
    timeline: Annotated[
        Path | None, option(_("Write the timeline of one step to this file, for Perfetto."), "FILE")
    ] = None,
    output: ReportFlags = ReportFlags(),  # noqa: B008
) -> int:
    """Estimate, print, and return the exit status: 0 it fits, 1 it does not."""
    if pick is not None and plan is None:
        raise InputError(
            "MW-E102",
            _("it says which layout of a plan file, and none was given."),
            where="--pick",
            nearest=_("Add --plan FILE."),
        )
    request = EstimateRequest(
        model=model, **job.fields(), layout=layout, plan=plan, pick=1 if pick is None else pick, out=output.out
    )
    check_writable(output.report)
    check_apart(output.out, output.report, timeline)
    report = answer(request, timeline=timeline)
    output.write_report(report)
    if output.json:
        print_text(render("estimate", report))
    else:
        print_estimate(plain_console(wide=output.wide), report)
    note_written(output.out, timeline, output.report)
    return EXIT_OK if report.estimate.memory.fits != "no" else EXIT_CONDITION


def print_estimate(console: Console, report: EstimateReport) -> None:
    """Verdict, where time and memory go, remedies where it does not fit, assumptions, next command."""
    estimate = report.estimate
    console.print(sentence(name_of(report.model, "name"), name_of(report.cluster, "text"), estimate), style="bold")
    print_not_validated(console, estimate)
    if report.time_to_train_s is not None and (tokens := report.job.get("tokens")):
        console.print(training(float(tokens), report.time_to_train_s, None, report))
    console.print()
    print_breakdown(console, estimate)
    console.print()
    print_memory(console, estimate)
    print_remedies(console, report.remedies)
    print_assumed(console, report.assumed, training=report.time_to_train_s is not None)
    print_next(console, report.next_command)
