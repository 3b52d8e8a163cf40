"""Activations against the closed forms of Korthikanti et al., arXiv 2205.05198, tables 2 and section 4."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel.block_times import BlockTimes, block_times, launch_wait_s
from meshwright.costmodel.mesh import place
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch, recompute_mask

CONSTANTS = catalog.constants()


def _times(job: TrainingJob, cluster: Cluster, layout: Layout, recompute: tuple[str, ...] = ("none",)) -> BlockTimes:
    """One shape under some recompute masks."""
    rows = LayoutBatch.of([layout])
    masks = np.array([recompute_mask(name) for name in recompute], np.int32)
    return block_times(job, cluster, rows, masks, place("tp", cluster, rows), CONSTANTS)


def _per_layer(layout: Layout) -> tuple[float, TrainingJob]:
    """Saved activation bytes of one layer of a GPT with dropout, unfused attention, fp16."""
    model = catalog.model("megatron-39.1b").model_copy(update={"dropout": True})
    job = TrainingJob(model=model, seq_len=2048, global_batch=8, precision="fp16", attention="unfused")
    cluster = catalog.cluster("1x8 A100-80GB")[0]
    return float(_times(job, cluster, layout, (layout.recompute,)).saved_bytes[1, 0]), job


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("micro_batch", [1, 3])
def test_activation_bytes_of_a_layer(tp: int, micro_batch: int) -> None:
    model = catalog.model("megatron-39.1b")
    attention = next(b for b in model.layers[0].blocks if b.kind == "attention").options
    assert attention["dropout"], "the paper's formula has dropout masks"
    s, h, a = 2048, model.hidden_size, int(attention["num_attention_heads"])
    sbh = s * micro_batch * h

    def saved(**layout: object) -> float:
        return _per_layer(Layout(tp=tp, micro_batch=micro_batch, **layout))[0]  # type: ignore[arg-type]

    assert saved() == pytest.approx(sbh * (10 + 24 / tp + 5 * a * s / (h * tp)), rel=1e-12)
    if tp > 1:
        assert saved(sp=True) == pytest.approx(sbh / tp * (34 + 5 * a * s / h), rel=1e-12)
        assert saved(sp=True, recompute="selective") == pytest.approx(34 * sbh / tp, rel=1e-12)
    assert saved(recompute="full") == pytest.approx(2 * sbh, rel=1e-12)


def test_recompute_moves_bytes_from_saved_to_working_and_adds_the_forward() -> None:
    model = catalog.model("llama-2-7b")
    job = TrainingJob(model=model, seq_len=2048, global_batch=8)
    cluster = catalog.cluster("1x8 A100-80GB")[0]
    times = _times(job, cluster, Layout(), ("none", "selective", "mlp", "full"))
    held = times.saved_bytes[1] + times.working_bytes[1]
    np.testing.assert_allclose(held, held[0])
    assert (np.diff(times.saved_bytes[1, [0, 1, 3]]) < 0).all()
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
