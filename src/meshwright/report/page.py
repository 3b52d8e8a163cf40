"""The page around the sections: one file with its styles, its script and plotly.js; it asks no network for anything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from meshwright.i18n import _, language
from meshwright.output import whole_file
from meshwright.report.html import Html, element, joined
from meshwright.specs.glossary import GLOSSARY, Term

#: The browser itself refuses whatever a page might want from elsewhere.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)


def page(title: str, sections: Iterable[Html | None]) -> Html:
    """The whole document; sections of None are left out."""
    head = element(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        element("title", title),
        element("style", Html(_own("page.css"))),
    )
    body = element(
        "body",
        element("main", *sections, _footer()),
        element("script", Html(get_plotlyjs()), id="plotly"),
        element("script", Html(_own("page.js"))),
    )
    return Html(f"<!DOCTYPE html>\n{element('html', head, body, lang=language())}\n")


def write(path: Path, text: Html) -> None:
    """Write the page whole or not at all. Raises InputError MW-E411 (a directory) or MW-E416 (cannot be written)."""
    with whole_file(path) as stream:
        stream.write(text.encode())


def _own(name: str) -> str:
    return files("meshwright.report").joinpath(name).read_text(encoding="utf-8")


def _footer() -> Html:
    return element(
        "footer",
        _(
            "Every time and size is predicted by Meshwright's cost model, not measured; ranges hold the measured value "
            "in 80 % of cases. Underlined words explain themselves."
        ),
    )


def section(title: str, *children: Html | None, text: str | None = None) -> Html:
    """A section with its heading and a sentence below it."""
    return element("section", element("h2", title), None if text is None else element("p", text), *children)


def figure(drawn: Any, label: str) -> Html:
    """The place of a plotly figure with its data; ``label`` says in words what it shows."""
    data = json.dumps(drawn.update_layout(template={}).to_plotly_json(), allow_nan=False, separators=(",", ":"))
    height = drawn.layout.height
    # "<" could end the script element.
    return joined(
        element("div", class_="figure", role="img", aria_label=label, style=f"height:{height}px"),
        element("script", Html(data.replace("<", "\\u003c")), type="application/json"),
    )


def term(name: str, text: str, words: Mapping[str, Term] = GLOSSARY) -> Html:
    """``text``, which explains itself with the sentence of ``words`` on ``name`` when it is pointed at."""
    known = words.get(name)
    return joined(text) if known is None else element("span", text, class_="term", tabindex=0, title=_(known.what))


def swatch(colour: str) -> Html:
    """A small square of a figure's colour."""
    return element("span", class_="swatch", style=f"background:{colour}")


def table(headers: Iterable[str], rows: Iterable[Html], *, class_: str = "scroll") -> Html:
    """A table that scrolls sideways where the page is too narrow; headers that are elements already stay."""
    heads = [header if isinstance(header, Html) else head(header) for header in headers]
    return element(
        "div",
        element("table", element("thead", element("tr", *heads)) if heads else None, element("tbody", *rows)),
        class_=class_,
    )


def head(*children: str) -> Html:
    """The header cell of a column of words."""
    return element("th", *children)


def count_head(*children: str) -> Html:
    """The header cell of a column of numbers."""
    return element("th", *children, class_="number")


def row(*cells: str | None, numbers_from: int, class_: str | None = None) -> Html:
    """A row whose cells from ``numbers_from`` on are numbers; a cell that is a ``<td>`` already stays."""
    made = [
        cell
        if isinstance(cell, Html) and cell.startswith("<td")
        else element("td", cell, class_="number" if i >= numbers_from else None)
        for i, cell in enumerate(cells)
    ]
    return element("tr", *made, class_=class_)
