"""Remedies: applied, they fit; none is named that was not needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meshwright.costmodel import evaluate, legal
from meshwright.plan.change import Case, apply_all
from meshwright.plan.remedies import layout_remedies, space_remedies
from meshwright.plan.search import budget_bytes, search
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch

Jobs = Callable[..., TrainingJob]
Clusters = Callable[..., Cluster]


@pytest.mark.parametrize(
    "layout",
    [
        Layout(dp=8, micro_batch=4, zero_stage=0),
        Layout(dp=4, tp=2, micro_batch=8),
        Layout(dp=2, tp=2, pp=2, micro_batch=8),
        Layout(dp=1, tp=1, pp=8, micro_batch=16),
    ],
    ids=str,
)
def test_applied_they_fit(job: Jobs, cluster: Clusters, constants: Constants, layout: Layout) -> None:
    case = Case(job("gpt3-13b", seq_len=2048, global_batch=64), cluster(), layout)
    batch = LayoutBatch.of([layout])
    before = evaluate(case.job, case.cluster, batch, constants)
    assert before.fits[0] == 0, "the case is meant not to fit"
    found = layout_remedies(case, constants)
    assert 1 <= len(found) <= 3
    for remedy in found:
        fixed = apply_all(remedy.changes, case)
        rows = LayoutBatch.of([fixed.layout])
        assert not any(violated.any() for violated in legal(fixed.job, fixed.cluster, rows).values())
        after = evaluate(fixed.job, fixed.cluster, rows, constants)
        assert after.fits[0] > 0
        assert after.step_time_s[0] == pytest.approx(remedy.estimate.step_time_s)
        assert after.peak_allocated_bytes[0] < before.peak_allocated_bytes[0]
    changed = [{change.path for change in remedy.changes} for remedy in found]
    assert not any(one < other for one in changed for other in changed), "a remedy that contains another"


def test_the_budget_counts(job: Jobs, cluster: Clusters, constants: Constants) -> None:
    case = Case(job("gpt3-2.7b", seq_len=2048, global_batch=64), cluster(), Layout(dp=8, micro_batch=4))
    for remedy in layout_remedies(case, constants, max_memory_bytes=30e9):
        assert remedy.estimate.memory.peak_allocated_bytes <= 30e9


def test_a_larger_cluster_is_the_smallest_tried_that_holds(job: Jobs, cluster: Clusters, constants: Constants) -> None:
    task, place = job("gpt3-175b", seq_len=2048, global_batch=64), cluster()
    found = space_remedies(task, place, constants, fix={})
    alone = [remedy.changes[0] for remedy in found if len(remedy.changes) == 1]
    nodes = [change.value for change in alone if change.path == "cluster.n_nodes"]
    assert len(nodes) == 1
    # A second change is named only where it needs fewer GPUs.
    both = [{change.path: change.value for change in remedy.changes} for remedy in found if len(remedy.changes) > 1]
    assert all(changes["cluster.n_nodes"] < nodes[0] for changes in both)
    assert len(search(task, place.model_copy(update={"n_nodes": nodes[0]}), constants).best)
    # States alone need 18 bytes a parameter (arXiv 1910.02054 with fp32 gradients), less with ZeRO: 3.15 TB at most.
    assert nodes[0] <= 8
    assert not len(search(task, place.model_copy(update={"n_nodes": 2}), constants).best)


def test_what_is_fixed_is_let_go_of_first(job: Jobs, cluster: Clusters, constants: Constants) -> None:
    task, place = job("gpt3-13b", seq_len=2048, global_batch=64), cluster()
    fix = {"tp": 1, "pp": 1, "zero_stage": 0}
    assert not len(search(task, place, constants, fix=fix).best)
    remedy = space_remedies(task, place, constants, fix=fix)[0]
    assert all(change.path.startswith("layout.") for change in remedy.changes)
    kept = {name: value for name, value in fix.items() if f"layout.{name}" not in {c.path for c in remedy.changes}}
    assert len(kept) == 2, "one column let go of is enough here"
    assert remedy.estimate.memory.peak_allocated_bytes <= budget_bytes(place, constants)
    assert {name: getattr(remedy.estimate.layout, name) for name in kept} == kept


def test_a_fuller_node_comes_before_more_nodes(job: Jobs, cluster: Clusters, constants: Constants) -> None:
    task, place = job("llama-2-7b", seq_len=4096, global_batch=64), cluster("1xA100-80GB")
    found = space_remedies(task, place, constants, fix={})
    grown = {c.path: c.value for remedy in found for c in remedy.changes if c.path.startswith("cluster.")}
    assert 1 < grown["cluster.gpus_per_node"] <= 8
    assert grown["cluster.scale_up"] == "nvswitch"
    assert "cluster.n_nodes" not in grown


def test_this_machine_does_not_grow(job: Jobs, cluster: Clusters, constants: Constants) -> None:
    found = space_remedies(job("gpt3-175b", global_batch=64), cluster("local"), constants, fix={})
    assert not [c for remedy in found for c in remedy.changes if c.path.startswith("cluster.")]
