"""Write the tables of docs/accuracy.md from the model itself, so that the page cannot claim what does not hold.

    python tools/accuracy_page.py ../shared/data/vtrain_a100.csv [--check]

``--check`` exits 1 where the page is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from meshwright import catalog
from meshwright.specs.report import ErrorGroup
from meshwright.verbs.validate import validate

PAGE = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"


def _percent(value: float | None, *, signed: bool = False) -> str:
    return "" if value is None else f"{100 * value:+.1f}" if signed else f"{100 * value:.1f}"


def _group(group: ErrorGroup) -> str:
    cells = (
        group.name,
        str(group.rows),
        str(group.scored),
        _percent(group.median_error_ratio),
        _percent(group.p90_error_ratio),
        _percent(group.bias_ratio, signed=True),
        _percent(group.interval_coverage_ratio),
    )
    return f"| {' | '.join(cells)} |"


def vtrain_table(file: Path) -> str:
    """Errors on the measured runs of ``file`` by group."""
    found = validate("vtrain", file)
    head = "| group | rows | scored | median error % | 90th percentile % | bias % | inside the 80 % interval % |"
    rows = [_group(group) for group in (*found.groups, found.overall)]
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows])


def constants_table() -> str:
    """The fitted constants with prior, value and standard error."""
    rows = ["| constant | unit | prior | value | standard error | pinned down by |", "|---|---|---|---|---|---|"]
    for name, constant in catalog.constants().by_name.items():
        if constant.label == "fitted":
            error = "" if constant.standard_error_ratio is None else f"{100 * constant.standard_error_ratio:.0f} %"
            prior = f"{constant.prior:.4g} (± {100 * constant.prior_sd_ratio:.0f} %)"
            rows.append(
                f"| `{name}` | {constant.unit} | {prior} | {constant.value:.4g} | {error} | {constant.identified_by} |"
            )
    return "\n".join(rows)


def page(text: str, tables: dict[str, str]) -> str:
    """``text`` with each table between its marks replaced by the present one."""
    for name, table in tables.items():
        begin, end = f"<!-- {name}: written by tools/accuracy_page.py -->", f"<!-- end of {name} -->"
        before, rest = text.split(begin, 1)
        text = f"{before}{begin}\n\n{table}\n\n{end}{rest.split(end, 1)[1]}"
    return text


def main(arguments: list[str]) -> int:
    """Write the page, or compare it with ``--check``."""
    file = Path(next(argument for argument in arguments if not argument.startswith("--")))
    old = PAGE.read_text(encoding="utf-8")
    new = page(old, {"vtrain": vtrain_table(file), "constants": constants_table()})
    if "--check" in arguments:
        return int(old != new)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
