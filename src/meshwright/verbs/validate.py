"""``validate``: predictions against a file of measured runs, by group and case by case."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from meshwright import catalog
from meshwright.costmodel import evaluate, legal, rules
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.scoring.error import summarise
from meshwright.scoring.interval import coverage_ratio
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.report import CaseScore, ErrorGroup, Validation
from meshwright.verbs import measured
from meshwright.verbs.command import layout_text
from meshwright.verbs.document import check_writable, write_whole
from meshwright.verbs.measured import MeasuredCase

#: How far a measured row may be trusted, as the files say it: complete, something inferred, a headline.
TRUSTS = ("A", "B", "C")


def validate(kind: str, file: str | Path, out: Path | None = None) -> Validation:
    """Score the cost model on the measured runs of ``file``, whose columns are those of ``kind``.

    ``out`` receives one CSV row a case. Raises InputError: MW-E410 (no file), MW-E430 (unknown kind), MW-E431
    (columns or rows missing, or no row that can be read).
    """
    if kind not in measured.KINDS:
        raise InputError(
            "MW-E430",
            _("there is no kind '{kind}' of measured file.").format(kind=kind),
            where="KIND",
            nearest=did_you_mean(kind, measured.KINDS),
        )
    if not isinstance(file, str | Path) or not str(file).strip():
        raise InputError("MW-E410", _("no file was given."), where="FILE")
    check_writable(out)
    file = Path(file)
    cases = measured.KINDS[kind](file)
    _require_readable(cases, file)
    scores = _score(cases)
    places = {name: [s for s in scores if s.group == name] for name in ("single-node", "multi-node")}
    trusts = {f"trust {trust}": [s for s in scores if s.trust == trust] for trust in TRUSTS}
    groups = [summary(name, members) for name, members in (places | trusts).items() if members]
    result = Validation(
        kind=kind,
        file=str(file),
        groups=tuple(groups),
        overall=summary("overall", scores),
        cases=tuple(scores),
        skipped=dict(Counter(s.skipped_because for s in scores if s.skipped_because is not None).most_common()),
    )
    if out is not None:
        write_whole(out, table(scores))
    return result


def _require_readable(cases: Sequence[MeasuredCase], file: Path) -> None:
    """Raise InputError (MW-E431) with the first row and column where not one row can be read."""
    if any(case.column is None for case in cases):
        return
    raise InputError(
        "MW-E431",
        _("no row can be read; in row 1 ({id}), column {column}: {reason}.").format(
            id=cases[0].id, column=cases[0].column, reason=cases[0].skipped_because
        ),
        where=str(file),
    )


def _score(cases: Sequence[MeasuredCase]) -> list[CaseScore]:
    """Cases in their order; those of one job on one cluster are predicted together."""
    batches: dict[Any, list[int]] = {}
    for index, case in enumerate(cases):
        if case.job is not None and case.cluster is not None:
            key = (case.job.model_dump_json(), case.cluster.n_nodes, case.cluster.gpus_per_node)
            batches.setdefault(key, []).append(index)
    scores: dict[int, CaseScore] = {}
    for members in batches.values():
        scores.update(zip(members, _predict([cases[i] for i in members]), strict=True))
    return [scores.get(i) or _unscored(case, case.skipped_because or "") for i, case in enumerate(cases)]


def _predict(cases: Sequence[MeasuredCase]) -> list[CaseScore]:
    job, cluster = cases[0].job, cases[0].cluster
    assert job is not None
    assert cluster is not None
    layouts = [case.layout for case in cases if case.layout is not None]
    batch = LayoutBatch.of(layouts)
    broken: list[str | None] = [None] * len(cases)
    for rule, violated in legal(job, cluster, batch).items():
        for i in np.flatnonzero(violated).tolist():
            broken[i] = broken[i] or rule
    fine = np.array([rule is None for rule in broken])
    estimates = evaluate(job, cluster, batch.take(fine), catalog.constants()) if fine.any() else None
    place = np.cumsum(fine) - 1
    texts = rules()
    scores = []
    for i, case in enumerate(cases):
        if broken[i] is not None or estimates is None:
            scores.append(_unscored(case, _(texts[broken[i] or ""])))
            continue
        at = int(place[i])
        scores.append(
            _scored(
                case,
                float(estimates.step_time_s[at]),
                float(estimates.interval_low_s[at]),
                float(estimates.interval_high_s[at]),
            )
        )
    return scores


def _about(case: MeasuredCase) -> dict[str, Any]:
    one_node = case.cluster is None or case.cluster.n_nodes == 1
    if case.cluster is None and case.n_gpus is not None:
        one_node = False
    return {
        "id": case.id,
        "group": "single-node" if one_node else "multi-node",
        "trust": case.trust,
        "layout": "" if case.layout is None else layout_text(case.layout),
        "measured_s": case.measured_s,
    }


def _unscored(case: MeasuredCase, reason: str) -> CaseScore:
    return CaseScore(**_about(case), skipped_because=reason)


def _scored(case: MeasuredCase, predicted_s: float, low_s: float, high_s: float) -> CaseScore:
    assert case.measured_s is not None
    return CaseScore(
        **_about(case),
        predicted_s=predicted_s,
        interval_low_s=low_s,
        interval_high_s=high_s,
        error_ratio=abs(predicted_s / case.measured_s - 1.0),
        within_interval=low_s <= case.measured_s <= high_s,
    )


def summary(name: str, scores: Iterable[CaseScore]) -> ErrorGroup:
    """The errors of some cases together."""
    members = list(scores)
    scored = [score for score in members if score.predicted_s is not None]

    def column(field: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([getattr(score, field) for score in scored], np.float64)

    errors = summarise(column("predicted_s"), column("measured_s"))
    return ErrorGroup(
        name=name,
        rows=len(members),
        scored=errors.n,
        skipped=len(members) - errors.n,
        median_error_ratio=errors.median_error_ratio,
        p90_error_ratio=errors.p90_error_ratio,
        bias_ratio=errors.bias_ratio,
        interval_coverage_ratio=coverage_ratio(
            column("interval_low_s"), column("interval_high_s"), column("measured_s")
        ),
    )


def table(scores: Iterable[CaseScore]) -> str:
    """One CSV row a case, with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(CaseScore.model_fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(score.model_dump() for score in scores)
    return text.getvalue()
