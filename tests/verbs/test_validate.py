"""Scoring measured runs: the measured file, its errors, and what is done with odd rows."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from meshwright.errors import InputError
from meshwright.specs.report import Validation
from meshwright.verbs.document import document
from meshwright.verbs.validate import validate

HEADER = "id,n_gpus,global_batch,micro_batch,hidden,heads,layers,seq_len,tp,dp,pp,step_time_s,trust\n"
GOOD = "a,8,64,2,2048,16,24,1024,2,2,2,1.5,A\n"


@pytest.fixture(scope="module")
def measured(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Validation, Path]:
    out = tmp_path_factory.mktemp("validate") / "cases.csv"
    return validate("vtrain", shared / "data" / "vtrain_a100.csv", out=out), out


def test_every_measured_row_is_scored(measured: tuple[Validation, Path]) -> None:
    found, _out = measured
    assert found.overall.rows == 793
    assert found.overall.scored == 793
    assert {group.name: group.rows for group in found.groups} == {
        "single-node": 720,
        "multi-node": 73,
        "trust A": 785,
        "trust B": 8,
    }


def test_errors_are_those_of_the_written_rows(measured: tuple[Validation, Path]) -> None:
    found, out = measured
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert len(rows) == 793
    for group in (*found.groups, found.overall):
        chosen = [r for r in rows if group.name in ("overall", r["group"], f"trust {r['trust']}")]
        ratio = np.array([float(r["predicted_s"]) / float(r["measured_s"]) for r in chosen])
        inside = [float(r["interval_low_s"]) <= float(r["measured_s"]) <= float(r["interval_high_s"]) for r in chosen]
        assert group.median_error_ratio == pytest.approx(np.median(np.abs(ratio - 1)))
        assert group.p90_error_ratio == pytest.approx(np.quantile(np.abs(ratio - 1), 0.9))
        assert group.bias_ratio == pytest.approx(np.median(ratio - 1))
        assert group.interval_coverage_ratio == pytest.approx(np.mean(inside))


def test_predictions_are_near_the_measurements(measured: tuple[Validation, Path]) -> None:
    """A guard against a broken setup (wrong precision, recompute, units), not the accuracy that is claimed."""
    found, _out = measured
    assert found.overall.median_error_ratio is not None
    assert found.overall.median_error_ratio < 0.15


def test_document(measured: tuple[Validation, Path]) -> None:
    found = document("validate", measured[0])
    assert found["schema"] == "meshwright/validate/1"
    assert set(found["overall"]) == {
        "name",
        "rows",
        "scored",
        "skipped",
        "median_error_ratio",
        "p90_error_ratio",
        "bias_ratio",
        "interval_coverage_ratio",
    }


def test_odd_rows_are_skipped_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    odd = (
        "b,8,64,2,2048,16,24,1024,2,2,2,,A\n"  # nothing measured
        "c,8,64,2,2048,16,24,1024,2,2,2,-1,A\n"  # nor this
        "d,8,64,2,2048,16,24,1024,2,2,4,1.5,A\n"  # 16 GPUs on 8
        "e,12,60,1,2048,16,24,1024,2,6,1,1.5,A\n"  # a node and a half
        "f,8,64,5,2048,16,24,1024,2,2,2,1.5,B\n"  # micro-batches of 5 out of 32
        "g,8\n"  # a line that was cut
    )
    path.write_text(HEADER + GOOD + odd)
    found = validate("vtrain", path)
    assert (found.overall.rows, found.overall.scored, found.overall.skipped) == (7, 1, 6)
    reasons = {case.id: case.skipped_because for case in found.cases}
    assert reasons["a"] is None
    assert all(reasons[name] for name in "bcdefg")
    assert "number of GPUs" in (reasons["d"] or "")
    assert "micro_batch" in (reasons["f"] or "")
    # A group in which nothing was scored has no errors rather than zeros.
    trust_b = next(group for group in found.groups if group.name == "trust B")
    assert trust_b.median_error_ratio is None


def test_order_and_extra_columns_do_not_matter(tmp_path: Path) -> None:
    names, values = HEADER.strip().split(","), GOOD.strip().split(",")
    plain, mixed = tmp_path / "a.csv", tmp_path / "b.csv"
    plain.write_text(HEADER + GOOD)
    mixed.write_text("note," + ",".join(names[::-1]) + "\nhello," + ",".join(values[::-1]) + "\n")
    assert validate("vtrain", plain).cases == validate("vtrain", mixed).cases


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        ("", "MW-E412", "empty"),
        (HEADER, "MW-E431", "no rows"),
        (HEADER.replace("hidden", "hiddn") + GOOD, "MW-E431", "hiddn"),
    ],
)
def test_unusable_files_are_refused(tmp_path: Path, content: str, code: str, says: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=says) as caught:
        validate("vtrain", path)
    assert caught.value.code == code


def test_unknown_kinds_get_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="vtrain") as caught:
        validate("vtrian", tmp_path / "x.csv")
    assert caught.value.code == "MW-E430"


def test_reasons_are_counted_and_trust_has_known_letters(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    odd = (
        "b,8,64,2,2048,16,24,1024,2,2,2,nan,A\n"
        "c,8,64,2,2048,16,24,1024,2,2,2,-1,A\n"
        "d,8,64,2,2048,16,24,1024,2,2,2,fast,A\n"
        "e,8,64,2,99999999999,16,24,1024,2,2,2,1.5,A\n"
        "f,8,64\n"
        "g,8,64,2,2048,16,24,1024,2,2,2,1.5,banana\n"
    )
    path.write_text(HEADER + GOOD + odd)
    found = validate("vtrain", path)
    assert found.skipped == {
        "a number is not positive": 2,
        "step_time_s is not a number": 1,
        "a number is too large": 1,
        "the row is cut short": 1,
    }
    assert sum(found.skipped.values()) == found.overall.skipped
    assert [group.name for group in found.groups if group.name.startswith("trust")] == ["trust A"]


def test_missing_columns_are_named_at_once_with_what_the_file_has(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("id,n_gpus,tokens\n1,2,3\n")
    with pytest.raises(InputError, match="global_batch, micro_batch") as caught:
        validate("vtrain", path)
    assert caught.value.nearest == "The file has id, n_gpus, tokens."


def test_an_empty_file_is_told_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("")
    with pytest.raises(InputError, match="empty") as caught:
        validate("vtrain", path)
    assert "step_time_s" in str(caught.value.nearest)
    assert "mw plan" not in str(caught.value.nearest)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("b,8,64,2,wide,16,24,1024,2,2,2,1.5,A", "row 1 (b), column hidden: hidden is not a number"),
        ("b,8,64,2,2048,0,24,1024,2,2,2,1.5,A", "row 1 (b), column heads: a number is not positive"),
        ("b,8,64,2,2048,16,24,99999999999,2,2,2,1.5,A", "row 1 (b), column seq_len: a number is too large"),
        ("b,8", "row 1 (b), column global_batch: the row is cut short"),
    ],
)
def test_a_file_without_a_readable_row_is_refused_with_the_first(tmp_path: Path, row: str, says: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(f"{HEADER}{row}\nc,8,64,2,2048,16,24,1024,2,2,2,fast,A\n")
    with pytest.raises(InputError) as caught:
        validate("vtrain", path)
    assert caught.value.code == "MW-E431"
    assert says in caught.value.message


def test_no_file_is_an_input_error() -> None:
    with pytest.raises(InputError) as caught:
        validate("vtrain", None)  # type: ignore[arg-type]
    assert caught.value.code == "MW-E410"
