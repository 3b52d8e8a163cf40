"""Parameters and FLOPs against closed forms from outside."""

from __future__ import annotations

import pytest

from meshwright import catalog
from meshwright.costmodel.parameters import forward_flops_per_sequence, parameter_count
from meshwright.specs.job import TrainingJob

COUNTS = {
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "bloom-176b": 176_247_271_424,
}


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_parameters_to_the_last_digit(name: str, count: int) -> None:
    assert parameter_count(catalog.model(name)) == count


@pytest.mark.parametrize("name", ["megatron-1.7b", "megatron-39.1b", "megatron-145.6b", "megatron-1008b", "gpt3-175b"])
def test_flops_equal_the_megatron_closed_form(name: str) -> None:
    """arXiv 2104.04473, section 3.4: 96 B s l h^2 (1 + s/(6h) + V/(16 l h)) with full recompute, 72 (..) without."""
    model = catalog.model(name)
    seq_len = model.max_position_embeddings
    job = TrainingJob(model=model, seq_len=seq_len, global_batch=8, attention="unfused")
    h, layers, vocab = model.hidden_size, model.n_layers, model.vocab_size
    forward = forward_flops_per_sequence(job, causal=False)
    head = 2.0 * seq_len * h * vocab
    without = 72.0 * seq_len * layers * h**2 * (1 + seq_len / (6 * h) + vocab / (12 * layers * h))
    with_recompute = 96.0 * seq_len * layers * h**2 * (1 + seq_len / (6 * h) + vocab / (16 * layers * h))
    assert 3 * forward == pytest.approx(without, rel=1e-12)
    assert 4 * forward - head == pytest.approx(with_recompute, rel=1e-12)


def test_causal_counts_half_of_the_attention_square() -> None:
    model = catalog.model("llama-2-7b")
    flash = TrainingJob(model=model, seq_len=4096, global_batch=8, attention="flash")
    square = 4.0 * 4096**2 * 4096 * model.n_layers
    full, causal = (forward_flops_per_sequence(flash, causal=c) for c in (False, True))
    assert full - causal == pytest.approx(square / 2, rel=1e-12)
