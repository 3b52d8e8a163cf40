"""ZeRO, FSDP and HSDP against the closed forms of their papers."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel import evaluate
from meshwright.costmodel.axis import data
from meshwright.costmodel.mesh import place
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch
from tests.costmodel.axis.wire import sent_bytes

CONSTANTS = catalog.constants()
#: The paper's example (arXiv 1910.02054, figure 1): 7.5 billion parameters over 64 replicas.
PSI, REPLICAS = 7.5e9, 64
#: Its gradients are fp16, as are its weights: 2 bytes each.
BYTES = 2.0


def _job(**fields: object) -> TrainingJob:
    return TrainingJob.model_validate(
        {"model": catalog.model("megatron-7.5b"), "seq_len": 1024, "global_batch": 64, "precision": "fp16",
         "grad_dtype": "fp16", **fields}
    )  # fmt: skip


def _step_bytes(of: TrainingJob, layout: Layout, psi: float = PSI, *, experts: bool = False) -> float:
    """Bytes that a rank sends in a step for ``psi`` elements."""
    rows = LayoutBatch.of([layout])
    micro_batches = of.global_batch / (layout.dp * layout.micro_batch)
    ranks = layout.dp * layout.tp * layout.cp // (layout.ep * layout.etp) if experts else layout.dp * layout.cp
    groups = {"dp": ranks, "shard": ranks // layout.dp_replicate, "replicate": layout.dp_replicate}
    if experts:
        groups = {f"expert_{'all' if name == 'dp' else name}": size for name, size in groups.items()}
    return sum(
        sent_bytes(traffic, groups[traffic.group])
        * (micro_batches if data.every_micro_batch(traffic.phase, rows)[0] else 1.0)
        for traffic in data.sends(of, np.array([psi]), np.zeros(1), rows, experts=experts)
    )


@pytest.mark.parametrize(("stage", "volume"), [(0, 2.0), (1, 2.0), (2, 2.0), (3, 3.0)])
def test_zero_moves_two_psi_and_stage_3_three(stage: int, volume: float) -> None:
    """Arxiv 1910.02054, section 7: stages 1 and 2 as plain data parallelism, 2 psi; stage 3 half as much again."""
    sent = _step_bytes(_job(), Layout(dp=REPLICAS, zero_stage=stage))
    assert sent == pytest.approx(volume * PSI * BYTES * (REPLICAS - 1) / REPLICAS)


@pytest.mark.parametrize(
    ("pp", "stage", "reshard", "gathers", "reductions"),
    [(1, 1, True, 1, 1), (1, 2, True, 1, 4), (1, 3, True, 8, 4), (1, 3, False, 4, 4), (4, 3, True, 8, 1),
     (4, 3, False, 1, 1), (4, 2, True, 1, 1)],
)  # fmt: skip
def test_every_micro_batch_gathers_again(pp: int, stage: int, reshard: bool, gathers: int, reductions: int) -> None:
    """Four micro-batches: FSDP gathers for both passes of each, or keeps the weights (arXiv 2304.11277, section 3.2.1).

    A pipeline reduces once (arXiv 2407.21783, section 3.3.2); without one each micro-batch's gradients are scattered.
    """
    layout = Layout(dp=16, pp=pp, zero_stage=stage, reshard_after_forward=reshard)
    sent = _step_bytes(_job(), layout)
    assert sent == pytest.approx((gathers + reductions) * PSI * BYTES * 15 / 16)


def test_hybrid_shards_reduce_what_is_left_over_the_replicas() -> None:
    """Arxiv 2304.11277, section 3.2.2: groups of 8 gather and scatter, then reduce 1/8 over 8 replicas."""
    sent = _step_bytes(_job(), Layout(dp=64, dp_replicate=8, zero_stage=3))
    inside, across = 3.0 * PSI * BYTES * 7 / 8, 2.0 * (PSI / 8) * BYTES * 7 / 8
    assert sent == pytest.approx(inside + across)


def test_context_ranks_reduce_with_the_replicas() -> None:
    """They have equal weights and other tokens: 4 x 16 ranks reduce as 64 replicas do."""
    of = _job(global_batch=16)
    assert _step_bytes(of, Layout(dp=16, cp=4, zero_stage=1)) == pytest.approx(2.0 * PSI * BYTES * 63 / 64)


def test_expert_gradients_are_reduced_over_the_ranks_that_share_them() -> None:
    """Tp 2 x cp 2 x dp 16 = 64 ranks hold 16 x 2 different parts of the experts: 2 ranks have each."""
    layout = Layout(dp=16, tp=2, sp=True, cp=2, ep=16, etp=2, zero_stage=1)
    assert _step_bytes(_job(global_batch=16), layout, experts=True) == pytest.approx(2.0 * PSI * BYTES * 1 / 2)


def test_the_two_copies_of_a_dualpipe_stage_add_up_their_gradients() -> None:
    """Arxiv 2412.19437, table 2: twice the parameters; each copy has seen half of the micro-batches. Without replicas
    the two ranks exchange 2 psi x 1 / 2, with 16 replicas all 32 reduce together.
    """
    of = _job()
    for dp in (1, 16):
        layout = Layout(dp=dp, pp=4, schedule="dualpipe", zero_stage=0)
        rows = LayoutBatch.of([layout])
        assert int(place("dp", catalog.cluster("8x8 V100-32GB")[0], rows).size[0]) == 2 * dp
        (reduction,) = [t for t in data.sends(of, np.array([PSI]), np.zeros(1), rows) if np.any(t.count)]
        assert sent_bytes(reduction, 2 * dp) == pytest.approx(2.0 * PSI * BYTES * (2 * dp - 1) / (2 * dp))


def test_gradients_travel_in_their_own_width() -> None:
    """Gradients of 4 bytes are reduce-scattered, weights of 2 are gathered."""
    sent = _step_bytes(_job(grad_dtype="fp32"), Layout(dp=64, zero_stage=1))
    assert sent == pytest.approx((4.0 + 2.0) * PSI * 63 / 64)


@pytest.mark.parametrize(
    ("stage", "per_parameter", "published_gb"),
    [(0, 16.0, 120.0), (1, 4.0 + 12.0 / 64, 31.4), (2, 2.0 + 14.0 / 64, 16.6), (3, 16.0 / 64, 1.88)],
)
def test_states_of_7_5_billion_parameters_over_64_replicas(
    stage: int, per_parameter: float, published_gb: float
) -> None:
    """Arxiv 1910.02054, figure 1: K = 12 bytes of optimizer state a parameter."""
    cluster = catalog.cluster("8x8 V100-32GB")[0]
    found = evaluate(_job(), cluster, LayoutBatch.of([Layout(dp=64, zero_stage=stage)]), CONSTANTS)
    by = found.memory_by_bytes
    states = float(by["weights"][0] + by["gradients"][0] + by["optimizer"][0])
    # Megatron's 7.5B: 36 layers of width 4096, tied embeddings of 51,200 words and 2,048 positions.
    h, layers = 4096, 36
    parameters = layers * (12 * h * h + 13 * h) + (51_200 + 2_048) * h + 2 * h
    assert states == pytest.approx(per_parameter * parameters, rel=0.01)
    assert states == pytest.approx(published_gb * 1e9, rel=0.03)


def test_hybrid_shards_hold_a_shard_of_their_group() -> None:
    """Stage 3 over groups of 8 of 64 replicas: 16 psi / 8 a rank, eight times what full sharding leaves."""
    cluster = catalog.cluster("8x8 V100-32GB")[0]
    layouts = LayoutBatch.of([Layout(dp=64, dp_replicate=r, zero_stage=3) for r in (1, 8)])
    by = evaluate(_job(), cluster, layouts, CONSTANTS).memory_by_bytes
    full, hybrid = by["weights"] + by["gradients"] + by["optimizer"]
    assert hybrid == pytest.approx(8.0 * full)


def test_fsdp_keeps_two_units_gathered() -> None:
    """Arxiv 2304.11277, section 3.3.2: the unit that runs and the next one; without resharding all of them."""
    cluster = catalog.cluster("8x8 V100-32GB")[0]
    rows = [Layout(dp=64, zero_stage=3, reshard_after_forward=reshard) for reshard in (True, False)]
    found = evaluate(_job(), cluster, LayoutBatch.of(rows), CONSTANTS)
    shard = float(found.memory_by_bytes["weights"][0])
    two, all_ = found.memory_by_bytes["gather"]
    assert all_ == pytest.approx(64 * shard)
    assert two == pytest.approx(2 / 36 * 64 * shard)
