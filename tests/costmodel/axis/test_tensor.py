"""Tensor and sequence parallelism against Megatron's counts."""

from __future__ import annotations

import pytest

from meshwright import catalog
from meshwright.costmodel import block as blocks
from meshwright.costmodel.axis import tensor
from meshwright.costmodel.recompute import shapes_of
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch
from tests.costmodel.axis.wire import total_bytes

B, S, H, T, FP16 = 4, 2048, 12288, 8, 2


def _layer(*, sp: bool) -> tuple[float, set[str]]:
    """Bytes that a rank sends for one layer of GPT-3, forward and backward, and by what."""
    of = TrainingJob(model=catalog.model("gpt3-175b"), seq_len=S, global_batch=64, precision="fp16")
    shapes = shapes_of(of, LayoutBatch.of([Layout(tp=T, sp=sp, micro_batch=B)]))
    sent, kinds = 0.0, set()
    for member in of.model.layer_kinds[0]:
        if phases := blocks.kind(member).TP_REDUCE:
            found = tensor.sends(phases, shapes, sequence_parallel=sp)
            sent += total_bytes(found, T)
            kinds |= {traffic.collective for traffic in found}
    return sent, kinds


def test_a_layer_reduces_four_times() -> None:
    """Arxiv 1909.08053, section 3: two all-reduces of b s h forward and two backward."""
    sent, kinds = _layer(sp=False)
    assert kinds == {"all_reduce"}
    assert sent == pytest.approx(4 * B * S * H * FP16 * 2 * (T - 1) / T)


def test_sequence_parallelism_has_equal_volume() -> None:
    """Arxiv 2205.05198, section 4.2.2: a ring all-reduce is a reduce-scatter and an all-gather."""
    sent, kinds = _layer(sp=True)
    assert kinds == {"all_gather", "reduce_scatter"}
    assert sent == pytest.approx(_layer(sp=False)[0])
