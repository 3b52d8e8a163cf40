"""Every command and program in the documentation runs, and what it shows is what comes out.

Fenced ``console``, ``bash`` and ``python`` blocks of README*.md and docs/*.md are run in order, one temporary folder a
document, with the files of docs/examples at hand. ``console`` blocks hold ``$ command`` lines and what they print;
``bash`` blocks hold commands. A comment directly above the fence says what else holds:

* ``<!-- test: check -->`` the output shown must come out. Numbers are not compared (they move with every better
  constant), nor are lengths of bars and spaces; wording, order and columns are. A line ``...`` stands for any lines.
* ``<!-- test: exit=1 -->`` the last command ends with this status (0 otherwise).
* ``<!-- test: skip installs -->`` not run; allowed for installation commands and the test command itself only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("README*.md"), *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(
    r"(?:<!--\s*test:\s*(?P<marks>[^>]*?)\s*-->\n)?^```(?P<language>console|bash|python)\n(?P<body>.*?)^```$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the marks of the comment above it, its text and where it stands."""

    language: str
    marks: tuple[str, ...]
    body: str
    line: int

    @property
    def status(self) -> int:
        """The exit status that the block must end with."""
        return next((int(mark.removeprefix("exit=")) for mark in self.marks if mark.startswith("exit=")), 0)


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(m["language"], tuple((m["marks"] or "").split()), m["body"], text.count("\n", 0, m.start()) + 1)
        for m in FENCE.finditer(text)
    ]


def commands(block: Block) -> list[tuple[str, list[str]]]:
    """The commands of a console or bash block, each with the lines shown below it."""
    if block.language == "bash":
        return [(block.body, [])]
    found: list[tuple[str, list[str]]] = []
    for line in block.body.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and found[-1][0].endswith("\\"):
            found[-1] = (found[-1][0][:-1] + line.removeprefix("> "), [])
        else:
            assert found, f"line {block.line}: output before any command"
            found[-1][1].append(line)
    return found


def loosely(line: str) -> str:
    """A line without its numbers, bar lengths, thousands marks and runs of spaces."""
    line = re.sub(r"\d[\d.,]*", "#", line)
    line = re.sub(r"[▏▎▍▌▋▊▉█]+", "", line)
    return re.sub(r"\s+", " ", line).strip()


def missing_line(shown: list[str], printed: str) -> str | None:
    """The first shown line that does not come out in order, or None."""
    rest = iter([loosely(line) for line in printed.splitlines()])
    for line in shown:
        wanted = loosely(line)
        if wanted and wanted != "..." and wanted not in rest:
            return line
    return None


@pytest.fixture
def workplace(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with the examples' files and an environment in which ``mw`` is this checkout."""
    folder = tmp_path / "work place"  # a path with a space, as people have
    shutil.copytree(ROOT / "docs" / "examples", folder)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in (("mw", "-m meshwright"), ("meshwright", "-m meshwright"), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        program.chmod(0o755)
    environment = dict(os.environ)
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    environment["PYTHONPATH"] = str(ROOT / "src")
    return folder, environment


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documentation_runs(path: Path, workplace: tuple[Path, dict[str, str]]) -> None:
    folder, environment = workplace
    for block in blocks(path):
        if "skip" in block.marks:
            continue
        lines = [("python -", [])] if block.language == "python" else commands(block)
        for number, (command, shown) in enumerate(lines):
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                input=block.body if block.language == "python" else "",
                check=False,
            )
            where = f"{path.name}:{block.line}: {command.strip()}"
            expected = block.status if number == len(lines) - 1 else 0
            assert done.returncode == expected, f"{where}\n{done.stdout}\n{done.stderr}"
            if "check" in block.marks:
                missing = missing_line(shown, done.stdout + done.stderr)
                assert missing is None, f"{where}\nshown but not printed: {missing!r}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_only_installation_is_exempt(path: Path) -> None:
    for block in blocks(path):
        if "skip" in block.marks:
            assert re.search(r"\bpip install\b|\bpytest\b|\.ci/run|\bgit clone\b", block.body), (
                f"{path.name}:{block.line}"
            )


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    broken = [target for target in targets if "://" not in target and not (path.parent / target).exists()]
    assert broken == []


def test_the_first_command_is_the_one_whose_output_is_shown() -> None:
    """The README installs and plans in one line; the plan is also run and compared as a block of its own."""
    first, second = blocks(ROOT / "README.md")[:2]
    plan = first.body.split("/bin/", 3)[-1].strip()
    assert "skip" in first.marks
    assert plan.startswith("mw plan")
    assert any(command == plan for block in blocks(ROOT / "README.md") for command, _ in commands(block)), plan
    assert "pytest" in second.body


def test_loose_comparison_sees_what_matters() -> None:
    printed = "step 5.91 s  ████▌  62 %\nfits with 12.1 GiB to spare\n"
    assert missing_line(["step 6.02 s ██ 61 %", "...", "fits with 9 GiB to spare"], printed) is None
    assert missing_line(["fits with 9 GiB to spare", "step 6.02 s ██ 61 %"], printed) == "step 6.02 s ██ 61 %"
    assert missing_line(["step 5.91 ms"], printed) == "step 5.91 ms"
