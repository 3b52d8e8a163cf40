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


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (("--cluster", "-8xH100"), "begins with '-'"),
        (("--max-memory", "-80GiB"), "begins with '-'"),
        (("--tokens", "-1T"), "begins with '-'"),
        (("--seq-len", "1.5"), "not a whole number"),
    ],
)
def test_values_that_no_option_takes(tokens: tuple[str, str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "gpt2", *tokens]) == 2
    assert text in capsys.readouterr().err


def test_pick_needs_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "gpt2", "--cluster", "8xH100", "--pick", "2"]) == 2
    assert "--plan" in capsys.readouterr().err


@pytest.mark.parametrize("sink", [">/dev/full", ">&-"])
def test_an_output_that_takes_nothing_is_status_2(sink: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"'{sys.executable}' -m meshwright explain tp_comm {sink}"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )
    assert done.returncode == 2
    assert "MW-E416" in done.stderr
    assert "bug" not in done.stderr


def test_a_users_file_that_fails_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "costmodel" / "collective" / "mine.py"
    broken.parent.mkdir(parents=True)
    broken.write_text("import no_such_module\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "meshwright", "estimate", "gpt2", "--cluster", "8xA100-80GB", "--layout", "tp=2"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "MESHWRIGHT_PATH": str(tmp_path)},
    )
    assert done.returncode == 2
    assert "mine.py" in done.stderr
    assert "no_such_module" in done.stderr
    assert "bug" not in done.stderr


def test_an_interrupt_while_modules_load_leaves_no_traceback() -> None:
    program = (
        "import os, signal, sys\n"
        "from meshwright.cli import entry\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'meshwright.cli.app': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "entry.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )
    assert done.returncode == 130
    assert done.stderr == ""
