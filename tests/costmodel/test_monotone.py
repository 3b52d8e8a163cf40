"""What physics says of a change, for random legal layouts of random jobs over every axis."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from meshwright import catalog
from meshwright.costmodel import evaluate, legal
from meshwright.errors import InputError
from meshwright.specs.estimate import EstimateBatch
from meshwright.specs.hardware import Cluster, Gpu
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import RECOMPUTE_BITS, RECOMPUTE_NAMES, LayoutBatch
from tests.costmodel.layouts import CLUSTERS, job, legal_layouts

CONSTANTS = catalog.constants()
Columns = Mapping[str, Any]


def time(found: EstimateBatch) -> npt.NDArray[np.float64]:
    return found.step_time_s


def peak(found: EstimateBatch) -> npt.NDArray[np.float64]:
    return found.peak_allocated_bytes


def host(found: EstimateBatch) -> npt.NDArray[np.float64]:
    return found.host_bytes


def states(found: EstimateBatch) -> npt.NDArray[np.float64]:
    by = found.memory_by_bytes
    return by["weights"] + by["gradients"] + by["optimizer"]


@dataclass(frozen=True)
class Law:
    """``what`` grows (or stays) when job, GPU or columns change so, where the layouts are as ``where`` says.

    ``shrinks``: it shrinks or stays. ``tolerance``: how far the other way it may go.
    """

    what: Callable[[EstimateBatch], npt.NDArray[np.float64]]
    job: Callable[[TrainingJob], Columns] = lambda of: {}
    gpu: Callable[[Gpu], Columns] = lambda gpu: {}
    columns: Callable[[LayoutBatch], Columns] = lambda rows: {}
    where: Callable[[LayoutBatch, TrainingJob], Any] = lambda rows, of: np.ones(len(rows), bool)
    shrinks: bool = False
    tolerance: float = 1e-9


def _scheduled(rows: LayoutBatch, *names: str) -> npt.NDArray[np.bool_]:
    return np.isin(rows.schedule, [rows.schedules.index(name) for name in names if name in rows.schedules])


def _sharded_more(stage: int) -> Law:
    return Law(
        states,
        columns=lambda rows: {"zero_stage": np.full(len(rows), stage + 1)},
        where=lambda rows, of: (rows.zero_stage == stage) & (rows.offload_optimizer == 0),
        shrinks=True,
    )


LAWS = {
    "a larger batch takes longer": Law(time, job=lambda of: {"global_batch": 2 * of.global_batch}),
    "longer sequences take longer": Law(time, job=lambda of: {"seq_len": 2 * of.seq_len}),
    "a straggler takes longer": Law(time, job=lambda of: {"straggler_ratio": of.straggler_ratio + 0.1}),
    "faster PCIe is no loss": Law(time, gpu=lambda gpu: {"pcie_bytes_per_s": 2 * gpu.pcie_bytes_per_s}, shrinks=True),
    # NCCL chooses algorithms by its own estimate, which may be wrong by a little where two are close.
    "faster memory is no loss": Law(
        time, gpu=lambda gpu: {"memory_bytes_per_s": 1.5 * gpu.memory_bytes_per_s}, shrinks=True, tolerance=0.02
    ),
    "recomputing takes longer": Law(
        time, columns=lambda rows: {"recompute": np.full(len(rows), RECOMPUTE_NAMES["full"])}
    ),
    "recomputing all saves memory": Law(
        peak, columns=lambda rows: {"recompute": np.full(len(rows), RECOMPUTE_NAMES["full"])}, shrinks=True
    ),
    "recomputing a module saves memory": Law(
        peak, columns=lambda rows: {"recompute": rows.recompute | RECOMPUTE_BITS["mlp"]}, shrinks=True
    ),
    "stage 1 shards more than 0": _sharded_more(0),
    "stage 2 shards more than 1": _sharded_more(1),
    "stage 3 shards more than 2": _sharded_more(2),
    "replicas of shard groups hold more": Law(
        states, columns=lambda rows: {"dp_replicate": 2 * rows.dp_replicate}, where=lambda rows, of: rows.zero_stage > 0
    ),
    "resharding takes longer": Law(
        time,
        columns=lambda rows: {"reshard_after_forward": np.ones(len(rows))},
        where=lambda rows, of: rows.zero_stage == 3,
    ),
    "resharding saves memory": Law(
        peak,
        columns=lambda rows: {"reshard_after_forward": np.ones(len(rows))},
        where=lambda rows, of: rows.zero_stage == 3,
        shrinks=True,
    ),
    # An optimizer of many kernels on the GPU waits for their launches; the CPU's does not have them.
    "offload takes longer": Law(
        time,
        columns=lambda rows: {"offload_optimizer": np.ones(len(rows))},
        where=lambda rows, of: (rows.zero_stage > 0) & (rows.offload_optimizer == 0) & (of.optimizer != "unfused_adam"),
    ),
    "NVMe takes longer than host memory": Law(
        time,
        columns=lambda rows: {"offload_optimizer": np.full(len(rows), 2)},
        where=lambda rows, of: rows.offload_optimizer == 1,
    ),
    "offload saves memory": Law(
        peak,
        columns=lambda rows: {"offload_optimizer": np.ones(len(rows))},
        where=lambda rows, of: rows.zero_stage > 0,
        shrinks=True,
    ),
    "offload fills the host": Law(
        host,
        columns=lambda rows: {"offload_optimizer": np.ones(len(rows))},
        where=lambda rows, of: (rows.zero_stage > 0) & (rows.offload_optimizer == 0),
    ),
    "more expert ranks hold less": Law(
        states, columns=lambda rows: {"ep": 2 * rows.ep}, where=lambda rows, of: rows.zero_stage == 0, shrinks=True
    ),
    # GPipe holds every micro-batch anyway; others hold more, as long as there are enough micro-batches to fill them.
    "larger micro-batches take more memory": Law(
        peak,
        columns=lambda rows: {"micro_batch": 2 * rows.micro_batch},
        where=lambda rows, of: (
            ~_scheduled(rows, "gpipe") & (4 * rows.dp * rows.micro_batch * rows.pp * rows.vpp <= of.global_batch)
        ),
    ),
    "adapters have smaller states": Law(
        states, job=lambda of: {"lora_rank": 16, "optimizer": "adam"}, where=lambda rows, of: of.optimizer == "adam",
        shrinks=True,
    ),
}  # fmt: skip


@functools.cache
def _cases() -> tuple[tuple[TrainingJob, Cluster, LayoutBatch], ...]:
    rng = np.random.default_rng(3)
    found = []
    for number in range(36):
        cluster = catalog.cluster(CLUSTERS[number % len(CLUSTERS)])[0]
        of = job(rng, cluster)
        found.append((of, cluster, legal_layouts(rng, of, cluster, 60)))
    return tuple(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_physics_is_monotone(name: str) -> None:
    law, seen = LAWS[name], 0
    for of, cluster, layouts in _cases():
        before = layouts.take(np.flatnonzero(np.broadcast_to(law.where(layouts, of), len(layouts))))
        after = before.take(np.arange(len(before)))
        for column, values in law.columns(before).items():
            setattr(after, column, np.asarray(values, np.int32))
        try:
            other = TrainingJob.model_validate({**of.model_dump(), **law.job(of)})
        except InputError:
            # Longer than the model's learned positions.
            continue
        gpu = cluster.gpu.model_copy(update=dict(law.gpu(cluster.gpu)))
        there = cluster.model_copy(update={"gpu": gpu})
        kept = np.flatnonzero(~np.any(list(legal(other, there, after).values()), axis=0))
        if len(kept):
            seen += len(kept)
            least = law.what(evaluate(of, cluster, before.take(kept), CONSTANTS))
            most = law.what(evaluate(other, there, after.take(kept), CONSTANTS))
            if law.shrinks:
                least, most = most, least
            worst = int(np.argmax(least / most))
            assert least[worst] <= most[worst] * (1.0 + law.tolerance), (of, cluster.text, before.row(int(kept[worst])))
    assert seen >= 50
