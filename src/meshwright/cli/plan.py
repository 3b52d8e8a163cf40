"""``mw plan``: the search, shown."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from meshwright.cli import numbers
from meshwright.cli.assumptions import print_assumed, written
from meshwright.cli.bars import print_breakdown, print_memory
from meshwright.cli.flags import JobFlags, ReportFlags, option, whole_number
from meshwright.cli.interrupts import Interrupts
from meshwright.cli.labels import FITS, TERMS, label
from meshwright.cli.layouts import print_layouts
from meshwright.cli.terminal import SearchProgress, note_written, plain_console, print_text
from meshwright.cli.verdict import buys, condition, name_of, needed, not_validated, sentence, tight_faster, training
from meshwright.errors import EXIT_CONDITION, EXIT_INTERRUPTED, EXIT_OK
from meshwright.i18n import _
from meshwright.specs.estimate import Estimate
from meshwright.specs.plan import Placement, Plan, Runner
from meshwright.specs.report import Progress
from meshwright.specs.request import PlanRequest
from meshwright.verbs.document import check_apart, check_writable, render
from meshwright.verbs.plan import plan as search
from meshwright.verbs.report import scaling_of

#: Terms named for a runner-up; the rest of its loss is in the JSON.
TERMS_SHOWN = 3
#: Ranks whose place the page shows.
RANKS_SHOWN = 32
TELLING_SHARE = 0.1


def plan(
    model: Annotated[str, Parameter(help=_("A catalog name, a config.json or a TOML file."))],
    /,
    *,
    job: JobFlags = JobFlags(),  # noqa: B008 - frozen, so one for all calls is safe
    fix: Annotated[str | None, option(_("Pin columns of the layout, such as tp=4,recompute=full."), "LAYOUT")] = None,
    max_memory: Annotated[str | None, option(_("Memory a GPU may fill, such as '70 GiB'."), "SIZE")] = None,
    objective: Annotated[str | None, option(_("What is best: time (as now), memory, cost or energy."), "NAME")] = None,
    deadline: Annotated[str | None, option(_("The training must end in this time, such as '30 days'."), "TIME")] = None,
    budget: Annotated[str | None, option(_("The training must cost no more, such as '2M USD'."), "MONEY")] = None,
    price: Annotated[
        str | None, option(_("Price of a GPU: '2.5 USD/GPUh', spot, or a provider (the newest on-demand)."), "TEXT")
    ] = None,
    also: Annotated[
        str | None, option(_("Search these too: schedules, dispatchers, offload, or all."), "WORDS")
    ] = None,
    placement: Annotated[bool, option(_("Show node, GPU and adapter of every rank."))] = False,
    top: Annotated[int, option(_("Layouts to show (5)."), "N", converter=whole_number)] = 5,
    timeline: Annotated[
        Path | None, option(_("Write the timeline of one step to this file, for Perfetto."), "FILE")
    ] = None,
    output: ReportFlags = ReportFlags(),  # noqa: B008
) -> int:
    """Search, print, and return the exit status.

    0: found, 1: nothing fits or a deadline or budget is missed, 130: interrupted with the best so far.
    """
    request = PlanRequest(
        model=model,
        **job.fields(),
        fix=fix,
        max_memory=max_memory,
        objective=objective,
        deadline=deadline,
        budget=budget,
        price=price,
        placement=placement,
        also=also,
        top=top,
        out=output.out,
    )
    check_writable(output.report)
    check_apart(output.out, output.report, timeline)
    with Interrupts() as interrupts:
        with SearchProgress() as progress:

            def seen(state: Progress) -> None:
                progress(state)
                interrupts.check()

            found = search(request, on_progress=seen, timeline=timeline)
            scaling = None
            if output.report is not None and found.layouts and not found.interrupted:
                scaling = scaling_of(request, found, seen)
        # An interrupted search without any layout leaves the files that were there.
        answered = bool(found.layouts) or not found.interrupted
        if answered:
            output.write_report(found, scaling)
        if output.json:
            print_text(render("plan", found))
        else:
            print_plan(plain_console(wide=output.wide), found, wide=output.wide)
        if answered:
            note_written(output.out, timeline if found.layouts else None, output.report)
    if found.interrupted or interrupts.pressed:
        return EXIT_INTERRUPTED
    return EXIT_OK if found.feasible and all(each.met for each in found.conditions) else EXIT_CONDITION


def print_plan(console: Console, found: Plan, *, wide: bool = False) -> None:
    """The whole page: the answer, why others lose, assumptions, what was ruled out, the next command."""
    if found.interrupted and not found.layouts:
        # Nothing was seen, so nothing can be said about what fits.
        console.print(_("Interrupted: nothing that fits was scored yet."), style="bold yellow")
        return
    if found.interrupted:
        console.print(_("Interrupted: the best of what was searched so far."), style="bold yellow")
    if not found.layouts:
        print_nothing(console, found)
        return
    print_answer(console, found, wide=wide)
    if found.objective in ("time", "cost"):
        print_runners_up(console, found.runners_up, found.layouts[found.chosen].step_time_s)
    print_needs(console, found)
    print_placement(console, found.placement)
    print_assumed(console, found.assumed, training=found.time_to_train_s is not None)
    print_rejected(console, found.rejected)
    print_next(console, found.next_command)


#: objective -> the line above the candidates
_BEST: Mapping[str, Callable[[], str]] = {
    "time": lambda: _("The fastest of {searched:,} layouts scored in {elapsed} s"),
    "cost": lambda: _("The cheapest, which is the fastest, of {searched:,} layouts scored in {elapsed} s"),
    "memory": lambda: _("The smallest of {searched:,} layouts scored in {elapsed} s"),
    "energy": lambda: _("The most frugal of {searched:,} layouts scored in {elapsed} s"),
}


def print_answer(console: Console, found: Plan, *, wide: bool = False) -> None:
    """The verdict, the candidates, where time and memory of the chosen one go."""
    best = found.layouts[found.chosen]
    console.print(sentence(name_of(found.model, "name"), name_of(found.cluster, "text"), best), style="bold")
    print_not_validated(console, best)
    if found.time_to_train_s is not None and (tokens := found.job.get("tokens")):
        console.print(training(float(tokens), found.time_to_train_s, found.time_to_train_interval_s, found))
    for asked in found.conditions:
        console.print(condition(asked), style="" if asked.met else "bold yellow")
    console.print()
    console.print(
        _BEST[found.objective]().format(searched=found.searched, elapsed=numbers.digits(found.elapsed_s, 2)),
        style="bold",
    )
    print_layouts(console, found.layouts, found.chosen, wide=wide)
    if found.tight_faster is not None:
        console.print(tight_faster(best, found.tight_faster))
    console.print()
    print_breakdown(console, best)
    console.print()
    print_memory(console, best)


def print_not_validated(console: Console, estimate: Estimate) -> None:
    """A line where something of the layout was never compared with a measured run."""
    if (said := not_validated(estimate)) is not None:
        console.print(said, style="yellow")


def print_nothing(console: Console, found: Plan) -> None:
    """Nothing fits: the nearest miss, what would help (each remedy was evaluated), what was ruled out."""
    ruled_out = found.nearest is not None and "rule" in found.nearest
    text = (
        _("No layout of {model} is legal on {cluster}: {what}.")
        if ruled_out
        else _("No layout of {model} fits on {cluster}.")
    )
    what = "" if found.nearest is None else found.nearest["what"]
    console.print(
        text.format(model=name_of(found.model, "name"), cluster=name_of(found.cluster, "text"), what=what),
        style="bold",
    )
    if what and not ruled_out:
        console.print(_("{sentence}.").format(sentence=what))
    print_remedies(console, found.remedies)
    print_assumed(console, found.assumed, training=False)
    print_rejected(console, found.rejected)
    print_next(console, found.next_command)


def print_needs(console: Console, found: Plan) -> None:
    """What the rest of the site must deliver, and what more adapters buy."""
    console.print()
    console.print(_("What the rest must deliver"), style="bold")
    console.print(" ".join((needed(found.needs, found), *(buys(bought) for bought in found.buys))))


def print_placement(console: Console, placed: Placement | None) -> None:
    """Where ranks sit: all of a few, of more the first; the JSON holds every one."""
    if placed is None:
        return
    console.print()
    console.print(_("Where the ranks sit"), style="bold")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in placed.columns:
        table.add_column(name, justify="right")
    for row in placed.rows[:RANKS_SHOWN]:
        table.add_row(*map(str, row))
    console.print(table)
    if len(placed.rows) > RANKS_SHOWN:
        console.print(_("... and {count:,} more in --json.").format(count=len(placed.rows) - RANKS_SHOWN), style="dim")


def print_remedies(console: Console, remedies: tuple[Mapping[str, Any], ...]) -> None:
    """Changes that make it fit, each with the step time that it leads to."""
    if not remedies:
        return
    console.print()
    console.print(_("What would make it fit (each was evaluated)"), style="bold")
    for remedy in remedies:
        changes = ", ".join(f"{change['path']}={written(change['value'])}" for change in remedy["changes"])
        said = _("- {changes}: {step} a step, {peak} GiB, fits: {fits}").format(
            changes=changes,
            step=numbers.step(remedy["step_time_s"]),
            peak=numbers.gib(remedy["peak_reserved_bytes"]),
            fits=label(FITS, remedy["fits"]),
        )
        if remedy.get("usd_per_hour") is not None:
            said += _("; {n_gpus:,} GPUs for {rate} an hour").format(
                n_gpus=remedy["n_gpus"], rate=numbers.usd(remedy["usd_per_hour"])
            )
        if remedy.get("cost_usd") is not None:
            said += _(", {cost} in all").format(cost=numbers.usd(remedy["cost_usd"]))
        console.print(said)


def print_runners_up(console: Console, runners: tuple[Runner, ...], step_time_s: float) -> None:
    """Why each runner-up loses: its largest losses, and the gain that does not make up for them."""
    if not runners:
        return
    console.print()
    console.print(_("Why the others lose"), style="bold")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(ratio=1, overflow="fold")
    factor, unit = numbers.seconds_unit([step_time_s])
    for runner in runners:
        terms = [
            f"{label(TERMS, term)} {'+' if value_s > 0 else '-'}{numbers.digits(abs(value_s) / factor, 2)} {unit}"
            for term, value_s in _telling(runner.terms_s)
        ]
        slower = f"+{numbers.percent(runner.slower_ratio - 1, 1)}%".replace("+<", "<")
        table.add_row(f"#{runner.layout_index + 1}", slower, ", ".join(terms))
    console.print(table)


def _telling(terms_s: Mapping[str, float]) -> list[tuple[str, float]]:
    """The terms worth a reader's time: the largest losses and the largest gain, nothing below a tenth of the first."""
    ordered = sorted(terms_s.items(), key=lambda item: -item[1])
    losses = [item for item in ordered if item[1] > 0][:TERMS_SHOWN]
    gains = [item for item in ordered if item[1] < 0][-1:]
    least_s = TELLING_SHARE * losses[0][1] if losses else 0.0
    return [item for item in (*losses, *gains) if abs(item[1]) >= least_s]


def print_rejected(console: Console, rejected: Mapping[str, int]) -> None:
    """What was not scored, by rule, in one line."""
    if not rejected:
        return
    text = ", ".join(f"{rule} {count:,}" for rule, count in sorted(rejected.items(), key=lambda item: -item[1]))
    console.print()
    console.print(_("Ruled out before scoring: {rules}").format(rules=text), style="dim")


def print_next(console: Console, command: str) -> None:
    """The next command to type, broken between flags so that it can be copied as it stands."""
    if not command:
        return
    console.print()
    console.print(_("Next"), style="bold")
    lines = [""]
    for word in _flags(command):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > console.width - 6:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    for number, line in enumerate(lines):
        ending = " \\" if number < len(lines) - 1 else ""
        console.print(f"{'    ' if number else '  '}{line}{ending}", style="green", soft_wrap=True)


def _flags(command: str) -> list[str]:
    """The command's words, each flag together with its value."""
    joined: list[str] = []
    for word in (shlex.quote(word) for word in shlex.split(command)):
        if joined and joined[-1].startswith("--") and " " not in joined[-1] and not word.startswith("--"):
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined
