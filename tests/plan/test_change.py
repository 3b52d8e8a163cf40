"""Changes: applied as the nouns allow, refused with the nearest path or value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from meshwright.errors import InputError
from meshwright.plan.change import Case, apply, apply_all, parse_change, paths
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout
from meshwright.specs.plan import Change


@pytest.fixture(scope="module")
def case(job: Callable[..., TrainingJob], cluster: Callable[..., Cluster]) -> Case:
    return Case(job(), cluster(), Layout(dp=8))


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("job.seq_len=512", "job.seq_len", 512),
        ("nics_per_node=2", "cluster.nics_per_node", 2),
        ("cluster.oversubscription=2.5", "cluster.oversubscription", 2.5),
        ("cuda_graphs=true", "job.cuda_graphs", True),
        ("gpu.memory_bytes=40 GiB", "cluster.gpu.memory_bytes", 40 * 2**30),
        ("nic.bytes_per_s=100 Gb/s", "cluster.nic.bytes_per_s", 12.5e9),
        ("layout.sp=true", "layout.sp", True),
        ("layout.recompute=full", "layout.recompute", "full"),
    ],
)
def test_text_becomes_a_value(case: Case, text: str, path: str, value: Any) -> None:
    change = parse_change(text)
    assert change.path == path
    noun: Any = apply(change, case)
    for part in path.split("."):
        noun = getattr(noun, part)
    assert noun == value


def test_the_rest_stays(case: Case) -> None:
    changed = apply(Change(path="cluster.n_nodes", value=4), case)
    assert changed.cluster.n_gpus == 32
    assert changed.job == case.job
    assert changed.cluster.gpu == case.cluster.gpu
    assert case.cluster.n_nodes == 1


def test_several_in_order(case: Case) -> None:
    changed = apply_all([parse_change("layout.tp=2"), parse_change("layout.dp=4")], case)
    assert (changed.layout.tp, changed.layout.dp) == (2, 4)


def test_catalog_entries_by_name(case: Case) -> None:
    assert apply(parse_change("cluster.gpu=h100"), case).cluster.gpu.architecture == "hopper"
    assert apply(parse_change("job.model=gpt3-125m"), case).job.model.hidden_size == 768


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("seq_len", "MW-E150", "cluster.nics_per_node=8"),
        ("seqlen=5", "MW-E151", "job.seq_len"),
        ("cluster.pue=1.5", "MW-E151", "cluster.site.pue?"),
        ("cluster.n_nodes=-1", "MW-E152", "n_nodes"),
        ("job.precision=int4", "MW-E152", "bf16"),
        ("job.straggler_ratio=7", "MW-E152", "straggler_ratio"),
        ("cluster.gpu=h10", "MW-E201", "H100"),
        ("layout.tp=none", "MW-E132", "tp"),
    ],
)
def test_wrong_changes_are_refused(case: Case, text: str, code: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        apply(parse_change(text), case)
    assert caught.value.code == code
    assert says in str(caught.value)


def test_provenance_cannot_be_changed() -> None:
    assert not [path for path in paths() if path.endswith((".facts", ".aliases", ".name"))]
