"""Write the tables of docs/numbers.md from the glossary, so that the page and ``mw explain`` cannot disagree.

Run: ``python tools/glossary_page.py`` (``--check`` exits 1 where the page is out of date).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from meshwright.specs.glossary import GLOSSARY, KINDS, LAYOUT_TERMS, MEMORY_TERMS, WORDS, Term

PAGE = Path(__file__).resolve().parents[1] / "docs" / "numbers.md"
BEGIN, END = "<!-- glossary: written by tools/glossary_page.py -->", "<!-- end of glossary -->"
#: Order and headings of the page; the kinds are those of the glossary.
HEADINGS = {
    "result": "Results",
    "term": "Terms of the step time (`breakdown_s`)",
    "memory": "Classes of device memory (`memory.by`)",
    "phase": "Phases with a memory peak of their own (`memory.by_phase`)",
    "layout": "Columns of a layout (`layout`)",
    "job": "Fields of the job (`job`)",
    "cluster": "Fields of the cluster (`cluster`)",
    "word": "Words of the pages",
}


def _table(terms: Mapping[str, Term]) -> str:
    rows = [f"| `{name}` | {term.unit or ''} | {term.what} |" for name, term in terms.items()]
    return "\n".join(["| name | unit | meaning |", "|---|---|---|", *rows])


def tables() -> str:
    """The tables in Markdown."""
    sections = []
    for kind, heading in HEADINGS.items():
        own = {"memory": MEMORY_TERMS, "layout": LAYOUT_TERMS, "word": WORDS}.get(kind)
        terms = own or {name: term for name, term in GLOSSARY.items() if term.kind == kind}
        sections.append(f"### {heading}\n\n{_table(terms)}")
    return "\n\n".join(sections)


def page(text: str) -> str:
    """``text`` with its tables replaced by the present ones."""
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it with ``--check``."""
    missing = set(HEADINGS) - set(KINDS)
    if missing:
        raise SystemExit(f"kinds that the glossary does not have: {sorted(missing)}")
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    if "--check" in arguments:
        return int(old != new)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
