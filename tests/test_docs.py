"""Every command and program in the documentation runs, and what it shows is what comes out.

The marks that a page may put above a block are described in ``tools/doc_blocks.py``.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXEMPT = re.compile(r"\bpip install\b|\bpytest\b|\.ci/run|\bgit clone\b")


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


doc_blocks = _tool("doc_blocks")
DOCUMENTS = doc_blocks.documents()
each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


def loosely(line: str) -> str:
    """A line without its numbers, bar lengths, thousands marks and runs of spaces."""
    line = re.sub(r"<?\d[\d.,]*", "#", line)
    line = re.sub(r"[▏▎▍▌▋▊▉█]+", "", line)
    return re.sub(r"\s+", " ", line).strip()


def missing_line(shown: list[str], printed: str) -> str | None:
    """The first shown line that does not come out in order, or None."""
    rest = iter([loosely(line) for line in printed.splitlines()])
    for line in shown:
        wanted = loosely(line)
        if wanted and line.strip() != doc_blocks.ANY_LINES and wanted not in rest:
            return line
    return None


@pytest.mark.slow
@each_document
def test_documentation_runs(path: Path, tmp_path: Path) -> None:
    work, environment = doc_blocks.workplace(tmp_path)
    for block in doc_blocks.blocks(path):
        if "skip" in block.marks:
            continue
        commands = block.commands()
        for number, (command, shown) in enumerate(commands):
            done = doc_blocks.run(block, command, work, environment)
            where = f"{path.name}:{block.line}: {command.strip()}"
            expected = block.status if number == len(commands) - 1 else 0
            assert done.returncode == expected, f"{where}\n{done.stdout}\n{done.stderr}"
            if "check" in block.marks:
                missing = missing_line(shown, done.stdout + done.stderr)
                assert missing is None, (
                    f"{where}\nshown but not printed: {missing!r} (paste anew: python tools/doc_blocks.py)\n"
                    f"{done.stdout}{done.stderr}"
                )


@each_document
def test_only_installation_is_exempt(path: Path) -> None:
    skipped = [block for block in doc_blocks.blocks(path) if "skip" in block.marks]
    assert [block.line for block in skipped if not EXEMPT.search(block.body)] == []


@each_document
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    broken = [target for target in targets if "://" not in target and not (path.parent / target).exists()]
    assert broken == []


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_first_command_is_the_one_whose_output_is_shown(name: str) -> None:
    """The README installs and plans in one line; the same plan is also run and compared as a block of its own."""
    first, second, *others = doc_blocks.blocks(ROOT / name)
    plan = " ".join(first.body.rsplit("/bin/", 1)[-1].replace("\\\n", " ").split())
    assert "skip" in first.marks
    assert re.match(r"mw (--lang zh-CN )?plan ", plan)
    typed = [" ".join(command.replace("\\\n", " ").split()) for block in others for command, _shown in block.commands()]
    assert plan in typed
    assert "pytest" in second.body


def test_the_names_are_those_of_the_glossary() -> None:
    page = _tool("glossary_page")
    assert page.main(["--check"]) == 0, "run: python tools/glossary_page.py"


def test_loose_comparison_sees_what_matters() -> None:
    printed = "step 5.91 s  ████▌  62 %\nfits with 12.1 GiB to spare\n"
    assert missing_line(["step 6.02 s ██ 61 %", "...", "fits with 9 GiB to spare"], printed) is None
    assert missing_line(["fits with 9 GiB to spare", "step 6.02 s ██ 61 %"], printed) == "step 6.02 s ██ 61 %"
    assert missing_line(["step 5.91 ms"], printed) == "step 5.91 ms"
