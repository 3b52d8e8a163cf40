"""``--report`` on the command line, and that nothing else loads plotly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from meshwright.cli import plan as plan_page
from meshwright.cli.app import main
from meshwright.specs.plan import Plan
from tests.report.pages import Page

SMALL = ("gpt2", "--cluster", "1xH100", "--global-batch", "32")


def test_plan_and_estimate_write_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("plan", *SMALL), ("estimate", *SMALL, "--layout", "micro_batch=4")):
        path = tmp_path / f"{arguments[0]}.html"
        assert main([*arguments, "--report", str(path), "--json"]) == 0
        printed, err = capsys.readouterr()
        assert f"Written: {path}" in err
        found = json.loads(printed)
        best = found["layouts"][0] if "layouts" in found else found
        figure = Page(path.read_text(encoding="utf-8")).figures[0]
        assert sum(bar["x"][0] for bar in figure["data"]) == pytest.approx(1e3 * best["step_time_s"])


def test_a_place_that_cannot_be_written_is_refused_before_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_page, "search", None)
    assert main(["plan", *SMALL, "--report", str(tmp_path / "no" / "plan.html")]) == 2
    assert main(["plan", *SMALL, "--report", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "MW-E416" in err
    assert "MW-E411" in err


def test_an_interrupt_before_the_first_layout_leaves_the_report_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.html"
    path.write_text("older", encoding="utf-8")
    search = plan_page.search

    def interrupted(*arguments: Any, **more: Any) -> Plan:
        found = search(*arguments, **more)
        return found.model_copy(update={"interrupted": True, "layouts": (), "feasible": False, "searched": 0})

    monkeypatch.setattr(plan_page, "search", interrupted)
    assert main(["plan", *SMALL, "--report", str(path)]) == 130
    assert path.read_text(encoding="utf-8") == "older"
    assert "Written" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "loads"),
    [
        (["--help"], False),
        (["plan", "--help"], False),
        (["plan", *SMALL], False),
        (["plan", *SMALL, "--report", "p.html"], True),
    ],
)
def test_plotly_loads_for_a_report_only(root: Path, tmp_path: Path, arguments: list[str], loads: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "meshwright", *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root / "src")},
    )
    assert ("plotly" in done.stderr) == loads
