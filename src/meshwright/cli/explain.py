"""``mw explain``: what a name means, how a number of a plan came about, why a layout was not chosen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter
from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from meshwright.cli import numbers
from meshwright.cli.bars import print_memory
from meshwright.cli.flags import JobFlags, OutputFlags, option, whole_number
from meshwright.cli.interrupts import Interrupts
from meshwright.cli.labels import TERMS, label
from meshwright.cli.layouts import print_layouts
from meshwright.cli.plan import print_next, print_remedies
from meshwright.cli.terminal import SearchProgress, plain_console, print_text
from meshwright.errors import EXIT_INTERRUPTED, EXIT_OK, InputError
from meshwright.i18n import _
from meshwright.specs.report import Explanation, ExplanationEntry, Progress
from meshwright.specs.request import WhyNotRequest
from meshwright.specs.why_not import WhyNot
from meshwright.verbs.document import render
from meshwright.verbs.explain import explain as answer
from meshwright.verbs.why_not import why_not as ask


def explain(
    target: Annotated[
        str,
        Parameter(help=_("A field, term, memory class, layout column, rule, error code, or a plan file; or a model.")),
    ],
    what: Annotated[
        str | None, Parameter(help=_("With a plan file: the number to explain, such as step_time_s."))
    ] = None,
    /,
    *,
    why_not: Annotated[
        str | None,
        option(_("Why not this layout, such as tp=2,pp=4: of a plan file, or of MODEL with --cluster."), "LAYOUT"),
    ] = None,
    pick: Annotated[
        int | None, option(_("Which layout of the plan file (1, the fastest)."), "N", converter=whole_number)
    ] = None,
    job: Annotated[
        JobFlags, Parameter(group=Group(_("The job (with --why-not and a model in place of a plan file)"), sort_key=2))
    ] = JobFlags(),  # noqa: B008 - frozen, so one for all calls is safe
    output: OutputFlags = OutputFlags(),  # noqa: B008
) -> int:
    """Explain, print, and return 0; 130 where a search was interrupted."""
    said = next((name for name, value in job.fields().items() if value not in (None, ())), None)
    if why_not is not None:
        return _why_not(target, what, why_not, pick, job, output)
    if said is not None:
        raise InputError(
            "MW-E102",
            _("it describes a job, and nothing is asked about one."),
            where=f"--{said.replace('_', '-')}",
            nearest=_("Add --why-not LAYOUT."),
        )
    explanation = answer(target, what, 1 if pick is None else pick)
    if output.json:
        print_text(render("explain", explanation))
    else:
        print_explanation(plain_console(wide=output.wide), explanation)
    return EXIT_OK


def _why_not(target: str, what: str | None, layout: str, pick: int | None, job: JobFlags, output: OutputFlags) -> int:
    """Ask why the layout lost: of the plan file ``target``, or of the model ``target`` where a cluster was said."""
    if what is not None:
        raise InputError(
            "MW-E105",
            _("'{stray}' belongs to no option.").format(stray=what),
            where="explain",
            nearest=_("--why-not explains a layout, not a number."),
        )
    of_model = job.cluster is not None
    if not of_model and not Path(target).exists() and Path(target).suffix != ".json":
        raise InputError(
            "MW-E402",
            _("'{name}' is no plan file, and no cluster was given for a model.").format(name=target),
            where="explain",
            nearest=_("Add --cluster, such as '{example}'.").format(example="8xH100"),
        )
    request = WhyNotRequest(
        model=target if of_model else None,
        **job.fields(),
        layout=layout,
        plan=None if of_model else Path(target),
        pick=1 if pick is None else pick,
    )
    with Interrupts() as interrupts:
        with SearchProgress() as progress:

            def seen(state: Progress) -> None:
                progress(state)
                interrupts.check()

            found = ask(request, seen)
        if output.json:
            print_text(render("explain", found))
        else:
            print_why_not(plain_console(wide=output.wide), found)
    return EXIT_INTERRUPTED if found.interrupted or interrupts.pressed else EXIT_OK


def print_why_not(console: Console, found: WhyNot) -> None:
    """The sentence, the two layouts side by side, the terms that differ, remedies, the next command."""
    if found.interrupted:
        console.print(_("Interrupted: the best of what was searched so far."), style="bold yellow")
    console.print(found.sentence, style="bold")
    if found.chosen is not None and found.other is not None and found.outcome != "chosen":
        console.print()
        print_layouts(console, (found.chosen, found.other), 0, wide=False)
    if found.terms_s:
        console.print()
        console.print(_("Where the seconds differ (#2 against #1)"), style="bold")
        factor, unit = numbers.seconds_unit(found.terms_s.values())
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        for term, value_s in found.terms_s.items():
            text = f"{'+' if value_s > 0 else '-'}{numbers.digits(abs(value_s) / factor)} {unit}"
            table.add_row(term, label(TERMS, term), text)
        console.print(table)
    if found.outcome == "memory" and found.other is not None:
        console.print()
        print_memory(console, found.other)
    print_remedies(console, found.remedies)
    print_next(console, found.next_command)


def print_explanation(console: Console, explanation: Explanation) -> None:
    """The sentence first, then the tree of formulas down to the sources."""
    name = explanation.what or explanation.target
    value = "" if explanation.value is None else f" = {written(explanation.value)} {explanation.unit or ''}".rstrip()
    kind = f" ({explanation.kind})" if explanation.kind else ""
    console.print(f"{name}{value}{kind}", style="bold")
    console.print(_prose(explanation.sentence))
    for entry in explanation.entries:
        console.print()
        tree = Tree(_line(entry), guide_style="dim")
        _grow(tree, entry)
        console.print(tree)
    print_next(console, explanation.next_command or "")


def _grow(tree: Tree, entry: ExplanationEntry) -> None:
    for child in entry.children:
        _grow(tree.add(_line(child)), child)


def _line(entry: ExplanationEntry) -> str:
    value = "" if entry.value is None else f" = {written(entry.value)} {entry.unit or ''}".rstrip()
    source = f"  [{entry.source}]" if entry.source else ""
    what = f": {_prose(entry.what)}" if entry.what else ""
    return f"{entry.name}{value}{what}{source}"


def _prose(docstring: str) -> str:
    """The first line of a docstring without what only programmers read: array shapes and code marks."""
    return re.sub(r"[,;]? \([nr],[^)]*\)", "", docstring).replace("``", "")


def written(value: Any) -> str:
    """A value of the tree: numbers with four digits, long lists by their ends."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return numbers.digits(value, 4) if 1e-4 <= abs(value) < 1e7 or value == 0 else f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {written(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        shown = [written(item) for item in value]
        return ", ".join(shown) if len(shown) <= 4 else f"{shown[0]}, {shown[1]}, ... {shown[-1]}"
    return str(value)
