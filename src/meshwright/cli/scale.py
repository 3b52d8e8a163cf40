"""``mw scale``: the curve over GPU counts, shown."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from meshwright.cli import numbers
from meshwright.cli.ask import ask
from meshwright.cli.assumptions import print_assumed
from meshwright.cli.bars import bar
from meshwright.cli.flags import FileFlags, JobFlags, option
from meshwright.cli.plan import print_next
from meshwright.cli.points import cost, degrees, print_prices, table, training_time
from meshwright.i18n import _
from meshwright.specs.request import ScaleRequest
from meshwright.specs.scale import Point, ScaleReport
from meshwright.verbs.scale import scale as answer

#: Cells of the longest bar of efficiency.
_BAR = 10


def scale(
    model: Annotated[str, Parameter(help=_("A catalog name, a config.json or a TOML file."))],
    /,
    *,
    gpus: Annotated[
        str | None, option(_("GPU counts: '8..1024' doubles, '8,16,24' lists (from one node up)."), "COUNTS")
    ] = None,
    weak: Annotated[
        bool, option(_("Let the batch grow with the GPUs; --global-batch is that of the smallest count."))
    ] = False,
    job: JobFlags = JobFlags(),  # noqa: B008 - frozen, so one for all calls is safe
    fix: Annotated[str | None, option(_("Pin columns of the layout, such as tp=4,recompute=full."), "LAYOUT")] = None,
    max_memory: Annotated[str | None, option(_("Memory a GPU may fill, such as '70 GiB'."), "SIZE")] = None,
    price: Annotated[
        str | None, option(_("'2.5 USD/GPUh', a provider or a tier of `mw catalog price`."), "PRICE")
    ] = None,
    output: FileFlags = FileFlags(),  # noqa: B008
) -> int:
    """Search each count, print, and return the exit status: 0 some fit, 1 none does, 130 interrupted."""
    request = ScaleRequest(
        model=model,
        **job.fields(),
        gpus=gpus,
        weak=weak,
        fix=fix,
        max_memory=max_memory,
        price=price,
        out=output.out,
    )
    return ask(
        "scale",
        lambda seen: answer(request, seen),
        print_scale,
        output,
        answered=lambda report: bool(report.points),
        holds=lambda report: any(each.estimate is not None for each in report.points),
    )


def print_scale(console: Console, report: ScaleReport) -> None:
    """The verdict, one row a count, the counts that hold nothing, assumptions, the next command."""
    if report.interrupted:
        console.print(_("Interrupted: the counts that were searched so far."), style="bold yellow")
    console.print(report.verdict, style="bold")
    fitting = [each for each in report.points if each.estimate is not None]
    if fitting:
        console.print()
        _print_points(console, report, fitting)
    for each in report.points:
        if each.estimate is None:
            console.print(_("{cluster}: {why}.").format(cluster=each.cluster, why=each.why_none or _("no layout")))
    print_assumed(console, report.assumed)
    print_next(console, report.next_command)


def _print_points(console: Console, report: ScaleReport, points: list[Point]) -> None:
    estimates = [each.estimate for each in points if each.estimate is not None]
    factor, unit = numbers.seconds_unit(each.step_time_s for each in estimates)
    columns = [_("GPUs") + "\n", *([_("batch") + "\n"] if report.weak else []), _("step") + f"\n{unit}"]
    columns += [_("tokens/s") + "\n", _("tokens/s\nper GPU"), _("efficiency") + "\n%"]
    timed = any(each.time_to_train_s is not None for each in points)
    priced = any(each.cost_usd is not None for each in points)
    columns += [_("training") + "\n"] * timed + [_("cost") + "\nUSD"] * priced
    grid = table(columns)
    if not timed:
        grid.add_column("\n", no_wrap=True)
    grid.add_column(_("layout") + "\n", ratio=1, overflow="fold")
    for each, estimate in zip(points, estimates, strict=True):
        efficiency = each.efficiency_ratio or 0.0
        cells = [f"{each.n_gpus:,}", *([f"{each.global_batch:,}"] if report.weak else [])]
        cells += [numbers.digits(estimate.step_time_s / factor), numbers.count(each.tokens_per_s or 0.0)]
        cells += [numbers.digits(estimate.tokens_per_s_per_gpu), numbers.percent(efficiency)]
        cells += [training_time(each)] * timed + [cost(each)] * priced
        low = efficiency < report.least_efficiency_ratio
        grid.add_row(
            *cells,
            *([] if timed else [bar(efficiency, _BAR)]),
            degrees(estimate.layout),
            style="bold" if each.n_gpus == report.knee_n_gpus else "yellow" if low else "",
        )
    console.print(grid)
    if any((each.efficiency_ratio or 0.0) > 1.0 for each in points):
        console.print(_("Above 100%: the smallest count has no room for its fastest layouts."), style="dim")
    if priced:
        print_prices(console, points[:1])
