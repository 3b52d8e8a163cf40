"""Every name has a meaning, and a number of a plan comes apart into the formulas that made it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshwright.costmodel import rules
from meshwright.errors import InputError
from meshwright.specs.estimate import BREAKDOWN_TERMS, MEMORY_CLASSES, MEMORY_PHASES, Estimate, Memory
from meshwright.specs.glossary import ERRORS, GLOSSARY, KINDS
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import COLUMNS
from meshwright.specs.plan import Plan
from meshwright.specs.report import ExplanationEntry
from meshwright.verbs.explain import explain


def test_every_name_of_the_answers_is_explained() -> None:
    names = {
        *Estimate.model_fields,
        *Memory.model_fields,
        *BREAKDOWN_TERMS,
        *MEMORY_CLASSES,
        *MEMORY_PHASES,
        *COLUMNS,
        *rules(),
        *TrainingJob.model_fields,
    }
    described_by_their_parts = {"memory", "by", "by_phase"}
    for name in sorted(names - described_by_their_parts):
        found = explain(name)
        assert found.sentence, name
        assert found.kind, name


def test_every_error_code_of_the_source_is_explained(root: Path) -> None:
    used: set[str] = set()
    for path in (root / "src").rglob("*.py"):
        if path.name != "glossary.py":
            used |= set(re.findall(r'InputError\(\s*"(MW-E\d{3})"', path.read_text(encoding="utf-8")))
    assert used
    assert used <= ERRORS.keys(), sorted(used - ERRORS.keys())


def test_glossary_kinds_are_known() -> None:
    assert {term.kind for term in GLOSSARY.values()} <= KINDS.keys()


def test_a_name_with_two_meanings_is_told_apart() -> None:
    assert explain("optimizer").unit == "s"
    assert explain("memory.by.optimizer").unit == "bytes"
    assert explain("recompute").unit == "s"
    assert explain("layout.recompute").unit is None


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(InputError, match="bubble") as caught:
        explain("buble")
    assert caught.value.code == "MW-E420"


def test_codes_are_explained_in_any_case() -> None:
    assert explain("mw-e407").sentence == explain("MW-E407").sentence


def walk(entries: tuple[ExplanationEntry, ...]) -> Iterator[ExplanationEntry]:
    for entry in entries:
        yield entry
        yield from walk(entry.children)


def test_the_step_time_comes_apart(small_plan: tuple[Plan, Path]) -> None:
    found, path = small_plan
    explained = explain(str(path), "step_time_s")
    assert explained.value == pytest.approx(found.layouts[0].step_time_s)
    root = explained.entries[0]
    assert root.name == "step_time_s"
    assert root.value == pytest.approx(explained.value)
    # The parts, as the formula says, make the whole: everything but the straggler factor adds up.
    parts = sum(c.value for c in root.children if c.unit == "s" or c.name.endswith("_s"))
    straggler = next(c.value for c in root.children if c.name == "straggler_ratio")
    assert parts * (1 + straggler) == pytest.approx(root.value)


def test_the_tree_ends_in_sources(small_plan: tuple[Plan, Path]) -> None:
    entries = list(walk(explain(str(small_plan[1]), "step_time_s").entries))
    leaves = [entry for entry in entries if not entry.children and entry.source]
    assert any("data sheet" in (leaf.source or "").lower() for leaf in leaves)
    assert all(entry.source for entry in entries if entry.children), "a formula without its source"


@pytest.mark.parametrize("what", [f"breakdown_s.{term}" for term in ("forward", "dp_comm", "bubble", "optimizer")])
def test_terms_show_their_formulas(small_plan: tuple[Plan, Path], what: str) -> None:
    found = explain(str(small_plan[1]), what)
    assert found.value == small_plan[0].layouts[0].breakdown_s[what.split(".")[1]]
    assert found.entries
    assert found.unit == "s"


def test_weights_are_two_bytes_a_parameter(small_plan: tuple[Plan, Path]) -> None:
    entry = explain(str(small_plan[1]), "memory.by.weights").entries[0]
    parameters = next(child.value for child in entry.children if child.name == "parameters")
    weights = entry.value[0]
    first = parameters[0] if isinstance(parameters, list) else parameters
    assert (weights[0] if isinstance(weights, list) else weights) == pytest.approx(2 * first)


def test_a_short_name_finds_its_place(small_plan: tuple[Plan, Path]) -> None:
    assert explain(str(small_plan[1]), "bubble").what == "breakdown_s.bubble"
    assert explain(str(small_plan[1])).what == "step_time_s"
    with pytest.raises(InputError, match="bubble") as caught:
        explain(str(small_plan[1]), "bubbel")
    assert caught.value.code == "MW-E421"


def test_missing_plan_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        explain(str(tmp_path / "plan.json"), "step_time_s")
    assert caught.value.code == "MW-E410"
