"""The command itself: what it imports, how it fails, which status it returns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.cli import app as app_module
from meshwright.cli.app import COMMANDS, main
from meshwright.errors import ConditionError, EnvironmentLackError

SOURCE = Path(__file__).resolve().parents[2] / "src"


def _python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )
    return done.stdout


@pytest.mark.parametrize("arguments", [["--help"], [], ["--version"], ["--lang", "zh-CN", "--help"]])
def test_the_root_imports_nothing_heavy(arguments: list[str]) -> None:
    loaded = _python(
        "import contextlib, io, json, sys\n"
        "from meshwright.cli.app import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()): status = main({arguments!r})\n"
        "print(json.dumps([status, sorted(sys.modules)]))"
    )
    status, modules = json.loads(loaded)
    assert status == 0
    heavy = {
        "numpy",
        "pydantic",
        "torch",
        "plotly",
        "fastapi",
        "uvicorn",
        "starlette",
        "scipy",
        "pygments",
        "markdown_it",
    }
    assert heavy.isdisjoint(modules)
    ours = {name for name in modules if name.startswith("meshwright.")}
    assert not any(name.startswith(("meshwright.verbs", "meshwright.specs", "meshwright.costmodel")) for name in ours)


def test_help_lists_every_command_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    page = capsys.readouterr().out
    for command, text in COMMANDS.items():
        assert f"  {command} " in page
        assert text.split()[0] in page
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(f"Usage: mw {command}")
    assert "--json" in page
    assert "InlineText" not in page
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["plam"], ["MW-E100", "'plam'", "Did you mean plan?"]),
        (["plan", "llama-65b", "--clutser", "8xH100"], ["MW-E101", "'--clutser'", "Did you mean --cluster?"]),
        (["plan", "llama-65b", "--qqqqq=1"], ["MW-E101", "'--qqqqq'", "mw plan --help"]),
        (["plan", "llama-65b", "--cluster", "8xH100", "--layout", "tp=8"], ["MW-E101", "Did you mean --fix?"]),
        (["estimate", "llama-65b", "--cluster", "8xH100", "--fix", "tp=8"], ["MW-E101", "Did you mean --layout?"]),
        (["plan"], ["MW-E102", "MODEL"]),
        (["plan", "llama-65b", "--cluster"], ["MW-E102", "--cluster needs a value"]),
        (
            ["plan", "llama-65b", "--cluster", "8xH100", "--seq-len", "2k"],
            ["MW-E103", "--seq-len", "'2k'", "whole number"],
        ),
        (["plan", "llama-65b", "--cluster", "8xH100", "--json=maybe"], ["MW-E103", "--json", "switch"]),
        (["plan", "llama-65b", "--cluster", "8xH100", "--cluster", "8xA100"], ["MW-E104", "--cluster"]),
        (["plan", "llama-65b", "stray", "--cluster", "8xH100"], ["MW-E105", "'stray'"]),
        (["--lang", "fr", "plan"], ["MW-E106", "'fr'", "--lang"]),
    ],
)
def test_a_wrong_command_line_is_one_message(
    arguments: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("error") == 1
    assert "Traceback" not in err
    for text in expected:
        assert text in err, err


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (ConditionError("MW-E901", "nothing fits."), 1),
        (EnvironmentLackError("MW-E902", "scipy is missing.", nearest="pip install 'meshwright[fit]'"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_status_of_each_failure(
    raised: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(tokens: list[str]) -> int:
        raise raised

    monkeypatch.setattr(app_module, "_dispatch", fail)
    assert main(["plan"]) == status
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert getattr(raised, "code", "Interrupted") in err


def test_a_bug_is_called_a_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(tokens: list[str]) -> int:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr(app_module, "_dispatch", fail)
    assert main(["plan"]) == 70
    err = capsys.readouterr().err
    assert "ZeroDivisionError" in err
    assert "test_app.py" in err
    assert "report" in err
    assert "Traceback" not in err
    monkeypatch.setenv("MESHWRIGHT_DEBUG", "1")
    assert main(["plan"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_global_flags_may_stand_before_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(app_module, "_dispatch", lambda tokens: seen.append(tokens) or 0)
    assert main(["--json", "--lang", "en", "--wide", "plan", "llama-65b"]) == 0
    assert main(["plan", "llama-65b", "--lang=en", "--json"]) == 0
    assert main(["--json"]) == 0
    assert seen == [["plan", "llama-65b", "--json", "--wide"], ["plan", "llama-65b", "--json"], []]


def test_a_reader_that_leaves_is_no_error() -> None:
    done = subprocess.run(
        f'"{sys.executable}" -m meshwright --help | true; echo "${{PIPESTATUS[0]}}"',
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )
    assert done.stdout.strip() == "0"
    assert done.stderr == ""
