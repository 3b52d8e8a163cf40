"""Every name has a meaning, and a number of a plan comes apart into the formulas that made it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshwright.costmodel import rules
from meshwright.errors import InputError
from meshwright.specs.estimate import BREAKDOWN_TERMS, MEMORY_CLASSES, MEMORY_PHASES, Estimate, Memory
from meshwright.specs.glossary import ERRORS, GLOSSARY, KINDS, PRINTED, WORDS
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import COLUMNS
from meshwright.specs.plan import Plan
from meshwright.specs.report import ExplanationEntry
from meshwright.specs.request import EstimateRequest
from meshwright.verbs.estimate import estimate
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
    assert bool(found.entries) == (found.value > 0)
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


@pytest.mark.parametrize("term", BREAKDOWN_TERMS)
def test_a_term_shows_its_own_calls_or_says_that_it_is_zero(small_plan: tuple[Plan, Path], term: str) -> None:
    found = explain(str(small_plan[1]), f"breakdown_s.{term}")
    assert bool(found.entries) == (found.value > 0)
    assert found.value or "zero" in found.sentence
    assert sum(1 for _ in walk(found.entries)) < 300


def test_communication_is_told_apart_by_axis(tmp_path: Path) -> None:
    """The sizes on the wire are those of the axis: one activation for tp, a bucket of gradients for dp."""
    path = tmp_path / "estimate.json"
    layout = "dp=4,tp=2,pp=2,micro_batch=2,zero_stage=1"
    request = EstimateRequest(model="gpt3-2.7b", cluster="2x8 A100-80GB", global_batch=64, layout=layout, out=path)
    report = estimate(request)
    tp_calls = list(walk(explain(str(path), "tp_comm").entries))
    sizes = {entry.value for entry in tp_calls if entry.name == "size_bytes"}
    assert sizes == {2.0 * 2 * 2048 * 2560}
    assert {entry.value for entry in tp_calls if entry.name == "collective"} == {"all_reduce"}
    dp_calls = list(walk(explain(str(path), "dp_comm").entries))
    assert {e.value for e in dp_calls if e.name == "collective"} == {"reduce_scatter", "all_gather"}
    exposed = [entry.value for entry in explain(str(path), "dp_comm").entries if entry.name == "exposed_s"]
    assert sum(exposed) == pytest.approx(report.estimate.breakdown_s["dp_comm"])
    with_hops, without = (entry.value for entry in explain(str(path), "pp_comm").entries if "one_f" in entry.name)
    assert with_hops - without <= report.estimate.breakdown_s["pp_comm"] * (1 + 1e-9)


def test_no_call_hangs_below_itself(small_plan: tuple[Plan, Path]) -> None:
    def check(entry: ExplanationEntry, above: tuple[ExplanationEntry, ...]) -> None:
        assert entry not in above
        for child in entry.children:
            check(child, (*above, entry))

    for what in ("step_time_s", "tp_comm", "dp_comm", "step_time_interval_s"):
        for entry in explain(str(small_plan[1]), what).entries:
            check(entry, ())


@pytest.mark.parametrize(
    "what", ["mfu_ratio", "tokens_per_s_per_gpu", "time_to_train_s", "checkpoint_bytes", "power_w"]
)
def test_arithmetic_shows_what_goes_in(small_plan: tuple[Plan, Path], what: str) -> None:
    found = explain(str(small_plan[1]), what)
    assert found.value is not None
    assert found.entries[0].children


def test_values_of_the_whole_plan_are_known(small_plan: tuple[Plan, Path]) -> None:
    found = explain(str(small_plan[1]), "searched")
    assert found.value == small_plan[0].searched
    assert "No formula" in found.sentence


def test_ambiguous_names_show_every_meaning() -> None:
    names = {entry.name for entry in explain("optimizer").entries}
    assert {"memory.by.optimizer", "job.optimizer"} <= names
    assert {entry.name for entry in explain("recompute").entries} == {"layout.recompute"}


@pytest.mark.parametrize("word", [*PRINTED, *WORDS, "MFU", "Tight"])
def test_printed_words_are_explained(word: str) -> None:
    assert explain(word).sentence


def test_a_count_of_rejected_layouts_has_the_sentence_of_its_rule(small_plan: tuple[Plan, Path]) -> None:
    found, path = small_plan
    assert found.rejected
    for rule, count in found.rejected.items():
        explained = explain(str(path), f"rejected.{rule}")
        assert explained.value == count
        if rule != "memory":
            assert explained.sentence.startswith(rules()[rule])
    assert "do not fit the memory" in explain("rejected.memory").sentence


def test_free_memory_is_what_the_page_prints(small_plan: tuple[Plan, Path]) -> None:
    memory = small_plan[0].layouts[0].memory
    found = explain(str(small_plan[1]), "free")
    assert found.value == memory.capacity_bytes - memory.peak_reserved_bytes
    assert found.unit == "bytes"
    assert [child.value for child in found.entries[0].children] == [memory.capacity_bytes, memory.peak_reserved_bytes]


def test_paths_into_lists_are_followed(small_plan: tuple[Plan, Path]) -> None:
    found, path = small_plan
    for what, want in (
        ("layouts.1.step_time_s", found.layouts[1].step_time_s),
        ("pareto.0.step_time_s", found.pareto[0].step_time_s),
    ):
        explained = explain(str(path), what)
        assert (explained.what, explained.value) == (what, pytest.approx(want))
        # The formulas are those of that very layout.
        assert explained.entries[0].value == pytest.approx(want)
    runner = explain(str(path), "runners_up.0.slower_ratio")
    assert runner.value == pytest.approx(found.runners_up[0].slower_ratio)
    assert runner.sentence.startswith("Step time of a runner-up")
    for what in ("runners_up.999.slower_ratio", "runners_up.0.slow"):
        with pytest.raises(InputError) as caught:
            explain(str(path), what)
        assert caught.value.code == "MW-E421"


def test_parts_dropped_in_are_explained_by_their_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, attribute in (("schedule", "NAME"), ("block", "KIND"), ("collective", "NAME")):
        folder = tmp_path / "costmodel" / kind
        folder.mkdir(parents=True)
        (folder / "mine.py").write_text(f'"""The {kind} of a test.\n\nMore."""\n{attribute} = "my_{kind}"\n')
    monkeypatch.setenv("MESHWRIGHT_PATH", str(tmp_path))
    for kind in ("schedule", "block", "collective"):
        found = explain(f"my_{kind}")
        assert (found.sentence, found.kind) == (f"The {kind} of a test.", KINDS[kind])
