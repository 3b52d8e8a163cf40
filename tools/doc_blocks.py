"""The commands and programs in the documentation: found, run, and their output pasted.

Fenced ``console``, ``bash`` and ``python`` blocks of README*.md and docs/*.md are run in order, one temporary folder a
document, with the files of docs/examples at hand. ``console`` blocks hold ``$ command`` lines and what they print;
``bash`` blocks hold commands. A comment directly above the fence says what else holds:

* ``<!-- test: check -->`` the output shown must come out. Numbers are not compared (they move with every better
  constant), nor are lengths of bars and spaces; wording, order and columns are. A line ``...`` stands for any lines.
* ``<!-- test: exit=1 -->`` the last command ends with this status (0 otherwise).
* ``<!-- test: skip installs -->`` not run; allowed for installation commands and the test command itself only.

``tests/test_docs.py`` does the checking. ``python tools/doc_blocks.py`` pastes the present output into every checked
block: all of it, as many lines as are shown where ``...`` is the last one, none where ``...`` stands elsewhere;
``python tools/doc_blocks.py docs/planning.md`` does so for one page.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(
    r"(?:<!--\s*test:\s*(?P<marks>[^>]*?)\s*-->\n)?^```(?P<language>console|bash|python)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
ANY_LINES = "..."


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the marks of the comment above it, its text, its place in the document."""

    language: str
    marks: tuple[str, ...]
    body: str
    line: int
    span: tuple[int, int]

    @property
    def status(self) -> int:
        """The exit status that the block must end with."""
        return next((int(mark.removeprefix("exit=")) for mark in self.marks if mark.startswith("exit=")), 0)

    def commands(self) -> list[tuple[str, list[str]]]:
        """The commands as typed, each with the lines shown below it; a Python block is one program."""
        if self.language == "python":
            return [("python -", [])]
        if self.language == "bash":
            return [(self.body, [])]
        found: list[tuple[str, list[str]]] = []
        for line in self.body.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            elif found and found[-1][0].endswith("\\") and not found[-1][1]:
                found[-1] = (f"{found[-1][0]}\n{line}", [])
            elif found:
                found[-1][1].append(line)
        return found


def documents() -> list[Path]:
    """The pages that are run."""
    return sorted([*ROOT.glob("README*.md"), *(ROOT / "docs").glob("*.md")])


def blocks(path: Path) -> list[Block]:
    """The blocks of one page, in order."""
    text = path.read_text(encoding="utf-8")
    return [
        Block(
            match["language"],
            tuple((match["marks"] or "").split()),
            match["body"],
            text.count("\n", 0, match.start()) + 1,
            match.span("body"),
        )
        for match in FENCE.finditer(text)
    ]


def workplace(folder: Path) -> tuple[Path, dict[str, str]]:
    """A folder with the examples' files, and an environment in which ``mw`` is this checkout and speaks English."""
    work = folder / "work place"  # a path with a space, as people have
    shutil.copytree(ROOT / "docs" / "examples", work)
    programs = folder / "bin"
    programs.mkdir()
    for name, arguments in (("mw", "-m meshwright"), ("meshwright", "-m meshwright"), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("LANGUAGE", "LC_ALL", "COLUMNS")}
    environment |= {
        "PATH": f"{programs}{os.pathsep}{environment['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "LANG": "C.UTF-8",
    }
    return work, environment


def run(block: Block, command: str, work: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """One command of a block, in a strict shell."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        input=block.body if block.language == "python" else "",
        check=False,
    )


def _pasted(block: Block, work: Path, environment: dict[str, str]) -> str:
    """The body of a console block with what its commands print now."""
    lines = []
    for command, shown in block.commands():
        done = run(block, command, work, environment)
        lines.append(f"$ {command}")
        if "check" not in block.marks or ANY_LINES in (line.strip() for line in shown[:-1]):
            lines += shown
            continue
        printed = (done.stdout + done.stderr).rstrip("\n").split("\n")
        cut = shown and shown[-1].strip() == ANY_LINES
        lines += [*printed[: len(shown) - 1], ANY_LINES] if cut else printed
    return "\n".join(lines) + "\n"


def main() -> None:
    """Paste the present output into every page."""
    for path in [Path(a).resolve() for a in sys.argv[1:]] or documents():
        text = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            work, environment = workplace(Path(folder))
            bodies = []
            for block in blocks(path):
                if "skip" in block.marks or block.language != "console":
                    for command, _ in [] if "skip" in block.marks else block.commands():
                        run(block, command, work, environment)  # later blocks may read what it writes
                    bodies.append(block.body)
                else:
                    bodies.append(_pasted(block, work, environment))
        for block, body in reversed(list(zip(blocks(path), bodies, strict=True))):
            text = text[: block.span[0]] + body + text[block.span[1] :]
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
