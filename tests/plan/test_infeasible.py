"""Jobs that fit nowhere: by how much, recomputed over the whole space, and remedies that fit once applied."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from meshwright.costmodel import evaluate, legal
from meshwright.costmodel.memory import roomy_bytes
from meshwright.plan.change import Case, apply_all
from meshwright.plan.remedies import space_remedies
from meshwright.plan.search import budget_bytes, search
from meshwright.plan.space import space
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch

Jobs = Callable[..., TrainingJob]
Clusters = Callable[..., Cluster]

#: model, cluster, sequence length, global batch, what is fixed, what a GPU may fill.
INFEASIBLE = [
    ("gpt3-175b", "8xA100-80GB", 2048, 64, {}, None),
    ("gpt3-175b", "2x8 A100-80GB", 2048, 64, {}, None),
    ("gpt3-175b", "8xH100", 2048, 8, {}, None),
    ("llama-2-70b", "8xA100-80GB", 4096, 64, {}, None),
    ("llama-2-70b", "8xH100", 4096, 64, {}, None),
    ("llama-2-70b", "2x8 A100-40GB", 4096, 32, {}, None),
    ("llama-3-70b", "8x4090", 8192, 64, {}, None),
    ("llama-3.1-405b", "8x8 H100", 8192, 128, {}, None),
    ("llama-3.1-405b", "4x8 H200", 8192, 128, {}, None),
    ("llama-2-13b", "8x4090", 4096, 64, {}, None),
    ("llama-2-13b", "1xH100", 4096, 64, {}, None),
    ("llama-2-7b", "1xA100-80GB", 4096, 64, {}, None),
    ("llama-2-7b", "2xA100-40GB", 4096, 64, {}, None),
    ("opt-66b", "8xA100-40GB", 2048, 64, {}, None),
    ("bloom-176b", "2x8 V100-32GB", 2048, 64, {}, None),
    ("qwen2.5-72b", "8xA100-80GB", 4096, 32, {}, None),
    ("megatron-1008b", "16x8 A100-80GB", 2048, 512, {}, None),
    ("gpt3-13b", "8xA100-80GB", 2048, 64, {"tp": 1, "pp": 1, "recompute": "none", "zero_stage": 1}, None),
    ("gpt3-13b", "8xA100-80GB", 2048, 64, {"zero_stage": 0, "dp": 4}, None),
    ("gpt3-2.7b", "8xA100-80GB", 2048, 64, {}, 5 * 2**30),
]


def lawful(task: TrainingJob, place: Cluster, batch: LayoutBatch) -> LayoutBatch:
    return batch.take(~np.any(list(legal(task, place, batch).values()), axis=0))


@pytest.mark.parametrize(
    ("model", "place_text", "seq_len", "global_batch", "fix", "limit"), INFEASIBLE, ids=lambda value: str(value)[:24]
)
def test_the_distance_is_right_and_remedies_fit(
    job: Jobs,
    cluster: Clusters,
    constants: Constants,
    model: str,
    place_text: str,
    seq_len: int,
    global_batch: int,
    fix: dict[str, object],
    limit: float | None,
) -> None:
    place = cluster(place_text)
    precision = "bf16" if "bf16" in place.gpu.peak_flops_per_s else "fp16"
    attention = "flash" if place.gpu.compute_capability >= 80 else "unfused"
    task = job(model, seq_len=seq_len, global_batch=global_batch, precision=precision, attention=attention)
    found = search(task, place, constants, fix=fix, max_memory_bytes=limit)
    assert not len(found.best)
    assert found.searched == 0

    # Every legal row of the space, one after the other: none fits, and the lowest peak is the one that was named.
    whole = space(task, place, fix)
    batch = lawful(task, place, whole.rows(0, len(whole)))
    peaks = evaluate(task, place, batch, constants).peak_allocated_bytes
    assert found.nearest_peak_bytes == pytest.approx(float(peaks.min()), rel=1e-12)
    assert peaks.min() > budget_bytes(place, constants, limit)
    nearest = whole.at(np.array([found.nearest_row])).row(0)
    alone = evaluate(task, place, LayoutBatch.of([nearest]), constants)
    assert alone.peak_allocated_bytes[0] == pytest.approx(found.nearest_peak_bytes, rel=1e-12)

    remedies = space_remedies(task, place, constants, fix=fix, max_memory_bytes=limit)
    assert 1 <= len(remedies) <= 3
    for remedy in remedies:
        case = apply_all(remedy.changes, Case(task, place, Layout()))
        # The remedy's own layout keeps the rules and fits ...
        rows = LayoutBatch.of([remedy.estimate.layout])
        assert len(lawful(case.job, case.cluster, rows)) == 1
        again = evaluate(case.job, case.cluster, rows, constants)
        room = budget_bytes(case.cluster, constants, limit)
        assert again.peak_allocated_bytes[0] <= room
        assert again.step_time_s[0] == pytest.approx(remedy.estimate.step_time_s)
        # ... and so does the search that a reader starts with it.
        changed = {c.path.removeprefix("layout."): c.value for c in remedy.changes if c.path.startswith("layout.")}
        after = search(case.job, case.cluster, constants, fix={**fix, **changed}, max_memory_bytes=limit)
        assert len(after.best)
        assert len(lawful(case.job, case.cluster, after.space.at(after.best.row))) == len(after.best)
        tight = again.peak_reserved_bytes[0] > min(room, roomy_bytes(case.cluster, constants))
        assert after.best.step_time_s[0] <= remedy.estimate.step_time_s * (1 + 1e-9) or tight


def test_there_are_twenty() -> None:
    assert len(INFEASIBLE) == 20
