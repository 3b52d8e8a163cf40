"""Error codes: each means one thing, and ``mw explain CODE`` says what."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from meshwright.specs.glossary import ERRORS

#: A code is raised, not merely mentioned, where it stands as a text of its own.
RAISED = re.compile(r'"(MW-E\d+)"')


def _raised(root: Path) -> dict[str, set[str]]:
    """Code -> the packages that raise it."""
    source = root / "src" / "meshwright"
    found: dict[str, set[str]] = defaultdict(set)
    for path in source.rglob("*.py"):
        if path.name == "glossary.py":
            continue
        for code in RAISED.findall(path.read_text(encoding="utf-8")):
            found[code].add(path.relative_to(source).parts[0])
    return found


def test_every_code_is_explained(root: Path) -> None:
    assert sorted(set(_raised(root)) - set(ERRORS)) == []


def test_every_explained_code_is_raised(root: Path) -> None:
    assert sorted(set(ERRORS) - set(_raised(root))) == []


def test_codes_have_one_form() -> None:
    assert all(re.fullmatch(r"MW-E\d{3}", code) for code in ERRORS)
    assert all(sentence.endswith(".") for sentence in ERRORS.values())
