"""``mw explain``: what a name means, how a number of a plan came about."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.tree import Tree

from meshwright.cli import numbers
from meshwright.cli.flags import OutputFlags
from meshwright.cli.plan import print_next
from meshwright.cli.terminal import plain_console, print_text
from meshwright.errors import EXIT_OK
from meshwright.i18n import _
from meshwright.specs.report import Explanation, ExplanationEntry
from meshwright.verbs.document import render
from meshwright.verbs.explain import explain as answer


def explain(
    target: Annotated[
        str, Parameter(help=_("A field, term, memory class, layout column, rule, error code, or a plan file."))
    ],
    what: Annotated[
        str | None, Parameter(help=_("With a plan file: the number to explain, such as step_time_s."))
    ] = None,
    /,
    *,
    output: OutputFlags = OutputFlags(),  # noqa: B008 - frozen, so one for all calls is safe
) -> int:
    """Explain, print, and return 0."""
    explanation = answer(target, what)
    if output.json:
        print_text(render("explain", explanation))
    else:
        print_explanation(plain_console(wide=output.wide), explanation)
    return EXIT_OK


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
