"""Parameters and FLOPs against closed forms from outside."""

from __future__ import annotations

import pytest

from meshwright import catalog
from meshwright.costmodel.parameters import active_parameter_count, forward_flops_per_sequence, parameter_count
from meshwright.specs.job import TrainingJob
from meshwright.specs.model import ModelSpec

from .block.cases import DEEPSEEK_MOE, MIXTRAL_ATTENTION, MIXTRAL_MOE, MLA, block, model

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


RMSNORM = block("norm", norm="rmsnorm")
DENSE_LAYERS, MOE_LAYERS = 3, 58


def _mixtral() -> ModelSpec:
    layer = (RMSNORM, MIXTRAL_ATTENTION, RMSNORM, MIXTRAL_MOE)
    return model(4096, ((32, layer),), prologue=(block("embedding"),), epilogue=(RMSNORM, block("head")))


def _deepseek_v3() -> ModelSpec:
    mlp = block("mlp", intermediate_size=18432, gated=True)
    return model(
        7168,
        ((DENSE_LAYERS, (RMSNORM, MLA, RMSNORM, mlp)), (MOE_LAYERS, (RMSNORM, MLA, RMSNORM, DEEPSEEK_MOE))),
        vocab_size=129_280,
        prologue=(block("embedding"),),
        epilogue=(RMSNORM, block("head")),
    )


def test_parameters_of_mixtures_of_experts() -> None:
    """Mixtral-8x7B and DeepSeek-V3 (without its further-token module) as transformers counts them."""
    assert parameter_count(_mixtral()) == 46_702_792_704
    assert parameter_count(_deepseek_v3()) == 671_026_404_352


def test_active_parameters_are_the_published_ones() -> None:
    """Mixtral: 12.9 B (arXiv 2401.04088); DeepSeek-V3: 37 B (arXiv 2412.19437); a dense model is all active."""
    assert active_parameter_count(_mixtral()) == pytest.approx(12.9e9, rel=0.005)
    assert active_parameter_count(_deepseek_v3()) == pytest.approx(37e9, rel=0.02)
    dense = catalog.model("llama-3-8b")
    assert active_parameter_count(dense) == parameter_count(dense)


@pytest.mark.parametrize("seq_len", [4096, 32768])
def test_flops_of_a_mixture_are_two_for_each_active_weight_and_token_and_the_attention(seq_len: int) -> None:
    """DeepSeek-V3: scores 192 and values 128 wide, 128 heads, 61 layers; the token table multiplies nothing."""
    deepseek = _deepseek_v3()
    job = TrainingJob(model=deepseek, seq_len=seq_len, global_batch=8)
    vectors = 61 * (2 * 7168 + 1536 + 512) + 7168
    weights = active_parameter_count(deepseek) - 129_280 * 7168 - vectors
    attention = 61 * seq_len**2 * 128 * (192 + 128)
    assert forward_flops_per_sequence(job) == pytest.approx(2.0 * weights * seq_len + attention, rel=1e-12)
    full = forward_flops_per_sequence(job, causal=False)
    assert full == pytest.approx(2.0 * weights * seq_len + 2 * attention, rel=1e-12)


def test_a_window_makes_the_flops_of_long_sequences_linear() -> None:
    """Mistral-7B with its window of 4,096: each further token costs the same."""
    windowed = block("attention", **{**MIXTRAL_ATTENTION.options, "window": 4096})
    mistral = model(4096, ((32, (RMSNORM, windowed, RMSNORM, block("mlp", intermediate_size=14336, gated=True))),))
    counts = [
        forward_flops_per_sequence(TrainingJob(model=mistral, seq_len=n, global_batch=8)) for n in (8192, 16384, 24576)
    ]
    assert counts[2] - counts[1] == pytest.approx(counts[1] - counts[0], rel=1e-12)
