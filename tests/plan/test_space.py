"""The space against brute force: every legal layout is in it, once, and what is left out is counted."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meshwright.costmodel import legal
from meshwright.costmodel.schedule import schedules
from meshwright.errors import InputError
from meshwright.plan.space import WIDER, Choices, divisors, space
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import COLUMNS, LayoutBatch, recompute_mask

Jobs = Callable[..., TrainingJob]
Clusters = Callable[..., Cluster]
#: Every subset of the MLP and the norms, and the whole layer: with flash attention its core holds nothing.
RECOMPUTE = [
    *(recompute_mask("+".join(names)) for n in (1, 2) for names in itertools.combinations(("mlp", "norm"), n)),
    0,
    recompute_mask("full"),
]
SCHEDULES, SPLITS, ORDERS = ("1f1b", "interleaved"), ("even", "ends"), ("tp-cp-dp-pp", "tp-cp-pp-dp")


def rows_of(batch: LayoutBatch) -> set[tuple[Any, ...]]:
    codes = {"schedule": batch.schedules, "stage_split": batch.stage_splits, "rank_order": batch.rank_orders}
    columns = [
        [codes[name][code] for code in getattr(batch, name)] if name in codes else getattr(batch, name).tolist()
        for name in COLUMNS
    ]
    return set(zip(*columns, strict=True))


def lawful(task: TrainingJob, place: Cluster, batch: LayoutBatch) -> LayoutBatch:
    ok = np.ones(len(batch), bool)
    for violated in legal(task, place, batch).values():
        ok &= ~violated
    return batch.take(ok)


def brute_force(task: TrainingJob, place: Cluster) -> LayoutBatch:
    """Every combination of small numbers, legal or not, but for switches that do nothing.

    These are ZeRO without data parallelism, stage 2 beside a pipeline (stage 1 again), whole weights kept over a step
    by stage 3 (stage 1 again), shard groups that do not follow the nodes, and the order of ranks along one axis.
    """
    n = place.n_gpus
    degrees = [(dp, tp, pp) for dp, tp, pp in itertools.product(range(1, n + 1), repeat=3) if dp * tp * pp == n]
    rows = []
    for dp, tp, pp in degrees:
        inside = min(max(place.gpus_per_node // tp, 1), dp)
        sharded = [(0, 1, 1)] if dp == 1 else [(0, 1, 1), (1, 1, 1), (3, 1, 1)]
        if dp > 1 and pp == 1:
            sharded += [(2, 1, 1), (3, 1, 0)]
        follows_nodes = dp % inside == 0 and 1 < inside < dp
        hybrid = [(zero, dp // inside, keep) for zero, _one, keep in sharded if zero == 3 and follows_nodes]
        orders = range(2 if place.n_nodes > 1 and dp > 1 and pp > 1 else 1)
        rest = itertools.product(
            range(1, task.model.n_layers + 2),
            range(2),
            range(2),
            range(1, task.global_batch + 1),
            range(2),
            [*sharded, *hybrid],
            RECOMPUTE,
            orders,
        )
        for vpp, schedule, split, micro_batch, sp, (zero, replicas, reshard), recompute, order in rest:
            # With the replicas of a stage far apart no shard group stays inside a node.
            if not (replicas > 1 and order):
                rows.append(
                    (dp, tp, pp, vpp, schedule, split, micro_batch, sp, zero, replicas, reshard, recompute, order)
                )
    names = (
        "dp", "tp", "pp", "vpp", "schedule", "stage_split", "micro_batch", "sp", "zero_stage", "dp_replicate",
        "reshard_after_forward", "recompute", "rank_order",
    )  # fmt: skip
    table = np.array(rows, np.int32)
    columns = {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(names)}
    return LayoutBatch(**columns, schedules=SCHEDULES, stage_splits=SPLITS, rank_orders=ORDERS)


@pytest.mark.parametrize(
    ("model", "global_batch", "place_text"),
    [
        ("gpt2", 16, "8xA100-80GB"),
        # 6 GPUs and 18 sequences: degrees that are no powers of two.
        ("gpt2", 18, "1x6 A100-80GB"),
        # 30 layers: with embedding and head counted 32 divide by 4, without them 30 do not.
        ("bloom-3b", 8, "1x4 A100-80GB"),
        # Two nodes: the order of the ranks matters.
        ("gpt2", 4, "2x2 A100-80GB"),
    ],
)
def test_the_space_holds_exactly_the_legal_layouts(
    job: Jobs, cluster: Clusters, model: str, global_batch: int, place_text: str
) -> None:
    task, place = job(model, global_batch=global_batch), cluster(place_text)
    whole = space(task, place)
    found = lawful(task, place, whole.rows(0, len(whole)))
    expected = rows_of(lawful(task, place, brute_force(task, place)))
    assert rows_of(found) == expected
    assert len(found) == len(expected), "a layout occurs twice"


def test_most_rows_are_legal(job: Jobs, cluster: Clusters) -> None:
    """Rows that break a rule cost time and are not counted as scored; they must stay few."""
    task, place = job("gpt3-175b", seq_len=2048, global_batch=1536), cluster("128x8 A100-80GB")
    whole = space(task, place)
    batch = whole.rows(0, len(whole))
    assert len(lawful(task, place, batch)) > 0.8 * len(batch)
    assert len(whole) > 20_000


def test_what_cannot_be_legal_is_counted(job: Jobs, cluster: Clusters) -> None:
    # 12 heads: tp=8 breaks a rule whatever the rest. dp=1, pp=1 leave the 5 divisors of 16 as micro-batches.
    task, place = job(), cluster()
    whole = space(task, place)
    assert not (whole.cells.tp == 8).any()
    assert whole.rejected["tp_divides_heads"] == 5


@pytest.mark.parametrize(
    "fix",
    [
        {"tp": 4},
        {"pp": 2, "micro_batch": 2},
        {"recompute": "full"},
        {"sp": True, "tp": 2},
        {"zero_stage": 0},
        {"vpp": 3},
        {"stage_split": "7-5", "pp": 2},
        {"schedule": "1f1b"},
        {"rank_order": "tp-cp-pp-dp"},
        {"recompute": "mlp+norm"},
    ],
    ids=str,
)
def test_fixed_columns_stay(job: Jobs, cluster: Clusters, fix: dict[str, Any]) -> None:
    task, place = job(), cluster()
    whole = space(task, place, fix)
    found = lawful(task, place, whole.rows(0, len(whole)))
    assert len(found)
    for i in np.linspace(0, len(found) - 1, 25).astype(int):
        layout = found.row(int(i))
        assert {name: getattr(layout, name) for name in fix} == fix


def test_fixing_picks_the_same_rows(job: Jobs, cluster: Clusters) -> None:
    task, place = job(), cluster()
    whole = space(task, place)
    every = lawful(task, place, whole.rows(0, len(whole)))
    part = space(task, place, {"tp": 2, "recompute": "full"})
    kept = every.take((every.tp == 2) & (every.recompute == recompute_mask("full")))
    assert rows_of(lawful(task, place, part.rows(0, len(part)))) == rows_of(kept)


def test_fixed_copies_of_shard_groups_hold_in_every_row(job: Jobs, cluster: Clusters) -> None:
    task, place = job(), cluster()
    whole = space(task, place, {"dp_replicate": 2})
    batch = whole.rows(0, len(whole))
    assert len(lawful(task, place, batch)) == len(batch) > 0
    assert (batch.dp_replicate == 2).all()
    assert (batch.zero_stage >= 1).all()
    for fix, rule in (
        ({"dp_replicate": 3}, "shards_make_dp"),
        ({"dp_replicate": 2, "zero_stage": 0}, "replicas_need_zero"),
    ):
        refused = space(task, place, fix)
        assert len(refused) == 0
        assert rule in refused.rejected


def test_impossible_degrees_are_refused_with_a_reason(job: Jobs, cluster: Clusters) -> None:
    with pytest.raises(InputError, match="divide 8") as caught:
        space(job(), cluster(), {"tp": 3})
    assert caught.value.code == "MW-E140"


def test_ranges_join(job: Jobs, cluster: Clusters) -> None:
    whole = space(job(), cluster())
    half = len(whole) // 2
    joined = np.concatenate([whole.rows(0, half).micro_batch, whole.rows(half, len(whole)).micro_batch])
    assert np.array_equal(joined, whole.rows(0, len(whole)).micro_batch)


@pytest.mark.parametrize("n", [1, 2, 12, 97, 1536, 16384])
def test_divisors(n: int) -> None:
    assert divisors(n) == tuple(d for d in range(1, n + 1) if n % d == 0)


def test_a_wider_search_holds_every_value(job: Jobs, cluster: Clusters) -> None:
    task, place = job("gpt2", global_batch=64), cluster("1x4 A100-80GB")
    usual, wide = space(task, place), space(task, place, None, Choices().widened(WIDER))
    rows = wide.rows(0, len(wide))
    assert {rows.schedules[code] for code in np.unique(rows.schedule)} == set(schedules())
    assert set(np.unique(rows.offload_optimizer)) == set(np.unique(rows.offload_parameters)) == {0, 1, 2}
    assert len(lawful(task, place, rows)) == len(rows) > len(usual)
