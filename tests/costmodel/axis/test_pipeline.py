"""Bytes between pipeline stages."""

from __future__ import annotations

import pytest

from meshwright import catalog
from meshwright.costmodel.axis import pipeline
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch
from tests.costmodel.axis.wire import sent_bytes


@pytest.mark.parametrize(("tp", "cp"), [(1, 1), (8, 1), (8, 2)])
def test_a_rank_sends_its_part_of_an_activation(tp: int, cp: int) -> None:
    """Arxiv 2104.04473, section 4.1: b s h a micro-batch, 1 / t of it a rank; context ranks have their part."""
    of = TrainingJob(model=catalog.model("gpt3-175b"), seq_len=2048, global_batch=64, precision="fp16")
    traffic = pipeline.sends(of, LayoutBatch.of([Layout(tp=tp, cp=cp, pp=8, micro_batch=2)]))
    assert sent_bytes(traffic, 2) == pytest.approx(2 * 2048 * 12288 * 2 / (tp * cp))
