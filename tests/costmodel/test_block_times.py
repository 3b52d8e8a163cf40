"""Times of parts: recomputation, launches, tensor parallelism."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel.block_times import COMM_AXES, BlockTimes, Shaped, block_times, launch_wait_s
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch, recompute_mask

CONSTANTS = catalog.constants()
TP = COMM_AXES.index("tp")


def _times(job: TrainingJob, cluster: Cluster, layout: Layout, recompute: tuple[str, ...] = ("none",)) -> BlockTimes:
    """One shape under some recompute masks."""
    rows = Shaped(LayoutBatch.of([layout]), np.zeros(1, bool), False)
    masks = np.array([recompute_mask(name) for name in recompute], np.int32)
    return block_times(job, cluster, rows, masks, CONSTANTS)


def test_recompute_adds_what_it_repeats() -> None:
    model = catalog.model("llama-2-7b")
    job = TrainingJob(model=model, seq_len=2048, global_batch=8)
    cluster = catalog.cluster("1x8 A100-80GB")[0]
    times = _times(job, cluster, Layout(), ("none", "selective", "mlp", "full"))
    assert times.recompute_s[1, 0] == 0
    assert times.recompute_s[1, 3] == pytest.approx(times.forward_s[1, 3])
    assert (times.recompute_s[[0, 2]] == 0).all(), "embedding and head are never recomputed"


def test_launch_wait_is_a_soft_maximum() -> None:
    gpu, cpu = np.array([1.0, 1.0, 0.0]), np.array([0.0, 100.0, 2.0])
    np.testing.assert_allclose(launch_wait_s(gpu, cpu, 4.0), [0.0, 99.0, 2.0], atol=1e-3)


def test_cuda_graphs_remove_the_launch_floor() -> None:
    job = TrainingJob(model=catalog.model("gpt2"), seq_len=512, global_batch=8)
    cluster = catalog.cluster("1x8 A100-80GB")[0]
    eager = _times(job, cluster, Layout())
    graphs = _times(job.model_copy(update={"cuda_graphs": True}), cluster, Layout())
    assert eager.launch_forward_s[1, 0] > 0
    assert graphs.launch_forward_s[1, 0] == pytest.approx(0.0, abs=1e-12)


def test_sequence_parallelism_moves_as_many_bytes_in_more_calls() -> None:
    """arXiv 2205.05198, section 4.2.2: a reduce-scatter and an all-gather move what one all-reduce does."""
    job = TrainingJob(model=catalog.model("llama-2-70b"), seq_len=4096, global_batch=8)
    cluster = catalog.cluster("1x8 A100-80GB")[0]
    plain = _times(job, cluster, Layout(tp=8, micro_batch=4))
    split = _times(job, cluster, Layout(tp=8, micro_batch=4, sp=True))
    assert split.comm_forward_s[TP, 1, 0] == pytest.approx(plain.comm_forward_s[TP, 1, 0], rel=0.25)
    assert split.comm_forward_s[TP, 1, 0] > 0
    assert _times(job, cluster, Layout()).comm_forward_s[TP, 1, 0] == 0
