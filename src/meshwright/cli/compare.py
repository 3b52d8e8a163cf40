"""``mw compare``: clusters side by side, shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from meshwright.cli import numbers
from meshwright.cli.ask import ask
from meshwright.cli.assumptions import print_assumed, written
from meshwright.cli.flags import FileFlags, TrainingFlags, option
from meshwright.cli.labels import MEETS, label
from meshwright.cli.plan import print_next
from meshwright.cli.points import cost, degrees, print_prices, table, training_time
from meshwright.i18n import _
from meshwright.specs.compare import CompareReport
from meshwright.specs.request import CompareRequest
from meshwright.specs.scale import Point
from meshwright.units import format_duration
from meshwright.verbs.compare import compare as answer

#: Cells that a cluster's text gets at least, where it needs them.
_CLUSTER_WIDTH = 12


def compare(
    model: Annotated[str, Parameter(help=_("A catalog name, a config.json or a TOML file."))],
    /,
    *,
    clusters: Annotated[
        tuple[str, ...],
        option(
            _("The clusters, such as 8xH100 8xB200; with a deadline only their kind counts."),
            "TEXT...",
            name=("--clusters", "--cluster"),
            consume_multiple=True,
        ),
    ] = (),
    deadline: Annotated[
        str | None, option(_("Time for the training, such as 10d: how many GPUs does it take?"), "TIME")
    ] = None,
    budget: Annotated[str | None, option(_("Money for the training, such as '2M USD'."), "MONEY")] = None,
    price: Annotated[
        tuple[str, ...],
        option(
            _("'2.5 USD/GPUh', a provider or a tier of `mw catalog price`; H100=... for one GPU. Repeatable."),
            "PRICE",
        ),
    ] = (),
    job: TrainingFlags = TrainingFlags(),  # noqa: B008 - frozen, so one for all calls is safe
    fix: Annotated[str | None, option(_("Pin columns of the layout, such as tp=4,recompute=full."), "LAYOUT")] = None,
    max_memory: Annotated[str | None, option(_("Memory a GPU may fill, such as '70 GiB'."), "SIZE")] = None,
    output: FileFlags = FileFlags(),  # noqa: B008
) -> int:
    """Compare, print, and return the exit status: 0 what was asked for holds, 1 it does not, 130 interrupted."""
    request = CompareRequest(
        model=model,
        **job.fields(),
        clusters=clusters,
        deadline=deadline,
        budget=budget,
        price=price,
        fix=fix,
        max_memory=max_memory,
        out=output.out,
    )
    return ask(
        "compare",
        lambda seen: answer(request, seen),
        print_compare,
        output,
        answered=lambda report: bool(report.candidates),
        holds=lambda report: report.holds,
    )


def print_compare(console: Console, report: CompareReport) -> None:
    """The verdict, the clusters as given, what the deadline needs, assumptions, the next command."""
    if report.interrupted:
        console.print(_("Interrupted: the clusters that were searched so far."), style="bold yellow")
    console.print(report.verdict, style="bold")
    if report.deadline_s is not None:
        _print_needed(console, report)
    given = [each.as_given for each in report.candidates]
    if any(each.estimate is not None for each in given):
        console.print()
        console.print(_("The clusters as given"), style="bold")
        _print_points(console, given, report)
    for candidate in report.candidates:
        each = candidate.as_given
        # Under a deadline only the kind counts: that its smallest cluster is too small is no news.
        if each.estimate is None and candidate.needed is None:
            console.print(_("{cluster}: {why}.").format(cluster=each.cluster, why=each.why_none or _("no layout")))
    print_prices(console, [*given, *(each.needed for each in report.candidates if each.needed is not None)])
    _print_assumed(console, report)
    print_next(console, report.next_command)


def _print_needed(console: Console, report: CompareReport) -> None:
    assert report.deadline_s is not None
    console.print()
    console.print(
        _("The fewest whole nodes that take {deadline} or less").format(deadline=format_duration(report.deadline_s)),
        style="bold",
    )
    needed = [each.needed for each in report.candidates if each.needed is not None]
    if needed:
        _print_points(console, needed, None)
    for each in report.candidates:
        if each.needed is None and each.needed_why_none is not None:
            console.print(_("{cluster}: {why}.").format(cluster=each.as_given.cluster, why=each.needed_why_none))


def _print_points(console: Console, points: Sequence[Point], report: CompareReport | None) -> None:
    """One row a cluster that fits; with ``report`` also whether it meets what was asked."""
    meets_deadline = report is not None and report.deadline_s is not None
    meets_budget = report is not None and report.budget_usd is not None
    estimates = [each.estimate for each in points if each.estimate is not None]
    factor, unit = numbers.seconds_unit(each.step_time_s for each in estimates)
    grid = table([])
    longest = max((len(each.cluster) for each in points), default=0)
    grid.add_column(_("cluster\nbatch"), overflow="fold", min_width=min(longest, _CLUSTER_WIDTH))
    columns = [_("step") + f" {unit}\n80%", _("training") + "\n80%", "GPUh\n"]
    columns += [_("cost USD\nenergy")]
    asked = [_("in time")] * meets_deadline + [_("in budget")] * meets_budget
    columns += ["\n".join((*asked, "")[:2])] if asked else []
    for header in columns:
        grid.add_column(header, justify="right", no_wrap=True)
    grid.add_column(_("layout") + "\n", ratio=1, overflow="fold")
    for index, each in enumerate(points):
        if each.estimate is None:
            continue
        time = training_time(each)
        if each.median_interval_s is not None:
            time += f"\n{format_duration(*each.median_interval_s)}"
        low_s, high_s = each.estimate.step_time_interval_s
        ends = f"{numbers.digits(low_s / factor)}-{numbers.digits(high_s / factor)}"
        cells = [f"{each.cluster}\n{each.global_batch:,}"]
        cells += [f"{numbers.digits(each.estimate.step_time_s / factor)}\n{ends}", time]
        cells += ["-" if each.gpu_hours is None else numbers.count(round(each.gpu_hours))]
        cells += [f"{cost(each)}\n{'-' if each.energy_j is None else numbers.energy(each.energy_j)}"]
        if report is not None:
            candidate = report.candidates[index]
            answers = [candidate.meets_deadline] * meets_deadline + [candidate.meets_budget] * meets_budget
            cells += ["\n".join(label(MEETS, answer or "-") for answer in answers)] if answers else []
        grid.add_row(*cells, degrees(each.estimate.layout))
    console.print(grid)


def _print_assumed(console: Console, report: CompareReport) -> None:
    print_assumed(console, report.assumed)
    for each in report.candidates:
        own = [f"{name}={written(item.value)}" for name, item in each.assumed.items() if name not in report.assumed]
        if own:
            console.print(
                _("Only for {cluster}: {assumed}").format(
                    cluster=(each.needed or each.as_given).cluster, assumed="; ".join(own)
                ),
                style="dim",
            )
