"""Activations against the closed forms of Korthikanti et al., arXiv 2205.05198, table 2 and section 4."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel.activations import Activations, activations
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch, recompute_mask


def _of(job: TrainingJob, layout: Layout, *recompute: str) -> Activations:
    """One shape under some recompute masks."""
    masks = np.array([recompute_mask(name) for name in recompute], np.int32)
    return activations(job, LayoutBatch.of([layout]), masks)


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("micro_batch", [1, 3])
def test_activation_bytes_of_a_layer(tp: int, micro_batch: int) -> None:
    model = catalog.model("megatron-39.1b")
    attention = next(b for b in model.layers[0].blocks if b.kind == "attention").options
    assert attention["dropout"], "the paper's formula has dropout masks"
    s, h, a = 2048, model.hidden_size, int(attention["num_attention_heads"])
    sbh = s * micro_batch * h
    job = TrainingJob(model=model, seq_len=s, global_batch=8, precision="fp16", attention="unfused")

    def saved(recompute: str = "none", **layout: object) -> float:
        rows = Layout(tp=tp, micro_batch=micro_batch, **layout)  # type: ignore[arg-type]
        return float(_of(job, rows, recompute).saved_bytes[1, 0])

    assert saved() == pytest.approx(sbh * (10 + 24 / tp + 5 * a * s / (h * tp)), rel=1e-12)
    if tp > 1:
        assert saved(sp=True) == pytest.approx(sbh / tp * (34 + 5 * a * s / h), rel=1e-12)
        assert saved("selective", sp=True) == pytest.approx(34 * sbh / tp, rel=1e-12)
    assert saved("full") == pytest.approx(2 * sbh, rel=1e-12)


def test_logits_of_the_last_stage() -> None:
    """Section 4.3: with sequence parallelism norm input, head input and fp32 logits make 4 s b h / t (1 + v / h)."""
    model = catalog.model("megatron-39.1b")
    s, h, v, t = 2048, model.hidden_size, model.vocab_size, 8
    job = TrainingJob(model=model, seq_len=s, global_batch=8, precision="fp16", attention="unfused")
    found = _of(job, Layout(tp=t, sp=True), "none")
    half_precision_logits = 2 * s * v / t
    held = found.saved_bytes[2, 0] + found.logits_bytes[2, 0] - half_precision_logits
    assert held == pytest.approx(4 * s * h / t * (1 + v / h), rel=1e-12)


def test_recompute_moves_bytes_from_saved_to_working() -> None:
    job = TrainingJob(model=catalog.model("llama-2-7b"), seq_len=2048, global_batch=8)
    found = _of(job, Layout(), "none", "selective", "mlp", "full")
    held = found.saved_bytes[1] + found.working_bytes[1]
    np.testing.assert_allclose(held, held[0])
    assert (np.diff(found.saved_bytes[1, [0, 1, 3]]) < 0).all()
    assert (found.working_bytes[[0, 2]] == 0).all(), "embedding and head are never recomputed"


@pytest.mark.parametrize(("kv_heads", "gated"), [(32, True), (8, True)])
def test_gated_grouped_query_layer(kv_heads: int, gated: bool) -> None:
    """The same counting for SwiGLU, grouped queries, flash attention: s b h (12 + 4 k/a + 6 f/h) / t + 4 b a s / t."""
    model = catalog.model("llama-2-7b" if kv_heads == 32 else "llama-3-8b")
    attention = next(b for b in model.layers[0].blocks if b.kind == "attention").options
    mlp = next(b for b in model.layers[0].blocks if b.kind == "mlp").options
    assert attention["num_key_value_heads"] == kv_heads
    assert mlp["gated"] is gated
    s, b, h, a, t = 4096, 2, model.hidden_size, 32, 4
    job = TrainingJob(model=model, seq_len=s, global_batch=8)
    expected = s * b * h * (12 + 4 * kv_heads / a + 6 * int(mlp["intermediate_size"]) / h) / t + 4 * b * a * s / t
    found = _of(job, Layout(tp=t, sp=True, micro_batch=b), "none")
    assert found.saved_bytes[1, 0] == pytest.approx(expected, rel=1e-12)
