"""The commands end to end: status, what goes to which stream, one document for --json, files written."""

from __future__ import annotations

import csv
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from meshwright.cli import plan as plan_page
from meshwright.cli import terminal
from meshwright.cli.app import main
from meshwright.specs.estimate import BREAKDOWN_TERMS
from meshwright.specs.plan import Plan
from meshwright.specs.report import Progress

JOB = ("llama-2-7b", "--cluster", "2x8 A100-80GB", "--seq-len", "4096", "--global-batch", "128")
TOO_LARGE = ("llama-2-70b", "--cluster", "8xA100-40GB", "--seq-len", "4096", "--global-batch", "64")


class Run:
    """Runs commands in this process and keeps what they printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str, status: int = 0) -> str:
        found = main(arguments)
        out, self.err = self.capsys.readouterr()
        assert found == status, self.err or out
        return out

    def document(self, *arguments: str, status: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", status=status))


@pytest.fixture
def mw(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


def test_plan_prints_what_its_document_says(mw: Run) -> None:
    page = mw("plan", *JOB, "--tokens", "2T")
    document = mw.document("plan", *JOB, "--tokens", "2T")
    assert document["schema"] == "meshwright/plan/1"
    best = document["layouts"][document["chosen"]]
    assert page.startswith("Llama-2-7B on 2x8 A100-80GB: ")
    assert f"dp={best['layout']['dp']} tp={best['layout']['tp']}" in " ".join(page.split())
    assert f"{best['tokens_per_s_per_gpu']:,.0f}" in page
    assert set(best["breakdown_s"]) == set(BREAKDOWN_TERMS)
    assert sum(best["breakdown_s"].values()) == pytest.approx(best["step_time_s"])
    assert len(document["layouts"]) == 5


def test_pages_fit_80_columns_without_trailing_spaces(mw: Run) -> None:
    for arguments in (("plan", *JOB), ("plan", *TOO_LARGE), ("catalog",), ("catalog", "gpu"), ("explain", "bubble")):
        for language in ("en", "zh-CN"):
            page = mw("--lang", language, *arguments, status=1 if TOO_LARGE[0] in arguments else 0)
            # The command to copy is not broken inside a flag, whatever its length.
            lines = [line for line in page.splitlines() if "--layout" not in line]
            assert max(map(cell_len, lines)) <= 80
            assert not any(line.endswith(" ") for line in lines)
            assert "…" not in page


def test_the_next_command_of_a_plan_works(mw: Run) -> None:
    page = mw("plan", *JOB)
    command = page.split("Next\n", 1)[1].replace("\\\n", " ")
    words = shlex.split(command)
    assert words[:2] == ["mw", "estimate"]
    assert mw(*words[1:]).startswith("Llama-2-7B on 2x8 A100-80GB: ")


def test_nothing_fits_is_status_1_with_remedies_that_work(mw: Run) -> None:
    page = mw("plan", *TOO_LARGE, status=1)
    assert page.startswith("No layout of Llama-2-70B fits on 8xA100-40GB.")
    assert "misses by" in page
    document = mw.document("plan", *TOO_LARGE, status=1)
    assert not document["feasible"]
    assert document["remedies"]
    words = shlex.split(page.split("Next\n", 1)[1].replace("\\\n", " "))
    assert mw.document(*words[1:])["feasible"]


def test_what_no_rule_allows_says_so_first(mw: Run) -> None:
    page = mw("plan", *JOB, "--fix", "ep=2", status=1)
    assert page.startswith("No layout of Llama-2-7B is legal on 2x8 A100-80GB: every layout")
    assert "ep_needs_experts" in page.split("\n\n", 1)[0]
    page = mw("fit", *JOB, "--layout", "tp=3", status=1)
    assert page.startswith("No: for Llama-2-7B")
    assert "no layout is legal; most break gpus_match (dp x tp x cp x pp" in " ".join(page.split())


@pytest.mark.parametrize("flag", ["--report", "--timeline"])
def test_two_outputs_do_not_share_a_file(mw: Run, tmp_path: Path, flag: str) -> None:
    file = tmp_path / "answer"
    mw("plan", *JOB, "--out", str(file), flag, f"{tmp_path}/./answer", status=2)
    assert "MW-E417" in mw.err
    assert not file.exists()


def test_a_price_may_name_its_gpu(mw: Run) -> None:
    training = ("plan", *JOB, "--tokens", "1T")
    named = mw.document(*training, "--price", "A100=2 USD/GPUh")
    assert named["cost_usd"] == mw.document(*training, "--price", "2 USD/GPUh")["cost_usd"]
    mw(*training, "--price", "B200=2 USD/GPUh", status=2)
    assert "MW-E452" in mw.err


def test_why_not_of_a_model_asks_for_its_cluster(mw: Run) -> None:
    mw("explain", "llama-3.1-8b", "--why-not", "tp=2", status=2)
    assert "--cluster" in mw.err


def test_a_missed_deadline_or_budget_is_status_1(mw: Run) -> None:
    training = ("plan", *JOB, "--tokens", "1T")
    page = mw(*training, "--deadline", "1000 days", "--budget", "100 MUSD")
    assert "The deadline of 1,000 days is kept" in page
    assert "The budget of 100M USD is kept" in page
    page = mw(*training, "--deadline", "100 days", status=1)
    assert "The deadline of 100 days is missed" in page
    assert "cluster.n_nodes=" in page
    assert not mw.document(*training, "--budget", "1 USD", status=1)["conditions"][0]["met"]


def test_a_placement_shows_every_rank_of_a_small_cluster(mw: Run) -> None:
    page = mw("plan", *JOB, "--placement")
    rows = page.split("rank  node  gpu  nic", 1)[1].splitlines()[1:17]
    assert [int(row.split()[0]) for row in rows] == list(range(16))
    assert "placement" not in mw.document("plan", *JOB)


def test_a_layout_that_does_not_fit_is_status_1(mw: Run) -> None:
    page = mw("estimate", *TOO_LARGE, "--layout", "tp=8,micro_batch=1", status=1)
    assert "does not fit" in page


def test_out_and_pick(mw: Run, tmp_path: Path) -> None:
    file = tmp_path / "my plan.json"
    printed = mw.document("plan", *JOB, "--out", str(file))
    assert str(file) in mw.err
    written = json.loads(file.read_text(encoding="utf-8"))
    assert written["layouts"] == printed["layouts"]
    for number in (1, 3):
        picked = mw.document("estimate", "--plan", str(file), "--pick", str(number))
        assert picked["layout"] == written["layouts"][number - 1]["layout"]
        assert picked["step_time_s"] == pytest.approx(written["layouts"][number - 1]["step_time_s"])
    assert "MW-E4" in (mw("estimate", "--plan", str(file), "--pick", "99", status=2) or mw.err)
    page = mw("explain", str(file), "step_time_s")
    assert page.startswith("step_time_s = ")
    assert "A100" in page


def test_timeline(mw: Run, tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    mw("plan", *JOB, "--timeline", str(file))
    assert json.loads(file.read_text(encoding="utf-8"))["traceEvents"]


def test_an_interrupted_search_shows_its_best_and_ends_with_130(mw: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    search = plan_page.search

    def interrupted(*arguments: Any, **more: Any) -> Plan:
        return search(*arguments, **more).model_copy(update={"interrupted": True})

    monkeypatch.setattr(plan_page, "search", interrupted)
    page = mw("plan", *JOB, status=130)
    assert page.startswith("Interrupted")
    assert "Llama-2-7B on 2x8 A100-80GB" in page


def test_an_interrupt_before_the_first_layout_claims_nothing(mw: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    search = plan_page.search

    def interrupted(*arguments: Any, **more: Any) -> Plan:
        found = search(*arguments, **more)
        return found.model_copy(update={"interrupted": True, "layouts": (), "feasible": False, "searched": 0})

    monkeypatch.setattr(plan_page, "search", interrupted)
    page = mw("plan", *JOB, status=130)
    assert "nothing that fits was scored yet" in page
    assert "No layout" not in page


def test_progress_waits_a_second_and_needs_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def report(elapsed_s: float) -> Progress:
        return Progress(10, 20, 100, 1.5, elapsed_s, 3.0)

    with terminal.SearchProgress() as progress:
        progress(report(5.0))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with terminal.SearchProgress() as progress:
        progress(report(0.5))
    assert capsys.readouterr().err == ""
    with terminal.SearchProgress() as progress:
        progress(report(1.5))
    out, err = capsys.readouterr()
    assert out == ""
    assert "10 layouts scored, best 1.5 s" in err


def test_explain_knows_every_name_that_a_plan_prints(mw: Run) -> None:
    document = mw.document("plan", *JOB)
    names = [*document["layouts"][0], *document["layouts"][0]["breakdown_s"], *document["layouts"][0]["layout"]]
    names += [*document["rejected"], *document["needs"], *document["layouts"][0]["memory"]["by"], *document["assumed"]]
    unknown = [name for name in dict.fromkeys(names) if main(["explain", name]) != 0]
    mw.capsys.readouterr()
    assert unknown == []


def test_catalog_lists_kinds_and_sources(mw: Run) -> None:
    assert {row["kind"] for row in mw.document("catalog")["rows"]} >= {"gpu", "nic", "node", "model"}
    page = mw("catalog", "gpu", "h100")
    assert "[1] " in page
    assert "https://" in page
    assert all(field["source"] for field in mw.document("catalog", "gpu", "h100")["fields"])


def test_validate_scores_a_file_of_measured_runs(mw: Run, shared: Path, tmp_path: Path) -> None:
    out = tmp_path / "cases.csv"
    document = mw.document("validate", "vtrain", str(shared / "data" / "vtrain_a100.csv"), "--out", str(out))
    assert document["overall"]["rows"] == 793
    with out.open(encoding="utf-8", newline="") as stream:
        assert len(list(csv.DictReader(stream))) == 793
    page = mw("validate", "vtrain", str(shared / "data" / "vtrain_a100.csv"))
    assert page.split("\n", 1)[0].startswith(f"{document['overall']['scored']} of 793 measured runs scored")
    for group in document["groups"]:
        assert group["name"] in page
