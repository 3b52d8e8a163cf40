"""The house: imports only go down, rooms are named after the field, and no machine's path lies in the tree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

VAGUE = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "base"}
#: Spelt so that this file does not contain what it looks for.
MACHINE_PATH = re.compile("/(" + "|".join(("w" + "ork", "ho" + "me", "ro" + "ot", "tmp/b" + "ash_jobs")) + ")/")


def test_imports_only_go_down(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(root)
    status = lint_imports(config_filename=str(root / "pyproject.toml"), no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_rooms_are_named_after_the_field(root: Path) -> None:
    vague = [path for path in (root / "src").rglob("*.py") if path.stem in VAGUE]
    assert vague == []


def test_no_file_names_a_machine(root: Path) -> None:
    folders = ("src", "tests", "tools", "benchmarks", "docs", ".ci")
    files = [
        p for folder in folders for p in (root / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts
    ]
    files += [*root.glob("*.md"), root / "pyproject.toml"]
    found = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # compiled translations, images
            continue
        found += [f"{path.relative_to(root)}: {match[0]}" for match in MACHINE_PATH.finditer(text)]
    assert found == []


def test_translated_text_is_formatted_after_translation(root: Path) -> None:
    """``_(f"...")`` looks up a text that no translator saw; ``f"{_('...')}"`` is not found before Python 3.12."""
    wrong = []
    for path in (root / "src").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inside = [node for text in ast.walk(tree) if isinstance(text, ast.JoinedStr) for node in ast.walk(text)]
        built = (ast.JoinedStr, ast.Call, ast.BinOp)
        wrong += [
            _place(path, root, call) for call in _translations(tree) if call.args and isinstance(call.args[0], built)
        ]
        wrong += [_place(path, root, call) for node in inside for call in _translations(node, deep=False)]
    assert wrong == []


def _translations(tree: ast.AST, *, deep: bool = True) -> list[ast.Call]:
    nodes = ast.walk(tree) if deep else [tree]
    return [
        node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_"
    ]


def _place(path: Path, root: Path, node: ast.Call) -> str:
    return f"{path.relative_to(root)}:{node.lineno}"
